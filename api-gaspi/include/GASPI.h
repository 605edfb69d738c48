/*
 * GASPI: one-sided communication between the segments of processes (GASPI 17.1).
 *
 * Sizes and offsets are in bytes, timeouts in milliseconds. Every procedure returns a gaspi_return_t:
 *   GASPI_SUCCESS       done;
 *   GASPI_TIMEOUT       not done within the timeout: call again with the same arguments to continue (§3.9);
 *   GASPI_ERR_NOINIT    the procedure needs gaspi_proc_init() first;
 *   GASPI_ERR_NULLPTR   a pointer is null that must not be;
 *   GASPI_ERROR         a needed peer has died (for notifications and queues in use: a peer that may be needed), until the program
 *                       calls gaspi_state_vec_get(); or another failure (gaspi_print_error() describes it).
 * The comments below name the other errors that a procedure may return. After an error the output arguments
 * are undefined.
 *
 * Four procedures have one signature in the text of GASPI 17.1 and another in release 1.6 of the interface, which most programs
 * are written for. Both compile: the types of the arguments choose (end of this file). Define GASPI_NO_OVERLOADS before
 * this file is included to get the plain functions only, e.g. to define one of these functions in a tool.
 */
#ifndef UNIPGAS_GASPI_H
#define UNIPGAS_GASPI_H

#include "GASPI_types.h"
#include "GPI2_VERSION.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- configuration and processes */

/** Copies the configuration that gaspi_proc_init() will use, or uses, into *config. §5.2.2. */
gaspi_return_t gaspi_config_get (gaspi_config_t *config);

/**
 * Sets the configuration, before gaspi_proc_init(). §5.2.3.
 * Errors: INITED (too late), SN_PORT, CONFIG (a value out of range; no value is set then). Accepted values are in force. Ranges: queue_num
 * 1 to 16, queue_size_max 1 to 4096, group_max and segment_max 1 to 255, transfer_size_max up to 2^30, notification_num up to 2^24,
 * rw_list_elem_max 1 to 255, allreduce_buf_size up to 2040 bytes, allreduce_elem_max any. Memory is allocated on use.
 */
gaspi_return_t gaspi_config_set (gaspi_config_t config);

/**
 * Joins the job and makes this process known to all others. §5.3.1. Also commits the group GASPI_GROUP_ALL, unless the
 * configuration excludes the infrastructure (build_infrastructure 0, GASPI_TOPOLOGY_NONE).
 * Errors: INITED, ENV (no usable job in the environment), MEMALLOC, EMFILE.
 */
gaspi_return_t gaspi_proc_init (gaspi_timeout_t timeout);

/** Number of processes in the job. §5.3.2. */
gaspi_return_t gaspi_proc_num (gaspi_rank_t *proc_num);

/** Rank of this process. §5.3.3. */
gaspi_return_t gaspi_proc_rank (gaspi_rank_t *rank);

/**
 * Leaves the job and releases all segments, queues and groups. §5.3.4. Procedures in which other threads wait end with GASPI_ERROR before that; within a
 * procedure (the operation of a reduction, a signal handler) it gives GASPI_ERROR itself.
 */
gaspi_return_t gaspi_proc_term (gaspi_timeout_t timeout);

/**
 * Ends another process of the job by a signal. §5.3.5. The launcher does not count this end as a failure. Errors: INV_RANK (also: the own rank).
 */
gaspi_return_t gaspi_proc_kill (gaspi_rank_t rank, gaspi_timeout_t timeout);

/** Makes the connection to a rank, if build_infrastructure has not done so. §5.4.1. Errors: INV_RANK. */
gaspi_return_t gaspi_connect (gaspi_rank_t rank, gaspi_timeout_t timeout);

/**
 * Closes the connection to a rank on both sides, after the requests in progress. Then communication with it is GASPI_ERROR until one of both calls
 * gaspi_connect(). Groups with both as members still work. §5.4.2. Errors: INV_RANK.
 */
gaspi_return_t gaspi_disconnect (gaspi_rank_t rank, gaspi_timeout_t timeout);

