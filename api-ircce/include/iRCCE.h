/*
 * iRCCE 2.0: non-blocking messages, tagged flags and atomic increment registers for RCCE programs (iRCCE manual of March 2013; clause
 * numbers below are of that text). Link with -liRCCE or -lRCCE. Call RCCE_init() first, then iRCCE_init().
 *
 * Sizes are in bytes. Functions that return int return iRCCE_SUCCESS, iRCCE_ERROR, one of the states below, or one of RCCE_ERROR_*.
 * Threads as in RCCE.h; a request or a list of requests is for one thread at a time.
 */
/* The guard of iRCCE's original header. Some programs bring it along: the first of both headers counts. */
#ifndef IRCCE_H
#define IRCCE_H

#include <sys/types.h>

#include "RCCE.h"
#include "RCCE_requests.h"

#ifdef __cplusplus
extern "C" {
#endif

#define iRCCE_VERSION "2.0"
#define iRCCE_FLAIR

#define iRCCE_SUCCESS RCCE_SUCCESS
#define iRCCE_ERROR (-1)
#define iRCCE_PENDING (-2)      /* begun, not finished */
#define iRCCE_RESERVED (-3)     /* waits for earlier requests */
#define iRCCE_NOT_ENQUEUED (-4) /* nothing to be cancelled */

/** Wildcards for receives: a message from any UE, of any length. §6. */
extern const int iRCCE_ANY_SOURCE;
extern const int iRCCE_ANY_LENGTH;

/** Bytes that a tagged flag carries. §4.4. */
#define iRCCE_MAX_TAGGED_LEN (RCCE_LINE_SIZE - 4)

/* ---------------------------------------------------------------- types */

/** A send or receive in progress: see RCCE_requests.h. */
typedef RCCE_SEND_REQUEST iRCCE_SEND_REQUEST;
typedef RCCE_RECV_REQUEST iRCCE_RECV_REQUEST;

/** Several requests. */
typedef struct _iRCCE_WAIT_LIST {
  void *first;
  void *last;
} iRCCE_WAIT_LIST;

/** An atomic increment register. Programs use its address only. */
typedef volatile struct _iRCCE_AIR {
  int *counter;
  int *init;
} iRCCE_AIR;

/* ---------------------------------------------------------------- beginning (§9.1) */

int iRCCE_init(void);

/* ---------------------------------------------------------------- non-blocking messages (§9.2, §9.3)
 *
 * A null request waits at once. iRCCE_issend() and iRCCE_isrecv() are the synchronous forms.
 */

int iRCCE_isend(char *buffer, ssize_t length, int dest, iRCCE_SEND_REQUEST *request);
int iRCCE_isend_test(iRCCE_SEND_REQUEST *request, int *flag);
int iRCCE_isend_wait(iRCCE_SEND_REQUEST *request);
int iRCCE_isend_push(void);
int iRCCE_isend_cancel(iRCCE_SEND_REQUEST *request, int *flag);
int iRCCE_irecv(char *buffer, ssize_t length, int source, iRCCE_RECV_REQUEST *request);
int iRCCE_irecv_test(iRCCE_RECV_REQUEST *request, int *flag);
int iRCCE_irecv_wait(iRCCE_RECV_REQUEST *request);
int iRCCE_irecv_push(void);
int iRCCE_irecv_cancel(iRCCE_RECV_REQUEST *request, int *flag);
int iRCCE_issend(char *buffer, ssize_t length, int dest, iRCCE_SEND_REQUEST *request);
int iRCCE_isrecv(char *buffer, ssize_t length, int source, iRCCE_RECV_REQUEST *request);
int iRCCE_iprobe(int source, int *test_rank, int *test_flag);

/* ---------------------------------------------------------------- blocking messages (§9.4) */

int iRCCE_ssend(char *buffer, ssize_t length, int dest);
int iRCCE_srecv(char *buffer, ssize_t length, int source);
int iRCCE_srecv_test(char *buffer, ssize_t length, int source, int *test);
int iRCCE_probe(int source, int *test_rank);

/* ---------------------------------------------------------------- MPBs (§9.5) */

/** Copies to the MPB of UE rank; target is an address in the own MPB. */
int iRCCE_put(t_vcharp target, t_vcharp source, int size, int rank);
/** Copies from the MPB of UE rank; source is an address in the own MPB. */
int iRCCE_get(t_vcharp target, t_vcharp source, int size, int rank);
void *iRCCE_memcpy_put(void *dest, const void *src, size_t num);
void *iRCCE_memcpy_get(void *dest, const void *src, size_t num);
/** Allocates in the MPB without a release. Returns null without room, and if size is not a multiple of 32 above 0. */
t_vcharp iRCCE_malloc(size_t size);

/* ---------------------------------------------------------------- several requests (§9.7) */

void iRCCE_init_wait_list(iRCCE_WAIT_LIST *wait_list);
void iRCCE_add_to_wait_list(iRCCE_WAIT_LIST *wait_list, iRCCE_SEND_REQUEST *send_request, iRCCE_RECV_REQUEST *recv_request);
void iRCCE_add_send_to_wait_list(iRCCE_WAIT_LIST *wait_list, iRCCE_SEND_REQUEST *request);
void iRCCE_add_recv_to_wait_list(iRCCE_WAIT_LIST *wait_list, iRCCE_RECV_REQUEST *request);
int iRCCE_test_all(iRCCE_WAIT_LIST *wait_list, int *flag);
int iRCCE_wait_all(iRCCE_WAIT_LIST *wait_list);
int iRCCE_test_any(iRCCE_WAIT_LIST *wait_list, iRCCE_SEND_REQUEST **send_request, iRCCE_RECV_REQUEST **recv_request);
int iRCCE_wait_any(iRCCE_WAIT_LIST *wait_list, iRCCE_SEND_REQUEST **send_request, iRCCE_RECV_REQUEST **recv_request);

/* ---------------------------------------------------------------- about requests (§9.8) */

int iRCCE_get_dest(iRCCE_SEND_REQUEST *request);
/** Sender of the request's message. Null: sender of the last message that was received. */
int iRCCE_get_source(iRCCE_RECV_REQUEST *request);
int iRCCE_get_size(iRCCE_SEND_REQUEST *send_request, iRCCE_RECV_REQUEST *recv_request);
int iRCCE_get_status(iRCCE_SEND_REQUEST *send_request, iRCCE_RECV_REQUEST *recv_request);
/** Length of the last message that was received. */
int iRCCE_get_length(void);

/* ---------------------------------------------------------------- flags (§9.9) */

int iRCCE_flag_alloc(RCCE_FLAG *flag);
int iRCCE_flag_write(RCCE_FLAG *flag, RCCE_FLAG_STATUS value, int id);
int iRCCE_flag_read(RCCE_FLAG flag, RCCE_FLAG_STATUS *value, int id);
int iRCCE_wait_until(RCCE_FLAG flag, RCCE_FLAG_STATUS value);
int iRCCE_flag_alloc_tagged(RCCE_FLAG *flag);
/** Writes UE id's flag with a tag of up to 28 bytes. The tag is visible before the flag. A longer tag is cut. */
int iRCCE_flag_write_tagged(RCCE_FLAG *flag, RCCE_FLAG_STATUS value, int id, void *tag, int length);
int iRCCE_flag_read_tagged(RCCE_FLAG flag, RCCE_FLAG_STATUS *value, int id, void *tag, int length);
int iRCCE_wait_tagged(RCCE_FLAG flag, RCCE_FLAG_STATUS value, void *tag, int length);
int iRCCE_test_tagged(RCCE_FLAG flag, RCCE_FLAG_STATUS value, int *result, void *tag, int length);
int iRCCE_get_max_tagged_len(void);

/* ---------------------------------------------------------------- atomic increment registers (§9.10) */

/** Allocates the next of 96 registers, with the value 0. iRCCE_barrier uses the first two. iRCCE_ERROR: no register is left. */
int iRCCE_atomic_alloc(iRCCE_AIR **reg);
/** Adds 1. *value: the value before. */
int iRCCE_atomic_inc(iRCCE_AIR *reg, int *value);
int iRCCE_atomic_read(iRCCE_AIR *reg, int *value);
int iRCCE_atomic_write(iRCCE_AIR *reg, int value);

/* ---------------------------------------------------------------- all together (§9.11, §9.12) */

/** Null: all UEs. The barrier of all UEs counts at atomic increment registers. It does not meet RCCE_barrier. */
int iRCCE_barrier(RCCE_COMM *comm);
int iRCCE_bcast(char *buffer, size_t length, int root, RCCE_COMM comm);
int iRCCE_mcast(char *buffer, size_t length, int root);
int iRCCE_msend(char *buffer, ssize_t length);
int iRCCE_mrecv(char *buffer, ssize_t length, int source);

/* ---------------------------------------------------------------- receives into buffers of known size
 *
 * As the functions without _within, for a buffer of capacity bytes; (size_t)-1: unknown. A message received by iRCCE_ANY_LENGTH is not
 * written beyond the end of the buffer. If the compiler knows the size of a buffer, it calls these functions for the names without
 * _within. The macro UNIPGAS_IRCCE_NO_SIZES prevents that.
 */

int iRCCE_irecv_within(char *buffer, ssize_t length, int source, iRCCE_RECV_REQUEST *request, size_t capacity);
int iRCCE_isrecv_within(char *buffer, ssize_t length, int source, iRCCE_RECV_REQUEST *request, size_t capacity);
int iRCCE_srecv_within(char *buffer, ssize_t length, int source, size_t capacity);
int iRCCE_mrecv_within(char *buffer, ssize_t length, int source, size_t capacity);

#if defined __GNUC__ && !defined UNIPGAS_IRCCE_NO_SIZES
#define iRCCE_irecv(buffer, length, source, request) \
  iRCCE_irecv_within(buffer, length, source, request, __builtin_object_size(buffer, 0))
#define iRCCE_isrecv(buffer, length, source, request) \
  iRCCE_isrecv_within(buffer, length, source, request, __builtin_object_size(buffer, 0))
#define iRCCE_srecv(buffer, length, source) \
  iRCCE_srecv_within(buffer, length, source, __builtin_object_size(buffer, 0))
#define iRCCE_mrecv(buffer, length, source) \
  iRCCE_mrecv_within(buffer, length, source, __builtin_object_size(buffer, 0))
#endif

/* ---------------------------------------------------------------- other names */

/* In RCCE's name space (§2.2). */
#define RCCE_isend iRCCE_isend
#define RCCE_isend_test iRCCE_isend_test
#define RCCE_isend_wait iRCCE_isend_wait
#define RCCE_isend_push iRCCE_isend_push
#define RCCE_irecv iRCCE_irecv
#define RCCE_irecv_test iRCCE_irecv_test
#define RCCE_irecv_wait iRCCE_irecv_wait
#define RCCE_irecv_push iRCCE_irecv_push
#define RCCE_SEND_REQUEST iRCCE_SEND_REQUEST
#define RCCE_RECV_REQUEST iRCCE_RECV_REQUEST

/* Functions of versions before 2.0. */
int iRCCE_send(char *buffer, ssize_t length, int dest);
int iRCCE_recv(char *buffer, ssize_t length, int source);
int iRCCE_recv_test(char *buffer, ssize_t length, int source, int *test);
#define iRCCE_send iRCCE_ssend
#define iRCCE_recv iRCCE_srecv
#define iRCCE_recv_test iRCCE_srecv_test
#define iRCCE_memcpy iRCCE_memcpy_put

/* Names of the synchronous forms. */
#define iRCCE_issend_test iRCCE_isend_test
#define iRCCE_issend_wait iRCCE_isend_wait
#define iRCCE_issend_push iRCCE_isend_push
#define iRCCE_isrecv_test iRCCE_irecv_test
#define iRCCE_isrecv_wait iRCCE_irecv_wait
#define iRCCE_isrecv_push iRCCE_irecv_push

#ifdef __cplusplus
}
#endif

#endif
