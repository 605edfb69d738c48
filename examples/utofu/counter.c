/*
 * Atomic operations on words of rank 0. Each process draws tickets by fetch-and-add. Then all processes increase a counter by
 * compare-and-swap, and retry after each lost race. The totals show whether an operation was lost.
 *
 * counter [TICKETS [INCREMENTS]]
 */
#define _POSIX_C_SOURCE 200809L

#include "job.h"

enum
{
  WORDS_STAG = 1,
  ATOMIC_EDATA = 1
};

/* Words of rank 0. */
enum word
{
  NEXT_TICKET,
  TICKET_SUM,
  SPUN,
  LOST_RACES,
  WORDS
};

struct shared
{
  struct job *job;
  utofu_vcq_id_t queue;
  utofu_stadd_t words;
};

static utofu_stadd_t
address_of (const struct shared *shared, enum word word)
{
  return shared->words + (utofu_stadd_t) word * sizeof (uint64_t);
}

/* Adds to a word and returns its old value. */
static uint64_t
add (const struct shared *shared, enum word word, uint64_t value)
{
  struct job *job = shared->job;
  const uint64_t done = job->notices.done[ATOMIC_EDATA];
  POST (job, utofu_armw8 (job->queue, shared->queue, UTOFU_ARMW_OP_ADD, value, address_of (shared, word), ATOMIC_EDATA,
                          UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL));
  WAIT_UNTIL (job, job->notices.done[ATOMIC_EDATA] != done, "an addition");
  return job->notices.old_value;
}

/* Replaces the word if it is old_value. Returns the previous value. */
static uint64_t
replace (const struct shared *shared, enum word word, uint64_t old_value, uint64_t new_value)
{
  struct job *job = shared->job;
  const uint64_t done = job->notices.done[ATOMIC_EDATA];
  POST (job, utofu_cswap8 (job->queue, shared->queue, old_value, new_value, address_of (shared, word), ATOMIC_EDATA,
                           UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL));
  WAIT_UNTIL (job, job->notices.done[ATOMIC_EDATA] != done, "a swap");
  return job->notices.old_value;
}

static void
draw_tickets (const struct shared *shared, long tickets)
{
  uint64_t sum = 0, before = 0;
  for (long i = 0; i < tickets; i++)
    {
      const uint64_t ticket = add (shared, NEXT_TICKET, 1);
      if (i > 0 && ticket <= before)
        die ("counter: rank %ld has drawn ticket %ld after %ld", shared->job->rank, (long) ticket, (long) before);
      before = ticket;
      sum += ticket;
    }
  add (shared, TICKET_SUM, sum);
}

static void
spin (const struct shared *shared, long increments)
{
  uint64_t guess = 0, lost = 0;
  for (long i = 0; i < increments; i++)
    {
      uint64_t found;
      while ((found = replace (shared, SPUN, guess, guess + 1)) != guess)
        {
          guess = found;
          lost++;
        }
      guess++;
    }
  add (shared, LOST_RACES, lost);
}

static void
expect (const char *what, uint64_t found, uint64_t expected)
{
  if (found != expected)
    die ("counter: %s is %llu, not %llu", what, (unsigned long long) found, (unsigned long long) expected);
}

int
main (int argc, char **argv)
{
  long tickets = 2000, increments = 500;
  struct job job;
  job_begin (&job);
  if (argc > 3 || (argc > 1 && !parse_number (argv[1], 1, 1000000000, &tickets))
      || (argc > 2 && !parse_number (argv[2], 1, 1000000000, &increments)))
    refuse (&job, "usage: %s [TICKETS [INCREMENTS]], each from 1 to 1000000000", argv[0]);
  const unsigned long needed = UTOFU_ONESIDED_CAP_ARMW_OP_ADD | UTOFU_ONESIDED_CAP_ARMW_OP_CSWAP;
  if ((job.caps->flags & UTOFU_ONESIDED_CAP_FLAG_ARMW) == 0 || (job.caps->armw_ops & needed) != needed)
    refuse (&job, "counter: the interface has no atomic addition or compare-and-swap");
  utofu_stadd_t address;
  uint64_t *words = allocate_registered (&job, WORDS * sizeof *words, WORDS_STAG, &address);
  const struct shared shared = { &job, queue_of (&job, 0), memory_of (&job, 0, WORDS_STAG) };
  meet (&job);

  const double start = now ();
  draw_tickets (&shared, tickets);
  const double middle = now ();
  meet (&job);
  spin (&shared, increments);
  meet (&job);

  if (job.rank == 0)
    {
      const uint64_t drawn = (uint64_t) (tickets * job.size);
      expect ("the next ticket", load_word (&words[NEXT_TICKET]), drawn);
      /* The sum modulo 2^64. The division by 2 comes first, so it is exact. */
      const uint64_t sum = drawn % 2 == 0 ? drawn / 2 * (drawn - 1) : (drawn - 1) / 2 * drawn;
      expect ("the sum of the tickets", load_word (&words[TICKET_SUM]), sum);
      expect ("the counter", load_word (&words[SPUN]), (uint64_t) (increments * job.size));
      printf ("counter: %ld processes drew %llu tickets (%.2f us each) and counted to %ld, losing %llu races\n", job.size,
              (unsigned long long) drawn, 1e6 * (middle - start) / (double) tickets, increments * job.size,
              (unsigned long long) load_word (&words[LOST_RACES]));
    }
  meet (&job);
  free_registered (&job, words, address);
  job_end (&job);
  return EXIT_SUCCESS;
}
