//! Each operation is reported and counted exactly once, even if queues or lanes were full meanwhile (fi_cq(3), fi_cntr(3)).

use super::kit::*;
use super::station::{Plan, close, name_of};
use super::told::*;
use crate::kit::until_ok;

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
    let (to, ep) = (job.peer(0).address, job.ep);
    let mut told = Told::of(COUNT);
    let payloads: Vec<[u8; 16]> = (0..COUNT).map(|nth| [nth as u8; 16]).collect();
    for (nth, bytes) in payloads.iter().enumerate() {
        let part = piece(bytes);
        let message = envelope(&part, to, nth);
        let flags = if way.selective && is_told(nth, true) {
            FI_COMPLETION
        } else {
            0
        };
        let call = || match (way.tagged, is_injected(nth), way.selective) {
            (false, true, _) => call!(msg ep, inject(bytes.as_ptr().cast(), 8, to)),
            (true, true, _) => call!(tagged ep, inject(bytes.as_ptr().cast(), 8, to, 5)),
            (false, _, true) => call!(msg ep, sendmsg(&untagged(&message), flags)),
            (true, _, true) => call!(tagged ep, sendmsg(&message, flags)),
            (false, ..) => {
                call!(msg ep, send(bytes.as_ptr().cast(), 16, null_mut(), to, cx(nth)))
            }
            (true, ..) => {
                call!(tagged ep, send(bytes.as_ptr().cast(), 16, null_mut(), to, 5, cx(nth)))
            }
        };
        if nth == LANE + 1 {
            job.ctx.tell(b"full");
        }
        post(call, || told.look(job.tx).map(drop))?;
    }
    let all = (0..COUNT)
        .filter(|nth| is_told(*nth, way.selective))
        .count();
    told.complete(job.tx, all, &[(job.station.counters[0], COUNT)])?;
    told.ensure(|nth| usize::from(is_told(nth, way.selective)))
}

fn receive_all(job: &Job<'_>, way: Way) -> Verdict {
    let buffers = Memory::new(16 * COUNT);
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
    let mut told = Told::of(COUNT);
    let is_told = |nth: usize| !way.selective || nth.is_multiple_of(2);
    let all = (0..COUNT).filter(|nth| is_told(*nth)).count();
    told.complete(job.rx, all, &[(job.station.counters[1], COUNT)])?;
    told.ensure(|nth| usize::from(is_told(nth)))?;
    for nth in 0..COUNT {
        let len = if is_injected(nth) { 8 } else { 16 };
        buffers.holds(16 * nth, &[nth as u8; 16][..len], "a message")?;
    }
    buffers.free();
    Ok(())
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
                let to = job.peer(0).address;
                let mut told = Told::of(COUNT);
                for nth in 0..COUNT {
                    let call = || match is_injected(nth) {
                        true => call!(msg job.ep, inject(bytes.as_ptr().cast(), 16, to)),
                        false => {
                            call!(msg job.ep, send(bytes.as_ptr().cast(), 16, null_mut(), to, cx(nth)))
                        }
                    };
                    if nth == LANE + 1 {
                        ctx.tell(b"full");
                    }
                    post(call, || told.look(job.tx).map(drop))?;
                }
                let is_told = |nth: usize| !selective && !is_injected(nth);
                let all = (0..COUNT).filter(|nth| is_told(*nth)).count();
                told.complete(job.tx, all, &[(job.station.counters[0], COUNT)])?;
                return told.ensure(|nth| usize::from(is_told(nth)));
            }
            let buffers = Memory::new(16 * FIT * BUFFERS);
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
            buffers.free();
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
    let room = Memory::new(16 * all);
    for nth in 0..all {
        let base = room.at(16 * nth).cast();
        match nth % EACH % 2 {
            0 => ok!(msg job.ep, recv(base, 16, null_mut(), FI_ADDR_UNSPEC, cx(nth))),
            _ => {
                ok!(tagged job.ep, recv(base, 16, null_mut(), FI_ADDR_UNSPEC, 5, 0, cx(nth)))
            }
        }
    }
    job.meet();
    let (mut sent, mut received) = (Told::of(all), Told::of(all));
    for nth in 0..all {
        let rank = (job.rank + 1 + (nth % others) as u32) % job.size;
        let to = job.peer(rank).address;
        let (base, none, context) = (bytes.as_ptr().cast(), null_mut(), cx(nth));
        let call = || match (nth / others % 2, is_injected(nth)) {
            (0, true) => call!(msg job.ep, inject(base, 16, to)),
            (0, false) => call!(msg job.ep, send(base, 16, none, to, context)),
            (_, true) => call!(tagged job.ep, inject(base, 16, to, 5)),
            (_, false) => call!(tagged job.ep, send(base, 16, none, to, 5, context)),
        };
        post(call, || {
            sent.look(job.tx)?;
            received.look(job.rx).map(drop)
        })?;
    }
    let is_told = |nth: usize| !is_injected(nth);
    let untold = (0..all).filter(|nth| !is_told(*nth)).count();
    let counters = &job.station.counters;
    // Each rank waits for the messages of all others. The reads also make progress on its own sends.
    received.complete(job.rx, all, &[(counters[1], all)])?;
    sent.complete(job.tx, all - untold, &[(counters[0], all)])?;
    sent.ensure(|nth| usize::from(is_told(nth)))?;
    received.ensure(|_| 1)?;
    job.meet();
    room.free();
    Ok(())
}

