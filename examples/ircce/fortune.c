/*
 * A wheel of fortune: UE 0 turns it, the others guess the number between 0 and 100.
 *
 * fortune [SEED]
 *
 * The master receives the guesses from any source, in the order of their arrival, and then queries the source of each. It
 * broadcasts the number and the winner. Each player checks that its own guess is no better.
 */
#include "check.h"

enum
{
  MASTER = 0,
  HIGHEST = 100
};

struct outcome
{
  int number; /* at which the wheel has stopped */
  int winner; /* the UE with the nearest guess; the lowest one, if there are several */
  int guess;
};

static int
distance (int guess, int number)
{
  return guess > number ? guess - number : number - guess;
}

static int
is_better (int guess, int ue, const struct outcome *best)
{
  const int mine = distance (guess, best->number), other = distance (best->guess, best->number);
  return mine < other || (mine == other && ue < best->winner);
}

/** The guess of a UE; the number of the wheel, for the master. */
static int
devise (long seed, int ue)
{
  uint64_t state = (uint64_t) seed << 8 | (uint64_t) ue;
  return (int) (next_random (&state) % (HIGHEST + 1));
}

static struct outcome
collect_guesses (long seed)
{
  const int ues = RCCE_num_ues ();
  struct outcome best = { devise (seed, MASTER), ues, -10 * HIGHEST };
  char *heard = allocate ((size_t) ues);
  for (int i = 1; i < ues; i++)
    {
      int guess = -1;
      iRCCE_RECV_REQUEST request;
      POST (iRCCE_irecv ((char *) &guess, sizeof guess, iRCCE_ANY_SOURCE, &request));
      CHECK (iRCCE_irecv_wait (&request));
      const int player = iRCCE_get_source (&request);
      if (player <= MASTER || player >= ues || heard[player]++ || iRCCE_get_source (NULL) != player)
        die ("a guess has come from UE %d, who has no guess left", player);
      if (guess != devise (seed, player))
        die ("UE %d has guessed %d, and %d has come", player, devise (seed, player), guess);
      printf ("UE %2d guesses %3d\n", player, guess);
      if (is_better (guess, player, &best))
        {
          best.winner = player;
          best.guess = guess;
        }
    }
  free (heard);
  return best;
}

int
RCCE_APP (int argc, char **argv)
{
  begin (&argc, &argv);
  long seed = 7;
  if (argc > 2 || (argc > 1 && !parse_number (argv[1], 0, 1000000000, &seed)))
    refuse ("usage: %s [SEED]", argv[0]);
  if (RCCE_num_ues () < 2)
    refuse ("%s: needs a master and a player", argv[0]);

  const int me = RCCE_ue ();
  struct outcome outcome = { 0, 0, 0 };
  int guess = devise (seed, me);
  if (me == MASTER)
    outcome = collect_guesses (seed);
  else
    CHECK (iRCCE_ssend ((char *) &guess, sizeof guess, MASTER));
  CHECK (RCCE_bcast ((char *) &outcome, sizeof outcome, MASTER, RCCE_COMM_WORLD));
  if (me == MASTER)
    printf ("The wheel stops at %d: UE %d wins with %d\n", outcome.number, outcome.winner, outcome.guess);
  else if (is_better (guess, me, &outcome) || (outcome.winner == me && outcome.guess != guess))
    die ("UE %d: with %d I should have won, or not, but UE %d has", me, guess, outcome.winner);
  CHECK (RCCE_finalize ());
  return EXIT_SUCCESS;
}
