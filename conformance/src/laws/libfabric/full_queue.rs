//! Full queues of one process (fi_domain(3), Resource Management). A call without room returns -FI_EAGAIN and has no effect. An accepted
//! operation is done once and reported once. With room, the call succeeds. See `flood` for queues towards stopped or dying peers.

use super::kit::*;
use super::srx::{Shared, with_shared};
use super::told::*;
use super::work::{Word, atomic_op, message_op, queue, work};

laws! {
    transmits with(&ORDERED, 256): "full-queue.transmit", "fi_domain(3), Tx Ctx; fi_endpoint(3), fi_tx_size_left", 2,
        [send, inject, tsend, sendmsg, atomicmsg, cancel, recv],
        "a transmit context takes messages up to its size, and no more operations of any kind until one ends; its messages come once, in order";
    receives with(&ORDERED, 256): "full-queue.receive", "fi_domain(3), Rx Ctx; fi_endpoint(3), fi_rx_size_left", 2,
        [recv, trecv, cancel, send],
        "a receive context takes as many receives as it has room for, and another one when one ends; messages take them in order";
    shared with_shared(&ORDERED, 1): "full-queue.shared", "fi_domain(3), Rx Ctx; fi_endpoint(3), fi_srx_context", 2, [srx_context, recv, cancel, send],
        "so does a context of receives that endpoints share";
    completions with(&ORDERED.entries(FEW), 256): "full-queue.completions", "fi_domain(3), Tx CQ / Rx CQ; fi_cq(3)", 2, [recv, send, tsend, read, cq_read, cq_readerr] + ordering,
        "completions and failures beyond the size of queues are reported once each, in order, and no queue overruns";
    selective with(&ORDERED.entries(4).selective(true).counters(&[FI_WRITE]), 256):
        "full-queue.selective", "fi_domain(3), Tx CQ; fi_cq(3)", 2, [writemsg, send, cq_read, cntr_read],
        "a full completion queue refuses operations that would report there, and takes others";
    data with(&ORDERED, 256): "full-queue.data", "fi_domain(3), Target EP; fi_rma(3)", 2, [writedata, inject_writedata, cq_read],
        "writes with data beyond the room of a target that does not progress: -FI_EAGAIN, and each is reported there once, in order";
    deferred with(&ORDERED, 256):
        "full-queue.deferred", "fi_trigger(3), Deferred work queues", 2, [control, send, cntr_add, cntr_read] + ordering,
        "deferred work that is due while the transmit context is full waits for room, and is carried out once, in order";
    events with(&Plan::DEFAULT, 256): "full-queue.events", "fi_eq(3)", 1, [eq_open, eq_write, eq_read, av_insert],
        "more events than an event queue was made for are read once each, in order";
}

/// More operations than any context has room for.
const TOO_MANY: usize = 1 << 17;
/// Entries of a queue that is full most of the time.
const FEW: usize = 4;
/// Queue entries: more than a transmit context has room for.
const ENTRIES: usize = 1 << 15;

/// Repeats a call until it returns -FI_EAGAIN. Returns the number of successes.
fn fill(what: &str, mut call: impl FnMut(usize) -> isize) -> Result<usize, String> {
    for nth in 0..TOO_MANY {
        if !accepted(call(nth)).map_err(|text| format!("{what} {nth}: {text}"))? {
            return Ok(nth);
        }
    }
    Err(format!("{TOO_MANY} times {what}, and there is room"))
}

/// The number that rank `rank` publishes with [`tell_number`].
fn hear_number(job: &Job<'_>, rank: u32) -> Result<usize, String> {
    job.meet();
    Ok(u64_of(&job.heard(rank)) as usize)
}

fn tell_number(job: &Job<'_>, number: usize) {
    job.ctx.tell(&(number as u64).to_le_bytes());
    job.meet();
}

/// Receives `count` messages. Message `nth` must be `expected(nth)`.
fn receive_in_order(job: &Job<'_>, count: usize, expected: impl Fn(usize) -> u64) -> Verdict {
    const AT_ONCE: usize = 64;
    let room = Buffer::new(8 * AT_ONCE);
    for first in (0..count).step_by(AT_ONCE) {
        let some = AT_ONCE.min(count - first);
        receive_each(None, job.ep, (&room, 8), 0..some)?;
        for nth in 0..some {
            job.rx.of(nth)?;
            room.shows(8 * nth, expected(first + nth), "a message")?;
        }
    }
    Ok(())
}

