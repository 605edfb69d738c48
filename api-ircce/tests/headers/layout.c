/* The layout that programs were compiled with. */
#include <stddef.h>

#include "iRCCE.h"
#include "RCCE_lib.h"

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
/* An array type of negative size if the condition is false. */
#define HOLDS(condition) typedef char JOIN(holds_, __LINE__)[(condition) ? 1 : -1] __attribute__((unused))

HOLDS(RCCE_LINE_SIZE == 32);
HOLDS(RCCE_BUFF_SIZE_MAX == 8192);
HOLDS(RCCE_SHM_SIZE_MAX == 67108864);
HOLDS(RCCE_MAXNP == 48);
HOLDS(RCCE_SUCCESS == 0);
HOLDS(RCCE_ERROR_BASE == 1234321);
HOLDS(RCCE_ERROR_TARGET == 1234322);
HOLDS(RCCE_ERROR_SOURCE == 1234323);
HOLDS(RCCE_ERROR_ID == 1234324);
HOLDS(RCCE_ERROR_MESSAGE_LENGTH == 1234325);
HOLDS(RCCE_ERROR_FLAG_UNDEFINED == 1234326);
HOLDS(RCCE_ERROR_NUM_UES == 1234327);
HOLDS(RCCE_ERROR_DATA_OVERLAP == 1234328);
HOLDS(RCCE_ERROR_ALIGNMENT == 1234329);
HOLDS(RCCE_ERROR_DEBUG_FLAG == 1234330);
HOLDS(RCCE_ERROR_FLAG_NOT_IN_COMM_BUFFER == 1234331);
HOLDS(RCCE_ERROR_FLAG_STATUS_UNDEFINED == 1234332);
HOLDS(RCCE_ERROR_FLAG_NOT_ALLOCATED == 1234333);
HOLDS(RCCE_ERROR_VAL_UNDEFINED == 1234334);
HOLDS(RCCE_ERROR_INVALID_ERROR_CODE == 1234335);
HOLDS(RCCE_ERROR_RPC_NOT_ALLOCATED == 1234336);
HOLDS(RCCE_ERROR_RPC_INTERNAL == 1234337);
HOLDS(RCCE_ERROR_MULTIPLE_RPC_REQUESTS == 1234338);
HOLDS(RCCE_ERROR_FDIVIDER == 1234339);
HOLDS(RCCE_ERROR_FREQUENCY_EXCEEDED == 1234340);
HOLDS(RCCE_ERROR_NO_ACTIVE_RPC_REQUEST == 1234341);
HOLDS(RCCE_ERROR_STALE_RPC_REQUEST == 1234342);
HOLDS(RCCE_ERROR_COMM_UNDEFINED == 1234343);
HOLDS(RCCE_ERROR_ILLEGAL_OP == 1234344);
HOLDS(RCCE_ERROR_ILLEGAL_TYPE == 1234345);
HOLDS(RCCE_ERROR_MALLOC == 1234346);
HOLDS(RCCE_ERROR_COMM_INITIALIZED == 1234347);
HOLDS(RCCE_ERROR_CORE_NOT_IN_HOSTFILE == 1234348);
HOLDS(RCCE_MAX_ERROR_STRING == 45);
HOLDS(RCCE_DEBUG_ALL == 111111 && RCCE_DEBUG_SYNCH == 111444 && RCCE_DEBUG_COMM == 111555);
HOLDS(RCCE_DEBUG_RPC == 111666 && RCCE_DEBUG_DEBUG == 111888);
HOLDS(RCCE_FLAG_SET == 1 && RCCE_FLAG_UNSET == 0);
HOLDS(RCCE_NUM_OPS == 4 && RCCE_SUM == 23232323 && RCCE_MIN == 23232324);
HOLDS(RCCE_MAX == 23232325 && RCCE_PROD == 23232326);
HOLDS(RCCE_INT == 63636363 && RCCE_LONG == 63636364 && RCCE_FLOAT == 63636365 && RCCE_DOUBLE == 63636366);
HOLDS(RCCE_POWER_DEFAULT == -99999);
HOLDS(sizeof _RCCE == sizeof "1.0.13 release");
#ifdef RCCE_VERSION
#error "V1.0.13 has no RCCE_VERSION; programs look whether it is there"
#endif

HOLDS(sizeof(t_vcharp) == 8 && sizeof(RCCE_FLAG) == 8 && sizeof(RCCE_FLAG_STATUS) == 4);
HOLDS(sizeof(RCCE_COMM) == 224);
HOLDS(offsetof(RCCE_COMM, size) == 0 && offsetof(RCCE_COMM, my_rank) == 4 && offsetof(RCCE_COMM, initialized) == 8);
HOLDS(offsetof(RCCE_COMM, member) == 12 && offsetof(RCCE_COMM, gather) == 208 && offsetof(RCCE_COMM, release) == 216);
#ifdef RC_POWER_MANAGEMENT
HOLDS(sizeof(RCCE_REQUEST) == 32 && offsetof(RCCE_REQUEST, start_cycle) == 24);
#endif

