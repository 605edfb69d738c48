//! Each operation is reported and counted exactly once, even if queues or lanes were full meanwhile (fi_cq(3), fi_cntr(3)).

use super::kit::*;
use super::told::*;

laws! {
    ways given(false): "account.messages", "fi_cq(3), fi_cntr(3)", 2, [send, sendmsg, inject, recvmsg, cq_read, cntr_read] + ordering,
        "each message is reported and counted once on both sides, and injected ones are only counted, though queues and lanes are full and calls are repeated";
    ways given(true): "account.tagged", "fi_cq(3), fi_cntr(3)", 2, [tsend, tsendmsg, tinject, trecvmsg, cq_read, cntr_read] + ordering,
        "so is each tagged message";
    several: "account.multi", "fi_cq(3), fi_cntr(3)", 3, [inject, send, recvmsg, cq_read, cntr_read] + ordering,
        "so is each message that comes into buffers with FI_MULTI_RECV, and each buffer is given back once";
    crowd with(&CROWDED, 256):
        "account.crowd", "fi_cq(3), fi_cntr(3)", 8, [send, inject, tsend, tinject, recv, trecv] + ordering,
        "so is each where eight send to each other, none of them ahead of the others";
    many_peers with(&CROWDED, 256):
        "account.peers", "fi_cq(3), fi_cntr(3)", 5, [send, inject, tsend, recv, trecv],
        "so is each between one endpoint and as many peers as it can have at a time";
    remote with(&Plan::DEFAULT.caps(FI_RMA | FI_ATOMIC | FI_RMA_EVENT).entries(FEW).counters(&[FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE]), 256):
        "account.remote", "fi_cq(3), fi_cntr(3)", 3, [write, writedata, inject_write, read, atomic, fetch_atomic, inject_atomic, cntr_read] + ordering,
        "each access to remote memory is reported and counted once at its initiator, and counted once at its target, though queues are full";
    answers with(&Plan::DEFAULT.entries(2 * COUNT).counters(&[FI_READ, FI_WRITE, FI_RECV]), 256):
        "account.answers", "fi_cq(3), fi_cntr(3)", 2, [atomicmsg, fetch_atomicmsg, trecv, cq_read, cntr_read] + ordering,
        "each atomic operation on tagged buffers is reported and counted once on both sides, though the lanes are full in both directions";
}

/// Queue entries. With this few, a queue is full most of the time.
const FEW: usize = 4;
/// Messages: more than the lines of a lane.
const COUNT: usize = 120;

/// An endpoint whose queues are full most of the time.
const CROWDED: Plan<'static> = Plan::DEFAULT.entries(FEW).counters(&[FI_SEND, FI_RECV]);

/// Every third message is injected. With selective completion, only the first of three requests a completion.
fn is_injected(nth: usize) -> bool {
    nth % 3 == 1
}

fn is_told(nth: usize, selective: bool) -> bool {
    nth.is_multiple_of(3) || !is_injected(nth) && !selective
}

/// Sends message `nth`, or injects it.
fn some_injected(
    tag: Option<u64>,
    nth: usize,
    to: (*mut fid_ep, u64),
    bytes: &[u8],
    context: usize,
) -> isize {
    match is_injected(nth) {
        true => inject_as(tag, to, bytes),
        false => send_as(tag, to, bytes, context),
    }
}

#[derive(Clone, Copy)]
struct Way {
    tagged: bool,
    selective: bool,
    /// Receives are posted only when messages wait at the sender.
    late: bool,
}

fn ways(ctx: &Ctx, tagged: bool) -> Verdict {
    for (entries, selective, late) in [
        (0, false, false),
        (FEW, false, true),
        (FEW, true, false),
        (0, true, true),
    ] {
        let way = Way {
            tagged,
            selective,
            late,
        };
        let plan = CROWDED.entries(entries).selective(selective);
        with(ctx, &plan, 256, |job| match job.rank {
            1 => send_all(job, way),
            _ => receive_all(job, way),
        })?;
    }
    Ok(())
}

