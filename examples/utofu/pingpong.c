/*
 * Ping-pong between ranks 0 and 1; other ranks do nothing. First with utofu_put() and a notice to the peer, for message sizes up to a
 * limit, then with 8 bytes in the descriptor, for which the receiver polls memory. Prints the time of one direction. In an untimed
 * pass it compares each message byte by byte.
 *
 * pingpong [BYTES [ROUNDS]]
 */
#define _POSIX_C_SOURCE 200809L

#include "job.h"

enum
{
  SEND_STAG = 1,
  RECEIVE_STAG = 2,
  MESSAGE_EDATA = 1
};

struct court
{
  struct job *job;
  utofu_vcq_id_t peer;
  unsigned char *send, *receive;
  utofu_stadd_t send_address, receive_address, peer_address;
  uint64_t expected; /* number of the next message */
  uint64_t word;     /* number of the last word sent in memory */
};

static unsigned char
byte_of (uint64_t message, long sender, size_t index)
{
  return (unsigned char) (message * 31 + (uint64_t) sender * 101 + index * 7 + index / 256);
}

static void
serve (struct court *court, size_t bytes)
{
  POST (court->job, utofu_put (court->job->queue, court->peer, court->send_address, court->peer_address, bytes,
                               MESSAGE_EDATA, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, NULL));
}

static void
receive (struct court *court)
{
  court->expected++;
  WAIT_UNTIL (court->job, court->job->notices.arrived[MESSAGE_EDATA] >= court->expected, "a message");
}

/** Sends a message with unique contents. The peer's last message proves that the previous message has left the buffer. */
static void
serve_message (struct court *court, uint64_t message, size_t bytes)
{
  for (size_t i = 0; i < bytes; i++)
    court->send[i] = byte_of (message, court->job->rank, i);
  serve (court, bytes);
}

/** Sends messages with unique contents in both directions. */
static void
checked_rounds (struct court *court, size_t bytes, long rounds)
{
  const long me = court->job->rank;
  for (long round = 0; round < rounds; round++)
    {
      const uint64_t message = court->expected + 1;
      if (me == 0)
        serve_message (court, message, bytes);
      receive (court);
      for (size_t i = 0; i < bytes; i++)
        if (court->receive[i] != byte_of (message, 1 - me, i))
          die ("pingpong: byte %zu of %zu is wrong in message %ld at rank %ld", i, bytes, (long) message, me);
      if (me == 1)
        serve_message (court, message, bytes);
    }
}

/** Returns the seconds for one direction. */
static double
timed_rounds (struct court *court, size_t bytes, long rounds)
{
  const double start = now ();
  for (long round = 0; round < rounds; round++)
    {
      if (court->job->rank == 0)
        serve (court, bytes);
      receive (court);
      if (court->job->rank == 1)
        serve (court, bytes);
    }
  return (now () - start) / (double) rounds / 2.0;
}

/** The word of a message. Words are not consecutive, so the check detects a wrong one. */
static uint64_t
word_of (uint64_t number, long sender)
{
  return number * UINT64_C (0x9e3779b97f4a7c15) + (uint64_t) sender + 1;
}

static double
memory_rounds (struct court *court, long rounds)
{
  struct job *job = court->job;
  uint64_t *word = (uint64_t *) (void *) court->receive;
  const double start = now ();
  for (long round = 0; round < rounds; round++)
    {
      court->word++;
      const uint64_t mine = word_of (court->word, job->rank), theirs = word_of (court->word, 1 - job->rank);
      const uint64_t before = word_of (court->word - 1, 1 - job->rank);
      for (int half = 0; half < 2; half++)
        if (half == job->rank)
          POST (job, utofu_put_piggyback8 (job->queue, court->peer, mine, court->peer_address, sizeof mine, 0, 0, NULL));
        else
          {
            struct patience patience = { 0, 0.0 };
            uint64_t found;
            while ((found = load_word (word)) != theirs)
              {
                if (court->word > 1 && found != before)
                  die ("pingpong: word %ld is wrong at rank %ld", (long) court->word, job->rank);
                rest (&patience, "a word");
              }
          }
      progress (job);
    }
  return (now () - start) / (double) rounds / 2.0;
}

static void
play (struct court *court, size_t max_bytes, long rounds)
{
  const int speaks = court->job->rank == 0;
  for (size_t bytes = 8; bytes <= max_bytes; bytes *= 8)
    {
      checked_rounds (court, bytes, 4);
      /* Large messages need fewer rounds for the same precision. */
      const long fewer = bytes > 65536 && rounds >= 20 ? rounds / 10 : rounds;
      const double seconds = timed_rounds (court, bytes, fewer);
      if (speaks)
        printf ("put with notice      %9zu bytes %10.2f us\n", bytes, 1e6 * seconds);
    }
  /* Rank 1 sends the last answer, so rank 0 has it before the first word leaves. */
  const double seconds = memory_rounds (court, rounds);
  if (speaks)
    printf ("piggyback in memory  %9d bytes %10.2f us\n", 8, 1e6 * seconds);
}

int
main (int argc, char **argv)
{
  long max_bytes = 1 << 18, rounds = 1000;
  struct job job;
  job_begin (&job);
  if (argc > 3 || (argc > 1 && !parse_number (argv[1], 8, (long) job.caps->max_putget_size, &max_bytes))
      || (argc > 2 && !parse_number (argv[2], 1, 10000000, &rounds)))
    refuse (&job, "usage: %s [BYTES [ROUNDS]], BYTES from 8 to %zu", argv[0], job.caps->max_putget_size);
  if (job.size < 2)
    refuse (&job, "pingpong: needs two processes");

  if (job.rank < 2)
    {
      struct court court = { .job = &job };
      court.peer = queue_of (&job, 1 - job.rank);
      court.peer_address = memory_of (&job, 1 - job.rank, RECEIVE_STAG);
      court.send = allocate_registered (&job, (size_t) max_bytes, SEND_STAG, &court.send_address);
      court.receive = allocate_registered (&job, (size_t) max_bytes, RECEIVE_STAG, &court.receive_address);
      meet (&job);
      play (&court, (size_t) max_bytes, rounds);
      meet (&job);
      free_registered (&job, court.send, court.send_address);
      free_registered (&job, court.receive, court.receive_address);
    }
  else
    {
      meet (&job);
      meet (&job);
    }
  job_end (&job);
  return EXIT_SUCCESS;
}
