/* MPI and GASPI in one program. MPI starts first; ranks and sizes agree. Each process puts a number to the next one. */
#include "success_or_die.h"

#include <mpi.h>

enum
{
  SEGMENT = 0,
  QUEUE = 0,
  CAME = 0
};

int
main (int argc, char *argv[])
{
  int mpi_rank, mpi_size;
  gaspi_rank_t rank, processes;

  MPI_Init (&argc, &argv);
  MPI_Comm_rank (MPI_COMM_WORLD, &mpi_rank);
  MPI_Comm_size (MPI_COMM_WORLD, &mpi_size);

  SUCCESS_OR_DIE (gaspi_proc_init (GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_proc_rank (&rank));
  SUCCESS_OR_DIE (gaspi_proc_num (&processes));
  int right = rank == mpi_rank && processes == mpi_size;
  if (!right)
    fprintf (stderr, "rank %u of %u is MPI's %d of %d\n", rank, processes, mpi_rank, mpi_size);

  /* Each API sends a number around the ring, and the other API checks it. */
  gaspi_pointer_t memory;
  SUCCESS_OR_DIE (gaspi_segment_create (SEGMENT, 2 * sizeof (int), GASPI_GROUP_ALL, GASPI_BLOCK, GASPI_MEM_INITIALIZED));
  SUCCESS_OR_DIE (gaspi_segment_ptr (SEGMENT, &memory));
  int *numbers = memory;
  const int next = (mpi_rank + 1) % mpi_size, before = (mpi_rank + mpi_size - 1) % mpi_size;
  gaspi_notification_id_t first;
  gaspi_notification_t value;
  numbers[0] = 100 + mpi_rank;
  SUCCESS_OR_DIE (gaspi_write_notify (SEGMENT, 0, next, SEGMENT, sizeof (int), sizeof (int), CAME, 1, QUEUE, GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_notify_waitsome (SEGMENT, CAME, 1, &first, GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_notify_reset (SEGMENT, first, &value));
  SUCCESS_OR_DIE (gaspi_wait (QUEUE, GASPI_BLOCK));
  int by_mpi = 0;
  MPI_Sendrecv (numbers, 1, MPI_INT, next, 0, &by_mpi, 1, MPI_INT, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (numbers[1] != 100 + before || by_mpi != numbers[1])
    {
      fprintf (stderr, "rank %u: %d came by GASPI and %d by MPI, not %d\n", rank, numbers[1], by_mpi, 100 + before);
      right = 0;
    }

  int all = 0;
  MPI_Allreduce (&right, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (rank == 0)
    printf ("%u processes: MPI and GASPI %s\n", processes, all ? "agree" : "do not agree");

  SUCCESS_OR_DIE (gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK));
  leave ();
  MPI_Finalize ();
  return all ? EXIT_SUCCESS : EXIT_FAILURE;
}
