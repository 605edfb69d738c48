//! §3.7: queues that are full on all sides at once, towards a process that does nothing, and towards a process that dies.

use super::kit::*;
use super::tcq::fill;
use crate::kit::{last_stops_for_a_while, stop_until_killed};

laws! {
    flood given((|_| Ok(())) as Before): "full-queue.both-sides", "§3.7, §3.7.4.1", 2, [armw8, put, poll_tcq] + ordering,
        "two processes that flood each other until BUSY, again and again, get every entry of the TCQ once, and every command is done once";
    flood given(last_stops_for_a_while as Before): "full-queue.stopped", "§3.7, §3.7.4.1", 2, [armw8, put, poll_tcq],
        "so do processes of which one is stopped meanwhile: BUSY, never an error";
    death with(4096): "full-queue.death", "§3.7, §3.1.2.1", 3, [put, poll_tcq, poll_mrq] + needs_kill,
        "a process dies to which a queue is full: each command ends, with MRQ_PEER at last, and those to others go on";
}

const PEER: i32 = UTOFU_ERR_MRQ_PEER;
const ROUNDS: usize = 3;
/// A put of this length is neither short nor inline.
const LONG: usize = 2000;

/// The step of each rank before the flood.
type Before = fn(&Ctx) -> Verdict;

fn flood(ctx: &Ctx, before: Before) -> Verdict {
    with(ctx, 3 * 4096, |job| {
        let peer = job.right();
        job.memory.fill_range(8192, LONG, 1 + job.rank as u8);
        job.meet();
        before(ctx)?;
        let mut adds = 0u64;
        for _ in 0..ROUNDS {
            let posted = fill(|nth| match nth % 8 {
                0 => job.put(peer, 8192, 4096, LONG).code(0, TCQ, nth),
                _ => job.armw8(peer, 0, ADD, 1).code(0, TCQ, nth),
            })?;
            adds += (posted - posted / 8) as u64;
            ensure!(posted > 8, "BUSY after {posted} commands");
            job.queue.completes(1..=posted)?;
            job.queue.tcq_is_empty()?;
        }
        // Ordered behind all the others.
        let put = job.put8(peer, 8, adds);
        job.queue.post(|| put.code(0, STRONG_ORDER | LOCAL, 0))?;
        job.queue.notice(LCL_PUT)?;
        job.meet();
        let theirs = job.memory.get(8);
        job.sum_arrives(theirs)?;
        let value = 1 + job.left() as u8;
        job.memory.all(4096, LONG, value, "the put")?;
        job.queue.mrq_is_empty()
    })
}

fn death(job: &Job<'_>) -> Verdict {
    let victim = job.size - 1;
    if job.rank == victim {
        return stop_until_killed(job.ctx);
    }
    let other = 1 - job.rank;
    let vcq = job.vcq(victim);
    let flags = TCQ | LOCAL;
    let put = |nth: usize| job.put(victim, 2048, 0, LONG).code(0, flags, nth);
    let posted = fill(put)?;
    ensure!(posted > 8, "no room after {posted} commands");
    // Each command has a TCQ entry; its MRQ entry is a success or reports the death.
    for_all(1..=posted, |expected| {
        equal!(job.queue.next_tcq()?.1, expected, "cbdata")
    })?;
    for nth in 1..=posted {
        let (code, notice) = job.queue.next_mrq()?;
        one_of(code, &[SUCCESS, PEER], format!("command {nth} of {posted}"))?;
        let right = code == PEER || notice.notice_type == LCL_PUT;
        ensure!(right, "command {nth} of {posted}: {notice:?}");
        ensure_eq!(notice.vcq_id, vcq, "the VCQ of the notice");
    }
    until_ok("MRQ_PEER", || {
        job.queue.post(|| put(1))?;
        Ok(job.queue.next_mrq()?.0 == PEER)
    })?;
    // The death affects no other peer.
    for nth in 1..=300u64 {
        let (vcq, put) = (job.vcq(other), job.put8(other, 8, nth));
        job.queue.post(|| put.code(0, LOCAL, 0))?;
        loop {
            let (code, notice) = job.queue.next_mrq()?;
            if notice.vcq_id == vcq {
                ensure_eq!(code, SUCCESS, "a command to the living");
                break;
            }
        }
    }
    job.await_word(8, 300)
}
