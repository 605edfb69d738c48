/*
 * Monkeys at typewriters: every UE types random letters until one of them has typed a given word.
 *
 * madmonkey WORD [SEED]
 *
 * WORD has one to eight letters; each additional letter takes 52 times as long. The time of a message is not known in advance.
 * Each monkey posts receives from all others, tests them regularly, and sends one message to each other monkey: its find, or that
 * it stops. So each message has a matching receive. Each UE types the finder's last letters again and compares them with the word.
 */
#include "check.h"

#include <string.h>

static const char KEYS[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

enum
{
  LONGEST_WORD = 8,
  KEYS_BETWEEN_LOOKS = 1 << 14
};

/** The message of a monkey that stops. */
struct report
{
  uint64_t found;  /* whether the last letters are the word */
  uint64_t typed;  /* letters */
  uint64_t before; /* state of the random numbers before the last letters */
};

struct monkey
{
  int me, ues;
  uint64_t word, mask; /* the word, and the mask of its bytes in `letters` */
  uint64_t letters;    /* the last letters, the latest in the lowest byte */
  uint64_t random;
  struct report report;
};

static uint64_t
next_key (uint64_t *random)
{
  return (unsigned char) KEYS[next_random (random) % (sizeof KEYS - 1)];
}

/** Types `keys` letters, or less if the word appears. */
static void
type (struct monkey *monkey, size_t length, long keys)
{
  uint64_t letters = monkey->letters, random = monkey->random;
  long typed = 0;
  while (typed < keys && !monkey->report.found)
    {
      letters = letters << 8 | next_key (&random);
      typed++;
      monkey->report.found = (letters & monkey->mask) == monkey->word;
    }
  monkey->report.typed += (uint64_t) typed;
  monkey->letters = letters;
  monkey->random = random;
  /* The states have equal distances, which gives the state before the word. */
  uint64_t step = 0;
  next_random (&step);
  monkey->report.before = random - length * step;
}

/** Whether the last letters of a finder are the word. */
static int
is_word (const struct monkey *monkey, const struct report *report, size_t length)
{
  uint64_t letters = 0, random = report->before;
  for (size_t i = 0; i < length; i++)
    letters = letters << 8 | next_key (&random);
  return letters == monkey->word;
}

/** Types until a UE has found the word. Then all receives are pending, or all but one. */
static void
search (struct monkey *monkey, iRCCE_WAIT_LIST *receives, size_t length)
{
  for (;;)
    {
      type (monkey, length, KEYS_BETWEEN_LOOKS);
      if (monkey->report.found)
        return;
      iRCCE_SEND_REQUEST *send = NULL;
      iRCCE_RECV_REQUEST *receive = NULL;
      POST (iRCCE_test_any (receives, &send, &receive));
      if (receive != NULL)
        return;
    }
}

int
RCCE_APP (int argc, char **argv)
{
  begin (&argc, &argv);
  long seed = 1;
  const size_t length = argc > 1 ? strlen (argv[1]) : 0;
  if (argc < 2 || argc > 3 || length < 1 || length > LONGEST_WORD || strspn (argv[1], KEYS) != length
      || (argc > 2 && !parse_number (argv[2], 0, 1000000000, &seed)))
    refuse ("usage: %s WORD [SEED], WORD: one to %d letters", argv[0], LONGEST_WORD);

  struct monkey monkey = { .me = RCCE_ue (), .ues = RCCE_num_ues (), .mask = UINT64_MAX >> (64 - 8 * length) };
  for (size_t i = 0; i < length; i++)
    monkey.word = monkey.word << 8 | (unsigned char) argv[1][i];
  monkey.random = (uint64_t) seed << 32 | (uint64_t) monkey.me;
  next_random (&monkey.random);
  monkey.random = next_random (&monkey.random);

  const size_t ues = (size_t) monkey.ues;
  struct report *reports = allocate (ues * sizeof *reports);
  iRCCE_RECV_REQUEST *receives = allocate (ues * sizeof *receives);
  iRCCE_SEND_REQUEST *sends = allocate (ues * sizeof *sends);
  iRCCE_WAIT_LIST open;
  iRCCE_init_wait_list (&open);
  CHECK (RCCE_barrier (&RCCE_COMM_WORLD));
  const double start = RCCE_wtime ();
  for (int other = 0; other < monkey.ues; other++)
    if (other != monkey.me)
      {
        POST (iRCCE_irecv ((char *) &reports[other], sizeof *reports, other, &receives[other]));
        iRCCE_add_to_wait_list (&open, NULL, &receives[other]);
      }
  search (&monkey, &open, length);
  reports[monkey.me] = monkey.report;
  for (int other = 0; other < monkey.ues; other++)
    if (other != monkey.me)
      {
        POST (iRCCE_isend ((char *) &monkey.report, sizeof monkey.report, other, &sends[other]));
        iRCCE_add_to_wait_list (&open, &sends[other], NULL);
      }
  CHECK (iRCCE_wait_all (&open));
  const double seconds = RCCE_wtime () - start;

  uint64_t typed = 0;
  int finders = 0;
  for (int ue = 0; ue < monkey.ues; ue++)
    {
      typed += reports[ue].typed;
      if (!reports[ue].found)
        continue;
      if (!is_word (&monkey, &reports[ue], length))
        die ("UE %d: UE %d has not typed %s", monkey.me, ue, argv[1]);
      finders++;
      if (monkey.me == 0)
        printf ("UE %d has typed %s after %llu letters\n", ue, argv[1], (unsigned long long) reports[ue].typed);
    }
  if (finders == 0)
    die ("UE %d: nobody has typed %s", monkey.me, argv[1]);
  if (monkey.me == 0)
    printf ("%d UEs: %llu letters in %.3f s\n", monkey.ues, (unsigned long long) typed, seconds);
  free (reports);
  free (receives);
  free (sends);
  CHECK (RCCE_finalize ());
  return EXIT_SUCCESS;
}
