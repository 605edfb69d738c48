/* Instructions of GASPI's calls between two processes of a host. */
#include "../../examples/gaspi/success_or_die.h"
#include "step.h"

enum
{
  SEGMENT = 0,
  QUEUE = 0,
  BYTES = 4096
};

int
main (void)
{
  gaspi_rank_t rank, size;
  SUCCESS_OR_DIE (gaspi_proc_init (GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_proc_rank (&rank));
  SUCCESS_OR_DIE (gaspi_proc_num (&size));
  if (size != 2)
    {
      fprintf (stderr, "instructions: 2 processes are needed\n");
      return 2;
    }
  SUCCESS_OR_DIE (gaspi_segment_create (SEGMENT, BYTES, GASPI_GROUP_ALL, GASPI_BLOCK, GASPI_MEM_INITIALIZED));
  SUCCESS_OR_DIE (gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK));
  if (rank == 0)
    {
      volatile gaspi_return_t code = GASPI_SUCCESS;
      long least;
      prepare_to_count ();
      COUNT (least, code = gaspi_write (SEGMENT, 0, 1, SEGMENT, 0, 8, QUEUE, GASPI_BLOCK),
             SUCCESS_OR_DIE (code); SUCCESS_OR_DIE (gaspi_wait (QUEUE, GASPI_BLOCK)));
      report ("gaspi_write", least);
      COUNT (least, code = gaspi_write_notify (SEGMENT, 0, 1, SEGMENT, 0, 8, 0, 1, QUEUE, GASPI_BLOCK),
             SUCCESS_OR_DIE (code); SUCCESS_OR_DIE (gaspi_wait (QUEUE, GASPI_BLOCK)));
      report ("gaspi_write_notify", least);
      COUNT (least, code = gaspi_notify (SEGMENT, 1, 0, 1, QUEUE, GASPI_BLOCK),
             SUCCESS_OR_DIE (code); SUCCESS_OR_DIE (gaspi_wait (QUEUE, GASPI_BLOCK)));
      report ("gaspi_notify", least);
      COUNT (least, code = gaspi_read (SEGMENT, 0, 1, SEGMENT, 0, 8, QUEUE, GASPI_BLOCK),
             SUCCESS_OR_DIE (code); SUCCESS_OR_DIE (gaspi_wait (QUEUE, GASPI_BLOCK)));
      report ("gaspi_read", least);
      gaspi_atomic_value_t old;
      COUNT (least, code = gaspi_atomic_fetch_add (SEGMENT, 8, 1, 1, &old, GASPI_BLOCK), SUCCESS_OR_DIE (code));
      report ("gaspi_atomic_fetch_add", least);
      COUNT (least, code = gaspi_wait (QUEUE, GASPI_BLOCK), SUCCESS_OR_DIE (code));
      report ("gaspi_wait", least);
      gaspi_notification_id_t first;
      gaspi_notification_t value;
      SUCCESS_OR_DIE (gaspi_notify (SEGMENT, 0, 5, 7, QUEUE, GASPI_BLOCK));
      COUNT (least, code = gaspi_notify_waitsome (SEGMENT, 5, 1, &first, GASPI_BLOCK), SUCCESS_OR_DIE (code));
      report ("gaspi_notify_waitsome", least);
      COUNT (least, code = gaspi_notify_reset (SEGMENT, 5, &value), SUCCESS_OR_DIE (code));
      report ("gaspi_notify_reset", least);
    }
  SUCCESS_OR_DIE (gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_proc_term (GASPI_BLOCK));
  return 0;
}
