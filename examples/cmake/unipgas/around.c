/* Each UE sends its number to its neighbour, in two phases. The number of UEs is even. */
#include <stdio.h>
#include <stdlib.h>

#include <RCCE.h>

int
RCCE_APP (int argc, char *argv[])
{
  char mine[32], theirs[32];

  RCCE_init (&argc, &argv);
  const int ue = RCCE_ue (), ues = RCCE_num_ues (), from = (ue + ues - 1) % ues;

  for (size_t i = 0; i < sizeof mine; i++)
    mine[i] = (char)ue;
  for (int turn = 0; turn < 2; turn++)
    {
      if (ue % 2 == turn)
        RCCE_send (mine, sizeof mine, (ue + 1) % ues);
      else
        RCCE_recv (theirs, sizeof theirs, from);
    }
  RCCE_finalize ();

  if (ues % 2 != 0 || theirs[0] != (char)from || theirs[sizeof theirs - 1] != (char)from)
    {
      fprintf (stderr, "around: UE %d of %d has not got what UE %d has sent (an even number of UEs is wanted)\n", ue, ues, from);
      return EXIT_FAILURE;
    }
  return EXIT_SUCCESS;
}
