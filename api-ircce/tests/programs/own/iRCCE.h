/* As programs bring it along that were written for iRCCE 1: other structures than this library's header has, the same names. */
#ifndef IRCCE_H
#define IRCCE_H

#include "RCCE.h"

typedef struct _iRCCE_SEND_REQUEST {
  char *privbuf;
  t_vcharp combuf;
  size_t chunk;
  RCCE_FLAG *ready, *sent;
  size_t size;
  int dest;
  size_t wsize, remainder, nbytes;
  char *bufptr;
  int label, finished;
  struct _iRCCE_SEND_REQUEST *next;
} iRCCE_SEND_REQUEST;

typedef struct _iRCCE_RECV_REQUEST {
  char *privbuf;
  t_vcharp combuf;
  size_t chunk;
  RCCE_FLAG *ready, *sent;
  size_t size;
  int source;
  size_t wsize, remainder, nbytes;
  char *bufptr;
  int label, finished, started;
  struct _iRCCE_RECV_REQUEST *next;
} iRCCE_RECV_REQUEST;

int iRCCE_init(void);
int iRCCE_isend(char *, size_t, int, iRCCE_SEND_REQUEST *);
int iRCCE_isend_wait(iRCCE_SEND_REQUEST *);
int iRCCE_irecv(char *, size_t, int, iRCCE_RECV_REQUEST *);
int iRCCE_irecv_wait(iRCCE_RECV_REQUEST *);
int iRCCE_send(char *, size_t, int);
int iRCCE_recv(char *, size_t, int);
int iRCCE_recv_test(char *, size_t, int, int *);

#define RCCE_isend iRCCE_isend
#define RCCE_isend_wait iRCCE_isend_wait
#define RCCE_irecv iRCCE_irecv
#define RCCE_irecv_wait iRCCE_irecv_wait
#define RCCE_SEND_REQUEST iRCCE_SEND_REQUEST
#define RCCE_RECV_REQUEST iRCCE_RECV_REQUEST

#endif
