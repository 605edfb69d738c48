/* What calls of uTofu ask of a device, between two hosts. */
#define _GNU_SOURCE

#include "../../examples/utofu/job.h"
#include "asked.h"

enum
{
  STAG = 1,
  BYTES = 8192,
  EDATA = 1,
  PARTS = 16,
  MANY = 100,
  STRIDE = 256
};

/* Waits until this number of requests is complete. */
static void
done (struct job *job, uint64_t requests)
{
  static uint64_t all;
  all += requests;
  WAIT_UNTIL (job, job->notices.done[EDATA] == all, "requests");
}

int
main (void)
{
  struct job job;
  job_begin (&job);
  if (job.size != 2)
    refuse (&job, "counts: 2 processes are needed");
  utofu_stadd_t local;
  void *memory = allocate_registered (&job, BYTES, STAG, &local);
  meet (&job);
  if (job.rank == 0)
    {
      const utofu_vcq_id_t peer = queue_of (&job, 1);
      const utofu_stadd_t remote = memory_of (&job, 1, STAG);
      const unsigned long flags = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, delayed = flags | UTOFU_ONESIDED_FLAG_DELAY_START;
      ASKED ("utofu_put", CHECK (utofu_put (job.queue, peer, local, remote, 8, EDATA, flags, NULL)), done (&job, 1));
      ASKED ("utofu_put.40_bytes", CHECK (utofu_put (job.queue, peer, local, remote, 40, EDATA, flags, NULL)), done (&job, 1));
      ASKED ("utofu_put_stride", CHECK (utofu_put_stride (job.queue, peer, local, remote, 8, STRIDE, PARTS, EDATA, flags, NULL)),
             done (&job, PARTS));
      ASKED ("utofu_put_stride.100", CHECK (utofu_put_stride (job.queue, peer, local, remote, 8, 64, MANY, EDATA, flags, NULL)),
             done (&job, MANY));
      ASKED ("utofu_put_stride_gap",
             CHECK (utofu_put_stride_gap (job.queue, peer, local, remote, 8, STRIDE, PARTS, EDATA, flags, job.caps->max_mtu, 0, NULL)),
             done (&job, PARTS));
      ASKED ("utofu_get_stride", CHECK (utofu_get_stride (job.queue, peer, local, remote, 8, STRIDE, PARTS, EDATA, flags, NULL)),
             done (&job, PARTS));
      char *descriptors = aligned_alloc (64, job.caps->max_toq_desc_size * PARTS);
      size_t len = 0;
      for (int part = 0; part < PARTS; part++)
        {
          size_t more = 0;
          const utofu_stadd_t at = (utofu_stadd_t) part * STRIDE;
          CHECK (utofu_prepare_put_piggyback8 (job.queue, peer, 7, remote + at, 8, EDATA, flags, descriptors + len, &more));
          len += more;
        }
      ASKED ("utofu_post_toq", CHECK (utofu_post_toq (job.queue, descriptors, len, NULL)), done (&job, PARTS));
      free (descriptors);
      ASKED ("utofu_put.delayed",
             for (int part = 0; part < PARTS; part++)
               CHECK (utofu_put (job.queue, peer, local, remote + (utofu_stadd_t) part * STRIDE, 8, EDATA, part < PARTS - 1 ? delayed : flags, NULL)),
             done (&job, PARTS));
    }
  meet (&job);
  free_registered (&job, memory, local);
  job_end (&job);
  return 0;
}
