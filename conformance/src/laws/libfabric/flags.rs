//! Flags of the calls with a message structure, and calls without completion.

use super::kit::*;

laws! {
    selective with(&Plan::DEFAULT.selective(true), 256):
        "atomic.flag.completion", "fi_atomic(3) §5", 2, [atomic, atomicmsg, fetch_atomicmsg, compare_atomicmsg, ep_bind],
        "with FI_SELECTIVE_COMPLETION only operations with FI_COMPLETION are reported";
    not_selective with(&Plan::DEFAULT, 256): "atomic.flag.completion.ignored", "fi_atomic(3) §5", 2, [atomicmsg],
        "without FI_SELECTIVE_COMPLETION all operations are reported once, with FI_COMPLETION or without";
    failures_are_told with(&Plan::DEFAULT.selective(true), 256): "atomic.selective.failure", "fi_cq(3)", 2, [atomic, inject_atomic, cq_readerr],
        "a failure is reported though no completion was requested";
    overridden with(&Plan::DEFAULT.selective(true).op_flags(FI_COMPLETION), 256):
        "atomic.flag.override", "fi_atomic(3) §5", 2, [atomic, atomicmsg, control],
        "flags of a msg call replace the endpoint's flags, which hold for the other calls";
    more with(&Plan::DEFAULT, 256): "atomic.flag.more", "fi_atomic(3) §5", 2, [atomicmsg],
        "operations with FI_MORE are done and told like others, even if none follows";
    fence with(&Plan::DEFAULT, 256): "atomic.flag.fence", "fi_atomic(3) §5", 2, [atomicmsg, fetch_atomicmsg] + ordering,
        "a fenced operation, and those after it, see the results of all before it to the same peer";
    fence_of_one with(&Plan::DEFAULT, 256): "atomic.flag.fence.peer", "fi_msg(3), fi_atomic(3) §5", 3, [atomicmsg, fetch_atomicmsg, send, recv],
        "a fence waits for operations to the same peer only, and no call waits: while they are under way it is -FI_EAGAIN";
    delivered with(&Plan::DEFAULT, 256): "atomic.flag.delivery", "fi_atomic(3) §4.8", 2, [atomicmsg] + ordering,
        "with FI_DELIVERY_COMPLETE the target's CPU sees the result when the completion has been read";
    fetched with(&Plan::DEFAULT, 256): "atomic.fetch.delivery", "fi_atomic(3) §4.8", 2, [fetch_atomic, compare_atomic] + ordering,
        "fetching operations are so without the flag: result and target are there before the completion, each with its own";
    refused with(&Plan::DEFAULT, 256): "atomic.flag.unknown", "fi_atomic(3) §5", 1, [atomicmsg, fetch_atomicmsg, compare_atomicmsg],
        "FI_REMOTE_CQ_DATA and unknown flags are refused, and nothing is done";
}

/// An atomic message with one operand, and the lists that it points to.
pub(super) struct One {
    pub(super) words: [u64; 3],
    pub(super) lists: [fi_ioc; 3],
    pub(super) remote: fi_rma_ioc,
    pub(super) msg: fi_msg_atomic,
}

impl One {
    pub(super) fn new(to: (u64, u64, u64), op: i32, operand: u64, compare: u64) -> Box<One> {
        let (to, addr, key) = to;
        let ioc = ioc(null_mut::<c_void>(), 1);
        let mut one = Box::new(One {
            words: [operand, compare, 0],
            lists: [ioc; 3],
            remote: rma_ioc(addr, 1, key),
            // Its lists are set when the box has its place.
            msg: atomic_msg(&ioc, to, &rma_ioc(addr, 1, key), op, null_mut()),
        });
        let words = one.words.as_mut_ptr();
        for (nth, list) in one.lists.iter_mut().enumerate() {
            list.addr = words.wrapping_add(nth).cast();
        }
        one.msg.msg_iov = &raw const one.lists[0];
        one.msg.rma_iov = &raw const one.remote;
        one
    }

    /// As [`One::new`], with a context.
    pub(super) fn told(context: usize, to: (u64, u64, u64), op: i32, operand: u64) -> Box<One> {
        let mut one = One::new(to, op, operand, 0);
        one.msg.context = cx(context);
        one
    }

    pub(super) fn write(&mut self, ep: *mut fid_ep, flags: u64) -> isize {
        call!(atomic ep, writemsg(&self.msg, flags))
    }

