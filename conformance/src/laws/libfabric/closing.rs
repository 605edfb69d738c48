//! Endpoints that are closed while operations are in progress.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::kit::*;
use super::memory::{exchanged, register};
use super::more::Piece;
use super::pages::{ACCESSES, INJECTED, SOURCE};
use super::progress::Shared;
use super::station::{Plan, close};
use super::told::{LANE, hear};
use super::words::Words;
use crate::kit::Child;

laws! {
    closed with(&Plan::DEFAULT, 3 * PART): "rma.more.close", "fi_rma(3), fi_endpoint(3)", 2, [writemsg, readmsg, close, write, read] + ordering,
        "an endpoint can be closed while reads and writes are in progress, with FI_MORE too: their memory is the program's again";
    sending with(&Plan::DEFAULT, 256): "msg.close.send", "fi_msg(3), fi_endpoint(3)", 2, [sendmsg, close, recv, send, trecv, tsend],
        "an endpoint can be closed while its messages are in progress: each comes whole, fails or is lost; its memory is the program's again";
    receiving with(&Plan::DEFAULT, 256): "msg.close.receive", "fi_msg(3), fi_endpoint(3)", 2, [close, recv, send, trecv, tsend],
        "an endpoint can be closed while messages come: the buffers are the program's again, and each send ends";
    settled with(&IN_ORDER, 256): "msg.close.received", "fi_msg(3), fi_endpoint(3)", 2, [send, recv, inject, close],
        "an endpoint is closed after its receives: the sends of these messages succeed, and injected messages arrive, though the peer takes nothing before";
    in_use: "mr.close.busy", "fi_mr(3), fi_domain(3): threading", 2, [close, mr_reg, write, writedata, read, atomic, fetch_atomic, compare_atomic] + ordering,
        "a region is closed and registered again while peers use it: each operation ends once, with success or a failure, and none is left";
    forked: "msg.close.fork", "fi_endpoint(3), fi_mr(3)", 2, [inject, recv, close, write],
        "the child of a fork can close inherited objects: messages that wait, and registrations, remain with the parent";
}

const PART: usize = 1 << 20;

fn closed(job: &Job<'_>) -> Verdict {
    let rank = job.right();
    for round in 0..many(job.ctx, 3) {
        let flags = [FI_MORE, 0][round as usize % 2];
        for len in [8, 200, 2048, 100_000, PART] {
            job.write(rank, 0, &vec![0x11; len])?;
            job.write(rank, PART, &vec![0x11; len])?;
            let ep = job.station.enabled(&Plan::DEFAULT)?;
            let (mut from, mut into) = (vec![0x22; len], vec![0x22; len]);
            let written = Piece::new(&mut from, job.place(rank, 0), 5);
            let read = Piece::new(&mut into, job.place(rank, PART), 6);
            job.post(|| written.write(ep, flags))?;
            job.post(|| read.read(ep, flags))?;
            close(ep)?;
            // fi_endpoint(3) does not say whether they complete.
            while job.tx.read().0 == 1 {}
            from.fill(0x33);
            into.fill(0x33);
            let other = vec![0x44u8; len];
            job.write(rank, 2 * PART, &other)?;
            let seen = job.read(rank, 0, len)?;
            let whole = seen.iter().all(|byte| matches!(byte, 0x11 | 0x22));
            ensure!(whole, "{len} bytes: a write reads memory after fi_close");
            let back = job.read(rank, 2 * PART, len)?;
            same(&back, &other, "what another endpoint writes")?;
            job.meet();
            same(
                &into,
                &vec![0x33; len],
                "the memory of a read after fi_close",
            )?;
        }
    }
    Ok(())
}

/// Drains a queue.
fn empty(queue: Queue) {
    while queue.read().0 != AGAIN {
        let _ = queue.take_error();
    }
}

const LENGTHS: [usize; 4] = [8, 2048, 100_000, 1 << 20];

