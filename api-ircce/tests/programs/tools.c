/* Functions of RCCE's library outside its interface that programs use. */
#include "iRCCE_lib.h"

#include "check.h"

#ifndef RC_POWER_MANAGEMENT
void print_dividers(void);
#endif

int RCCE_APP(int argc, char **argv)
{
  int numbers[] = {7, -2, 9, 0, 7, 2147483647, -2147483647 - 1, 1};
  int i, result, me, num, next;
  RCCE_FLAG flag;
  t_vcharp line;
  OK(RCCE_init(&argc, &argv));
  me = RCCE_ue();
  num = RCCE_num_ues();
  next = (me + 1) % num;

  RCCE_qsort((char *)numbers, 8, sizeof numbers[0], id_compare);
  for (i = 1; i < 8; ++i)
    CHECK(numbers[i - 1] <= numbers[i]);
  CHECK(numbers[0] < -2147483647 && numbers[7] == 2147483647);

  CHECK(RCCE_IAM == me && RCCE_NP == num && RC_MY_COREID == RC_COREID[me] && RCCE_BUFF_SIZE == 8192);
  CHECK(RC_REFCLOCKGHZ > 0 && PAD32byte(33) == 64 && RCCE_SUM_INT != RCCE_SUM_LONG);
  OK(RCCE_debug_set(RCCE_DEBUG_COMM));
  CHECK(RCCE_debug_comm && !RCCE_debug_synch && !RCCE_debug_RPC && !RCCE_debug_debug);
  CHECK(RCCE_error_return(RCCE_debug_synch, RCCE_ERROR_ID) == RCCE_ERROR_ID);
  OK(RCCE_debug_unset(RCCE_DEBUG_ALL));
  CHECK(!RCCE_debug_comm && RCCE_error_return(RCCE_debug_comm, RCCE_ERROR_ID) == RCCE_ERROR_ID);
  CHECK(RC_COMM_BUFFER_START(next) == RCCE_comm_buffer[next] && RCCE_global_color(me, NULL) == 1);
  *(int *)RCCE_fool_write_combine_buffer = 1;
  RCCE_fool_write_combine_buffer[RCCE_LINE_SIZE - 1] = 1;
  CHECK(RCCE_DCMflush() == 0);

  /* A line of all MPBs, by its address in this UE. */
  line = RCCE_malloc(RCCE_LINE_SIZE);
  CHECK(line != NULL && line >= RCCE_comm_buffer[me] && line < RCCE_comm_buffer[me] + RCCE_BUFF_SIZE);
  line[0] = (unsigned char)(me + 1);
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
  CHECK(*(RCCE_comm_buffer[next] + (line - RCCE_comm_buffer[me])) == next + 1);
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
  *(RCCE_comm_buffer[next] + (line - RCCE_comm_buffer[me])) = (unsigned char)(100 + me);
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
  CHECK(line[0] == 100 + (me + num - 1) % num);
  CHECK(num == RCCE_MAXNP || RCCE_comm_buffer[num] == NULL);

  OK(RCCE_flag_alloc(&flag));
  OK(RCCE_test_flag(flag, RCCE_FLAG_SET, &result));
  CHECK(result == 0 || result == 1);
  OK(RCCE_flag_write(&flag, RCCE_FLAG_SET, next));
  do
    OK(iRCCE_test_flag(flag, RCCE_FLAG_SET, &result));
  while (!result);
  OK(RCCE_test_flag(flag, RCCE_FLAG_UNSET, &result));
  CHECK(result == 0 && RCCE_probe(flag) == 1);
  CHECK(RCCE_test_flag(flag, RCCE_FLAG_SET, NULL) == RCCE_ERROR_VAL_UNDEFINED);
  CHECK(RCCE_test_flag(NULL, RCCE_FLAG_SET, &result) == RCCE_ERROR_FLAG_NOT_ALLOCATED);
  CHECK(iRCCE_test_flag((RCCE_FLAG)&result, RCCE_FLAG_SET, &result) == RCCE_ERROR_FLAG_NOT_IN_COMM_BUFFER);

  if (me == 0)
    print_dividers();
  OK(RCCE_finalize());
  return 0;
}
