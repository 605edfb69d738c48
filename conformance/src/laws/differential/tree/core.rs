use unipgas_core::{Flags, Notice, Remote, RemoteRegion};

use super::*;
use crate::laws::core::rank::{Rank, Says, late, on_ranks, read, write};

/// A rank that sends from its region.
struct Endpoint<'a> {
    rank: &'a Rank<'a>,
    data: Vec<RemoteRegion>,
    notes: Vec<RemoteRegion>,
}

impl Node for Endpoint<'_> {
    fn store(&mut self, piece: usize, bytes: &[u8]) -> Verdict {
        write(&self.rank.data, place(piece), bytes);
        Ok(())
    }

    fn come(&mut self, piece: usize) -> Verdict {
        let note = self.rank.await_note(piece, 1, late());
        note.says("a piece").map(drop)
    }

    fn pass(&mut self, piece: usize, to: u32) -> Verdict {
        let from = self.rank.data.local(place(piece), PIECE).says("a piece")?;
        let dst = Remote {
            region: &self.data[to as usize],
            offset: place(piece),
        };
        let slot = Remote {
            region: &self.notes[to as usize],
            offset: 4 * piece,
        };
        // SAFETY:
        // - in bounds of the region. A piece does not change after its arrival, and the drain comes before the region's end.
        unsafe {
            self.rank.endpoint.put_notify(
                from,
                dst,
                PIECE,
                Notice { slot, value: 1 },
                Flags::empty(),
                0,
            )
        }
        .says("put_notify")?;
        Ok(())
    }
}

pub(super) fn run(ctx: &Ctx) -> Left {
    let mut left = Vec::new();
    on_ranks(ctx, MEMORY, |rank| {
        let all = 0..ctx.size;
        let mut node = Endpoint {
            rank,
            data: all.clone().map(|r| rank.data_of(r)).collect::<Result<_, _>>()?,
            notes: all.map(|r| rank.notes_of(r)).collect::<Result<_, _>>()?,
        };
        broadcast(ctx, &mut node)?;
        rank.drain().says("drain")?;
        left = read(&rank.data, 0, MEMORY);
        Ok(())
    })?;
    Ok(left)
}