fn sending(job: &Job<'_>) -> Verdict {
    let address = job.peer(job.right()).address;
    for round in 0..many(job.ctx, 3) {
        let tag = [None, None, Some(9)][round as usize % 3];
        for len in LENGTHS {
            let mut into = [0; 4].map(|_| vec![0x11; len]);
            for (nth, buffer) in into.iter_mut().enumerate() {
                job.post(|| receive_as(tag, job.ep, &mut buffer[..], nth))?;
            }
            job.meet();
            let ep = job.station.enabled(&Plan::DEFAULT)?;
            let mut from = vec![0x22; len];
            if round % 3 == 0 {
                let piece = Piece::new(&mut from, (address, 0, 0), 5);
                job.post(|| piece.send(ep, FI_MORE))?;
            } else {
                job.post(|| send_as(tag, (ep, address), &from, 5))?;
            }
            close(ep)?;
            from.fill(0x33);
            while job.tx.read().0 == 1 {}
            let last = vec![0x44; len];
            job.post(|| send_as(tag, (job.ep, address), &last, 6))?;
            job.tx.of(6)?;
            // The message of the closed endpoint may come before the last one.
            let mut seen = false;
            while !seen {
                // A failed send may leave a partial message. A message of an earlier round may come late.
                let part = match job.rx.end()? {
                    End::Success(entry) => &into[entry.context()][..entry.len],
                    End::Failure(_) => &[],
                };
                seen = part.first() == Some(&0x44);
                let expected = [0x22, 0x44][usize::from(seen)];
                same(part, &vec![expected; part.len()], "the message")?;
            }
            for nth in 0..4 {
                call!(obj job.ep, cancel(cx(nth)));
            }
            job.meet();
            empty(job.rx);
        }
    }
    Ok(())
}

fn receiving(job: &Job<'_>) -> Verdict {
    for round in 0..many(job.ctx, 3) {
        let tag = [None, Some(9)][round as usize % 2];
        for len in LENGTHS {
            let ep = job.station.enabled(&Plan::DEFAULT)?;
            let mut into = vec![0x11; len];
            ensure_eq!(receive_as(tag, ep, &mut into[..], 1), 0, "the receive");
            job.ctx.tell(&name_of(ep)?);
            job.meet();
            let to = job.known(job.right())?;
            let from = vec![0x22; len];
            job.post(|| send_as(tag, (job.ep, to), &from, 7))?;
            close(ep)?;
            into.fill(0x33);
            let context = job.tx.end()?.context();
            ensure_eq!(context, 7, "the context of the send");
            job.meet();
            same(&into, &vec![0x33; len], "the buffer after fi_close")?;
            empty(job.rx);
        }
    }
    Ok(())
}

const IN_ORDER: Plan<'static> = Plan::DEFAULT.order(FI_ORDER_SAS);

fn settled(job: &Job<'_>) -> Verdict {
    const LONG: usize = 20_000;
    const LONGS: usize = 20;
    const SHORTS: usize = LANE + 6;
    if job.rank == 1 {
        let ep = job.station.enabled(&IN_ORDER)?;
        job.ctx.tell(&name_of(ep)?);
        job.meet();
        inject_numbers(job, ep, SHORTS as u64)?;
        let into = Buffer::new(LONG * LONGS);
        receive_each(None, ep, (&into, LONG), 0..LONGS)?;
        job.rx.successes(0..LONGS)?;
        job.ctx.tell(b"received");
        close(ep)?;
        return into.all(0, into.len, 0x22, "the received messages");
    }
    let (words, payload) = (Buffer::new(8 * SHORTS), vec![0x22u8; LONG]);
    receive_each(None, job.ep, (&words, 8), 0..SHORTS)?;
    job.meet();
    let to = job.known(1)?;
    for nth in 0..LONGS {
        job.post(|| send_as(None, (job.ep, to), &payload, nth))?;
    }
    hear(job.ctx, 1, b"received")?;
    job.tx.successes(0..LONGS)?;
    job.rx.successes(0..SHORTS)?;
    for_all(0..SHORTS, |nth| {
        words.shows(8 * nth, nth as u64, "an injected message")
    })
}

