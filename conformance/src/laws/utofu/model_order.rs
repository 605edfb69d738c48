//! §2.2.10: conclusions from memory contents and from notices.

use std::sync::atomic::{AtomicU64, Ordering};

use super::kit::*;
use super::order::within_a_line;

laws! {
    line_of_get with(2048): "order.line.get", "§2.2.10", 2, [get] + ordering,
        "within a cache line of the own memory, a get is seen whole by who polls its end";
    other_thread with(16_384): "order.get.thread", "§2.2.10, §6.1.3.1", 2, [get] + ordering,
        "a thread that polls the end of a get which another one has posted, of a line or strongly ordered, sees all of it";
    with_errors with(4096): "order.errors", "§2.2.10, §2.2.12", 2, [put, get, armw8, poll_mrq, poll_tcq] + ordering,
        "local notices and TCQ entries come in the order of posting with errors among them";
    unread with(256): "order.unread", "§2.2.10", 2, [put_piggyback8, put, poll_mrq, query_num_unread_mrq] + ordering,
        "remote notices come in order although thousands of them have not been looked at, and while they are looked at";
    two_senders with(4096): "order.two-vcqs", "§2.2.10", 2, [create_vcq_with_cmp_id, put, armw8, poll_mrq] + ordering,
        "notices of two local VCQs for the same remote one, or of one for two remote ones, are each in order";
}

fn line_of_get(job: &Job<'_>) -> Verdict {
    for round in 1..=60u64 {
        let (at, words) = within_a_line(round);
        for word in 0..words {
            job.memory.set(1024 + 8 * word, round);
        }
        job.meet();
        job.get(job.right(), at, 1024, 8 * words).ok(0, 0, 0)?;
        job.await_word(at + 8 * (words - 1), round)?;
        for word in 0..words {
            ensure_eq!(job.memory.get(at + 8 * word), round, "word {word}");
        }
        job.meet();
    }
    Ok(())
}

/// Clears the bytes from 256 on, posts a get to them and waits for its end in each round; another thread looks at them meanwhile.
pub(super) fn beside_gets(
    job: &Job<'_>,
    cleared: usize,
    rounds: u64,
    get: impl Fn(u64) -> Verdict + Sync,
    look: impl Fn(u64) -> Verdict + Sync,
) -> Verdict {
    let (posted, looked) = (AtomicU64::new(0), AtomicU64::new(0));
    // Many polls: a copy has its beginning but not its end only for a moment.
    let reaches = |word: &AtomicU64, round| {
        until("the other thread", || {
            (0..3000).any(|_| word.load(Ordering::Acquire) >= round)
        })
    };
    threads(2, |thread| {
        for_all(1..=rounds, |round| {
            if thread == 0 {
                job.memory.fill_range(256, cleared, 0);
                posted.store(round, Ordering::Release);
                get(round)?;
                return reaches(&looked, round);
            }
            reaches(&posted, round)?;
            let whole = look(round);
            // After a failure the other thread continues alone.
            let next = if whole.is_ok() { round } else { u64::MAX };
            looked.store(next, Ordering::Release);
            whole
        })
    })
}

fn other_thread(job: &Job<'_>) -> Verdict {
    let rounds = if job.ctx.is_quick() { 1000 } else { 30 };
    // Within a line without strong order, and longer ones with it.
    let shapes = [
        (256, 256, 0),
        (512, 192, 0),
        (256, 2048, STRONG_ORDER),
        (264, 1500, STRONG_ORDER),
    ];
    job.memory.fill_range(8192, 4096, 1);
    job.memory.fill_range(12_288, 4096, 2);
    job.meet();
    if job.rank == 1 {
        // Leaves the CPU cores to the threads of rank 0.
        return Ok(());
    }
    let shape = |round: u64| (shapes[(round % 4) as usize], (round / 4 % 2) as usize);
    let get = |round| {
        let ((to, len, flags), half) = shape(round);
        let get = job.get(1, to, 8192 + 4096 * half, len);
        get.noticed(0, flags).map(drop)
    };
    beside_gets(job, 4096, rounds, get, |round| {
        let ((to, len, _), half) = shape(round);
        let (value, end) = (1 + half as u8, &job.memory.bytes()[to + len - 1]);
        until("the end of the get", || {
            (0..3000).any(|_| end.load(Ordering::Acquire) == value)
        })?;
        let what = "a get with a seen end";
        job.memory.all(to, len, value, what)
    })
}

