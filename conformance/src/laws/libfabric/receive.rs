//! Matching of messages to receives, and its time (fi_msg(3)).

use super::kit::*;
use super::message::pattern;

laws! {
    cut with(&Plan::DEFAULT, 256): "msg.truncated", "fi_msg(3), fi_cq(3)", 2, [send, recv, cq_readerr],
        "a message longer than the buffer is a failure (FI_ETRUNC) with what was left out; the buffer is filled, what is behind it left alone";
    sources with(&Plan::DEFAULT.caps(FI_MSG | FI_SOURCE), 256): "msg.source", "fi_cq(3)", 3, [recv, cq_readfrom, av_remove],
        "with FI_SOURCE a completion tells the sender's address; without an address FI_ADDR_NOTAVAIL";
    directed with(&Plan::DEFAULT.caps(FI_MSG | FI_TAGGED | FI_DIRECTED_RECV), 256): "msg.directed", "fi_msg(3)", 3, [recv, send],
        "with FI_DIRECTED_RECV a receive takes messages of the sender it names only";
    cancelled with(&Plan::DEFAULT, 256): "msg.cancel", "fi_endpoint(3)", 2, [cancel, recv, trecv],
        "a cancelled receive ends with FI_ECANCELED and takes no message; an unknown context cannot be cancelled";
    delivered with(&Plan::DEFAULT, 256): "msg.delivery", "fi_msg(3)", 2, [sendmsg, recv],
        "with FI_DELIVERY_COMPLETE there is no completion before the message has been received";
    buffered with(&Plan::DEFAULT, 256): "msg.completion", "fi_msg(3)", 2, [send, recv],
        "without it a small message is complete before its receive";
    multi with(&Plan::DEFAULT.caps(FI_MSG | FI_MULTI_RECV), 256): "msg.multi", "fi_msg(3)", 2, [recvmsg, send, setopt, getopt],
        "a buffer with FI_MULTI_RECV takes message after message, without gaps, until less than the least room is left, and says so with the last";
    multi_selective with(&Plan::DEFAULT.caps(FI_MSG | FI_MULTI_RECV).selective(true), 256):
        "msg.multi.selective", "fi_msg(3)", 2, [recvmsg, send, ep_bind],
        "the end of a buffer with FI_MULTI_RECV is reported even if completions are reported only on request";
    multi_order with(&MULTI, 256): "msg.multi.order", "fi_msg(3)", 3, [recvmsg, recv, send],
        "a buffer with FI_MULTI_RECV takes all messages from any sender until it is full; later receives take the next messages";
    multi_unexpected with(&MULTI, 256): "msg.multi.unexpected", "fi_msg(3)", 2, [recvmsg, recv, send],
        "so do earlier messages, short and long, and a message that is too long for the rest";
    multi_cancelled with(&MULTI, 256): "msg.multi.cancel", "fi_endpoint(3), fi_cq(3)", 2, [cancel, recvmsg, send],
        "a buffer with FI_MULTI_RECV that is cancelled, used or not, ends with FI_ECANCELED and FI_MULTI_RECV, and takes nothing more";
    transmit_complete with(&Plan::DEFAULT, 256): "msg.recv.transmit", "fi_msg(3)", 2, [recvmsg, trecvmsg, control],
        "receives take FI_TRANSMIT_COMPLETE, from the call and from the endpoint";
    many_senders with(&Plan::DEFAULT, 256): "msg.crowd", "fi_msg(3)", 4, [send, recv] + ordering,
        "messages of several senders at once are all received, each once";
}

fn sources(job: &Job<'_>) -> Verdict {
    let hear = |expected: Option<u64>| -> Verdict {
        let mut buffer = [0u8; 8];
        job.receive(&mut buffer, 1)?;
        let (_, source) = job.rx.next_from()?;
        let sender = u64_of(&current(&buffer));
        let expected = expected.unwrap_or(job.peer(sender as u32).address);
        equal!(source, expected, "the source of a message from {sender}")
    };
    let own = u64::from(job.rank).to_le_bytes();
    for rank in (0..job.size).filter(|rank| *rank != job.rank) {
        job.send_and_wait(rank, &own, 2)?;
    }
    hear(None)?;
    hear(None)?;
    job.meet();
    if job.rank == 1 {
        job.forget(job.peer(job.left()).address)?;
    }
    job.send_and_wait(job.right(), &own, 2)?;
    hear((job.rank == 1).then_some(FI_ADDR_NOTAVAIL))
}