/**
 * Copies the health of all processes into state_vector, which has room for one gaspi_state_t per rank. §5.5.2.
 * With a gaspi_state_vector_t * this is gaspi_state_vec_get_17().
 */
gaspi_return_t gaspi_state_vec_get (gaspi_state_vector_t state_vector);

/**
 * Copies the health of all processes into *state_vector, which has room for one gaspi_state_t per rank. Where *state_vector is
 * NULL, it is set to new memory with the entries, for the caller to free(); so set it before the first call. §5.5.2.
 * Errors: MEMALLOC.
 */
gaspi_return_t gaspi_state_vec_get_17 (gaspi_state_vector_t *state_vector);

/* ---------------------------------------------------------------- groups */

/** Makes an empty group. §6.3.1. Errors: MANY_GRP. */
gaspi_return_t gaspi_group_create (gaspi_group_t *group);

/** Adds a rank to a group that is not committed. §6.3.2. Errors: INV_GROUP (also: committed), INV_RANK (also: in it already). */
gaspi_return_t gaspi_group_add (gaspi_group_t group, gaspi_rank_t rank);

/** Agrees on the group with all its members; needed before any collective use. Collective. §6.3.3. Errors: INV_GROUP, INV_RANK (this process is not a member). */
gaspi_return_t gaspi_group_commit (gaspi_group_t group, gaspi_timeout_t timeout);

/** Deletes a group on this process; GASPI_GROUP_ALL stays. §6.4.1. Errors: INV_GROUP, ACTIVE_COLL (a thread is in an operation of it). */
gaspi_return_t gaspi_group_delete (gaspi_group_t group);

/** Number of groups that exist on this process. §6.5.1. */
gaspi_return_t gaspi_group_num (gaspi_number_t *group_num);

/** Number of ranks in a group. §6.5.2. Errors: INV_GROUP. */
gaspi_return_t gaspi_group_size (gaspi_group_t group, gaspi_number_t *group_size);

/** Copies the ranks of a group into group_ranks[gaspi_group_size()]. §6.5.3. Errors: INV_GROUP. */
gaspi_return_t gaspi_group_ranks (gaspi_group_t group, gaspi_rank_t *group_ranks);

/* ---------------------------------------------------------------- segments */

/**
 * Allocates a segment of size bytes on this process only. §7.2.1.
 * Errors: INV_SEG (id in use or too large), INV_SEGSIZE, MANY_SEG, MEMALLOC.
 */
gaspi_return_t gaspi_segment_alloc (gaspi_segment_id_t segment_id, gaspi_size_t size, gaspi_alloc_t alloc_policy);

/** Makes a segment of this process accessible to a rank. §7.2.2. Errors: INV_SEG, INV_RANK. */
gaspi_return_t gaspi_segment_register (gaspi_segment_id_t segment_id, gaspi_rank_t rank, gaspi_timeout_t timeout);

/**
 * Allocates a segment on every process of the group and makes each accessible to all of them. Collective. §7.2.3.
 * Errors: as gaspi_segment_alloc(); INV_GROUP.
 */
gaspi_return_t gaspi_segment_create (gaspi_segment_id_t segment_id, gaspi_size_t size, gaspi_group_t group,
                                     gaspi_timeout_t timeout, gaspi_alloc_t alloc_policy);

/**
 * Makes size bytes of the program's own memory a segment of this process. The memory must stay mapped, in
 * place, until the segment is deleted: other processes reach the pages that are there now. §7.2.4. Errors: INV_SEG, INV_SEGSIZE, MANY_SEG.
 */
gaspi_return_t gaspi_segment_bind (gaspi_segment_id_t segment_id, gaspi_pointer_t pointer, gaspi_size_t size,
                                   gaspi_memory_description_t memory_description);

/** gaspi_segment_bind() on every process of the group, and access for all of them. Collective. §7.2.5. */
gaspi_return_t gaspi_segment_use (gaspi_segment_id_t segment_id, gaspi_pointer_t pointer, gaspi_size_t size,
                                  gaspi_group_t group, gaspi_timeout_t timeout,
                                  gaspi_memory_description_t memory_description);

