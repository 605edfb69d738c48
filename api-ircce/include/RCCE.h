/*
 * RCCE V1.0.13: messages, buffers, flags and shared memory for the units of execution (UEs) of one program. Link with -lRCCE; start
 * with `unipgas run -n UES program`, or rccerun. Compile with -DGORY for the interface in which the program manages buffers and flags,
 * without it for the simple one; one library serves both.
 *
 * Sizes are in bytes. A UE has a number from 0 to RCCE_num_ues() - 1. Each UE has a message-passing buffer (MPB) of 8192 bytes; the
 * environment variable UNIPGAS_RCCE_MPB changes the size. An address in the own MPB stands for the same place in all MPBs. All UEs make
 * allocations in the same order. Functions with the result int return RCCE_SUCCESS or one of RCCE_ERROR_*. RCCE has no code for the
 * death of a UE: the other UEs then print a line on stderr and end. UEs that wait sleep.
 *
 * Any thread of a UE may call, and several threads at once. Messages, flags, locks and communicators belong to the UE. Threads that
 * receive from the same sender get one message each. Two threads pass the same barrier one after the other. One thread calls
 * RCCE_init and RCCE_finalize.
 */
/* The guard of RCCE's original header. Some programs bring it along: the first of both headers counts. */
#ifndef RCCE_H
#define RCCE_H

#include <stdio.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The program's entry, also with -fopenmp: int RCCE_APP(int argc, char **argv). */
#define RCCE_APP main

#define _RCCE "1.0.13 release"
#define STDERR stdout

/* ---------------------------------------------------------------- sizes */

#define RCCE_LINE_SIZE 32
#define RCCE_BUFF_SIZE_MAX 8192
#define RCCE_SHM_SIZE_MAX 67108864
#define RCCE_MAXNP 48

/* ---------------------------------------------------------------- results */

#define RCCE_SUCCESS 0
#define RCCE_PENDING (-2)  /* begun, not finished */
#define RCCE_RESERVED (-3) /* waits for earlier requests */
#define RCCE_REJECTED (-4) /* nothing to be cancelled */
#define RCCE_ERROR_BASE 1234321
#define RCCE_ERROR_TARGET (RCCE_ERROR_BASE + 1)                    /* not an address in the MPB */
#define RCCE_ERROR_SOURCE (RCCE_ERROR_BASE + 2)                    /* not an address in the MPB */
#define RCCE_ERROR_ID (RCCE_ERROR_BASE + 3)                        /* no UE of this number */
#define RCCE_ERROR_MESSAGE_LENGTH (RCCE_ERROR_BASE + 4)
#define RCCE_ERROR_FLAG_UNDEFINED (RCCE_ERROR_BASE + 5)
#define RCCE_ERROR_NUM_UES (RCCE_ERROR_BASE + 6)
#define RCCE_ERROR_DATA_OVERLAP (RCCE_ERROR_BASE + 7)
#define RCCE_ERROR_ALIGNMENT (RCCE_ERROR_BASE + 8)
#define RCCE_ERROR_DEBUG_FLAG (RCCE_ERROR_BASE + 9)
#define RCCE_ERROR_FLAG_NOT_IN_COMM_BUFFER (RCCE_ERROR_BASE + 10)
#define RCCE_ERROR_FLAG_STATUS_UNDEFINED (RCCE_ERROR_BASE + 11)
#define RCCE_ERROR_FLAG_NOT_ALLOCATED (RCCE_ERROR_BASE + 12)
#define RCCE_ERROR_VAL_UNDEFINED (RCCE_ERROR_BASE + 13)            /* a null pointer for a result */
#define RCCE_ERROR_INVALID_ERROR_CODE (RCCE_ERROR_BASE + 14)
#define RCCE_ERROR_RPC_NOT_ALLOCATED (RCCE_ERROR_BASE + 15)
#define RCCE_ERROR_RPC_INTERNAL (RCCE_ERROR_BASE + 16)
#define RCCE_ERROR_MULTIPLE_RPC_REQUESTS (RCCE_ERROR_BASE + 17)
#define RCCE_ERROR_FDIVIDER (RCCE_ERROR_BASE + 18)
#define RCCE_ERROR_FREQUENCY_EXCEEDED (RCCE_ERROR_BASE + 19)
#define RCCE_ERROR_NO_ACTIVE_RPC_REQUEST (RCCE_ERROR_BASE + 20)
#define RCCE_ERROR_STALE_RPC_REQUEST (RCCE_ERROR_BASE + 21)
#define RCCE_ERROR_COMM_UNDEFINED (RCCE_ERROR_BASE + 22)
#define RCCE_ERROR_ILLEGAL_OP (RCCE_ERROR_BASE + 23)
#define RCCE_ERROR_ILLEGAL_TYPE (RCCE_ERROR_BASE + 24)
#define RCCE_ERROR_MALLOC (RCCE_ERROR_BASE + 25)
#define RCCE_ERROR_COMM_INITIALIZED (RCCE_ERROR_BASE + 26)         /* not initialised */
#define RCCE_ERROR_CORE_NOT_IN_HOSTFILE (RCCE_ERROR_BASE + 27)     /* the environment is wrong */

