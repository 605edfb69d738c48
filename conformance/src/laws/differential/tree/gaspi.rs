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
        ok!(gaspi_write_notify(
            0,
            place(piece) as u64,
            to as u16,
            0,
            place(piece) as u64,
            PIECE as u64,
            piece as u32,
            1,
            (piece % 2) as u8,
            LONG
        ));
        Ok(())
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