/**
 * Deletes a segment of this process; peers cannot access it any more. Calls of other threads end with an error if they wait for a
 * notification in it or for a message, or send from it. A concurrent call that creates the segment gives INV_SEG when all members have called. §7.3.1. Errors: INV_SEG.
 */
gaspi_return_t gaspi_segment_delete (gaspi_segment_id_t segment_id);

/** Number of segments of this process. §7.4.1. */
gaspi_return_t gaspi_segment_num (gaspi_number_t *segment_num);

/** Copies the names of num segments of this process into segment_id_list[num]. §7.4.2. Errors: INV_NUM. */
gaspi_return_t gaspi_segment_list (gaspi_number_t num, gaspi_segment_id_t *segment_id_list);

/** Sets *pointer to the begin of a segment of this process. §7.4.3. Errors: INV_SEG. */
gaspi_return_t gaspi_segment_ptr (gaspi_segment_id_t segment_id, gaspi_pointer_t *pointer);

/* ---------------------------------------------------------------- one-sided communication
 * Posted to a queue of this process and complete when gaspi_wait() on that queue returns GASPI_SUCCESS. Errors of all of them:
 * INV_QUEUE, INV_RANK, INV_SEG, INV_LOC_OFF, INV_REM_OFF, INV_COMMSIZE, GASPI_QUEUE_FULL.
 */

/** Writes size bytes from a local segment into a segment of a rank. §8.2.1. */
gaspi_return_t gaspi_write (gaspi_segment_id_t segment_id_local, gaspi_offset_t offset_local, gaspi_rank_t rank,
                            gaspi_segment_id_t segment_id_remote, gaspi_offset_t offset_remote, gaspi_size_t size,
                            gaspi_queue_id_t queue, gaspi_timeout_t timeout);

/** Reads size bytes from a segment of a rank into a local segment. §8.2.2. */
gaspi_return_t gaspi_read (gaspi_segment_id_t segment_id_local, gaspi_offset_t offset_local, gaspi_rank_t rank,
                           gaspi_segment_id_t segment_id_remote, gaspi_offset_t offset_remote, gaspi_size_t size,
                           gaspi_queue_id_t queue, gaspi_timeout_t timeout);

/**
 * Waits until all requests in a queue are complete; local buffers may be reused then. GASPI_ERROR if a request has failed, until
 * gaspi_queue_purge(). The end of a rank that is not the target of a request is no error here. §3.6, §8.2.3. Errors: INV_QUEUE.
 */
gaspi_return_t gaspi_wait (gaspi_queue_id_t queue, gaspi_timeout_t timeout);

/**
 * Sets a notification of a segment of a rank, after all earlier writes to that rank in the same queue. §8.3.2.
 * Errors: INV_NOTIF_ID, INV_NOTIF_VAL (0).
 */
gaspi_return_t gaspi_notify (gaspi_segment_id_t segment_id_remote, gaspi_rank_t rank,
                             gaspi_notification_id_t notification_id, gaspi_notification_t notification_value,
                             gaspi_queue_id_t queue, gaspi_timeout_t timeout);

/**
 * Waits until one of the notifications notification_begin to notification_begin + notification_num - 1 of a local segment
 * is set, and names it in *first_id. §8.3.3. Errors: INV_SEG, INV_NOTIF_ID, INV_NUM.
 */
gaspi_return_t gaspi_notify_waitsome (gaspi_segment_id_t segment_id_local, gaspi_notification_id_t notification_begin,
                                      gaspi_number_t notification_num, gaspi_notification_id_t *first_id,
                                      gaspi_timeout_t timeout);

/**
 * Sets a notification of a local segment to 0 and returns the previous value, in one atomic step; old_notification_val may be NULL. §8.3.4.
 * Errors: INV_SEG, INV_NOTIF_ID.
 */
gaspi_return_t gaspi_notify_reset (gaspi_segment_id_t segment_id_local, gaspi_notification_id_t notification_id,
                                   gaspi_notification_t *old_notification_val);

