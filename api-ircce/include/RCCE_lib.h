/*
 * Names of RCCE beside RCCE.h: the variables of RCCE_ue() and RCCE_num_ues(), which RCCE_init() sets, and tools of the library.
 */
#ifndef RCCE_LIB_H
#define RCCE_LIB_H

#include "RCCE.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes of the whole lines that n bytes take. */
#define PAD32byte(n) ((n) % 32 == 0 ? (n) : (n) + 32 - (n) % 32)

/* A reduction of a type. */
#define RCCE_SUM_INT (RCCE_SUM + RCCE_NUM_OPS * RCCE_INT)
#define RCCE_SUM_LONG (RCCE_SUM + RCCE_NUM_OPS * RCCE_LONG)
#define RCCE_SUM_FLOAT (RCCE_SUM + RCCE_NUM_OPS * RCCE_FLOAT)
#define RCCE_SUM_DOUBLE (RCCE_SUM + RCCE_NUM_OPS * RCCE_DOUBLE)
#define RCCE_MIN_INT (RCCE_MIN + RCCE_NUM_OPS * RCCE_INT)
#define RCCE_MIN_LONG (RCCE_MIN + RCCE_NUM_OPS * RCCE_LONG)
#define RCCE_MIN_FLOAT (RCCE_MIN + RCCE_NUM_OPS * RCCE_FLOAT)
#define RCCE_MIN_DOUBLE (RCCE_MIN + RCCE_NUM_OPS * RCCE_DOUBLE)
#define RCCE_MAX_INT (RCCE_MAX + RCCE_NUM_OPS * RCCE_INT)
#define RCCE_MAX_LONG (RCCE_MAX + RCCE_NUM_OPS * RCCE_LONG)
#define RCCE_MAX_FLOAT (RCCE_MAX + RCCE_NUM_OPS * RCCE_FLOAT)
#define RCCE_MAX_DOUBLE (RCCE_MAX + RCCE_NUM_OPS * RCCE_DOUBLE)
#define RCCE_PROD_INT (RCCE_PROD + RCCE_NUM_OPS * RCCE_INT)
#define RCCE_PROD_LONG (RCCE_PROD + RCCE_NUM_OPS * RCCE_LONG)
#define RCCE_PROD_FLOAT (RCCE_PROD + RCCE_NUM_OPS * RCCE_FLOAT)
#define RCCE_PROD_DOUBLE (RCCE_PROD + RCCE_NUM_OPS * RCCE_DOUBLE)

typedef volatile unsigned int *t_vintp;
typedef volatile unsigned char t_vchar;
typedef volatile unsigned int t_vint;

extern int RCCE_IAM;
extern int RCCE_NP;
/** The core of each UE. */
extern int RC_COREID[RCCE_MAXNP];
/** The core of this UE. */
extern int RC_MY_COREID;
/** Bytes of an MPB. */
extern int RCCE_BUFF_SIZE;
/** Address of each UE's MPB in this UE; null if it is not mapped. Stores of the program there wake no UE that waits. */
extern t_vcharp RCCE_comm_buffer[RCCE_MAXNP];
/** The clock that RCCE's launcher names in the program's arguments, in GHz; 0.533 without it. RCCE_wtime() does not use it. */
extern double RC_REFCLOCKGHZ;
/** Set by RCCE_debug_set(), for RCCE_error_return(). A store by the program changes nothing else. */
extern int RCCE_debug_synch;
extern int RCCE_debug_comm;
extern int RCCE_debug_debug;
extern int RCCE_debug_RPC;
/** A line that may be written, to no effect: there is no write combine buffer. */
extern t_vcharp RCCE_fool_write_combine_buffer;

/** Makes RCCE_shmalloc() allocate from these bytes. The program has mapped them in all UEs. */
void RCCE_shmalloc_init(t_vcharp memory, size_t size);
/** RCCE_malloc() allocates from these bytes of the MPB from now on; it has no memory if they are not in the MPB. */
void RCCE_malloc_init(t_vcharp memory, size_t size);
/** Prints the text of an error on stdout, unless debug or error is 0; returns error. */
int RCCE_error_return(int debug, int error);
/** Makes later reads of MPBs see current data (caches are coherent here). In a loop that waits, as RCCE_shflush(). */
void RC_cache_invalidate(void);
/** For RCCE_comm_split(): one colour for all UEs. */
int RCCE_global_color(int id, void *aux);
/** Address of UE id's MPB in this process; null if it is not mapped. */
t_vcharp RC_COMM_BUFFER_START(int id);
/** Whether this UE's flag is set. */
int RCCE_probe(RCCE_FLAG flag);
/** As qsort() of the C library; returns 0. */
int RCCE_qsort(char *base, size_t num, size_t size, int (*compare)(const void *, const void *));
/** Compares two int for it. */
int id_compare(const void *one, const void *other);

#ifdef __cplusplus
}
#endif

#endif