fn many_peers(job: &Job<'_>) -> Verdict {
    /// Endpoints of each process except rank 0. The messages to each endpoint exceed the lines of a lane.
    const ENDPOINTS: usize = 60;
    const EACH: usize = 70;
    /// Tag of the message with an endpoint's name.
    const HELLO: u64 = 1;
    let counters = &job.station.counters;
    let bytes = [9u8; 8];
    let base = bytes.as_ptr().cast();
    if job.rank > 0 {
        let all = ENDPOINTS * EACH;
        let room = Memory::new(8 * all);
        let (mut sent, mut endpoints) = (Told::of(ENDPOINTS), Vec::new());
        for nth in 0..ENDPOINTS {
            let ep = job.station.enabled(&CROWDED)?;
            let name = name_of(ep)?;
            for message in 0..EACH {
                let context = nth * EACH + message;
                let place = room.at(8 * context).cast();
                ok!(msg ep, recv(place, 8, null_mut(), FI_ADDR_UNSPEC, cx(context)));
            }
            let to = job.peer(0).address;
            post(
                || call!(tagged ep, send(name.as_ptr().cast(), NAME, null_mut(), to, HELLO, cx(nth))),
                || sent.look(job.tx).map(drop),
            )?;
            endpoints.push(ep);
        }
        sent.complete(job.tx, ENDPOINTS, &[(counters[0], ENDPOINTS)])?;
        hear(job.ctx, 0, b"full")?;
        let mut received = Told::of(all);
        received.complete(job.rx, all, &[(counters[1], all)])?;
        received.ensure(|_| 1)?;
        job.meet();
        endpoints.into_iter().try_for_each(close)?;
        room.free();
        return Ok(());
    }
    let peers = ENDPOINTS * (job.size as usize - 1);
    let names = Memory::new(NAME * peers);
    for nth in 0..peers {
        let place = names.at(NAME * nth).cast();
        ok!(tagged job.ep, recv(place, NAME, null_mut(), FI_ADDR_UNSPEC, HELLO, 0, cx(nth)));
    }
    let mut known = Told::of(peers);
    known.complete(job.rx, peers, &[(counters[1], peers)])?;
    known.ensure(|_| 1)?;
    let mut addresses = Vec::new();
    for nth in 0..peers {
        addresses.push(job.station.insert(&names.load(NAME * nth, NAME))?);
    }
    names.free();
    let all = peers * EACH;
    let mut sent = Told::of(all);
    for nth in 0..all {
        let to = addresses[nth % peers];
        let call = || match is_injected(nth / peers) {
            true => call!(msg job.ep, inject(base, 8, to)),
            false => call!(msg job.ep, send(base, 8, null_mut(), to, cx(nth))),
        };
        if nth == peers * (LANE + 1) {
            job.ctx.tell(b"full");
        }
        post(call, || sent.look(job.tx).map(drop))?;
    }
    let is_told = |nth: usize| !is_injected(nth / peers);
    let told = (0..all).filter(|nth| is_told(*nth)).count();
    sent.complete(job.tx, told, &[(counters[0], all)])?;
    sent.ensure(|nth| usize::from(is_told(nth)))?;
    job.meet();
    Ok(())
}

