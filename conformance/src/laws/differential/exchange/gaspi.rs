use super::*;
use crate::laws::gaspi::kit::{LONG, Memory, announce, barrier, c, flush, notified, ok, segment};

struct Segment<'a> {
    ctx: &'a Ctx,
    memory: Memory,
}

impl Mesh for Segment<'_> {
    fn send(&mut self, round: usize, to: u32, block: &[u8]) -> Verdict {
        let ctx = self.ctx;
        let there = place(ctx, round, ctx.rank);
        self.memory.store(source(ctx, round, to), block);
        let (places, len) = ((to, source(ctx, round, to), there), block.len());
        announce((to % 3) as u8, places, len, (there / PLACE, len as u32))
    }

    fn come(&mut self, round: usize) -> Result<(u32, usize), String> {
        let (size, mut id) = (self.ctx.size, 0);
        let first = (round % 2) as u32 * size;
        ok!(gaspi_notify_waitsome(0, first, size, &mut id, LONG));
        let len = notified(0, id)?;
        Ok((id - first, len as usize))
    }

    fn load(&self, at: usize, len: usize) -> Vec<u8> {
        self.memory.load(at, len)
    }

    fn gone(&mut self) -> Verdict {
        (0..3).try_for_each(flush)
    }
}

pub(super) fn run(ctx: &Ctx) -> Left {
    let memory = segment(0, memory(ctx))?;
    let left = rounds(ctx, &mut Segment { ctx, memory })?;
    barrier()?;
    Ok(left)
}
