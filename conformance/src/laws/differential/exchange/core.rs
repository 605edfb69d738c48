use unipgas_core::{Flags, Notice, Remote, RemoteRegion};

use super::*;
use crate::laws::core::rank::{Rank, Says, late, on_ranks, read, write};

struct Endpoint<'a> {
    rank: &'a Rank<'a>,
    data: Vec<RemoteRegion>,
    notes: Vec<RemoteRegion>,
}

impl Mesh for Endpoint<'_> {
    fn send(&mut self, round: usize, to: u32, block: &[u8]) -> Verdict {
        let ctx = self.rank.ctx;
        write(&self.rank.scratch, source(ctx, round, to), block);
        let from = self.rank.scratch.local(source(ctx, round, to), block.len());
        let dst = Remote {
            region: &self.data[to as usize],
            offset: place(ctx, round, ctx.rank),
        };
        let slot = Remote {
            region: &self.notes[to as usize],
            offset: 4 * place(ctx, round, ctx.rank) / PLACE,
        };
        let value = block.len() as u32;
        // SAFETY:
        // - in bounds of the scratch region; drained before the bytes change.
        unsafe {
            self.rank.endpoint.put_notify(
                from.says("a block")?,
                dst,
                block.len(),
                Notice { slot, value },
                Flags::empty(),
                0,
            )
        }
        .says("put_notify")?;
        Ok(())
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
    let mut left = Vec::new();
    on_ranks(ctx, memory(ctx), |rank| {
        let all = 0..ctx.size;
        left = rounds(
            ctx,
            &mut Endpoint {
                rank,
                data: all.clone().map(|r| rank.data_of(r)).collect::<Result<_, _>>()?,
                notes: all.map(|r| rank.notes_of(r)).collect::<Result<_, _>>()?,
            },
        )?;
        Ok(())
    })?;
    Ok(left)
}
