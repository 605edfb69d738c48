use super::*;
use crate::laws::utofu::kit::*;

struct Vcq<'a> {
    job: &'a Job<'a>,
    early: Early,
    sent: usize,
}

impl Node for Vcq<'_> {
    fn store(&mut self, piece: usize, bytes: &[u8]) -> Verdict {
        self.job.memory.store(place(piece), bytes);
        Ok(())
    }

    fn come(&mut self, piece: usize) -> Verdict {
        let queue = self.job.queue;
        self.early
            .until(piece, || Ok(queue.notice(RMT_PUT)?.edata))
    }

    fn pass(&mut self, piece: usize, to: u32) -> Verdict {
        let put = self.job.put(to, place(piece), place(piece), PIECE);
        put.ok(piece as u64, TCQ | REMOTE, piece)?;
        self.sent += 1;
        Ok(())
    }
}

pub(super) fn run(ctx: &Ctx) -> Left {
    with(ctx, MEMORY, |job| {
        let mut node = Vcq {
            job,
            early: Early::new(),
            sent: 0,
        };
        broadcast(ctx, &mut node)?;
        for _ in 0..node.sent {
            job.queue.tcq()?;
        }
        let left = job.memory.load(0, MEMORY);
        job.queue.mrq_is_empty().map(|()| left)
    })
}
