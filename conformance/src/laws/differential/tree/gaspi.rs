use super::*;
use crate::laws::gaspi::kit::*;

struct Segment(Memory);

impl Node for Segment {
    fn store(&mut self, piece: usize, bytes: &[u8]) -> Verdict {
        self.0.store(place(piece), bytes);
        Ok(())
    }

    fn come(&mut self, piece: usize) -> Verdict {
        notified(0, piece as u32).map(drop)
    }

    fn pass(&mut self, piece: usize, to: u32) -> Verdict {
        let places = (to, place(piece), place(piece));
        announce((piece % 2) as u8, places, PIECE, (piece, 1))
    }
}

pub(super) fn run(ctx: &Ctx) -> Left {
    let mut node = Segment(segment(0, MEMORY)?);
    broadcast(ctx, &mut node)?;
    flush(0)?;
    flush(1)?;
    barrier()?;
    Ok(node.0.load(0, MEMORY))
}
