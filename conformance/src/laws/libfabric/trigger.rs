//! Triggered operations and deferred work (fi_trigger(3) of libfabric 1.17).

use super::kit::*;
use super::work::*;

laws! {
    every_kind triggered_by(&plan()): "trigger.work", "fi_trigger(3), Deferred work queues", 2,
        [control, cntr_add, cntr_wait, write, read, atomic, fetch_atomic, compare_atomic, send, recv, tsend, trecv],
        "deferred work of every kind waits for its counter, runs once, and reports only at the completion counter";
    met triggered_by(&plan()): "trigger.work.met", "fi_trigger(3), Deferred work queues", 1, [control, cntr_adderr],
        "a condition that is met when work is queued starts it at once; errors count as successes do";
    thresholds triggered_by(&plan()): "trigger.order", "fi_trigger(3), Completion based triggers", 2, [control, cntr_add, fetch_atomicmsg],
        "operations start in the order of thresholds, equal ones in that of posting, though the counter grows by more than 1";
    asked triggered_by(&plan()): "trigger.work.completion", "fi_trigger(3), Deferred work queues", 2, [control, cntr_readerr, write],
        "FI_COMPLETION requests an entry; a failure counts as an error of the completion counter";
    triggered with(&plan(), 256):
        "trigger.flag", "fi_trigger(3)", 2, [writemsg, readmsg, atomicmsg, sendmsg, recvmsg, tsendmsg, trecvmsg, cntr_add],
        "operations with FI_TRIGGER wait for the counter of their context, and then end as others do";
    cancelled with(&plan(), 256): "trigger.cancel", "fi_trigger(3)", 1, [control, cancel, writemsg],
        "work that is cancelled or flushed is not carried out, and frees its counters";
    refused triggered_by(&plan()): "trigger.refused", "fi_trigger(3)", 1, [control, writemsg],
        "work that cannot wait, or with an unknown counter, is refused at the post";
    relayed with(&Plan::DEFAULT.caps(FI_RMA | FI_ATOMIC | FI_TRIGGER).progress(FI_PROGRESS_AUTO).counters(&[FI_REMOTE_WRITE]), 256):
        "trigger.chain", "fi_trigger(3), fi_endpoint(3)", 3, [control, ep_bind, write] + ordering,
        "with automatic progress work that waits for a peer's write starts while its owner calls nothing";
    chained with(&plan(), 256): "trigger.counters", "fi_trigger(3), Deferred work queues", 1, [control, cntr_read],
        "work that starts work, through completion counters and counters that are added to, runs to its end";
}

fn plan() -> Plan<'static> {
    Plan::DEFAULT
        .caps(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_TRIGGER)
        .counters(&[FI_WRITE | FI_READ | FI_SEND | FI_RECV])
}