const ORDERED: Plan<'static> = Plan::DEFAULT
    .caps(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_TRIGGER)
    .order(FI_ORDER_SAS | FI_ORDER_WAW)
    .entries(ENTRIES);

fn transmits(job: &Job<'_>) -> Verdict {
    let (ep, none) = (job.ep, null_mut());
    let words = job.words(job.right(), 0);
    let to = words.place.0;
    if job.rank == 1 {
        // This rank makes no call until rank 0 has filled its queue.
        let count = hear_number(job, 0)?;
        receive_in_order(job, count + 2, |nth| nth as u64)?;
        job.meet();
        return job.rx.is_empty();
    }
    let numbers: Vec<u64> = (0..TOO_MANY as u64).collect();
    let send = |nth: usize| words.from(&numbers[nth]).told(nth).send();
    let count = fill("fi_send", send)?;
    let (size, _) = job.station.sizes();
    ensure!(count >= size, "room for {count} messages, not for {size}");
    ensure_eq!(call!(obj ep, tx_size_left()), 0, "fi_tx_size_left");
    let word = numbers.as_ptr().cast();
    let remote = Word::new(job, 1, 0, numbers.as_ptr().cast_mut());
    for _ in 0..3 {
        gives!(FI_EAGAIN, msg ep, send(word, 8, none, to, none));
        gives!(FI_EAGAIN, msg ep, inject(word, 8, to));
        gives!(FI_EAGAIN, msg ep, sendmsg(&remote.message(none), FI_DELIVERY_COMPLETE));
        gives!(FI_EAGAIN, tagged ep, send(word, 8, none, to, 5, none));
        gives!(FI_EAGAIN, atomic ep, writemsg(&remote.atomic(SUM, none), FI_TAGGED));
    }
    // A cancelled send frees room for one other.
    ensure_eq!(call!(obj ep, cancel(cx(count - 1))), 0, "fi_cancel");
    let seen = call!(obj ep, tx_size_left());
    ensure_eq!(seen, 1, "fi_tx_size_left with room for one");
    ensure_eq!(send(count - 1), 0, "a send with room for one");
    gives!(FI_EAGAIN, msg ep, send(word, 8, none, to, none));
    tell_number(job, count);
    let (mut told, mut taken_back) = (Told::of(count), 0);
    until_ok("the end of all sends", || {
        match job.tx.look()? {
            Some(End::Failure(error)) => {
                let seen = (error.err, error.context());
                ensure_eq!(seen, (FI_ECANCELED, count - 1), "a failure");
                taken_back += 1;
            }
            Some(End::Success(entry)) => told.note(entry.context())?,
            None => {}
        }
        Ok(told.all() >= count)
    })?;
    told.ensure(|_| 1)?;
    ensure_eq!(taken_back, 1, "sends that were taken back");
    let holds = call!(obj ep, tx_size_left()) > 0;
    ensure!(holds, "no room in an empty queue");
    ensure_eq!(send(count), 0, "a send into an empty queue");
    job.tx.of(count)?;
    let more = numbers[count + 1].to_le_bytes();
    job.post(|| inject_as(None, (ep, to), &more))?;
    job.meet();
    job.tx.is_empty()
}

/// Fills the receive queue of `owner`, cancels one receive, and lets messages take the others.
fn receive_queue(
    job: &Job<'_>,
    size: usize,
    (rx, owner): (Queue, *mut fid_ep),
    to: u64,
) -> Verdict {
    /// Messages of each kind.
    const SOME: usize = 150;
    if job.rank == 1 {
        hear_number(job, 0)?;
        for nth in 0..SOME as u64 {
            for tag in [None, Some(5)] {
                job.post(|| inject_as(tag, (job.ep, to), &nth.to_le_bytes()))?;
            }
        }
        job.meet();
        return Ok(());
    }
    let room = Buffer::new(8 * TOO_MANY);
    let post = |nth: usize| {
        let place = std::ptr::slice_from_raw_parts_mut(room.at(8 * nth), 8);
        receive_as((nth % 2 == 1).then_some(5), owner, place, nth)
    };
    let count = fill("a receive", post)?;
    ensure!(count >= size, "room for {count} receives, not for {size}");
    ensure_eq!(call!(obj owner, rx_size_left()), 0, "fi_rx_size_left");
    ensure_eq!((post(0), post(1)), (AGAIN, AGAIN), "receives without room");
    ensure_eq!(call!(obj owner, cancel(cx(0))), 0, "fi_cancel");
    rx.fails_of(0, FI_ECANCELED, "the receive that was taken back")?;
    let seen = call!(obj owner, rx_size_left());
    ensure_eq!(seen, 1, "fi_rx_size_left with room for one");
    let seen = (post(count), post(1));
    ensure_eq!(seen, (0, AGAIN), "receives with room for one");
    tell_number(job, count);
    let mut next = [2, 1];
    for _ in 0..2 * SOME {
        let context = rx.next()?.context();
        let kind = context % 2;
        ensure_eq!(context, next[kind], "the receive that a message takes");
        let nth = (next[kind] as u64 - 1) / 2;
        room.shows(8 * context, nth, "the message of a receive")?;
        next[kind] += 2;
    }
    for_all(0..2 * SOME, |nth| {
        equal!(post(nth), 0, "a receive in place of an ended one")
    })?;
    ensure_eq!(post(0), AGAIN, "a receive without room");
    job.meet();
    rx.is_empty()
}

