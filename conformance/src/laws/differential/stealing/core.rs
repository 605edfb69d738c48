use unipgas_core::{Flags, Notice, Remote, RemoteRegion};

use super::*;
use crate::laws::core::rank::{Rank, Says, late, on_ranks, read, write};

struct Endpoint<'a> {
    rank: &'a Rank<'a>,
    data: Vec<RemoteRegion>,
    notes: Vec<RemoteRegion>,
}

impl Pool for Endpoint<'_> {
    fn add(&mut self, rank: u32, at: usize, value: u64) -> Result<u64, String> {
        let dst = Remote {
            region: &self.data[rank as usize],
            offset: at,
        };
        self.rank
            .endpoint
            .fetch_add(self.rank.engine(), dst, value)
            .says("fetch_add")
    }

    fn deliver(&mut self, task: Task, result: &[u8]) -> Verdict {
        let at = task.at();
        write(&self.rank.scratch, at, result);
        let from = self.rank.scratch.local(at, RESULT).says("a result")?;
        let to = Remote {
            region: &self.data[task.home as usize],
            offset: at,
        };
        let slot = Remote {
            region: &self.notes[task.home as usize],
            offset: 4 * task.nth,
        };
        // SAFETY:
        // - in bounds of the scratch region; each task has its place there.
        unsafe {
            self.rank.endpoint.put_notify(
                from,
                to,
                RESULT,
                Notice { slot, value: 1 },
                Flags::empty(),
                0,
            )
        }
        .says("put_notify")?;
        Ok(())
    }

    fn finish(&mut self, here: &[usize]) -> Verdict {
        for nth in here {
            self.rank.await_note(*nth, 1, late()).says("a result")?;
        }
        self.rank.drain().says("drain")
    }
}

pub(super) fn run(ctx: &Ctx) -> Left {
    let mut left = Vec::new();
    on_ranks(ctx, memory(ctx), |rank| {
        let all = 0..ctx.size;
        let mut pool = Endpoint {
            rank,
            data: all.clone().map(|r| rank.data_of(r)).collect::<Result<_, _>>()?,
            notes: all.map(|r| rank.notes_of(r)).collect::<Result<_, _>>()?,
        };
        work(ctx, &mut pool)?;
        ctx.sync();
        left = read(&rank.data, 0, memory(ctx));
        Ok(())
    })?;
    Ok(left)
}
