//! Chapter 7: an MRQ that overflows ends its process.

use super::failure::PEER;
use super::kit::*;
use crate::kit::child;

laws! {
    overflow: "failure.mrq-overflow", "chapter 7", 1, [poll_mrq, put] + bare,
        "more notices than MRQ entries end the program with the guide's message on standard error and a failing status";
    overflow_by_others: "failure.mrq-overflow.remote", "chapter 7", 2, [poll_mrq, put_piggyback8] + bare,
        "an MRQ that others overflow ends its owner's program, and not theirs, which get MRQ_PEER from then on";
    overflow_of_session: "failure.mrq-overflow.session", "chapter 7, §4.3.2.4", 1, [poll_mrq, create_vcq, put] + bare,
        "an overflow of a session mode VCQ, at the number of entries of its variable, is reported with its CQ";
}

/// Fails unless a program has ended by itself with this status, a failure.
pub(super) fn failed(status: i32) -> Verdict {
    let failed = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) != 0;
    ensure!(failed, "the program's status is {status:#x}");
    Ok(())
}

/// Fails unless the text on standard error is the message of chapter 7 for TNI 0, CQ 0, and the status is a failure.
fn is_overflow(ended: &(i32, String)) -> Verdict {
    let (status, text) = ended;
    ensure_eq!(
        text.as_str(),
        "utofu: asynchronous error: MRQ Overflow on TNI 0 CQ 0\n",
        "standard error of the program"
    );
    failed(*status)
}

fn overflow(_ctx: &Ctx) -> Verdict {
    // The MRQ holds as many notices as it has entries.
    for (posted, overflows) in [(2048, false), (2100, true), (6000, true)] {
        for (flags, what) in [(LOCAL, "local"), (REMOTE, "remote")] {
            let ended = child(&[("UTOFU_NUM_MRQ_ENTRIES", "2Ki")], || {
                let queue = Queue::with_component(TNI, 0, 0)?;
                queue.fill_mrq(posted, flags)?;
                queue.mrq_is_empty()
            })?;
            if overflows {
                is_overflow(&ended).map_err(|e| format!("{posted} {what} notices: {e}"))?;
            } else {
                ensure_eq!(ended, (0, String::new()), "{posted} {what} notices");
            }
        }
    }
    Ok(())
}

fn overflow_of_session(_: &Ctx) -> Verdict {
    for (posted, overflows) in [(2048, false), (4000, true)] {
        let environment = [
            ("UTOFU_NUM_MRQ_ENTRIES", "32Ki"),
            ("UTOFU_NUM_MRQ_ENTRIES_SESSION", "2Ki"),
        ];
        let (status, text) = child(&environment, || {
            let (plain, memory, here) = Queue::with_memory(256)?;
            let session = Queue::create(TNI, SESSION_MODE)?;
            let there = session.register_as(memory, STAG)?;
            plain.send_all(posted, |_| {
                post::put(plain.hdl, session.id, here, there, 8).code(0, TCQ | REMOTE, 0)
            })?;
            session.notices(0..posted, RMT_PUT)?;
            session.mrq_is_empty()
        })?;
        if !overflows {
            ensure_eq!((status, text), (0, String::new()), "{posted} notices");
            continue;
        }
        // CQ 0 is the free mode one; the number of the session mode CQ is open.
        let cq = text
            .strip_prefix("utofu: asynchronous error: MRQ Overflow on TNI 0 CQ ")
            .and_then(|rest| rest.trim_end().parse::<u16>().ok());
        ensure!(
            cq.is_some_and(|cq| (1..9).contains(&cq)) && text.lines().count() == 1,
            "standard error of the program: {text:?}"
        );
        failed(status)?;
    }
    Ok(())
}

fn overflow_by_others(ctx: &Ctx) -> Verdict {
    if ctx.rank == 0 {
        let ended = child(&[("UTOFU_NUM_MRQ_ENTRIES", "2048")], || {
            let (queue, memory, _) = Queue::with_memory(256)?;
            until("the last of the peer's puts", || memory.get(8) == 1)?;
            for_all(0..6000, |_| queue.mrq())
        })?;
        is_overflow(&ended)?;
    } else {
        let queue = Queue::with_component(TNI, 0, 0)?;
        let to = vcq_of(0, TNI, 0)?;
        let remote = stadd_of(to, STAG)?;
        let send = |offset: u64, flags: u64| -> Result<i32, String> {
            let put = post::put_piggyback8(queue.hdl, to, 1, remote + offset, 8);
            put.ok(0, flags | LOCAL, 0)?;
            Ok(queue.next_mrq()?.0)
        };
        queue.write_when_there(to, remote, 1)?;
        for _ in 0..3000 {
            ensure_eq!(send(0, REMOTE)?, SUCCESS, "a put to an idle peer");
            while queue.poll_tcq().0 == SUCCESS {}
        }
        ensure_eq!(send(8, 0)?, SUCCESS, "the last put");
        // The owner of the MRQ ends.
        until_ok("the end of the owner", || {
            while queue.poll_tcq().0 == SUCCESS {}
            pause(1);
            Ok(send(0, 0)? != SUCCESS)
        })?;
        ensure_eq!(send(0, 0)?, PEER, "a put to the program that has ended");
    }
    ctx.sync();
    Ok(())
}