fn receives(job: &Job<'_>) -> Verdict {
    let to = job.peer(0).address;
    receive_queue(job, job.station.sizes().1, (job.rx, job.ep), to)
}

fn shared(job: &Job<'_>, shared: Option<&Shared>, addresses: &[u64]) -> Verdict {
    let place = shared.map_or((job.rx, job.ep), |shared| {
        (shared.endpoints[0].rx, shared.srx)
    });
    receive_queue(job, job.station.sizes().1, place, addresses[0])
}

fn completions(job: &Job<'_>) -> Verdict {
    const COUNT: usize = 300;
    let to = (job.ep, job.peer(job.right()).address);
    if job.rank == 1 {
        for_all(0..COUNT as u64, |nth| {
            job.post(|| inject_as(None, to, &nth.to_le_bytes()))
        })?;
        job.meet();
        return job.tx.is_empty();
    }
    let room = Buffer::new(8 * COUNT);
    receive_each(None, job.ep, (&room, 8), 0..COUNT)?;
    until("all messages", || {
        // Only the transmit queue is read.
        job.tx.progress();
        room.get(8 * (COUNT - 1)) == COUNT as u64 - 1
    })?;
    for nth in 0..COUNT {
        job.rx.of(nth)?;
        room.shows(8 * nth, nth as u64, "a message")?;
    }
    job.rx.is_empty()?;
    // Failed operations need room, too.
    let mut word = 0u64;
    let words = job.words(1, 0).into(&mut word);
    let wrong = words.under(words.place.2 + 1000);
    let (mut posted, mut told, mut refused) = (0, Told::of(COUNT), 0);
    until_ok("all failures", || {
        // Fill the queue, then read one entry.
        while posted < COUNT && accepted(wrong.told(posted).read())? {
            posted += 1;
        }
        refused += usize::from(posted < COUNT);
        if let Some(End::Failure(error)) = job.tx.look()? {
            ensure_eq!(error.err, FI_ENOKEY, "a failure");
            told.note(error.context())?;
        }
        Ok(told.all() == COUNT)
    })?;
    ensure!(refused > 0, "room for {COUNT} failures in a queue of {FEW}");
    told.ensure(|_| 1)?;
    job.meet();
    job.tx.is_empty()
}

fn selective(job: &Job<'_>) -> Verdict {
    let counter = job.station.counters[0];
    let mut value = 1u64;
    let word = Word::new(job, job.right(), 8 * job.rank as usize, &mut value);
    let write = |nth: usize, flags| {
        let message = word.rma(cx(nth));
        call!(rma job.ep, writemsg(&message, flags))
    };
    let count = fill("a reported write", |nth| write(nth, FI_COMPLETION))?;
    let is_done = |count: usize| {
        job.rx.progress();
        value_of(counter) as usize == count
    };
    until("the end of all writes", || is_done(count))?;
    for more in 1..=200 {
        let seen = write(count, FI_COMPLETION);
        ensure_eq!(seen, AGAIN, "a write that would be reported");
        ensure_eq!(write(count, 0), 0, "a write that is not told");
        until("its end", || is_done(count + more))?;
    }
    // The completion order is free: the provider offers no comp_order (fi_endpoint(3)).
    Told::of(count).complete_each(job.tx, &[(counter, count + 200)], |_| true)?;
    job.told(count, || write(count, FI_COMPLETION))?;
    job.meet();
    let left = 8 * job.left() as usize;
    job.memory.shows(left, 1, "the other endpoint's data")
}

