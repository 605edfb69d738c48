/* Instructions of GASPI's calls between two processes that reach each other by an RDMA device, without those of ibv_post_send, which are the device's. */
#include "../../examples/gaspi/success_or_die.h"
#include "step.h"
#include <infiniband/verbs.h>

enum
{
  SEGMENT = 0,
  QUEUE = 0,
  BYTES = 4096
};

static void
leave_out_the_device (void)
{
  struct ibv_device **devices = ibv_get_device_list (NULL);
  struct ibv_context *context = devices != NULL && devices[0] != NULL ? ibv_open_device (devices[0]) : NULL;
  if (context == NULL)
    {
      fprintf (stderr, "instructions: there is no RDMA device\n");
      exit (2);
    }
  left_out = (uintptr_t) context->ops.post_send;
}

int
main (void)
{
  gaspi_rank_t rank;
  SUCCESS_OR_DIE (gaspi_proc_init (GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_proc_rank (&rank));
  SUCCESS_OR_DIE (gaspi_segment_create (SEGMENT, BYTES, GASPI_GROUP_ALL, GASPI_BLOCK, GASPI_MEM_INITIALIZED));
  SUCCESS_OR_DIE (gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK));
  if (rank == 0)
    {
      volatile gaspi_return_t code = GASPI_SUCCESS;
      long least;
      leave_out_the_device ();
      prepare_to_count ();
      COUNT (least, code = gaspi_write (SEGMENT, 0, 1, SEGMENT, 0, 8, QUEUE, GASPI_BLOCK),
             SUCCESS_OR_DIE (code); if (trial % 8 == 7) SUCCESS_OR_DIE (gaspi_wait (QUEUE, GASPI_BLOCK)));
      report ("verbs:gaspi_write", least);
      COUNT (least, code = gaspi_write_notify (SEGMENT, 0, 1, SEGMENT, 0, 8, 0, 1, QUEUE, GASPI_BLOCK),
             SUCCESS_OR_DIE (code); if (trial % 8 == 7) SUCCESS_OR_DIE (gaspi_wait (QUEUE, GASPI_BLOCK)));
      report ("verbs:gaspi_write_notify", least);
      COUNT (least, code = gaspi_notify (SEGMENT, 1, 0, 1, QUEUE, GASPI_BLOCK),
             SUCCESS_OR_DIE (code); if (trial % 8 == 7) SUCCESS_OR_DIE (gaspi_wait (QUEUE, GASPI_BLOCK)));
      report ("verbs:gaspi_notify", least);
      COUNT (least, code = gaspi_read (SEGMENT, 0, 1, SEGMENT, 0, 8, QUEUE, GASPI_BLOCK),
             SUCCESS_OR_DIE (code); if (trial % 8 == 7) SUCCESS_OR_DIE (gaspi_wait (QUEUE, GASPI_BLOCK)));
      report ("verbs:gaspi_read", least);
    }
  SUCCESS_OR_DIE (gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_proc_term (GASPI_BLOCK));
  return 0;
}
