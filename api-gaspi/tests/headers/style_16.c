/* Source as it is written for release 1.6 of the interface; also as C++. Compiled, not run. */
#include <GASPI.h>
#include <GASPI_Ext.h>
#include <PGASPI.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call) \
  do \
    { \
      const gaspi_return_t code = (call); \
      if (code != GASPI_SUCCESS) \
        { \
          gaspi_printf ("%s:%d: %s\n", __FILE__, __LINE__, gaspi_error_str (code)); \
          exit (EXIT_FAILURE); \
        } \
    } \
  while (0)

static const gaspi_timeout_t *const forever = &GASPI_BLOCK;

static gaspi_return_t
add (gaspi_pointer_t const one, gaspi_pointer_t const two, gaspi_pointer_t const result,
     gaspi_reduce_state_t const state, const gaspi_number_t num, const gaspi_size_t size, const gaspi_timeout_t timeout)
{
  gaspi_number_t i;
  (void) state;
  (void) size;
  (void) timeout;
  for (i = 0; i < num; i++)
    ((double *) result)[i] = ((double *) one)[i] + ((double *) two)[i];
  return GASPI_SUCCESS;
}

static void
configure (void)
{
  gaspi_config_t config;
  CHECK (gaspi_config_get (&config));
  config.logger = 0;
  config.sn_port = 10840;
  config.net_info = GASPI_ETHERNET;
  config.user_net = 1;
  config.sn_persistent = 0;
  config.sn_timeout = 60000;
  config.dev_config.network_type = GASPI_IB;
  config.dev_config.params.ib.netdev_id = -1;
  config.dev_config.params.ib.mtu = 4096;
  config.dev_config.params.ib.port_check = 1;
  config.dev_config.params.tcp.port = 19000;
  config.dev_config.params.ofi.use_shm = 1;
  config.network = GASPI_IB;
  config.queue_num = 4;
  config.queue_size_max = 2048;
  config.rw_list_elem_max = 64;
  config.passive_transfer_size_max = 1024;
  config.build_infrastructure = GASPI_TOPOLOGY_DYNAMIC;
  gaspi_topology_t topology = config.build_infrastructure;
  if (topology != GASPI_TOPOLOGY_STATIC)
    CHECK (gaspi_config_set (config));
}

static void
extensions (void)
{
  gaspi_number_t number;
  gaspi_rank_t rank;
  gaspi_float frequency;
  gaspi_uchar socket;
  gaspi_segment_id_t segment;
  gaspi_size_t size;
  CHECK (gaspi_initialized (&number));
  CHECK (gaspi_proc_local_rank (&rank));
  CHECK (gaspi_proc_local_num (&rank));
  CHECK (gaspi_proc_incarnation (&number));
  CHECK (gaspi_cpu_frequency (&frequency));
  CHECK (gaspi_numa_socket (&socket));
  CHECK (gaspi_set_socket_affinity (socket));
  CHECK (gaspi_proc_ping (0, 1000));
  CHECK (gaspi_segment_avail_local (&segment));
  CHECK (gaspi_segment_size (segment, 0, &size));
  CHECK (gaspi_rw_list_elem_max (&number));
  CHECK (gaspi_transfer_size_min (&size));
  CHECK (gaspi_passive_transfer_size_min (&size));
  gaspi_delay ();
  gaspi_print_affinity_mask ();
  gaspi_printf ("%u %f\n", number, (double) frequency);
}

