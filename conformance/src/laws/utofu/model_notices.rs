//! §2.2.3 to §2.2.6: the descriptors of each command, and their notices.

use std::sync::atomic::Ordering;

use super::functions::{Call, functions};
use super::kit::*;
use super::tcq::fill;

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

fn chosen(job: &Job<'_>) -> Verdict {
    let all = functions();
    for (nth, function) in all.iter().filter(|f| f.name != "utofu_nop").enumerate() {
        let (name, kind) = (function.name, function.local_type());
        let (commands, _) = function.counts(3);
        let from = if kind == LCL_GET { 1024 } else { 0 };
        for choice in 0..8u64 {
            let bits = [TCQ, LOCAL, REMOTE].into_iter().enumerate();
            let flags = bits.map(|(bit, flag)| flag * (choice >> bit & 1)).sum();
            let what = format!("{name} with flags {flags:#x}");
            let cbdata = 100 * nth + choice as usize + 1;
            let code = function.post(&Call {
                local: job.stadd + from,
                remote: job.at(job.right(), 512),
                len: if commands == 1 { 300 } else { 8 },
                edata: 5,
                flags,
                mtu: 256,
                gap: 1,
                stride: 32,
                blocks: 3,
                cbdata,
                ..Call::to(job, job.right())
            });
            ensure_eq!(code, SUCCESS, "{what}");
            // An end marker behind the posted command: when it has completed, the command has too.
            let end = STRONG_ORDER | TCQ | LOCAL | REMOTE;
            job.put8(job.right(), 1536, 1).ok(99, end, 99_999)?;
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
    job.queue.has_nothing()
}

fn nops(job: &Job<'_>) -> Verdict {
    job.memory.fill(3);
    job.meet();
    for flags in [TCQ, 0] {
        let posted = fill(|nth| c!(utofu_nop(job.hdl, flags, cb(nth))))?;
        job.put8(job.right(), 0, 1).gives(BUSY, 0, LOCAL, 0)?;
        if flags == TCQ {
            job.queue.completes(1..=posted)?;
        }
        until("an empty TOQ", || {
            job.queue.poll_tcq().0 == NOT_FOUND && job.queue.unread_tcq() == Ok(0)
        })?;
    }
    job.meet();
    job.queue.mrq_is_empty()?;
    job.memory.all(0, 512, 3, "after NOPs")
}

fn of_armw(job: &Job<'_>) -> Verdict {
    for round in 1..=40u64 {
        if job.rank == 0 {
            let (edata, before) = (round % 256, round - 1);
            let (old, new) = (before as u32, round as u32);
            let notice = match round % 4 {
                0 => job.armw8(1, 64, ADD, 1).noticed(edata, REMOTE)?,
                1 => job.armw4(1, 64, SWAP, new).noticed(edata, REMOTE)?,
                2 => job.cswap8(1, 64, before, round).noticed(edata, REMOTE)?,
                _ => job.cswap4(1, 64, old, new).noticed(edata, REMOTE)?,
            };
            ensure_eq!(notice.rmt_value, before, "the value before");
            // The write is complete: each later read sees it.
            job.get(1, 128, 64, 8).noticed(0, 0)?;
            ensure_eq!(job.memory.get(128), round, "the data at that time");
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
            if round % 2 == 0 {
                job.memory.fill_range(8192, LENGTH, round);
                job.put(1, 8192, 5, LENGTH).noticed(0, 0)?;
            } else {
                let places = (0..LENGTH).step_by(30);
                for_all(places.clone(), |at| {
                    job.put_piggyback(1, &[round; 30], 5 + at, 30)
                        .ok(0, LOCAL, 0)
                })?;
                job.queue.notices(places, LCL_PUT)?;
            }
        }
        job.meet();
        if job.rank == 2 {
            job.get(1, 0, 5, LENGTH).noticed(0, 0)?;
            job.memory
                .all(0, LENGTH, round, "the data that a third process reads")?;
        }
        job.meet();
    }
    Ok(())
}
