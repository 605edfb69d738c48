//! Endpoints that are closed while operations are in progress.

use super::kit::*;
use super::more::Piece;
use super::told::{LANE, hear};
use crate::kit::Child;

laws! {
    closed with(&Plan::DEFAULT, 3 * PART): "rma.more.close", "fi_rma(3), fi_endpoint(3)", 2, [writemsg, readmsg, close, write, read] + ordering,
        "an endpoint can be closed while reads and writes are in progress, with FI_MORE too: their memory is the program's again";
    sending with(&Plan::DEFAULT, 256): "msg.close.send", "fi_msg(3), fi_endpoint(3)", 2, [sendmsg, close, recv, send],
        "an endpoint can be closed while its messages are in progress: each comes whole, fails or is lost; its memory is the program's again";
    receiving with(&Plan::DEFAULT, 256): "msg.close.receive", "fi_msg(3), fi_endpoint(3)", 2, [close, recv, send],
        "an endpoint can be closed while messages come: the buffers are the program's again, and each send ends";
    settled with(&IN_ORDER, 256): "msg.close.received", "fi_msg(3), fi_endpoint(3)", 2, [send, recv, inject, close],
        "an endpoint is closed after its receives: the sends of these messages succeed, and injected messages arrive, though the peer takes nothing before";
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
            same(&into, &vec![0x33; len], "what a read left after fi_close")?;
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
    let to = job.right();
    for round in 0..many(job.ctx, 3) {
        let flags = [FI_MORE, 0][round as usize % 2];
        for len in LENGTHS {
            let mut into = [0; 4].map(|_| vec![0x11; len]);
            for (nth, buffer) in into.iter_mut().enumerate() {
                job.receive(buffer, nth)?;
            }
            job.meet();
            let ep = job.station.enabled(&Plan::DEFAULT)?;
            let mut from = vec![0x22; len];
            let piece = Piece::new(&mut from, (job.peer(to).address, 0, 0), 5);
            job.post(|| piece.send(ep, flags))?;
            close(ep)?;
            from.fill(0x33);
            while job.tx.read().0 == 1 {}
            let last = vec![0x44; len];
            job.send_and_wait(to, &last, 6)?;
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
    for _ in 0..many(job.ctx, 3) {
        for len in LENGTHS {
            let ep = job.station.enabled(&Plan::DEFAULT)?;
            let mut into = vec![0x11; len];
            ensure_eq!(receive_as(None, ep, &mut into[..], 1), 0, "fi_recv");
            job.ctx.tell(&name_of(ep)?);
            job.meet();
            let to = job.known(job.right())?;
            let from = vec![0x22; len];
            job.post(|| send_as(None, (job.ep, to), &from, 7))?;
            close(ep)?;
            into.fill(0x33);
            let context = match job.tx.end()? {
                End::Success(entry) => entry.context(),
                End::Failure(error) => error.context(),
            };
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
