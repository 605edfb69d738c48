//! §2.2.3 to §2.2.6: the descriptors of each command, and their notices.

use std::sync::atomic::Ordering;

use super::kit::*;

laws! {
    chosen with(2048): "notices.chosen", "§2.2.3 to §2.2.5", 2,
        [put, put_gap, put_stride, put_piggyback, put_piggyback8, get, get_stride, armw4, armw8, cswap4, cswap8, poll_tcq, poll_mrq],
        "TCQ entry, remote notice and local notice are each written if asked for, in all eight combinations, for every kind";
    nops with(512): "nop.space", "§2.2.6", 2, [nop, poll_tcq, query_num_unread_tcq],
        "NOPs fill the TOQ as other commands do, and do nothing else: neither here nor at any peer";
    of_armw with(256): "notices.armw", "§2.2.5, §2.2.10", 2, [armw4, armw8, cswap4, cswap8, poll_mrq] + ordering,
        "with the remote notice of an ARMW the target's CPU sees the new value, and with the local one it has been written";
    local_of_put with(16_384): "notices.put.local", "§2.2.3", 3, [put, put_piggyback, poll_mrq] + ordering,
        "with the local notice of a put its data are in the target's memory: a third process reads them there";
}

type Post = fn(&Job<'_>, u64, usize) -> i32;

/// Each kind, with the number of its commands and the type of its local notices.
const KINDS: [(&str, usize, u8, Post); 11] = [
    ("put", 1, LCL_PUT, |job, flags, cbdata| {
        let (vcq, to) = (job.vcq(job.right()), job.at(job.right(), 512));
        post::put(job.hdl, vcq, job.stadd, to, 300).code(5, flags, cbdata)
    }),
    ("put_gap", 1, LCL_PUT, |job, flags, cbdata| {
        let (vcq, to) = (job.vcq(job.right()), job.at(job.right(), 512));
        post::put_gap(job.hdl, vcq, job.stadd, to, 9, 256, 1).code(5, flags, cbdata)
    }),
    ("put_stride", 3, LCL_PUT, |job, flags, cbdata| {
        let (vcq, to) = (job.vcq(job.right()), job.at(job.right(), 512));
        post::put_stride(job.hdl, vcq, job.stadd, to, 8, 32, 3).code(5, flags, cbdata)
    }),
    ("put_piggyback", 1, LCL_PUT, |job, flags, cbdata| {
        let (vcq, to) = (job.vcq(job.right()), job.at(job.right(), 512));
        let data = [3u8; 32];
        post::put_piggyback(job.hdl, vcq, post::bytes(&data), to, 32).code(5, flags, cbdata)
    }),
    ("put_piggyback8", 1, LCL_PUT, |job, flags, cbdata| {
        let (vcq, to) = (job.vcq(job.right()), job.at(job.right(), 512));
        post::put_piggyback8(job.hdl, vcq, 1, to, 8).code(5, flags, cbdata)
    }),
    ("get", 1, LCL_GET, |job, flags, cbdata| {
        let (vcq, from) = (job.vcq(job.right()), job.at(job.right(), 512));
        let here = job.stadd + 1024;
        post::get(job.hdl, vcq, here, from, 300).code(5, flags, cbdata)
    }),
    ("get_stride", 3, LCL_GET, |job, flags, cbdata| {
        let (vcq, from) = (job.vcq(job.right()), job.at(job.right(), 512));
        let here = job.stadd + 1024;
        post::get_stride(job.hdl, vcq, here, from, 8, 32, 3).code(5, flags, cbdata)
    }),
    ("armw4", 1, LCL_ARMW, |job, flags, cbdata| {
        let (vcq, at) = (job.vcq(job.right()), job.at(job.right(), 512));
        post::armw4(job.hdl, vcq, XOR, 1, at).code(5, flags, cbdata)
    }),
    ("armw8", 1, LCL_ARMW, |job, flags, cbdata| {
        let (vcq, at) = (job.vcq(job.right()), job.at(job.right(), 512));
        post::armw8(job.hdl, vcq, SWAP, 1, at).code(5, flags, cbdata)
    }),
    ("cswap4", 1, LCL_ARMW, |job, flags, cbdata| {
        let (vcq, at) = (job.vcq(job.right()), job.at(job.right(), 512));
        post::cswap4(job.hdl, vcq, 0, 1, at).code(5, flags, cbdata)
    }),
    ("cswap8", 1, LCL_ARMW, |job, flags, cbdata| {
        let (vcq, at) = (job.vcq(job.right()), job.at(job.right(), 512));
        post::cswap8(job.hdl, vcq, 0, 1, at).code(5, flags, cbdata)
    }),
];

fn chosen(job: &Job<'_>) -> Verdict {
    for (nth, (name, commands, kind, post)) in KINDS.into_iter().enumerate() {
        for choice in 0..8u64 {
            let mut flags = 0;
            for (bit, flag) in [TCQ, LOCAL, REMOTE].into_iter().enumerate() {
                flags |= flag * (choice >> bit & 1);
            }
            let what = format!("{name} with flags {flags:#x}");
            let cbdata = 100 * nth + choice as usize + 1;
            ensure_eq!(post(job, flags, cbdata), SUCCESS, "{what}");
            // An end marker behind the posted command: when it has completed, the command has too.
            let (vcq, to) = (job.vcq(job.right()), job.at(job.right(), 1536));
            let end = STRONG_ORDER | TCQ | LOCAL | REMOTE;
            post::put_piggyback8(job.hdl, vcq, 1, to, 8).ok(99, end, 99_999)?;
            let mut entries = 0;
            loop {
                match job.queue.tcq()? {
                    99_999 => break,
                    seen => ensure_eq!(seen, cbdata, "{what}: cbdata"),
                }
                entries += 1;
            }
            // The end marker comes last among the local and among the remote notices.
            let (mut seen, mut ends) = ([0usize; 2], 0);
            while ends < 2 {
                let notice = job.queue.mrq()?;
                if notice.edata == 99 {
                    ends += 1;
                    continue;
                }
                ensure_eq!(notice.edata, 5, "{what}: edata");
                let remote = notice.notice_type.wrapping_sub(kind);
                ensure!(remote < 2, "{what}: type {}", notice.notice_type);
                seen[usize::from(remote)] += 1;
            }
            let wanted = |bit: u64| commands * (choice >> bit & 1) as usize;
            ensure_eq!(entries, wanted(0), "{what}: entries of the TCQ");
            ensure_eq!(seen, [wanted(1), wanted(2)], "{what}: notices");
            job.meet();
        }
    }
    job.queue.tcq_is_empty()?;
    job.queue.mrq_is_empty()
}

fn nops(job: &Job<'_>) -> Verdict {
    job.memory.fill(3);
    job.meet();
    for flags in [TCQ, 0] {
        let mut posted = 0;
        let code = loop {
            match c!(utofu_nop(job.hdl, flags, cb(posted + 1))) {
                SUCCESS => posted += 1,
                code => break code,
            }
            ensure!(posted < 1 << 20, "NOPs without end");
        };
        ensure_eq!(code, BUSY, "the code of a full TOQ");
        let (vcq, to) = (job.vcq(job.right()), job.at(job.right(), 0));
        // The queue is full.
        post::put_piggyback8(job.hdl, vcq, 1, to, 8).gives(UTOFU_ERR_BUSY, 0, LOCAL, 0)?;
        if flags == TCQ {
            for nth in 1..=posted {
                ensure_eq!(job.queue.tcq()?, nth, "cbdata");
            }
        }
        until("an empty TOQ", || {
            let mut unread = usize::MAX;
            let code = c!(utofu_query_num_unread_tcq(job.hdl, &mut unread));
            job.queue.poll_tcq().0 == NOT_FOUND && code == SUCCESS && unread == 0
        })?;
    }
    job.meet();
    job.queue.mrq_is_empty()?;
    job.memory.all(0, 512, 3, "after NOPs")
}

fn of_armw(job: &Job<'_>) -> Verdict {
    for round in 1..=40u64 {
        let (vcq, at) = (job.vcq(1), job.at(1, 64));
        if job.rank == 0 {
            let (hdl, flags, edata) = (job.hdl, LOCAL | REMOTE, round % 256);
            let before = round - 1;
            match round % 4 {
                0 => post::armw8(hdl, vcq, ADD, 1, at).ok(edata, flags, 0)?,
                1 => post::armw4(hdl, vcq, SWAP, round as u32, at).ok(edata, flags, 0)?,
                2 => post::cswap8(hdl, vcq, before, round, at).ok(edata, flags, 0)?,
                _ => post::cswap4(hdl, vcq, before as u32, round as u32, at).ok(edata, flags, 0)?,
            }
            let notice = job.queue.notice(LCL_ARMW)?;
            ensure_eq!(notice.rmt_value, before, "the value before");
            // The write is complete: each later read sees it.
            post::get(hdl, vcq, job.stadd + 128, at, 8).ok(0, LOCAL, 0)?;
            job.queue.notice(LCL_GET)?;
            ensure_eq!(job.memory.get(128), round, "what is there by then");
        } else {
            let notice = job.queue.notice(RMT_ARMW)?;
            ensure_eq!(notice.edata, round % 256, "edata");
            let seen = job.memory.word(64).load(Ordering::Relaxed);
            ensure_eq!(seen, round, "the target's word");
        }
        job.meet();
    }
    job.queue.mrq_is_empty()
}

fn local_of_put(job: &Job<'_>) -> Verdict {
    const LENGTH: usize = 3000;
    for round in 1..=30u8 {
        if job.rank == 0 {
            let vcq = job.vcq(1);
            if round % 2 == 0 {
                job.memory.fill_range(8192, LENGTH, round);
                let (from, to) = (job.stadd + 8192, job.at(1, 5));
                post::put(job.hdl, vcq, from, to, LENGTH).ok(0, LOCAL, 0)?;
                job.queue.notice(LCL_PUT)?;
            } else {
                for at in (0..LENGTH).step_by(30) {
                    let data = [round; 30];
                    post::put_piggyback(job.hdl, vcq, post::bytes(&data), job.at(1, 5 + at), 30)
                        .ok(0, LOCAL, 0)?;
                }
                for _ in (0..LENGTH).step_by(30) {
                    job.queue.notice(LCL_PUT)?;
                }
            }
        }
        job.meet();
        if job.rank == 2 {
            job.get(1, 0, 5, LENGTH).ok(0, LOCAL, 0)?;
            job.queue.notice(LCL_GET)?;
            job.memory
                .all(0, LENGTH, round, "what a third process reads")?;
        }
        job.meet();
    }
    Ok(())
}
