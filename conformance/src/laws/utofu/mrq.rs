//! §2.2.1.3, §3.7.4.2, §3.7.6: MRQ notices.

use super::functions::{Call, Function};
use super::kit::*;

laws! {
    fields with(256): "mrq.fields", "§3.7.6.1, §3.7.8.1", 2, [poll_mrq, put, put_piggyback, put_piggyback8, get, armw4, armw8, cswap4, cswap8],
        "type, peer, EDATA, the STADD of the data's end and the value before, for each kind and both sides";
    blocks with(8192): "mrq.stride", "§3.7", 2, [put_stride, get_stride, poll_mrq],
        "each block has its notices, at the end of its data";
    edata with(256): "mrq.edata", "§3.7.1.1, table 6.4", 2, [put, get, armw8, put_piggyback8],
        "EDATA is any byte, and comes back on both sides; more than a byte is refused";
    wanted with(256): "mrq.wanted", "§3.7.9.1", 2, [poll_mrq, put_piggyback8] + ordering,
        "local and remote notices come where their flags were set, each once";
    mixed with(4096): "mrq.mixed", "§3.7.4.2", 4, [poll_mrq, put, armw8, get] + ordering,
        "local and remote notices of many peers, mixed in one MRQ, each come exactly once";
    unread with(256): "mrq.unread", "§3.7.5", 2, [query_num_unread_mrq, poll_mrq],
        "the number of notices not looked at counts them";
}

pub(super) const FLAGS: u64 = LOCAL | REMOTE;

fn fields(job: &Job<'_>) -> Verdict {
    const DATA: [u8; 32] = [3; 32];
    // With the bytes of a transfer.
    for (name, len) in [
        ("utofu_put", 24),
        ("utofu_put_piggyback", 31),
        ("utofu_put_piggyback8", 5),
        ("utofu_get", 24),
        ("utofu_armw4", 0),
        ("utofu_armw8", 0),
        ("utofu_cswap4", 0),
        ("utofu_cswap8", 0),
    ] {
        let function = Function::named(name);
        let local = function.local_type();
        job.memory.set(8, 0xaaaa_bbbb_cccc_dddd);
        job.meet();
        // With another path in the ID: notices contain the default one.
        let mut vcq = job.vcq(job.right());
        set_path(&mut vcq, &[0u8, 2, 1])?;
        let code = function.post(&Call {
            to: vcq,
            local: job.stadd + 128,
            remote: job.at(job.right(), 8),
            len,
            edata: 200,
            flags: FLAGS,
            op: SWAP,
            old: 1,
            data: DATA.as_ptr(),
            ..Call::to(job, job.right())
        });
        ensure_eq!(code, SUCCESS, "{name}");
        let mut seen = [false; 2];
        for _ in 0..2 {
            let notice = job.queue.mrq()?;
            let kind = notice.notice_type;
            let is_remote = kind == local + 1;
            ensure!(is_remote || kind == local, "{name}: type {kind}");
            seen[usize::from(is_remote)] = true;
            ensure_eq!(notice.edata, 200, "{name}: edata");
            let peer = if is_remote { job.left() } else { job.right() };
            ensure_eq!(notice.vcq_id, job.vcq(peer), "{name}: peer");
            let begin = if is_remote {
                job.stadd + 8
            } else {
                job.at(peer, 8)
            };
            let end = begin + len as u64;
            let old = match name.ends_with('4') {
                true => 0xcccc_dddd,
                false => 0xaaaa_bbbb_cccc_dddd,
            };
            // The fields that a notice of this type has; the STADD is the value at the target of an ARMW.
            let (remote_stadd, local_stadd, value) = match kind {
                LCL_GET => (None, Some(job.stadd + 128 + 24), None),
                RMT_GET => (Some(end), Some(job.at(peer, 128) + 24), None),
                LCL_ARMW => (Some(end), None, Some(old)),
                RMT_ARMW => (Some(end), None, Some(job.stadd + 8)),
                _ => (Some(end), None, None),
            };
            for (field, seen, expected) in [
                ("remote STADD", notice.rmt_stadd, remote_stadd),
                ("local STADD", notice.lcl_stadd, local_stadd),
                ("value", notice.rmt_value, value),
            ] {
                let expected = expected.unwrap_or(seen);
                ensure_eq!(seen, expected, "{name}: {field} of type {kind}");
            }
        }
        ensure_eq!(seen, [true, true], "{name}: a local and a remote notice");
        job.queue.mrq_is_empty()?;
        job.meet();
    }
    Ok(())
}

