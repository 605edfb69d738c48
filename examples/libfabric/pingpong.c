/*
 * Two processes exchange tagged messages of growing lengths in turn, and check all bytes.
 *
 * pingpong PORT          waits for the other process on this port (0: any port)
 * pingpong PORT HOST     connects to that process
 */
#define _GNU_SOURCE
#include "meet.h"

#include <rdma/fi_tagged.h>

enum
{
  LONGEST = 1 << 20,
  ROUNDS = 200
};

static void
send_message (struct node *node, const char *bytes, size_t len, uint64_t tag)
{
  ssize_t posted;
  while ((posted = fi_tsend (node->ep, bytes, len, NULL, node->peer, tag, NULL)) == -FI_EAGAIN)
    fi_cq_read (node->cq, NULL, 0);
  check (posted, "fi_tsend");
}

int
main (int argc, char **argv)
{
  if (argc != 2 && argc != 3)
    {
      fprintf (stderr, "usage: pingpong PORT [HOST]\n");
      return 2;
    }
  int first = argc == 3;
  struct node node = meet (FI_TAGGED, first ? argv[2] : NULL, argv[1]);
  char *out = malloc (LONGEST), *in = malloc (LONGEST);
  for (size_t len = 1; len <= LONGEST; len *= 16)
    {
      double start = seconds ();
      for (int round = 0; round < ROUNDS; round++)
        {
          memset (out, round, len);
          check (fi_trecv (node.ep, in, len, NULL, node.peer, (uint64_t) round, 0, in), "fi_trecv");
          if (first)
            send_message (&node, out, len, (uint64_t) round);
          /* The receive, and on one side the send. */
          for (int ends = first ? 2 : 1; ends > 0; ends--)
            completion (&node);
          if (in[0] != (char) round || in[len - 1] != (char) round)
            check (-FI_EIO, "a message has other bytes");
          if (!first)
            {
              send_message (&node, out, len, (uint64_t) round);
              completion (&node);
            }
        }
      if (first)
        printf ("%8zu bytes: %8.2f us\n", len, (seconds () - start) / ROUNDS / 2 * 1e6);
    }
  leave (&node);
  free (out);
  free (in);
  return 0;
}
