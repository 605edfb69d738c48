use std::ptr::null_mut;

use super::*;
use crate::laws::libfabric::kit::*;
use crate::laws::libfabric::station::Plan;

struct Endpoint<'a> {
    job: &'a Job<'a>,
    early: Early,
    sent: usize,
}

impl Node for Endpoint<'_> {
    fn store(&mut self, piece: usize, bytes: &[u8]) -> Verdict {
        self.job.memory.store(place(piece), bytes);
        Ok(())
    }

    fn come(&mut self, piece: usize) -> Verdict {
        let queue = self.job.rx;
        self.early.until(piece, || Ok(queue.next()?.data))
    }

    fn pass(&mut self, piece: usize, to: u32) -> Verdict {
        let job = self.job;
        let (from, data) = (job.memory.at(place(piece)).cast(), piece as u64);
        let (to, addr, key) = job.place(to, place(piece));
        job.post(|| {
            call!(rma job.ep, writedata(from, PIECE, null_mut(), data, to, addr, key, cx(piece)))
        })?;
        self.sent += 1;
        Ok(())
    }
}

pub(super) fn run(ctx: &Ctx) -> Left {
    with(ctx, &Plan::DEFAULT, MEMORY, |job| {
        let mut node = Endpoint {
            job,
            early: Early::new(),
            sent: 0,
        };
        broadcast(ctx, &mut node)?;
        for _ in 0..node.sent {
            job.tx.next()?;
        }
        let left = job.memory.load(0, MEMORY);
        job.rx.is_empty().map(|()| left)
    })
}
