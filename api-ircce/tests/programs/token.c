/*
 * A token goes round. All UEs wait for it in a loop of nonblocking calls: copies of the neighbour's line (g) or of the own line (o), tests
 * of flags (f), reads of registers (a), tests of requests (r). If UEs share cores, these calls must yield the core. UE 0 prints the number
 * of calls for each hop of the token.
 *
 * token WAY ROUNDS
 */
#include "iRCCE_lib.h"

#include "check.h"

enum { WORDS = RCCE_LINE_SIZE / sizeof(int) };

static int me, num, next, last;
static long calls;

/* Waits until the neighbour's line, or the own one, has the number. */
static void by_get(t_vcharp place, int from, int wanted)
{
  int line[WORDS];
  do {
    ++calls;
    OK(RCCE_get((t_vcharp)line, place, RCCE_LINE_SIZE, from));
  } while (line[0] != wanted);
}

static void put(t_vcharp place, int number, int to)
{
  int line[WORDS];
  memset(line, 0, sizeof line);
  line[0] = number;
  OK(RCCE_put(place, (t_vcharp)line, RCCE_LINE_SIZE, to));
}

int RCCE_APP(int argc, char **argv)
{
  int round, rounds, result;
  char way;
  double mine, all;
  t_vcharp place;
  RCCE_FLAG flag;
  iRCCE_AIR *air;
  OK(RCCE_init(&argc, &argv));
  OK(iRCCE_init());
  CHECK(argc == 3);
  way = argv[1][0];
  rounds = atoi(argv[2]);
  me = RCCE_ue();
  num = RCCE_num_ues();
  next = (me + 1) % num;
  last = (me + num - 1) % num;
  place = RCCE_malloc(RCCE_LINE_SIZE);
  CHECK(place != NULL);
  put(place, 0, me);
  OK(RCCE_flag_alloc(&flag));
  OK(RCCE_flag_write(&flag, RCCE_FLAG_UNSET, me));
  CHECK(iRCCE_atomic_alloc(&air) == iRCCE_SUCCESS);
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
  for (round = 1; round <= rounds; ++round) {
    /* UE 0 begins. Each other UE waits for the UE before it; then UE 0 waits for the last UE. */
    if (me == 0 && way == 'g')
      put(place, round, me);
    if (me == 0 && way == 'o')
      put(place, round, next);
    if (me == 0 && way == 'f')
      OK(RCCE_flag_write(&flag, RCCE_FLAG_SET, next));
    if (me == 0 && way == 'a' && round == 1)
      OK(iRCCE_atomic_write(air, 1));
    if (me == 0 && way == 'r') {
      iRCCE_SEND_REQUEST request;
      iRCCE_isend((char *)&round, sizeof round, next, &request);
      do
        ++calls, iRCCE_isend_test(&request, &result);
      while (!result);
    }
    switch (way) {
    case 'g':
      by_get(place, last, round);
      if (me != 0)
        put(place, round, me);
      break;
    case 'o':
      by_get(place, me, round);
      if (me != 0)
        put(place, round, next);
      break;
    case 'f':
      do {
        ++calls;
        OK(RCCE_test_flag(flag, RCCE_FLAG_SET, &result));
      } while (!result);
      OK(RCCE_flag_write(&flag, RCCE_FLAG_UNSET, me));
      if (me != 0)
        OK(RCCE_flag_write(&flag, RCCE_FLAG_SET, next));
      break;
    case 'a':
      /* The register counts the hops, and so names the next UE. */
      do {
        ++calls;
        OK(iRCCE_atomic_read(air, &result));
      } while (result != (round - 1) * num + me + 1);
      OK(iRCCE_atomic_inc(air, &result));
      break;
    case 'r': {
      int number = 0;
      iRCCE_RECV_REQUEST receiving;
      iRCCE_SEND_REQUEST sending;
      iRCCE_irecv((char *)&number, sizeof number, last, &receiving);
      do
        ++calls, iRCCE_irecv_test(&receiving, &result);
      while (!result);
      CHECK(number == round);
      if (me != 0) {
        iRCCE_isend((char *)&number, sizeof number, next, &sending);
        do
          ++calls, iRCCE_isend_test(&sending, &result);
        while (!result);
      }
      break;
    }
    default:
      CHECK(!"a way that is known");
    }
  }
  mine = (double)calls;
  OK(RCCE_allreduce((char *)&mine, (char *)&all, 1, RCCE_DOUBLE, RCCE_SUM, RCCE_COMM_WORLD));
  if (me == 0)
    printf("%.0f calls a hop\n", all / ((double)rounds * num));
  OK(RCCE_finalize());
  return 0;
}
