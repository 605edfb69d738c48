/* Each UE receives from the next one, and nobody sends: for run-hangs. */
#include "RCCE.h"

int RCCE_APP (int argc, char **argv)
{
  char bytes[64];
  RCCE_init (&argc, &argv);
  RCCE_recv (bytes, sizeof bytes, (RCCE_ue () + 1) % RCCE_num_ues ());
  return RCCE_finalize ();
}
