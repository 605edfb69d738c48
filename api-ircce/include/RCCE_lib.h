/*
 * What RCCE programs use beside RCCE.h: the variables behind RCCE_ue() and RCCE_num_ues(), which RCCE_init() sets, and tools of the
 * library.
 */
#ifndef RCCE_LIB_H
#define RCCE_LIB_H

#include "RCCE.h"

#ifdef __cplusplus
extern "C" {
#endif

extern int RCCE_IAM;
extern int RCCE_NP;
/** The core that each UE stands for. */
extern int RC_COREID[RCCE_MAXNP];
/** The core that this UE stands for. */
extern int RC_MY_COREID;
/** Bytes of an MPB. */
extern int RCCE_BUFF_SIZE;
/** Where each UE's MPB begins in the memory of this one. What a program writes there itself wakes nobody who waits. */
extern t_vcharp RCCE_comm_buffer[RCCE_MAXNP];
/** A line that may be written, to no effect: there is no write combine buffer. */
extern t_vcharp RCCE_fool_write_combine_buffer;

/** RCCE_shmalloc() allocates from these bytes from now on, which the program has mapped at all UEs itself. */
void RCCE_shmalloc_init(t_vcharp memory, size_t size);
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
