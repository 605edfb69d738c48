use super::*;
use crate::ensure_eq;
use crate::laws::gaspi::kit::*;

pub(super) fn run(ctx: &Ctx) -> Left {
    let memory = segment(0, MEMORY)?;
    let left = steps(ctx, |step, edges| {
        let id = |side| (step % 2 * 2 + side) as u32;
        let value = step as u32 + 1;
        for ((peer, side), bytes) in neighbours(ctx).into_iter().zip(edges) {
            memory.store(source(step, side), bytes);
            ok!(gaspi_write_notify(
                0,
                source(step, side) as u64,
                peer as u16,
                0,
                halo(step, side) as u64,
                EDGE as u64,
                id(side),
                value,
                0,
                LONG
            ));
        }
        for side in [ABOVE, BELOW] {
            ensure_eq!(notified(0, id(side))?, value, "the step of an edge");
        }
        flush(0)?;
        Ok([ABOVE, BELOW].map(|side| memory.load(halo(step, side), EDGE)))
    })?;
    barrier()?;
    Ok(left)
}
