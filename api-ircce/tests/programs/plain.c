/* The simple interface and iRCCE, without messages. */
#define RC_POWER_MANAGEMENT
#include "iRCCE.h"
#include "RCCE_lib.h"

#include "check.h"

static int me, num;

static void variables(void)
{
  int i;
  RCCE_COMM world = RCCE_COMM_WORLD;
  CHECK(RCCE_IAM == me && RCCE_NP == num);
  CHECK(world.size == num && world.my_rank == me && world.member[num - 1] == num - 1);
  for (i = 1; i < num; i++)
    CHECK(RC_COREID[i - 1] < RC_COREID[i]);
  CHECK(iRCCE_ANY_SOURCE == -1 && iRCCE_ANY_LENGTH == -1);
  OK(RCCE_barrier(&world));
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
  OK(iRCCE_barrier(NULL));
}

static void texts(void)
{
  char text[RCCE_MAX_ERROR_STRING];
  int code, length;
  for (code = RCCE_ERROR_BASE + 1; code <= RCCE_ERROR_COMM_INITIALIZED; code++) {
    OK(RCCE_error_string(code, text, &length));
    CHECK(length > 0 && (int)strlen(text) == length);
  }
  OK(RCCE_error_string(RCCE_SUCCESS, text, &length));
  CHECK(strcmp(text, "Success") == 0);
  CHECK(RCCE_error_string(5, text, &length) == RCCE_ERROR_INVALID_ERROR_CODE && length == 0 && !*text);
  CHECK(RCCE_error_string(RCCE_ERROR_CORE_NOT_IN_HOSTFILE, text, &length) == RCCE_ERROR_INVALID_ERROR_CODE);
  OK(RCCE_error_string(RCCE_ERROR_ID, NULL, NULL));
  CHECK(RCCE_debug_set(3) == RCCE_ERROR_DEBUG_FLAG);
  OK(RCCE_debug_set(RCCE_DEBUG_SYNCH));
  OK(RCCE_debug_unset(RCCE_DEBUG_ALL));
}

static void buffers(void)
{
  char mine[100], found[100];
  t_vcharp line = RCCE_malloc(32), many;
  size_t chunk;
  int i;
  CHECK(line && RCCE_malloc(64) == NULL && RCCE_malloc(0) == NULL);
  CHECK(RCCE_malloc_request(1000, &chunk) == line + 32 && chunk == 32);
  CHECK(iRCCE_malloc(33) == NULL && iRCCE_malloc(0) == NULL && iRCCE_malloc(RCCE_BUFF_SIZE_MAX) == NULL);
  many = iRCCE_malloc(128);
  CHECK(many == line + 64);
  for (i = 0; i < 100; i++)
    mine[i] = (char)(me + i);
  /* These functions accept any size and address. */
  OK(iRCCE_put(many + 3, (t_vcharp)mine, 100, (me + 1) % num));
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
  OK(iRCCE_get((t_vcharp)found, many + 3, 100, me));
  for (i = 0; i < 100; i++)
    CHECK(found[i] == (char)((me + num - 1) % num + i));
  OK(RCCE_get((t_vcharp)found, many + 3, 7, (me + 1) % num));
  CHECK(found[0] == (char)me);
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
  OK(RCCE_put(many, many + 1, 50, me));
  CHECK(many[2] == (unsigned char)((me + num - 1) % num));
  CHECK(iRCCE_put(many, (t_vcharp)mine, 10, num) == RCCE_ERROR_ID);
  CHECK(iRCCE_put((t_vcharp)mine, (t_vcharp)mine, 10, 0) == RCCE_ERROR_TARGET);
  CHECK(iRCCE_put(many, NULL, 10, 0) == RCCE_ERROR_SOURCE);
  CHECK(iRCCE_put(many, (t_vcharp)mine, -1, 0) == RCCE_ERROR_MESSAGE_LENGTH);
  CHECK(iRCCE_get((t_vcharp)mine, (t_vcharp)mine, 10, 0) == RCCE_ERROR_SOURCE);
  CHECK(iRCCE_memcpy_put((void *)many, mine, 100) == (void *)many && many[99] == (unsigned char)mine[99]);
  CHECK(iRCCE_memcpy_get(found, (void *)many, 100) == found && memcmp(found, mine, 100) == 0);
  CHECK(iRCCE_memcpy(NULL, mine, 0) == NULL);
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
  RCCE_fence();
}