/** gaspi_write() and a notification of the same remote segment, set after the data. §8.4.1. Errors: INV_NOTIF_ID, INV_NOTIF_VAL. */
gaspi_return_t gaspi_write_notify (gaspi_segment_id_t segment_id_local, gaspi_offset_t offset_local, gaspi_rank_t rank,
                                   gaspi_segment_id_t segment_id_remote, gaspi_offset_t offset_remote,
                                   gaspi_size_t size, gaspi_notification_id_t notification_id,
                                   gaspi_notification_t notification_value, gaspi_queue_id_t queue,
                                   gaspi_timeout_t timeout);

/** num writes to one rank. §8.4.2. Errors: INV_NUM (0, or more than gaspi_rw_list_elem_max() or than the queue holds). */
gaspi_return_t gaspi_write_list (gaspi_number_t num, const gaspi_segment_id_t *segment_id_local,
                                 const gaspi_offset_t *offset_local, gaspi_rank_t rank,
                                 const gaspi_segment_id_t *segment_id_remote, const gaspi_offset_t *offset_remote,
                                 const gaspi_size_t *size, gaspi_queue_id_t queue, gaspi_timeout_t timeout);

/** gaspi_write_list() and a notification, set after all the data. §8.4.3. Errors: INV_NUM, INV_NOTIF_ID, INV_NOTIF_VAL. */
gaspi_return_t gaspi_write_list_notify (gaspi_number_t num, const gaspi_segment_id_t *segment_id_local,
                                        const gaspi_offset_t *offset_local, gaspi_rank_t rank,
                                        const gaspi_segment_id_t *segment_id_remote,
                                        const gaspi_offset_t *offset_remote, const gaspi_size_t *size,
                                        gaspi_segment_id_t segment_id_notification,
                                        gaspi_notification_id_t notification_id,
                                        gaspi_notification_t notification_value, gaspi_queue_id_t queue,
                                        gaspi_timeout_t timeout);

/** gaspi_read() and a notification of the local segment with the value 1, set after the data. §8.4.4. Errors: INV_NOTIF_ID. */
gaspi_return_t gaspi_read_notify (gaspi_segment_id_t segment_id_local, gaspi_offset_t offset_local, gaspi_rank_t rank,
                                  gaspi_segment_id_t segment_id_remote, gaspi_offset_t offset_remote, gaspi_size_t size,
                                  gaspi_notification_id_t notification_id, gaspi_queue_id_t queue,
                                  gaspi_timeout_t timeout);

/** num reads from one rank. §8.4.5. Errors: INV_NUM. */
gaspi_return_t gaspi_read_list (gaspi_number_t num, const gaspi_segment_id_t *segment_id_local,
                                const gaspi_offset_t *offset_local, gaspi_rank_t rank,
                                const gaspi_segment_id_t *segment_id_remote, const gaspi_offset_t *offset_remote,
                                const gaspi_size_t *size, gaspi_queue_id_t queue, gaspi_timeout_t timeout);

/** gaspi_read_list() and a notification of a local segment with the value 1, set after all the data. §8.4.6. Errors: INV_NUM, INV_NOTIF_ID. */
gaspi_return_t gaspi_read_list_notify (gaspi_number_t num, const gaspi_segment_id_t *segment_id_local,
                                       const gaspi_offset_t *offset_local, gaspi_rank_t rank,
                                       const gaspi_segment_id_t *segment_id_remote, const gaspi_offset_t *offset_remote,
                                       const gaspi_size_t *size, gaspi_segment_id_t segment_id_notification,
                                       gaspi_notification_id_t notification_id, gaspi_queue_id_t queue,
                                       gaspi_timeout_t timeout);

/* ---------------------------------------------------------------- queues */

/** Makes a further queue. §8.5.1. Errors: INV_NUM (gaspi_queue_max() queues exist). */
gaspi_return_t gaspi_queue_create (gaspi_queue_id_t *queue, gaspi_timeout_t timeout);

/** Deletes a queue; wait on it first. Calls of other threads give INV_QUEUE afterwards. §8.5.2. Errors: INV_QUEUE. */
gaspi_return_t gaspi_queue_delete (gaspi_queue_id_t queue);

/** Number of requests in a queue that gaspi_wait() has not seen complete. §8.5.3. Errors: INV_QUEUE. */
gaspi_return_t gaspi_queue_size (gaspi_queue_id_t queue, gaspi_number_t *queue_size);

