//! Tagged messages (fi_tagged(3)).

use super::kit::*;

laws! {
    matching with(&Plan::DEFAULT, 256): "tagged.match", "fi_tagged(3)", 2, [tsend, trecv] + ordering,
        "a message goes to the first receive with an equal tag in all bits that are not ignored, in both orders of arrival; all 64 bits count";
    in_order with(&Plan::DEFAULT, 256): "tagged.order", "fi_tagged(3)", 2, [tsend, tinject, trecv] + ordering,
        "messages that match the same receives fill them in the order of sending";
    apart with(&Plan::DEFAULT, 256): "tagged.apart", "fi_tagged(3)", 2, [tsend, trecv, send, recv],
        "messages with tags and without do not fill each other's receives";
    kinds with(&Plan::DEFAULT, 256):
        "tagged.kinds", "fi_tagged(3), fi_cq(3)", 2, [tsend, tsendv, tsendmsg, tinject, tsenddata, tinjectdata, trecv, trecvv, trecvmsg, cq_read],
        "every call of sending arrives, by every call of receiving, with its tag, its flags, and its data where it has some";
    cut with(&Plan::DEFAULT, 256): "tagged.truncated", "fi_tagged(3)", 2, [tsend, trecv, cq_readerr],
        "a message longer than the buffer is a failure (FI_ETRUNC) with its tag and what was left out";
}

pub(super) fn tsend(job: &Job<'_>, tag: u64, bytes: &[u8], context: usize) -> Verdict {
    let to = (job.ep, job.peer(job.right()).address);
    job.post(|| send_as(Some(tag), to, bytes, context))
}

pub(super) fn trecv(
    job: &Job<'_>,
    buffer: &mut [u8],
    (tag, ignore): (u64, u64),
    context: usize,
) -> Verdict {
    let base = buffer.as_mut_ptr().cast();
    job.post(|| call!(tagged job.ep, recv(base, buffer.len(), null_mut(), FI_ADDR_UNSPEC, tag, ignore, cx(context))))
}

fn matching(job: &Job<'_>) -> Verdict {
    // Both ranks use the same sequence.
    let mut random = job.ctx.random(17);
    for round in 0..many(job.ctx, 2) {
        let base = random.next();
        let tag = |random: &mut crate::law::Random| {
            base ^ ((1 << random.below(3)) * random.below(2)) ^ (random.below(2) << 63)
        };
        const COUNT: usize = 10;
        let tags: Vec<u64> = (0..COUNT).map(|_| tag(&mut random)).collect();
        // The last receives take any tag, so all messages find one.
        let mut wanted: Vec<(u64, u64)> = (0..COUNT)
            .map(|_| {
                (
                    tag(&mut random),
                    [0, 0, 7, 1 << 63][random.below(4) as usize],
                )
            })
            .collect();
        wanted.extend([(0, u64::MAX); COUNT]);
        // Each message takes the first remaining receive that matches.
        let mut left: Vec<usize> = (0..2 * COUNT).collect();
        let mut expected = vec![None; 2 * COUNT];
        for (nth, tag) in tags.iter().enumerate() {
            let matches = |r: &usize| (wanted[*r].0 ^ tag) & !wanted[*r].1 == 0;
            let place = left.iter().position(matches);
            let receive = left.remove(place.ok_or("no receive left")?);
            expected[receive] = Some(nth);
        }
        let mut buffers = [[0xffu8; 8]; 2 * COUNT];
        for (nth, buffer) in buffers.iter_mut().enumerate() {
            trecv(job, buffer, wanted[nth], nth)?;
        }
        job.meet();
        let words: Vec<[u8; 8]> = (0..COUNT as u64).map(u64::to_le_bytes).collect();
        for (word, tag) in words.iter().zip(&tags) {
            tsend(job, *tag, word, 100)?;
        }
        for _ in 0..COUNT {
            job.tx.of(100)?;
            let entry = job.rx.next()?;
            let receive = entry.context();
            let Some(Some(nth)) = expected.get(receive) else {
                return Err(format!(
                    "round {round}: receive {receive} ({:x?}) takes a message with tag {:#x}",
                    wanted[receive], entry.tag
                ));
            };
            let seen = (u64_of(&current(&buffers[receive])), entry.tag);
            let expected = (*nth as u64, tags[*nth]);
            ensure_eq!(seen, expected, "message and tag of receive {receive}");
        }
        for (nth, taken) in expected.iter().enumerate() {
            if taken.is_none() {
                ok!(obj job.ep, cancel(cx(nth)));
                job.rx.fails(FI_ECANCELED, "a receive that is left")?;
            }
        }
        job.meet();
    }
    Ok(())
}

