/*
 * libfabric beside MPI. The processes exchange names and keys by MPI. In each lap, a process writes a block into the memory of the next
 * one, sends it a message, and draws a ticket from a counter of rank 0.
 *
 * mpi_ring [LAPS]
 */
#define _GNU_SOURCE
#include <mpi.h>

#include "meet.h"

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

enum
{
  WORDS = 512,
  NAME_ROOM = 64
};

struct shared
{
  uint64_t tickets;
  uint64_t block[WORDS];
};

struct place
{
  uint64_t address, key;
};

static fi_addr_t *
insert_all (struct node *node, int size)
{
  char own[NAME_ROOM] = { 0 }, *names = malloc ((size_t) size * NAME_ROOM);
  fi_addr_t *peers = malloc ((size_t) size * sizeof *peers);
  size_t len = sizeof own;
  check (fi_getname (&node->ep->fid, own, &len), "fi_getname");
  MPI_Allgather (own, NAME_ROOM, MPI_BYTE, names, NAME_ROOM, MPI_BYTE, MPI_COMM_WORLD);
  if (fi_av_insert (node->av, names, (size_t) size, peers, 0, NULL) != size)
    check (-FI_EINVAL, "fi_av_insert");
  free (names);
  return peers;
}

int
main (int argc, char **argv)
{
  char *end = NULL;
  const long laps = argc == 2 ? strtol (argv[1], &end, 10) : 20;
  if (argc > 2 || laps < 1 || laps > 1000000 || (end && *end))
    {
      fprintf (stderr, "usage: mpi_ring [LAPS]\n");
      return 2;
    }
  int rank, size;
  MPI_Init (&argc, &argv);
  MPI_Comm_rank (MPI_COMM_WORLD, &rank);
  MPI_Comm_size (MPI_COMM_WORLD, &size);
  struct node node = open_node (FI_TAGGED | FI_RMA | FI_ATOMIC);
  fi_addr_t *peers = insert_all (&node, size);
  struct shared *shared = aligned_alloc (4096, 8192);
  memset (shared, 0, 8192);
  struct fid_mr *mr;
  check (fi_mr_reg (node.domain, shared, 8192, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &mr, NULL), "fi_mr_reg");
  const int virtual = node.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;
  struct place own = { virtual ? (uintptr_t) shared : 0, fi_mr_key (mr) }, *places = malloc ((size_t) size * sizeof *places);
  MPI_Allgather (&own, sizeof own, MPI_BYTE, places, sizeof own, MPI_BYTE, MPI_COMM_WORLD);

  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  uint64_t out[WORDS], token, ticket, drawn = 0;
  const uint64_t one = 1;
  for (uint64_t lap = 0; lap < (uint64_t) laps; lap++)
    {
      for (uint64_t i = 0; i < WORDS; i++)
        out[i] = lap * 1000 + (uint64_t) rank * WORDS + i;
      check (fi_trecv (node.ep, &token, sizeof token, NULL, peers[before], lap, 0, NULL), "fi_trecv");
      check (fi_write (node.ep, out, sizeof out, NULL, peers[next], places[next].address + offsetof (struct shared, block),
                       places[next].key, NULL), "fi_write");
      /* The message of the previous rank may complete first. */
      int received = 0;
      for (int written = 0; !written;)
        if (completion (&node).flags & FI_WRITE)
          written = 1;
        else
          received = 1;
      check (fi_tsend (node.ep, &lap, sizeof lap, NULL, peers[next], lap, NULL), "fi_tsend");
      for (int ends = received ? 1 : 2; ends > 0; ends--)
        completion (&node);
      for (uint64_t i = 0; i < WORDS; i++)
        if (token != lap || shared->block[i] != lap * 1000 + (uint64_t) before * WORDS + i)
          check (-FI_EIO, "a block has other words");
      check (fi_fetch_atomic (node.ep, &one, 1, NULL, &ticket, NULL, peers[0], places[0].address, places[0].key, FI_UINT64, FI_SUM,
                              NULL), "fi_fetch_atomic");
      completion (&node);
      drawn += ticket;
      /* All processes have compared their block before the next write. */
      MPI_Barrier (MPI_COMM_WORLD);
    }
  uint64_t sum = 0, all = (uint64_t) laps * (uint64_t) size;
  MPI_Allreduce (&drawn, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  if (sum != all * (all - 1) / 2)
    check (-FI_EIO, "a ticket was drawn twice");
  if (rank == 0)
    printf ("mpi_ring: %ld laps of %d processes: all words compared, %lu tickets drawn\n", laps, size, (unsigned long) all);
  fi_close (&mr->fid);
  leave (&node);
  free (shared);
  free (places);
  free (peers);
  MPI_Finalize ();
  return 0;
}