/** Empties a queue without regard to its requests, e.g. after a peer has died. §8.5.4. Errors: INV_QUEUE. */
gaspi_return_t gaspi_queue_purge (gaspi_queue_id_t queue, gaspi_timeout_t timeout);

/* Release 1.6 declares this one in GASPI.h. */
gaspi_return_t pgaspi_queue_purge (gaspi_queue_id_t queue, gaspi_timeout_t timeout);

/* ---------------------------------------------------------------- passive communication
 * Between segments, 1 to gaspi_passive_transfer_size_max() bytes. Errors: INV_SEG, INV_LOC_OFF, INV_COMMSIZE.
 */

/**
 * Sends size bytes to a rank, and returns when its gaspi_passive_receive() has taken them. §9.2.1. After GASPI_TIMEOUT the same call continues the
 * request. Errors: INV_RANK; ERROR: passive_queue_size_max requests have run into their time-outs.
 */
gaspi_return_t gaspi_passive_send (gaspi_segment_id_t segment_id_local, gaspi_offset_t offset_local, gaspi_rank_t rank,
                                   gaspi_size_t size, gaspi_timeout_t timeout);

/**
 * Receives a message of any rank, at most size bytes, and stores the sender in *rank. §9.2.2. Sleeps while it waits. After GASPI_TIMEOUT nothing is written;
 * a later call, also for another place, gets the message.
 * Errors: INV_SIZE: the message is longer; its first size bytes are there, the rest is lost.
 */
gaspi_return_t gaspi_passive_receive (gaspi_segment_id_t segment_id_local, gaspi_offset_t offset_local, gaspi_rank_t *rank,
                                      gaspi_size_t size, gaspi_timeout_t timeout);

/** Ends the requests that have run into their timeouts, e.g. after the death of a peer. §9.3.1. A message that has reached its receiver may still be received. */
gaspi_return_t gaspi_passive_queue_purge (gaspi_timeout_t timeout);

/* ---------------------------------------------------------------- global atomics
 * On 8 bytes at an offset that is a multiple of 8. Errors: INV_SEG, INV_REM_OFF, INV_RANK, UNALIGN_OFF.
 */

/** Adds value_add to the value at offset, and returns the previous value. §10.2.1. */
gaspi_return_t gaspi_atomic_fetch_add (gaspi_segment_id_t segment_id, gaspi_offset_t offset, gaspi_rank_t rank,
                                       gaspi_atomic_value_t value_add, gaspi_atomic_value_t *value_old,
                                       gaspi_timeout_t timeout);

/** Sets the value at offset to value_new if it equals comparator, and returns the previous value. §10.2.2. */
gaspi_return_t gaspi_atomic_compare_swap (gaspi_segment_id_t segment_id, gaspi_offset_t offset, gaspi_rank_t rank,
                                          gaspi_atomic_value_t comparator, gaspi_atomic_value_t value_new,
                                          gaspi_atomic_value_t *value_old, gaspi_timeout_t timeout);

/* ---------------------------------------------------------------- collective communication
 * Errors: INV_GROUP, ACTIVE_COLL. After GASPI_TIMEOUT call the same operation again to continue.
 */

/** Waits until all members of the group are here. §11.2.1. */
gaspi_return_t gaspi_barrier (gaspi_group_t group, gaspi_timeout_t timeout);

/** Reduces num elements over the group, element by element, to all members. §11.3.1. Errors: INV_NUM (0, or more than gaspi_allreduce_elem_max()). */
gaspi_return_t gaspi_allreduce (gaspi_const_pointer_t buffer_send, gaspi_pointer_t buffer_receive, gaspi_number_t num,
                                gaspi_operation_t operation, gaspi_datatype_t datatype, gaspi_group_t group,
                                gaspi_timeout_t timeout);

/**
 * gaspi_allreduce() with an operation of the program on elements of size_element bytes. §11.4.1. With a callback of five
 * parameters this is gaspi_allreduce_user_17().
 * Errors: INV_SIZE (num * size_element is 0 or more than gaspi_allreduce_buf_size()).
 */
