/*
 * Barriers and reductions on a circuit of barrier gates: a butterfly of the first 2^k processes, as in figure 2.17 of the guide. Each
 * other process has a partner in the butterfly. The partner adds its packet by one more gate before the exchange, and sends the
 * result back afterwards. Unused inputs and outputs of gates are masked.
 *
 * The program checks barriers by words that each process writes to its neighbour before the barrier, and reductions by their
 * values.
 *
 * barrier_butterfly [BARRIERS [REDUCTIONS]]
 */
#define _POSIX_C_SOURCE 200809L

#include "job.h"

enum
{
  GATES_STAG = 1,
  STEP_STAG = 2,
  GATES_EDATA = 1,
  STEP_EDATA = 2,
  MOST_GATES = 32
};

/* The gates of a rank and their purposes. Gate 0 is the start and the end. */
struct plan
{
  long rounds;     /* log2 of the size of the butterfly */
  long partner;    /* -1: none */
  int in_butterfly;
  int gates;
};

static struct plan
plan_of (long rank, long size)
{
  struct plan plan = { 0, -1, 0, 1 };
  while (2L << plan.rounds <= size)
    plan.rounds++;
  const long inner = 1L << plan.rounds;
  plan.in_butterfly = rank < inner;
  if (!plan.in_butterfly)
    plan.partner = rank - inner;
  else if (rank + inner < size)
    plan.partner = rank + inner;
  if (plan.in_butterfly)
    /* A gate cannot signal itself, so a single round needs a second gate. */
    plan.gates = (int) (plan.partner >= 0 ? plan.rounds + 2 : plan.rounds > 1 ? plan.rounds : 2);
  return plan;
}

/* The gate that receives the packet of a round. Without a partner, the last round ends at gate 0. */
static int
taker (const struct plan *plan, long round)
{
  if (plan->partner >= 0)
    return (int) round + 2;
  return round == plan->rounds - 1 && plan->rounds > 1 ? 0 : (int) round + 1;
}

/* The gate that sends the packet of a round: the receiver of the previous round, else the gate for the partner, else the start. */
static int
sender (const struct plan *plan, long round)
{
  if (round > 0)
    return taker (plan, round - 1);
  return plan->partner >= 0 ? 1 : 0;
}

/* Gate ids of all ranks, in rows of MOST_GATES. */
static utofu_vbg_id_t
gate_of (const utofu_vbg_id_t *gates, long rank, int gate)
{
  return gates[rank * MOST_GATES + gate];
}

static void
connect_locally (struct utofu_vbg_setting *settings, int from, int to)
{
  settings[from].dst_lcl_vbg_id = settings[to].vbg_id;
  settings[to].src_lcl_vbg_id = settings[from].vbg_id;
}

static void
build (const struct job *job, const utofu_vbg_id_t *gates)
{
  const struct plan plan = plan_of (job->rank, job->size);
  struct utofu_vbg_setting settings[MOST_GATES];
  for (int gate = 0; gate < plan.gates; gate++)
    {
      settings[gate].vbg_id = gate_of (gates, job->rank, gate);
      settings[gate].src_lcl_vbg_id = UTOFU_VBG_ID_NULL;
      settings[gate].src_rmt_vbg_id = UTOFU_VBG_ID_NULL;
      settings[gate].dst_lcl_vbg_id = UTOFU_VBG_ID_NULL;
      settings[gate].dst_rmt_vbg_id = UTOFU_VBG_ID_NULL;
      memset (settings[gate].dst_path_coords, UTOFU_PATH_COORD_NULL, sizeof settings[gate].dst_path_coords);
    }

  if (!plan.in_butterfly)
    {
      const struct plan theirs = plan_of (plan.partner, job->size);
      settings[0].dst_rmt_vbg_id = gate_of (gates, plan.partner, 1);
      settings[0].src_rmt_vbg_id = gate_of (gates, plan.partner, taker (&theirs, theirs.rounds - 1));
    }
  else
    {
      for (long round = 0; round < plan.rounds; round++)
        {
          const long other = job->rank ^ 1L << round;
          const struct plan theirs = plan_of (other, job->size);
          const int from = sender (&plan, round), to = taker (&plan, round);
          settings[from].dst_rmt_vbg_id = gate_of (gates, other, taker (&theirs, round));
          settings[to].src_rmt_vbg_id = gate_of (gates, other, sender (&theirs, round));
          connect_locally (settings, from, to);
        }
      const int last = taker (&plan, plan.rounds - 1);
      if (last != 0)
        connect_locally (settings, last, 0);
      if (plan.partner >= 0)
        {
          connect_locally (settings, 0, 1);
          settings[1].src_rmt_vbg_id = gate_of (gates, plan.partner, 0);
          settings[last].dst_rmt_vbg_id = gate_of (gates, plan.partner, 0);
        }
    }
  CHECK (utofu_set_vbg (settings, (size_t) plan.gates));
}

