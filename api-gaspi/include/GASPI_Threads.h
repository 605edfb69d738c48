/*
 * The threads of a process: start, number, barrier. An extension of release 1.6 of the interface, which is not in GASPI 17.1. Return values as in
 * GASPI.h. Any thread may call each procedure of GASPI.h, registered here or not.
 */
#ifndef UNIPGAS_GASPI_THREADS_H
#define UNIPGAS_GASPI_THREADS_H

#include "GASPI.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Sets the number of threads that register and meet. GASPI_ERROR: 0, or the number is set already. */
gaspi_return_t gaspi_threads_init_user (const unsigned int use_nr_of_threads);

/** As gaspi_threads_init_user(), with the number of gaspi_threads_get_num_cores(), which is stored in *num. */
gaspi_return_t gaspi_threads_init (gaspi_int *const num);

/**
 * Ends the use of the threads. Then gaspi_threads_init_user() may set another number. Threads that wait for other threads return:
 * gaspi_threads_sync_all() gives GASPI_ERROR.
 */
gaspi_return_t gaspi_threads_term (void);

/** Runs function (arg) in a new thread. GASPI_ERROR: no gaspi_threads_init_user() before, or the system starts no further thread. */
gaspi_return_t gaspi_threads_run (void *(*function) (void *), void *arg);

/** Gives the calling thread the next number, from 0 on. GASPI_ERROR: no number is left, or no gaspi_threads_init_user() before. */
gaspi_return_t gaspi_threads_register (gaspi_int *tid);

/** The number of the calling thread. GASPI_ERROR: it has none. */
gaspi_return_t gaspi_threads_get_tid (gaspi_int *const tid);

/** The number of threads that was set. */
gaspi_return_t gaspi_threads_get_total (gaspi_int *const num);

/** Processors that the calling thread may run on. At any time. */
gaspi_return_t gaspi_threads_get_num_cores (gaspi_int *const cores);

/** Returns when all registered threads of this process have called it. Sleeps during the wait. */
void gaspi_threads_sync (void);

/**
 * Returns when all registered threads of all processes of the group have called it. One thread of each process enters gaspi_barrier(), and all threads
 * return its result. A thread that gets GASPI_TIMEOUT calls it again, and counts as present.
 */
gaspi_return_t gaspi_threads_sync_all (const gaspi_group_t group, const gaspi_timeout_t timeout);

#ifdef __cplusplus
}
#endif

#endif