fn send_all(job: &Job<'_>, way: Way) -> Verdict {
    let to = (job.ep, job.peer(0).address);
    let tag = way.tagged.then_some(5);
    let mut told = Told::of(COUNT);
    let payloads: Vec<[u8; 16]> = (0..COUNT).map(|nth| [nth as u8; 16]).collect();
    for (nth, bytes) in payloads.iter().enumerate() {
        let part = piece(bytes);
        let message = envelope(&part, to.1, nth);
        let flags = if is_told(nth, true) { FI_COMPLETION } else { 0 };
        let call = || match (is_injected(nth), way.selective) {
            (true, _) => inject_as(tag, to, &bytes[..8]),
            (_, true) if way.tagged => call!(tagged job.ep, sendmsg(&message, flags)),
            (_, true) => call!(msg job.ep, sendmsg(&untagged(&message), flags)),
            _ => send_as(tag, to, bytes, nth),
        };
        if nth == LANE + 1 {
            job.ctx.tell(b"full");
        }
        post(call, || told.look(job.tx).map(drop))?;
    }
    let counters = [(job.station.counters[0], COUNT)];
    told.complete_each(job.tx, &counters, |nth| is_told(nth, way.selective))
}

fn receive_all(job: &Job<'_>, way: Way) -> Verdict {
    let buffers = Buffer::new(16 * COUNT);
    let post_all = || -> Verdict {
        for nth in 0..COUNT {
            let part = iovec(buffers.at(16 * nth), 16);
            let receive = envelope(&part, FI_ADDR_UNSPEC, nth);
            let flags = if nth % 2 == 0 { FI_COMPLETION } else { 0 };
            match way.tagged {
                true => ok!(tagged job.ep, recvmsg(&receive, flags)),
                false => ok!(msg job.ep, recvmsg(&untagged(&receive), flags)),
            }
        }
        Ok(())
    };
    if !way.late {
        post_all()?;
    }
    hear(job.ctx, 1, b"full")?;
    if way.late {
        post_all()?;
    }
    let counters = [(job.station.counters[1], COUNT)];
    Told::of(COUNT).complete_each(job.rx, &counters, |nth| {
        !way.selective || nth.is_multiple_of(2)
    })?;
    for_all(0..COUNT, |nth| {
        let len = if is_injected(nth) { 8 } else { 16 };
        buffers.holds(16 * nth, &[nth as u8; 16][..len], "a message")
    })
}

fn several(ctx: &Ctx) -> Verdict {
    /// Messages of 16 bytes that fit a buffer.
    const FIT: usize = 6;
    const BUFFERS: usize = 2 * COUNT / FIT;
    for selective in [false, true] {
        let plan = Plan::DEFAULT
            .caps(FI_MSG | FI_MULTI_RECV)
            .entries(FEW)
            .selective(selective)
            .counters(&[FI_SEND, FI_RECV]);
        with(ctx, &plan, 256, |job| {
            let least = 16usize;
            ok!(obj job.ep, setopt(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, (&raw const least).cast(), size_of::<usize>()));
            let bytes = [3u8; 16];
            if job.rank > 0 {
                let to = (job.ep, job.peer(0).address);
                let mut told = Told::of(COUNT);
                for nth in 0..COUNT {
                    if nth == LANE + 1 {
                        ctx.tell(b"full");
                    }
                    let call = || some_injected(None, nth, to, &bytes, nth);
                    post(call, || told.look(job.tx).map(drop))?;
                }
                let counters = [(job.station.counters[0], COUNT)];
                return told
                    .complete_each(job.tx, &counters, |nth| !selective && !is_injected(nth));
            }
            let buffers = Buffer::new(16 * FIT * BUFFERS);
            for nth in 0..BUFFERS {
                let part = iovec(buffers.at(16 * FIT * nth), 16 * FIT);
                let receive = untagged(&envelope(&part, FI_ADDR_UNSPEC, nth));
                ok!(msg job.ep, recvmsg(&receive, FI_MULTI_RECV));
            }
            hear(ctx, 1, b"full")?;
            hear(ctx, 2, b"full")?;
            let mut told = Told::of(BUFFERS);
            let counters = [(job.station.counters[1], 2 * COUNT)];
            let mut given_back = 0;
            let all = if selective { BUFFERS } else { 2 * COUNT };
            until_ok("all messages", || {
                let flags = told.look(job.rx)?.map_or(0, |entry| entry.flags);
                given_back += usize::from(flags & FI_MULTI_RECV != 0);
                Ok(told.all() >= all)
            })?;
            told.complete(job.rx, all, &counters)?;
            ensure_eq!(given_back, BUFFERS, "buffers that were given back");
            told.ensure(|_| if selective { 1 } else { FIT })?;
            buffers.holds(0, &[3; 16 * FIT], "the first buffer")?;
            Ok(())
        })?;
    }
    Ok(())
}

