/*
 * Instructions of libfabric's calls between two processes of a host.
 *
 * libfabric PORT          the server; prints the port
 * libfabric PORT HOST     the client, which counts
 */
#define _GNU_SOURCE
#include "../../examples/libfabric/meet.h"
#include "step.h"

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

enum
{
  BYTES = 4096
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
  uint64_t one = 1, old = 0, none = 0;
  volatile ssize_t code = 0;
  long least;
  prepare_to_count ();
  COUNT (least,
         code = fi_fetch_atomic (node->ep, &one, 1, NULL, &old, NULL, node->peer, place.address, place.key, FI_UINT64, FI_SUM, NULL),
         check (code, "fi_fetch_atomic"); completion (node));
  report ("fi_fetch_atomic", least);
  COUNT (least,
         code = fi_compare_atomic (node->ep, &one, 1, NULL, &none, NULL, &old, NULL, node->peer, place.address, place.key, FI_UINT64,
                                   FI_CSWAP, NULL),
         check (code, "fi_compare_atomic"); completion (node));
  report ("fi_compare_atomic", least);
  COUNT (least, code = fi_inject_atomic (node->ep, &one, 1, node->peer, place.address, place.key, FI_UINT64, FI_SUM),
         check (code, "fi_inject_atomic"));
  report ("fi_inject_atomic", least);
  COUNT (least, code = fi_write (node->ep, &one, 8, NULL, node->peer, place.address + 64, place.key, NULL),
         check (code, "fi_write"); completion (node));
  report ("fi_write", least);
  struct fi_cq_tagged_entry entry;
  COUNT (least, code = fi_write (node->ep, &one, 8, NULL, node->peer, place.address + 64, place.key, NULL);
         code = fi_cq_read (node->cq, &entry, 1), check (code, "fi_cq_read"));
  report ("fi_write+fi_cq_read", least);
}

static struct fid_mr *
offer (struct node *node, void *memory)
{
  struct fid_mr *mr;
  check (fi_mr_reg (node->domain, memory, BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &mr, NULL), "fi_mr_reg");
  const int virtual = (node->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  const struct place place = { virtual ? (uintptr_t) memory : 0, fi_mr_key (mr) };
  tell (node, &place, sizeof place);
  return mr;
}

int
main (int argc, char **argv)
{
  if (argc != 2 && argc != 3)
    {
      fprintf (stderr, "usage: libfabric PORT [HOST]\n");
      return 2;
    }
  struct node node = meet (FI_RMA | FI_ATOMIC, argc == 3 ? argv[2] : NULL, argv[1]);
  char end = 1;
  if (argc == 3)
    {
      client (&node);
      tell (&node, &end, 1);
    }
  else
    {
      void *memory = aligned_alloc (BYTES, BYTES);
      memset (memory, 0, BYTES);
      struct fid_mr *mr = offer (&node, memory);
      hear (&node, &end, 1);
      fi_close (&mr->fid);
      free (memory);
    }
  leave (&node);
  return 0;
}