fn every_kind(job: &Job<'_>, trigger: *mut fid_cntr, completion: *mut fid_cntr) -> Verdict {
    let (ep, of_endpoint) = (job.ep, job.station.counters[0]);
    let right = job.right();
    let mut words = [11u64, 0, 5, 7, 0, 3, 9, 0, 21, 0, 22, 0];
    let at = words.as_mut_ptr();
    let word = |nth: usize, there: usize| Word::new(job, right, there, at.wrapping_add(nth));
    job.memory.set(64, 33);
    job.memory.set(72, 100);
    job.memory.set(80, 3);
    job.meet();
    let places = [word(0, 0), word(1, 64), word(2, 8), word(3, 72)];
    let mut fetched = word(4, 0);
    let (swapped, compared, mut before) = (word(6, 80), word(5, 80), word(7, 80));
    let (sent, received) = (word(8, 0), word(9, 0));
    let (tagged, untagged) = (word(10, 0), word(11, 0));
    let flags = 0;
    let mut write = rma_op(ep, places[0].rma(null_mut()), flags);
    let mut read = rma_op(ep, places[1].rma(null_mut()), flags);
    let mut add = atomic_op(ep, places[2].atomic(SUM, null_mut()), flags);
    let mut fetch_add = places[3].fetch_op(ep, &mut fetched, flags);
    let mut swap = fi_op_compare_atomic {
        ep,
        msg: swapped.atomic(CSWAP, null_mut()),
        fetch: before.fetch(),
        compare: compared.compare(),
        flags,
    };
    let mut send = message_op(ep, sent.message(null_mut()), flags);
    let mut receive = message_op(ep, received.any_message(null_mut()), flags);
    let mut tsend = tagged_op(ep, tagged.tagged(6, null_mut()), flags);
    let mut treceive = tagged_op(ep, untagged.any_tagged(6, null_mut()), flags);
    let ops: [(c_int, *mut c_void); 9] = [
        (FI_OP_RECV, (&raw mut receive).cast()),
        (FI_OP_TRECV, (&raw mut treceive).cast()),
        (FI_OP_SEND, (&raw mut send).cast()),
        (FI_OP_TSEND, (&raw mut tsend).cast()),
        (FI_OP_WRITE, (&raw mut write).cast()),
        (FI_OP_READ, (&raw mut read).cast()),
        (FI_OP_ATOMIC, (&raw mut add).cast()),
        (FI_OP_FETCH_ATOMIC, (&raw mut fetch_add).cast()),
        (FI_OP_COMPARE_ATOMIC, (&raw mut swap).cast()),
    ];
    let mut works: Vec<fi_deferred_work> = ops
        .iter()
        .map(|(kind, op)| work((trigger, 3), completion, *kind, *op))
        .collect();
    queue(job, &mut works)?;
    ok!(obj trigger, add(2));
    job.tx.is_empty()?;
    job.meet();
    ensure_eq!(value_of(completion), 0, "work before its time");
    let seen = job.memory.words([0, 8]);
    ensure_eq!(seen, [0, 0], "the words before");
    // The provider reads the data when the work runs, not when it is queued.
    // SAFETY:
    // - the local array; the work is not triggered yet.
    unsafe { at.write(12) };
    job.meet();
    ok!(obj trigger, add(1));
    ok!(obj completion, wait(9, -1));
    job.meet();
    job.tx.is_empty()?;
    job.rx.is_empty()?;
    ensure_eq!(value_of(completion), 9, "each is told once");
    ensure_eq!(value_of(of_endpoint), 0, "the endpoint's counter");
    let memory = &job.memory;
    let seen = memory.words([0, 8, 72, 80]);
    ensure_eq!(seen, [12, 5, 107, 9], "the words there");
    let words = current(&words);
    let seen = [words[1], words[4], words[7], words[9], words[11]];
    equal!(seen, [33, 100, 3, 21, 22], "what came here")
}

fn met(job: &Job<'_>, trigger: *mut fid_cntr, completion: *mut fid_cntr) -> Verdict {
    ok!(obj trigger, add(2));
    ok!(obj trigger, adderr(1));
    let mut value = 5u64;
    let word = Word::new(job, job.rank, 0, &mut value);
    let mut add = atomic_op(job.ep, word.atomic(SUM, null_mut()), 0);
    let mut now = work((trigger, 3), completion, FI_OP_ATOMIC, &raw mut add);
    let mut later = work((trigger, 4), completion, FI_OP_ATOMIC, &raw mut add);
    queue(job, [&mut now, &mut later])?;
    ok!(obj completion, wait(1, -1));
    ensure_eq!(job.memory.get(0), 5, "the word");
    ok!(obj trigger, seterr(2));
    ok!(obj completion, wait(2, -1));
    equal!(job.memory.get(0), 10, "the word after both")
}

fn thresholds(job: &Job<'_>, trigger: *mut fid_cntr, completion: *mut fid_cntr) -> Verdict {
    // Thresholds in posting order, and the expected position of each in execution order.
    let posted = [5u64, 2, 9, 5, 2, 1, 9, 5];
    let expected = [3u64, 1, 6, 4, 2, 0, 7, 5];
    let (mut ones, mut before) = ([1u64; 8], [u64::MAX; 8]);
    let right = job.right();
    let word = |place: &mut u64| Word::new(job, right, 0, place);
    let operands: Vec<Word> = ones.iter_mut().map(word).collect();
    let mut results: Vec<Word> = before.iter_mut().map(word).collect();
    let mut ops: Vec<fi_op_fetch_atomic> = operands
        .iter()
        .zip(&mut results)
        // The backend chaos reorders operations: the fence makes each wait for the one before.
        .map(|(operand, result)| operand.fetch_op(job.ep, result, FI_FENCE))
        .collect();
    let mut works: Vec<fi_deferred_work> = ops
        .iter_mut()
        .zip(posted)
        .map(|(op, threshold)| {
            let op = std::ptr::from_mut(op);
            work((trigger, threshold), completion, FI_OP_FETCH_ATOMIC, op)
        })
        .collect();
    queue(job, &mut works)?;
    ok!(obj trigger, add(1));
    ok!(obj completion, wait(1, -1));
    ok!(obj trigger, add(100));
    ok!(obj completion, wait(8, -1));
    equal!(before, expected, "what each found")
}

