use super::*;
use crate::laws::utofu::kit::*;

pub(super) fn run(ctx: &Ctx) -> Left {
    let mut left = Vec::new();
    with(ctx, MEMORY, |job| {
        let mut arrivals = Arrivals::default();
        left = steps(ctx, |step, edges| {
            for ((peer, side), bytes) in neighbours(ctx).into_iter().zip(edges) {
                job.memory.store(source(step, side), bytes);
                let (vcq, to) = (job.vcq(peer), job.at(peer, halo(step, side)));
                let edata = (step << 1 | side) as u64;
                post::put(job.hdl, vcq, job.stadd + source(step, side) as u64, to, EDGE).ok(edata, TCQ | REMOTE, side)?;
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
        job.queue.mrq_is_empty()
    })?;
    Ok(left)
}