static void tags(int rounds)
{
  RCCE_FLAG flag, none = NULL;
  int round, i, result, value, right = (me + 1) % num, left = (me + num - 1) % num;
  unsigned char tag[40], found[40];
  OK(iRCCE_flag_alloc_tagged(&flag));
  CHECK(iRCCE_get_max_tagged_len() == 28 && iRCCE_MAX_TAGGED_LEN == 28);
  for (round = 1; round <= rounds; round++) {
    memset(tag, me + round, sizeof tag);
    memset(found, 0, sizeof found);
    OK(iRCCE_flag_write_tagged(&flag, round, right, tag, (int)sizeof tag));
    if (round % 2)
      OK(iRCCE_wait_tagged(flag, round, found, (int)sizeof found));
    else
      do
        OK(iRCCE_test_tagged(flag, round, &result, found, 28));
      while (!result);
    for (i = 0; i < 40; i++)
      CHECK(found[i] == (unsigned char)(i < 28 ? left + round : 0));
    OK(iRCCE_barrier(&RCCE_COMM_WORLD));
    OK(iRCCE_flag_read_tagged(flag, &value, right, found, 5));
    CHECK(value == round && found[4] == (unsigned char)(me + round));
    OK(RCCE_barrier(&RCCE_COMM_WORLD));
  }
  OK(iRCCE_test_tagged(flag, -1, &result, NULL, 0));
  CHECK(result == 0);
  OK(iRCCE_flag_write(&flag, RCCE_FLAG_UNSET, me));
  OK(iRCCE_wait_tagged(flag, RCCE_FLAG_UNSET, NULL, 28));
  OK(iRCCE_wait_until(flag, RCCE_FLAG_UNSET));
  OK(iRCCE_flag_read(flag, &value, me));
  CHECK(value == RCCE_FLAG_UNSET);
  /* A shorter tag is filled up with zeros. */
  OK(iRCCE_flag_write_tagged(&flag, RCCE_FLAG_SET, me, tag, 2));
  OK(iRCCE_wait_tagged(flag, RCCE_FLAG_SET, found, 28));
  CHECK(found[1] == tag[0] && found[2] == 0);
  CHECK(iRCCE_flag_write_tagged(&flag, RCCE_FLAG_SET, num, tag, 2) == RCCE_ERROR_ID);
  CHECK(iRCCE_flag_write_tagged(&none, RCCE_FLAG_SET, 0, tag, 2) == RCCE_ERROR_FLAG_UNDEFINED);
  CHECK(iRCCE_flag_write_tagged(NULL, RCCE_FLAG_SET, 0, tag, 2) == RCCE_ERROR_FLAG_UNDEFINED);
  CHECK(iRCCE_wait_tagged(none, RCCE_FLAG_SET, tag, 2) == RCCE_ERROR_FLAG_NOT_ALLOCATED);
  CHECK(iRCCE_test_tagged(flag, RCCE_FLAG_SET, NULL, tag, 2) == RCCE_ERROR_VAL_UNDEFINED);
  OK(iRCCE_test_tagged(flag, RCCE_FLAG_SET, &result, tag, -3));
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
}

