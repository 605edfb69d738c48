//! §2.5: VBGs and threads.

use std::sync::atomic::{AtomicU64, Ordering};

use super::circuit::*;
use super::kit::*;

laws! {
    one_vbg with(256): "threads.one-vbg", "§2.5, §3.4.5.1", 2, [alloc_vbg, reduce_uint64, poll_reduce_uint64] + ordering,
        "threads that start and poll on one thread-safe VBG: every round is started by one, and ended by one";
    vbgs with(256): "threads.vbgs", "§2.5", 2, [alloc_vbg, barrier, poll_barrier, reduce_uint64, poll_reduce_uint64] + ordering,
        "threads use a VBG each at the same time, without a flag";
}

/// A VBG in a circuit of two: each rank signals to itself, and sends a packet to the other.
fn pair(job: &Job<'_>, tni: u16, flags: u64, at: usize) -> Result<u64, String> {
    let [id] = gates(tni, flags)?;
    job.write(job.right(), at, id)?;
    job.meet();
    let peer = job.memory.get(at);
    set_gates(&[beside(id, peer)])?;
    job.meet();
    Ok(id)
}

fn one_vbg(job: &Job<'_>) -> Verdict {
    const THREADS: usize = 3;
    let each = if job.ctx.is_quick() { 3000 } else { 100 };
    let all = each * THREADS as u64;
    let id = pair(job, TNI, THREAD_SAFE, 8)?;
    let ended = AtomicU64::new(0);
    threads(THREADS, |_| {
        let mut left = each;
        let what = format!("{all} rounds on one VBG");
        let mut try_both = || {
            if left > 0 {
                match start(id, SUM, &[1, 5]) {
                    SUCCESS => left -= 1,
                    BUSY => {}
                    code => return Err(format!("starting gave {}", code_name(code))),
                }
            }
            let mut data = [0u64; 2];
            match poll(id, SUM, &mut data) {
                SUCCESS if data == [2, 10] => drop(ended.fetch_add(1, Ordering::AcqRel)),
                SUCCESS => return Err(format!("a sum of {data:?}")),
                code if code == BUSY || code == UTOFU_ERR_NOT_COMPLETED => {}
                code => return Err(format!("polling gave {}", code_name(code))),
            }
            Ok(left == 0 && ended.load(Ordering::Acquire) >= all)
        };
        until_ok(&what, || {
            // Repeats often before it yields: the scheduler may stop a thread at any instruction.
            for _ in 0..500 {
                if try_both()? {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    })?;
    ensure_eq!(ended.into_inner(), all, "rounds that have ended");
    gives!(UTOFU_ERR_BUSY, utofu_poll_barrier(id, 0));
    job.meet();
    free_gate(id)
}

fn vbgs(job: &Job<'_>) -> Verdict {
    let mut ids = Vec::new();
    for nth in 0..3 {
        // Two on one TNI, one on another.
        ids.push(pair(job, TNI + nth as u16 / 2, 0, 8 + 8 * nth)?);
    }
    threads(3, |nth| {
        let end = ids[nth];
        for round in 0..if job.ctx.is_quick() { 200u64 } else { 50 } {
            if nth == 0 {
                one_barrier(end)?;
                continue;
            }
            let mut data = [round * nth as u64];
            reduce(end, SUM, &mut data, 1)?;
            ensure_eq!(data, [2 * round * nth as u64], "the sum of thread {nth}");
        }
        Ok(())
    })?;
    job.meet();
    for_all(&ids, |id| free_gate(*id))
}
