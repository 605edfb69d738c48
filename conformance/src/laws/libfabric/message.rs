//! Messages (fi_msg(3)).

use std::ptr::null;

use super::kit::*;
use super::station::{Plan, Station};
use crate::law::Random;

laws! {
    whole with(&Plan::DEFAULT, 256): "msg.whole", "fi_msg(3)", 2, [send, recv] + ordering,
        "messages of every length arrive whole, whether the receive or the message comes first";
    in_order: "msg.order", "fi_msg(3), fi_endpoint(3)", 3, [send, inject, recv] + ordering,
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

pub(super) fn send(job: &Job<'_>, to: u32, bytes: &[u8], context: usize) -> Verdict {
    let to = job.peer(to).address;
    job.post(
        || call!(msg job.ep, send(bytes.as_ptr().cast(), bytes.len(), null_mut(), to, cx(context))),
    )
}

/// As [`send`], to its completion.
pub(super) fn send_and_wait(job: &Job<'_>, to: u32, bytes: &[u8], context: usize) -> Verdict {
    send(job, to, bytes, context)?;
    job.tx.of(context).map(drop)
}

pub(super) fn receive(job: &Job<'_>, buffer: &mut [u8], context: usize) -> Verdict {
    let base = buffer.as_mut_ptr().cast();
    job.post(
        || call!(msg job.ep, recv(base, buffer.len(), null_mut(), FI_ADDR_UNSPEC, cx(context))),
    )
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
        if early {
            receive(job, &mut buffer[..len], nth)?;
            job.meet();
        }
        send(job, job.right(), &bytes, 1000 + nth)?;
        if !early {
            job.meet();
            receive(job, &mut buffer[..len], nth)?;
        }
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

fn in_order(ctx: &Ctx) -> Verdict {
    with(ctx, &Plan::DEFAULT.caps(FI_MSG | FI_SOURCE), 256, |job| {
        const COUNT: usize = 60;
        let mut random = ctx.random(job.rank.into());
        if job.rank > 0 {
            let mut messages = Vec::new();
            for nth in 0..COUNT {
                let len = 16 + random.below(if nth % 8 == 0 { 60_000 } else { 300 }) as usize;
                let mut bytes = pattern(nth, len);
                bytes[..8].copy_from_slice(&(nth as u64).to_le_bytes());
                messages.push(bytes);
            }
            let (to, mut sent) = (job.peer(0).address, 0);
            for bytes in &messages {
                if bytes.len() < 4096 && random.below(3) == 0 {
                    job.post(|| call!(msg job.ep, inject(bytes.as_ptr().cast(), bytes.len(), to)))?;
                } else {
                    send(job, 0, bytes, 1)?;
                    sent += 1;
                }
            }
            job.tx.successes(0..sent)?;
            until("everything has been received", || {
                job.tx.progress();
                ctx.told(0).is_some_and(|told| told == b"through")
            })
        } else {
            let mut next = [0u64; 3];
            let mut buffer = vec![0u8; 64 << 10];
            for _ in 0..2 * COUNT {
                receive(job, &mut buffer, 5)?;
                let (mut entry, mut source) = (blank(), 0);
                until("a message", || {
                    call!(obj job.rx.0, readfrom((&raw mut entry).cast(), 1, &mut source)) == 1
                })?;
                let nth = u64::from_le_bytes(buffer[..8].try_into().expect("8 bytes"));
                let expected = next[source as usize];
                ensure_eq!(nth, expected, "the number of a message from {source}");
                same(
                    &buffer[8..entry.len],
                    &pattern(nth as usize, entry.len)[8..],
                    "the message",
                )?;
                next[source as usize] += 1;
            }
            ctx.tell(b"through");
            Ok(())
        }
    })
}

/// Pieces of a buffer, with gaps between them.
fn pieces(buffer: &mut [u8], lens: &[usize]) -> Vec<libc::iovec> {
    let mut at = 0;
    let mut list = Vec::new();
    for len in lens {
        list.push(iovec(buffer[at..at + len].as_mut_ptr(), *len));
        at += len + 3;
    }
    list
}

fn vectors(job: &Job<'_>) -> Verdict {
    let mut random = job.ctx.random(3);
    let to = job.peer(job.right()).address;
    for round in 0..12 {
        let lens = |random: &mut crate::law::Random| -> Vec<usize> {
            (0..1 + random.below(8))
                .map(|_| random.below(3000) as usize)
                .collect()
        };
        let (from, mut into) = (lens(&mut random), lens(&mut random));
        let total: usize = from.iter().sum();
        let others: usize = into.iter().sum();
        if others < total {
            *into.last_mut().expect("one at least") += total - others;
        }
        let mut source = vec![0u8; total + 64];
        let mut sink = vec![0xddu8; into.iter().sum::<usize>() + 64];
        let bytes = pattern(round, total);
        let (out, list) = (pieces(&mut source, &from), pieces(&mut sink, &into));
        let mut at = 0;
        for piece in &out {
            // SAFETY:
            // - a piece of `source`, of the same length.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    bytes[at..].as_ptr(),
                    piece.iov_base.cast(),
                    piece.iov_len,
                )
            };
            at += piece.iov_len;
        }
        let message = |list: &[libc::iovec], context| fi_msg {
            msg_iov: list.as_ptr(),
            desc: null_mut(),
            iov_count: list.len(),
            addr: to,
            context: cx(context),
            data: 0,
        };
        if round % 2 == 0 {
            ok!(msg job.ep, recvv(list.as_ptr(), null_mut(), list.len(), FI_ADDR_UNSPEC, cx(1)));
            job.post(|| call!(msg job.ep, sendv(out.as_ptr(), null_mut(), out.len(), to, cx(2))))?;
        } else {
            let receive = fi_msg {
                addr: FI_ADDR_UNSPEC,
                ..message(&list, 1)
            };
            ok!(msg job.ep, recvmsg(&receive, 0));
            job.post(|| call!(msg job.ep, sendmsg(&message(&out, 2), 0)))?;
        }
        ensure_eq!(job.rx.of(1)?.len, total, "the length");
        job.tx.of(2)?;
        let mut seen = Vec::new();
        for piece in &list {
            // SAFETY:
            // - a piece of `sink`.
            seen.extend_from_slice(unsafe {
                std::slice::from_raw_parts(piece.iov_base.cast(), piece.iov_len)
            });
        }
        same(&seen[..total], &bytes, "the message")?;
        ensure!(
            seen[total..].iter().all(|byte| *byte == 0xdd),
            "bytes behind the message"
        );
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
            receive(job, buffer, i)?;
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
            // SAFETY:
            // - valid memory; the provider writes it through a pointer.
            let seen = unsafe { (&raw const *buffer).read_volatile() };
            ensure_eq!(u64::from_le_bytes(seen), 3 * nth + i as u64, "message {i}");
        }
        job.tx.of(9)?;
        job.tx.is_empty()?;
    }
    Ok(())
}

