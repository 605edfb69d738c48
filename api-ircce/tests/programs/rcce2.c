/* Non-blocking messages of RCCE 2, by RCCE.h alone. */
#include "RCCE.h"

#include "check.h"

enum { LENGTH = 70000 };

int RCCE_APP(int argc, char **argv)
{
  int me, num, i, round, rounds, test = 0;
  RCCE_SEND_REQUEST sending;
  RCCE_RECV_REQUEST receiving;
  OK(RCCE_init(&argc, &argv));
  rounds = argc > 1 ? atoi(argv[1]) : 5;
  me = RCCE_ue();
  num = RCCE_num_ues();
  for (round = 0; round < rounds; ++round) {
    char *out = (char *)malloc(LENGTH), *in = (char *)malloc(LENGTH);
    int code, length = round % 2 == 0 ? LENGTH : 32;
    for (i = 0; i < length; ++i)
      out[i] = (char)(me * 3 + i + round);
    code = RCCE_isend(out, (size_t)length, (me + 1) % num, &sending);
    CHECK(code == RCCE_SUCCESS || code == RCCE_PENDING || code == RCCE_RESERVED);
    code = RCCE_irecv(in, (size_t)length, (me + num - 1) % num, &receiving);
    CHECK(code == RCCE_SUCCESS || code == RCCE_PENDING || code == RCCE_RESERVED);
    if (round % 3 == 0) {
      do {
        code = RCCE_irecv_test(&receiving, &test);
        CHECK(code == (test ? RCCE_SUCCESS : RCCE_PENDING));
        RCCE_isend_push((me + 1) % num);
        RCCE_irecv_push((me + num - 1) % num);
      } while (!test);
      CHECK(receiving.finished);
    } else {
      OK(RCCE_irecv_wait(&receiving));
    }
    do
      RCCE_isend_test(&sending, &test);
    while (!test && round % 2);
    OK(RCCE_isend_wait(&sending));
    for (i = 0; i < length; ++i)
      CHECK(in[i] == (char)((me + num - 1) % num * 3 + i + round));
    CHECK(sending.dest == (me + 1) % num && receiving.source == (me + num - 1) % num);
    CHECK(sending.finished && sending.privbuf == out && receiving.privbuf == in && receiving.size == (size_t)length);
    free(sending.privbuf);
    free(receiving.privbuf);
  }
  OK(RCCE_finalize());
  return 0;
}
