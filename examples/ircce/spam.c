/*
 * Each UE begins many sends and receives before it waits for any of them.
 *
 * spam [REQUESTS]
 *
 * REQUESTS: number of sends of each UE, and of receives (500). The sends go to all UEs in turn. They are in a wait list that is
 * completed by one call. The receives are in another wait list, from which each is taken when it ends. Each message is checked.
 */
#include "check.h"

enum
{
  LONGEST = 1500 /* bytes; only short messages travel with their announcement */
};

struct line
{
  iRCCE_SEND_REQUEST *sends;
  iRCCE_RECV_REQUEST *receives;
  iRCCE_WAIT_LIST sent, received;
  char (*out)[LONGEST], (*in)[LONGEST];
};

/* Lengths from 0 to LONGEST. */
static size_t
length_of (int sender, long number)
{
  uint64_t state = (uint64_t) number << 8 | (uint64_t) sender;
  const uint64_t random = next_random (&state);
  return (size_t) (random >> 8) % (random % 4 == 0 ? LONGEST + 1 : 40);
}

/* The distance from each UE to the target of its message `number`, in UEs. */
static int
distance_of (long number, int ues)
{
  return ues == 1 ? 0 : 1 + (int) (number % (ues - 1));
}

static void
begin_all (struct line *line, long requests, int me, int ues)
{
  for (long number = 0; number < requests; number++)
    {
      const int dest = (me + distance_of (number, ues)) % ues;
      const size_t length = length_of (me, number);
      write_message (line->out[number], length, me, number);
      POST (iRCCE_issend (line->out[number], (ssize_t) length, dest, &line->sends[number]));
      iRCCE_add_to_wait_list (&line->sent, &line->sends[number], NULL);
    }
  for (long number = 0; number < requests; number++)
    {
      const int source = (me + ues - distance_of (number, ues)) % ues;
      POST (iRCCE_isrecv (line->in[number], LONGEST, source, &line->receives[number]));
      iRCCE_add_to_wait_list (&line->received, NULL, &line->receives[number]);
    }
}

/* Checks the receives in the order of their completion. */
static void
take_all (struct line *line, long requests, int me, int ues)
{
  char *done = allocate ((size_t) requests);
  for (long count = 0; count < requests; count++)
    {
      iRCCE_SEND_REQUEST *send = NULL;
      iRCCE_RECV_REQUEST *receive = NULL;
      CHECK (iRCCE_wait_any (&line->received, &send, &receive));
      if (send != NULL || receive == NULL)
        die ("UE %d: the wait list gives a request that was not put there", me);
      const long number = receive - line->receives;
      const int source = (me + ues - distance_of (number, ues)) % ues;
      if (number < 0 || number >= requests || done[number]++ || iRCCE_get_source (receive) != source)
        die ("UE %d: the wait list gives a wrong request", me);
      if ((size_t) iRCCE_get_size (NULL, receive) != length_of (source, number))
        die ("UE %d: message %ld has a wrong length", me, number);
      check_message (line->in[number], length_of (source, number), source, number);
    }
  free (done);
}

int
RCCE_APP (int argc, char **argv)
{
  begin (&argc, &argv);
  long requests = 500;
  if (argc > 2 || (argc > 1 && !parse_number (argv[1], 1, 1000000, &requests)))
    refuse ("usage: %s [REQUESTS]", argv[0]);
  const int me = RCCE_ue (), ues = RCCE_num_ues ();
  const size_t count = (size_t) requests;
  struct line line = { allocate (count * sizeof *line.sends),
                       allocate (count * sizeof *line.receives),
                       { NULL, NULL },
                       { NULL, NULL },
                       allocate (count * LONGEST),
                       allocate (count * LONGEST) };
  iRCCE_init_wait_list (&line.sent);
  iRCCE_init_wait_list (&line.received);
  CHECK (RCCE_barrier (&RCCE_COMM_WORLD));

  const double start = RCCE_wtime ();
  begin_all (&line, requests, me, ues);
  const double begun = RCCE_wtime ();
  take_all (&line, requests, me, ues);
  CHECK (iRCCE_wait_all (&line.sent));
  const double ended = RCCE_wtime ();

  CHECK (RCCE_barrier (&RCCE_COMM_WORLD));
  if (me == 0)
    printf ("%ld sends and %ld receives at each of %d UEs: begun after %.2f ms, ended after %.2f ms\n", requests, requests, ues,
            1e3 * (begun - start), 1e3 * (ended - start));
  free (line.sends);
  free (line.receives);
  free (line.out);
  free (line.in);
  CHECK (RCCE_finalize ());
  return EXIT_SUCCESS;
}
