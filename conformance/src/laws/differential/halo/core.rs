use unipgas_core::{Flags, Notice, Remote};

use super::*;
use crate::ensure_eq;
use crate::laws::core::rank::{Says, late, on_ranks, read, write};

pub(super) fn run(ctx: &Ctx) -> Left {
    let mut left = Vec::new();
    on_ranks(ctx, MEMORY, |rank| {
        let peers = neighbours(ctx)
            .map(|(peer, side)| Ok((rank.data_of(peer)?, rank.notes_of(peer)?, side)));
        let peers = peers.into_iter().collect::<Result<Vec<_>, String>>()?;
        left = steps(ctx, |step, edges| {
            let id = |side| step % 2 * 2 + side;
            for ((data, notes, side), bytes) in peers.iter().zip(edges) {
                write(&rank.scratch, source(step, *side), bytes);
                let from = rank
                    .scratch
                    .local(source(step, *side), EDGE)
                    .says("the edge")?;
                let to = Remote {
                    region: data,
                    offset: halo(step, *side),
                };
                let slot = Remote {
                    region: notes,
                    offset: 4 * id(*side),
                };
                let value = step as u32 + 1;
                // SAFETY:
                // - in bounds of the scratch region; drained before the bytes change.
                unsafe {
                    rank.endpoint.put_notify(
                        from,
                        to,
                        EDGE,
                        Notice { slot, value },
                        Flags::empty(),
                        0,
                    )
                }
                .says("put_notify")?;
            }
            for side in [ABOVE, BELOW] {
                let (_, value) = rank.await_note(id(side), 1, late()).says("an edge")?;
                ensure_eq!(value, step as u32 + 1, "the step of an edge");
            }
            rank.drain().says("drain")?;
            Ok([ABOVE, BELOW].map(|side| read(&rank.data, halo(step, side), EDGE)))
        })?;
        Ok(())
    })?;
    Ok(left)
}
