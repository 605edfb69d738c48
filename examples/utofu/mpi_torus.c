/*
 * Sums over a torus of MPI processes, axis by axis, by messages between neighbours only. The topology calls of Fujitsu's MPI give
 * ranks and nodes. Queues and addresses are computed from them, so the processes exchange nothing in advance. The program compares
 * the result with MPI_Allreduce.
 *
 * Compile with mpicc, run with mpiexec. Each node must have the same number of processes.
 *
 * mpi_torus [ROUNDS]
 */
#define _POSIX_C_SOURCE 200809L

#include "check.h"

#include <mpi.h>
#include <mpi-ext.h>
#include <string.h>

enum
{
  MOST_AXES = 3,
  MOST_SHARERS = 48,
  COMPONENT = 0,
  STAG = 0
};

/* A neighbour of this process, or the process itself. */
struct station
{
  utofu_vcq_id_t queue;
  utofu_stadd_t address;
};

struct torus
{
  int rank, size;
  int axes, lengths[MOST_AXES], at[MOST_AXES];
  int sharers, index; /* processes of a node, and the index of this one */
  utofu_tni_id_t tni;
  utofu_vcq_hdl_t queue;
  uint64_t *slots; /* one for each step along each axis */
  size_t slots_of_axis;
  struct station next[MOST_AXES];
  unsigned long come[MOST_AXES]; /* notices so far */
};