fn in_order(job: &Job<'_>) -> Verdict {
    const COUNT: usize = 40;
    let mut random = job.ctx.random(job.rank.into());
    let to = job.peer(job.right()).address;
    let messages: Vec<Vec<u8>> = (0..COUNT)
        .map(|nth| {
            let len = 8 + random.below(if nth % 6 == 0 { 50_000 } else { 200 }) as usize;
            let mut bytes = random_bytes(&mut random, len);
            bytes[..8].copy_from_slice(&(nth as u64).to_le_bytes());
            bytes
        })
        .collect();
    // Each tag has half of the messages. Some receives are posted before the messages arrive.
    let mut buffers = vec![vec![0u8; 51_000]; COUNT];
    let early = random.below(COUNT as u64) as usize;
    let (before, behind) = buffers.split_at_mut(early);
    for (nth, buffer) in before.iter_mut().enumerate() {
        trecv(job, buffer, (nth as u64 % 2, 0), nth)?;
    }
    let mut sent = 0;
    for (nth, bytes) in messages.iter().enumerate() {
        if bytes.len() <= 100 {
            job.post(|| inject_as(Some(nth as u64 % 2), (job.ep, to), bytes))?;
        } else {
            tsend(job, nth as u64 % 2, bytes, 5)?;
            sent += 1;
        }
    }
    for (nth, buffer) in (early..).zip(behind) {
        trecv(job, buffer, (nth as u64 % 2, 0), nth)?;
    }
    job.rx.successes(0..COUNT)?;
    for (nth, buffer) in buffers.iter().enumerate() {
        ensure_eq!(u64_of(buffer), nth as u64, "the message of receive {nth}");
    }
    job.tx.successes_of(5, 0..sent)
}

fn apart(job: &Job<'_>) -> Verdict {
    let mut buffers = [[0u8; 8]; 2];
    let [plain, tagged] = &mut buffers;
    job.receive(plain, 1)?;
    trecv(job, tagged, (0, u64::MAX), 2)?;
    job.meet();
    tsend(job, 0, &[2; 8], 4)?;
    ensure_eq!(job.rx.of(2)?.flags, FI_TAGGED | FI_RECV, "the flags");
    job.meet();
    job.send(job.right(), &[1; 8], 3)?;
    ensure_eq!(job.rx.of(1)?.flags, FI_MSG | FI_RECV, "the flags");
    let seen = job.tx.of(4)?.flags;
    ensure_eq!(seen, FI_TAGGED | FI_SEND, "the sender's flags");
    ensure_eq!(job.tx.of(3)?.flags, FI_MSG | FI_SEND, "the sender's flags");
    let seen = current(&buffers);
    equal!(seen, [[1; 8], [2; 8]], "the messages")
}

/// A message of one piece: to the right neighbour, or from any sender.
pub(super) fn message(
    job: &Job<'_>,
    part: &libc::iovec,
    (tag, ignore): (u64, u64),
    context: usize,
) -> fi_msg_tagged {
    fi_msg_tagged {
        ignore,
        ..tagged_msg(part, job.peer(job.right()).address, tag, cx(context))
    }
}

pub(super) fn part(bytes: &mut [u8]) -> libc::iovec {
    iovec(bytes.as_mut_ptr(), bytes.len())
}

fn kinds(job: &Job<'_>) -> Verdict {
    let (to, none) = (job.peer(job.right()).address, null_mut());
    let tag = 0xfedc_ba98_7654_3210u64;
    for send in 0..6 {
        for receive in 0..3 {
            let (mut bytes, mut buffer) = ([send as u8 + 1; 48], [0u8; 48]);
            let (out, into) = (part(&mut bytes), part(&mut buffer));
            let base: *const c_void = out.iov_base;
            let with_data = fi_msg_tagged {
                data: 77,
                ..message(job, &out, (tag, 0), 3)
            };
            let expected = fi_msg_tagged {
                addr: FI_ADDR_UNSPEC,
                ..message(job, &into, (tag, 0), 4)
            };
            match receive {
                0 => trecv(job, &mut buffer, (tag, 0), 4)?,
                1 => {
                    ok!(tagged job.ep, recvv(&into, null_mut(), 1, FI_ADDR_UNSPEC, tag, 0, cx(4)))
                }
                _ => ok!(tagged job.ep, recvmsg(&expected, 0)),
            }
            job.post(|| match send {
                0 => call!(tagged job.ep, send(base, 48, none, to, tag, cx(3))),
                1 => call!(tagged job.ep, sendv(&out, null_mut(), 1, to, tag, cx(3))),
                2 => call!(tagged job.ep, sendmsg(&with_data, FI_REMOTE_CQ_DATA)),
                3 => call!(tagged job.ep, inject(base, 48, to, tag)),
                4 => call!(tagged job.ep, senddata(base, 48, none, 77, to, tag, cx(3))),
                _ => call!(tagged job.ep, injectdata(base, 48, 77, to, tag)),
            })?;
            let entry = job.rx.of(4)?;
            let has_data = matches!(send, 2 | 4 | 5);
            let flags = FI_TAGGED | FI_RECV | if has_data { FI_REMOTE_CQ_DATA } else { 0 };
            let seen = (entry.flags, entry.tag, entry.len);
            ensure_eq!(seen, (flags, tag, 48), "the entry of call {send}");
            ensure!(!has_data || entry.data == 77, "the data of call {send}");
            let seen = current(&buffer);
            same(&seen, &bytes, "the message")?;
            if !matches!(send, 3 | 5) {
                job.tx.of(3)?;
            }
        }
    }
    job.tx.is_empty()
}

fn cut(job: &Job<'_>) -> Verdict {
    let mut buffer = [0u8; 60];
    trecv(job, &mut buffer[..50], (9, 0), 2)?;
    tsend(job, 9, &[7; 80], 3)?;
    let error = job.rx.fails(FI_ETRUNC, "a long message")?;
    let seen = (error.context(), error.tag, error.len, error.olen);
    ensure_eq!(seen, (2, 9, 50, 30), "context, tag, length, excess");
    let expected = [[7; 50].as_slice(), &[0; 10]].concat();
    same(&buffer, &expected, "the buffer")?;
    job.tx.of(3).map(drop)
}
