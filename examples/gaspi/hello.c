/* Each process prints its rank. Rank 0 checks by a reduction that all processes take part. */
#include "success_or_die.h"

int
main (int argc, char *argv[])
{
  gaspi_rank_t rank, processes;

  SUCCESS_OR_DIE (gaspi_proc_init (GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_proc_rank (&rank));
  SUCCESS_OR_DIE (gaspi_proc_num (&processes));

  if (argc > 1)
    {
      if (rank == 0)
        fprintf (stderr, "%s: no arguments, please\n", argv[0]);
      leave ();
      return 2;
    }

  printf ("hello from rank %u of %u\n", rank, processes);

  const unsigned long mine = rank + 1UL;
  unsigned long sum = 0;
  SUCCESS_OR_DIE (gaspi_allreduce (&mine, &sum, 1, GASPI_OP_SUM, GASPI_TYPE_ULONG, GASPI_GROUP_ALL, GASPI_BLOCK));
  const int complete = sum == processes * (processes + 1UL) / 2;
  if (rank == 0 && !complete)
    fprintf (stderr, "hello: the ranks do not sum up: %lu\n", sum);

  leave ();
  return complete ? EXIT_SUCCESS : EXIT_FAILURE;
}
