/*
 * What calls of libfabric ask of a device.
 *
 * libfabric PORT          the server; prints the port
 * libfabric PORT HOST     the client, which counts
 */
#define _GNU_SOURCE
#include "../../examples/libfabric/meet.h"
#include "asked.h"

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

enum
{
  BYTES = 4096,
  PARTS = 16
};

struct place
{
  uint64_t address, key;
};

static void
all_done (struct node *node, int calls)
{
  for (int call = 0; call < calls; call++)
    completion (node);
}

static void
client (struct node *node)
{
  struct place place;
  hear (node, &place, sizeof place);
  uint64_t *words = aligned_alloc (BYTES, BYTES);
  memset (words, 7, BYTES);
  struct fid_mr *mr;
  check (fi_mr_reg (node->domain, words, BYTES, FI_READ | FI_WRITE, 0, 2, 0, &mr, NULL), "fi_mr_reg");
  void *desc = fi_mr_desc (mr);
  struct iovec part = { words, 8 };
  struct fi_rma_iov there = { place.address, 8, place.key };
  struct fi_msg_rma rma = { &part, &desc, 1, node->peer, &there, 1, NULL, 0 };
  const struct fi_msg message = { &part, &desc, 1, node->peer, NULL, 0 };
  struct fi_ioc element = { words, 1 };
  struct fi_rma_ioc target = { place.address + 64, 1, place.key };
  const struct fi_msg_atomic atomic = { &element, &desc, 1, node->peer, &target, 1, FI_UINT64, FI_SUM, NULL, 0 };
  struct iovec pieces[4];
  struct fi_rma_iov places[4];
  for (size_t nth = 0; nth < 4; nth++)
    {
      pieces[nth] = (struct iovec){ words + nth, 8 };
      places[nth] = (struct fi_rma_iov){ place.address + 128 * nth, 8, place.key };
    }
  struct fi_msg_rma vector = { pieces, (void *[]){ desc, desc, desc, desc }, 4, node->peer, places, 4, NULL, 0 };
#define FLAGS(nth) ((nth) < PARTS - 1 ? FI_MORE | FI_COMPLETION : FI_COMPLETION)
#define ALL(call) \
  for (int one = 0; one < PARTS; one++) \
    check (call, #call)
  ASKED ("fi_writemsg.16", ALL (fi_writemsg (node->ep, &rma, FI_COMPLETION)), all_done (node, PARTS));
  ASKED ("fi_writemsg.16.more", ALL (fi_writemsg (node->ep, &rma, FLAGS (one))), all_done (node, PARTS));
  ASKED ("fi_readmsg.16.more", ALL (fi_readmsg (node->ep, &rma, FLAGS (one))), all_done (node, PARTS));
  ASKED ("fi_atomicmsg.16.more", ALL (fi_atomicmsg (node->ep, &atomic, FLAGS (one))), all_done (node, PARTS));
  ASKED ("fi_writemsg.4_places", check (fi_writemsg (node->ep, &vector, FI_COMPLETION), "fi_writemsg"), all_done (node, 1));
  /* The last one promises more that does not come; who waits gets its completion. */
  ASKED ("fi_writemsg.16.only_more", ALL (fi_writemsg (node->ep, &rma, FI_MORE | FI_COMPLETION)), all_done (node, PARTS));
  char taken = 0;
  ASKED ("fi_sendmsg.16.more", ALL (fi_sendmsg (node->ep, &message, FLAGS (one))), all_done (node, PARTS);
         tell (node, &taken, 1); hear (node, &taken, 1));
  fi_close (&mr->fid);
  free (words);
}

static void
server (struct node *node)
{
  uint64_t *memory = aligned_alloc (BYTES, BYTES);
  memset (memory, 0, BYTES);
  struct fid_mr *mr;
  check (fi_mr_reg (node->domain, memory, BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &mr, NULL), "fi_mr_reg");
  const int virtual = (node->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  const struct place place = { virtual ? (uintptr_t) memory : 0, fi_mr_key (mr) };
  tell (node, &place, sizeof place);
  uint64_t into;
  for (int time = 0; time < TIMES; time++)
    {
      for (int one = 0; one < PARTS; one++)
        check (fi_recv (node->ep, &into, sizeof into, NULL, FI_ADDR_UNSPEC, NULL), "fi_recv");
      char sent;
      hear (node, &sent, 1);
      all_done (node, PARTS);
      tell (node, &sent, 1);
    }
  fi_close (&mr->fid);
  free (memory);
}

int
main (int argc, char **argv)
{
  if (argc != 2 && argc != 3)
    {
      fprintf (stderr, "usage: libfabric PORT [HOST]\n");
      return 2;
    }
  struct node node = meet (FI_MSG | FI_RMA | FI_ATOMIC, argc == 3 ? argv[2] : NULL, argv[1]);
  char end = 1;
  if (argc == 3)
    {
      client (&node);
      tell (&node, &end, 1);
    }
  else
    {
      server (&node);
      hear (&node, &end, 1);
    }
  leave (&node);
  return 0;
}
