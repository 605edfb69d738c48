/* Source as the text of GASPI 17.1 has it; also as C++. Compiled, not run. */
#include <GASPI.h>
#include <stdio.h>
#include <stdlib.h>

/* The annex has "const int ec", which C++ does not convert to gaspi_return_t. */
static void
success_or_die (const char *file, const int line, const gaspi_return_t ec)
{
  if (ec != GASPI_SUCCESS)
    {
      gaspi_string_t text;
      gaspi_error_message (ec, &text);
      fprintf (stderr, "error in %s[%i]: %s\n", file, line, text);
      exit (EXIT_FAILURE);
    }
}

#define ASSERT(ec) success_or_die (__FILE__, __LINE__, ec)

#define WAIT_IF_QUEUE_FULL(f, queue) \
  { \
    gaspi_return_t ret; \
    while ((ret = (f)) == GASPI_QUEUE_FULL) \
      { \
        ASSERT (gaspi_wait ((queue), GASPI_BLOCK)); \
      } \
    ASSERT (ret); \
  }

static gaspi_return_t
largest (gaspi_const_pointer_t operand_one, gaspi_const_pointer_t operand_two, gaspi_pointer_t result,
         gaspi_reduce_state_t state, gaspi_timeout_t timeout)
{
  const int one = *(const int *) operand_one;
  const int two = *(const int *) operand_two;
  (void) state;
  (void) timeout;
  *(int *) result = one > two ? one : two;
  return GASPI_SUCCESS;
}

static void
configure (void)
{
  gaspi_config_t config;
  ASSERT (gaspi_config_get (&config));
  config.group_max = 8;
  config.segment_max = 16;
  config.queue_num = 2;
  config.queue_size_max = 512;
  config.transfer_size_max = 1 << 20;
  config.notification_num = 1024;
  config.passive_queue_size_max = 16;
  config.passive_transfer_size_max = 1024;
  config.allreduce_buf_size = 1024;
  config.allreduce_elem_max = 128;
  config.network = GASPI_ETHERNET;
  config.build_infrastructure = 1;
  gaspi_number_t build = config.build_infrastructure;
  config.user_defined = &build;
  ASSERT (gaspi_config_set (config));
}

static void
reduce (gaspi_rank_t rank)
{
  const int in = rank;
  gaspi_const_pointer_t send = &in;
  int out;
  ASSERT (gaspi_allreduce (send, &out, 1, GASPI_OP_MAX, GASPI_TYPE_INT, GASPI_GROUP_ALL, GASPI_BLOCK));
  ASSERT (gaspi_allreduce_user (send, &out, 1, sizeof (int), largest, NULL, GASPI_GROUP_ALL, GASPI_BLOCK));
}

static void
health (gaspi_rank_t processes)
{
  gaspi_state_vector_t states = NULL;
  gaspi_returns_t returns = NULL;
  ASSERT (gaspi_state_vec_get (&states));
  for (gaspi_rank_t rank = 0; rank < processes; ++rank)
    if (states[rank] == GASPI_STATE_CORRUPT && returns == NULL)
      printf ("%i is corrupt\n", rank);
  free (states);
}

static void
information (void)
{
  gaspi_time_t time, resolution;
  float version;
  gaspi_network_t network;
  gaspi_number_t number;
  gaspi_size_t size;
  gaspi_string_t text;
  ASSERT (gaspi_time_get (&time));
  ASSERT (gaspi_time_ticks (&resolution));
  ASSERT (gaspi_version (&version));
  ASSERT (gaspi_network_type (&network));
  ASSERT (gaspi_build_infrastructure (&number));
  ASSERT (gaspi_passive_transfer_size_max (&size));
  ASSERT (gaspi_print_error (GASPI_ERROR, &text));
  ASSERT (gaspi_queue_purge (0, GASPI_BLOCK));
  ASSERT (gaspi_pcontrol (NULL));
}

int
main (int argc, char *argv[])
{
  (void) argc;
  (void) argv;
  configure ();
  ASSERT (gaspi_proc_init (GASPI_BLOCK));

  gaspi_rank_t iProc;
  gaspi_rank_t nProc;
  ASSERT (gaspi_proc_rank (&iProc));
  ASSERT (gaspi_proc_num (&nProc));

  gaspi_notification_id_t notification_max;
  ASSERT (gaspi_notification_num (&notification_max));
  ASSERT (gaspi_group_commit (GASPI_GROUP_ALL, GASPI_BLOCK));

  const gaspi_segment_id_t segment_id_src = 0;
  const gaspi_segment_id_t segment_id_dst = 1;
  const gaspi_size_t segment_size = nProc * sizeof (int);
  ASSERT (gaspi_segment_create (segment_id_src, segment_size, GASPI_GROUP_ALL, GASPI_BLOCK, GASPI_ALLOC_DEFAULT));
  ASSERT (gaspi_segment_create (segment_id_dst, segment_size, GASPI_GROUP_ALL, GASPI_BLOCK, GASPI_ALLOC_DEFAULT));

  int *src = NULL;
  int *dst = NULL;
  ASSERT (gaspi_segment_ptr (segment_id_src, &src));
  ASSERT (gaspi_segment_ptr (segment_id_dst, &dst));

  const gaspi_queue_id_t queue_id = 0;
  for (gaspi_rank_t rank = 0; rank < nProc; ++rank)
    {
      src[rank] = iProc * nProc + rank;
      const gaspi_offset_t offset_src = rank * sizeof (int);
      const gaspi_offset_t offset_dst = iProc * sizeof (int);
      const gaspi_notification_id_t notify_ID = rank;
      const gaspi_notification_t notify_val = 1;
      WAIT_IF_QUEUE_FULL (gaspi_write_notify (segment_id_src, offset_src, rank, segment_id_dst, offset_dst,
                                              sizeof (int), notify_ID, notify_val, queue_id, GASPI_BLOCK),
                          queue_id);
    }

  reduce (iProc);
  health (nProc);
  information ();
  ASSERT (gaspi_proc_term (GASPI_BLOCK));
  return EXIT_SUCCESS;
}