fn directed(job: &Job<'_>) -> Verdict {
    if job.rank > 0 {
        if job.rank == 1 {
            pause(20);
        }
        return job.send_and_wait(0, &u64::from(job.rank).to_le_bytes(), 2);
    }
    let mut buffers = [[0u8; 8]; 2];
    for (nth, buffer) in buffers.iter_mut().enumerate() {
        // The first receive is for the message that comes later.
        let (from, base) = (job.peer(nth as u32 + 1).address, buffer.as_mut_ptr().cast());
        ok!(msg job.ep, recv(base, 8, null_mut(), from, cx(nth)));
    }
    job.rx.next()?;
    job.rx.next()?;
    let seen = current(&buffers);
    ensure_eq!(seen.map(u64::from_le_bytes), [1, 2], "the senders");
    gives!(FI_EINVAL, msg job.ep, recv(null_mut(), 0, null_mut(), 99, null_mut()));
    Ok(())
}

fn cancelled(job: &Job<'_>) -> Verdict {
    let (mut gone, mut kept) = ([0u8; 8], [0u8; 8]);
    job.receive(&mut gone, 5)?;
    job.receive(&mut kept, 6)?;
    ok!(obj job.ep, cancel(cx(5)));
    let error = job.rx.fails(FI_ECANCELED, "the receive")?;
    let seen = (error.context(), error.flags);
    ensure_eq!(seen, (5, FI_MSG | FI_RECV), "context and flags");
    gives!(FI_ENOENT, obj job.ep, cancel(cx(5)));
    gives!(FI_ENOENT, obj job.ep, cancel(cx(99)));
    ok!(tagged job.ep, recv(gone.as_mut_ptr().cast(), 8, null_mut(), FI_ADDR_UNSPEC, 3, 0, cx(8)));
    ok!(obj job.ep, cancel(cx(8)));
    let error = job.rx.fails(FI_ECANCELED, "the tagged receive")?;
    let seen = (error.context(), error.flags);
    ensure_eq!(seen, (8, FI_TAGGED | FI_RECV), "context and flags");
    job.meet();
    job.send(job.right(), &[9; 8], 7)?;
    job.rx.of(6)?;
    job.tx.of(7)?;
    gives!(FI_ENOENT, obj job.ep, cancel(cx(6)));
    // SAFETY:
    // - valid memory; the provider may write it through a pointer.
    let seen = (current(&gone), current(&kept));
    equal!(seen, ([0; 8], [9; 8]), "both buffers")
}

fn delivered(job: &Job<'_>) -> Verdict {
    let bytes = [4u8; 32];
    let part = iovec(bytes.as_ptr(), 32);
    let msg = plain_msg(&part, job.peer(1).address, cx(3));
    if job.rank == 0 {
        job.post(|| call!(msg job.ep, sendmsg(&msg, FI_DELIVERY_COMPLETE)))?;
        for _ in 0..20 {
            pause(2);
            job.tx.is_empty()?;
        }
        job.meet();
        job.tx.of(3)?;
    } else {
        job.meet();
        let mut buffer = [0u8; 32];
        job.receive(&mut buffer, 1)?;
        job.rx.of(1)?;
    }
    Ok(())
}

fn buffered(job: &Job<'_>) -> Verdict {
    for_all(0..8, |nth| {
        job.send_and_wait(job.right(), &[nth; 64], nth.into())
    })?;
    job.meet();
    for_all(0..8, |nth| {
        let seen = received(None, (job.ep, job.rx), 64)?;
        same(&seen, &[nth; 64], "a message")
    })
}

fn multi(job: &Job<'_>) -> Verdict {
    let (least, mut seen, mut len) = (100usize, 0usize, size_of::<usize>());
    ok!(obj job.ep, setopt(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, (&raw const least).cast(), len));
    ok!(obj job.ep, getopt(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, (&raw mut seen).cast(), &mut len));
    ensure_eq!(seen, 100, "the option");
    let mut buffer = vec![0u8; 512];
    let part = iovec(buffer.as_mut_ptr(), 512);
    let msg = plain_msg(&part, FI_ADDR_UNSPEC, cx(4));
    let base = buffer.as_mut_ptr();
    ok!(msg job.ep, recvmsg(&msg, FI_MULTI_RECV));
    job.meet();
    for nth in 0..6u8 {
        let sent = [nth + 1; 100];
        job.send_and_wait(job.right(), &sent, 9)?;
        let entry = job.rx.of(4)?;
        ensure_eq!(entry.len, 100, "the length");
        let at = entry.buf.addr() - base.addr();
        ensure_eq!(at, 100 * usize::from(nth), "the place of message {nth}");
        // SAFETY:
        // - inside the buffer, as just checked.
        let bytes = unsafe { std::slice::from_raw_parts(base.add(at), 100) };
        same(bytes, &[nth + 1; 100], "the message")?;
        let over = entry.flags & FI_MULTI_RECV != 0;
        // Five messages fit without gaps. Then the room is too small.
        ensure_eq!(over, nth == 4, "whether message {nth} is the last");
        if over {
            break;
        }
    }
    Ok(())
}