fn data(job: &Job<'_>) -> Verdict {
    /// More writes than a target keeps without reading its queue.
    const MANY: usize = 8000;
    if job.rank == 1 {
        let count = hear_number(job, 0)?;
        for nth in 0..count as u64 {
            ensure_eq!(job.rx.next()?.data, nth, "the data");
        }
        job.meet();
        job.memory.shows(0, count as u64 - 1, "the last write")?;
        return job.rx.is_empty();
    }
    let (words, numbers): (_, Vec<u64>) = (job.words(1, 0), (0..TOO_MANY as u64).collect());
    let write = |nth: usize| {
        let words = words.from(&numbers[nth]).told(nth);
        match nth % 2 {
            0 => words.write_data(nth as u64),
            _ => words.inject_data(nth as u64),
        }
    };
    let mut told = Told::of(TOO_MANY);
    for nth in 0..MANY {
        post(|| write(nth), || told.look(job.tx).map(drop))?;
    }
    let count = MANY + fill("a write with data", |nth| write(MANY + nth))?;
    tell_number(job, count);
    told.complete(job.tx, count.div_ceil(2), &[])?;
    told.ensure(|nth| usize::from(nth < count && nth % 2 == 0))?;
    job.meet();
    Ok(())
}

fn deferred(job: &Job<'_>) -> Verdict {
    const WORKS: usize = 200;
    let none = null_mut();
    if job.rank == 1 {
        let count = hear_number(job, 0)?;
        receive_in_order(job, count + WORKS / 2, |nth| nth as u64)?;
        job.meet();
        job.memory.shows(0, WORKS as u64 / 2, "the additions")?;
        return job.rx.is_empty();
    }
    let numbers: Vec<u64> = (0..TOO_MANY as u64).collect();
    let words = job.words(1, 0);
    let count = fill("fi_send", |nth| words.from(&numbers[nth]).told(nth).send())?;
    let (trigger, completion) = (job.station.counter()?, job.station.counter()?);
    ok!(obj trigger, add(1));
    let mut one = 1u64;
    let add = Word::new(job, 1, 0, &mut one);
    let mut addition = atomic_op(job.ep, add.atomic(SUM, none), 0);
    let word = |number: &u64| Word::new(job, 1, 0, std::ptr::from_ref(number).cast_mut());
    let sent: Vec<Word> = numbers[count..][..WORKS / 2].iter().map(word).collect();
    let mut sends: Vec<fi_op_msg> = sent
        .iter()
        .map(|word| message_op(job.ep, word.message(none), 0))
        .collect();
    let mut works = Vec::new();
    for send in &mut sends {
        let send = std::ptr::from_mut(send);
        works.push(work((trigger, 1), completion, FI_OP_SEND, send));
        let addition = &raw mut addition;
        works.push(work((trigger, 1), completion, FI_OP_ATOMIC, addition));
    }
    queue(job, &mut works)?;
    ensure_eq!(value_of(completion), 0, "work without room");
    tell_number(job, count);
    Told::of(count).complete_each(job.tx, &[(completion, WORKS)], |_| true)?;
    job.meet();
    close(completion)?;
    close(trigger)
}

fn events(job: &Job<'_>) -> Verdict {
    const COUNT: usize = 3000;
    let eq = super::event::open_sized(job, 2, FI_WAIT_UNSPEC, null_mut())?;
    let av = vector(&job.station, FI_AV_TABLE, FI_COMPLETION)?;
    ok!(fid av, bind(eq.cast(), 0));
    let (name, mut address) = (job.station.name()?, 0);
    for nth in 0..COUNT {
        let bytes = nth.to_le_bytes();
        let written = call!(obj eq, write(100, bytes.as_ptr().cast(), bytes.len(), 0));
        ensure_eq!(written, bytes.len() as isize, "fi_eq_write {nth}");
        ok!(obj av, insert(name.as_ptr().cast(), 1, &mut address, 0, cx(nth)));
    }
    let (mut event, mut buffer) = (0, [0usize; 3]);
    let size = size_of_val(&buffer);
    for nth in 0..COUNT {
        let mut read = || call!(obj eq, read(&mut event, buffer.as_mut_ptr().cast(), size, 0));
        ensure_eq!(read(), 8, "fi_eq_read");
        ensure_eq!(buffer[0], nth, "the event that the program wrote");
        let mut read = || call!(obj eq, read(&mut event, buffer.as_mut_ptr().cast(), size, 0));
        ensure_eq!(read(), 24, "fi_eq_read");
        ensure_eq!(event, FI_AV_COMPLETE, "the event of the vector");
        ensure_eq!(buffer[1], nth, "its context");
    }
    gives!(FI_EAGAIN, obj eq, read(&mut event, buffer.as_mut_ptr().cast(), size, 0));
    close(av)?;
    close(eq)
}