fn blocks(job: &Job<'_>) -> Verdict {
    let peer = job.right();
    job.put_stride(peer, 0, 4096, 10, 100, 20).ok(1, FLAGS, 0)?;
    job.get_stride(peer, 2048, 4096, 10, 100, 20)
        .ok(2, FLAGS, 0)?;
    let mut next = [0u64; 4];
    for _ in 0..80 {
        let notice = job.queue.mrq()?;
        let kind = usize::from(notice.notice_type);
        let end = next[kind] * 100 + 10;
        next[kind] += 1;
        let (seen, expected) = match notice.notice_type {
            LCL_PUT => (notice.rmt_stadd, job.at(peer, 4096) + end),
            RMT_PUT | RMT_GET => (notice.rmt_stadd, job.stadd + 4096 + end),
            _ => (notice.lcl_stadd, job.stadd + 2048 + end),
        };
        ensure_eq!(seen, expected, "end of block {} in type {kind}", next[kind]);
    }
    ensure_eq!(next, [20; 4], "notices of each type");
    job.queue.mrq_is_empty()
}

fn edata(job: &Job<'_>) -> Verdict {
    let peer = job.right();
    for edata in 0..=255 {
        match edata % 4 {
            0 => job.put(peer, 64, 0, 8).ok(edata, FLAGS, 0)?,
            1 => job.put8(peer, 0, 1).ok(edata, FLAGS, 0)?,
            2 => job.get(peer, 64, 0, 8).ok(edata, FLAGS, 0)?,
            _ => job.armw8(peer, 0, ADD, 1).ok(edata, FLAGS, 0)?,
        }
        for _ in 0..2 {
            ensure_eq!(job.queue.mrq()?.edata, edata, "edata");
        }
        job.meet();
    }
    let refused = UTOFU_ERR_INVALID_EDATA;
    job.put8(peer, 0, 1).gives(refused, 256, FLAGS, 0)?;
    job.get(peer, 0, 0, 8).gives(refused, u64::MAX, FLAGS, 0)?;
    job.queue.mrq_is_empty()
}

fn wanted(job: &Job<'_>) -> Verdict {
    // The same on all ranks, so this rank knows the choices of the right one.
    let mut random = job.ctx.random(1);
    let mut expected = [Vec::new(), Vec::new()];
    for nth in 0..200u64 {
        let flags = [0, LOCAL, REMOTE, LOCAL | REMOTE][random.below(4) as usize];
        if flags & LOCAL != 0 {
            expected[0].push(nth);
        }
        if flags & REMOTE != 0 {
            expected[1].push(nth);
        }
        job.put8(job.right(), 0, 1).ok(nth, flags, 0)?;
    }
    let mut seen = [Vec::new(), Vec::new()];
    for _ in 0..expected[0].len() + expected[1].len() {
        let notice = job.queue.mrq()?;
        seen[usize::from(notice.notice_type)].push(notice.edata);
    }
    ensure_eq!(seen, expected, "EDATA of local and of remote notices");
    pause(2);
    job.queue.mrq_is_empty()
}

fn mixed(job: &Job<'_>) -> Verdict {
    const EACH: usize = 60;
    let peers = job.size as usize - 1;
    let mut posted = [0usize; 6];
    let mut seen = [0usize; 6];
    // The types that arrive here: the peers make the same calls.
    let take = |seen: &mut [usize; 6]| {
        let (code, notice) = job.queue.poll_mrq();
        if code == SUCCESS {
            seen[usize::from(notice.notice_type)] += 1;
        }
        one_of(code, &[SUCCESS, NOT_FOUND], "a poll")
    };
    for nth in 0..EACH {
        for peer in (0..job.size).filter(|peer| *peer != job.rank) {
            let (to, kind) = (8 * job.rank as usize, nth % 3);
            match kind {
                0 => job.put(peer, 2048, to, 8).ok(0, FLAGS, 0)?,
                1 => job.get(peer, 2056, to, 8).ok(0, FLAGS, 0)?,
                _ => job.armw8(peer, 1024, ADD, 1).ok(0, FLAGS, 0)?,
            }
            posted[2 * kind] += 1;
            posted[2 * kind + 1] += 1;
        }
        take(&mut seen)?;
    }
    until_ok("all notices", || {
        take(&mut seen)?;
        Ok(seen.iter().sum::<usize>() >= 2 * EACH * peers)
    })?;
    ensure_eq!(seen, posted, "notices of each type");
    job.meet();
    pause(1);
    job.queue.mrq_is_empty()
}

fn unread(job: &Job<'_>) -> Verdict {
    let count = || job.queue.unread_mrq();
    ensure_eq!(count()?, 0, "notices of a new VCQ");
    job.meet();
    for _ in 0..6 {
        job.put8(job.right(), 0, 1).ok(0, REMOTE | TCQ, 0)?;
    }
    until_ok("six notices", || Ok(count()? == 6))?;
    for left in (0..6).rev() {
        job.queue.notice(RMT_PUT)?;
        ensure_eq!(count()?, left, "notices left");
    }
    Ok(())
}
