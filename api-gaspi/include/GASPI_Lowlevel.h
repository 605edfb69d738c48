/*
 * Operations that carry a tag and end one by one, for task runtimes such as TAGASPI. An extension that BSC's fork of release 1.6 of the interface offers, which is
 * no part of GASPI 17.1. Return values as in GASPI.h.
 */
#ifndef UNIPGAS_GASPI_LOWLEVEL_H
#define UNIPGAS_GASPI_LOWLEVEL_H

#include "GASPI.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A value of the program. It may be a pointer. */
typedef long long gaspi_tag_t;

/** The tag of operations that need no report: they end as requests of gaspi_write() do, and gaspi_wait() gives their failure. */
#define GASPI_TAG_NULL ((gaspi_tag_t) 0)

/** How an operation has ended. */
typedef struct
{
  /** GASPI_SUCCESS or GASPI_ERROR. */
  gaspi_return_t error;
} gaspi_status_t;

/** Operations, each as the procedure of GASPI.h with its name. */
typedef enum
{
  GASPI_OP_READ = 16,
  GASPI_OP_READ_NOTIFY = 17,
  GASPI_OP_READ_LIST = 18,
  GASPI_OP_READ_LIST_NOTIFY = 19,
  GASPI_OP_WRITE = 20,
  GASPI_OP_WRITE_NOTIFY = 21,
  GASPI_OP_WRITE_LIST = 22,
  GASPI_OP_WRITE_LIST_NOTIFY = 23,
  GASPI_OP_NOTIFY = 24
} gaspi_lowlevel_operation_t;

/**
 * How many reports an operation has: 1 for each operation of this library. num: elements of a list. GASPI_ERROR: no such operation.
 */
gaspi_return_t gaspi_operation_get_num_requests (gaspi_lowlevel_operation_t operation, gaspi_number_t num,
                                                 gaspi_number_t *num_requests);

/**
 * Posts an operation that is no list. Arguments that the operation does not have are ignored. Its end is reported by gaspi_request_wait(). Errors: as the
 * procedure of GASPI.h; then nothing is reported. GASPI_ERROR: no such operation, or a list. GASPI_QUEUE_FULL: gaspi_queue_size_max() operations of the queue have
 * not been reported. An operation to a process that has died is posted, and its report has the error.
 */
gaspi_return_t gaspi_operation_submit (gaspi_lowlevel_operation_t operation, gaspi_tag_t tag,
                                       gaspi_segment_id_t segment_id_local, gaspi_offset_t offset_local,
                                       gaspi_rank_t rank, gaspi_segment_id_t segment_id_remote,
                                       gaspi_offset_t offset_remote, gaspi_size_t size,
                                       gaspi_notification_id_t notification_id,
                                       gaspi_notification_t notification_value, gaspi_queue_id_t queue,
                                       gaspi_timeout_t timeout);

/** The same for lists, with one report for all of a list. */
gaspi_return_t gaspi_operation_list_submit (gaspi_lowlevel_operation_t operation, gaspi_tag_t tag, gaspi_number_t num,
                                            const gaspi_segment_id_t *segment_id_local,
                                            const gaspi_offset_t *offset_local, gaspi_rank_t rank,
                                            const gaspi_segment_id_t *segment_id_remote,
                                            const gaspi_offset_t *offset_remote, const gaspi_size_t *size,
                                            gaspi_segment_id_t segment_id_notification,
                                            gaspi_notification_id_t notification_id,
                                            gaspi_notification_t notification_value, gaspi_queue_id_t queue,
                                            gaspi_timeout_t timeout);

/**
 * Waits until an operation of the queue has ended. Stores the tags and statuses of up to max_requests ended operations, and their number. Each tag is
 * reported once. GASPI_SUCCESS with 0: no operation with a tag is in progress. GASPI_TIMEOUT: none has ended; 0 is stored. Several threads may call it for one queue.
 *
 * gaspi_wait() waits for operations with tags, too, and takes no report. gaspi_queue_size() counts the operations that are not reported. gaspi_queue_purge() and
 * gaspi_queue_delete() drop reports. An operation to a process that dies ends with GASPI_ERROR.
 */
gaspi_return_t gaspi_request_wait (gaspi_queue_id_t queue, gaspi_number_t max_requests, gaspi_number_t *num_completed,
                                   gaspi_tag_t *tags, gaspi_status_t *statuses, gaspi_timeout_t timeout);

/* Their shifted names (PGASPI.h). */
extern __typeof__ (gaspi_operation_get_num_requests) pgaspi_operation_get_num_requests;
extern __typeof__ (gaspi_operation_submit) pgaspi_operation_submit;
extern __typeof__ (gaspi_operation_list_submit) pgaspi_operation_list_submit;
extern __typeof__ (gaspi_request_wait) pgaspi_request_wait;

#ifdef __cplusplus
}
#endif

#endif
