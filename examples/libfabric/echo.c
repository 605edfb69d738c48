/*
 * A server and a client that find each other by host and service only (fi_getinfo(3)). The client sends its name, then messages of
 * growing lengths. The server sends them back.
 *
 * echo SERVICE           the server
 * echo SERVICE HOST      the client; the server may start up to a minute later
 */
#define _GNU_SOURCE
#include "meet.h"

enum
{
  LONGEST = 1 << 20,
  ROUNDS = 50,
  NAME = 64
};

/* Sends as soon as the peer has started and the queue has room. */
static void
send_bytes (struct node *node, const char *bytes, size_t len)
{
  const struct timespec pause = { 0, 1000000 };
  const double begun = seconds ();
  ssize_t posted;
  while ((posted = fi_send (node->ep, bytes, len, NULL, node->peer, NULL)) == -FI_EAGAIN && seconds () - begun < 60)
    {
      fi_cq_read (node->cq, NULL, 0);
      nanosleep (&pause, NULL);
    }
  check (posted, "fi_send");
}

static void
insert (struct node *node, const void *name)
{
  if (fi_av_insert (node->av, name, 1, &node->peer, 0, NULL) != 1)
    check (-FI_EINVAL, "fi_av_insert");
}

int
main (int argc, char **argv)
{
  if (argc != 2 && argc != 3)
    {
      fprintf (stderr, "usage: echo SERVICE [HOST]\n");
      return 2;
    }
  const int asks = argc == 3;
  struct node node = open_node_at (FI_MSG, asks ? argv[2] : NULL, argv[1], asks ? 0 : FI_SOURCE);
  char *out = malloc (LONGEST), *in = malloc (LONGEST);
  size_t echoed = 0;
  check (fi_recv (node.ep, in, LONGEST, NULL, FI_ADDR_UNSPEC, in), "fi_recv");
  if (asks)
    {
      insert (&node, node.info->dest_addr);
      size_t len = NAME;
      check (fi_getname (&node.ep->fid, out, &len), "fi_getname");
      send_bytes (&node, out, len);
      completion (&node);
    }
  else
    {
      completion (&node);
      insert (&node, in);
      check (fi_recv (node.ep, in, LONGEST, NULL, FI_ADDR_UNSPEC, in), "fi_recv");
    }
  for (size_t len = 1; len <= LONGEST; len *= 32)
    for (int round = 0; round < ROUNDS; round++)
      {
        const int last = len == LONGEST && round + 1 == ROUNDS;
        if (asks)
          {
            memset (out, round + 1, len);
            send_bytes (&node, out, len);
          }
        /* The receive, and on the client's side the send. */
        for (int ends = asks ? 2 : 1; ends > 0; ends--)
          completion (&node);
        if (in[0] != (char)(round + 1) || in[len - 1] != (char)(round + 1))
          check (-FI_EIO, "a message has other bytes");
        if (!asks)
          memcpy (out, in, len);
        if (!last)
          check (fi_recv (node.ep, in, LONGEST, NULL, FI_ADDR_UNSPEC, in), "fi_recv");
        if (!asks)
          {
            send_bytes (&node, out, len);
            completion (&node);
          }
        echoed++;
      }
  printf ("echo: %zu messages %s\n", echoed, asks ? "came back" : "sent back");
  leave (&node);
  free (out);
  free (in);
  return 0;
}
