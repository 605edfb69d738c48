//! §2.2.10 ordering, §6.1.3.1 strong order, §2.2.11 cache injection.

use super::kit::*;

laws! {
    notices with(8192): "order.notices", "§2.2.10", 2, [poll_mrq, put, get, armw8, put_piggyback8] + ordering,
        "local notices, and remote ones, come in the order of posting for one remote VCQ and path, whatever the kinds";
    several_peers with(256): "order.peers", "§2.2.10", 3, [poll_mrq, put_piggyback8] + ordering,
        "for each of several remote VCQs, notices come in the order of posting";
    strong_writes with(16_384): "order.strong", "§2.2.10, §3.7.9.1", 2, [put, put_piggyback8] + ordering,
        "a strongly ordered put writes after the puts before it: a poller of it sees them";
    last_byte with(65_536): "order.strong.last-byte", "§6.1.3.1", 2, [put] + ordering,
        "when the last byte of a strongly ordered put is seen, the whole put is there";
    last_byte_of_get with(65_536): "order.strong.get.last-byte", "§6.1.3.1", 2, [get] + ordering,
        "when the last byte of a strongly ordered get is seen, the whole get is there";
    strong_armw with(16_384): "order.strong.armw", "§2.2.10", 2, [put, armw8] + ordering,
        "a strongly ordered ARMW updates after the puts before it have written";
    one_line with(1024): "order.line", "§2.2.10", 2, [put] + ordering,
        "within a cache line of the target, a put is seen whole";
    hints with(4096): "order.hints", "§3.7.9.1", 2, [put, get, armw8, put_piggyback8],
        "cache injection, padding and packet response change nothing that is written or notified";
    strong_get with(256): "order.strong.get", "§2.2.10", 2, [get] + ordering,
        "a strongly ordered get reads after the gets before it have read";
}

fn notices(job: &Job<'_>) -> Verdict {
    let mut random = job.ctx.random(u64::from(job.rank));
    let peer = job.right();
    const COUNT: u64 = 250;
    for nth in 0..COUNT {
        let kind = random.below(4);
        let strong = u64::from(random.below(4) == 0);
        let flags = LOCAL | REMOTE | (STRONG_ORDER * strong);
        let length = random.below(1200) as usize;
        match kind {
            0 => job.put(peer, 0, 4096, length).ok(nth, flags, 0)?,
            1 => job.get(peer, 2048, 4096, length).ok(nth, flags, 0)?,
            2 => job.armw8(peer, 6144, ADD, 1).ok(nth, flags, 0)?,
            _ => job.put8(peer, 4096, 1).ok(nth, flags, 0)?,
        }
    }
    let mut next = [0; 2];
    for _ in 0..2 * COUNT {
        let notice = job.queue.mrq()?;
        let side = usize::from(notice.notice_type % 2);
        ensure_eq!(notice.edata, next[side], "EDATA (local, remote: {side})");
        next[side] += 1;
    }
    Ok(())
}

fn several_peers(job: &Job<'_>) -> Verdict {
    const COUNT: u64 = 100;
    for nth in 0..COUNT {
        for peer in (0..job.size).filter(|peer| *peer != job.rank) {
            let flags = LOCAL | REMOTE;
            job.put8(peer, 0, nth).ok(nth, flags, 0)?;
        }
    }
    let peers: Vec<u64> = (0..job.size).map(|rank| job.vcq(rank)).collect();
    let mut next = vec![[0; 2]; peers.len()];
    for _ in 0..4 * COUNT {
        let notice = job.queue.mrq()?;
        let Some(peer) = peers.iter().position(|id| *id == notice.vcq_id) else {
            return Err(format!("a notice of {:#x}", notice.vcq_id));
        };
        let next = &mut next[peer][usize::from(notice.notice_type % 2)];
        ensure_eq!(notice.edata, *next, "EDATA in order for rank {peer}");
        *next += 1;
    }
    Ok(())
}

/// Bytes of a put before the command that the target sees first.
const LENGTH: usize = 3000;

fn strong_writes(job: &Job<'_>) -> Verdict {
    let send = |round| {
        let here = 8192;
        job.memory.fill_range(here, LENGTH, round as u8);
        job.put(1, here, 64, LENGTH).ok(0, 0, 0)?;
        job.put_stride(1, here, 4096, 8, 64, 20).ok(0, 0, 0)?;
        job.put8(1, 0, round).ok(0, STRONG_ORDER, 0)
    };
    job.rounds(40, send, |round| {
        job.await_word(0, round)?;
        let what = "a put before the seen one";
        job.memory.all(64, LENGTH, round as u8, what)?;
        for_all(0..20, |block| {
            let what = "a block before the put that was seen";
            job.memory.all(4096 + 64 * block, 8, round as u8, what)
        })
    })
}

