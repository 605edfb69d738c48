/*
 * dying_utofu put|barrier: the last rank kills itself. The others put to it until that fails, or wait for it at a barrier, and say what that has
 * ended with. For tests.
 */
#define _POSIX_C_SOURCE 200809L

#include "../../examples/utofu/job.h"

#include <signal.h>

enum
{
  TABLE_STAG = 1,
  TABLE_EDATA = 1,
  PUT_EDATA = 2,
  GATES = 3,
  MOST = 16
};

/* Of each rank: starts and ends; comes, from rank to rank up to the last one; goes, from rank to rank after that. */
enum gate
{
  START,
  COMES,
  GOES
};

static utofu_vbg_id_t
build (struct job *job)
{
  utofu_stadd_t address;
  utofu_vbg_id_t *table = allocate_registered (job, MOST * GATES * sizeof *table, TABLE_STAG, &address);
  utofu_vbg_id_t *own = table + job->rank * GATES;
  CHECK (utofu_alloc_vbg (job->tni, GATES, 0, own));
  meet (job);
  const utofu_stadd_t row = (utofu_stadd_t) job->rank * GATES * sizeof *table;
  for (long other = 0; other < job->size; other++)
    if (other != job->rank)
      POST (job, utofu_put (job->queue, queue_of (job, other), address + row, memory_of (job, other, TABLE_STAG) + row,
                            GATES * sizeof *table, TABLE_EDATA, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL));
  WAIT_UNTIL (job, job->notices.done[TABLE_EDATA] == (uint64_t) job->size - 1, "those who are told of the gates");
  meet (job);

  const int first = job->rank == 0, last = job->rank == job->size - 1;
  const utofu_vbg_id_t none = UTOFU_VBG_ID_NULL;
  const utofu_vbg_id_t *before = own - GATES, *behind = own + GATES, *end = table + (job->size - 1) * GATES;
  struct utofu_vbg_setting settings[GATES] = {
    { own[START], own[GOES], none, own[COMES], none, { 0 } },
    { own[COMES], own[START], first ? none : before[COMES], none, last ? table[GOES] : behind[COMES], { 0 } },
    { own[GOES], none, first ? end[COMES] : before[GOES], own[START], last ? none : behind[GOES], { 0 } },
  };
  for (int gate = 0; gate < GATES; gate++)
    memset (settings[gate].dst_path_coords, UTOFU_PATH_COORD_NULL, sizeof settings[gate].dst_path_coords);
  CHECK (utofu_set_vbg (settings, GATES));
  meet (job);
  return own[START];
}

/* Once it works. */
static int
barrier (utofu_vbg_id_t gate)
{
  int code = utofu_barrier (gate, 0);
  if (code == UTOFU_SUCCESS)
    while ((code = utofu_poll_barrier (gate, 0)) == UTOFU_ERR_NOT_COMPLETED)
      ;
  return code;
}

static int
put (struct job *job)
{
  struct utofu_mrq_notice notice;
  int code = UTOFU_SUCCESS;
  while (code == UTOFU_SUCCESS)
    {
      POST (job, utofu_put_piggyback8 (job->queue, queue_of (job, job->size - 1), 1, memory_of (job, job->size - 1, BOARD_STAG),
                                       sizeof (uint64_t), PUT_EDATA, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL));
      while ((code = utofu_poll_mrq (job->queue, 0, &notice)) == UTOFU_ERR_NOT_FOUND)
        ;
    }
  return code;
}

int
main (int argc, char *argv[])
{
  struct job job;
  if (argc != 2)
    return 2;
  job_begin (&job);
  const utofu_vbg_id_t gate = build (&job);
  CHECK (barrier (gate));
  printf ("rank %ld: waiting\n", job.rank);
  fflush (stdout);
  if (job.rank == job.size - 1)
    raise (SIGKILL);
  const int puts = strcmp (argv[1], "put") == 0;
  const int code = puts ? put (&job) : barrier (gate);
  const int expected = puts ? UTOFU_ERR_MRQ_PEER : UTOFU_ERR_BARRIER_OTHER;
  printf ("rank %ld: %s\n", job.rank, code == expected ? "error" : return_code_name (code));
  return code == expected ? EXIT_SUCCESS : EXIT_FAILURE;
}
