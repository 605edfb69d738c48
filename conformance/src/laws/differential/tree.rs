//! A root sends a message to all ranks down a binary tree, in pieces. A rank passes a piece on at once, from the place of its arrival.
//! Each round has another root, so that rounds overlap. A piece passed on before it is complete is wrong further down.

use super::{Left, scenario};
use crate::law::{Ctx, Verdict};

scenario! {
    "tree", "a message that is passed on piece by piece down a tree is the root's at every rank";
    Core by core: "unipgas core: Channel::put_notify", [];
    Gaspi by gaspi: "GASPI 17.1 §8.4.1", ["gaspi_write_notify", "gaspi_notify_waitsome"];
    Utofu by utofu: "uTofu §2.2.4", ["utofu_put", "utofu_poll_mrq"];
    Rcce by rcce: "RCCE RCCE_flag_write", ["RCCE_put", "RCCE_get", "RCCE_flag_alloc", "RCCE_flag_write", "RCCE_wait_until"];
    Libfabric by libfabric: "fi_rma(3)", ["fi_writedata"];
}

const ROUNDS: usize = 4;
const PIECES: usize = 4;
/// Bytes of a piece: whole lines, for GORY programs of RCCE.
const PIECE: usize = 416;
/// Bytes that each rank needs, and leaves at the end.
const MEMORY: usize = ROUNDS * PIECES * PIECE;

/// Offset of a piece, at every rank.
fn place(piece: usize) -> usize {
    piece * PIECE
}

fn root(ctx: &Ctx, round: usize) -> u32 {
    (3 * round as u32 + 1) % ctx.size
}

/// Ranks that get the pieces of a round from this one.
fn children(ctx: &Ctx, round: usize) -> Vec<u32> {
    let root = root(ctx, round);
    let nth = (ctx.rank + ctx.size - root) % ctx.size;
    [2 * nth + 1, 2 * nth + 2]
        .into_iter()
        .filter(|child| *child < ctx.size)
        .map(|child| (child + root) % ctx.size)
        .collect()
}

fn reference(ctx: &Ctx) -> Vec<u8> {
    crate::kit::bytes_of(ctx, 0x7472_6565, MEMORY)
}

/// Operations of an interface in this scenario. Pieces are numbered through all rounds.
trait Node {
    /// Stores a piece of the root in its place.
    fn store(&mut self, piece: usize, bytes: &[u8]) -> Verdict;
    /// Waits until a piece is here.
    fn come(&mut self, piece: usize) -> Verdict;
    /// Passes a piece on.
    fn pass(&mut self, piece: usize, to: u32) -> Verdict;
}

fn broadcast(ctx: &Ctx, node: &mut impl Node) -> Verdict {
    let message = reference(ctx);
    for round in 0..ROUNDS {
        let children = children(ctx, round);
        for piece in round * PIECES..(round + 1) * PIECES {
            if root(ctx, round) == ctx.rank {
                node.store(piece, &message[place(piece)..][..PIECE])?;
            } else {
                node.come(piece)?;
            }
            for child in &children {
                node.pass(piece, *child)?;
            }
        }
    }
    Ok(())
}

/// Pieces that have arrived. Later rounds have another parent, so their pieces may arrive early.
struct Early([bool; ROUNDS * PIECES]);

impl Early {
    fn new() -> Self {
        Early([false; ROUNDS * PIECES])
    }

    /// Waits for a piece. `poll` returns the next arrival.
    fn until(&mut self, piece: usize, mut poll: impl FnMut() -> Result<u64, String>) -> Verdict {
        while !self.0[piece] {
            let came = poll()? as usize;
            crate::ensure!(!self.0[came], "piece {came} came a second time");
            self.0[came] = true;
        }
        Ok(())
    }
}
