/*
 * Transpose of a square matrix with rows distributed over the processes. Each process writes one block to each process, with a
 * notification that identifies the sender (all-to-all, as in GASPI 17.1 §8.2.4).
 *
 * transpose [BLOCK]: rows of each process.
 */
#include "success_or_die.h"

enum
{
  SOURCE = 0,
  TARGET = 1,
  QUEUE = 0
};

/* The value of the element in a row and column of the matrix. */
static long
element (long row, long column, long width)
{
  return row * width + column;
}

/* Returns 1 if this process holds its rows of the transpose. */
static int
transpose (long block, gaspi_rank_t rank, gaspi_rank_t processes)
{
  const long width = block * processes;
  const gaspi_size_t block_bytes = (gaspi_size_t) block * (gaspi_size_t) block * sizeof (long);
  const gaspi_size_t bytes = block_bytes * processes;
  SUCCESS_OR_DIE (gaspi_segment_create (SOURCE, bytes, GASPI_GROUP_ALL, GASPI_BLOCK, GASPI_ALLOC_DEFAULT));
  SUCCESS_OR_DIE (gaspi_segment_create (TARGET, bytes, GASPI_GROUP_ALL, GASPI_BLOCK, GASPI_ALLOC_DEFAULT));
  gaspi_pointer_t source_memory, target_memory;
  SUCCESS_OR_DIE (gaspi_segment_ptr (SOURCE, &source_memory));
  SUCCESS_OR_DIE (gaspi_segment_ptr (TARGET, &target_memory));
  long *source = source_memory;
  const long *target = target_memory;

  for (long n = 0; n < processes; n++)
    {
      /* Each process begins with the next rank, so the first writes have different targets. */
      const gaspi_rank_t to = (gaspi_rank_t) ((rank + 1 + n) % processes);
      long *const mine = source + to * block * block;
      for (long row = 0; row < block; row++)
        for (long column = 0; column < block; column++)
          mine[column * block + row] = element (rank * block + row, to * block + column, width);
      POST (QUEUE, gaspi_write_notify (SOURCE, to * block_bytes, to, TARGET, rank * block_bytes, block_bytes, rank, 1,
                                       QUEUE, GASPI_BLOCK));
    }

  /* Takes the blocks in the order of their arrival. */
  int right = 1;
  for (long missing = processes; missing > 0;)
    {
      gaspi_notification_id_t from;
      gaspi_notification_t value;
      SUCCESS_OR_DIE (gaspi_notify_waitsome (TARGET, 0, processes, &from, GASPI_BLOCK));
      SUCCESS_OR_DIE (gaspi_notify_reset (TARGET, from, &value));
      if (value == 0)
        continue;
      missing--;
      const long *const theirs = target + from * block * block;
      for (long row = 0; row < block; row++)
        for (long column = 0; column < block; column++)
          right &= theirs[row * block + column] == element (from * block + column, rank * block + row, width);
    }

  SUCCESS_OR_DIE (gaspi_wait (QUEUE, GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_segment_delete (TARGET));
  SUCCESS_OR_DIE (gaspi_segment_delete (SOURCE));
  return right;
}

int
main (int argc, char *argv[])
{
  long block = 64;
  gaspi_rank_t rank, processes;
  gaspi_number_t notifications;

  SUCCESS_OR_DIE (gaspi_proc_init (GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_proc_rank (&rank));
  SUCCESS_OR_DIE (gaspi_proc_num (&processes));
  SUCCESS_OR_DIE (gaspi_notification_num (&notifications));

  int status;
  if (argc > 2 || (argc == 2 && !parse_number (argv[1], 1, 4096, &block)))
    {
      if (rank == 0)
        fprintf (stderr, "usage: %s [BLOCK], a number from 1 to 4096\n", argv[0]);
      status = 2;
    }
  else if (notifications < processes)
    {
      if (rank == 0)
        fprintf (stderr, "transpose: %u processes, but only %u notifications\n", processes, notifications);
      status = 2;
    }
  else
    {
      const int mine = transpose (block, rank, processes);
      int all = 0;
      SUCCESS_OR_DIE (gaspi_allreduce (&mine, &all, 1, GASPI_OP_MIN, GASPI_TYPE_INT, GASPI_GROUP_ALL, GASPI_BLOCK));
      if (rank == 0)
        printf ("transpose: %ld x %ld elements, %u processes: %s\n", block * processes, block * processes, processes,
                all ? "right" : "WRONG");
      status = all ? EXIT_SUCCESS : EXIT_FAILURE;
    }

  leave ();
  return status;
}