fn asked(job: &Job<'_>, trigger: *mut fid_cntr, completion: *mut fid_cntr) -> Verdict {
    let mut value = 5u64;
    let word = Word::new(job, job.right(), 0, &mut value);
    let mut good = rma_op(job.ep, word.rma(cx(77)), FI_COMPLETION);
    let mut wrong = Word::new(job, job.right(), 0, &mut value);
    wrong.remote.key += 1 << 20;
    let mut bad = rma_op(job.ep, wrong.rma(cx(78)), 0);
    let mut first = work((trigger, 1), completion, FI_OP_WRITE, &raw mut good);
    let mut second = work((trigger, 2), completion, FI_OP_WRITE, &raw mut bad);
    queue(job, [&mut first, &mut second])?;
    ok!(obj trigger, add(1));
    let entry = job.tx.of(77)?;
    ensure_eq!(entry.flags, FI_RMA | FI_WRITE, "the entry's flags");
    ok!(obj completion, wait(1, -1));
    ok!(obj trigger, add(1));
    until("the failure", || errors_of(completion) == 1)?;
    ensure_eq!(value_of(completion), 1, "successes");
    job.tx.is_empty()
}

fn triggered(job: &Job<'_>) -> Verdict {
    let trigger = job.station.counter()?;
    let right = job.right();
    let mut contexts: Vec<fi_triggered_context> =
        (1..=7).map(|nth| context(trigger, nth)).collect();
    let first = contexts.as_mut_ptr();
    let cx = |nth: usize| first.wrapping_add(nth).cast::<c_void>();
    let mut words = [1u64, 2, 3, 4, 0, 5, 0];
    let at = words.as_mut_ptr();
    let word = |nth: usize, there: usize| Word::new(job, right, there, at.wrapping_add(nth));
    job.memory.set(64, 44);
    job.meet();
    // Receives first, then the operations that match them.
    let (received, treceived) = (word(4, 0), word(6, 0));
    let message = received.any_message(cx(0));
    job.post(|| call!(msg job.ep, recvmsg(&message, FI_TRIGGER | FI_COMPLETION)))?;
    let message = treceived.any_tagged(3, cx(1));
    job.post(|| call!(tagged job.ep, recvmsg(&message, FI_TRIGGER | FI_COMPLETION)))?;
    let (sent, tsent, put, got, added) =
        (word(3, 0), word(5, 0), word(0, 0), word(1, 64), word(2, 8));
    let flags = FI_TRIGGER | FI_COMPLETION;
    job.post(|| call!(msg job.ep, sendmsg(&sent.message(cx(2)), flags)))?;
    job.post(|| call!(tagged job.ep, sendmsg(&tsent.tagged(3, cx(3)), flags)))?;
    job.post(|| call!(rma job.ep, writemsg(&put.rma(cx(4)), flags)))?;
    job.post(|| call!(rma job.ep, readmsg(&got.rma(cx(5)), flags)))?;
    job.post(|| call!(atomic job.ep, writemsg(&added.atomic(SUM, cx(6)), flags)))?;
    job.tx.is_empty()?;
    for nth in 0..7 {
        ok!(obj trigger, add(1));
        if nth >= 2 {
            job.tx.of(cx(nth).addr())?;
        }
    }
    let seen = [job.rx.next()?.op_context, job.rx.next()?.op_context];
    let found = seen.contains(&cx(0)) && seen.contains(&cx(1));
    ensure_eq!(found, true, "both receives are told");
    job.meet();
    let found = job.memory.words([0, 8]);
    ensure_eq!(found, [1, 3], "the words there");
    let words = current(&words);
    ensure_eq!([words[1], words[4], words[6]], [44, 4, 5], "what came here");
    let told = job.station.counters[0];
    ensure_eq!(value_of(told), 7, "the endpoint's counter");
    close(trigger)
}

