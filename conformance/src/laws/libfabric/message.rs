//! Messages (fi_msg(3)).

use super::kit::*;
use crate::law::Random;

laws! {
    whole with(&Plan::DEFAULT, 256): "msg.whole", "fi_msg(3)", 2, [send, recv] + ordering,
        "messages of every length arrive whole, whether the receive or the message comes first";
    in_order with(&Plan::DEFAULT.caps(FI_MSG | FI_SOURCE), 256): "msg.order", "fi_msg(3), fi_endpoint(3)", 3, [send, inject, recv] + ordering,
        "messages from one sender fill receives in the order of sending (FI_ORDER_SAS), whatever their lengths";
    vectors with(&Plan::DEFAULT, 256): "msg.vector", "fi_msg(3)", 2, [sendv, sendmsg, recvv, recvmsg],
        "messages are collected from and spread over up to iov_limit pieces, divided differently on both sides; more pieces are refused";
    injected with(&Plan::DEFAULT, 256): "msg.inject", "fi_msg(3)", 2, [inject, injectdata, sendmsg, recv] + ordering,
        "after an inject call, or with FI_INJECT, the buffer may be used again at once; the calls tell nothing, the flag's completion comes";
    waiting with(&Plan::DEFAULT.order(FI_ORDER_SAS), 256):
        "msg.inject.waiting", "fi_msg(3), fi_inject; fi_domain(3), Tx Ctx", 2, [inject, tinject, recv, trecv],
        "inject calls find room while the target makes no call, as many as the transmit context has, and arrive in order without further calls";
    data with(&Plan::DEFAULT, 256): "msg.data", "fi_msg(3), fi_cq(3)", 2, [senddata, injectdata, sendmsg, recv, cq_read],
        "64 bits of data come with the receive's completion, and FI_REMOTE_CQ_DATA only with them";
    wrong with(&Plan::DEFAULT, 256): "msg.bad", "fi_msg(3)", 1, [send, inject, recvmsg, sendmsg],
        "unknown flags, no memory, too long an inject and endpoints without messages are refused";
}

/// Random bytes that identify message `nth`.
pub(super) fn pattern(nth: usize, len: usize) -> Vec<u8> {
    random_bytes(&mut Random::seeded(nth as u64), len)
}

const LENGTHS: [usize; 14] = [
    0, 1, 7, 8, 9, 63, 200, 1000, 4096, 5000, 16_384, 40_000, 100_000, 1_048_576,
];

fn whole(job: &Job<'_>) -> Verdict {
    let mut random = job.ctx.random(7);
    for (nth, len) in LENGTHS.into_iter().enumerate() {
        let early = random.below(2) == 0;
        let bytes = pattern(nth, len);
        let mut buffer = vec![0xcc; len + 8];
        job.exchange(early, (&bytes, 1000 + nth), (&mut buffer[..len], nth))?;
        let entry = job.rx.of(nth)?;
        let seen = (entry.len, entry.flags);
        ensure_eq!(seen, (len, FI_MSG | FI_RECV), "length and flags");
        same(&buffer[..len], &bytes, &format!("a message of {len} bytes"))?;
        same(&buffer[len..], &[0xcc; 8], "what is behind it")?;
        let sent = job.tx.of(1000 + nth)?;
        ensure_eq!(sent.flags, FI_MSG | FI_SEND, "the sender's flags");
    }
    Ok(())
}

fn in_order(job: &Job<'_>) -> Verdict {
    const COUNT: usize = 60;
    let mut random = job.ctx.random(job.rank.into());
    if job.rank > 0 {
        let message = |nth| {
            let len = 16 + random.below(if nth % 8 == 0 { 60_000 } else { 300 }) as usize;
            let mut bytes = pattern(nth, len);
            bytes[..8].copy_from_slice(&(nth as u64).to_le_bytes());
            bytes
        };
        let messages: Vec<_> = (0..COUNT).map(message).collect();
        let (to, mut sent) = (job.peer(0).address, 0);
        for bytes in &messages {
            if bytes.len() < 4096 && random.below(3) == 0 {
                job.post(|| inject_as(None, (job.ep, to), bytes))?;
            } else {
                job.send(0, bytes, 1)?;
                sent += 1;
            }
        }
        job.tx.successes(0..sent)?;
        until("everything has been received", || {
            job.tx.progress();
            job.ctx.told(0).is_some_and(|told| told == b"through")
        })
    } else {
        let mut next = [0u64; 3];
        let mut buffer = vec![0u8; 64 << 10];
        for _ in 0..2 * COUNT {
            job.receive(&mut buffer, 5)?;
            let (entry, source) = job.rx.next_from()?;
            let nth = u64_of(&buffer);
            let expected = next[source as usize];
            ensure_eq!(nth, expected, "the number of a message from {source}");
            let sent = pattern(nth as usize, entry.len);
            same(&buffer[8..entry.len], &sent[8..], "the message")?;
            next[source as usize] += 1;
        }
        job.ctx.tell(b"through");
        Ok(())
    }
}

