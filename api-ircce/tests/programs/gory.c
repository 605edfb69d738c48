/* Buffers and flags of the GORY interface. */
#define GORY
#include "RCCE.h"

#include <pthread.h>

#include "check.h"

enum { LINES = 8, SIZE = LINES * RCCE_LINE_SIZE };

static int me, num;

/* Each UE writes to its right neighbour, which looks, and reads from its left one's. */
static void ring(t_vcharp buffer, RCCE_FLAG full, RCCE_FLAG empty, int rounds)
{
  unsigned char mine[SIZE], found[SIZE];
  int right = (me + 1) % num, left = (me + num - 1) % num, round, i;
  for (round = 0; round < rounds; round++) {
    memset(mine, me + round, sizeof mine);
    OK(RCCE_put(buffer, mine, SIZE, right));
    OK(RCCE_flag_write(&full, RCCE_FLAG_SET, right));
    OK(RCCE_wait_until(full, RCCE_FLAG_SET));
    OK(RCCE_flag_write(&full, RCCE_FLAG_UNSET, me));
    for (i = 0; i < SIZE; i++)
      CHECK(buffer[i] == (unsigned char)(left + round));
    OK(RCCE_get(found, buffer, SIZE, me));
    CHECK(memcmp(found, (const void *)buffer, SIZE) == 0);
    OK(RCCE_flag_write(&empty, RCCE_FLAG_SET, left));
    OK(RCCE_wait_until(empty, RCCE_FLAG_SET));
    OK(RCCE_flag_write(&empty, RCCE_FLAG_UNSET, me));
  }
  memset((void *)buffer, me, SIZE);
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
  for (i = 0; i < num; i++) {
    OK(RCCE_get(found, buffer, SIZE, i));
    CHECK(found[0] == i && found[SIZE - 1] == i);
  }
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
}

static void pingpong(RCCE_FLAG ball, int rounds)
{
  int round, other = 1 - me;
  RCCE_FLAG_STATUS seen;
  if (me > 1 || num < 2)
    return;
  for (round = 0; round < rounds; round++) {
    if ((round + me) % 2 == 0) {
      OK(RCCE_flag_write(&ball, RCCE_FLAG_SET, other));
    } else {
      OK(RCCE_wait_until(ball, RCCE_FLAG_SET));
      OK(RCCE_flag_read(ball, &seen, me));
      CHECK(seen == RCCE_FLAG_SET);
      OK(RCCE_flag_write(&ball, RCCE_FLAG_UNSET, me));
    }
  }
}

/* The line that holds a flag may be written by put as well. */
static void flag_by_put(RCCE_FLAG flag)
{
  int line[RCCE_LINE_SIZE / sizeof(int)] = {RCCE_FLAG_SET};
  OK(RCCE_put((t_vcharp)flag, (t_vcharp)line, RCCE_LINE_SIZE, (me + 1) % num));
  OK(RCCE_wait_until(flag, RCCE_FLAG_SET));
}

static void allocation(void)
{
  size_t chunk;
  t_vcharp a, b, all;
  CHECK(RCCE_malloc(0) == NULL);
  CHECK(RCCE_malloc(31) == NULL);
  CHECK(RCCE_malloc(33) == NULL);
  CHECK(RCCE_malloc(RCCE_BUFF_SIZE_MAX + 32) == NULL);
  a = RCCE_malloc(64);
  b = RCCE_malloc(64);
  CHECK(a && b == a + 64 && ((size_t)a & 31) == 0);
  RCCE_free(a);
  CHECK(RCCE_malloc(64) == a);
  RCCE_free(b);
  RCCE_free(a);
  RCCE_free(a);
  RCCE_free(NULL);
  RCCE_free((t_vcharp)&chunk);
  all = RCCE_malloc(RCCE_BUFF_SIZE_MAX);
  CHECK(all == a);
  CHECK(RCCE_malloc(32) == NULL);
  chunk = 7;
  CHECK(RCCE_malloc_request(64, &chunk) == NULL && chunk == 0);
  RCCE_free(all);
  a = RCCE_malloc(32);
  b = RCCE_malloc_request(RCCE_BUFF_SIZE_MAX - 5, &chunk);
  CHECK(b == a + 32 && chunk == RCCE_BUFF_SIZE_MAX / 2);
  RCCE_free(a);
  RCCE_free(b);
  CHECK(RCCE_malloc_request(64, NULL) == a);
  RCCE_free(a);
}

