use super::{Ctx, Left, Pool, RESULT, Task, Verdict, work};
use crate::laws::gaspi::kit::*;

struct Segment {
    memory: Memory,
    /// Offset of the source of results.
    own: usize,
}

impl Pool for Segment {
    fn add(&mut self, rank: u32, at: usize, value: u64) -> Result<u64, String> {
        let mut before = 0;
        ok!(gaspi_atomic_fetch_add(
            0,
            at as u64,
            rank as u16,
            value,
            &mut before,
            LONG
        ));
        Ok(before)
    }

    fn deliver(&mut self, task: Task, result: &[u8]) -> Verdict {
        self.memory.store(self.own + task.at(), result);
        ok!(gaspi_write_notify(
            0,
            (self.own + task.at()) as u64,
            task.home as u16,
            0,
            task.at() as u64,
            RESULT as u64,
            task.nth as u32,
            1,
            0,
            LONG
        ));
        Ok(())
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
