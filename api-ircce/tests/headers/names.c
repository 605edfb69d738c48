/* Calls of functions. Their names in the library depend on the compiler options of the program. */
#include "iRCCE.h"

int RCCE_APP(int argc, char **argv)
{
  char data[16];
  int test;
  iRCCE_RECV_REQUEST request;
  if (RCCE_init(&argc, &argv) != RCCE_SUCCESS)
    return 1;
#ifdef GORY
  RCCE_FLAG ready, sent;
  RCCE_send(data, RCCE_malloc(32), 32, &ready, &sent, sizeof data, 1);
  RCCE_recv(data, RCCE_malloc(32), 32, &ready, &sent, sizeof data, 1);
  RCCE_recv_test(data, RCCE_malloc(32), 32, &ready, &sent, sizeof data, 1, &test);
#else
  RCCE_send(data, sizeof data, 1);
  RCCE_recv(data, sizeof data, 1);
  RCCE_recv_test(data, sizeof data, 1, &test);
#endif
  iRCCE_recv(data, iRCCE_ANY_LENGTH, iRCCE_ANY_SOURCE);
  RCCE_irecv(data, iRCCE_ANY_LENGTH, iRCCE_ANY_SOURCE, &request);
  return 0;
}
