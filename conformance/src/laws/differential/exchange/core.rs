use super::*;
use crate::laws::core::rank::{Peers, Says, late, on_ranks, read, write};

impl Mesh for Peers<'_> {
    fn send(&mut self, round: usize, to: u32, block: &[u8]) -> Verdict {
        let ctx = self.rank.ctx;
        write(&self.rank.scratch, source(ctx, round, to), block);
        let (from, at) = (source(ctx, round, to), place(ctx, round, ctx.rank));
        let (from, len) = ((&self.rank.scratch, from), block.len());
        self.put_notify(from, (to, at), len, (at / PLACE, len as u32))
    }

    fn come(&mut self, round: usize) -> Result<(u32, usize), String> {
        let size = self.rank.ctx.size as usize;
        let first = round % 2 * size;
        let (nth, len) = self.rank.await_note(first, size, late()).says("a block")?;
        Ok(((nth - first) as u32, len as usize))
    }

    fn load(&self, at: usize, len: usize) -> Vec<u8> {
        read(&self.rank.data, at, len)
    }

    fn gone(&mut self) -> Verdict {
        self.rank.drain().says("drain")
    }
}

pub(super) fn run(ctx: &Ctx) -> Left {
    on_ranks(ctx, memory(ctx), |rank| rounds(ctx, &mut rank.peers()?))
}
