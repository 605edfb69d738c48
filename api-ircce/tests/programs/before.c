/* Calls outside RCCE_init and RCCE_finalize return codes. */
#include "iRCCE.h"
#include "RCCE_lib.h"

#include "check.h"

static void everything(void)
{
  RCCE_FLAG flag = NULL;
  RCCE_COMM comm;
  iRCCE_AIR *reg = NULL;
  int value;
  size_t chunk;
  char line[32];
  memset(&comm, 0, sizeof comm);
  CHECK(RCCE_barrier(&RCCE_COMM_WORLD));
  CHECK(iRCCE_barrier(NULL));
  CHECK(RCCE_flag_alloc(&flag));
  CHECK(RCCE_flag_write(&flag, RCCE_FLAG_SET, 0));
  CHECK(RCCE_put((t_vcharp)line, (t_vcharp)line, 32, 0));
  CHECK(RCCE_get((t_vcharp)line, (t_vcharp)line, 32, 0));
  CHECK(RCCE_malloc(32) == NULL);
  CHECK(RCCE_malloc_request(32, &chunk) == NULL);
  CHECK(RCCE_shmalloc(32) == NULL);
  RCCE_shfree((t_vcharp)line);
  RCCE_free((t_vcharp)line);
  CHECK(RCCE_acquire_lock(0));
  CHECK(iRCCE_atomic_alloc(&reg));
  CHECK(iRCCE_atomic_inc(reg, &value));
  CHECK(RCCE_comm_size(comm, &value));
  CHECK(iRCCE_init());
}

int RCCE_APP(int argc, char **argv)
{
  everything();
  CHECK(RCCE_finalize());
  OK(RCCE_init(&argc, &argv));
  OK(RCCE_finalize());
  everything();
  /* A second life. */
  OK(RCCE_init(NULL, NULL));
  OK(RCCE_barrier(&RCCE_COMM_WORLD));
  CHECK(RCCE_malloc(32) != NULL);
  OK(RCCE_finalize());
  puts("done");
  return 0;
}