static void registers(int rounds)
{
  iRCCE_AIR *reg, *other, *none;
  int i, value, last = -1;
  OK(iRCCE_atomic_alloc(&reg));
  OK(iRCCE_atomic_alloc(&other));
  CHECK(reg != other);
  for (i = 0; i < rounds; i++) {
    OK(iRCCE_atomic_inc(reg, &value));
    CHECK(value > last);
    last = value;
  }
  OK(iRCCE_atomic_inc(reg, NULL));
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
  OK(iRCCE_atomic_read(reg, &value));
  CHECK(value == num * (rounds + 1));
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
  if (me == 0)
    OK(iRCCE_atomic_write(reg, -2));
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
  OK(iRCCE_atomic_read(reg, &value));
  CHECK(value == -2);
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
  if (me == num - 1) {
    OK(iRCCE_atomic_inc(reg, &value));
    CHECK(value == -2);
    OK(iRCCE_atomic_inc(reg, &value));
    OK(iRCCE_atomic_inc(reg, &value));
    CHECK(value == 0);
  }
  OK(iRCCE_atomic_read(other, &value));
  CHECK(value == 0);
  /* iRCCE_barrier uses 2 of the 96 registers. */
  for (i = 2; i < 94; i++)
    OK(iRCCE_atomic_alloc(&none));
  CHECK(iRCCE_atomic_alloc(&none) == iRCCE_ERROR && none == NULL);
  CHECK(iRCCE_atomic_alloc(NULL) == iRCCE_ERROR);
  CHECK(iRCCE_atomic_inc(NULL, &value) == iRCCE_ERROR);
  CHECK(iRCCE_atomic_inc((iRCCE_AIR *)((char *)reg + 1), &value) == iRCCE_ERROR);
  CHECK(iRCCE_atomic_read((iRCCE_AIR *)&value, &value) == iRCCE_ERROR);
}

static void locks(int rounds)
{
  volatile int *count = (volatile int *)RCCE_shmalloc(sizeof(int));
  int i, where = num - 1, before;
  CHECK(count);
  for (i = 0; i < rounds; i++) {
    OK(RCCE_acquire_lock(where));
    before = *count;
    if (i % 8 == 0)
      usleep(10);
    *count = before + 1;
    OK(RCCE_release_lock(where));
  }
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
  CHECK(*count == num * rounds);
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
  /* Any UE may release a lock. */
  if (me == 0)
    OK(RCCE_acquire_lock(0));
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
  if (me == num - 1)
    OK(RCCE_release_lock(0));
  if (me == 0) {
    OK(RCCE_acquire_lock(0));
    OK(RCCE_release_lock(0));
    OK(RCCE_release_lock(0));
  }
  CHECK(RCCE_acquire_lock(-1) == RCCE_ERROR_ID);
  CHECK(RCCE_acquire_lock(num) == RCCE_ERROR_ID);
  CHECK(RCCE_release_lock(1000) == RCCE_ERROR_ID);
  RCCE_shfree((t_vcharp)count);
}

static void shared(void)
{
  int i, *all = (int *)RCCE_shmalloc((size_t)num * sizeof(int));
  t_vcharp other = RCCE_shmalloc(1), whole;
  size_t chunk;
  CHECK(all && other && RCCE_shmalloc(0) == NULL && RCCE_shmalloc((size_t)-1) == NULL);
  all[me] = 1000 + me;
  RCCE_shflush();
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
  for (i = 0; i < num; i++)
    CHECK(all[i] == 1000 + i);
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
  RCCE_shfree((t_vcharp)all);
  RCCE_shfree((t_vcharp)all);
  RCCE_shfree(other);
  RCCE_shfree(NULL);
  RCCE_shfree((t_vcharp)&i);
  whole = RCCE_shmalloc(RCCE_SHM_SIZE_MAX);
  CHECK(whole == (t_vcharp)all && RCCE_shmalloc(1) == NULL);
  RCCE_shfree(whole);
  other = RCCE_shmalloc_request(RCCE_SHM_SIZE_MAX * (size_t)2 + 1, &chunk);
  CHECK(other == whole && chunk >= RCCE_SHM_SIZE_MAX / 2);
  other[chunk - 1] = 1;
  RCCE_shfree(other);
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
}

static int parity(int rank, void *aux)
{
  return rank % *(int *)aux;
}

