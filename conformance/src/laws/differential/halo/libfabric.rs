use std::ptr::null_mut;

use super::*;
use crate::laws::libfabric::kit::*;
use crate::laws::libfabric::station::Plan;

pub(super) fn run(ctx: &Ctx) -> Left {
    with(ctx, &Plan::DEFAULT, MEMORY, |job| {
        let mut arrivals = Arrivals::default();
        let left = steps(ctx, |step, edges| {
            for ((peer, side), bytes) in neighbours(ctx).into_iter().zip(edges) {
                job.memory.store(source(step, side), bytes);
                let (to, addr, key) = job.place(peer, halo(step, side));
                let from = job.memory.at(source(step, side)).cast();
                let data = (step << 1 | side) as u64;
                job.post(|| {
                    call!(rma job.ep, writedata(from, EDGE, null_mut(), data, to, addr, key, cx(side)))
                })?;
            }
            both(&mut arrivals, step, || {
                let data = job.rx.next()?.data as usize;
                Ok((data >> 1, data & 1))
            })?;
            for _ in edges {
                job.tx.next()?;
            }
            Ok([ABOVE, BELOW].map(|side| job.memory.load(halo(step, side), EDGE)))
        })?;
        job.rx.is_empty().map(|()| left)
    })
}
