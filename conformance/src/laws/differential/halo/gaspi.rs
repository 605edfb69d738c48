use super::*;
use crate::ensure_eq;
use crate::laws::gaspi::kit::*;

pub(super) fn run(ctx: &Ctx) -> Left {
    let memory = segment(0, MEMORY)?;
    let left = steps(ctx, |step, edges| {
        let id = |side| step % 2 * 2 + side;
        let value = step as u32 + 1;
        for ((peer, side), bytes) in neighbours(ctx).into_iter().zip(edges) {
            memory.store(source(step, side), bytes);
            let places = (peer, source(step, side), halo(step, side));
            announce(0, places, EDGE, (id(side), value))?;
        }
        for side in [ABOVE, BELOW] {
            ensure_eq!(notified(0, id(side) as u32)?, value, "the step of an edge");
        }
        flush(0)?;
        Ok([ABOVE, BELOW].map(|side| memory.load(halo(step, side), EDGE)))
    })?;
    barrier()?;
    Ok(left)
}
