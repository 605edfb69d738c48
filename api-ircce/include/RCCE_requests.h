/*
 * Requests of RCCE.h and iRCCE.h, which include this. privbuf (the buffer that the program has passed), size (bytes), dest or source,
 * and finished may be read; the other members are there to be named, and what is in them means nothing. A request lives until it has
 * been completed.
 */
#ifndef UNIPGAS_RCCE_REQUESTS_H
#define UNIPGAS_RCCE_REQUESTS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A send under way. */
typedef struct _RCCE_SEND_REQUEST {
  char *privbuf;
  volatile unsigned char *combuf;
  size_t chunk;
  RCCE_FLAG *ready;
  RCCE_FLAG *sent;
  size_t size;
  int dest;
  int sync;
  size_t wsize;
  size_t remainder;
  size_t nbytes;
  char *bufptr;
  int label;
  int finished;
  struct _RCCE_SEND_REQUEST *next;
  size_t subchunk1;
  size_t subchunk2;
  RCCE_FLAG_STATUS flag_set_value;
} RCCE_SEND_REQUEST;

/** A receive under way. source is -1 as long as the sender may be anyone. */
typedef struct _RCCE_RECV_REQUEST {
  char *privbuf;
  volatile unsigned char *combuf;
  size_t chunk;
  RCCE_FLAG *ready;
  RCCE_FLAG *sent;
  size_t size;
  int source;
  int sync;
  size_t wsize;
  size_t remainder;
  size_t nbytes;
  char *bufptr;
  int label;
  int finished;
  int started;
  struct _RCCE_RECV_REQUEST *next;
  size_t subchunk1;
  size_t subchunk2;
  RCCE_FLAG_STATUS flag_set_value;
} RCCE_RECV_REQUEST;

#ifdef __cplusplus
}
#endif

#endif