static void errors(t_vcharp buffer, RCCE_FLAG flag)
{
  unsigned char mine[SIZE];
  RCCE_FLAG none = NULL, foreign = (RCCE_FLAG)mine;
  RCCE_FLAG_STATUS value;
  CHECK(RCCE_put(buffer, mine, 32, -1) == RCCE_ERROR_ID);
  CHECK(RCCE_put(buffer, mine, 32, num) == RCCE_ERROR_ID);
  CHECK(RCCE_put(buffer, mine, -32, 0) == RCCE_ERROR_MESSAGE_LENGTH);
  CHECK(RCCE_put(buffer, mine, 33, 0) == RCCE_ERROR_MESSAGE_LENGTH);
  CHECK(RCCE_put(mine, mine, 32, 0) == RCCE_ERROR_TARGET);
  CHECK(RCCE_put(NULL, mine, 32, 0) == RCCE_ERROR_TARGET);
  CHECK(RCCE_put(buffer, mine, RCCE_BUFF_SIZE_MAX + 32, 0) == RCCE_ERROR_TARGET);
  CHECK(RCCE_put(buffer, NULL, 32, 0) == RCCE_ERROR_SOURCE);
  CHECK(RCCE_put(buffer + 1, mine, 32, 0) == RCCE_ERROR_ALIGNMENT);
  CHECK(RCCE_put(buffer, buffer + 33, 32, me) == RCCE_ERROR_ALIGNMENT);
  CHECK(RCCE_put(buffer, buffer + 32, 64, me) == RCCE_ERROR_DATA_OVERLAP);
  OK(RCCE_put(buffer, buffer + 64, 64, me));
  OK(RCCE_put(buffer, mine, 0, me));
  CHECK(RCCE_get(mine, buffer, 32, -1) == RCCE_ERROR_ID);
  CHECK(RCCE_get(mine, buffer, 1, 0) == RCCE_ERROR_MESSAGE_LENGTH);
  CHECK(RCCE_get(mine, mine, 32, 0) == RCCE_ERROR_SOURCE);
  CHECK(RCCE_get(NULL, buffer, 32, 0) == RCCE_ERROR_TARGET);
  CHECK(RCCE_get(mine, buffer + 4, 32, 0) == RCCE_ERROR_ALIGNMENT);
  CHECK(RCCE_get(buffer + 32, buffer, 64, me) == RCCE_ERROR_DATA_OVERLAP);
  CHECK(RCCE_flag_alloc(NULL) == RCCE_ERROR_FLAG_UNDEFINED);
  CHECK(RCCE_flag_write(NULL, RCCE_FLAG_SET, 0) == RCCE_ERROR_FLAG_UNDEFINED);
  CHECK(RCCE_flag_write(&none, RCCE_FLAG_SET, 0) == RCCE_ERROR_FLAG_UNDEFINED);
  CHECK(RCCE_flag_write(&flag, 2, 0) == RCCE_ERROR_FLAG_STATUS_UNDEFINED);
  CHECK(RCCE_flag_write(&flag, RCCE_FLAG_SET, num) == RCCE_ERROR_ID);
  CHECK(RCCE_flag_write(&foreign, RCCE_FLAG_SET, 0) == RCCE_ERROR_FLAG_NOT_IN_COMM_BUFFER);
  CHECK(RCCE_flag_read(flag, NULL, 0) == RCCE_ERROR_VAL_UNDEFINED);
  CHECK(RCCE_flag_read(none, &value, 0) == RCCE_ERROR_FLAG_UNDEFINED);
  CHECK(RCCE_flag_read(flag, &value, -5) == RCCE_ERROR_ID);
  CHECK(RCCE_wait_until(flag, 7) == RCCE_ERROR_FLAG_STATUS_UNDEFINED);
  CHECK(RCCE_wait_until(none, RCCE_FLAG_SET) == RCCE_ERROR_FLAG_NOT_ALLOCATED);
  CHECK(RCCE_wait_until(foreign, RCCE_FLAG_SET) == RCCE_ERROR_FLAG_NOT_IN_COMM_BUFFER);
  CHECK(RCCE_flag_free(NULL) == RCCE_ERROR_FLAG_UNDEFINED);
  CHECK(RCCE_flag_free(&none) == RCCE_ERROR_FLAG_UNDEFINED);
}

/* Two threads of each UE use lines of their own. */
struct work {
  t_vcharp line;
  int nth;
};

static void *thread(void *argument)
{
  struct work *work = argument;
  unsigned char mine[RCCE_LINE_SIZE], found[RCCE_LINE_SIZE];
  int round;
  for (round = 0; round < 200; round++) {
    memset(mine, round + work->nth, sizeof mine);
    OK(RCCE_put(work->line, mine, sizeof mine, me));
    OK(RCCE_get(found, work->line, sizeof found, me));
    CHECK(memcmp(mine, found, sizeof mine) == 0);
    OK(RCCE_acquire_lock(0));
    OK(RCCE_release_lock(0));
    OK(RCCE_barrier(&RCCE_COMM_WORLD));
  }
  return NULL;
}

static void threads(t_vcharp lines)
{
  pthread_t ids[2];
  struct work work[2];
  int i;
  for (i = 0; i < 2; i++) {
    work[i].line = lines + i * RCCE_LINE_SIZE;
    work[i].nth = i;
    CHECK(pthread_create(&ids[i], NULL, thread, &work[i]) == 0);
  }
  for (i = 0; i < 2; i++)
    CHECK(pthread_join(ids[i], NULL) == 0);
}

int RCCE_APP(int argc, char **argv)
{
  RCCE_FLAG full, empty, ball, line;
  t_vcharp buffer;
  int rounds;
  OK(RCCE_init(&argc, &argv));
  rounds = argc > 1 ? atoi(argv[1]) : 100;
  me = RCCE_ue();
  num = RCCE_num_ues();
  allocation();
  buffer = RCCE_malloc(SIZE);
  OK(RCCE_flag_alloc(&full));
  OK(RCCE_flag_alloc(&empty));
  OK(RCCE_flag_alloc(&ball));
  OK(RCCE_flag_alloc(&line));
  ring(buffer, full, empty, rounds);
  pingpong(ball, rounds);
  flag_by_put(line);
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
  threads(buffer);
  errors(buffer, full);
  OK(RCCE_flag_free(&line));
  CHECK(RCCE_flag_free(&line) == RCCE_ERROR_FLAG_UNDEFINED);
  return RCCE_finalize();
}
