use super::*;
use crate::laws::core::rank::{Peers, Says, late, on_ranks, read, remote, write};

impl Pool for Peers<'_> {
    fn add(&mut self, rank: u32, at: usize, value: u64) -> Result<u64, String> {
        let dst = remote(&self.data[rank as usize], at);
        self.rank.fetch_add(dst, value).says("fetch_add")
    }

    fn deliver(&mut self, task: Task, result: &[u8]) -> Verdict {
        let at = task.at();
        write(&self.rank.scratch, at, result);
        let from = (&self.rank.scratch, at);
        self.put_notify(from, (task.home, at), RESULT, (task.nth, 1))
    }

    fn finish(&mut self, here: &[usize]) -> Verdict {
        for nth in here {
            self.rank.await_note(*nth, 1, late()).says("a result")?;
        }
        self.rank.drain().says("drain")
    }
}

pub(super) fn run(ctx: &Ctx) -> Left {
    on_ranks(ctx, memory(ctx), |rank| {
        work(ctx, &mut rank.peers()?)?;
        ctx.sync();
        Ok(read(&rank.data, 0, memory(ctx)))
    })
}
