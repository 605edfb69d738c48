/* Open sends make progress during any other wait of their UE. Threads can wait for separate messages. */
#include "iRCCE.h"
#include "RCCE_lib.h"

#include <pthread.h>

#include "check.h"

enum { LINE = 6, LONGEST = 200000, WAYS = 7 };

static int me, num, left, right;
static char big[LONGEST], other[LONGEST];

static void begin(char (*bytes)[LONGEST], iRCCE_SEND_REQUEST *sends, int round)
{
  int i, code;
  for (i = 0; i < LINE; i++) {
    memset(bytes[i], me + i + round, LONGEST);
    /* Three lengths: a line, the data ring, and a fetched message. */
    code = iRCCE_isend(bytes[i], i % 3 == 0 ? 8 : i % 3 == 1 ? 1000 : LONGEST, right, &sends[i]);
    CHECK(code == iRCCE_SUCCESS || code == iRCCE_PENDING || code == iRCCE_RESERVED);
  }
}

static void take(int round)
{
  int i;
  for (i = 0; i < LINE; i++) {
    OK(iRCCE_srecv(other, iRCCE_ANY_LENGTH, left));
    CHECK(iRCCE_get_length() == (i % 3 == 0 ? 8 : i % 3 == 1 ? 1000 : LONGEST));
    CHECK(other[0] == (char)(left + i + round) && memcmp(other, other + 1, iRCCE_get_length() - 1) == 0);
  }
}

/* All UEs run this after the messages have come; UE 0 runs it before. */
static void wait_for_all(int way, RCCE_FLAG flag)
{
  int i, mine[20000], sum[20000];
  OK(iRCCE_flag_write(&flag, RCCE_FLAG_UNSET, me));
  switch (way) {
  case 0:
    OK(RCCE_barrier(&RCCE_COMM_WORLD));
    break;
  case 1:
  case 2:
    if (me == (way == 1 ? 0 : num - 1))
      memset(big, way, LONGEST);
    OK(RCCE_bcast(big, LONGEST, way == 1 ? 0 : num - 1, RCCE_COMM_WORLD));
    CHECK(big[0] == way && big[LONGEST - 1] == way);
    break;
  case 3:
    /* Long enough that a part of a reduction is not sent at once. */
    for (i = 0; i < 20000; i++)
      mine[i] = me + i;
    OK(RCCE_allreduce((char *)mine, (char *)sum, 20000, RCCE_INT, RCCE_SUM, RCCE_COMM_WORLD));
    for (i = 0; i < 20000; i++)
      CHECK(sum[i] == num * (num - 1) / 2 + num * i);
    break;
  case 4:
    if (me == num - 1)
      OK(iRCCE_msend(big, 100));
    else
      OK(iRCCE_mrecv(big, iRCCE_ANY_LENGTH, iRCCE_ANY_SOURCE));
    break;
  case 5:
    OK(RCCE_barrier(&RCCE_COMM_WORLD));
    OK(iRCCE_flag_write(&flag, RCCE_FLAG_SET, right));
    OK(iRCCE_wait_until(flag, RCCE_FLAG_SET));
    break;
  case 6:
    /* UE 1 has taken the lock before the messages. */
    if (me != 1)
      OK(RCCE_acquire_lock(0));
    OK(RCCE_release_lock(0));
    break;
  }
}

static void *receive(void *argument)
{
  int i, number, rounds = *(int *)argument;
  for (i = 0; i < rounds; i++) {
    OK(iRCCE_srecv((char *)&number, sizeof number, left));
    CHECK(number == left + i);
  }
  return NULL;
}

int RCCE_APP(int argc, char **argv)
{
  static char bytes[LINE][LONGEST];
  iRCCE_SEND_REQUEST sends[LINE];
  RCCE_FLAG flag;
  pthread_t thread;
  int i, round, number, rounds;
  OK(RCCE_init(&argc, &argv));
  OK(iRCCE_init());
  rounds = argc > 1 ? atoi(argv[1]) : 1;
  me = RCCE_ue();
  num = RCCE_num_ues();
  right = (me + 1) % num;
  left = (me + num - 1) % num;
  OK(iRCCE_flag_alloc(&flag));
  for (round = 0; round < rounds || round < WAYS; round++) {
    if (round % WAYS == 6 && me == 1)
      OK(RCCE_acquire_lock(0));
    OK(RCCE_barrier(&RCCE_COMM_WORLD));
    begin(bytes, sends, round);
    /* A single UE receives its messages itself, before the wait. */
    if (me != 0 || num == 1)
      take(round);
    wait_for_all(round % WAYS, flag);
    if (me == 0 && num > 1)
      take(round);
    for (i = 0; i < LINE; i++)
      OK(iRCCE_isend_wait(&sends[i]));
  }
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
  CHECK(pthread_create(&thread, NULL, receive, &rounds) == 0);
  for (i = 0; i < rounds; i++) {
    number = me + i;
    OK(iRCCE_ssend((char *)&number, sizeof number, right));
  }
  CHECK(pthread_join(thread, NULL) == 0);
  OK(RCCE_finalize());
  return 0;
}