/// Offsets and lengths of pieces with gaps between them.
fn places(lens: &[usize]) -> Vec<(usize, usize)> {
    let mut end = 0;
    let mut place = |len: &usize| {
        end += len + 3;
        (end - len - 3, *len)
    };
    lens.iter().map(&mut place).collect()
}

/// The pieces of a buffer at [`places`].
fn pieces(buffer: &mut [u8], lens: &[usize]) -> Vec<libc::iovec> {
    let base = buffer.as_mut_ptr();
    let piece = |(at, len)| iovec(base.wrapping_add(at), len);
    places(lens).into_iter().map(piece).collect()
}

fn vectors(job: &Job<'_>) -> Verdict {
    let mut random = job.ctx.random(3);
    let to = job.peer(job.right()).address;
    for round in 0..12 {
        let mut lens = || -> Vec<usize> {
            let count = 1 + random.below(8);
            (0..count).map(|_| random.below(3000) as usize).collect()
        };
        let (from, mut into) = (lens(), lens());
        let total: usize = from.iter().sum();
        let others: usize = into.iter().sum();
        if others < total {
            *into.last_mut().expect("one at least") += total - others;
        }
        let mut source = vec![0u8; total + 64];
        let mut sink = vec![0xddu8; into.iter().sum::<usize>() + 64];
        let bytes = pattern(round, total);
        let mut rest = &bytes[..];
        for (at, len) in places(&from) {
            let part;
            (part, rest) = rest.split_at(len);
            source[at..at + len].copy_from_slice(part);
        }
        let (out, list) = (pieces(&mut source, &from), pieces(&mut sink, &into));
        let message = |list: &[libc::iovec], addr, context| fi_msg {
            iov_count: list.len(),
            ..plain_msg(&list[0], addr, cx(context))
        };
        if round % 2 == 0 {
            ok!(msg job.ep, recvv(list.as_ptr(), null_mut(), list.len(), FI_ADDR_UNSPEC, cx(1)));
            job.post(|| call!(msg job.ep, sendv(out.as_ptr(), null_mut(), out.len(), to, cx(2))))?;
        } else {
            ok!(msg job.ep, recvmsg(&message(&list, FI_ADDR_UNSPEC, 1), 0));
            job.post(|| call!(msg job.ep, sendmsg(&message(&out, to, 2), 0)))?;
        }
        ensure_eq!(job.rx.of(1)?.len, total, "the length");
        job.tx.of(2)?;
        let mut seen = Vec::new();
        for (at, len) in places(&into) {
            seen.extend_from_slice(&sink[at..at + len]);
        }
        same(&seen[..total], &bytes, "the message")?;
        let rest = vec![0xdd; seen.len() - total];
        same(&seen[total..], &rest, "the bytes behind the message")?;
        job.meet();
    }
    let mut room = [0u8; 64];
    let list = pieces(&mut room, &[1; 9]);
    gives!(FI_EINVAL, msg job.ep, sendv(list.as_ptr(), null_mut(), 9, to, null_mut()));
    gives!(FI_EINVAL, msg job.ep, recvv(list.as_ptr(), null_mut(), 9, FI_ADDR_UNSPEC, null_mut()));
    Ok(())
}

fn injected(job: &Job<'_>) -> Verdict {
    let to = job.peer(job.right()).address;
    let count = many(job.ctx, 6);
    let mut word;
    for nth in 0..count {
        let mut buffers = [[0u8; 8]; 3];
        for (i, buffer) in buffers.iter_mut().enumerate() {
            job.receive(buffer, i)?;
        }
        word = 3 * nth;
        job.post(|| call!(msg job.ep, inject((&raw const word).cast(), 8, to)))?;
        word = 3 * nth + 1;
        job.post(|| call!(msg job.ep, injectdata((&raw const word).cast(), 8, nth, to)))?;
        word = 3 * nth + 2;
        let mut part = iovec(&raw mut word, 8);
        let msg = plain_msg(&part, to, cx(9));
        job.post(|| call!(msg job.ep, sendmsg(&msg, FI_INJECT)))?;
        word = u64::MAX;
        part.iov_base = null_mut();
        std::hint::black_box((word, part.iov_base));
        for (i, buffer) in buffers.iter().enumerate() {
            job.rx.of(i)?;
            ensure_eq!(u64_of(&current(buffer)), 3 * nth + i as u64, "message {i}");
        }
        job.tx.of(9)?;
        job.tx.is_empty()?;
    }
    Ok(())
}

