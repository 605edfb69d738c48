use super::*;
use crate::laws::utofu::kit::*;

pub(super) fn run(ctx: &Ctx) -> Left {
    with(ctx, MEMORY, |job| {
        let mut arrivals = Arrivals::default();
        let left = steps(ctx, |step, edges| {
            for ((peer, side), bytes) in neighbours(ctx).into_iter().zip(edges) {
                job.memory.store(source(step, side), bytes);
                let put = job.put(peer, source(step, side), halo(step, side), EDGE);
                put.ok((step << 1 | side) as u64, TCQ | REMOTE, side)?;
            }
            both(&mut arrivals, step, || {
                let edata = job.queue.notice(RMT_PUT)?.edata as usize;
                Ok((edata >> 1, edata & 1))
            })?;
            for _ in edges {
                job.queue.tcq()?;
            }
            Ok([ABOVE, BELOW].map(|side| job.memory.load(halo(step, side), EDGE)))
        })?;
        job.queue.mrq_is_empty().map(|()| left)
    })
}
