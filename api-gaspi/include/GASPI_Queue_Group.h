/*
 * Queue groups: a range of queues of which each call gets one. An extension that early forks of release 1.6 of the interface offer (in TAGASPI:
 * tagaspi_queue_group_create and so on), which is no part of GASPI 17.1. Return values as in GASPI.h. A program that includes TAGASPI.h, which has the same types,
 * includes this file after it.
 */
#ifndef UNIPGAS_GASPI_QUEUE_GROUP_H
#define UNIPGAS_GASPI_QUEUE_GROUP_H

#include "GASPI.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef TAGASPI_H
/** Numbers below gaspi_queue_group_max(). */
typedef unsigned char gaspi_queue_group_id_t;

/** The queue that a call gets. */
typedef enum
{
  /** The next one. */
  GASPI_QUEUE_GROUP_POLICY_DEFAULT = 0,
  /** The one of its processor. Processors of different NUMA nodes share no queue if there are as many queues as nodes. */
  GASPI_QUEUE_GROUP_POLICY_CPU_RR = 1
} gaspi_queue_group_policy_t;
#endif

/**
 * Makes a group of queue_num queues from queue_begin on; queues may be created later. Errors: INV_NUM (no such group number or policy, or no queues), INV_QUEUE (the
 * range exceeds gaspi_queue_max()). GASPI_ERROR: the group exists.
 */
gaspi_return_t gaspi_queue_group_create (gaspi_queue_group_id_t queue_group, gaspi_queue_id_t queue_begin,
                                         gaspi_number_t queue_num, gaspi_queue_group_policy_t policy);

/** Deletes a group; its queues stay. Errors: INV_NUM. GASPI_ERROR: there is no such group. */
gaspi_return_t gaspi_queue_group_delete (gaspi_queue_group_id_t queue_group);

/** A queue for the next request. Errors: as gaspi_queue_group_delete(). */
gaspi_return_t gaspi_queue_group_get_queue (gaspi_queue_group_id_t queue_group, gaspi_queue_id_t *queue);

/** Queue groups that a process may have. */
gaspi_return_t gaspi_queue_group_max (gaspi_number_t *queue_group_max);

/* Their shifted names (PGASPI.h). */
extern __typeof__ (gaspi_queue_group_create) pgaspi_queue_group_create;
extern __typeof__ (gaspi_queue_group_delete) pgaspi_queue_group_delete;
extern __typeof__ (gaspi_queue_group_get_queue) pgaspi_queue_group_get_queue;
extern __typeof__ (gaspi_queue_group_max) pgaspi_queue_group_max;

#ifdef __cplusplus
}
#endif

#endif
