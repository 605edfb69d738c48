//! Atomics on tagged receive buffers (fi_atomic(3), FI_TAGGED).

use super::death::{WAITS, survived, victim, victim_dies_after, waited};
use super::kit::*;
use super::tagged::{trecv, tsend};

laws! {
    counted with(&Plan::DEFAULT, 256): "atomic.tagged.count", "fi_atomic(3) §5", 3, [atomicmsg, fetch_atomicmsg, trecv] + ordering,
        "each takes the first receive with an equal tag, which then ends; additions of all peers are counted, and each fetches another value";
    matched with(&Plan::DEFAULT, 256):
        "atomic.tagged.match", "fi_atomic(3) §5", 2, [fetch_atomicmsg, compare_atomicmsg, tsend, trecv] + ordering,
        "the key is the tag, the address an offset in the buffer; receives may come before and after, messages go between";
    failing with(&Plan::DEFAULT, 256): "atomic.tagged.errors", "fi_atomic(3) §5, §7", 2, [atomicmsg, trecv, cq_readerr],
        "outside of the buffer, or not aligned, it is a failure on both sides, and the buffer is as it was; too many elements are refused";
    dead survived(&WAITS): "atomic.tagged.death", "fi_atomic(3) §5", 3, [fetch_atomicmsg, cq_sread, cq_readerr] + needs_kill,
        "an atomic that waits for a buffer of a killed process ends with a failure";
}

const MINE: usize = 5;

/// An atomic operation on consecutive u64.
struct Call {
    operand: [u64; 4],
    compare: [u64; 4],
    result: [u64; 4],
    count: usize,
    remote: fi_rma_ioc,
}

impl Call {
    fn new(tag: u64, offset: u64, operand: &[u64]) -> Call {
        let mut call = Call {
            operand: [0; 4],
            compare: [0; 4],
            result: [0; 4],
            count: operand.len(),
            remote: rma_ioc(offset, operand.len(), tag),
        };
        call.operand[..operand.len()].copy_from_slice(operand);
        call
    }

    /// Posts the operation; retries on -FI_EAGAIN. With `fetches`, or as a compare-swap, the results arrive with the completion.
    fn post(&mut self, job: &Job<'_>, to: u32, op: c_int, fetches: bool) -> Verdict {
        let count = self.count;
        let list = |values: &mut [u64; 4]| ioc(values.as_mut_ptr(), count);
        let operand = list(&mut self.operand);
        let compare = list(&mut self.compare);
        let mut result = list(&mut self.result);
        let msg = atomic_msg(&operand, job.peer(to).address, &self.remote, op, cx(MINE));
        let none = null_mut();
        job.post(|| match (op, fetches) {
            (CSWAP, _) => call!(atomic job.ep, compwritemsg(&msg, &compare, none, 1, &mut result, none, 1, FI_TAGGED)),
            (_, true) => call!(atomic job.ep, readwritemsg(&msg, &mut result, none, 1, FI_TAGGED)),
            (_, false) => call!(atomic job.ep, writemsg(&msg, FI_TAGGED)),
        })
    }

    /// The previous value of element `nth`.
    fn before(&self, nth: usize) -> u64 {
        seen(&self.result, nth)
    }
}

fn buffer_of(words: &mut [u64]) -> &mut [u8] {
    // SAFETY:
    // - each word is valid as bytes, and the length in bytes is the same.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words)) }
}

fn seen(words: &[u64], nth: usize) -> u64 {
    current(&words[nth])
}

/// Waits for the end of a receive that an atomic has used. Returns its context.
fn used(job: &Job<'_>, len: usize) -> Result<usize, String> {
    let entry = job.rx.next()?;
    let expected = (FI_ATOMIC | FI_TAGGED | FI_RECV, len);
    ensure_eq!((entry.flags, entry.len), expected, "flags and length");
    Ok(entry.context())
}

fn counted(job: &Job<'_>) -> Verdict {
    const EACH: u64 = 20;
    if job.rank == 0 {
        let mut words = [0u64; 3];
        let operations = 2 * EACH * u64::from(job.ctx.size - 1);
        for nth in 0..operations {
            trecv(job, buffer_of(&mut words), (9, 0), nth as usize)?;
            ensure_eq!(used(job, 8)?, nth as usize, "the receive");
            ensure_eq!(seen(&words, 1), nth + 1, "the counter");
        }
        let found = (seen(&words, 0), seen(&words, 2));
        ensure_eq!(found, (0, 0), "beside the counter");
    } else {
        let mut last = None;
        for _ in 0..EACH {
            let mut call = Call::new(9, 8, &[1]);
            call.post(job, 0, SUM, true)?;
            job.tx.of(MINE)?;
            let before = call.before(0);
            ensure!(last < Some(before), "{before} was fetched after {last:?}");
            last = Some(before);
            let mut call = Call::new(9, 8, &[1]);
            call.post(job, 0, SUM, false)?;
            let entry = job.tx.of(MINE)?;
            ensure_eq!(entry.flags, FI_ATOMIC | FI_TAGGED | FI_WRITE, "the flags");
        }
    }
    job.meet();
    Ok(())
}