#define RCCE_MAX_ERROR_STRING 45

/* ---------------------------------------------------------------- other constants */

/* For RCCE_debug_set(). */
#define RCCE_DEBUG_ALL 111111
#define RCCE_DEBUG_SYNCH 111444
#define RCCE_DEBUG_COMM 111555
#define RCCE_DEBUG_RPC 111666
#define RCCE_DEBUG_DEBUG 111888

#define RCCE_FLAG_SET 1
#define RCCE_FLAG_UNSET 0

/* Reductions. */
#define RCCE_NUM_OPS 4
#define RCCE_OP_BASE 23232323
#define RCCE_SUM RCCE_OP_BASE
#define RCCE_MIN (RCCE_OP_BASE + 1)
#define RCCE_MAX (RCCE_OP_BASE + 2)
#define RCCE_PROD (RCCE_OP_BASE + 3)

#define RCCE_TYPE_BASE 63636363
#define RCCE_INT RCCE_TYPE_BASE
#define RCCE_LONG (RCCE_TYPE_BASE + 1)
#define RCCE_FLOAT (RCCE_TYPE_BASE + 2)
#define RCCE_DOUBLE (RCCE_TYPE_BASE + 3)

#define RCCE_POWER_DEFAULT (-99999)

/* ---------------------------------------------------------------- types */

typedef volatile unsigned char *t_vcharp;
typedef volatile int *RCCE_FLAG; /* a line of the MPB; its first word is the flag's value */
typedef int RCCE_FLAG_STATUS;

/** A communicator. Programs may read size, my_rank and member, and may copy the structure. */
typedef struct {
  int size;
  int my_rank;             /* this UE's number among the members */
  int initialized;
  int member[RCCE_MAXNP];  /* the members' numbers, ascending */
  RCCE_FLAG gather;
  RCCE_FLAG release;
} RCCE_COMM;

/** All UEs. */
extern RCCE_COMM RCCE_COMM_WORLD;

#include "RCCE_requests.h"

/* ---------------------------------------------------------------- beginning and end */

/** First call of a program. Removes the arguments that RCCE's launcher adds, if they are present. */
int RCCE_init(int *argc, char ***argv);
/** Last call of a program; waits for the others. Calls in which other threads wait give RCCE_ERROR_ID. Programs may also return from main without it. */
int RCCE_finalize(void);
/** Seconds, of a clock that all UEs share. */
double RCCE_wtime(void);
/** Number of this UE. */
int RCCE_ue(void);
/** Number of UEs. */
int RCCE_num_ues(void);

/* ---------------------------------------------------------------- shared memory */

/**
 * Allocates memory that all UEs share, at the same offset in each UE. There are 64 MiB in total. Returns null without room, and if the
 * UEs are on several hosts; then UE 0 prints a line on stderr. UNIPGAS_RCCE_SHM_LOW=1: addresses have 32 bits.
 */
t_vcharp RCCE_shmalloc(size_t size);
/** Allocates size bytes in whole lines. Without room, it tries half as many, again and again. *chunk: the number of bytes. */
t_vcharp RCCE_shmalloc_request(size_t size, size_t *chunk);
void RCCE_shfree(t_vcharp address);
/** Makes this UE's writes to shared memory visible to the other UEs. */
void RCCE_shflush(void);
/** As RCCE_shflush(); returns 0. */
int RCCE_DCMflush(void);

/* ---------------------------------------------------------------- communicators */

/** Divides all UEs by colour(number, aux), which must return the same in each UE. *comm: the UEs with this UE's colour. At most 256 at a time. */
int RCCE_comm_split(int (*colour)(int, void *), void *aux, RCCE_COMM *comm);
int RCCE_comm_free(RCCE_COMM *comm);
int RCCE_comm_size(RCCE_COMM comm, int *size);
int RCCE_comm_rank(RCCE_COMM comm, int *rank);
/** Ends when all members have called it. Null: all UEs. */
int RCCE_barrier(RCCE_COMM *comm);
/** Makes this UE's earlier writes visible before its later writes. */
void RCCE_fence(void);

/* ---------------------------------------------------------------- locks */

/** Waits for the lock of UE id, and takes it. */
int RCCE_acquire_lock(int id);
/** Releases the lock of UE id. Any UE may call it. */
int RCCE_release_lock(int id);

