use std::ptr::null_mut;

use super::*;
use crate::laws::libfabric::kit::*;
use crate::laws::libfabric::station::Plan;

/// Context of atomic operations; puts have smaller ones.
const FETCH: usize = 1 << 16;

struct Endpoint<'a> {
    job: &'a Job<'a>,
    /// Offset of the source of results.
    own: usize,
    sent: usize,
}

impl Endpoint<'_> {
    /// The context of the next completion.
    fn ended(&mut self) -> Result<usize, String> {
        let context = self.job.tx.next()?.op_context.addr();
        self.sent -= usize::from(context != FETCH);
        Ok(context)
    }
}

impl Pool for Endpoint<'_> {
    fn add(&mut self, rank: u32, at: usize, value: u64) -> Result<u64, String> {
        let (to, addr, key) = self.job.place(rank, at);
        let (job, mut before) = (self.job, 0u64);
        let (operand, result) = ((&raw const value).cast(), (&raw mut before).cast());
        job.post(|| {
            call!(atomic job.ep, readwrite(operand, 1, null_mut(), result, null_mut(), to, addr, key, UINT64, SUM, cx(FETCH)))
        })?;
        while self.ended()? != FETCH {}
        // SAFETY:
        // - a plain local; the operation has written it through a pointer.
        Ok(unsafe { (&raw const before).read_volatile() })
    }

    fn deliver(&mut self, task: Task, result: &[u8]) -> Verdict {
        let job = self.job;
        job.memory.store(self.own + task.at(), result);
        let from = job.memory.at(self.own + task.at()).cast();
        let (to, addr, key) = job.place(task.home, task.at());
        job.post(|| {
            call!(rma job.ep, writedata(from, RESULT, null_mut(), task.nth as u64, to, addr, key, cx(task.nth)))
        })?;
        self.sent += 1;
        Ok(())
    }

    fn finish(&mut self, here: &[usize]) -> Verdict {
        let mut come = Vec::new();
        for _ in here {
            come.push(self.job.rx.next()?.data as usize);
        }
        come.sort_unstable();
        crate::ensure_eq!(come, here, "the results that came");
        while self.sent > 0 {
            self.ended()?;
        }
        Ok(())
    }
}

pub(super) fn run(ctx: &Ctx) -> Left {
    let own = memory(ctx);
    with(ctx, &Plan::DEFAULT, 2 * own, |job| {
        work(ctx, &mut Endpoint { job, own, sent: 0 })?;
        job.meet();
        let left = job.memory.load(0, own);
        job.rx.is_empty().map(|()| left)
    })
}
