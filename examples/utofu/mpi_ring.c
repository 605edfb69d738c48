/*
 * A message around a ring of MPI processes. The processes exchange queue ids and memory addresses by MPI, because they do not know
 * them in advance. Puts carry the message from neighbour to neighbour. Each process adds its rank to all words, and compares.
 *
 * Compile with mpicc, run with mpiexec.
 *
 * mpi_ring [WORDS [LAPS]]
 */
#define _POSIX_C_SOURCE 200809L

#include "check.h"

#include <mpi.h>

/* The message of a process to all others. */
struct station
{
  uint64_t queue;
  uint64_t address;
};

struct ring
{
  int rank, size;
  utofu_vcq_hdl_t queue;
  uint64_t *words;
  size_t bytes;
  utofu_stadd_t address;
  struct station next;
};

/* Waits for a notice of one type, and discards notices of other types. */
static void
await_notice (const struct ring *ring, int type)
{
  struct patience patience = { 0, 0.0 };
  for (;;)
    {
      void *data;
      int code = utofu_poll_tcq (ring->queue, 0, &data);
      if (code != UTOFU_ERR_NOT_FOUND)
        check (__FILE__, __LINE__, "utofu_poll_tcq", code);
      struct utofu_mrq_notice notice;
      code = utofu_poll_mrq (ring->queue, 0, &notice);
      if (code == UTOFU_ERR_NOT_FOUND)
        rest (&patience, "a notice of the ring");
      else
        {
          check (__FILE__, __LINE__, "utofu_poll_mrq", code);
          if (notice.notice_type == type)
            return;
        }
    }
}

static void
pass_on (const struct ring *ring)
{
  struct patience patience = { 0, 0.0 };
  int code;
  while ((code = utofu_put (ring->queue, ring->next.queue, ring->address, ring->next.address, ring->bytes, 0,
                            UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, NULL))
         == UTOFU_ERR_BUSY)
    {
      void *data;
      const int polled = utofu_poll_tcq (ring->queue, 0, &data);
      if (polled != UTOFU_ERR_NOT_FOUND)
        check (__FILE__, __LINE__, "utofu_poll_tcq", polled);
      rest (&patience, "room in the queue");
    }
  check (__FILE__, __LINE__, "utofu_put", code);
}

/* Word i starts as i. `added` is the sum of all additions to each word. */
static void
compare (const struct ring *ring, uint64_t added)
{
  for (size_t i = 0; i < ring->bytes / sizeof *ring->words; i++)
    if (ring->words[i] != i + added)
      die ("mpi_ring: word %zu is %llu at rank %d, not %llu", i, (unsigned long long) ring->words[i], ring->rank,
           (unsigned long long) (i + added));
}

static void
add (const struct ring *ring, uint64_t number)
{
  for (size_t i = 0; i < ring->bytes / sizeof *ring->words; i++)
    ring->words[i] += number;
}

/* In each lap rank 0 sends first and receives last. Each process adds its rank plus one before it sends. */
static void
go_round (const struct ring *ring, long laps)
{
  const uint64_t size = (uint64_t) ring->size, rank = (uint64_t) ring->rank;
  const uint64_t each_lap = size * (size + 1) / 2;
  for (long lap = 0; lap < laps; lap++)
    {
      if (ring->rank != 0)
        {
          await_notice (ring, UTOFU_MRQ_TYPE_RMT_PUT);
          compare (ring, (uint64_t) lap * each_lap + rank * (rank + 1) / 2);
        }
      add (ring, rank + 1);
      /* The notice for this put comes before the message returns, so the memory is free then. */
      pass_on (ring);
      if (ring->rank == 0)
        {
          await_notice (ring, UTOFU_MRQ_TYPE_RMT_PUT);
          compare (ring, (uint64_t) (lap + 1) * each_lap);
        }
    }
}

/* Leaves with a line from rank 0, after an error that all processes detect. */
static int
refuse (int rank, const char *why)
{
  if (rank == 0)
    fprintf (stderr, "%s\n", why);
  MPI_Finalize ();
  return 2;
}

static utofu_tni_id_t
some_interface (int rank)
{
  utofu_tni_id_t *tnis = NULL;
  size_t count = 0;
  CHECK (utofu_get_onesided_tnis (&tnis, &count));
  if (count == 0)
    die ("mpi_ring: no interface for one-sided communication");
  const utofu_tni_id_t tni = tnis[(size_t) rank % count];
  free (tnis);
  return tni;
}

int
main (int argc, char **argv)
{
  long words = 1000, laps = 100;
  struct ring ring = { .rank = 0 };
  MPI_Init (&argc, &argv);
  MPI_Comm_rank (MPI_COMM_WORLD, &ring.rank);
  MPI_Comm_size (MPI_COMM_WORLD, &ring.size);
  if (argc > 3 || (argc > 1 && !parse_number (argv[1], 1, 2000000, &words))
      || (argc > 2 && !parse_number (argv[2], 1, 10000000, &laps)))
    return refuse (ring.rank, "usage: mpi_ring [WORDS [LAPS]], WORDS from 1 to 2000000");
  if (ring.size < 2)
    return refuse (ring.rank, "mpi_ring: needs two processes");
  ring.bytes = (size_t) words * sizeof *ring.words;
  ring.words = malloc (ring.bytes);
  struct station *stations = malloc ((size_t) ring.size * sizeof *stations);
  if (ring.words == NULL || stations == NULL)
    die ("mpi_ring: no memory");
  for (long i = 0; i < words; i++)
    ring.words[i] = (uint64_t) i;

  CHECK (utofu_create_vcq (some_interface (ring.rank), 0, &ring.queue));
  CHECK (utofu_reg_mem (ring.queue, ring.words, ring.bytes, 0, &ring.address));
  struct station mine = { 0, ring.address };
  CHECK (utofu_query_vcq_id (ring.queue, &mine.queue));
  MPI_Allgather (&mine, 2, MPI_UINT64_T, stations, 2, MPI_UINT64_T, MPI_COMM_WORLD);
  ring.next = stations[(ring.rank + 1) % ring.size];
  /* Let the library choose the path. */
  CHECK (utofu_set_vcq_id_path (&ring.next.queue, NULL));

  const double start = now ();
  go_round (&ring, laps);
  const double seconds = now () - start;
  MPI_Barrier (MPI_COMM_WORLD);
  if (ring.rank == 0)
    printf ("mpi_ring: %ld words, %ld laps of %d processes: %.2f us from one to the next, all words compared\n", words, laps,
            ring.size, 1e6 * seconds / (double) laps / ring.size);

  CHECK (utofu_dereg_mem (ring.queue, ring.address, 0));
  CHECK (utofu_free_vcq (ring.queue));
  free (ring.words);
  free (stations);
  MPI_Finalize ();
  return EXIT_SUCCESS;
}
