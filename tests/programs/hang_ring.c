/* For run-hangs: each UE receives from the next one, and nobody sends. With "flag" they test a flag that nobody sets, with "test" a receive; with "lock" one
 * has a lock that the others want. */
#include <iRCCE.h>
#include <string.h>
#include <unistd.h>

int RCCE_APP (int argc, char **argv)
{
  char bytes[64];
  RCCE_init (&argc, &argv);
  iRCCE_init ();
  const int me = RCCE_ue (), next = (me + 1) % RCCE_num_ues ();
  const char *what = argc > 1 ? argv[1] : "";
  if (strcmp (what, "flag") == 0)
    {
      RCCE_FLAG flag;
      RCCE_flag_alloc (&flag);
      int is_set = 0;
      while (!is_set)
        RCCE_test_flag (flag, RCCE_FLAG_SET, &is_set);
    }
  if (strcmp (what, "test") == 0)
    {
      iRCCE_RECV_REQUEST request;
      int has_come = 0;
      iRCCE_irecv (bytes, sizeof bytes, next, &request);
      while (!has_come)
        iRCCE_irecv_test (&request, &has_come);
    }
  if (strcmp (what, "lock") == 0)
    {
      if (me == 0)
        RCCE_acquire_lock (1);
      RCCE_barrier (&RCCE_COMM_WORLD);
      while (me == 0)
        sleep (600);
      RCCE_acquire_lock (1);
    }
  RCCE_recv (bytes, sizeof bytes, next);
  return RCCE_finalize ();
}
