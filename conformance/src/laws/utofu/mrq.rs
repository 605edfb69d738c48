//! §2.2.1.3, §3.7.4.2, §3.7.6: MRQ notices.

use std::ptr::null_mut;

use unipgas::utofu::status::Code;

use super::kit::*;
use crate::law::{Ctx, Verdict};
use crate::{ensure, ensure_eq};

laws! {
    fields: "mrq.fields", "§3.7.6.1, §3.7.8.1", 2, [poll_mrq, put, put_piggyback, put_piggyback8, get, armw4, armw8, cswap4, cswap8],
        "type, peer, EDATA, the STADD of the data's end and the value before, for each kind and both sides";
    blocks: "mrq.stride", "§3.7", 2, [put_stride, get_stride, poll_mrq],
        "each block has its notices, with the end of its own data";
    edata: "mrq.edata", "§3.7.1.1, table 6.4", 2, [put, get, armw8, put_piggyback8],
        "EDATA is any byte, and comes back on both sides; more than a byte is refused";
    wanted: "mrq.wanted", "§3.7.9.1", 2, [poll_mrq, put_piggyback8] + ordering,
        "local and remote notices come where their flags were set, each once";
    mixed: "mrq.mixed", "§3.7.4.2", 4, [poll_mrq, put, armw8, get] + ordering,
        "local and remote notices of many peers, mixed in one MRQ, each come exactly once";
    unread: "mrq.unread", "§3.7.5", 2, [query_num_unread_mrq, poll_mrq],
        "the number of notices not looked at counts them";
    too_early: "mrq.early", "§2.2.12, §3.7", 2, [put_piggyback8, put, get, armw8, query_stadd, construct_vcq_id] + ordering,
        "to a VCQ that is not there yet, or has not registered yet, is an error notice; later the same succeeds";
    error_fields: "mrq.errors", "§2.2.12, §3.7.4.2", 2, [poll_mrq, put, get, armw8],
        "errors at the remote end come through the local MRQ, also unwanted, and name peer and EDATA; the target hears nothing";
    target_written: "mrq.remote.put", "§2.2.10", 2, [put, poll_mrq] + ordering,
        "with the remote notice of a put all its data are in the target's memory";
    read_all: "mrq.remote.get", "§2.2.10", 2, [get, poll_mrq] + ordering,
        "with the remote notice of a get its source can be overwritten; with the local one the data are there";
}