fn crowd(job: &Job<'_>) -> Verdict {
    /// Messages from each rank to each other rank.
    const EACH: usize = 70;
    let others = job.size as usize - 1;
    let (all, bytes) = (others * EACH, [6u8; 16]);
    let room = Buffer::new(16 * all);
    let odd = |nth: &usize| nth % EACH % 2 == 1;
    receive_each(None, job.ep, (&room, 16), (0..all).filter(|nth| !odd(nth)))?;
    receive_each(Some(5), job.ep, (&room, 16), (0..all).filter(odd))?;
    job.meet();
    let (mut sent, mut received) = (Told::of(all), Told::of(all));
    for nth in 0..all {
        let rank = (job.rank + 1 + (nth % others) as u32) % job.size;
        let to = (job.ep, job.peer(rank).address);
        let tag = (nth / others % 2 == 1).then_some(5);
        let call = || some_injected(tag, nth, to, &bytes, nth);
        post(call, || {
            sent.look(job.tx)?;
            received.look(job.rx).map(drop)
        })?;
    }
    let counters = [0, 1].map(|nth| (job.station.counters[nth], all));
    // Each rank waits for the messages of all others. The reads also make progress on its own sends.
    received.complete_each(job.rx, &counters[1..], |_| true)?;
    sent.complete_each(job.tx, &counters[..1], |nth| !is_injected(nth))?;
    job.meet();
    Ok(())
}

fn many_peers(job: &Job<'_>) -> Verdict {
    /// Endpoints of each process except rank 0. The messages to each endpoint exceed the lines of a lane.
    const ENDPOINTS: usize = 60;
    const EACH: usize = 70;
    /// Tag of the message with an endpoint's name.
    const HELLO: u64 = 1;
    let counter = |nth: usize, count: usize| [(job.station.counters[nth], count)];
    if job.rank > 0 {
        let all = ENDPOINTS * EACH;
        let room = Buffer::new(8 * all);
        let (mut sent, mut endpoints) = (Told::of(ENDPOINTS), Vec::new());
        for nth in 0..ENDPOINTS {
            let ep = job.station.enabled(&CROWDED)?;
            let (name, to) = (name_of(ep)?, job.peer(0).address);
            receive_each(None, ep, (&room, 8), nth * EACH..(nth + 1) * EACH)?;
            let call = || send_as(Some(HELLO), (ep, to), &name, nth);
            post(call, || sent.look(job.tx).map(drop))?;
            endpoints.push(ep);
        }
        sent.complete(job.tx, ENDPOINTS, &counter(0, ENDPOINTS))?;
        hear(job.ctx, 0, b"full")?;
        Told::of(all).complete_each(job.rx, &counter(1, all), |_| true)?;
        job.meet();
        return endpoints.into_iter().try_for_each(close);
    }
    let peers = ENDPOINTS * (job.size as usize - 1);
    let names = Buffer::new(NAME * peers);
    receive_each(Some(HELLO), job.ep, (&names, NAME), 0..peers)?;
    Told::of(peers).complete_each(job.rx, &counter(1, peers), |_| true)?;
    let address = |nth| job.station.insert(&names.load(NAME * nth, NAME));
    let addresses: Vec<u64> = (0..peers).map(address).collect::<Result<_, _>>()?;
    let all = peers * EACH;
    let mut sent = Told::of(all);
    for nth in 0..all {
        let to = (job.ep, addresses[nth % peers]);
        if nth == peers * (LANE + 1) {
            job.ctx.tell(b"full");
        }
        let call = || some_injected(None, nth / peers, to, &[9; 8], nth);
        post(call, || sent.look(job.tx).map(drop))?;
    }
    sent.complete_each(job.tx, &counter(0, all), |nth| !is_injected(nth / peers))?;
    job.meet();
    Ok(())
}

