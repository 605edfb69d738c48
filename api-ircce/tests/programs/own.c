/* A program with a private iRCCE.h of version 1. Its requests are shorter, and the library must not write behind them. */
#include "own/iRCCE.h"

#include "iRCCE_lib.h"

#include "check.h"

enum { LENGTH = 100000, MARK = 0x5a };

struct send {
  RCCE_SEND_REQUEST request;
  unsigned char behind[32];
};

struct receive {
  RCCE_RECV_REQUEST request;
  unsigned char behind[40];
};

static void check_mark(const unsigned char *bytes, int number)
{
  int i;
  for (i = 0; i < number; ++i)
    CHECK(bytes[i] == MARK);
}

int RCCE_APP(int argc, char **argv)
{
  int me, num, i, round;
  struct send sending;
  struct receive receiving;
  CHECK(sizeof(RCCE_SEND_REQUEST) == 104 && sizeof(RCCE_RECV_REQUEST) == 112);
  OK(RCCE_init(&argc, &argv));
  OK(iRCCE_init());
  me = RCCE_ue();
  num = RCCE_num_ues();
  for (round = 0; round < 3; ++round) {
    /* Each UE has its own buffers, and frees them through the requests. */
    int length = round == 0 ? 1 : LENGTH * (round - 1) + 40;
    char *out = malloc(LENGTH * 2), *in = malloc(LENGTH * 2);
    memset(sending.behind, MARK, sizeof sending.behind);
    memset(receiving.behind, MARK, sizeof receiving.behind);
    for (i = 0; i < length; ++i)
      out[i] = (char)(me + i + round);
    RCCE_irecv(in, (size_t)length, (me + num - 1) % num, &receiving.request);
    RCCE_isend(out, (size_t)length, (me + 1) % num, &sending.request);
    OK(RCCE_isend_wait(&sending.request));
    OK(RCCE_irecv_wait(&receiving.request));
    for (i = 0; i < length; ++i)
      CHECK(in[i] == (char)((me + num - 1) % num + i + round));
    check_mark(sending.behind, sizeof sending.behind);
    check_mark(receiving.behind, sizeof receiving.behind);
    CHECK(sending.request.dest == (me + 1) % num && receiving.request.source == (me + num - 1) % num);
    CHECK(sending.request.size == (size_t)length && receiving.request.size == (size_t)length);
    CHECK(sending.request.finished && receiving.request.finished);
    CHECK(sending.request.privbuf == out && receiving.request.privbuf == in);
    free(sending.request.privbuf);
    free(receiving.request.privbuf);
  }
  /* Messages of length 0, and a send to a missing UE. */
  memset(sending.behind, MARK, sizeof sending.behind);
  memset(receiving.behind, MARK, sizeof receiving.behind);
  OK(RCCE_isend(NULL, 0, me, &sending.request));
  OK(RCCE_irecv(NULL, 0, me, &receiving.request));
  CHECK(RCCE_isend((char *)&i, sizeof i, num, &sending.request) == RCCE_ERROR_ID);
  check_mark(sending.behind, sizeof sending.behind);
  check_mark(receiving.behind, sizeof receiving.behind);
  /* Functions that are macros in version 2. */
  if (num > 1) {
    int number = me, test = 0;
    if (me == 0) {
      OK(iRCCE_send((char *)&number, sizeof number, 1));
      OK(iRCCE_send((char *)&number, sizeof number, 1));
    } else if (me == 1) {
      OK(iRCCE_recv((char *)&number, sizeof number, 0));
      CHECK(number == 0);
      while (!test)
        OK(iRCCE_recv_test((char *)&number, sizeof number, 0, &test));
    }
  }
  OK(RCCE_finalize());
  return 0;
}
