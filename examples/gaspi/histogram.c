/*
 * A histogram that is distributed over all processes. Each process draws numbers, and sends each number of another part to
 * the process of that part by gaspi_passive_send(). A receiver knows neither senders nor amounts in advance: a thread of each process receives
 * all messages, and sleeps until one arrives.
 *
 * histogram [NUMBERS]: numbers for each process.
 */
#define _POSIX_C_SOURCE 200809L

#include "success_or_die.h"

#include <pthread.h>
#include <stdint.h>

enum
{
  SEGMENT = 0,
  BINS = 1 << 16, /* in all parts together */
  BATCH = 500     /* numbers in a message */
};

/* A message. */
struct batch
{
  uint32_t count;
  uint32_t last; /* whether the sender sends no more */
  uint32_t bins[BATCH];
};

struct histogram
{
  gaspi_rank_t rank, processes;
  struct batch *outgoing; /* one for each process, in the segment */
  struct batch *incoming; /* after the outgoing batches */
  unsigned long *mine;    /* the bins with bin % processes == rank */
};

static gaspi_offset_t
offset_of (const struct histogram *all, const struct batch *batch)
{
  return (gaspi_offset_t) ((const char *) batch - (const char *) all->outgoing);
}

/* Receives messages, until each process has sent its last one. */
static void *
take (void *argument)
{
  struct histogram *all = argument;
  for (gaspi_rank_t ended = 0; ended < all->processes;)
    {
      gaspi_rank_t sender;
      SUCCESS_OR_DIE (gaspi_passive_receive (SEGMENT, offset_of (all, all->incoming), &sender, sizeof (struct batch), GASPI_BLOCK));
      for (uint32_t i = 0; i < all->incoming->count; i++)
        all->mine[all->incoming->bins[i] / all->processes]++;
      ended += all->incoming->last != 0;
    }
  return NULL;
}

static void
give (struct histogram *all, gaspi_rank_t to, uint32_t last)
{
  struct batch *batch = &all->outgoing[to];
  batch->last = last;
  SUCCESS_OR_DIE (gaspi_passive_send (SEGMENT, offset_of (all, batch), to, sizeof *batch, GASPI_BLOCK));
  batch->count = 0;
}

/* Draws numbers, the same for a rank in each run. Returns their sum. */
static unsigned long
draw (struct histogram *all, long numbers)
{
  uint64_t state = 88172645463325252u + all->rank;
  unsigned long sum = 0;
  for (long i = 0; i < numbers; i++)
    {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      const uint32_t bin = (uint32_t) (state >> 20) % BINS;
      const gaspi_rank_t owner = (gaspi_rank_t) (bin % all->processes);
      struct batch *batch = &all->outgoing[owner];
      batch->bins[batch->count++] = bin;
      sum += bin;
      if (batch->count == BATCH)
        give (all, owner, 0);
    }
  for (gaspi_rank_t to = 0; to < all->processes; to++)
    give (all, to, 1);
  return sum;
}

/* Returns 1 if no number is lost or counted twice. */
static int
count (struct histogram *all, long numbers)
{
  const gaspi_size_t size = (all->processes + 1u) * sizeof (struct batch);
  SUCCESS_OR_DIE (gaspi_segment_create (SEGMENT, size, GASPI_GROUP_ALL, GASPI_BLOCK, GASPI_MEM_INITIALIZED));
  gaspi_pointer_t memory;
  SUCCESS_OR_DIE (gaspi_segment_ptr (SEGMENT, &memory));
  all->outgoing = memory;
  all->incoming = all->outgoing + all->processes;
  all->mine = calloc (BINS / all->processes + 1u, sizeof *all->mine);
  pthread_t taker;
  if (all->mine == NULL || pthread_create (&taker, NULL, take, all) != 0)
    {
      fprintf (stderr, "histogram: no memory, or no thread\n");
      exit (EXIT_FAILURE);
    }
  unsigned long here[3] = { draw (all, numbers), 0, 0 };
  pthread_join (taker, NULL);

  /* The sum of the numbers drawn, the sum of the numbers counted, and their count. */
  for (unsigned long bin = all->rank; bin < BINS; bin += all->processes)
    {
      here[1] += bin * all->mine[bin / all->processes];
      here[2] += all->mine[bin / all->processes];
    }
  unsigned long sums[3];
  SUCCESS_OR_DIE (gaspi_allreduce (here, sums, 3, GASPI_OP_SUM, GASPI_TYPE_ULONG, GASPI_GROUP_ALL, GASPI_BLOCK));
  const int right = sums[0] == sums[1] && sums[2] == (unsigned long) numbers * all->processes;
  if (all->rank == 0)
    printf ("histogram: %lu numbers by %u processes: %s\n", sums[2], all->processes, right ? "right" : "WRONG");
  free (all->mine);
  SUCCESS_OR_DIE (gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_segment_delete (SEGMENT));
  return right;
}

int
main (int argc, char *argv[])
{
  long numbers = 20000;
  struct histogram all = { 0 };

  SUCCESS_OR_DIE (gaspi_proc_init (GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_proc_rank (&all.rank));
  SUCCESS_OR_DIE (gaspi_proc_num (&all.processes));

  int status;
  if (argc <= 2 && (argc < 2 || parse_number (argv[1], 0, 100000000, &numbers)))
    status = count (&all, numbers) ? EXIT_SUCCESS : EXIT_FAILURE;
  else
    {
      if (all.rank == 0)
        fprintf (stderr, "usage: %s [NUMBERS], from 0 to 100000000\n", argv[0]);
      status = 2;
    }

  leave ();
  return status;
}