static void communicators(int rounds)
{
  RCCE_COMM part, copy, nothing, again;
  int two = 2, one = 1, size, rank, i, round;
  memset(&nothing, 0, sizeof nothing);
  memset(&part, 0x5a, sizeof part);
  OK(RCCE_comm_split(parity, &two, &part));
  CHECK(part.size == (num + 1 - me % 2) / 2 && part.my_rank == me / 2);
  for (i = 0; i < part.size; i++)
    CHECK(part.member[i] == 2 * i + me % 2);
  OK(RCCE_comm_size(part, &size));
  OK(RCCE_comm_rank(part, &rank));
  CHECK(size == part.size && rank == part.my_rank);
  copy = part;
  for (round = 0; round < rounds; round++) {
    OK(RCCE_barrier(&part));
    OK(iRCCE_barrier(&copy));
  }
  OK(RCCE_comm_size(RCCE_COMM_WORLD, &size));
  CHECK(size == num);
  /* Repeated splits into the same variable use no resources up. */
  for (round = 0; round < 70; round++)
    OK(RCCE_comm_split(parity, round % 2 ? &one : &two, &again));
  OK(RCCE_barrier(&again));
  CHECK(again.size == num);
  OK(RCCE_comm_free(&again));
  CHECK(RCCE_comm_free(&again) == RCCE_ERROR_COMM_INITIALIZED);
  OK(RCCE_comm_free(&part));
  CHECK(RCCE_barrier(&copy) == RCCE_ERROR_COMM_UNDEFINED);
  CHECK(RCCE_barrier(&nothing) == RCCE_ERROR_COMM_UNDEFINED);
  CHECK(RCCE_comm_size(copy, &size) == RCCE_ERROR_COMM_UNDEFINED);
  CHECK(RCCE_comm_rank(RCCE_COMM_WORLD, NULL) == RCCE_ERROR_VAL_UNDEFINED);
  CHECK(RCCE_comm_free(NULL) == RCCE_ERROR_COMM_UNDEFINED);
  CHECK(RCCE_comm_free(&nothing) == RCCE_ERROR_COMM_INITIALIZED);
  CHECK(RCCE_comm_free(&RCCE_COMM_WORLD) == RCCE_ERROR_COMM_UNDEFINED);
  CHECK(RCCE_comm_split(parity, &two, NULL) == RCCE_ERROR_COMM_UNDEFINED);
  CHECK(RCCE_comm_split(NULL, &two, &nothing) == RCCE_ERROR_COMM_UNDEFINED);
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
}

static void power(void)
{
  RCCE_REQUEST request;
  int divider = 0, level = 0, master = RCCE_power_domain_master();
  CHECK(RCCE_power_domain() >= 0 && RCCE_power_domain() < 6 && RCCE_power_domain_size() >= 1);
  memset(&request, 0, sizeof request);
  if (me != master) {
    OK(RCCE_iset_power(2, &request, &divider, &level));
    OK(RCCE_wait_power(&request));
    CHECK(divider == 0);
    return;
  }
  CHECK(RCCE_wait_power(&request) == RCCE_ERROR_NO_ACTIVE_RPC_REQUEST);
  OK(RCCE_iset_power(99, &request, &divider, &level));
  CHECK(divider == 16 && level == 0 && request.old_frequency_divider == 3);
  CHECK(RCCE_iset_power(2, &request, &divider, &level) == RCCE_ERROR_MULTIPLE_RPC_REQUESTS);
  OK(RCCE_wait_power(&request));
  CHECK(request.release == 1);
  CHECK(RCCE_set_frequency_divider(2, &divider) == RCCE_ERROR_FREQUENCY_EXCEEDED);
  OK(RCCE_iset_power(2, &request, NULL, NULL));
  request.release = 1;
  CHECK(RCCE_wait_power(&request) == RCCE_ERROR_STALE_RPC_REQUEST);
  CHECK(RCCE_iset_power(2, NULL, NULL, NULL) == RCCE_ERROR_RPC_NOT_ALLOCATED);
}

int RCCE_APP(int argc, char **argv)
{
  int rounds, finalize;
  double begin;
  OK(RCCE_init(&argc, &argv));
  OK(RCCE_init(&argc, &argv));
  OK(iRCCE_init());
  begin = RCCE_wtime();
  rounds = argc > 1 ? atoi(argv[1]) : 100;
  finalize = argc <= 2;
  me = RCCE_ue();
  num = RCCE_num_ues();
  variables();
  texts();
  buffers();
  tags(rounds);
  registers(rounds);
  locks(rounds);
  shared();
  communicators(rounds);
  power();
  CHECK(RCCE_wtime() > begin);
  if (!finalize)
    return 0;
  OK(RCCE_finalize());
  CHECK(RCCE_ue() == me && RCCE_num_ues() == num);
  return 0;
}
