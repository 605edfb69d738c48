/*
 * The threads of a process: they are started, numbered, and meet. An extension of release 1.6 of the interface, which is no part of GASPI 17.1. Return
 * values as in GASPI.h. Every procedure of GASPI.h may be called from any thread, whether or not it is registered here.
 */
#ifndef UNIPGAS_GASPI_THREADS_H
#define UNIPGAS_GASPI_THREADS_H

#include "GASPI.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Says how many threads will register and meet. GASPI_ERROR: none, or it has been said before. */
gaspi_return_t gaspi_threads_init_user (const unsigned int use_nr_of_threads);

/** The same, as many as gaspi_threads_get_num_cores() gives, which are stored in *num. */
gaspi_return_t gaspi_threads_init (gaspi_int *const num);

/** The threads have met for the last time; others may be said to. */
gaspi_return_t gaspi_threads_term (void);

/** Runs function (arg) in a thread of its own. GASPI_ERROR: gaspi_threads_init_user() is missing, or the system starts no further thread. */
gaspi_return_t gaspi_threads_run (void *(*function) (void *), void *arg);

/** Gives the calling thread the next number, from 0 on. GASPI_ERROR: all have been given, or gaspi_threads_init_user() is missing. */
gaspi_return_t gaspi_threads_register (gaspi_int *tid);

/** The number of the calling thread. GASPI_ERROR: it has none. */
gaspi_return_t gaspi_threads_get_tid (gaspi_int *const tid);

/** How many threads there are to be. */
gaspi_return_t gaspi_threads_get_total (gaspi_int *const num);

/** Processors that the calling thread may run on. At any time. */
gaspi_return_t gaspi_threads_get_num_cores (gaspi_int *const cores);

/** Returns when all registered threads of this process have called it. Sleeps meanwhile. */
void gaspi_threads_sync (void);

/**
 * Returns when all registered threads of all processes of the group have called it: one of each process enters gaspi_barrier(), whose result all
 * get. A thread that gets GASPI_TIMEOUT calls it again; it counts as one that has come.
 */
gaspi_return_t gaspi_threads_sync_all (const gaspi_group_t group, const gaspi_timeout_t timeout);

#ifdef __cplusplus
}
#endif

#endif
