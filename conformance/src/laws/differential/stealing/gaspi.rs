use super::{Ctx, Left, Pool, RESULT, Task, Verdict, work};
use crate::laws::gaspi::kit::*;

struct Segment {
    memory: Memory,
    /// Offset of the source of results.
    own: usize,
}

impl Pool for Segment {
    fn add(&mut self, rank: u32, at: usize, value: u64) -> Result<u64, String> {
        add(0, at as u64, rank as u16, value)
    }

    fn deliver(&mut self, task: Task, result: &[u8]) -> Verdict {
        self.memory.store(self.own + task.at(), result);
        let places = (task.home, self.own + task.at(), task.at());
        announce(0, places, RESULT, (task.nth, 1))
    }

    fn finish(&mut self, here: &[usize]) -> Verdict {
        for nth in here {
            notified(0, *nth as u32)?;
        }
        flush(0)
    }
}

pub(super) fn run(ctx: &Ctx) -> Left {
    let own = super::memory(ctx);
    let mut pool = Segment {
        memory: segment(0, 2 * own)?,
        own,
    };
    work(ctx, &mut pool)?;
    barrier()?;
    Ok(pool.memory.load(0, own))
}