fn cancelled(job: &Job<'_>) -> Verdict {
    let (trigger, other) = (job.station.counter()?, job.station.counter()?);
    let domain = job.station.domain;
    let mut value = 5u64;
    let word = Word::new(job, job.rank, 0, &mut value);
    let mut add = atomic_op(job.ep, word.atomic(SUM, null_mut()), 0);
    let op: *mut c_void = (&raw mut add).cast();
    let mut works =
        [trigger, trigger, other, other].map(|one| work((one, 1), null_mut(), FI_OP_ATOMIC, op));
    queue(job, &mut works)?;
    gives!(FI_EBUSY, fid trigger, close());
    ok!(fid domain, control(FI_CANCEL_WORK, (&raw mut works[0]).cast()));
    gives!(FI_ENOENT, fid domain, control(FI_CANCEL_WORK, (&raw mut works[0]).cast()));
    ok!(obj trigger, add(1));
    job.tx.is_empty()?;
    until("the remaining receive", || {
        job.tx.progress();
        job.memory.get(0) == 5
    })?;
    gives!(FI_ENOENT, fid domain, control(FI_CANCEL_WORK, (&raw mut works[1]).cast()));
    ok!(fid domain, control(FI_FLUSH_WORK, trigger.cast()));
    ok!(fid domain, control(FI_CANCEL_WORK, (&raw mut works[2]).cast()));
    ok!(fid domain, control(FI_FLUSH_WORK, other.cast()));
    gives!(FI_ENOENT, fid domain, control(FI_CANCEL_WORK, (&raw mut works[3]).cast()));
    ok!(fid domain, control(FI_QUEUE_WORK, (&raw mut works[2]).cast()));
    ok!(fid domain, control(FI_FLUSH_WORK, null_mut()));
    ok!(obj other, add(10));
    // A cancelled triggered operation ends with FI_ECANCELED.
    let mut waits = context(other, 100);
    let message = word.rma((&raw mut waits).cast());
    job.post(|| call!(rma job.ep, writemsg(&message, FI_TRIGGER)))?;
    ok!(obj job.ep, cancel((&raw mut waits).cast()));
    let error = job.tx.fails(FI_ECANCELED, "the triggered write")?;
    let seen = error.context();
    ensure_eq!(seen, (&raw mut waits).addr(), "its context");
    ok!(obj other, add(100));
    job.tx.is_empty()?;
    ensure_eq!(job.memory.get(0), 5, "the word");
    close(other)?;
    close(trigger)
}

fn refused(job: &Job<'_>, trigger: *mut fid_cntr, completion: *mut fid_cntr) -> Verdict {
    let (domain, none) = (job.station.domain, null_mut());
    let mut value = 5u64;
    let word = Word::new(job, job.rank, 0, &mut value);
    let rma = rma_op(job.ep, word.rma(none), 0);
    let ep = null_mut();
    let op: *mut c_void = (&raw const rma).cast_mut().cast();
    gives!(FI_EINVAL, fid domain, control(FI_QUEUE_WORK, null_mut()));
    gives!(FI_EINVAL, fid domain, control(FI_CANCEL_WORK, null_mut()));
    let mut change = fi_op_cntr {
        cntr: completion,
        value: 1,
    };
    let mut homeless = fi_op_rma { ep, ..rma };
    let mut inject = rma_op(job.ep, rma.msg, FI_INJECT);
    let mut undefined = atomic_op(job.ep, word.atomic(CSWAP, none), 0);
    let (met, no_counter) = ((trigger, 1), null_mut());
    for (what, errno, mut work) in rows! {
        "no counter": FI_EINVAL, work((null_mut(), 1), no_counter, FI_OP_WRITE, op);
        "no operation": FI_EINVAL, work(met, no_counter, FI_OP_WRITE, none);
        "kind -1": FI_ENOSYS, work(met, no_counter, -1, op);
        "kind 11": FI_ENOSYS, work(met, no_counter, 11, op);
        "kind 99": FI_ENOSYS, work(met, no_counter, 99, op);
        "a completion counter": FI_EINVAL, work(met, completion, FI_OP_CNTR_ADD, &raw mut change);
        "no endpoint": FI_EINVAL, work(met, no_counter, FI_OP_WRITE, &raw mut homeless);
        "an inject": FI_ENOSYS, work(met, no_counter, FI_OP_WRITE, &raw mut inject);
        "an undefined atomic": FI_ENOSYS, work(met, no_counter, FI_OP_ATOMIC, &raw mut undefined);
    } {
        let seen = call!(fid domain, control(FI_QUEUE_WORK, (&raw mut work).cast()));
        ensure_eq!(seen, -errno, "{what}");
    }
    gives!(FI_ENOSYS, fid domain, control(99, null_mut()));
    gives!(FI_EINVAL, rma job.ep, writemsg(&word.rma(none), FI_TRIGGER));
    let mut unknown = context(trigger, 1);
    unknown.event_type = 1;
    gives!(FI_ENOSYS, rma job.ep, writemsg(&word.rma((&raw mut unknown).cast()), FI_TRIGGER));
    ok!(obj trigger, add(100));
    job.tx.is_empty()?;
    job.memory.shows(0, 0, "the word")?;
    with(job.ctx, &Plan::DEFAULT, 256, without_capability)
}