/* ---------------------------------------------------------------- errors */

/** Copies the text of a code, at most RCCE_MAX_ERROR_STRING bytes with its zero byte. *length: its length. */
int RCCE_error_string(int code, char *string, int *length);
/** Prints errors of the named group of calls from this call on: RCCE_DEBUG_*. */
int RCCE_debug_set(int flag);
int RCCE_debug_unset(int flag);

#ifdef GORY

/* ---------------------------------------------------------------- buffers and flags
 *
 * These functions check more than the functions of the simple interface, or have other parameters. So the library has them under other
 * names.
 */

/** Allocates in the MPB. Returns null without room, and if size is not a multiple of 32 above 0. */
t_vcharp RCCE_malloc(size_t size) __asm__("RCCE_malloc_gory");
/** Allocates size bytes in whole lines. Without room, it tries half as many, again and again. *chunk: the number of bytes. */
t_vcharp RCCE_malloc_request(size_t size, size_t *chunk) __asm__("RCCE_malloc_request_gory");
void RCCE_free(t_vcharp address);
/** Copies to UE id's MPB. target and size are multiples of 32. */
int RCCE_put(t_vcharp target, t_vcharp source, int size, int id) __asm__("RCCE_put_gory");
/** Copies from UE id's MPB. source and size are multiples of 32. */
int RCCE_get(t_vcharp target, t_vcharp source, int size, int id) __asm__("RCCE_get_gory");
/** Waits until this UE's flag is set or unset. */
int RCCE_wait_until(RCCE_FLAG flag, RCCE_FLAG_STATUS value) __asm__("RCCE_wait_until_gory");
int RCCE_flag_alloc(RCCE_FLAG *flag);
int RCCE_flag_free(RCCE_FLAG *flag);
/** Sets or unsets UE id's flag. This UE's earlier puts to UE id are visible before that. */
int RCCE_flag_write(RCCE_FLAG *flag, RCCE_FLAG_STATUS value, int id) __asm__("RCCE_flag_write_gory");
int RCCE_flag_read(RCCE_FLAG flag, RCCE_FLAG_STATUS *value, int id);
/** Whether this UE's flag has the value; *result: 1 or 0. */
int RCCE_test_flag(RCCE_FLAG flag, RCCE_FLAG_STATUS value, int *result);

/** Sends through buffer, chunk bytes at a time; sent and ready are flags for this. */
int RCCE_send(char *data, t_vcharp buffer, size_t chunk, RCCE_FLAG *ready, RCCE_FLAG *sent, size_t size, int dest)
    __asm__("RCCE_send_gory");
int RCCE_recv(char *data, t_vcharp buffer, size_t chunk, RCCE_FLAG *ready, RCCE_FLAG *sent, size_t size, int source)
    __asm__("RCCE_recv_gory");
int RCCE_recv_test(char *data, t_vcharp buffer, size_t chunk, RCCE_FLAG *ready, RCCE_FLAG *sent, size_t size, int source,
                   int *test) __asm__("RCCE_recv_test_gory");

#else

/* ---------------------------------------------------------------- messages
 *
 * RCCE_send() ends when the message has been received. A size of 0 succeeds at once.
 */

int RCCE_send(char *data, size_t size, int dest);
int RCCE_recv(char *data, size_t size, int source);
/** Receives if a message is there; *test: whether it was. */
int RCCE_recv_test(char *data, size_t size, int source, int *test);
/** type: RCCE_INT, ...; op: RCCE_SUM, .... The root's data may be overwritten. */
int RCCE_allreduce(char *data, char *result, int num, int type, int op, RCCE_COMM comm);
int RCCE_reduce(char *data, char *result, int num, int type, int op, int root, RCCE_COMM comm);
/** root is a number among the members. */
int RCCE_bcast(char *data, size_t size, int root, RCCE_COMM comm);

/* Buffers and flags, which programs of the simple interface declare themselves if they want them; those in C++ mean these, too. */

/** Allocates one line of the MPB. Returns null without room, and for sizes other than 32. */
t_vcharp RCCE_malloc(size_t size);
t_vcharp RCCE_malloc_request(size_t size, size_t *chunk);
void RCCE_free(t_vcharp address);
/** Copies to UE id's MPB, any size. */
int RCCE_put(t_vcharp target, t_vcharp source, int size, int id);
/** Copies from UE id's MPB, any size. */
int RCCE_get(t_vcharp target, t_vcharp source, int size, int id);
int RCCE_wait_until(RCCE_FLAG flag, RCCE_FLAG_STATUS value);
int RCCE_flag_alloc(RCCE_FLAG *flag);
int RCCE_flag_free(RCCE_FLAG *flag);
int RCCE_flag_write(RCCE_FLAG *flag, RCCE_FLAG_STATUS value, int id);
int RCCE_flag_read(RCCE_FLAG flag, RCCE_FLAG_STATUS *value, int id);
/** Whether this UE's flag has the value; *result: 1 or 0. */
int RCCE_test_flag(RCCE_FLAG flag, RCCE_FLAG_STATUS value, int *result);

