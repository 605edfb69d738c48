/*
 * Two simultaneous circuits of barrier gates, in a relaxation on a ring of cells. The first circuit connects neighbours only: a step
 * begins when both neighbours have put their edges in place; other processes do not matter. The second circuit is a tree of all
 * processes. It adds up all cells every few steps, in parallel with the steps.
 *
 * Each process also computes the whole ring. It compares each sum, and its cells at the end.
 *
 * gate_relaxation [STEPS]
 */
#define _POSIX_C_SOURCE 200809L

#include "job.h"

enum
{
  CELLS = 16, /* cells of a process */
  EVERY = 4,  /* steps between two sums */
  GATES_STAG = 1,
  EDGE_STAG = 2,
  GATES_EDATA = 1,
  EDGE_EDATA = 2,
  /* Gates to the neighbours: the start and end, the sender to the left, the receiver from the right. */
  BESIDE = 0,
  BESIDE_GATES = 3,
  /* Gates of the tree: start and end; for each child, one to collect its sum and one to send the result. */
  TREE = BESIDE_GATES,
  CHILDREN = 2,
  TREE_GATES = 1 + 2 * CHILDREN,
  ALL_GATES = BESIDE_GATES + TREE_GATES
};

struct relaxation
{
  struct job *job;
  long left, right;
  utofu_vbg_id_t *gates; /* gate ids, a row for each rank */
  uint64_t *edges;       /* edges from left and right, for even and for odd steps */
  uint64_t cells[CELLS];
  uint64_t *ring; /* all cells, computed here */
};

static utofu_vbg_id_t
gate_of (const struct relaxation *it, long rank, int gate)
{
  return it->gates[rank * ALL_GATES + gate];
}

static int
children_of (const struct relaxation *it, long rank)
{
  const long rest = it->job->size - (CHILDREN * rank + 1);
  return rest <= 0 ? 0 : rest < CHILDREN ? (int) rest : CHILDREN;
}

/* The gate with the sum of a process and its descendants. */
static int
collector (const struct relaxation *it, long rank)
{
  return TREE + children_of (it, rank);
}

/* The gate that receives the result from the parent and sends it to the first child, if any. */
static int
teller (const struct relaxation *it, long rank)
{
  const int children = children_of (it, rank);
  return children == 0 ? TREE : TREE + children + 1;
}

static void
connect_locally (struct utofu_vbg_setting *settings, int from, int to)
{
  settings[from].dst_lcl_vbg_id = settings[to].vbg_id;
  settings[to].src_lcl_vbg_id = settings[from].vbg_id;
}

static void
build (const struct relaxation *it)
{
  const long rank = it->job->rank;
  struct utofu_vbg_setting settings[ALL_GATES];
  for (int gate = 0; gate < ALL_GATES; gate++)
    {
      settings[gate].vbg_id = gate_of (it, rank, gate);
      settings[gate].src_lcl_vbg_id = UTOFU_VBG_ID_NULL;
      settings[gate].src_rmt_vbg_id = UTOFU_VBG_ID_NULL;
      settings[gate].dst_lcl_vbg_id = UTOFU_VBG_ID_NULL;
      settings[gate].dst_rmt_vbg_id = UTOFU_VBG_ID_NULL;
      memset (settings[gate].dst_path_coords, UTOFU_PATH_COORD_NULL, sizeof settings[gate].dst_path_coords);
    }

  /* A gate sends one packet and receives one. So the start signals the right neighbour, and another gate the left one. */
  settings[BESIDE].dst_rmt_vbg_id = gate_of (it, it->right, BESIDE);
  settings[BESIDE].src_rmt_vbg_id = gate_of (it, it->left, BESIDE);
  connect_locally (settings, BESIDE, BESIDE + 1);
  settings[BESIDE + 1].dst_rmt_vbg_id = gate_of (it, it->left, BESIDE + 2);
  settings[BESIDE + 2].src_rmt_vbg_id = gate_of (it, it->right, BESIDE + 1);
  connect_locally (settings, BESIDE + 2, BESIDE);
  CHECK (utofu_set_vbg (&settings[BESIDE], BESIDE_GATES));

  const int children = children_of (it, rank);
  for (int child = 0; child < children; child++)
    {
      const long below = CHILDREN * rank + 1 + child;
      connect_locally (settings, TREE + child, TREE + child + 1);
      settings[TREE + child + 1].src_rmt_vbg_id = gate_of (it, below, collector (it, below));
      settings[TREE + children + 1 + child].dst_rmt_vbg_id = gate_of (it, below, teller (it, below));
      if (child > 0)
        connect_locally (settings, TREE + children + child, TREE + children + 1 + child);
    }
  if (children > 0)
    connect_locally (settings, TREE + 2 * children, TREE);
  if (rank == 0)
    connect_locally (settings, collector (it, rank), teller (it, rank));
  else
    {
      const long parent = (rank - 1) / CHILDREN;
      const int child = (int) ((rank - 1) % CHILDREN);
      settings[collector (it, rank)].dst_rmt_vbg_id = gate_of (it, parent, TREE + child + 1);
      settings[teller (it, rank)].src_rmt_vbg_id
          = gate_of (it, parent, TREE + children_of (it, parent) + 1 + child);
    }
  CHECK (utofu_set_vbg (&settings[TREE], (size_t) (1 + 2 * children)));
}