fn waiting(job: &Job<'_>) -> Verdict {
    const LENGTHS: [usize; 3] = [8, 400, 4096];
    const EACH: usize = 150;
    let to = (job.ep, job.peer(job.right()).address);
    let tag = |nth: usize| (nth % 2 == 1).then_some(7);
    let each = |len| (0..EACH).map(move |nth| (len, nth));
    let all = || LENGTHS.into_iter().flat_map(each);
    if job.rank == 0 {
        let mut bytes = [0; 4096];
        for (len, nth) in all() {
            bytes[..len].copy_from_slice(&pattern(nth, len));
            ensure_eq!(inject_as(tag(nth), to, &bytes[..len]), 0, "an inject call");
        }
        bytes.fill(0xff);
        std::hint::black_box(&bytes);
        job.meet();
        // No call until all have arrived.
        job.meet();
        return Ok(());
    }
    job.meet();
    for (len, nth) in all() {
        let seen = received(tag(nth), (job.ep, job.rx), len)?;
        same(&seen, &pattern(nth, len), "an injected message")?;
    }
    job.meet();
    Ok(())
}

fn data(job: &Job<'_>) -> Verdict {
    let to = job.peer(job.right()).address;
    let bytes = [5u8; 100];
    let part = iovec(bytes.as_ptr(), 100);
    for (nth, data) in (0..).zip([0, 1, u64::MAX, 0x0123_4567_89ab_cdef]) {
        let msg = fi_msg {
            data,
            ..plain_msg(&part, to, null_mut())
        };
        for how in 0..4 {
            let mut buffer = [0u8; 100];
            job.receive(&mut buffer, nth)?;
            job.post(|| match how {
                0 => call!(msg job.ep, senddata(bytes.as_ptr().cast(), 100, null_mut(), data, to, null_mut())),
                1 => call!(msg job.ep, injectdata(bytes.as_ptr().cast(), 100, data, to)),
                2 => call!(msg job.ep, sendmsg(&msg, FI_REMOTE_CQ_DATA)),
                _ => call!(msg job.ep, sendmsg(&msg, 0)),
            })?;
            let entry = job.rx.of(nth)?;
            let with_data = FI_MSG | FI_RECV | FI_REMOTE_CQ_DATA;
            match how {
                3 => ensure_eq!(entry.flags, FI_MSG | FI_RECV, "flags without data"),
                _ => {
                    let seen = (entry.flags, entry.data);
                    ensure_eq!(seen, (with_data, data), "flags and data");
                }
            }
            ensure_eq!(entry.len, 100, "the length");
            if how != 1 {
                job.tx.next()?;
            }
        }
    }
    Ok(())
}

fn wrong(job: &Job<'_>) -> Verdict {
    let (to, mut bytes) = (job.peer(0).address, vec![0u8; 1 << 20]);
    let (base, none) = (bytes.as_mut_ptr(), null_mut());
    gives!(FI_EINVAL, msg job.ep, send(null(), 8, none, to, none));
    gives!(FI_EINVAL, msg job.ep, recv(null_mut(), 8, none, to, none));
    gives!(FI_EMSGSIZE, msg job.ep, inject(base.cast(), 1 << 20, to));
    gives!(FI_EINVAL, msg job.ep, sendmsg(null(), 0));
    gives!(FI_EINVAL, msg job.ep, recvmsg(null(), 0));
    let part = iovec(base, 8);
    let msg = plain_msg(&part, to, none);
    gives!(FI_EBADFLAGS, msg job.ep, sendmsg(&msg, 1 << 40));
    gives!(FI_EBADFLAGS, msg job.ep, sendmsg(&msg, FI_PEEK));
    gives!(FI_EBADFLAGS, msg job.ep, recvmsg(&msg, 1 << 40));
    gives!(FI_EBADFLAGS, msg job.ep, recvmsg(&msg, FI_PEEK));
    gives!(FI_EBADFLAGS, msg job.ep, recvmsg(&msg, FI_MULTI_RECV));
    let other = Station::open(&Plan::DEFAULT.caps(FI_RMA | FI_ATOMIC))?;
    let to = other.insert(&other.name()?)?;
    gives!(FI_EOPNOTSUPP, msg other.ep, send(base.cast(), 8, none, to, none));
    gives!(FI_EOPNOTSUPP, msg other.ep, recv(base.cast(), 8, none, to, none));
    gives!(FI_EOPNOTSUPP, tagged other.ep, send(base.cast(), 8, none, to, 1, none));
    other.close()
}