    pub(super) fn fetch(&mut self, ep: *mut fid_ep, flags: u64) -> isize {
        let result = &raw mut self.lists[2];
        call!(atomic ep, readwritemsg(&self.msg, result, null_mut(), 1, flags))
    }

    pub(super) fn compare(&mut self, ep: *mut fid_ep, flags: u64) -> isize {
        let (compare, result) = (&raw const self.lists[1], &raw mut self.lists[2]);
        call!(atomic ep, compwritemsg(&self.msg, compare, null_mut(), 1, result, null_mut(), 1, flags))
    }

    pub(super) fn result(&self) -> u64 {
        current(&self.words[2])
    }
}

/// Waits for all operations on the place: without a completion, a fenced operation confirms them.
fn settled(job: &Job<'_>, place: (u64, u64, u64)) -> Verdict {
    let mut fence = One::told(7, place, READ, 0);
    job.told(7, || fence.fetch(job.ep, FI_FENCE | FI_COMPLETION))?;
    job.tx.is_empty()
}

fn selective(job: &Job<'_>) -> Verdict {
    let words = job.words(job.right(), 8).told(1);
    for nth in 0..20usize {
        let flags = if nth % 3 == 0 { FI_COMPLETION } else { 0 };
        let mut call = One::told(100 + nth, words.place, SUM, 1);
        call.words[1] = 1;
        match nth % 4 {
            0 => job.post(|| call.write(job.ep, flags))?,
            1 => job.post(|| call.fetch(job.ep, flags))?,
            2 => {
                call.msg.op = CSWAP;
                job.post(|| call.compare(job.ep, flags))?;
            }
            _ => job.post(|| words.add())?,
        }
        // The buffers stay until completion.
        if flags != 0 && nth % 4 != 3 {
            job.tx.of(100 + nth)?;
            job.tx.is_empty()?;
        } else {
            settled(job, words.place)?;
        }
    }
    Ok(())
}

fn not_selective(job: &Job<'_>) -> Verdict {
    for flags in [0, FI_COMPLETION, FI_COMPLETION | FI_MORE] {
        let mut call = One::told(9, job.place(job.right(), 8), SUM, 1);
        job.told(9, || call.write(job.ep, flags))?;
        job.tx.is_empty()?;
    }
    Ok(())
}

fn failures_are_told(job: &Job<'_>) -> Verdict {
    let words = job.words(job.right(), 0).told(4);
    let words = words.under(words.place.2 + 1000);
    job.post(|| words.add())?;
    ensure_eq!(job.tx.error()?.context(), 4, "the context");
    job.post(|| words.inject_add())?;
    job.tx.error()?;
    job.tx.is_empty()
}

fn overridden(job: &Job<'_>) -> Verdict {
    let words = job.words(job.right(), 8).told(1);
    job.told(1, || words.add())?;
    let mut call = One::new(words.place, SUM, 1, 0);
    job.post(|| call.write(job.ep, 0))?;
    settled(job, words.place)?;
    control(job.ep, FI_SETOPSFLAG, FI_TRANSMIT)?;
    job.post(|| words.add())?;
    settled(job, words.place)?;
    control(job.ep, FI_SETOPSFLAG, FI_TRANSMIT | FI_COMPLETION)?;
    let seen = control(job.ep, FI_GETOPSFLAG, FI_TRANSMIT)?;
    ensure_eq!(seen & FI_COMPLETION, FI_COMPLETION, "the endpoint's flags");
    job.told(1, || words.add())?;
    job.tx.is_empty()
}

fn more(job: &Job<'_>) -> Verdict {
    let mut calls: Vec<_> = (0..8usize)
        .map(|nth| One::told(nth + 1, job.place(job.right(), 8), SUM, 1 << (4 * nth)))
        .collect();
    let mut told = 0usize;
    for_all(&mut calls, |call| job.post(|| call.write(job.ep, FI_MORE)))?;
    for _ in 0..8 {
        told |= 1 << job.tx.next()?.context();
    }
    ensure_eq!(told, 0x1fe, "the contexts");
    job.meet();
    equal!(job.memory.get(8), 0x1111_1111, "the sum")
}