/* Writes this rank's row of the table to a rank with connected gates. */
static void
tell (const struct relaxation *it, utofu_stadd_t address, long other)
{
  struct job *job = it->job;
  const utofu_stadd_t row = (utofu_stadd_t) job->rank * ALL_GATES * sizeof *it->gates;
  POST (job, utofu_put (job->queue, queue_of (job, other), address + row, memory_of (job, other, GATES_STAG) + row,
                        ALL_GATES * sizeof *it->gates, GATES_EDATA, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL));
}

static void
exchange (const struct relaxation *it, utofu_stadd_t address)
{
  struct job *job = it->job;
  uint64_t told = 2;
  tell (it, address, it->left);
  tell (it, address, it->right);
  if (job->rank > 0)
    {
      tell (it, address, (job->rank - 1) / CHILDREN);
      told++;
    }
  for (int child = 0; child < children_of (it, job->rank); child++, told++)
    tell (it, address, CHILDREN * job->rank + 1 + child);
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

/* Puts both edges into the neighbours' memory and signals them. There are two slots: while a neighbour reads the edges of a step, the
   next edges may arrive, but not the ones after them. */
static void
share_edges (const struct relaxation *it, long step)
{
  struct job *job = it->job;
  const utofu_stadd_t slot = (utofu_stadd_t) (step % 2) * 2 * sizeof (uint64_t);
  const uint64_t done = job->notices.done[EDGE_EDATA];
  POST (job, utofu_put_piggyback8 (job->queue, queue_of (job, it->left), it->cells[0],
                                   memory_of (job, it->left, EDGE_STAG) + slot + sizeof (uint64_t), sizeof (uint64_t),
                                   EDGE_EDATA, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL));
  POST (job, utofu_put_piggyback8 (job->queue, queue_of (job, it->right), it->cells[CELLS - 1],
                                   memory_of (job, it->right, EDGE_STAG) + slot, sizeof (uint64_t), EDGE_EDATA,
                                   UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL));
  WAIT_UNTIL (job, job->notices.done[EDGE_EDATA] == done + 2, "the neighbours' memory");
  CHECK (utofu_barrier (gate_of (it, job->rank, BESIDE), 0));
}

static void
relax (uint64_t *cells, long number, uint64_t left, uint64_t right)
{
  for (long i = 0; i < number; i++)
    {
      const uint64_t cell = cells[i];
      cells[i] = (left + 2 * cell + (i + 1 < number ? cells[i + 1] : right)) / 4;
      left = cell;
    }
}

static uint64_t
sum_of (const uint64_t *cells, long number)
{
  uint64_t sum = 0;
  for (long i = 0; i < number; i++)
    sum += cells[i];
  return sum;
}

static void
expect (const struct relaxation *it, const char *what, long step, uint64_t found, uint64_t expected)
{
  if (found != expected)
    die ("gate_relaxation: %s after step %ld is %llu at rank %ld, not %llu", what, step, (unsigned long long) found,
         it->job->rank, (unsigned long long) expected);
}

static void
steps (struct relaxation *it, long count)
{
  const struct job *job = it->job;
  const utofu_vbg_id_t beside = gate_of (it, job->rank, BESIDE), tree = gate_of (it, job->rank, TREE);
  const long all = job->size * CELLS;
  uint64_t expected = 0, sum;
  for (long step = 0; step < count; step++)
    {
      if (step % EVERY == 0)
        {
          /* Takes the previous sum, which had EVERY steps to complete. */
          if (step > 0)
            {
              COMPLETE (utofu_poll_reduce_uint64 (tree, 0, &sum));
              expect (it, "the sum", step - EVERY, sum, expected);
            }
          expected = sum_of (it->ring, all);
          sum = sum_of (it->cells, CELLS);
          CHECK (utofu_reduce_uint64 (tree, UTOFU_REDUCE_OP_SUM, &sum, 1, 0));
        }
      share_edges (it, step);
      relax (it->ring, all, it->ring[all - 1], it->ring[0]);
      COMPLETE (utofu_poll_barrier (beside, 0));
      const uint64_t *edges = it->edges + step % 2 * 2;
      relax (it->cells, CELLS, load_word (&edges[0]), load_word (&edges[1]));
    }
  COMPLETE (utofu_poll_reduce_uint64 (tree, 0, &sum));
  expect (it, "the last sum", count, sum, expected);
  for (long i = 0; i < CELLS; i++)
    expect (it, "a cell", count, it->cells[i], it->ring[job->rank * CELLS + i]);
}

static void
run (struct job *job, long count)
{
  utofu_tni_id_t *tnis = NULL;
  size_t tni_count = 0;
  CHECK (utofu_get_barrier_tnis (&tnis, &tni_count));
  if (tni_count == 0)
    die ("gate_relaxation: no interface for barrier communication");
  struct relaxation it = { .job = job, .left = (job->rank + job->size - 1) % job->size, .right = (job->rank + 1) % job->size };
  utofu_stadd_t gates, edges;
  it.gates = allocate_registered (job, (size_t) job->size * ALL_GATES * sizeof *it.gates, GATES_STAG, &gates);
  it.edges = allocate_registered (job, 4 * sizeof *it.edges, EDGE_STAG, &edges);
  it.ring = malloc ((size_t) job->size * CELLS * sizeof *it.ring);
  if (it.ring == NULL)
    die ("gate_relaxation: no memory");
  for (long i = 0; i < job->size * CELLS; i++)
    it.ring[i] = (uint64_t) (i * i % 1009) << 40;
  memcpy (it.cells, &it.ring[job->rank * CELLS], sizeof it.cells);

  /* The circuits may be on different interfaces. */
  utofu_vbg_id_t *mine = &it.gates[job->rank * ALL_GATES];
  CHECK (utofu_alloc_vbg (tnis[0], BESIDE_GATES, 0, &mine[BESIDE]));
  CHECK (utofu_alloc_vbg (tnis[tni_count - 1], TREE_GATES, 0, &mine[TREE]));
  free (tnis);
  meet (job);
  exchange (&it, gates);
  build (&it);
  /* The circuits must be complete before the first start. */
  meet (job);
  const double start = now ();
  steps (&it, count);
  const double seconds = now () - start;
  meet (job);
  if (job->rank == 0)
    printf ("gate_relaxation: %ld steps of %ld processes, %.2f us each: all cells and sums as expected\n", count, job->size,
            1e6 * seconds / (double) count);
  CHECK (utofu_free_vbg (&mine[BESIDE], BESIDE_GATES));
  CHECK (utofu_free_vbg (&mine[TREE], TREE_GATES));
  free_registered (job, it.edges, edges);
  free_registered (job, it.gates, gates);
  free (it.ring);
}

int
main (int argc, char **argv)
{
  long count = 200;
  struct job job;
  job_begin (&job);
  if (argc > 2 || (argc > 1 && !parse_number (argv[1], 1, 1000000, &count)))
    refuse (&job, "usage: %s [STEPS], from 1 to 1000000", argv[0]);
  if (job.size < 2)
    refuse (&job, "gate_relaxation: needs two processes");
  run (&job, count);
  job_end (&job);
  return EXIT_SUCCESS;
}