fn last_byte(job: &Job<'_>) -> Verdict {
    let length = |round| [255, 256, 300, 4097, 20_000][round as usize % 5];
    let send = |round| {
        let length = length(round);
        job.memory.fill_range(32_768, length, round as u8);
        job.put(1, 32_768, 256, length).ok(0, STRONG_ORDER, 0)
    };
    job.rounds(40, send, |round| {
        let (length, value) = (length(round), round as u8);
        job.await_byte(256 + length - 1, value)?;
        let what = "a put with a seen last byte";
        job.memory.all(256, length, value, what)?;
        job.memory.fill(0);
        Ok(())
    })
}

fn last_byte_of_get(job: &Job<'_>) -> Verdict {
    let lengths = [3usize, 8, 255, 256, 300, 4097, 20_000];
    job.memory.fill_range(32_768, 32_768, 1 + job.rank as u8);
    job.meet();
    let (theirs, peer) = (1 + job.right() as u8, job.right());
    for round in 0..40usize {
        let (length, at) = (lengths[round % lengths.len()], 256 + round % 3);
        job.memory.fill_range(0, 32_768, 0);
        job.get(peer, at, 32_768 + round, length)
            .ok(0, STRONG_ORDER, 0)?;
        job.await_byte(at + length - 1, theirs)?;
        job.memory
            .all(at, length, theirs, "a get with a seen last byte")?;
    }
    Ok(())
}

fn strong_armw(job: &Job<'_>) -> Verdict {
    let send = |round| {
        job.memory.fill_range(8192, LENGTH, round as u8);
        job.put(1, 8192, 64, LENGTH).ok(0, 0, 0)?;
        job.armw8(1, 0, ADD, 1).ok(0, STRONG_ORDER, 0)
    };
    job.rounds(30, send, |round| {
        job.await_word(0, round)?;
        let what = "a put before the addition that was seen";
        job.memory.all(64, LENGTH, round as u8, what)
    })
}

/// The place and the words of a transfer within a cache line: a whole line of 256 bytes, or a part of it.
pub(super) fn within_a_line(round: u64) -> (usize, usize) {
    [(256, 32), (264, 31), (256, 8), (448, 8)][round as usize % 4]
}

fn one_line(job: &Job<'_>) -> Verdict {
    let send = |round| {
        let (at, words) = within_a_line(round);
        for word in 0..words {
            job.memory.set(512 + 8 * word, round);
        }
        job.put(1, 512, at, 8 * words).ok(0, 0, 0)
    };
    job.rounds(60, send, |round| {
        // Any word may be polled: the line arrives in one write.
        let (at, words) = within_a_line(round);
        job.await_word(at + 8 * (words - 1), round)?;
        for_all(0..words, |word| {
            let what = format!("word {word} of a line of {words}");
            job.memory.shows(at + 8 * word, round, what)
        })
    })
}

fn hints(job: &Job<'_>) -> Verdict {
    let peer = job.right();
    for hints in [
        CACHE_INJECTION,
        PACKET_RESPONSE,
        PADDING | CACHE_INJECTION,
        CACHE_INJECTION | PACKET_RESPONSE | STRONG_ORDER,
    ] {
        let flags = hints | LOCAL | REMOTE | TCQ;
        job.memory.fill(0);
        job.memory.set(0, 77);
        job.meet();
        job.put8(peer, 1024, 5).ok(0, flags, 1)?;
        let flags = flags & !PADDING;
        job.put(peer, 0, 2048, 8).ok(1, flags, 2)?;
        job.get(peer, 8, 0, 8).ok(2, flags, 3)?;
        job.armw8(peer, 3072, ADD, 9).ok(3, flags, 4)?;
        job.queue.completes(1..=4)?;
        let mut count = 0;
        for _ in 0..8 {
            count += job.queue.mrq()?.edata;
        }
        ensure_eq!(count, 12, "sum of the EDATA");
        job.meet();
        let seen = job.memory.words([1024, 2048, 8, 3072]);
        ensure_eq!(seen, [5, 77, 77, 9], "written with hints {hints:#x}");
        job.meet();
    }
    Ok(())
}

fn strong_get(job: &Job<'_>) -> Verdict {
    if job.rank == 1 {
        // Counts up word 8, then word 0: a reader of 0, then 8, must not find 8 behind.
        let mut value = 1;
        until("the end", || {
            job.memory.set(8, value);
            job.memory.set(0, value);
            value += 1;
            job.memory.get(128) != 0
        })?;
    } else {
        for _ in 0..300 {
            job.get(1, 64, 0, 8).ok(0, 0, 0)?;
            job.get(1, 72, 8, 8).noticed(0, STRONG_ORDER)?;
            // The write of the second get comes after that of the first one too.
            let (first, second) = (job.memory.get(64), job.memory.get(72));
            ensure!(second >= first, "{second} was read after {first}");
        }
        job.write(1, 128, 1)?;
    }
    Ok(())
}