/// Posts one kind of command to a VCQ and a STADD.
type Post = fn(&Job<'_>, u64, u64) -> i32;

const FLAGS: u64 = LOCAL | REMOTE;

fn fields(ctx: &Ctx) -> Verdict {
    const DATA: [u8; 32] = [3; 32];
    let kinds: [(&str, u8, u64, Post); 8] = [
        ("put", RMT_PUT, 24, |job, vcq, to| {
            c!(utofu_put(
                job.hdl,
                vcq,
                job.stadd + 128,
                to,
                24,
                200,
                FLAGS,
                null_mut()
            ))
        }),
        ("put_piggyback", RMT_PUT, 31, |job, vcq, to| {
            c!(utofu_put_piggyback(
                job.hdl,
                vcq,
                DATA.as_ptr(),
                to,
                31,
                200,
                FLAGS,
                null_mut()
            ))
        }),
        ("put_piggyback8", RMT_PUT, 5, |job, vcq, to| {
            c!(utofu_put_piggyback8(
                job.hdl,
                vcq,
                1,
                to,
                5,
                200,
                FLAGS,
                null_mut()
            ))
        }),
        ("get", RMT_GET, 24, |job, vcq, to| {
            c!(utofu_get(
                job.hdl,
                vcq,
                job.stadd + 128,
                to,
                24,
                200,
                FLAGS,
                null_mut()
            ))
        }),
        ("armw4", RMT_ARMW, 0, |job, vcq, to| {
            c!(utofu_armw4(
                job.hdl,
                vcq,
                SWAP,
                1,
                to,
                200,
                FLAGS,
                null_mut()
            ))
        }),
        ("armw8", RMT_ARMW, 0, |job, vcq, to| {
            c!(utofu_armw8(
                job.hdl,
                vcq,
                SWAP,
                1,
                to,
                200,
                FLAGS,
                null_mut()
            ))
        }),
        ("cswap4", RMT_ARMW, 0, |job, vcq, to| {
            c!(utofu_cswap4(job.hdl, vcq, 1, 1, to, 200, FLAGS, null_mut()))
        }),
        ("cswap8", RMT_ARMW, 0, |job, vcq, to| {
            c!(utofu_cswap8(job.hdl, vcq, 1, 1, to, 200, FLAGS, null_mut()))
        }),
    ];
    with(ctx, 256, |job| {
        for (name, remote, distance, post) in kinds {
            job.memory.set(8, 0xaaaa_bbbb_cccc_dddd);
            job.meet();
            // With another path in the id: notices name the default one.
            let mut vcq = job.vcq(job.right());
            ok!(utofu_set_vcq_id_path(&mut vcq, [0u8, 2, 1].as_ptr()));
            let code = post(job, vcq, job.at(job.right(), 8));
            ensure_eq!(code, SUCCESS, "{name}");
            let mut seen = [false; 2];
            for _ in 0..2 {
                let notice = job.queue.mrq()?;
                let is_remote = notice.notice_type == remote;
                ensure!(
                    is_remote || notice.notice_type == remote - 1,
                    "{name}: type {}",
                    notice.notice_type
                );
                seen[usize::from(is_remote)] = true;
                ensure_eq!(notice.edata, 200, "{name}: edata");
                let peer = if is_remote { job.left() } else { job.right() };
                ensure_eq!(notice.vcq_id, job.vcq(peer), "{name}: peer");
                match notice.notice_type {
                    LCL_PUT | LCL_ARMW => {
                        ensure_eq!(
                            notice.rmt_stadd,
                            job.at(peer, 8) + distance,
                            "{name}: remote STADD"
                        );
                    }
                    RMT_PUT | RMT_ARMW | RMT_GET => {
                        ensure_eq!(
                            notice.rmt_stadd,
                            job.stadd + 8 + distance,
                            "{name}: remote STADD at the target"
                        );
                    }
                    _ => {}
                }
                if notice.notice_type == LCL_GET {
                    ensure_eq!(
                        notice.lcl_stadd,
                        job.stadd + 128 + 24,
                        "{name}: local STADD"
                    );
                }
                if notice.notice_type == RMT_GET {
                    let theirs = job.at(peer, 128) + 24;
                    ensure_eq!(
                        notice.lcl_stadd,
                        theirs,
                        "{name}: local STADD at the target"
                    );
                }
                if notice.notice_type == LCL_ARMW {
                    let old = if name.ends_with('4') {
                        0xcccc_dddd
                    } else {
                        0xaaaa_bbbb_cccc_dddd
                    };
                    ensure_eq!(notice.rmt_value, old, "{name}: value before");
                }
                if notice.notice_type == RMT_ARMW {
                    ensure_eq!(
                        notice.rmt_value,
                        job.stadd + 8,
                        "{name}: the STADD as value at the target"
                    );
                }
            }
            ensure_eq!(seen, [true, true], "{name}: a local and a remote notice");
            job.queue.mrq_is_empty()?;
            job.meet();
        }
        Ok(())
    })
}

fn blocks(ctx: &Ctx) -> Verdict {
    with(ctx, 8192, |job| {
        let peer = job.right();
        ok!(utofu_put_stride(
            job.hdl,
            job.vcq(peer),
            job.stadd,
            job.at(peer, 4096),
            10,
            100,
            20,
            1,
            FLAGS,
            null_mut()
        ));
        ok!(utofu_get_stride(
            job.hdl,
            job.vcq(peer),
            job.stadd + 2048,
            job.at(peer, 4096),
            10,
            100,
            20,
            2,
            FLAGS,
            null_mut()
        ));
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
    })
}

fn edata(ctx: &Ctx) -> Verdict {
    with(ctx, 256, |job| {
        let (vcq, to) = (job.vcq(job.right()), job.at(job.right(), 0));
        for edata in 0..=255 {
            match edata % 4 {
                0 => ok!(utofu_put(
                    job.hdl,
                    vcq,
                    job.stadd + 64,
                    to,
                    8,
                    edata,
                    FLAGS,
                    null_mut()
                )),
                1 => ok!(utofu_put_piggyback8(
                    job.hdl,
                    vcq,
                    1,
                    to,
                    8,
                    edata,
                    FLAGS,
                    null_mut()
                )),
                2 => ok!(utofu_get(
                    job.hdl,
                    vcq,
                    job.stadd + 64,
                    to,
                    8,
                    edata,
                    FLAGS,
                    null_mut()
                )),
                _ => ok!(utofu_armw8(
                    job.hdl,
                    vcq,
                    ADD,
                    1,
                    to,
                    edata,
                    FLAGS,
                    null_mut()
                )),
            }
            for _ in 0..2 {
                ensure_eq!(job.queue.mrq()?.edata, edata, "edata");
            }
            job.meet();
        }
        gives!(
            InvalidEdata,
            utofu_put_piggyback8(job.hdl, vcq, 1, to, 8, 256, FLAGS, null_mut())
        );
        gives!(
            InvalidEdata,
            utofu_get(job.hdl, vcq, job.stadd, to, 8, u64::MAX, FLAGS, null_mut())
        );
        job.queue.mrq_is_empty()
    })
}

fn wanted(ctx: &Ctx) -> Verdict {
    with(ctx, 256, |job| {
        let (vcq, to) = (job.vcq(job.right()), job.at(job.right(), 0));
        // The same on all ranks: so the right rank's choices are known.
        let mut random = ctx.random(1);
        let mut expected = [Vec::new(), Vec::new()];
        for nth in 0..200u64 {
            let flags = [0, LOCAL, REMOTE, LOCAL | REMOTE][random.below(4) as usize];
            if flags & LOCAL != 0 {
                expected[0].push(nth);
            }
            if flags & REMOTE != 0 {
                expected[1].push(nth);
            }
            ok!(utofu_put_piggyback8(
                job.hdl,
                vcq,
                1,
                to,
                8,
                nth,
                flags,
                null_mut()
            ));
        }
        let mut seen = [Vec::new(), Vec::new()];
        for _ in 0..expected[0].len() + expected[1].len() {
            let notice = job.queue.mrq()?;
            seen[usize::from(notice.notice_type)].push(notice.edata);
        }
        ensure_eq!(seen, expected, "EDATA of local and of remote notices");
        pause(2);
        job.queue.mrq_is_empty()
    })
}

fn mixed(ctx: &Ctx) -> Verdict {
    const EACH: usize = 60;
    with(ctx, 4096, |job| {
        let peers = job.size as usize - 1;
        let mut posted = [0usize; 6];
        let mut seen = [0usize; 6];
        // Types that arrive here: the peers do the same.
        let take = |seen: &mut [usize; 6]| -> Result<bool, String> {
            match job.queue.poll_mrq() {
                (SUCCESS, notice) => {
                    seen[usize::from(notice.notice_type)] += 1;
                    Ok(true)
                }
                (NOT_FOUND, _) => Ok(false),
                (code, _) => Err(code_name(code)),
            }
        };
        for nth in 0..EACH {
            for peer in (0..job.size).filter(|peer| *peer != job.rank) {
                let (vcq, to) = (job.vcq(peer), job.at(peer, 8 * job.rank as usize));
                let kind = nth % 3;
                match kind {
                    0 => ok!(utofu_put(
                        job.hdl,
                        vcq,
                        job.stadd + 2048,
                        to,
                        8,
                        0,
                        FLAGS,
                        null_mut()
                    )),
                    1 => ok!(utofu_get(
                        job.hdl,
                        vcq,
                        job.stadd + 2056,
                        to,
                        8,
                        0,
                        FLAGS,
                        null_mut()
                    )),
                    _ => ok!(utofu_armw8(
                        job.hdl,
                        vcq,
                        ADD,
                        1,
                        job.at(peer, 1024),
                        0,
                        FLAGS,
                        null_mut()
                    )),
                }
                posted[2 * kind] += 1;
                posted[2 * kind + 1] += 1;
            }
            take(&mut seen)?;
        }
        let mut failure = None;
        until("all notices", || {
            match take(&mut seen) {
                Ok(_) => {}
                Err(code) => failure = Some(code),
            }
            failure.is_some() || seen.iter().sum::<usize>() >= 2 * EACH * peers
        })?;
        ensure!(
            failure.is_none(),
            "a notice with {}",
            failure.unwrap_or_default()
        );
        ensure_eq!(seen, posted, "notices of each type");
        job.meet();
        pause(1);
        job.queue.mrq_is_empty()
    })
}

fn unread(ctx: &Ctx) -> Verdict {
    with(ctx, 256, |job| {
        let count = || {
            let mut count = usize::MAX;
            ok!(utofu_query_num_unread_mrq(job.hdl, &mut count));
            Ok::<_, String>(count)
        };
        ensure_eq!(count()?, 0, "notices of a new VCQ");
        job.meet();
        let (vcq, to) = (job.vcq(job.right()), job.at(job.right(), 0));
        for _ in 0..6 {
            ok!(utofu_put_piggyback8(
                job.hdl,
                vcq,
                1,
                to,
                8,
                0,
                REMOTE | TCQ,
                null_mut()
            ));
        }
        let mut failure = None;
        until("six notices", || match count() {
            Ok(count) => count == 6,
            Err(why) => {
                failure = Some(why);
                true
            }
        })?;
        ensure!(failure.is_none(), "{}", failure.unwrap_or_default());
        for left in (0..6).rev() {
            job.queue.notice(RMT_PUT)?;
            ensure_eq!(count()?, left, "notices left");
        }
        Ok(())
    })
}

fn too_early(ctx: &Ctx) -> Verdict {
    let own = Queue::with_component(TNI, 0, 0)?;
    let source = Memory::new(256);
    let from = own.register(source)?;
    // The VCQ that all of it goes to, made by rank 1 only later.
    let target = vcq_of(1, TNI, 6)?;
    let to = stadd_of(target, 40)?;
    let memory = Memory::new(256);
    let mut made = None;
    for step in 0..3 {
        ctx.sync();
        if ctx.rank == 1 && step == 1 {
            made = Some(Queue::with_component(TNI, 6, 0)?);
        }
        if let (Some(queue), 2) = (made, step) {
            queue.register_as(memory, 40)?;
        }
        ctx.sync();
        let expected = [Code::MrqPeer as i32, Code::MrqRmtStadd as i32, SUCCESS][step];
        for edata in 0..4 {
            let flags = if step == 2 {
                LOCAL
            } else {
                LOCAL * (edata % 2)
            };
            match edata {
                0 => ok!(utofu_put_piggyback8(
                    own.hdl,
                    target,
                    9,
                    to,
                    8,
                    edata,
                    flags,
                    null_mut()
                )),
                1 => ok!(utofu_put(
                    own.hdl,
                    target,
                    from,
                    to + 8,
                    8,
                    edata,
                    flags,
                    null_mut()
                )),
                2 => ok!(utofu_get(
                    own.hdl,
                    target,
                    from + 8,
                    to,
                    8,
                    edata,
                    flags,
                    null_mut()
                )),
                _ => ok!(utofu_armw8(
                    own.hdl,
                    target,
                    ADD,
                    1,
                    to + 16,
                    edata,
                    flags,
                    null_mut()
                )),
            }
            let (code, notice) = own.next_mrq()?;
            ensure!(
                code == expected,
                "step {step}, command {edata}: {} instead of {}",
                code_name(code),
                code_name(expected)
            );
            ensure_eq!(notice.edata, edata, "edata");
            ensure_eq!(notice.vcq_id, target, "the peer");
        }
    }
    ctx.sync();
    if let Some(queue) = made {
        ensure_eq!(
            memory.get(16),
            u64::from(ctx.size),
            "the additions that succeeded"
        );
        queue.mrq_is_empty()?;
        queue.deregister(stadd_of(queue.id, 40)?)?;
        queue.free()?;
    }
    own.deregister(from)?;
    own.free()?;
    source.free();
    memory.free();
    ctx.sync();
    Ok(())
}

fn error_fields(ctx: &Ctx) -> Verdict {
    with(ctx, 256, |job| {
        let vcq = job.vcq(job.right());
        let nowhere = stadd_of(vcq, 99)?;
        let end = job.at(job.right(), 252);
        job.meet();
        let (stadd, length) = (Code::MrqRmtStadd as i32, Code::MrqRmtLength as i32);
        for flags in [0, REMOTE, LOCAL | REMOTE] {
            for (edata, expected) in [
                (11, stadd),
                (12, length),
                (13, stadd),
                (14, length),
                (15, stadd),
            ] {
                match edata {
                    11 => ok!(utofu_put(
                        job.hdl,
                        vcq,
                        job.stadd,
                        nowhere,
                        8,
                        edata,
                        flags,
                        null_mut()
                    )),
                    12 => ok!(utofu_put(
                        job.hdl,
                        vcq,
                        job.stadd,
                        end,
                        8,
                        edata,
                        flags,
                        null_mut()
                    )),
                    13 => ok!(utofu_get(
                        job.hdl,
                        vcq,
                        job.stadd,
                        nowhere,
                        8,
                        edata,
                        flags,
                        null_mut()
                    )),
                    14 => ok!(utofu_get(
                        job.hdl,
                        vcq,
                        job.stadd,
                        end,
                        8,
                        edata,
                        flags,
                        null_mut()
                    )),
                    _ => ok!(utofu_armw8(
                        job.hdl,
                        vcq,
                        ADD,
                        1,
                        nowhere,
                        edata,
                        flags,
                        null_mut()
                    )),
                }
                let (code, notice) = job.queue.next_mrq()?;
                ensure!(
                    code == expected,
                    "command {edata}: {} instead of {}",
                    code_name(code),
                    code_name(expected)
                );
                ensure_eq!(
                    (notice.edata, notice.vcq_id),
                    (edata, vcq),
                    "edata and peer"
                );
                ensure!(notice.notice_type % 2 == 0, "a remote notice of an error");
            }
        }
        job.meet();
        pause(1);
        job.queue.mrq_is_empty()?;
        job.memory.all(0, 256, 0, "after errors")
    })
}

fn target_written(ctx: &Ctx) -> Verdict {
    const LENGTH: usize = 5000;
    with(ctx, 2 * 8192, |job| {
        for round in 1..=30u8 {
            if job.rank == 0 {
                for byte in &job.memory.bytes()[8192..8192 + LENGTH] {
                    byte.store(round, std::sync::atomic::Ordering::Relaxed);
                }
                ok!(utofu_put(
                    job.hdl,
                    job.vcq(1),
                    job.stadd + 8192,
                    job.at(1, 5),
                    LENGTH,
                    0,
                    REMOTE,
                    null_mut()
                ));
                job.queue.notice(RMT_PUT)?;
            } else {
                job.queue.notice(RMT_PUT)?;
                job.memory
                    .all(5, LENGTH, round, "the data of a put that was notified")?;
                ok!(utofu_put_piggyback8(
                    job.hdl,
                    job.vcq(0),
                    0,
                    job.at(0, 0),
                    8,
                    0,
                    REMOTE,
                    null_mut()
                ));
            }
        }
        Ok(())
    })
}

fn read_all(ctx: &Ctx) -> Verdict {
    const LENGTH: usize = 5000;
    with(ctx, 2 * 8192, |job| {
        for round in 1..=30u8 {
            let mut bytes = job.memory.bytes()[..LENGTH].iter();
            bytes
                .by_ref()
                .for_each(|byte| byte.store(round, std::sync::atomic::Ordering::Relaxed));
            job.meet();
            ok!(utofu_get(
                job.hdl,
                job.vcq(job.right()),
                job.stadd + 8192,
                job.at(job.right(), 0),
                LENGTH,
                0,
                FLAGS,
                null_mut()
            ));
            for _ in 0..2 {
                match job.queue.mrq()?.notice_type {
                    LCL_GET => job.memory.all(
                        8192,
                        LENGTH,
                        round,
                        "the data of a get that was notified",
                    )?,
                    RMT_GET => {
                        for byte in &job.memory.bytes()[..LENGTH] {
                            byte.store(0xff, std::sync::atomic::Ordering::Relaxed);
                        }
                    }
                    other => return Err(format!("a notice of type {other}")),
                }
            }
            job.memory.all(
                8192,
                LENGTH,
                round,
                "the data of a get whose source was overwritten",
            )?;
            job.meet();
        }
        Ok(())
    })
}
