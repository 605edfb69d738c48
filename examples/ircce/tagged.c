/*
 * A ping-pong of a few bytes in the tag of a flag, and one of messages: time of one direction, for all sizes of a tag.
 *
 * tagged [ROUNDS]
 *
 * UEs 0 and 1 play; other UEs wait for the end.
 */
#include "check.h"

struct court
{
  int me, other;
  RCCE_FLAG mailbox;
  int length;
  char out[iRCCE_MAX_TAGGED_LEN], in[iRCCE_MAX_TAGGED_LEN];
};

typedef void action (struct court *court);

static void
write_tag (struct court *court)
{
  CHECK (iRCCE_flag_write_tagged (&court->mailbox, RCCE_FLAG_SET, court->other, court->out, court->length));
}

static void
wait_for_tag (struct court *court)
{
  CHECK (iRCCE_wait_tagged (court->mailbox, RCCE_FLAG_SET, court->in, court->length));
  /* The other UE writes again only after the answer. */
  CHECK (iRCCE_flag_write (&court->mailbox, RCCE_FLAG_UNSET, court->me));
}

static void
send_message (struct court *court)
{
  CHECK (iRCCE_ssend (court->out, court->length, court->other));
}

static void
receive_message (struct court *court)
{
  CHECK (iRCCE_srecv (court->in, court->length, court->other));
}

/** Plays one round. */
static void
play (struct court *court, action *give, action *take)
{
  if (court->me == 0)
    give (court);
  take (court);
  if (court->me == 1)
    give (court);
}

/** Seconds for one direction. */
static double
measure (struct court *court, action *give, action *take, long rounds)
{
  const double start = RCCE_wtime ();
  for (long i = 0; i < rounds; i++)
    play (court, give, take);
  const double seconds = (RCCE_wtime () - start) / (double) rounds / 2.0;
  for (long number = 0; number < 3; number++)
    {
      write_message (court->out, (size_t) court->length, court->me, number);
      play (court, give, take);
      check_message (court->in, (size_t) court->length, court->other, number);
    }
  return seconds;
}

int
RCCE_APP (int argc, char **argv)
{
  begin (&argc, &argv);
  long rounds = 200;
  if (argc > 2 || (argc > 1 && !parse_number (argv[1], 1, 10000000, &rounds)))
    refuse ("usage: %s [ROUNDS]", argv[0]);
  if (RCCE_num_ues () < 2)
    refuse ("%s: needs two UEs", argv[0]);

  struct court court = { .me = RCCE_ue (), .other = 1 - RCCE_ue () };
  CHECK (iRCCE_flag_alloc_tagged (&court.mailbox));
  CHECK (RCCE_barrier (&RCCE_COMM_WORLD));
  if (court.me == 0)
    printf ("ping-pong, %ld rounds\n%10s %16s %16s\n", rounds, "bytes", "tagged flag", "message");
  if (court.me < 2)
    for (court.length = 1; court.length <= iRCCE_get_max_tagged_len (); court.length++)
      {
        const double tagged = measure (&court, write_tag, wait_for_tag, rounds);
        const double message = measure (&court, send_message, receive_message, rounds);
        if (court.me == 0)
          printf ("%10d %13.2f us %13.2f us\n", court.length, 1e6 * tagged, 1e6 * message);
      }
  CHECK (RCCE_barrier (&RCCE_COMM_WORLD));
  CHECK (RCCE_finalize ());
  return EXIT_SUCCESS;
}
