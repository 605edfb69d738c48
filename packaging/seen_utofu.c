/* For run-seen and run-hangs: the second process waits by polls for what the first one puts after a while; with an argument after a long one. */
#define _DEFAULT_SOURCE

#include "../examples/utofu/job.h"

#include <unistd.h>

enum
{
  STAG = 1,
  EDATA = 1
};

int
main (int argc, char **argv)
{
  (void) argv;
  struct job job;
  job_begin (&job);
  utofu_stadd_t local;
  void *memory = allocate_registered (&job, 4096, STAG, &local);
  meet (&job);
  if (job.rank == 0)
    {
      if (argc > 1)
        sleep (600);
      usleep (300000);
      POST (&job, utofu_put (job.queue, queue_of (&job, 1), local, memory_of (&job, 1, STAG), 8, EDATA,
                             UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, NULL));
    }
  else
    WAIT_UNTIL (&job, job.notices.arrived[EDATA] == 1, "the put");
  meet (&job);
  free_registered (&job, memory, local);
  job_end (&job);
  return 0;
}