/// Injects the numbers below `count` for the next rank.
fn inject_numbers(job: &Job<'_>, ep: *mut fid_ep, count: u64) -> Verdict {
    let to = (ep, job.peer(job.right()).address);
    for_all(0..count, |nth| {
        job.post(|| inject_as(None, to, &nth.to_le_bytes()))
    })
}

fn in_use(ctx: &Ctx) -> Verdict {
    const RIGHTS: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;
    for mr_mode in [FI_MR_VIRT_ADDR | FI_MR_ALLOCATED, 0] {
        with(ctx, &Plan::DEFAULT.mr_mode(mr_mode), 256, |job| {
            let lent = Memory::pages(5 * 4096)?;
            let first = register(job, lent, RIGHTS, 90, 0)?;
            let (key, base) = exchanged(job, first);
            let (stop, shared, first) = (AtomicBool::new(false), Shared(job), first.mr.addr());
            let (last, mut posted) = (AtomicUsize::new(first), 0);
            std::thread::scope(|scope| {
                let (stop, shared, last) = (&stop, &shared, &last);
                let closer = scope.spawn(move || {
                    let job = shared.0;
                    let ended = (0..many(job.ctx, 10)).try_for_each(|round| {
                        pause(job.ctx.random(round).below(3));
                        close(last.load(Ordering::Relaxed) as *mut fid_mr)?;
                        let region = register(job, lent, RIGHTS, 90, 0)?;
                        last.store(region.mr.addr(), Ordering::Relaxed);
                        Ok(())
                    });
                    stop.store(true, Ordering::Release);
                    ended
                });
                let to = job.peer(job.right()).address;
                while !stop.load(Ordering::Acquire) {
                    // An injected write has no completion.
                    for (nth, (name, post, ..)) in ACCESSES.iter().enumerate() {
                        if nth == INJECTED {
                            continue;
                        }
                        let (mut result, at) = (0u64, base + 1024 * nth as u64);
                        let words = Words::new(job.ep, (to, at, key)).from(SOURCE.as_ptr());
                        let words = words.into(&raw mut result).told(1);
                        job.post(|| post(&words))?;
                        ensure_eq!(job.tx.end()?.context(), 1, "the context of {name}");
                        posted += 1;
                        while job.rx.read().0 == 1 {}
                    }
                }
                let ended = closer.join();
                ended.unwrap_or_else(|_| Err("a thread panicked".into()))
            })?;
            ensure!(posted > 0, "nothing was posted");
            job.meet_and_progress();
            job.tx.is_empty()?;
            while job.rx.read().0 == 1 {}
            close(last.load(Ordering::Relaxed) as *mut fid_mr)
        })?;
    }
    Ok(())
}

fn forked(ctx: &Ctx) -> Verdict {
    for mr_mode in [BASIC, 0] {
        let plan = Plan::DEFAULT.mr_mode(mr_mode).order(FI_ORDER_SAS);
        // The child does not inherit pages of registered memory.
        let job = opened_in(ctx, &plan, Memory::pages(4096)?)?;
        if job.rank == 0 {
            inject_numbers(&job, job.ep, LANE as u64 + 6)?;
            let child = Child::start(&[], || {
                close(job.registered.mr)?;
                close(job.ep)
            })?;
            child.succeeds("the child")?;
            ctx.sync();
            ctx.sync();
            ensure_eq!(job.memory.get(8), 5, "the word that the peer has written");
        } else {
            ctx.sync();
            for nth in 0..LANE as u64 + 6 {
                let seen = received(None, (job.ep, job.rx), 8)?;
                ensure_eq!(u64_of(&seen), nth, "the message");
            }
            job.write(0, 8, &5u64.to_ne_bytes())?;
            ctx.sync();
        }
        close(job.registered.mr)?;
        job.station.close()?;
        ctx.sync();
    }
    Ok(())
}
