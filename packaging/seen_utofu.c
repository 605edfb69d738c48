/* For run-seen and run-hangs: the second process polls in vain many times before it lets the first one put; with an argument that never does. */
#define _DEFAULT_SOURCE

#include "../examples/utofu/job.h"

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

int
main (int argc, char **argv)
{
  (void) argv;
  struct job job;
  job_begin (&job);
  utofu_stadd_t local;
  void *memory = allocate_registered (&job, 4096, STAG, &local);
  meet (&job);
  const long other = 1 - job.rank;
  if (job.rank == 1 && polled (&job, POLLS))
    refuse (&job, "seen_utofu: something has come that nobody has put");
  if (job.rank == 0)
    {
      polled (&job, 0);
      if (argc > 1)
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
