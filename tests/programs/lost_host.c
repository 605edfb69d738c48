/*
 * A job that loses a host: its ranks there are dead for the others, who end their barrier with an error, find out who lives, and go on as a group of
 * their own. Rank 0 says "ready" when all are connected; whoever lives says how many they are.
 *
 * lost_host LOST: so many ranks are expected to be lost.
 */
#include "../../examples/gaspi/success_or_die.h"

enum
{
  SEGMENT = 0,
  QUEUE = 0,
  RANKS_AT_MOST = 64,
  SHORT_MS = 500
};

static int
count_lost (gaspi_rank_t size, gaspi_state_vector_t states)
{
  SUCCESS_OR_DIE (gaspi_state_vec_get (states));
  int lost = 0;
  for (gaspi_rank_t rank = 0; rank < size; rank++)
    lost += states[rank] != GASPI_STATE_HEALTHY;
  return lost;
}

int
main (int argc, char **argv)
{
  const int expected = argc == 2 ? atoi (argv[1]) : 1;
  gaspi_rank_t rank, size;
  SUCCESS_OR_DIE (gaspi_proc_init (GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_proc_rank (&rank));
  SUCCESS_OR_DIE (gaspi_proc_num (&size));
  gaspi_state_t states[RANKS_AT_MOST] = { 0 };
  if (size > RANKS_AT_MOST)
    return 2;
  SUCCESS_OR_DIE (gaspi_segment_create (SEGMENT, 4096, GASPI_GROUP_ALL, GASPI_BLOCK, GASPI_MEM_INITIALIZED));
  for (gaspi_rank_t other = 0; other < size; other++)
    SUCCESS_OR_DIE (gaspi_write_notify (SEGMENT, 0, other, SEGMENT, 8, 8, rank, 1, QUEUE, GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_wait (QUEUE, GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK));
  if (rank == 0)
    {
      printf ("ready\n");
      fflush (stdout);
    }
  gaspi_return_t code;
  do
    code = gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK);
  while (code == GASPI_SUCCESS);
  if (code != GASPI_ERROR)
    {
      printf ("rank %d: the barrier gave %d\n", rank, code);
      return 1;
    }
  /* Each of the lost ones has to be missed: what is posted to it fails. */
  while (count_lost (size, states) < expected)
    {
      for (gaspi_rank_t other = 0; other < size; other++)
        if (states[other] == GASPI_STATE_HEALTHY)
          gaspi_notify (SEGMENT, other, size + rank, 1, QUEUE, SHORT_MS);
      while ((code = gaspi_wait (QUEUE, SHORT_MS)) == GASPI_TIMEOUT)
        ;
      if (code != GASPI_SUCCESS)
        gaspi_queue_purge (QUEUE, SHORT_MS);
    }
  gaspi_group_t living;
  SUCCESS_OR_DIE (gaspi_group_create (&living));
  for (gaspi_rank_t other = 0; other < size; other++)
    if (states[other] == GASPI_STATE_HEALTHY)
      SUCCESS_OR_DIE (gaspi_group_add (living, other));
  SUCCESS_OR_DIE (gaspi_group_commit (living, GASPI_BLOCK));
  int one = 1, all = 0;
  SUCCESS_OR_DIE (gaspi_allreduce (&one, &all, 1, GASPI_OP_SUM, GASPI_TYPE_INT, living, GASPI_BLOCK));
  printf ("rank %d: %d of %d live\n", rank, all, size);
  fflush (stdout);
  return 0;
}
