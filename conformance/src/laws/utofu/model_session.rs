//! §2.2.8.1 session mode: the events that count as an arrival, and errors.

use super::kit::*;
use super::session::{Session, session};

laws! {
    only_puts session(1024): "session.only-puts", "§2.2.8, §2.2.8.1", 2, [get, armw8, cswap4, put_piggyback8, put, poll_mrq],
        "gets, ARMWs, piggybacks and puts without SPS reach a session mode VCQ as any other, and start nothing there";
    every_put session(2048): "session.every-put", "§2.2.8.1", 2,
        [put, put_gap, put_stride, put_stride_gap, prepare_put, prepare_put_stride, post_toq] + ordering,
        "the SPS goes with every function that writes Put descriptors: with each block, delayed, prepared, and without a byte";
    nops session(1024): "session.nop", "§2.2.6, §2.2.8.1", 2, [nop, put, poll_tcq, poll_mrq],
        "a NOP takes a step, and its TCQ entry comes with it and not before, in its turn";
    bad_source session(1024): "session.errors.local", "§2.2.8.1, §2.2.12", 2, [put, poll_tcq, poll_mrq],
        "a command with a wrong source takes its step and then gives the TCQ error; the next command goes on";
    bad_target session(1024): "session.errors.chain", "§2.2.8.1, §2.2.12", 3, [put, poll_mrq],
        "a relayed put that fails gives its owner the MRQ error and starts nothing further on; the next one does";
}

/// A put to rank 1 that starts `steps` commands. `told` of these send a notice to this rank; returns the last one.
fn set_off(
    job: &Job<'_>,
    session: &Session,
    steps: u64,
    told: usize,
) -> Result<Option<utofu_mrq_notice>, String> {
    let (vcq, to) = (session.ids[1], session.at(1, 40)?);
    let flags = LOCAL | sps(steps);
    post::put(job.hdl, vcq, job.stadd, to, 8).ok(0xee, flags, 0)?;
    let mut last = None;
    // The local notice may come before or after these.
    for _ in 0..told + 1 {
        let notice = job.queue.mrq()?;
        if (notice.notice_type, notice.edata) != (LCL_PUT, 0xee) {
            ensure_eq!(notice.notice_type, RMT_PUT, "the type of a notice");
            last = Some(notice);
        }
    }
    Ok(last)
}

fn only_puts(job: &Job<'_>, session: &Session) -> Verdict {
    session.answers(job, 1)?;
    if job.rank == 1 {
        job.memory.set(0, 7);
    }
    job.meet();
    if job.rank == 0 {
        let (vcq, to) = (session.ids[1], session.at(1, 0)?);
        let flags = LOCAL | REMOTE;
        for _ in 0..10 {
            post::get(job.hdl, vcq, job.stadd + 128, to, 8).ok(1, flags, 0)?;
            post::armw8(job.hdl, vcq, ADD, 1, to).ok(2, flags, 0)?;
            post::cswap4(job.hdl, vcq, 0, 0, to + 8).ok(3, flags, 0)?;
            post::put_piggyback8(job.hdl, vcq, 9, to + 16, 8).ok(4, flags, 0)?;
            post::put(job.hdl, vcq, job.stadd + 128, to + 24, 8).ok(5, flags, 0)?;
            for (edata, kind) in (1..).zip([LCL_GET, LCL_ARMW, LCL_ARMW, LCL_PUT, LCL_PUT]) {
                ensure_eq!(job.queue.notice(kind)?.edata, edata, "edata");
            }
        }
        pause(2);
        job.queue.mrq_is_empty()?;
        ensure_eq!(job.memory.get(512), 0, "a put that nothing has started");
        // Unordered with the additions.
        let got = job.memory.get(128);
        ensure!((7..=17).contains(&got), "{got} in what was got");
    } else {
        for _ in 0..10 {
            for (edata, kind) in (1..).zip([RMT_GET, RMT_ARMW, RMT_ARMW, RMT_PUT, RMT_PUT]) {
                ensure_eq!(session.queue.notice(kind)?.edata, edata, "edata there");
            }
        }
    }
    job.meet();
    if job.rank == 0 {
        set_off(job, session, 1, 1)?;
    }
    Ok(())
}