gaspi_return_t gaspi_allreduce_user (gaspi_const_pointer_t buffer_send, gaspi_pointer_t buffer_receive,
                                     gaspi_number_t num, gaspi_size_t size_element,
                                     gaspi_reduce_operation_t reduce_operation, gaspi_reduce_state_t reduce_state,
                                     gaspi_group_t group, gaspi_timeout_t timeout);

/** gaspi_allreduce_user() with the callback as GASPI 17.1 §11.4.2 has it in C; it is called for each element. */
gaspi_return_t gaspi_allreduce_user_17 (gaspi_const_pointer_t buffer_send, gaspi_pointer_t buffer_receive,
                                        gaspi_number_t num, gaspi_size_t size_element,
                                        gaspi_reduce_operation_17_t reduce_operation, gaspi_reduce_state_t reduce_state,
                                        gaspi_group_t group, gaspi_timeout_t timeout);

/* ---------------------------------------------------------------- getters: limits in force */

/** Groups that a process may have. §12.1.1. */
gaspi_return_t gaspi_group_max (gaspi_number_t *group_max);

/** Segments that a process may have. §12.2.1. */
gaspi_return_t gaspi_segment_max (gaspi_number_t *segment_max);

/** Queues that exist. §12.3.1. */
gaspi_return_t gaspi_queue_num (gaspi_number_t *queue_num);

/** Requests that fit in one queue. §12.3.2. */
gaspi_return_t gaspi_queue_size_max (gaspi_number_t *queue_size_max);

/** Queues that may exist. §12.3.3. */
gaspi_return_t gaspi_queue_max (gaspi_number_t *queue_max);

/** Bytes of the largest transfer. §12.3.4. */
gaspi_return_t gaspi_transfer_size_max (gaspi_size_t *transfer_size_max);

/** Bytes of the smallest transfer. Not in GASPI 17.1. */
gaspi_return_t gaspi_transfer_size_min (gaspi_size_t *transfer_size_min);

/** Notifications of a segment. §12.3.5. */
gaspi_return_t gaspi_notification_num (gaspi_number_t *notification_num);

/** Bytes of the largest passive message, as configured. §12.4.1. */
gaspi_return_t gaspi_passive_transfer_size_max (gaspi_size_t *passive_transfer_size_max);

/** Bytes of the smallest passive message. Not in GASPI 17.1. */
gaspi_return_t gaspi_passive_transfer_size_min (gaspi_size_t *passive_transfer_size_min);

/** The largest value of the global atomics. §12.5.1. */
gaspi_return_t gaspi_atomic_max (gaspi_atomic_value_t *max_value);

/** Bytes that gaspi_allreduce_user() can reduce. §12.6.1. */
gaspi_return_t gaspi_allreduce_buf_size (gaspi_size_t *buf_size);

/** Elements that gaspi_allreduce() can reduce. §12.6.2. */
gaspi_return_t gaspi_allreduce_elem_max (gaspi_number_t *elem_max);

/** The network of the configuration. §12.7.1. */
gaspi_return_t gaspi_network_type (gaspi_network_t *network_type);

/** When connections are made: a gaspi_topology_t. §12.7.2. */
gaspi_return_t gaspi_build_infrastructure (gaspi_number_t *build_infrastructure);

/* ---------------------------------------------------------------- environment */

/** Version of the interface. §13.1.1. At any time. */
gaspi_return_t gaspi_version (float *version);

/** Milliseconds since a moment in the past that is this process's own. §13.2.1. */
gaspi_return_t gaspi_time_get (gaspi_time_t *wtime);

/** Ticks of the clock, as a count. Release 1.6; with a gaspi_time_t * this is gaspi_time_resolution(). */
gaspi_return_t gaspi_time_ticks (gaspi_cycles_t *ticks);

/** Resolution of gaspi_time_get() in milliseconds; GASPI 17.1 §13.2.2 calls it gaspi_time_ticks(). At any time. */
gaspi_return_t gaspi_time_resolution (gaspi_time_t *resolution);

