//! A message goes from a root to all ranks down a binary tree, in pieces: who has got a piece passes it on from where it has come to
//! lie, at once. Another root in each round, so that rounds overlap. A piece that is passed on before it is whole is wrong further down.

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
/// Bytes of a piece: whole lines, as GORY programs of RCCE need them.
const PIECE: usize = 416;
/// Bytes that each rank needs, and those that are left.
const MEMORY: usize = ROUNDS * PIECES * PIECE;

/// Where a piece lies, at every rank.
fn place(piece: usize) -> usize {
    piece * PIECE
}

fn root(ctx: &Ctx, round: usize) -> u32 {
    (3 * round as u32 + 1) % ctx.size
}

/// Ranks that this one passes pieces of a round on to.
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

/// What an interface has for it; pieces are numbered through all rounds.
trait Node {
    /// Puts the root's bytes to their place here.
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

/// Pieces of later rounds, from another parent, may come before those of this one.
struct Early([bool; ROUNDS * PIECES]);

impl Early {
    fn new() -> Self {
        Early([false; ROUNDS * PIECES])
    }

    /// Waits for a piece; `poll` gives the next one that comes.
    fn until(&mut self, piece: usize, mut poll: impl FnMut() -> Result<u64, String>) -> Verdict {
        while !self.0[piece] {
            let came = poll()? as usize;
            crate::ensure!(!self.0[came], "piece {came} came a second time");
            self.0[came] = true;
        }
        Ok(())
    }
}