fn matched(job: &Job<'_>) -> Verdict {
    let mut random = job.ctx.random(3);
    for round in 0..many(job.ctx, 2) {
        // For each tag, whether the receive or the atomic is first. Both ranks use the same values.
        let early: Vec<bool> = (0..3).map(|_| random.below(2) == 0).collect();
        let tag = round << 8;
        if job.rank == 0 {
            let mut words = [[10, 20, 30, 40u64]; 2];
            let mut message = [0u8; 8];
            let [one, two] = &mut words;
            let mut receive = |nth: usize| match nth {
                0 => trecv(job, buffer_of(one), (tag, 0), 0),
                1 => trecv(job, &mut message, (tag | 1, 0), 1),
                _ => trecv(job, buffer_of(two), (tag | 2, 0), 2),
            };
            for_all((0..3).filter(|nth| early[*nth]), &mut receive)?;
            job.meet();
            job.meet();
            for_all((0..3).filter(|nth| !early[*nth]), &mut receive)?;
            let mut ends = [false; 3];
            for _ in 0..3 {
                let entry = job.rx.next()?;
                let nth = entry.context();
                ensure_eq!(entry.tag, tag | nth as u64, "the tag of receive {nth}");
                let kind = if nth == 1 { 0 } else { FI_ATOMIC };
                let found = entry.flags;
                ensure_eq!(found, kind | FI_TAGGED | FI_RECV, "flags of receive {nth}");
                ends[nth] = true;
            }
            ensure_eq!(ends, [true; 3], "receives that have ended");
            let all = |words: &[u64; 4]| [0, 1, 2, 3].map(|nth| seen(words, nth));
            ensure_eq!(all(&words[0]), [10, 21, 32, 40], "the sums");
            ensure_eq!(all(&words[1]), [10, 20, 30, 7], "the swap");
            ensure_eq!(message, round.to_le_bytes(), "the message between");
        } else {
            job.meet();
            let (mut sum, mut swap) = (Call::new(tag, 8, &[1, 2]), Call::new(tag | 2, 24, &[7]));
            swap.compare[0] = 40;
            sum.post(job, 0, SUM, true)?;
            tsend(job, tag | 1, &round.to_le_bytes(), 1)?;
            swap.post(job, 0, CSWAP, true)?;
            job.meet();
            job.tx.successes(0..3)?;
            ensure_eq!((sum.before(0), sum.before(1)), (20, 30), "before the sums");
            ensure_eq!(swap.before(0), 40, "before the swap");
        }
        job.meet();
    }
    Ok(())
}

fn failing(job: &Job<'_>) -> Verdict {
    // Offsets of two elements in a buffer of three, and the errors.
    const CASES: [(u64, i32); 4] = [
        (16, FI_ETRUNC),
        (1 << 40, FI_ETRUNC),
        (u64::MAX - 7, FI_ETRUNC),
        (4, FI_EINVAL),
    ];
    for (nth, (offset, errno)) in CASES.into_iter().enumerate() {
        if job.rank == 0 {
            let mut words = [1, 2, 3u64];
            trecv(job, buffer_of(&mut words), (nth as u64, 0), nth)?;
            let error = job.rx.fails(errno, "the receive")?;
            let found = (error.context(), error.len);
            ensure_eq!(found, (nth, 0), "its context and length");
            let found = [0, 1, 2].map(|nth| seen(&words, nth));
            ensure_eq!(found, [1, 2, 3], "the buffer");
        } else {
            Call::new(nth as u64, offset, &[5, 5]).post(job, 0, SUM, false)?;
            job.tx.fails_of(MINE, errno, "the operation")?;
        }
    }
    let mut attr = fi_atomic_attr { count: 0, size: 0 };
    let domain = job.station.domain;
    ok!(obj domain, query_atomic(UINT64, SUM, &mut attr, FI_TAGGED));
    let many = vec![0u64; attr.count + 1];
    let operand = ioc(many.as_ptr(), many.len());
    let remote = rma_ioc(0, many.len(), 77);
    let msg = atomic_msg(&operand, job.peer(job.right()).address, &remote, SUM, cx(1));
    gives!(FI_EMSGSIZE, atomic job.ep, writemsg(&msg, FI_TAGGED));
    job.tx.is_empty()?;
    job.meet();
    job.rx.is_empty()
}

fn dead(job: &Job<'_>) -> Verdict {
    victim_dies_after(job, 150);
    let mut call = Call::new(3, 0, &[1]);
    call.post(job, victim(job), SUM, true)?;
    let error = waited(job, "an atomic without a buffer", job.tx)?;
    ensure_eq!(error.context(), MINE, "the context");
    equal!(call.before(0), 0, "the result")
}
