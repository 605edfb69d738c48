/*
 * dying barrier|notice|kill|nobody|late: the last rank kills itself, and the others wait for it in vain: by a barrier, or for a notification from
 * anyone. Each says what its wait has ended with. With "kill" all wait for a notification, and rank 0 ends the last one by gaspi_proc_kill before.
 * With "nobody" all live, and wait for a notification without end; with "late" the last one comes to the barrier after 12 seconds; who has
 * waited for it says how much of a processor that has taken. For tests.
 */
#define _GNU_SOURCE
#include "../../examples/gaspi/success_or_die.h"

#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Of the processor, all threads counted. */
static long
milliseconds (void)
{
  struct timespec used;
  clock_gettime (CLOCK_PROCESS_CPUTIME_ID, &used);
  return used.tv_sec * 1000 + used.tv_nsec / 1000000;
}

int
main (int argc, char *argv[])
{
  gaspi_rank_t rank, processes;
  gaspi_notification_id_t first;

  if (argc != 2)
    return 2;
  const int late = strcmp (argv[1], "late") == 0;
  SUCCESS_OR_DIE (gaspi_proc_init (GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_proc_rank (&rank));
  SUCCESS_OR_DIE (gaspi_proc_num (&processes));
  SUCCESS_OR_DIE (gaspi_segment_create (0, 64, GASPI_GROUP_ALL, GASPI_BLOCK, GASPI_MEM_INITIALIZED));
  SUCCESS_OR_DIE (gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK));
  printf ("rank %u: waiting\n", rank);
  fflush (stdout);
  if (strcmp (argv[1], "kill") == 0)
    {
      /* Who has not left the barrier yet may get the error there: the others say that they have. */
      if (rank != 0)
        SUCCESS_OR_DIE (gaspi_notify (0, 0, rank, 1, 0, GASPI_BLOCK));
      for (gaspi_rank_t other = 1; rank == 0 && other < processes; other++)
        SUCCESS_OR_DIE (gaspi_notify_waitsome (0, other, 1, &first, GASPI_BLOCK));
      if (rank == 0)
        SUCCESS_OR_DIE (gaspi_proc_kill (processes - 1, GASPI_BLOCK));
    }
  else if (rank == processes - 1 && late)
    sleep (12);
  else if (rank == processes - 1 && strcmp (argv[1], "nobody") != 0)
    raise (SIGKILL);

  const long before = milliseconds ();
  const gaspi_return_t code = late || strcmp (argv[1], "barrier") == 0 ? gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK)
                                                               : gaspi_notify_waitsome (0, 0, 1, &first, GASPI_BLOCK);
  if (late && rank < processes - 1)
    printf ("rank %u: waited for %ld ms of processor\n", rank, milliseconds () - before);
  printf ("rank %u: %s\n", rank, code == GASPI_ERROR ? "error" : "no error");
  fflush (stdout);
  SUCCESS_OR_DIE (gaspi_proc_term (GASPI_BLOCK));
  return code == (late ? GASPI_SUCCESS : GASPI_ERROR) ? EXIT_SUCCESS : EXIT_FAILURE;
}
