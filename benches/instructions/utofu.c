/* Instructions of uTofu's calls between two processes of a host. */
#define _DEFAULT_SOURCE
/* Of who waits while the other one goes step by step, perhaps on a machine that is played. */
#define PATIENCE 3600.0

#include "../../examples/utofu/job.h"
#include "step.h"

enum
{
  STAG = 1,
  BYTES = 4096,
  EDATA = 1
};

int
main (void)
{
  struct job job;
  job_begin (&job);
  if (job.size != 2)
    refuse (&job, "instructions: 2 processes are needed");
  utofu_stadd_t local;
  void *memory = allocate_registered (&job, BYTES, STAG, &local);
  meet (&job);
  if (job.rank == 0)
    {
      const utofu_vcq_id_t peer = queue_of (&job, 1), self = queue_of (&job, 0);
      const utofu_stadd_t remote = memory_of (&job, 1, STAG);
      struct utofu_mrq_notice notice;
      void *data;
      uint64_t old = 0;
      volatile int code = 0;
      long least;
      prepare_to_count ();
      const unsigned long tcq = UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
      COUNT (least, code = utofu_put (job.queue, peer, local, remote, 8, EDATA, tcq, &old),
             CHECK (code); CHECK (utofu_poll_tcq (job.queue, 0, &data)));
      report ("utofu_put", least);
      COUNT (least, code = utofu_put (job.queue, self, local, local + 64, 8, EDATA, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, &old),
             CHECK (code); CHECK (utofu_poll_mrq (job.queue, 0, &notice)));
      report ("utofu_put+own-mrq", least);
      /* The peer's MRQ has room for all of them. */
      COUNT (least, code = utofu_put (job.queue, peer, local, remote, 8, EDATA, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, &old),
             CHECK (code));
      report ("utofu_put+mrq", least);
      COUNT (least, code = utofu_put_piggyback8 (job.queue, peer, 7, remote, 8, EDATA, tcq, &old),
             CHECK (code); CHECK (utofu_poll_tcq (job.queue, 0, &data)));
      report ("utofu_put_piggyback8", least);
      COUNT (least, code = utofu_armw8 (job.queue, peer, UTOFU_ARMW_OP_ADD, 1, remote + 128, EDATA, tcq | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, &old),
             CHECK (code); CHECK (utofu_poll_tcq (job.queue, 0, &data)); CHECK (utofu_poll_mrq (job.queue, 0, &notice)));
      report ("utofu_armw8", least);
      COUNT (least, code = utofu_poll_tcq (job.queue, 0, &data),
             CHECK (code == UTOFU_ERR_NOT_FOUND ? UTOFU_SUCCESS : code));
      report ("utofu_poll_tcq.empty", least);
      COUNT (least, code = utofu_poll_mrq (job.queue, 0, &notice),
             CHECK (code == UTOFU_ERR_NOT_FOUND ? UTOFU_SUCCESS : code));
      report ("utofu_poll_mrq.empty", least);
      /* A circuit of a gate that sends itself a signal, and of two that send each other packets. */
      utofu_vbg_id_t gates[2];
      CHECK (utofu_alloc_vbg (0, 2, 0, gates));
      struct utofu_vbg_setting one[2] = {
        { gates[0], gates[0], UTOFU_VBG_ID_NULL, gates[0], UTOFU_VBG_ID_NULL, { UTOFU_PATH_COORD_NULL, 0, 0 } },
        { gates[1], UTOFU_VBG_ID_NULL, gates[0], UTOFU_VBG_ID_NULL, gates[0], { UTOFU_PATH_COORD_NULL, 0, 0 } }
      };
      CHECK (utofu_set_vbg (one, 1));
      COUNT (least, code = utofu_barrier (gates[0], 0), CHECK (code); CHECK (utofu_poll_barrier (gates[0], 0)));
      report ("utofu_barrier", least);
      one[0].src_lcl_vbg_id = one[0].dst_lcl_vbg_id = UTOFU_VBG_ID_NULL;
      one[0].src_rmt_vbg_id = one[0].dst_rmt_vbg_id = gates[1];
      CHECK (utofu_set_vbg (one, 2));
      COUNT (least, code = utofu_barrier (gates[0], 0), CHECK (code); CHECK (utofu_poll_barrier (gates[0], 0)));
      report ("utofu_barrier+relay", least);
      COUNT (least, CHECK (utofu_barrier (gates[0], 0)); code = utofu_poll_barrier (gates[0], 0), CHECK (code));
      report ("utofu_barrier+poll", least);
      CHECK (utofu_free_vbg (gates, 2));
    }
  meet (&job);
  free_registered (&job, memory, local);
  job_end (&job);
  return 0;
}