HOLDS(iRCCE_SUCCESS == 0 && iRCCE_ERROR == -1 && iRCCE_PENDING == -2);
HOLDS(iRCCE_RESERVED == -3 && iRCCE_NOT_ENQUEUED == -4);
HOLDS(iRCCE_MAX_TAGGED_LEN == 28);
HOLDS(sizeof(iRCCE_SEND_REQUEST) == 128 && sizeof(iRCCE_RECV_REQUEST) == 136);
HOLDS(sizeof(((iRCCE_SEND_REQUEST *)0)->dest) == 4 && sizeof(((iRCCE_RECV_REQUEST *)0)->source) == 4);
HOLDS(sizeof(((iRCCE_RECV_REQUEST *)0)->combuf) == 8);
HOLDS(offsetof(iRCCE_SEND_REQUEST, privbuf) == 0 && offsetof(iRCCE_RECV_REQUEST, privbuf) == 0);
HOLDS(offsetof(iRCCE_SEND_REQUEST, size) == 40 && offsetof(iRCCE_RECV_REQUEST, size) == 40);
HOLDS(offsetof(iRCCE_SEND_REQUEST, dest) == 48 && offsetof(iRCCE_RECV_REQUEST, source) == 48);
HOLDS(offsetof(iRCCE_SEND_REQUEST, finished) == 92 && offsetof(iRCCE_RECV_REQUEST, finished) == 92);
HOLDS(sizeof(iRCCE_WAIT_LIST) == 16 && sizeof(iRCCE_AIR) == 16);
HOLDS(sizeof iRCCE_VERSION == 4);
#ifndef iRCCE_FLAIR
#error "programs look whether iRCCE_FLAIR is there"
#endif

/* Checks the parameters of functions, for which other tests would miss an error. */
int check(int argc, char **argv);
int check(int argc, char **argv)
{
  int (*init)(int *, char ***) = RCCE_init;
  t_vcharp (*shmalloc)(size_t) = RCCE_shmalloc;
  t_vcharp (*request)(size_t, size_t *) = RCCE_malloc_request;
  int (*put)(t_vcharp, t_vcharp, int, int) = RCCE_put;
  int (*get)(t_vcharp, t_vcharp, int, int) = iRCCE_get;
  int (*split)(int (*)(int, void *), void *, RCCE_COMM *) = RCCE_comm_split;
  int (*comm_size)(RCCE_COMM, int *) = RCCE_comm_size;
  int (*isend)(char *, ssize_t, int, iRCCE_SEND_REQUEST *) = RCCE_isend;
  int (*irecv)(char *, ssize_t, int, iRCCE_RECV_REQUEST *) = RCCE_irecv;
  int (*ssend)(char *, ssize_t, int) = iRCCE_send;
  int (*srecv)(char *, ssize_t, int) = iRCCE_recv;
  int (*any)(iRCCE_WAIT_LIST *, RCCE_SEND_REQUEST **, RCCE_RECV_REQUEST **) = iRCCE_wait_any;
  int (*write)(RCCE_FLAG *, RCCE_FLAG_STATUS, int, void *, int) = iRCCE_flag_write_tagged;
  int (*read)(RCCE_FLAG, RCCE_FLAG_STATUS *, int, void *, int) = iRCCE_flag_read_tagged;
  int (*test)(RCCE_FLAG, RCCE_FLAG_STATUS, int *, void *, int) = iRCCE_test_tagged;
  int (*alloc)(iRCCE_AIR **) = iRCCE_atomic_alloc;
  int (*bcast)(char *, size_t, int, RCCE_COMM) = iRCCE_bcast;
  int (*barrier)(RCCE_COMM *) = iRCCE_barrier;
  void *(*copy)(void *, const void *, size_t) = iRCCE_memcpy;
  const int *wildcards[2];
#ifdef GORY
  int (*send)(char *, t_vcharp, size_t, RCCE_FLAG *, RCCE_FLAG *, size_t, int) = RCCE_send;
  int (*recv_test)(char *, t_vcharp, size_t, RCCE_FLAG *, RCCE_FLAG *, size_t, int, int *) = RCCE_recv_test;
#else
  int (*send)(char *, size_t, int) = RCCE_send;
  int (*recv_test)(char *, size_t, int, int *) = RCCE_recv_test;
  int (*reduce)(char *, char *, int, int, int, int, RCCE_COMM) = RCCE_reduce;
  (void)reduce;
#endif
  wildcards[0] = &iRCCE_ANY_SOURCE;
  wildcards[1] = &iRCCE_ANY_LENGTH;
  (void)wildcards, (void)argv, (void)init, (void)shmalloc, (void)request, (void)put, (void)get, (void)split, (void)comm_size;
  (void)isend, (void)irecv, (void)ssend, (void)srecv, (void)any, (void)write, (void)read, (void)test, (void)alloc, (void)bcast;
  (void)barrier, (void)copy, (void)send, (void)recv_test;
  return argc + RCCE_IAM + RCCE_NP + RC_COREID[0] + RCCE_COMM_WORLD.size;
}
