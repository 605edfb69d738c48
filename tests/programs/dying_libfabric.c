/*
 * dying_libfabric PORT: waits for a message from the other process, which has died, and says what the wait has ended with.
 * dying_libfabric PORT HOST: the other one, which kills itself. For tests.
 */
#define _GNU_SOURCE
#include "../../examples/libfabric/meet.h"

#include <rdma/fi_tagged.h>

#include <signal.h>

int
main (int argc, char **argv)
{
  char letter = 'x';
  if (argc != 2 && argc != 3)
    return 2;
  struct node node = meet (FI_TAGGED | FI_DIRECTED_RECV, argc == 3 ? argv[2] : NULL, argv[1]);
  if (argc == 3)
    {
      check (fi_tsend (node.ep, &letter, 1, NULL, node.peer, 1, NULL), "fi_tsend");
      completion (&node);
      /* Until the other one has it. */
      hear (&node, &letter, 1);
      raise (SIGKILL);
    }
  check (fi_trecv (node.ep, &letter, 1, NULL, node.peer, 1, 0, NULL), "fi_trecv");
  completion (&node);
  check (fi_trecv (node.ep, &letter, 1, NULL, node.peer, 2, 0, NULL), "fi_trecv");
  tell (&node, &letter, 1);
  struct fi_cq_tagged_entry entry;
  struct fi_cq_err_entry error = { 0 };
  ssize_t got;
  while ((got = fi_cq_sread (node.cq, &entry, 1, NULL, -1)) == -FI_EAGAIN)
    ;
  if (got == -FI_EAVAIL)
    fi_cq_readerr (node.cq, &error, 0);
  printf ("the wait ends: %s\n", error.err == FI_ECONNRESET ? "connection reset" : fi_strerror (error.err));
  return error.err == FI_ECONNRESET ? EXIT_SUCCESS : EXIT_FAILURE;
}
