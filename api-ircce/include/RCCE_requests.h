/*
 * Requests of RCCE.h and iRCCE.h, which include this. Programs may read privbuf (the buffer that the program has passed), size (bytes), dest or
 * source, and finished. The other members exist for their names only; their values have no meaning. A request must exist until it is
 * complete.
 */
#ifndef UNIPGAS_RCCE_REQUESTS_H
#define UNIPGAS_RCCE_REQUESTS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A send in progress. */
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

/** A receive in progress. source is -1 while the sender may be any UE. */
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
