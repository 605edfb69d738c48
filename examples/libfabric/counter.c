/*
 * The server registers a counter, a sum of complex numbers and a bulletin. Then it waits for one completion, and does nothing else
 * while the client changes them. The client draws tickets by fetch-and-add, adds complex numbers, takes a lock by compare-and-swap,
 * and writes the bulletin with completion data. The server waits for this write.
 *
 * counter PORT          the server; prints the port
 * counter PORT HOST     the client
 */
#define _GNU_SOURCE
#include <complex.h>

#include "meet.h"

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

enum
{
  TICKETS = 10000
};

struct shared
{
  uint64_t tickets;
  uint64_t lock;
  double complex sum;
  char bulletin[64];
};

struct place
{
  uint64_t address, key;
};

static void
client (struct node *node)
{
  struct place place;
  hear (node, &place, sizeof place);
  uint64_t one = 1, ticket, free_ = 0, mine = 7, before;
  double complex step = 1.0 + 0.5 * I;
  double start = seconds ();
  for (uint64_t i = 0; i < TICKETS; i++)
    {
      check (fi_fetch_atomic (node->ep, &one, 1, NULL, &ticket, NULL, node->peer, place.address, place.key, FI_UINT64, FI_SUM,
                              NULL), "fi_fetch_atomic");
      completion (node);
      if (ticket != i)
        check (-FI_EIO, "a ticket was drawn twice");
    }
  printf ("fetch-and-add: %.2f us\n", (seconds () - start) / TICKETS * 1e6);
  for (int i = 0; i < 100; i++)
    check (fi_inject_atomic (node->ep, &step, 1, node->peer, place.address + offsetof (struct shared, sum), place.key,
                             FI_DOUBLE_COMPLEX, FI_SUM), "fi_inject_atomic");
  check (fi_compare_atomic (node->ep, &mine, 1, NULL, &free_, NULL, &before, NULL, node->peer,
                            place.address + offsetof (struct shared, lock), place.key, FI_UINT64, FI_CSWAP, NULL),
         "fi_compare_atomic");
  completion (node);
  if (before != 0)
    check (-FI_EIO, "the lock was taken");
  const char text[64] = "written by the client";
  check (fi_writedata (node->ep, text, sizeof text, NULL, 4711, node->peer,
                       place.address + offsetof (struct shared, bulletin), place.key, NULL), "fi_writedata");
  completion (node);
}

static void
server (struct node *node)
{
  struct shared *shared = aligned_alloc (4096, 4096);
  memset (shared, 0, 4096);
  struct fid_mr *mr;
  check (fi_mr_reg (node->domain, shared, 4096, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &mr, NULL), "fi_mr_reg");
  int virtual = node->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;
  struct place place = { virtual ? (uintptr_t) shared : 0, fi_mr_key (mr) };
  tell (node, &place, sizeof place);
  struct fi_cq_tagged_entry entry = completion (node);
  printf ("%lu tickets, sum %g%+gi, lock %lu, \"%s\" with %lu\n", (unsigned long) shared->tickets, creal (shared->sum),
          cimag (shared->sum), (unsigned long) shared->lock, shared->bulletin, (unsigned long) entry.data);
  if (shared->tickets != TICKETS || shared->sum != 100.0 + 50.0 * I || shared->lock != 7 || entry.data != 4711
      || !(entry.flags & FI_REMOTE_CQ_DATA))
    check (-FI_EIO, "something is wrong");
  fi_close (&mr->fid);
  free (shared);
}

int
main (int argc, char **argv)
{
  if (argc != 2 && argc != 3)
    {
      fprintf (stderr, "usage: counter PORT [HOST]\n");
      return 2;
    }
  struct node node = meet (FI_ATOMIC | FI_RMA, argc == 3 ? argv[2] : NULL, argv[1]);
  if (argc == 3)
    client (&node);
  else
    server (&node);
  char bye = 0;
  tell (&node, &bye, 1);
  hear (&node, &bye, 1);
  leave (&node);
  return 0;
}