/* Non-blocking messages of RCCE 2: the functions of iRCCE.h under other names. Sizes are 1 to SSIZE_MAX. */

int RCCE_isend(char *data, size_t size, int dest, RCCE_SEND_REQUEST *request) __asm__("iRCCE_isend");
int RCCE_isend_test(RCCE_SEND_REQUEST *request, int *test) __asm__("iRCCE_isend_test");
int RCCE_isend_wait(RCCE_SEND_REQUEST *request) __asm__("iRCCE_isend_wait");
/** Makes progress for the requests of all UEs. */
int RCCE_isend_push(int dest) __asm__("iRCCE_isend_push");
int RCCE_irecv(char *data, size_t size, int source, RCCE_RECV_REQUEST *request) __asm__("iRCCE_irecv");
int RCCE_irecv_test(RCCE_RECV_REQUEST *request, int *test) __asm__("iRCCE_irecv_test");
int RCCE_irecv_wait(RCCE_RECV_REQUEST *request) __asm__("iRCCE_irecv_wait");
int RCCE_irecv_push(int source) __asm__("iRCCE_irecv_push");

#endif

#ifdef RC_POWER_MANAGEMENT

/* ---------------------------------------------------------------- voltage and frequency, simulated: nothing changes */

typedef struct {
  int release;
  int old_voltage_level;
  int new_voltage_level;
  int old_frequency_divider;
  int new_frequency_divider;
  __extension__ long long start_cycle;
} RCCE_REQUEST;

/** The power domain of this UE's core, 0 to 5. */
int RCCE_power_domain(void);
/** Begins a change. *new_divider (2 to 16), *new_level: the values after it. It has an effect for the domain's master only. */
int RCCE_iset_power(int divider, RCCE_REQUEST *request, int *new_divider, int *new_level);
/** Ends a change. */
int RCCE_wait_power(RCCE_REQUEST *request);
int RCCE_set_frequency_divider(int divider, int *new_divider);
/** The UE that makes the requests of this UE's domain. */
int RCCE_power_domain_master(void);
/** UEs in this UE's domain. */
int RCCE_power_domain_size(void);
/** Prints a line for each of the chip's 24 tiles with its divider. Outside of this UE's domain that is the default. */
void print_dividers(void);

#endif

/* C has no overloads: a call of the other interface gets one message. */
#if defined(__has_attribute) && !defined(__cplusplus) && defined(__STDC_VERSION__)
#if __has_attribute(error) && __STDC_VERSION__ >= 199901L
#ifdef GORY
#define UNIPGAS_RCCE_OTHER __attribute__((error("this is a call of RCCE's simple interface: compile without -DGORY")))
#define UNIPGAS_RCCE_OF(own, other) own, own, own, own, own, other, own, own,
#define UNIPGAS_RCCE_TEST_OF(own, other) own, own, own, own, other, own, own, own,
#else
#define UNIPGAS_RCCE_OTHER __attribute__((error("this is a call of RCCE's GORY interface: compile with -DGORY")))
#define UNIPGAS_RCCE_OF(own, other) own, other, own, own, own, own, own, own,
#define UNIPGAS_RCCE_TEST_OF(own, other) other, own, own, own, own, own, own, own,
#endif
int unipgas_rcce_other(char *data, ...) UNIPGAS_RCCE_OTHER;
/* Names for 8, 7, ..., 1 arguments follow the arguments, so the ninth is for their number. */
#define UNIPGAS_RCCE_NINTH(a, b, c, d, e, f, g, h, ninth, ...) ninth
#define UNIPGAS_RCCE_CHOICE(...) UNIPGAS_RCCE_NINTH(__VA_ARGS__)
#define RCCE_send(...) UNIPGAS_RCCE_CHOICE(__VA_ARGS__, UNIPGAS_RCCE_OF(RCCE_send, unipgas_rcce_other))(__VA_ARGS__)
#define RCCE_recv(...) UNIPGAS_RCCE_CHOICE(__VA_ARGS__, UNIPGAS_RCCE_OF(RCCE_recv, unipgas_rcce_other))(__VA_ARGS__)
#define RCCE_recv_test(...) \
  UNIPGAS_RCCE_CHOICE(__VA_ARGS__, UNIPGAS_RCCE_TEST_OF(RCCE_recv_test, unipgas_rcce_other))(__VA_ARGS__)
#endif
#endif

#ifdef __cplusplus
}
#endif

#endif