static void
differing_signatures (gaspi_rank_t processes)
{
  gaspi_cycles_t begin, end;
  gaspi_string_t text;
  double in[4] = { 0 }, out[4];
  gaspi_rank_t rank;

  gaspi_state_vector_t states = (gaspi_state_vector_t) malloc (processes * sizeof (gaspi_state_t));
  CHECK (gaspi_state_vec_get (states));
  for (rank = 0; rank < processes; rank++)
    if (states[rank] == GASPI_STATE_CORRUPT)
      gaspi_printf ("%d is gone\n", rank);
  free (states);

  CHECK (gaspi_time_ticks (&begin));
  CHECK (pgaspi_time_ticks (&end));
  CHECK (gaspi_allreduce (in, out, 4, GASPI_OP_SUM, GASPI_TYPE_DOUBLE, GASPI_GROUP_ALL, GASPI_BLOCK));
  CHECK (gaspi_allreduce_user (in, out, 4, sizeof (double), add, NULL, GASPI_GROUP_ALL, GASPI_BLOCK));
  CHECK (gaspi_allreduce_user ((gaspi_pointer_t) in, (gaspi_pointer_t) out, 4, sizeof (double),
                               (gaspi_reduce_operation_t) add, NULL, GASPI_GROUP_ALL, GASPI_BLOCK));
  CHECK (gaspi_print_error (GASPI_ERR_INV_RANK, &text));
  free (text);
}

static void
communicate (gaspi_rank_t rank, gaspi_rank_t processes)
{
  gaspi_segment_id_t local[2] = { 0, 0 }, remote[2] = { 0, 0 };
  gaspi_offset_t from[2] = { 0, 8 }, to[2] = { 16, 24 };
  gaspi_size_t sizes[2] = { 8, 8 };
  gaspi_notification_id_t first;
  gaspi_notification_t value;
  gaspi_queue_id_t queue;
  gaspi_number_t open;
  gaspi_atomic_value_t old;
  gaspi_pointer_t pointer;
  const gaspi_rank_t next = (gaspi_rank_t) ((rank + 1) % processes);

  CHECK (gaspi_segment_create (0, 1 << 20, GASPI_GROUP_ALL, GASPI_BLOCK, GASPI_MEM_INITIALIZED));
  CHECK (gaspi_segment_ptr (0, &pointer));
  CHECK (gaspi_segment_ptr (0, (void **) &pointer));
  memset (pointer, 0, 16);
  CHECK (gaspi_write_list (2, local, from, next, remote, to, sizes, 0, GASPI_BLOCK));
  CHECK (gaspi_read_list (2, local, from, next, remote, to, sizes, 0, GASPI_BLOCK));
  CHECK (gaspi_write_list_notify (2, local, from, next, remote, to, sizes, 0, 3, 1, 0, GASPI_BLOCK));
  CHECK (gaspi_read_list_notify (2, local, from, next, remote, to, sizes, 0, 3, 0, GASPI_BLOCK));
  CHECK (gaspi_write_notify (0, 0, next, 0, 8, 8, 7, 1, 0, *forever));
  CHECK (gaspi_notify_waitsome (0, 7, 1, &first, GASPI_BLOCK));
  CHECK (gaspi_notify_reset (0, first, &value));
  CHECK (gaspi_atomic_fetch_add (0, 0, 0, 1, &old, GASPI_BLOCK));
  CHECK (gaspi_queue_create (&queue, GASPI_BLOCK));
  CHECK (gaspi_queue_size (queue, &open));
  CHECK (gaspi_queue_delete (queue));
  CHECK (pgaspi_queue_purge (0, GASPI_BLOCK));
  CHECK (pgaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK));
}

int
main (int argc, char *argv[])
{
  gaspi_rank_t rank, processes;
  (void) argc;
  (void) argv;
  configure ();
  CHECK (gaspi_proc_init (GASPI_BLOCK));
  CHECK (gaspi_proc_rank (&rank));
  CHECK (gaspi_proc_num (&processes));
  extensions ();
  communicate (rank, processes);
  differing_signatures (processes);
#if GASPI_MAJOR_VERSION == 1 && GASPI_MINOR_VERSION < 6
#error "the headers are those of release 1.6"
#endif
  CHECK (gaspi_proc_term (GASPI_BLOCK));
  return EXIT_SUCCESS;
}
