/* For run-seen and run-hangs: the second process polls in vain many times before it lets the first one put; with "late" that never does. With "barrier" the
 * second process never starts the round that the first one polls; with "stopped" it answers no more, and the first one polls the TCQ ("unknown": it puts there for the first time); with "both" both poll two
 * queues in vain. */
#define _DEFAULT_SOURCE

#include "../../examples/utofu/job.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

enum
{
  STAG = 1,
  EDATA = 1,
  POLLS = 20000
};

/* Polls the MRQ until there is a notice, or so often; gives whether there was one. */
static int
polled (struct job *job, long most)
{
  struct utofu_mrq_notice notice;
  for (long polls = 0; most == 0 || polls < most; polls++)
    {
      const int code = utofu_poll_mrq (job->queue, 0, &notice);
      if (code != UTOFU_ERR_NOT_FOUND)
        {
          CHECK (code);
          return 1;
        }
    }
  return 0;
}

/* A circuit of both processes, in which the second one starts nothing. */
static void
poll_barrier (struct job *job, uint64_t *memory, long other)
{
  utofu_vbg_id_t gate;
  CHECK (utofu_alloc_vbg (job->tni, 1, 0, &gate));
  POST (job, utofu_put_piggyback8 (job->queue, queue_of (job, other), gate, memory_of (job, other, STAG), 8, EDATA, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL));
  WAIT_UNTIL (job, job->notices.done[EDATA] == 1, "a gate's id");
  meet (job);
  struct utofu_vbg_setting setting = { .vbg_id = gate, .src_lcl_vbg_id = gate, .dst_lcl_vbg_id = gate, .src_rmt_vbg_id = memory[0],
                                       .dst_rmt_vbg_id = memory[0], .dst_path_coords = { UTOFU_PATH_COORD_NULL } };
  CHECK (utofu_set_vbg (&setting, 1));
  meet (job);
  while (job->rank == 1)
    sleep (600);
  CHECK (utofu_barrier (gate, 0));
  while (utofu_poll_barrier (gate, 0) == UTOFU_ERR_NOT_COMPLETED)
    ;
}

/* A put to a process that is stopped, over a network; to memory that this one has found before, if that is known. */
static void
poll_tcq (struct job *job, utofu_stadd_t local, long other, int is_known)
{
  if (is_known)
    {
      POST (job, utofu_put (job->queue, queue_of (job, other), local, memory_of (job, other, STAG), 8, EDATA, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL));
      WAIT_UNTIL (job, job->notices.done[EDATA] == 1, "the end of a put");
      meet (job);
    }
  if (job->rank == 1)
    raise (SIGSTOP);
  sleep (2);
  POST (job, utofu_put (job->queue, queue_of (job, other), local, memory_of (job, other, STAG), 4096, EDATA, UTOFU_ONESIDED_FLAG_TCQ_NOTICE, NULL));
  void *data;
  while (utofu_poll_tcq (job->queue, 0, &data) == UTOFU_ERR_NOT_FOUND)
    ;
}

int
main (int argc, char **argv)
{
  const char *what = argc > 1 ? argv[1] : "";
  struct job job;
  job_begin (&job);
  utofu_stadd_t local;
  void *memory = allocate_registered (&job, 4096, STAG, &local);
  meet (&job);
  const long other = 1 - job.rank;
  if (strcmp (what, "barrier") == 0)
    poll_barrier (&job, memory, other);
  if (strcmp (what, "stopped") == 0 || strcmp (what, "unknown") == 0)
    poll_tcq (&job, local, other, strcmp (what, "stopped") == 0);
  while (strcmp (what, "both") == 0)
    progress (&job);
  if (job.rank == 1 && polled (&job, POLLS))
    refuse (&job, "seen_utofu: something has come that nobody has put");
  if (job.rank == 0)
    {
      polled (&job, 0);
      if (strcmp (what, "late") == 0)
        sleep (600);
    }
  POST (&job, utofu_put (job.queue, queue_of (&job, other), local, memory_of (&job, other, STAG), 8, EDATA,
                         UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, NULL));
  if (job.rank == 1)
    polled (&job, 0);
  meet (&job);
  free_registered (&job, memory, local);
  job_end (&job);
  return 0;
}