fn without_capability(job: &Job<'_>) -> Verdict {
    let trigger = job.station.counter()?;
    let mut value = 5u64;
    let word = Word::new(job, job.rank, 0, &mut value);
    let mut waits = context(trigger, 1);
    gives!(FI_EBADFLAGS, rma job.ep, writemsg(&word.rma((&raw mut waits).cast()), FI_TRIGGER));
    close(trigger)
}

fn relayed(job: &Job<'_>) -> Verdict {
    let rounds = many(job.ctx, 2).min(10);
    let (trigger, none) = (job.station.counters[0], null_mut());
    // Each rank forwards word 1 to word 1 of the next rank. The last rank forwards it to word 2 of rank 0.
    let last = job.rank + 1 == job.size;
    let (next, there) = if last { (0, 16) } else { (job.right(), 8) };
    let word = Word::new(job, next, there, job.memory.at(8).cast());
    let mut op = rma_op(job.ep, word.rma(none), 0);
    let op: *mut c_void = (&raw mut op).cast();
    let mut works: Vec<fi_deferred_work> = (1..=rounds)
        .map(|round| work((trigger, round), none.cast(), FI_OP_WRITE, op))
        .collect();
    if job.rank > 0 {
        queue(job, &mut works)?;
    }
    job.meet();
    for round in 1..=rounds {
        if job.rank == 0 {
            job.write(1, 8, &round.to_le_bytes())?;
        }
        // Ranks read only their memory. They make no libfabric call.
        job.await_word(if job.rank == 0 { 16 } else { 8 }, round)?;
        job.meet();
    }
    Ok(())
}

fn chained(job: &Job<'_>) -> Verdict {
    const LINKS: usize = 50;
    let counters = (0..=2 * LINKS).map(|_| job.station.counter());
    let counters: Vec<_> = counters.collect::<Result<_, _>>()?;
    // Each addition to the word triggers a change of a counter. That triggers the next addition to the word.
    let mut value = 1u64;
    let word = Word::new(job, job.rank, 0, &mut value);
    let mut add = atomic_op(job.ep, word.atomic(SUM, null_mut()), 0);
    let op: *mut c_void = (&raw mut add).cast();
    let mut changes: Vec<fi_op_cntr> = (0..LINKS)
        .map(|nth| fi_op_cntr {
            cntr: counters[2 * nth + 2],
            value: 7,
        })
        .collect();
    let mut works = Vec::new();
    for (nth, change) in changes.iter_mut().enumerate() {
        let (from, middle) = (counters[2 * nth], counters[2 * nth + 1]);
        works.push(work((from, 7), middle, FI_OP_ATOMIC, op));
        let kind = [FI_OP_CNTR_ADD, FI_OP_CNTR_SET][nth % 2];
        let change = std::ptr::from_mut(change);
        works.push(work((middle, 1), null_mut(), kind, change));
    }
    queue(job, works.iter_mut().rev())?;
    ok!(obj counters[0], add(7));
    ok!(obj counters[2 * LINKS], wait(7, -1));
    ensure_eq!(job.memory.get(0), LINKS as u64, "the additions");
    for_all(counters, close)
}
