use std::ptr::null_mut;

use super::*;
use crate::laws::libfabric::job::{Job, with};
use crate::laws::libfabric::kit::{call, cx};
use crate::laws::libfabric::station::Plan;

struct Endpoint<'a> {
    job: &'a Job<'a>,
    sent: usize,
    arrivals: Arrivals,
}

impl Mesh for Endpoint<'_> {
    fn send(&mut self, round: usize, to: u32, block: &[u8]) -> Verdict {
        let (job, ctx) = (self.job, self.job.ctx);
        let from = source(ctx, round, to);
        job.memory.store(from, block);
        let (from, data) = (job.memory.at(from).cast(), number(round, ctx.rank));
        let (to, addr, key) = job.place(to, place(ctx, round, ctx.rank));
        job.post(|| {
            call!(rma job.ep, writedata(from, block.len(), null_mut(), data, to, addr, key, cx(round)))
        })?;
        self.sent += 1;
        Ok(())
    }

    fn come(&mut self, round: usize) -> Result<(u32, usize), String> {
        let queue = self.job.rx;
        sender(self.job.ctx, &mut self.arrivals, round, || Ok(queue.next()?.data))
    }

    fn load(&self, at: usize, len: usize) -> Vec<u8> {
        self.job.memory.load(at, len)
    }

    fn gone(&mut self) -> Verdict {
        for _ in 0..std::mem::take(&mut self.sent) {
            self.job.tx.next()?;
        }
        Ok(())
    }
}

pub(super) fn run(ctx: &Ctx) -> Left {
    with(ctx, &Plan::DEFAULT, memory(ctx), |job| {
        let mut mesh = Endpoint {
            job,
            sent: 0,
            arrivals: Arrivals::default(),
        };
        let left = rounds(ctx, &mut mesh)?;
        job.rx.is_empty().map(|()| left)
    })
}
