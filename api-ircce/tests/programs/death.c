/* UE 1 dies while the others wait for it, or ends without RCCE_finalize. The argument selects the kind of wait. */
#include "iRCCE.h"
#include "RCCE_lib.h"

#include <signal.h>

#include "check.h"

int RCCE_APP(int argc, char **argv)
{
  RCCE_FLAG flag;
  char way, line[32] = "";
  iRCCE_SEND_REQUEST first, second;
  OK(RCCE_init(&argc, &argv));
  CHECK(argc == 2);
  way = argv[1][0];
  OK(iRCCE_flag_alloc(&flag));
  if (way == 'l' && RCCE_ue() == 1)
    OK(RCCE_acquire_lock(0));
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
  if (RCCE_ue() == 1) {
    usleep(100000);
    if (way == 'e')
      return 0;
    raise(SIGKILL);
  }
  switch (way) {
  case 'b':
  case 'e':
    RCCE_barrier(&RCCE_COMM_WORLD);
    break;
  case 'f':
    iRCCE_wait_tagged(flag, RCCE_FLAG_SET, line, 28);
    break;
  case 'l':
    RCCE_acquire_lock(0);
    break;
  case 'z':
    RCCE_finalize();
    break;
  case 's':
  case 'r':
    /* On both UEs, messages behind a send to the dead UE are never sent. */
    iRCCE_isend(line, 32, 1, &first);
    iRCCE_isend(line, 32, 2 - RCCE_ue(), &second);
    if (way == 's')
      iRCCE_isend_wait(&second);
    else
      iRCCE_srecv(line, 32, 2 - RCCE_ue());
    break;
  case 'p':
    for (;;)
      OK(RCCE_put((t_vcharp)flag, (t_vcharp)line, 32, 1));
  case 't':
    for (;;)
      OK(RCCE_flag_read(flag, (int *)line, 0));
  }
  fprintf(stderr, "the wait ended as if nothing had happened\n");
  return 7;
}