/* Writes this rank's row of the table to another rank. */
static void
tell (struct job *job, const utofu_vbg_id_t *gates, utofu_stadd_t address, long other)
{
  const utofu_stadd_t row = (utofu_stadd_t) job->rank * MOST_GATES * sizeof *gates;
  POST (job, utofu_put (job->queue, queue_of (job, other), address + row, memory_of (job, other, GATES_STAG) + row,
                        MOST_GATES * sizeof *gates, GATES_EDATA, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL));
}

/* Sends the gate ids to connected ranks only, because a job may have many ranks. */
static void
exchange (struct job *job, const utofu_vbg_id_t *gates, utofu_stadd_t address)
{
  const struct plan plan = plan_of (job->rank, job->size);
  uint64_t told = 0;
  for (long round = 0; plan.in_butterfly && round < plan.rounds; round++, told++)
    tell (job, gates, address, job->rank ^ 1L << round);
  if (plan.partner >= 0)
    {
      tell (job, gates, address, plan.partner);
      told++;
    }
  WAIT_UNTIL (job, job->notices.done[GATES_EDATA] == told, "those who are told of the gates");
  meet (job);
}

/* Polls until the operation is complete. */
#define COMPLETE(poll) \
  do \
    { \
      struct patience patience = { 0, 0.0 }; \
      int code; \
      while ((code = (poll)) == UTOFU_ERR_NOT_COMPLETED) \
        rest (&patience, #poll); \
      check (__FILE__, __LINE__, #poll, code); \
    } \
  while (0)

/* Returns the seconds of one barrier. Some barriers are checked: the previous rank's word from before the barrier must have arrived. */
static double
barriers (struct job *job, utofu_vbg_id_t gate, long count)
{
  utofu_stadd_t address;
  uint64_t *word = allocate_registered (job, sizeof *word, STEP_STAG, &address);
  meet (job);
  const long next = (job->rank + 1) % job->size;
  const long checked = count < 100 ? count : 100;
  for (long step = 1; step <= checked; step++)
    {
      const uint64_t done = job->notices.done[STEP_EDATA];
      POST (job, utofu_put_piggyback8 (job->queue, queue_of (job, next), (uint64_t) step, memory_of (job, next, STEP_STAG),
                                       sizeof (uint64_t), STEP_EDATA, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL));
      WAIT_UNTIL (job, job->notices.done[STEP_EDATA] != done, "the neighbour's memory");
      CHECK (utofu_barrier (gate, 0));
      COMPLETE (utofu_poll_barrier (gate, 0));
      if (load_word (word) < (uint64_t) step)
        die ("barrier_butterfly: rank %ld has left barrier %ld before its neighbour has come", job->rank, step);
    }

  const double start = now ();
  for (long step = 0; step < count; step++)
    {
      CHECK (utofu_barrier (gate, 0));
      COMPLETE (utofu_poll_barrier (gate, 0));
    }
  const double seconds = (now () - start) / (double) count;
  meet (job);
  free_registered (job, word, address);
  return seconds;
}

static void
expect (const struct job *job, const char *what, long step, uint64_t found, uint64_t expected)
{
  if (found != expected)
    die ("barrier_butterfly: %s in step %ld is %llu at rank %ld, not %llu", what, step, (unsigned long long) found, job->rank,
         (unsigned long long) expected);
}

static void
reduce (utofu_vbg_id_t gate, enum utofu_reduce_op op, uint64_t *data, size_t count)
{
  CHECK (utofu_reduce_uint64 (gate, op, data, count, 0));
  COMPLETE (utofu_poll_reduce_uint64 (gate, 0, data));
}

/* Element i: (rank + step) * (i + 1). */
static void
sums (const struct job *job, utofu_vbg_id_t gate, size_t count, long step)
{
  uint64_t data[64];
  for (size_t i = 0; i < count; i++)
    data[i] = (uint64_t) (job->rank + step) * (i + 1);
  reduce (gate, UTOFU_REDUCE_OP_SUM, data, count);
  const uint64_t all = (uint64_t) (job->size * (job->size - 1) / 2 + job->size * step);
  for (size_t i = 0; i < count; i++)
    expect (job, "a sum", step, data[i], all * (i + 1));
}

/* Pairs of a value and a rank. In even pairs one rank has the largest value; in odd pairs all values are equal. */
static void
maxima (const struct job *job, utofu_vbg_id_t gate, size_t count, long step)
{
  uint64_t data[64];
  const long winner = step % job->size;
  const size_t pairs = count / 2;
  for (size_t i = 0; i < pairs; i++)
    {
      data[2 * i] = i % 2 == 1 ? 7 : job->rank == winner ? UINT64_MAX - (uint64_t) step : (uint64_t) job->rank;
      data[2 * i + 1] = (uint64_t) job->rank;
    }
  reduce (gate, UTOFU_REDUCE_OP_MAXLOC, data, 2 * pairs);
  for (size_t i = 0; i < pairs; i++)
    {
      expect (job, "a maximum", step, data[2 * i], i % 2 == 1 ? 7 : UINT64_MAX - (uint64_t) step);
      expect (job, "the rank of a maximum", step, data[2 * i + 1], i % 2 == 1 ? 0 : (uint64_t) winner);
    }
}

static uint64_t
bits_of (double value)
{
  uint64_t bits;
  memcpy (&bits, &value, sizeof bits);
  return bits;
}

/* Element 0 has an exact sum. The sum of element 1 is rounded: it must be near the true value, with the same bits on all ranks. */
static void
floating_sums (const struct job *job, utofu_vbg_id_t gate, size_t count, long step)
{
  double data[2] = { (double) job->rank * 0.5 + (double) step, 0.1 * (double) (job->rank + 1) };
  const size_t elements = count < 2 ? count : 2;
  CHECK (utofu_reduce_double (gate, UTOFU_REDUCE_OP_BFPSUM, data, elements, 0));
  COMPLETE (utofu_poll_reduce_double (gate, 0, data));
  const double size = (double) job->size;
  const double exact = 0.5 * (size * (size - 1.0) / 2.0) + size * (double) step, near = 0.1 * (size * (size + 1.0) / 2.0);
  if (data[0] < exact || data[0] > exact)
    die ("barrier_butterfly: a sum in step %ld is %.17g at rank %ld, not %.17g", step, data[0], job->rank, exact);
  if (elements < 2)
    return;
  if (!(data[1] > near * (1.0 - 1e-12) && data[1] < near * (1.0 + 1e-12)))
    die ("barrier_butterfly: a sum in step %ld is %.17g at rank %ld, far from %.17g", step, data[1], job->rank, near);

  /* The maxima of the bits and of their complement come from one value only if all ranks have equal bits. */
  const uint64_t mine = bits_of (data[1]);
  uint64_t bits = mine, complement = ~mine;
  reduce (gate, UTOFU_REDUCE_OP_MAX, &bits, 1);
  reduce (gate, UTOFU_REDUCE_OP_MAX, &complement, 1);
  expect (job, "the bits of a sum", step, bits, mine);
  expect (job, "the complement of the bits of a sum", step, complement, ~mine);
}

static void
use_circuit (struct job *job, long barrier_count, long reduction_count)
{
  utofu_tni_id_t *tnis = NULL;
  size_t tni_count = 0;
  CHECK (utofu_get_barrier_tnis (&tnis, &tni_count));
  if (tni_count == 0)
    die ("barrier_butterfly: no interface for barrier communication");
  const utofu_tni_id_t tni = tnis[0];
  free (tnis);
  struct utofu_barrier_caps *caps = NULL;
  CHECK (utofu_query_barrier_caps (tni, &caps));

  const struct plan plan = plan_of (job->rank, job->size);
  utofu_stadd_t address;
  utofu_vbg_id_t *gates = allocate_registered (job, (size_t) job->size * MOST_GATES * sizeof *gates, GATES_STAG, &address);
  utofu_vbg_id_t *mine = &gates[job->rank * MOST_GATES];
  CHECK (utofu_alloc_vbg (tni, (size_t) plan.gates, 0, mine));
  meet (job);
  exchange (job, gates, address);
  build (job, gates);
  /* The circuit must be complete before the first start. */
  meet (job);

  const double seconds = barriers (job, mine[0], barrier_count);
  const size_t integers = caps->max_uint64_reduction < 64 ? caps->max_uint64_reduction : 64;
  const double start = now ();
  for (long step = 1; step <= reduction_count; step++)
    {
      sums (job, mine[0], integers, step);
      maxima (job, mine[0], integers, step);
      floating_sums (job, mine[0], caps->max_double_reduction, step);
    }
  const double all = now () - start;
  meet (job);
  if (job->rank == 0)
    {
      printf ("barrier_butterfly: %ld processes, %d gates at rank 0: %.2f us for a barrier\n", job->size, plan.gates, 1e6 * seconds);
      printf ("barrier_butterfly: SUM, MAXLOC, BFPSUM and MAX as expected in %ld steps of %.2f us\n", reduction_count,
              1e6 * all / (double) reduction_count);
    }
  CHECK (utofu_free_vbg (mine, (size_t) plan.gates));
  free_registered (job, gates, address);
}

int
main (int argc, char **argv)
{
  long barrier_count = 1000, reduction_count = 100;
  struct job job;
  job_begin (&job);
  if (argc > 3 || (argc > 1 && !parse_number (argv[1], 1, 10000000, &barrier_count))
      || (argc > 2 && !parse_number (argv[2], 1, 10000000, &reduction_count)))
    refuse (&job, "usage: %s [BARRIERS [REDUCTIONS]], each from 1 to 10000000", argv[0]);
  if (job.size > 1)
    use_circuit (&job, barrier_count, reduction_count);
  else
    printf ("barrier_butterfly: one process has nobody to wait for\n");
  job_end (&job);
  return EXIT_SUCCESS;
}
