/*
 * Extensions of release 1.6 of the interface. None of them is in the text of GASPI 17.1. Return values as in GASPI.h.
 */
#ifndef UNIPGAS_GASPI_EXT_H
#define UNIPGAS_GASPI_EXT_H

#include "GASPI.h"

#ifdef __cplusplus
extern "C" {
#endif

/** 1 between gaspi_proc_init() and gaspi_proc_term(), otherwise 0. At any time. */
gaspi_return_t gaspi_initialized (gaspi_number_t *initialized);

/** Rank of this process among the processes of its node. */
gaspi_return_t gaspi_proc_local_rank (gaspi_rank_t *local_rank);

/** Number of processes on the node of this process. */
gaspi_return_t gaspi_proc_local_num (gaspi_rank_t *local_num);

/**
 * Number of processes that had the rank of this process before it: it is a replacement (unipgas run --spares). Only unipgas has this function; portable
 * programs read the environment variable UNIPGAS_INCARNATION, which the first process of a rank does not have.
 */
gaspi_return_t gaspi_proc_incarnation (gaspi_number_t *incarnation);

/** Tests whether a process is alive. Errors: INV_RANK. GASPI_ERROR: it has died. */
gaspi_return_t gaspi_proc_ping (gaspi_rank_t rank, gaspi_timeout_t timeout);

/** Frequency of the clock that gaspi_time_ticks() counts, in MHz. */
gaspi_return_t gaspi_cpu_frequency (gaspi_float *cpu_mhz);

/** Prints a text as printf() does, after the rank. */
void gaspi_printf (const char *format, ...);

/** As gaspi_printf(), on the standard output of a rank. If that rank cannot print it, this process does. */
void gaspi_printf_to (gaspi_rank_t rank, const char *format, ...);

/** Prints one line with the rank and the processors that the calling thread may run on. At any time. */
void gaspi_print_affinity_mask (void);

/**
 * Number of the NUMA node on which the calling thread runs, if the launcher binds each process to a node (gaspi_run -N, unipgas run
 * --bind numa). At any time. Errors: ENV (not bound).
 */
gaspi_return_t gaspi_numa_socket (gaspi_uchar *socket);

/**
 * Binds this process with all its threads to the processors of a NUMA node, numbered as by gaspi_numa_socket(). At any time.
 * Errors: GASPI_ERROR (no such node, it has no processors, or the system refuses).
 */
gaspi_return_t gaspi_set_socket_affinity (gaspi_uchar socket);

/** The text of a code. It belongs to the library: do not change or free it. At any time. */
gaspi_string_t gaspi_error_str (gaspi_return_t error_code);

/** A segment id that this process does not use. Errors: MANY_SEG. */
gaspi_return_t gaspi_segment_avail_local (gaspi_segment_id_t *segment_id);

/** Bytes of a segment of a rank. Errors: INV_SEG, INV_RANK. */
gaspi_return_t gaspi_segment_size (gaspi_segment_id_t segment_id, gaspi_rank_t rank, gaspi_size_t *size);

/** Elements that one list operation may have. */
gaspi_return_t gaspi_rw_list_elem_max (gaspi_number_t *elem_max);

/** A short pause for loops that poll. */
void gaspi_delay (void);

#ifdef __cplusplus
}
#endif

#endif