fn waiting(job: &Job<'_>) -> Verdict {
    const LENGTHS: [usize; 3] = [8, 400, 4096];
    const EACH: usize = 150;
    let to = job.peer(job.right()).address;
    let none = null_mut();
    let tagged = |nth: usize| nth % 2 == 1;
    let each = |len| (0..EACH).map(move |nth| (len, nth));
    let all = || LENGTHS.into_iter().flat_map(each);
    if job.rank == 0 {
        let mut bytes = [0; 4096];
        for (len, nth) in all() {
            bytes[..len].copy_from_slice(&pattern(nth, len));
            let from = bytes.as_ptr().cast();
            match tagged(nth) {
                true => ok!(tagged job.ep, inject(from, len, to, 7)),
                false => ok!(msg job.ep, inject(from, len, to)),
            }
        }
        bytes.fill(0xff);
        std::hint::black_box(&bytes);
        job.meet();
        // No call until all have arrived.
        job.meet();
        return Ok(());
    }
    job.meet();
    let room = Memory::new(4096);
    for (len, nth) in all() {
        let place = room.at(0).cast();
        match tagged(nth) {
            true => ok!(tagged job.ep, recv(place, len, none, FI_ADDR_UNSPEC, 7, 0, cx(nth))),
            false => ok!(msg job.ep, recv(place, len, none, FI_ADDR_UNSPEC, cx(nth))),
        }
        job.rx.of(nth)?;
        room.holds(0, &pattern(nth, len), "an injected message")?;
    }
    job.meet();
    Ok(())
}

fn data(job: &Job<'_>) -> Verdict {
    let to = job.peer(job.right()).address;
    let bytes = [5u8; 100];
    let part = iovec(bytes.as_ptr(), 100);
    for (nth, data) in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef]
        .into_iter()
        .enumerate()
    {
        let msg = fi_msg {
            data,
            ..plain_msg(&part, to, null_mut())
        };
        for how in 0..4 {
            let mut buffer = [0u8; 100];
            receive(job, &mut buffer, nth)?;
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
                _ => ensure_eq!(
                    (entry.flags, entry.data),
                    (with_data, data),
                    "flags and data"
                ),
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
