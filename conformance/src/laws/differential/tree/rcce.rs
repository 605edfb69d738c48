use std::ffi::c_int;

use super::*;
use crate::laws::rcce::kit::*;

/// Pieces are in MPBs, and a flag announces each piece.
struct Mpb {
    me: c_int,
    area: *mut u8,
    flags: Vec<*mut i32>,
}

impl Mpb {
    fn piece(&self, piece: usize) -> Result<[u8; PIECE], String> {
        let mut bytes = [0; PIECE];
        let from = self.area.wrapping_add(super::place(piece));
        ok!(RCCE_get(bytes.as_mut_ptr(), from, PIECE as c_int, self.me));
        Ok(bytes)
    }

    fn put(&self, piece: usize, bytes: &[u8], ue: c_int) -> Verdict {
        let to = self.area.wrapping_add(super::place(piece));
        let from = bytes.as_ptr().cast_mut();
        ok!(RCCE_put(to, from, PIECE as c_int, ue));
        Ok(())
    }
}

impl Node for Mpb {
    fn store(&mut self, piece: usize, bytes: &[u8]) -> Verdict {
        self.put(piece, bytes, self.me)
    }

    fn come(&mut self, piece: usize) -> Verdict {
        ok!(RCCE_wait_until(self.flags[piece], 1));
        Ok(())
    }

    fn pass(&mut self, piece: usize, to: u32) -> Verdict {
        let bytes = self.piece(piece)?;
        self.put(piece, &bytes, to as c_int)?;
        ok!(RCCE_flag_write(&mut { self.flags[piece] }, 1, to as c_int));
        Ok(())
    }
}

pub(super) fn run(ctx: &Ctx) -> Left {
    let mut node = Mpb {
        me: ctx.rank as c_int,
        area: c!(iRCCE_malloc(MEMORY)),
        flags: (0..ROUNDS * PIECES)
            .map(|_| new_flag())
            .collect::<Result<_, _>>()?,
    };
    crate::ensure!(!node.area.is_null(), "no room in the MPB");
    barrier()?;
    broadcast(ctx, &mut node)?;
    barrier()?;
    let mut left = Vec::new();
    for piece in 0..ROUNDS * PIECES {
        left.extend(node.piece(piece)?);
    }
    Ok(left)
}