/// Posts access `nth` to remote memory. Modulo 8: 1, 3 and 7 are injected, 4 and 6 read, 5 and 7 carry remote CQ data.
fn access(job: &Job<'_>, nth: usize, result: *mut u64) -> isize {
    let shared = job.words(0, 8 * job.rank as usize);
    let shared = shared.into(result).told(nth);
    let data = u64::from(job.rank) << 32 | nth as u64;
    let (own, with_data) = (shared.behind(64), shared.behind(128));
    match nth % 8 {
        0 => own.write(),
        1 => own.inject(),
        2 => shared.add(),
        3 => shared.inject_add(),
        4 => shared.fetch_add(),
        5 => with_data.write_data(data),
        6 => own.read(),
        _ => with_data.inject_data(data),
    }
}

fn remote(job: &Job<'_>) -> Verdict {
    // On a fast backend, this exceeds the target's room for notices.
    let count = many(job.ctx, 200) as usize;
    let others = job.size as usize - 1;
    let [reads, writes, remote_reads, remote_writes] = job.station.counted()?;
    if job.rank > 0 {
        let mut told = Told::of(count);
        let mut results = vec![0u64; count];
        for (nth, result) in results.iter_mut().enumerate() {
            let result = &raw mut *result;
            post(|| access(job, nth, result), || told.look(job.tx).map(drop))?;
        }
        job.ctx.tell(b"posted");
        let counters = [(reads, count / 4), (writes, count / 4 * 3)];
        told.complete_each(job.tx, &counters, |nth| !matches!(nth % 8, 1 | 3 | 7))?;
        let mut fetched: Vec<u64> = results.into_iter().skip(4).step_by(8).collect();
        fetched.sort_unstable();
        let all_differ = fetched.windows(2).all(|two| two[0] < two[1]);
        ensure!(all_differ, "what was fetched: {fetched:?}");
        return Ok(());
    }
    for_all(1..job.size, |rank| hear(job.ctx, rank, b"posted"))?;
    let all = others * count / 4;
    let (mut seen, mut heard) = (0, vec![0u8; others * count]);
    until("what comes with data", || {
        if let (1, entry) = job.rx.read() {
            let (rank, nth) = ((entry.data >> 32) as usize - 1, entry.data as u32 as usize);
            heard[rank * count + nth] += 1;
            seen += 1;
        }
        seen >= all
    })?;
    for (nth, times) in heard.iter().enumerate() {
        let expected = u8::from(matches!(nth % count % 8, 5 | 7));
        ensure_eq!(*times, expected, "how often data {nth} has come");
    }
    let counters = [(remote_reads, all), (remote_writes, all * 3)];
    Told::of(0).complete(job.rx, 0, &counters)?;
    for_all(1..job.size as usize, |rank| {
        job.memory.shows(8 * rank, count as u64 / 8 * 3, "the sum")
    })
}

fn answers(job: &Job<'_>) -> Verdict {
    let [reads, writes, receives] = job.station.counted()?;
    // Each rank posts all operations on the other's tagged buffers. Receives are posted only after both have posted all.
    let other = job.peer(job.right()).address;
    let mut results = vec![0u64; COUNT];
    let one = 1u64;
    let operand = ioc(&raw const one, 1);
    for (nth, result) in results.iter_mut().enumerate() {
        let target = rma_ioc(0, 1, 11);
        let mut result = ioc(&raw mut *result, 1);
        let msg = atomic_msg(&operand, other, &target, SUM, cx(nth));
        let none = null_mut();
        match nth % 2 {
            0 => ok!(atomic job.ep, writemsg(&msg, FI_TAGGED)),
            _ => ok!(atomic job.ep, readwritemsg(&msg, &mut result, none, 1, FI_TAGGED)),
        }
    }
    job.ctx.tell(b"asked");
    hear(job.ctx, job.right(), b"asked")?;
    let words = Buffer::new(8 * COUNT);
    (0..COUNT).for_each(|nth| words.set(8 * nth, nth as u64));
    receive_each(Some(11), job.ep, (&words, 8), 0..COUNT)?;
    let counters = [(reads, COUNT / 2), (writes, COUNT / 2)];
    Told::of(COUNT).complete_each(job.rx, &[(receives, COUNT)], |_| true)?;
    Told::of(COUNT).complete_each(job.tx, &counters, |_| true)?;
    for (nth, result) in results.iter().enumerate() {
        ensure_eq!(words.get(8 * nth), nth as u64 + 1, "word {nth}");
        let expected = if nth % 2 == 0 { 0 } else { nth as u64 };
        ensure_eq!(current(result), expected, "value fetched from word {nth}");
    }
    job.meet();
    Ok(())
}
