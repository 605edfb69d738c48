use super::*;
use crate::laws::utofu::kit::{Job, REMOTE, RMT_PUT, TCQ, with};

struct Vcq<'a> {
    job: &'a Job<'a>,
    sent: usize,
    arrivals: Arrivals,
}

impl Mesh for Vcq<'_> {
    fn send(&mut self, round: usize, to: u32, block: &[u8]) -> Verdict {
        let (job, ctx) = (self.job, self.job.ctx);
        let from = source(ctx, round, to);
        job.memory.store(from, block);
        let put = job.put(to, from, place(ctx, round, ctx.rank), block.len());
        put.ok(number(round, ctx.rank), TCQ | REMOTE, 0)?;
        self.sent += 1;
        Ok(())
    }

    fn come(&mut self, round: usize) -> Result<(u32, usize), String> {
        let queue = self.job.queue;
        sender(self.job.ctx, &mut self.arrivals, round, || {
            Ok(queue.notice(RMT_PUT)?.edata)
        })
    }

    fn load(&self, at: usize, len: usize) -> Vec<u8> {
        self.job.memory.load(at, len)
    }

    fn gone(&mut self) -> Verdict {
        for _ in 0..std::mem::take(&mut self.sent) {
            self.job.queue.tcq()?;
        }
        Ok(())
    }
}

pub(super) fn run(ctx: &Ctx) -> Left {
    with(ctx, memory(ctx), |job| {
        let mut mesh = Vcq {
            job,
            sent: 0,
            arrivals: Arrivals::default(),
        };
        let left = rounds(ctx, &mut mesh)?;
        job.queue.mrq_is_empty().map(|()| left)
    })
}
