/*
 * One UE sends 64 kB to all others: throughput of several methods, as in table 2 of the iRCCE manual.
 *
 * multicast [ROUNDS [BYTES]]
 *
 * The first method is a loop of blocking sends through a window in the sender's MPB, as usual with RCCE (window.c). The others are
 * RCCE_bcast(), the multicast functions of iRCCE, and these functions with wildcards for sender and length.
 */
#include "check.h"
#include "window.h"

enum
{
  ROOT = 0
};

struct message
{
  char *bytes;
  size_t length;
  int me, ues;
};

static void
by_window (struct message *message)
{
  if (message->me != ROOT)
    {
      CHECK (window_receive (message->bytes, message->length, ROOT));
      return;
    }
  for (int ue = 0; ue < message->ues; ue++)
    if (ue != ROOT)
      CHECK (window_send (message->bytes, message->length, ue));
}

static void
by_broadcast (struct message *message)
{
  CHECK (RCCE_bcast (message->bytes, message->length, ROOT, RCCE_COMM_WORLD));
}

static void
by_multicast (struct message *message)
{
  if (message->me == ROOT)
    CHECK (iRCCE_msend (message->bytes, (ssize_t) message->length));
  else
    CHECK (iRCCE_mrecv (message->bytes, (ssize_t) message->length, ROOT));
}

static void
by_multicast_to_anyone (struct message *message)
{
  if (message->me == ROOT)
    {
      CHECK (iRCCE_msend (message->bytes, (ssize_t) message->length));
      return;
    }
  CHECK (iRCCE_mrecv (message->bytes, iRCCE_ANY_LENGTH, iRCCE_ANY_SOURCE));
  if (iRCCE_get_source (NULL) != ROOT || (size_t) iRCCE_get_length () != message->length)
    die ("UE %d: %d bytes from UE %d have come", message->me, iRCCE_get_length (), iRCCE_get_source (NULL));
}

/** A round with bytes that no earlier round had. */
static void
checked_round (struct message *message, void (*way) (struct message *), long number)
{
  if (message->me == ROOT)
    write_message (message->bytes, message->length, ROOT, number);
  way (message);
  check_message (message->bytes, message->length, ROOT, number);
}

/** Returns the throughput in bytes per second. */
static double
measure (struct message *message, void (*way) (struct message *), long rounds, long number)
{
  checked_round (message, way, 2 * number);
  CHECK (RCCE_barrier (&RCCE_COMM_WORLD));
  const double start = RCCE_wtime ();
  for (long i = 0; i < rounds; i++)
    way (message);
  CHECK (RCCE_barrier (&RCCE_COMM_WORLD));
  const double seconds = (RCCE_wtime () - start) / (double) rounds;
  checked_round (message, way, 2 * number + 1);
  return (double) message->length / seconds;
}

int
RCCE_APP (int argc, char **argv)
{
  static const struct
  {
    const char *name;
    void (*way) (struct message *);
  } ways[] = { { "sends by a window", by_window },
               { "RCCE_bcast", by_broadcast },
               { "iRCCE_msend/mrecv", by_multicast },
               { "the same, wildcards", by_multicast_to_anyone } };

  begin (&argc, &argv);
  long rounds = 20, length = 1 << 16;
  if (argc > 3 || (argc > 1 && !parse_number (argv[1], 1, 10000000, &rounds))
      || (argc > 2 && !parse_number (argv[2], 1, 1 << 30, &length)))
    refuse ("usage: %s [ROUNDS [BYTES]]", argv[0]);
  if (RCCE_num_ues () < 2)
    refuse ("%s: needs two UEs", argv[0]);
  const size_t window = window_open ();
  if (window == 0)
    refuse ("%s: no room in the MPB", argv[0]);

  struct message message = { allocate ((size_t) length), (size_t) length, RCCE_ue (), RCCE_num_ues () };
  if (message.me == ROOT)
    printf ("%ld bytes from one UE to %d others, window of %zu bytes, %ld rounds\n%20s %14s %8s\n", length, message.ues - 1, window,
            rounds, "", "MB/s", "ratio");
  double first = 0.0;
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
    {
      const double throughput = measure (&message, ways[i].way, rounds, (long) i);
      first = i == 0 ? throughput : first;
      if (message.me == ROOT)
        printf ("%20s %14.1f %8.1f\n", ways[i].name, 1e-6 * throughput, throughput / first);
    }
  free (message.bytes);
  CHECK (RCCE_finalize ());
  return EXIT_SUCCESS;
}