/// A receive into `part`, for fi_recvmsg.
fn message(part: &libc::iovec, context: usize) -> fi_msg {
    plain_msg(part, FI_ADDR_UNSPEC, cx(context))
}

fn multi_selective(job: &Job<'_>) -> Verdict {
    let buffer = Buffer::new(256);
    let part = iovec(buffer.base, 256);
    ok!(msg job.ep, recvmsg(&message(&part, 4), FI_MULTI_RECV));
    job.meet();
    for nth in 0..4u8 {
        let sent = [nth + 1; 64];
        let to = (job.ep, job.peer(job.right()).address);
        job.post(|| inject_as(None, to, &sent))?;
    }
    let entry = job.rx.of(4)?;
    ensure_eq!(entry.flags, FI_MSG | FI_RECV | FI_MULTI_RECV, "the flags");
    job.rx.is_empty()?;
    for nth in 0..4u8 {
        buffer.holds(64 * usize::from(nth), &[nth + 1; 64], "a message")?;
    }
    Ok(())
}

const MULTI: Plan<'static> = Plan::DEFAULT.caps(FI_MSG | FI_MULTI_RECV);

fn multi_order(job: &Job<'_>) -> Verdict {
    const EACH: usize = 8;
    if job.rank > 0 {
        for _ in 0..EACH {
            job.send(0, &[job.rank as u8; 64], 9)?;
            job.tx.of(9)?;
        }
        return Ok(());
    }
    // The first buffer takes half of the messages, the second a quarter, and plain receives the rest.
    let buffers = [Buffer::new(8 * 64), Buffer::new(4 * 64)];
    let plain = Buffer::new(6 * 64);
    for (nth, buffer) in buffers.iter().enumerate() {
        let part = iovec(buffer.base, buffer.len);
        ok!(msg job.ep, recvmsg(&message(&part, nth), FI_MULTI_RECV));
    }
    receive_each(None, job.ep, (&plain, 64), 2..6)?;
    let mut seen = Vec::new();
    for nth in 0..2 * EACH {
        let entry = job.rx.next()?;
        ensure_eq!(entry.len, 64, "the length");
        let over = entry.flags & FI_MULTI_RECV != 0;
        ensure_eq!(over, nth == 7 || nth == 11, "message {nth}: the flag");
        seen.push(entry.context());
    }
    let expected = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 3, 4, 5];
    ensure_eq!(seen, expected, "who took the messages");
    let all = buffers
        .iter()
        .chain([&plain])
        .flat_map(|memory| memory.load(0, memory.len));
    let from_one = all.filter(|byte| *byte == 1).count();
    ensure_eq!(from_one, EACH * 64, "the bytes of the first sender");
    Ok(())
}

fn multi_unexpected(job: &Job<'_>) -> Verdict {
    let lens = [5, 100_000, 64, 0, 300_000, 50_000, 40];
    let sent: Vec<_> = (0..)
        .zip(lens)
        .map(|(nth, len)| pattern(nth, len))
        .collect();
    for_all(&sent, |bytes| job.send(job.right(), bytes, 9))?;
    job.meet();
    let buffer = Buffer::new(420_000);
    let (mut last, part) = ([0u8; 40], iovec(buffer.base, 420_000));
    ok!(msg job.ep, recvmsg(&message(&part, 4), FI_MULTI_RECV));
    job.receive(&mut last, 5)?;
    let (mut fitting, mut given_back, mut next) = (0, false, false);
    while !(given_back && next) {
        // Receives may complete in another order. A failure is reported before earlier successes, so it does not give the buffer back.
        let (code, entry) = job.rx.read();
        if code == AVAIL {
            let error = job.rx.fails(FI_ETRUNC, "the long message")?;
            ensure_eq!(error.olen + error.len, 50_000, "its length");
            ensure_eq!(error.flags, FI_MSG | FI_RECV, "its flags");
        }
        if code != 1 {
            std::thread::yield_now();
            continue;
        }
        if entry.context() == 5 {
            next = true;
            continue;
        }
        ensure!(!given_back, "a message after the buffer was given back");
        given_back = entry.flags & FI_MULTI_RECV != 0;
        if entry.flags & FI_RECV != 0 {
            let at = entry.buf.addr() - buffer.base.addr();
            let which = sent.iter().find(|bytes| bytes.len() == entry.len);
            buffer.holds(at, which.ok_or("an unknown length")?, "a message")?;
            fitting += 1;
        }
    }
    ensure_eq!(fitting, 5, "messages in the buffer when it is given back");
    same(&last, &sent[6], "the one after them")?;
    job.tx.successes_of(9, lens)
}