/** Sets *error_message to the text for a code (a number that is none has one, too); the caller may free() it. §13.3.2. At any time. */
gaspi_return_t gaspi_print_error (gaspi_return_t error_code, gaspi_string_t *error_message);

/** Sets *error_message to the text for a code; it is the library's: neither change nor free it. §3.11. At any time. */
gaspi_return_t gaspi_error_message (gaspi_return_t error_code, gaspi_string_t *error_message);

/* ---------------------------------------------------------------- profiling */

/** Does nothing; a tool may replace it. §14.2.1. At any time. */
gaspi_return_t gaspi_pcontrol (gaspi_pointer_t argument);

/* Statistics: counters of this process, from 0 to gaspi_statistic_counter_max() - 1. At any time. Each has a level; it counts while
 * gaspi_statistic_verbosity_level() is as high. Level 1: calls of procedures, and the bytes that they move. Level 2: their times, and bytes by ranks.
 * UNIPGAS_STATS=LEVEL in the environment sets the level of a start, and lets gaspi_proc_term() print the counters. */

/** Sets the level. Level 0, the initial one, counts no events. §14.1.3. */
gaspi_return_t gaspi_statistic_verbosity_level (gaspi_number_t verbosity_level);

/** Number of counters. §14.1.1. */
gaspi_return_t gaspi_statistic_counter_max (gaspi_number_t *counter_max);

/** Name, description, verbosity level and argument of a counter; the texts belong to the library. §14.1.2. Errors: ERROR (no such counter). */
gaspi_return_t gaspi_statistic_counter_info (gaspi_statistic_counter_t counter, gaspi_statistic_argument_t *counter_argument,
                                             gaspi_string_t *counter_name, gaspi_string_t *counter_description,
                                             gaspi_number_t *verbosity_level);

/**
 * The value of a counter. §14.1.4. argument is a rank if gaspi_statistic_counter_info() says so. With a gaspi_number_t * this is
 * gaspi_statistic_counter_get_17(). Errors: ERROR (no such counter), INV_RANK.
 */
gaspi_return_t gaspi_statistic_counter_get (gaspi_statistic_counter_t counter, gaspi_number_t argument, unsigned long *value);

/** The same in the form of the text; values that have no room in 32 bits are the largest one. */
gaspi_return_t gaspi_statistic_counter_get_17 (gaspi_statistic_counter_t counter, gaspi_number_t argument, gaspi_number_t *value);

/** Sets a counter to 0, for all arguments. §14.1.5. Errors: ERROR (no such counter). */
gaspi_return_t gaspi_statistic_counter_reset (gaspi_statistic_counter_t counter);

/** Prints the counters without arguments that are not 0, a line each. Not in GASPI 17.1. */
gaspi_return_t gaspi_statistic_print_counters (void);

#ifdef __cplusplus
}
#endif

/* ---------------------------------------------------------------- both signatures */

#if !defined GASPI_NO_OVERLOADS && defined __cplusplus