/** Ends the job with a message if the call fails. */
#define TOPOLOGY(call) \
  do \
    { \
      const int code = (call); \
      if (code != FJMPI_SUCCESS) \
        die ("%s:%d: %.100s: %d", __FILE__, __LINE__, #call, code); \
    } \
  while (0)

/* Queue and memory of a rank, which is the index-th process of its node. */
static struct station
find (const struct torus *torus, int rank, int index)
{
  int at[6];
  uint8_t coords[6];
  struct station station = { 0, 0 };
  TOPOLOGY (FJMPI_Topology_get_coords (MPI_COMM_WORLD, rank, FJMPI_TOFU_SYS, 6, at));
  for (int i = 0; i < 6; i++)
    coords[i] = (uint8_t) at[i];
  CHECK (utofu_construct_vcq_id (coords, torus->tni, (utofu_cq_id_t) index, COMPONENT, &station.queue));
  CHECK (utofu_query_stadd (station.queue, STAG, &station.address));
  /* Let the library choose the path. */
  CHECK (utofu_set_vcq_id_path (&station.queue, NULL));
  return station;
}

static void
look_around (struct torus *torus)
{
  int ranks[MOST_SHARERS], found = 0, x, y, z;
  TOPOLOGY (FJMPI_Topology_get_dimension (&torus->axes));
  TOPOLOGY (FJMPI_Topology_get_shape (&x, &y, &z));
  torus->lengths[0] = x;
  torus->lengths[1] = y;
  torus->lengths[2] = z;
  TOPOLOGY (FJMPI_Topology_get_coords (MPI_COMM_WORLD, torus->rank, FJMPI_LOGICAL, MOST_AXES, torus->at));
  TOPOLOGY (FJMPI_Topology_get_ranks (MPI_COMM_WORLD, FJMPI_LOGICAL, torus->at, MOST_SHARERS, &torus->sharers, ranks));
  while (torus->index < torus->sharers && ranks[torus->index] != torus->rank)
    torus->index++;
  if (torus->index == torus->sharers)
    die ("mpi_torus: rank %d is not at its own node", torus->rank);
  for (int axis = 0; axis < torus->axes; axis++)
    {
      int there[MOST_AXES];
      for (int i = 0; i < torus->axes; i++)
        there[i] = torus->at[i];
      there[axis] = (there[axis] + 1) % torus->lengths[axis];
      TOPOLOGY (FJMPI_Topology_get_ranks (MPI_COMM_WORLD, FJMPI_LOGICAL, there, MOST_SHARERS, &found, ranks));
      if (found != torus->sharers)
        die ("mpi_torus: a node has %d processes, and its neighbour %d", torus->sharers, found);
      torus->next[axis] = find (torus, ranks[torus->index], torus->index);
    }
}

/* Creates the queue and the memory, and checks that they are as peers compute them. */
static void
set_up (struct torus *torus)
{
  utofu_tni_id_t *tnis = NULL;
  size_t count = 0;
  struct utofu_onesided_caps *caps;
  utofu_vcq_id_t id;
  utofu_stadd_t address;
  CHECK (utofu_get_onesided_tnis (&tnis, &count));
  if (count == 0)
    die ("mpi_torus: no interface for one-sided communication");
  torus->tni = tnis[0];
  free (tnis);
  look_around (torus);
  CHECK (utofu_create_vcq_with_cmp_id (torus->tni, COMPONENT, 0, &torus->queue));
  CHECK (utofu_query_vcq_id (torus->queue, &id));
  const struct station me = find (torus, torus->rank, torus->index);
  uint8_t coords[6], theirs[6];
  utofu_tni_id_t tni;
  utofu_cq_id_t cq, cq_of_me;
  uint16_t extra;
  CHECK (utofu_query_vcq_info (id, coords, &tni, &cq, &extra));
  CHECK (utofu_query_vcq_info (me.queue, theirs, &tni, &cq_of_me, &extra));
  if (memcmp (coords, theirs, sizeof coords) != 0 || cq != cq_of_me)
    die ("mpi_torus: rank %d has another queue than it has computed", torus->rank);

  CHECK (utofu_query_onesided_caps (torus->tni, &caps));
  for (int axis = 0; axis < torus->axes; axis++)
    if (torus->slots_of_axis < (size_t) torus->lengths[axis])
      torus->slots_of_axis = (size_t) torus->lengths[axis];
  size_t bytes = MOST_AXES * torus->slots_of_axis * sizeof *torus->slots;
  bytes = (bytes + caps->stag_address_alignment - 1) / caps->stag_address_alignment * caps->stag_address_alignment;
  void *memory;
  if (posix_memalign (&memory, caps->stag_address_alignment, bytes) != 0)
    die ("mpi_torus: no memory");
  torus->slots = memory;
  memset (torus->slots, 0, bytes);
  CHECK (utofu_reg_mem_with_stag (torus->queue, torus->slots, bytes, STAG, 0, &address));
  if (address != me.address)
    die ("mpi_torus: rank %d has memory at another address than it has computed", torus->rank);
}

static uint64_t *
slot (const struct torus *torus, int axis, int step)
{
  return torus->slots + (size_t) axis * torus->slots_of_axis + (size_t) step;
}

static void
send (const struct torus *torus, int axis, int step, uint64_t value)
{
  struct patience patience = { 0, 0.0 };
  const utofu_stadd_t offset = (utofu_stadd_t) (slot (torus, axis, step) - torus->slots) * sizeof *torus->slots;
  int code;
  while ((code = utofu_put_piggyback8 (torus->queue, torus->next[axis].queue, value, torus->next[axis].address + offset,
                                       sizeof value, (uint64_t) axis, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, NULL))
         == UTOFU_ERR_BUSY)
    {
      void *data;
      const int polled = utofu_poll_tcq (torus->queue, 0, &data);
      if (polled != UTOFU_ERR_NOT_FOUND)
        check (__FILE__, __LINE__, "utofu_poll_tcq", polled);
      rest (&patience, "room in the queue");
    }
  check (__FILE__, __LINE__, "utofu_put_piggyback8", code);
}

/* Waits until `number` messages have arrived along an axis. Also counts messages on other axes, from senders that are ahead. */
static void
await (struct torus *torus, int axis, unsigned long number)
{
  struct patience patience = { 0, 0.0 };
  while (torus->come[axis] < number)
    {
      void *data;
      int code = utofu_poll_tcq (torus->queue, 0, &data);
      if (code != UTOFU_ERR_NOT_FOUND)
        check (__FILE__, __LINE__, "utofu_poll_tcq", code);
      struct utofu_mrq_notice notice;
      code = utofu_poll_mrq (torus->queue, 0, &notice);
      if (code == UTOFU_ERR_NOT_FOUND)
        {
          rest (&patience, "a message of a neighbour");
          continue;
        }
      check (__FILE__, __LINE__, "utofu_poll_mrq", code);
      if (notice.notice_type == UTOFU_MRQ_TYPE_RMT_PUT && notice.edata < MOST_AXES)
        torus->come[notice.edata]++;
    }
}

/* The values on an axis travel once around it, and each process adds them. Then the sums do the same on the next axis. */
static uint64_t
sum_up (struct torus *torus, unsigned long round, uint64_t value)
{
  for (int axis = 0; axis < torus->axes; axis++)
    {
      const int steps = torus->lengths[axis] - 1;
      uint64_t sum = value, passing = value;
      for (int step = 0; step < steps; step++)
        {
          send (torus, axis, step, passing);
          await (torus, axis, round * (unsigned long) steps + (unsigned long) step + 1);
          passing = load_word (slot (torus, axis, step));
          sum += passing;
        }
      value = sum;
    }
  return value;
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

int
main (int argc, char **argv)
{
  long rounds = 100;
  struct torus torus = { .rank = 0 };
  MPI_Init (&argc, &argv);
  MPI_Comm_rank (MPI_COMM_WORLD, &torus.rank);
  MPI_Comm_size (MPI_COMM_WORLD, &torus.size);
  if (argc > 2 || (argc > 1 && !parse_number (argv[1], 1, 1000000, &rounds)))
    return refuse (torus.rank, "usage: mpi_torus [ROUNDS], from 1 to 1000000");
  set_up (&torus);

  /* Processes with the same index on their nodes form a torus. A communicator of them has the same coordinates. */
  MPI_Comm alike;
  int rank_there, at[MOST_AXES];
  MPI_Comm_split (MPI_COMM_WORLD, torus.index, -torus.rank, &alike);
  MPI_Comm_rank (alike, &rank_there);
  TOPOLOGY (FJMPI_Topology_get_coords (alike, rank_there, FJMPI_LOGICAL, MOST_AXES, at));
  if (memcmp (at, torus.at, (size_t) torus.axes * sizeof *at) != 0)
    die ("mpi_torus: rank %d has other coordinates in another communicator", torus.rank);

  const double start = now ();
  for (long round = 0; round < rounds; round++)
    {
      const uint64_t value = (uint64_t) torus.rank * 1000 + (uint64_t) round + 1;
      uint64_t expected = 0;
      /* This call also separates the rounds: all processes have read the memory before the next writes. */
      MPI_Allreduce (&value, &expected, 1, MPI_UINT64_T, MPI_SUM, alike);
      const uint64_t sum = sum_up (&torus, (unsigned long) round, value);
      if (sum != expected)
        die ("mpi_torus: rank %d has a sum of %llu in round %ld, not %llu", torus.rank, (unsigned long long) sum, round,
             (unsigned long long) expected);
    }
  const double seconds = now () - start;
  MPI_Barrier (MPI_COMM_WORLD);
  if (torus.rank == 0)
    {
      printf ("mpi_torus: a torus of ");
      for (int axis = 0; axis < torus.axes; axis++)
        printf (axis == 0 ? "%d" : "x%d", torus.lengths[axis]);
      printf (" nodes with %d of the %d processes each: %.2f us a round, all sums right\n", torus.sharers, torus.size,
              1e6 * seconds / (double) rounds);
    }
  CHECK (utofu_dereg_mem (torus.queue, find (&torus, torus.rank, torus.index).address, 0));
  CHECK (utofu_free_vcq (torus.queue));
  MPI_Comm_free (&alike);
  free (torus.slots);
  MPI_Finalize ();
  return EXIT_SUCCESS;
}
