use super::*;
use crate::laws::core::rank::{Peers, Says, late, on_ranks, read, write};

impl Node for Peers<'_> {
    fn store(&mut self, piece: usize, bytes: &[u8]) -> Verdict {
        write(&self.rank.data, place(piece), bytes);
        Ok(())
    }

    fn come(&mut self, piece: usize) -> Verdict {
        let note = self.rank.await_note(piece, 1, late());
        note.says("a piece").map(drop)
    }

    fn pass(&mut self, piece: usize, to: u32) -> Verdict {
        // A piece does not change after its arrival.
        let at = place(piece);
        self.put_notify((&self.rank.data, at), (to, at), PIECE, (piece, 1))
    }
}

pub(super) fn run(ctx: &Ctx) -> Left {
    on_ranks(ctx, MEMORY, |rank| {
        broadcast(ctx, &mut rank.peers()?)?;
        rank.drain().says("drain")?;
        Ok(read(&rank.data, 0, MEMORY))
    })
}