/* Programs include this file within extern "C", too. */
extern "C++" {

namespace unipgas_gaspi
{
/* The result type, if the two types are the same; keeps a null pointer constant from matching both signatures. */
template <class A, class B> struct if_same
{
};
template <class A> struct if_same<A, A>
{
  typedef gaspi_return_t result;
};

inline gaspi_return_t
state_vec_get (gaspi_state_vector_t state_vector)
{
  return gaspi_state_vec_get (state_vector);
}

template <class State>
inline typename if_same<State, gaspi_state_t>::result
state_vec_get (State **state_vector)
{
  return gaspi_state_vec_get_17 (state_vector);
}

inline gaspi_return_t
statistic_counter_get (gaspi_statistic_counter_t counter, gaspi_number_t argument, unsigned long *value)
{
  return gaspi_statistic_counter_get (counter, argument, value);
}

inline gaspi_return_t
statistic_counter_get (gaspi_statistic_counter_t counter, gaspi_number_t argument, gaspi_number_t *value)
{
  return gaspi_statistic_counter_get_17 (counter, argument, value);
}

inline gaspi_return_t
time_ticks (gaspi_cycles_t *ticks)
{
  return gaspi_time_ticks (ticks);
}

template <class Time>
inline typename if_same<Time, gaspi_time_t>::result
time_ticks (Time *resolution)
{
  return gaspi_time_resolution (resolution);
}

inline gaspi_return_t
allreduce_user (gaspi_const_pointer_t buffer_send, gaspi_pointer_t buffer_receive, gaspi_number_t num,
                gaspi_size_t size_element, gaspi_reduce_operation_t reduce_operation, gaspi_reduce_state_t reduce_state,
                gaspi_group_t group, gaspi_timeout_t timeout)
{
  return gaspi_allreduce_user (buffer_send, buffer_receive, num, size_element, reduce_operation, reduce_state, group,
                               timeout);
}

inline gaspi_return_t
allreduce_user (gaspi_const_pointer_t buffer_send, gaspi_pointer_t buffer_receive, gaspi_number_t num,
                gaspi_size_t size_element, gaspi_reduce_operation_17_t reduce_operation,
                gaspi_reduce_state_t reduce_state, gaspi_group_t group, gaspi_timeout_t timeout)
{
  return gaspi_allreduce_user_17 (buffer_send, buffer_receive, num, size_element, reduce_operation, reduce_state, group,
                                  timeout);
}

inline gaspi_return_t
segment_ptr (gaspi_segment_id_t segment_id, gaspi_pointer_t *pointer)
{
  return gaspi_segment_ptr (segment_id, pointer);
}

/* The listings of GASPI 17.1 pass the address of a pointer of any type. */
template <class T>
inline gaspi_return_t
segment_ptr (gaspi_segment_id_t segment_id, T **pointer)
{
  return gaspi_segment_ptr (segment_id, static_cast<gaspi_pointer_t *> (static_cast<void *> (pointer)));
}
} /* namespace unipgas_gaspi */

} /* extern "C++" */

/* Macros, so a name without arguments is still the plain function, which programs pass to templates. */
#define gaspi_state_vec_get(...) unipgas_gaspi::state_vec_get (__VA_ARGS__)
#define gaspi_time_ticks(...) unipgas_gaspi::time_ticks (__VA_ARGS__)
#define gaspi_statistic_counter_get(...) unipgas_gaspi::statistic_counter_get (__VA_ARGS__)
#define gaspi_allreduce_user(...) unipgas_gaspi::allreduce_user (__VA_ARGS__)
#define gaspi_segment_ptr(...) unipgas_gaspi::segment_ptr (__VA_ARGS__)

#elif !defined GASPI_NO_OVERLOADS && (defined __GNUC__ || __STDC_VERSION__ >= 201112L)

#ifdef __GNUC__
#define UNIPGAS_GENERIC __extension__ _Generic
#else
#define UNIPGAS_GENERIC _Generic
#endif

#define gaspi_state_vec_get(state_vector) \
  (UNIPGAS_GENERIC ((state_vector), gaspi_state_vector_t * : gaspi_state_vec_get_17, \
                    default : gaspi_state_vec_get) (state_vector))

#define gaspi_time_ticks(ticks) \
  (UNIPGAS_GENERIC ((ticks), gaspi_time_t * : gaspi_time_resolution, default : gaspi_time_ticks) (ticks))

#define gaspi_statistic_counter_get(counter, argument, value) \
  (UNIPGAS_GENERIC ((value), gaspi_number_t * : gaspi_statistic_counter_get_17, default : gaspi_statistic_counter_get) ( \
      (counter), (argument), (value)))

#define gaspi_allreduce_user(buffer_send, buffer_receive, num, size_element, reduce_operation, reduce_state, group, \
                             timeout) \
  (UNIPGAS_GENERIC ((reduce_operation), gaspi_reduce_operation_17_t : gaspi_allreduce_user_17, \
                    default : gaspi_allreduce_user) ((buffer_send), (buffer_receive), (num), (size_element), \
                                                     (reduce_operation), (reduce_state), (group), (timeout)))

/* The listings of GASPI 17.1 pass the address of a pointer of any type. */
#define gaspi_segment_ptr(segment_id, pointer) (gaspi_segment_ptr ((segment_id), (gaspi_pointer_t *)(pointer)))

#endif

#endif