/// Posts access `nth` to remote memory. Modulo 8: 1, 3 and 7 are injected, 4 and 6 read, 5 and 7 carry remote CQ data.
fn access(job: &Job<'_>, nth: usize, result: *mut u64) -> isize {
    static ONE: u64 = 1;
    let (to, at, key) = job.place(0, 8 * job.rank as usize);
    let (o, none, context) = ((&raw const ONE).cast(), null_mut(), cx(nth));
    let data = u64::from(job.rank) << 32 | nth as u64;
    let own = (at + 64, at + 128);
    match nth % 8 {
        0 => call!(rma job.ep, write(o, 8, none, to, own.0, key, context)),
        1 => call!(rma job.ep, inject(o, 8, to, own.0, key)),
        2 => call!(atomic job.ep, write(o, 1, none, to, at, key, UINT64, SUM, context)),
        3 => call!(atomic job.ep, inject(o, 1, to, at, key, UINT64, SUM)),
        4 => {
            call!(atomic job.ep, readwrite(o, 1, none, result.cast(), none, to, at, key, UINT64, SUM, context))
        }
        5 => call!(rma job.ep, writedata(o, 8, none, data, to, own.1, key, context)),
        6 => call!(rma job.ep, read(result.cast(), 8, none, to, own.0, key, context)),
        _ => call!(rma job.ep, injectdata(o, 8, data, to, own.1, key)),
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
        let is_told = |nth: usize| !matches!(nth % 8, 1 | 3 | 7);
        let all = (0..count).filter(|nth| is_told(*nth)).count();
        let counters = [(reads, count / 4), (writes, count / 4 * 3)];
        told.complete(job.tx, all, &counters)?;
        told.ensure(|nth| usize::from(is_told(nth)))?;
        let mut fetched: Vec<u64> = results.into_iter().skip(4).step_by(8).collect();
        fetched.sort_unstable();
        let all_differ = fetched.windows(2).all(|two| two[0] < two[1]);
        ensure!(all_differ, "what was fetched: {fetched:?}");
        return Ok(());
    }
    for rank in 1..job.size {
        hear(job.ctx, rank, b"posted")?;
    }
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
    for rank in 1..job.size as usize {
        ensure_eq!(job.memory.get(8 * rank) as usize, count / 8 * 3, "the sum");
    }
    Ok(())
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
    let words = Memory::new(8 * COUNT);
    for nth in 0..COUNT {
        words.set(8 * nth, nth as u64);
        let base = words.at(8 * nth).cast();
        ok!(tagged job.ep, recv(base, 8, null_mut(), FI_ADDR_UNSPEC, 11, 0, cx(nth)));
    }
    let (mut asked, mut operated) = (Told::of(COUNT), Told::of(COUNT));
    operated.complete(job.rx, COUNT, &[(receives, COUNT)])?;
    asked.complete(job.tx, COUNT, &[(reads, COUNT / 2), (writes, COUNT / 2)])?;
    asked.ensure(|_| 1)?;
    operated.ensure(|_| 1)?;
    for (nth, result) in results.iter().enumerate() {
        ensure_eq!(words.get(8 * nth), nth as u64 + 1, "word {nth}");
        // SAFETY:
        // - a word that the provider writes through a pointer.
        let seen = unsafe { (&raw const *result).read_volatile() };
        let expected = if nth % 2 == 0 { 0 } else { nth as u64 };
        ensure_eq!(seen, expected, "value fetched from word {nth}");
    }
    job.meet();
    words.free();
    Ok(())
}