fn multi_cancelled(job: &Job<'_>) -> Verdict {
    let (buffer, plain) = (Buffer::new(256), Buffer::new(64));
    let part = iovec(buffer.base, 256);
    for used in [false, true] {
        ok!(msg job.ep, recvmsg(&message(&part, 4), FI_MULTI_RECV));
        job.meet();
        if used {
            job.send(job.right(), &[1; 64], 9)?;
            job.tx.of(9)?;
            ensure_eq!(job.rx.of(4)?.flags & FI_MULTI_RECV, 0, "the flag");
        }
        ok!(obj job.ep, cancel(cx(4)));
        let error = job.rx.fails_of(4, FI_ECANCELED, "the buffer")?;
        ensure_eq!(error.flags, FI_MSG | FI_RECV | FI_MULTI_RECV, "the flags");
        gives!(FI_ENOENT, obj job.ep, cancel(cx(4)));
        job.meet();
        buffer.fill(7);
        job.send(job.right(), &[2; 64], 9)?;
        job.tx.of(9)?;
        ok!(msg job.ep, recv(plain.base.cast(), 64, null_mut(), FI_ADDR_UNSPEC, cx(5)));
        job.rx.of(5)?;
        plain.holds(0, &[2; 64], "the message")?;
        buffer.holds(0, &[7; 256], "the buffer")?;
    }
    Ok(())
}

fn transmit_complete(job: &Job<'_>) -> Verdict {
    let buffer = Buffer::new(8);
    let part = iovec(buffer.base, 8);
    let tagged = tagged_msg(&part, FI_ADDR_UNSPEC, 5, cx(2));
    let to = job.peer(job.right()).address;
    ok!(msg job.ep, recvmsg(&message(&part, 1), FI_TRANSMIT_COMPLETE));
    job.post(|| inject_as(None, (job.ep, to), &[1; 8]))?;
    job.rx.of(1)?;
    ok!(tagged job.ep, recvmsg(&tagged, FI_TRANSMIT_COMPLETE | FI_COMPLETION));
    job.post(|| call!(tagged job.ep, inject([2u8; 8].as_ptr().cast(), 8, to, 5)))?;
    job.rx.of(2)?;
    control(job.ep, FI_SETOPSFLAG, FI_RECV | FI_TRANSMIT_COMPLETE)?;
    ok!(msg job.ep, recv(buffer.base.cast(), 8, null_mut(), FI_ADDR_UNSPEC, cx(3)));
    job.post(|| inject_as(None, (job.ep, to), &[3; 8]))?;
    job.rx.of(3)?;
    buffer.holds(0, &[3; 8], "the message")?;
    let mut hints = Plan::DEFAULT.hints();
    hints.receive().op_flags = FI_TRANSMIT_COMPLETE;
    super::library::offered(&hints).map(drop)
}

fn many_senders(job: &Job<'_>) -> Verdict {
    let (each, others) = (many(job.ctx, 8), u64::from(job.size) - 1);
    let all = (each * others) as usize;
    let room = Buffer::new(8 * all);
    receive_each(None, job.ep, (&room, 8), 0..all)?;
    let words: Vec<[u8; 8]> = (0..each)
        .map(|nth| (u64::from(job.rank) << 32 | nth).to_le_bytes())
        .collect();
    for word in &words {
        for rank in (0..job.size).filter(|rank| *rank != job.rank) {
            job.send(rank, word, 0)?;
        }
        job.tx.successes(0..others)?;
    }
    job.rx.successes(0..each * others)?;
    let mut received: Vec<u64> = (0..all).map(|nth| room.get(8 * nth)).collect();
    received.sort_unstable();
    let ranks = (0..job.size).filter(|rank| *rank != job.rank);
    let expected: Vec<u64> = ranks
        .flat_map(|rank| (0..each).map(move |nth| u64::from(rank) << 32 | nth))
        .collect();
    equal!(received, expected, "all messages")
}

fn cut(job: &Job<'_>) -> Verdict {
    for (len, room) in [(100, 60), (8, 0), (60_000, 59_999), (200_000, 10)] {
        for early in [true, false] {
            let (bytes, mut buffer) = (pattern(3, len), vec![0xabu8; room + 16]);
            job.exchange(early, (&bytes, 6), (&mut buffer[..room], 4))?;
            let error = job.rx.fails(FI_ETRUNC, "a long message")?;
            let seen = (error.context(), error.len, error.olen);
            ensure_eq!(seen, (4, room, len - room), "context, length and excess");
            same(&buffer[..room], &bytes[..room], "the beginning")?;
            same(&buffer[room..], &[0xab; 16], "what is behind it")?;
            job.tx.of(6)?;
            job.meet();
        }
    }
    Ok(())
}
