use super::*;
use crate::ensure_eq;
use crate::laws::core::rank::{Says, late, on_ranks, read, write};

pub(super) fn run(ctx: &Ctx) -> Left {
    on_ranks(ctx, MEMORY, |rank| {
        let peers = rank.peers()?;
        steps(ctx, |step, edges| {
            let id = |side| step % 2 * 2 + side;
            for ((peer, side), bytes) in neighbours(ctx).into_iter().zip(edges) {
                write(&rank.scratch, source(step, side), bytes);
                let (from, to) = (source(step, side), (peer, halo(step, side)));
                let note = (id(side), step as u32 + 1);
                peers.put_notify((&rank.scratch, from), to, EDGE, note)?;
            }
            for side in [ABOVE, BELOW] {
                let (_, value) = rank.await_note(id(side), 1, late()).says("an edge")?;
                ensure_eq!(value, step as u32 + 1, "the step of an edge");
            }
            rank.drain().says("drain")?;
            Ok([ABOVE, BELOW].map(|side| read(&rank.data, halo(step, side), EDGE)))
        })
    })
}
