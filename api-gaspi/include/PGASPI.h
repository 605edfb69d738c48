/*
 * The name-shifted entry points of the profiling interface (GASPI 17.1 §14.2): pgaspi_x has the effect of gaspi_x. A tool defines
 * gaspi_x and calls pgaspi_x. GASPI.h and GASPI_Ext.h describe the procedures.
 */
#ifndef UNIPGAS_PGASPI_H
#define UNIPGAS_PGASPI_H

#include "GASPI.h"

#ifdef __cplusplus
extern "C" {
#endif

/* These have C++ overloads, so their types are written out. */
gaspi_return_t pgaspi_allreduce_user (gaspi_const_pointer_t buffer_send, gaspi_pointer_t buffer_receive,
                                      gaspi_number_t num, gaspi_size_t size_element,
                                      gaspi_reduce_operation_t reduce_operation, gaspi_reduce_state_t reduce_state,
                                      gaspi_group_t group, gaspi_timeout_t timeout);
gaspi_return_t pgaspi_segment_ptr (gaspi_segment_id_t segment_id, gaspi_pointer_t *pointer);
gaspi_return_t pgaspi_state_vec_get (gaspi_state_vector_t state_vector);
gaspi_return_t pgaspi_time_ticks (gaspi_cycles_t *ticks);

/* All others have the type of their counterpart. */
#define UNIPGAS_SHIFTED(name) extern __typeof__ (gaspi_##name) pgaspi_##name

UNIPGAS_SHIFTED (config_get);
UNIPGAS_SHIFTED (config_set);
UNIPGAS_SHIFTED (proc_init);
UNIPGAS_SHIFTED (proc_num);
UNIPGAS_SHIFTED (proc_rank);
UNIPGAS_SHIFTED (proc_term);
UNIPGAS_SHIFTED (proc_kill);
UNIPGAS_SHIFTED (connect);
UNIPGAS_SHIFTED (disconnect);
UNIPGAS_SHIFTED (state_vec_get_17);
UNIPGAS_SHIFTED (group_create);
UNIPGAS_SHIFTED (group_add);
UNIPGAS_SHIFTED (group_commit);
UNIPGAS_SHIFTED (group_delete);
UNIPGAS_SHIFTED (group_num);
UNIPGAS_SHIFTED (group_size);
UNIPGAS_SHIFTED (group_ranks);
UNIPGAS_SHIFTED (segment_alloc);
UNIPGAS_SHIFTED (segment_register);
UNIPGAS_SHIFTED (segment_create);
UNIPGAS_SHIFTED (segment_bind);
UNIPGAS_SHIFTED (segment_use);
UNIPGAS_SHIFTED (segment_delete);
UNIPGAS_SHIFTED (segment_num);
UNIPGAS_SHIFTED (segment_list);
UNIPGAS_SHIFTED (write);
UNIPGAS_SHIFTED (read);
UNIPGAS_SHIFTED (wait);
UNIPGAS_SHIFTED (notify);
UNIPGAS_SHIFTED (notify_waitsome);
UNIPGAS_SHIFTED (notify_reset);
UNIPGAS_SHIFTED (write_notify);
UNIPGAS_SHIFTED (write_list);
UNIPGAS_SHIFTED (write_list_notify);
UNIPGAS_SHIFTED (read_notify);
UNIPGAS_SHIFTED (read_list);
UNIPGAS_SHIFTED (read_list_notify);
UNIPGAS_SHIFTED (queue_create);
UNIPGAS_SHIFTED (queue_delete);
UNIPGAS_SHIFTED (queue_size);
UNIPGAS_SHIFTED (queue_purge);
UNIPGAS_SHIFTED (passive_send);
UNIPGAS_SHIFTED (passive_receive);
UNIPGAS_SHIFTED (passive_queue_purge);
UNIPGAS_SHIFTED (atomic_fetch_add);
UNIPGAS_SHIFTED (atomic_compare_swap);
UNIPGAS_SHIFTED (barrier);
UNIPGAS_SHIFTED (allreduce);
UNIPGAS_SHIFTED (allreduce_user_17);
UNIPGAS_SHIFTED (group_max);
UNIPGAS_SHIFTED (segment_max);
UNIPGAS_SHIFTED (queue_num);
UNIPGAS_SHIFTED (queue_size_max);
UNIPGAS_SHIFTED (queue_max);
UNIPGAS_SHIFTED (transfer_size_max);
UNIPGAS_SHIFTED (transfer_size_min);
UNIPGAS_SHIFTED (notification_num);
UNIPGAS_SHIFTED (passive_transfer_size_max);
UNIPGAS_SHIFTED (passive_transfer_size_min);
UNIPGAS_SHIFTED (atomic_max);
UNIPGAS_SHIFTED (allreduce_buf_size);
UNIPGAS_SHIFTED (allreduce_elem_max);
UNIPGAS_SHIFTED (network_type);
UNIPGAS_SHIFTED (build_infrastructure);
UNIPGAS_SHIFTED (version);
UNIPGAS_SHIFTED (time_get);
UNIPGAS_SHIFTED (time_resolution);
UNIPGAS_SHIFTED (print_error);
UNIPGAS_SHIFTED (error_message);
UNIPGAS_SHIFTED (pcontrol);
UNIPGAS_SHIFTED (statistic_verbosity_level);
UNIPGAS_SHIFTED (statistic_counter_max);
UNIPGAS_SHIFTED (statistic_counter_info);
UNIPGAS_SHIFTED (statistic_counter_get);
UNIPGAS_SHIFTED (statistic_counter_get_17);
UNIPGAS_SHIFTED (statistic_counter_reset);
UNIPGAS_SHIFTED (statistic_print_counters);

#undef UNIPGAS_SHIFTED

/* Counterparts of GASPI_Ext.h. This file does not declare the names of GASPI_Ext.h. */
gaspi_return_t pgaspi_initialized (gaspi_number_t *initialized);
gaspi_return_t pgaspi_proc_local_rank (gaspi_rank_t *local_rank);
gaspi_return_t pgaspi_proc_local_num (gaspi_rank_t *local_num);
gaspi_return_t pgaspi_proc_incarnation (gaspi_number_t *incarnation);
gaspi_return_t pgaspi_proc_ping (gaspi_rank_t rank, gaspi_timeout_t timeout);
gaspi_return_t pgaspi_cpu_frequency (gaspi_float *cpu_mhz);
void pgaspi_printf (const char *format, ...);
void pgaspi_printf_to (gaspi_rank_t rank, const char *format, ...);
void pgaspi_print_affinity_mask (void);
gaspi_return_t pgaspi_numa_socket (gaspi_uchar *socket);
gaspi_return_t pgaspi_set_socket_affinity (gaspi_uchar socket);
gaspi_string_t pgaspi_error_str (gaspi_return_t error_code);
gaspi_return_t pgaspi_segment_avail_local (gaspi_segment_id_t *segment_id);
gaspi_return_t pgaspi_segment_size (gaspi_segment_id_t segment_id, gaspi_rank_t rank, gaspi_size_t *size);
gaspi_return_t pgaspi_rw_list_elem_max (gaspi_number_t *elem_max);
void pgaspi_delay (void);

#ifdef __cplusplus
}
#endif

#endif