fn every_put(job: &Job<'_>, session: &Session) -> Verdict {
    let flags = sps(2);
    for round in 0..7 {
        // The number of commands that each way starts, in pairs.
        let blocks = [1, 1, 3, 3, 3, 1, 2][round];
        session.answers(job, 2 * blocks + 1)?;
        job.meet();
        if job.rank == 0 {
            let (hdl, vcq) = (job.hdl, session.ids[1]);
            let (from, to) = (job.stadd, session.at(1, 1024)?);
            let mut desc = [0u64; 8 * 3];
            let place = desc.as_mut_ptr();
            let strided = || post::put_stride(hdl, vcq, from, to, 8, 16, 3);
            let put = || post::put(hdl, vcq, from, to, 8);
            match round {
                0 => post::put(hdl, vcq, from, to, 0).ok(0, flags, 0)?,
                1 => post::put_gap(hdl, vcq, from, to, 8, 1920, 9).ok(0, flags, 0)?,
                2 => strided().ok(0, flags, 0)?,
                3 => post::put_stride_gap(hdl, vcq, from, to, 8, 16, 3, 64, 9).ok(0, flags, 0)?,
                4 => post::toq(hdl, place, strided().prepare(0, flags, place)?, 0)?,
                5 => post::toq(hdl, place, put().prepare(0, flags, place)?, 0)?,
                _ => {
                    put().ok(0, flags | DELAY, 0)?;
                    put().ok(0, flags, 0)?;
                }
            }
            job.queue.notices(0..2 * blocks, RMT_PUT)?;
            pause(1);
            job.queue.mrq_is_empty()?;
            // Starts the remaining command, which prepares the next round.
            set_off(job, session, 1, 1)?;
        }
        job.meet();
    }
    Ok(())
}

fn nops(job: &Job<'_>, session: &Session) -> Verdict {
    for round in 0..10usize {
        let first = 10 * round + 1;
        if job.rank == 1 {
            let hdl = session.queue.hdl;
            ok!(utofu_nop(hdl, TCQ | LOCAL | REMOTE, cb(first)));
            session.relay(job.vcq(0), 0, job.at(0, 512), 8, REMOTE)?;
            ok!(utofu_nop(hdl, TCQ, cb(first + 1)));
            ok!(utofu_nop(hdl, TCQ, cb(first + 2)));
            pause(1);
            session.queue.tcq_is_empty()?;
        }
        for (steps, entry) in [(1, Some(0)), (2, Some(1)), (0, None), (1, Some(2))] {
            job.meet();
            if job.rank == 0 {
                set_off(job, session, steps, usize::from(steps == 2))?;
            }
            job.meet();
            if job.rank == 1 {
                if let Some(nth) = entry {
                    ensure_eq!(session.queue.tcq()?, first + nth, "cbdata of a NOP");
                }
                session.queue.has_nothing()?;
            }
        }
        job.queue.mrq_is_empty()?;
    }
    Ok(())
}

fn bad_source(job: &Job<'_>, session: &Session) -> Verdict {
    if job.rank == 1 {
        let hdl = session.queue.hdl;
        let nowhere = stadd_of(session.queue.id, 77)?;
        let end = session.stadd + 1024 + 256 - 4;
        for (nth, from) in [nowhere, session.stadd, end].into_iter().enumerate() {
            let (flags, cbdata) = (if nth == 1 { TCQ | REMOTE } else { 0 }, nth + 1);
            post::put(hdl, job.vcq(0), from, job.at(0, 512), 8).ok(nth as u64, flags, cbdata)?;
        }
        session.relay(job.vcq(0), 0, job.at(0, 512), 8, REMOTE)?;
        session.queue.tcq_is_empty()?;
    }
    job.meet();
    if job.rank == 0 {
        let good = set_off(job, session, 3, 1)?.map(|notice| notice.edata);
        ensure_eq!(good, Some(1), "the good one");
        pause(1);
        job.queue.mrq_is_empty()?;
        set_off(job, session, 1, 1)?;
    } else {
        for (code, cbdata) in [
            (UTOFU_ERR_TCQ_STADD, 1),
            (SUCCESS, 2),
            (UTOFU_ERR_TCQ_LENGTH, 3),
        ] {
            session.queue.tcq_is(code, cbdata, "an entry of the TCQ")?;
        }
    }
    job.meet();
    session.queue.has_nothing()
}

/// 0 begins and 1 relays to 2. The command of 2 goes back to 0.
fn bad_target(job: &Job<'_>, session: &Session) -> Verdict {
    let nowhere = stadd_of(session.ids[2], 99)?;
    if job.rank == 1 {
        for to in [nowhere, session.at(2, 1024 + 256 - 4)?, session.at(2, 0)?] {
            session.relay(session.ids[2], 0, to, 8, sps(1))?;
        }
    }
    if job.rank == 2 {
        for _ in 0..2 {
            session.relay(job.vcq(0), 0, job.at(0, 512), 8, REMOTE)?;
        }
    }
    job.meet();
    if job.rank == 0 {
        set_off(job, session, 2, 0)?;
    }
    if job.rank == 1 {
        for code in [UTOFU_ERR_MRQ_RMT_STADD, UTOFU_ERR_MRQ_RMT_LENGTH] {
            let (seen, notice) = session.queue.next_mrq()?;
            code_is(seen, code, "a failed relay")?;
            let seen = (notice.notice_type, notice.vcq_id);
            ensure_eq!(seen, (LCL_PUT, session.ids[2]), "its notice");
        }
    }
    job.meet();
    if job.rank == 0 {
        pause(2);
        job.queue.mrq_is_empty()?;
        let from = set_off(job, session, 1, 1)?.map(|notice| notice.vcq_id);
        ensure_eq!(from, Some(session.ids[2]), "who has put");
        pause(1);
        job.queue.mrq_is_empty()?;
    }
    job.meet();
    session.queue.mrq_is_empty()
}