fn with_errors(job: &Job<'_>) -> Verdict {
    const COUNT: u64 = 200;
    let mut random = job.ctx.random(u64::from(job.rank));
    let (vcq, to) = (job.vcq(job.right()), job.at(job.right(), 2048));
    let (nowhere, end) = (stadd_of(vcq, 99)?, job.at(job.right(), 4096));
    let (stadd, length) = (UTOFU_ERR_MRQ_RMT_STADD, UTOFU_ERR_MRQ_RMT_LENGTH);
    let no_source = stadd_of(vcq, 98)?;
    // The expected entries and notices.
    let (mut entries, mut notices) = (Vec::new(), Vec::new());
    for nth in 0..COUNT {
        let (hdl, cbdata) = (job.hdl, nth as usize + 1);
        let len = 8 + random.below(1000) as usize;
        let mut code = SUCCESS;
        let there = match random.below(5) {
            0 => {
                code = stadd;
                nowhere
            }
            1 => {
                code = length;
                end - 4
            }
            _ => to,
        };
        let flags = TCQ | if code == SUCCESS { LOCAL } else { 0 };
        match random.below(4) {
            0 => post::put(hdl, vcq, job.stadd, there, len).ok(nth, flags, cbdata)?,
            1 => post::get(hdl, vcq, job.stadd, there, len).ok(nth, flags, cbdata)?,
            2 if code != length => post::armw8(hdl, vcq, ADD, 1, there).ok(nth, flags, cbdata)?,
            2 | 3 if random.below(2) == 0 => {
                // The put fails before it is sent.
                post::put(hdl, vcq, no_source, there, len).ok(nth, LOCAL, cbdata)?;
                entries.push((UTOFU_ERR_TCQ_STADD, nth as usize + 1));
                continue;
            }
            _ => post::put_piggyback8(hdl, vcq, 1, there, 8).ok(nth, flags, cbdata)?,
        }
        entries.push((SUCCESS, nth as usize + 1));
        notices.push((code, nth));
    }
    for expected in entries {
        ensure_eq!(job.queue.next_tcq()?, expected, "an entry of the TCQ");
    }
    for expected in notices {
        let (code, notice) = job.queue.next_mrq()?;
        ensure_eq!((code, notice.edata), expected, "a local notice");
    }
    job.queue.has_nothing()
}

fn unread(job: &Job<'_>) -> Verdict {
    const MOST: u64 = 1900;
    let mut random = job.ctx.random(u64::from(job.rank));
    for part in [MOST, 1, 700, 1500, 3, MOST] {
        let (mut sent, mut next) = (0, 0);
        let mut send = |count: u64| {
            for edata in (sent..sent + count).map(|nth| nth % 251) {
                job.queue.post(|| {
                    if edata.is_multiple_of(7) {
                        job.put(job.right(), 64, 8, 8).code(edata, REMOTE | TCQ, 0)
                    } else {
                        job.put8(job.right(), 8, 1).code(edata, REMOTE | TCQ, 0)
                    }
                })?;
                while job.queue.poll_tcq().0 == SUCCESS {}
            }
            sent += count;
            Ok::<_, String>(())
        };
        let mut take_to = |end: u64| {
            let expected = std::mem::replace(&mut next, end)..end;
            for_all(expected, |nth| {
                equal!(
                    job.queue.notice(RMT_PUT)?.edata,
                    nth % 251,
                    "EDATA in order"
                )
            })
        };
        // First all entries unread, then a part, then while more arrive.
        send(part)?;
        job.meet();
        take_to(random.below(part))?;
        job.meet();
        send(100)?;
        take_to(part)?;
        for nth in 1..=50 {
            send(1)?;
            take_to(part + nth)?;
        }
        take_to(part + 150)?;
        job.meet();
        job.queue.mrq_is_empty()?;
        job.meet();
    }
    Ok(())
}

fn two_senders(job: &Job<'_>) -> Verdict {
    const COUNT: u64 = 120;
    let other = Queue::with_component(TNI + 1, 0, 0)?;
    let second = other.register_as(job.memory, STAG)?;
    job.meet();
    let mut random = job.ctx.random(u64::from(job.rank));
    let peer = job.right();
    let there = [job.vcq(peer), vcq_of(peer, TNI + 1, 0)?];
    let here = [job.queue, other];
    let froms = [job.stadd, second];
    // Both VCQs to both peers, in any order; EDATA counts each pair separately.
    let mut posted = [[0u64; 2]; 2];
    for _ in 0..2 * COUNT {
        let (from, to) = (random.below(2) as usize, random.below(2) as usize);
        let edata = posted[from][to] % 256;
        posted[from][to] += 1;
        let (hdl, vcq) = (here[from].hdl, there[to]);
        let at = stadd_of(vcq, STAG)? + 2048;
        let flags = LOCAL | REMOTE;
        let len = random.below(600) as usize;
        match random.below(2) {
            0 => post::put(hdl, vcq, froms[from], at, len).ok(edata, flags, 0)?,
            _ => post::armw8(hdl, vcq, ADD, 1, at).ok(edata, flags, 0)?,
        }
    }
    let theirs = [vcq_of(job.left(), TNI, 0)?, vcq_of(job.left(), TNI + 1, 0)?];
    let mut seen = [[[0u64; 2]; 2]; 2];
    for _ in 0..4 * COUNT {
        let mut at = 0;
        let (code, notice) = next("a notice", || {
            at = 1 - at;
            here[at].poll_mrq()
        })?;
        code_is(code, SUCCESS, "a notice")?;
        let remote = usize::from(notice.notice_type % 2);
        let peers = if remote == 1 { theirs } else { there };
        let Some(peer) = peers.iter().position(|id| *id == notice.vcq_id) else {
            return Err(format!("a notice of {:#x}", notice.vcq_id));
        };
        let seen = &mut seen[remote][at][peer];
        ensure_eq!(notice.edata, *seen % 256, "EDATA in order");
        *seen += 1;
    }
    job.meet();
    other.mrq_is_empty()?;
    other.deregister(second)?;
    job.meet();
    other.free()
}