fn fence(job: &Job<'_>) -> Verdict {
    let rank = job.right();
    let mut expected = 0;
    for round in 1..=many(job.ctx, 6) {
        let mut before: Vec<_> = (0..6)
            .map(|_| One::new(job.place(rank, 8), SUM, round, 0))
            .collect();
        for_all(&mut before, |call| job.post(|| call.write(job.ep, 0)))?;
        expected += 6 * round;
        let mut fenced = One::new(job.place(rank, 8), READ, 0, 0);
        job.post(|| fenced.fetch(job.ep, FI_FENCE))?;
        let mut later = One::new(job.place(rank, 8), READ, 0, 0);
        job.post(|| later.fetch(job.ep, 0))?;
        job.tx.successes(0..8)?;
        ensure_eq!(
            fenced.result(),
            expected,
            "the view of the fenced operation"
        );
        ensure_eq!(later.result(), expected, "the view of the next operation");
        // A fenced operation replaces the value of the earlier write.
        let mut old = One::new(job.place(rank, 16), WRITE, round, 0);
        let mut new = One::new(job.place(rank, 16), WRITE, round << 32, 0);
        job.post(|| old.write(job.ep, 0))?;
        job.done(|| new.write(job.ep, FI_FENCE))?;
        job.tx.next()?;
        let seen = job.fetch(rank, 16, READ, 0)?;
        ensure_eq!(seen, round << 32, "what is written last");
    }
    Ok(())
}

fn fence_of_one(job: &Job<'_>) -> Verdict {
    // Too long to be sent without the receiver's help.
    const LONG_MESSAGE: usize = 1 << 20;
    let mut bytes = vec![3u8; LONG_MESSAGE];
    match job.rank {
        0 => {
            // After these messages, both ranks are known as receivers.
            job.send_and_wait(1, &bytes[..8], 4)?;
            job.send(2, &bytes, 5)?;
            let mut elsewhere = One::told(6, job.place(1, 8), SUM, 4);
            job.told(6, || elsewhere.write(job.ep, FI_FENCE))?;
            let mut there = One::told(7, job.place(2, 8), SUM, 4);
            for _ in 0..3 {
                ensure_eq!(there.write(job.ep, FI_FENCE), AGAIN, "to the same peer");
            }
            // The receiver waits for this.
            job.meet();
            job.told(5, || there.fetch(job.ep, FI_FENCE))?;
            job.tx.of(7)?;
        }
        rank => {
            job.meet();
            let len = if rank == 2 { LONG_MESSAGE } else { 8 };
            job.receive(&mut bytes[..len], 8)?;
            job.rx.of(8)?;
        }
    }
    Ok(())
}

fn delivered(job: &Job<'_>) -> Verdict {
    for nth in 1..=many(job.ctx, 5) {
        let mut call = One::new(job.place(job.right(), 8), WRITE, nth, 0);
        job.done(|| call.write(job.ep, FI_DELIVERY_COMPLETE))?;
        job.meet();
        ensure_eq!(job.memory.get(8), nth, "the target's memory");
        job.meet();
    }
    Ok(())
}

fn fetched(job: &Job<'_>) -> Verdict {
    let (rank, mut random) = (job.right(), job.ctx.random(job.rank.into()));
    for nth in 1..=many(job.ctx, 5) {
        // Several operations are in flight. Each completion brings its result.
        let mut calls: Vec<_> = (0..4usize)
            .map(|i| One::told(i, job.place(rank, 64 + 8 * i), SUM, nth))
            .collect();
        for_all(&mut calls, |call| job.post(|| call.fetch(job.ep, 0)))?;
        for _ in 0..4 {
            let done = &calls[job.tx.next()?.context()];
            let seen = done.result();
            ensure_eq!(seen, nth * (nth - 1) / 2, "a result at its completion");
        }
        job.meet();
        for_all(0..4, |i| {
            job.memory
                .shows(64 + 8 * i, nth * (nth + 1) / 2, "the target")
        })?;
        if random.below(4) == 0 {
            pause(1);
        }
        job.meet();
    }
    Ok(())
}

fn refused(job: &Job<'_>) -> Verdict {
    let with_data = FI_TAGGED | FI_REMOTE_CQ_DATA;
    let unknown = 1 << 40;
    for flags in [
        FI_REMOTE_CQ_DATA,
        with_data,
        FI_MULTI_RECV,
        FI_PEEK,
        unknown,
    ] {
        let mut call = One::new(job.place(0, 8), SUM, 1, 0);
        let what = format!("flags {flags:#x}");
        denied(FI_EBADFLAGS, call.fetch(job.ep, flags), &what)?;
        denied(FI_EBADFLAGS, call.write(job.ep, flags), &what)?;
        call.msg.op = CSWAP;
        denied(FI_EBADFLAGS, call.compare(job.ep, flags), &what)?;
    }
    job.tx.is_empty()?;
    equal!(job.memory.get(8), 0, "the target")
}
