//! §3.7: common properties of all start functions, and their notices.

use super::functions::{Call, Function, Room, functions, right_call};
use super::kit::*;
use super::tcq::fill;

laws! {
    all_busy: "toq.full", "§3.7.1, §3.7.3.1", 2,
        [put, put_gap, put_stride, put_stride_gap, put_piggyback, put_piggyback8, get, get_gap, get_stride, get_stride_gap,
         armw4, armw8, cswap4, cswap8, nop, post_toq],
        "with a full queue every start function, and posting what its preparation wrote, is BUSY and does nothing; polling makes room";
    each_flag: "notices.each-flag", "§3.7, §3.7.9.1", 2,
        [put, put_gap, put_stride, put_stride_gap, put_piggyback, put_piggyback8, get, get_gap, get_stride, get_stride_gap,
         armw4, armw8, cswap4, cswap8, nop, post_toq, poll_tcq, poll_mrq],
        "for each function and each set of notice flags: an entry and a notice per descriptor and flag, no others, with any cbdata";
    in_range: "gap.range", "§3.7, §3.7.1.2", 2, [put_gap, put_stride_gap, get_gap, get_stride_gap, prepare_put_gap, prepare_put_stride_gap,
         prepare_get_gap, prepare_get_stride_gap],
        "an MTU up to 1920 and a gap up to 255 are taken; a longer MTU gives INVALID_SIZE, a longer gap INVALID_ARG";
    changed with(256): "mrq.remote.armw", "§3.7", 2, [armw4, armw8, cswap4, cswap8, poll_mrq] + ordering,
        "with the remote notice of an ARMW its word has changed at the target";
    quiet_too with(256): "tcq.unread.quiet", "§3.7.5.1", 1, [query_num_unread_tcq, nop, put_piggyback8, poll_tcq],
        "commands without notices count as unread at most once, and no more when polling has found nothing; then posting is not BUSY";
}

pub(super) const BLOCKS: usize = 5;

/// Calls that succeed. Strided ones have `BLOCKS` blocks, 16 bytes apart; there is room for their descriptors.
pub(super) fn with_calls(
    ctx: &Ctx,
    body: impl FnOnce(&Job<'_>, &Call, &mut [u64; 8 * BLOCKS], *const usize) -> Verdict,
) -> Verdict {
    with(ctx, 1024, |job| {
        let (mut room, mut size) = (Room([0; 2 * DESC]), 0);
        let mut desc = [0u64; 8 * BLOCKS];
        let right = right_call(job, &mut room, &mut size);
        let call = Call {
            blocks: BLOCKS,
            stride: 16,
            desc: desc.as_mut_ptr().cast(),
            ..right
        };
        body(job, &call, &mut desc, right.size.cast_const())
    })
}

/// Prepares the call; returns the bytes of its descriptors, which it writes to this place.
fn prepared(function: Function, call: &Call, size: *const usize) -> Result<usize, String> {
    let what = format!("preparing {}", function.name);
    code_is((function.prepare)(call), SUCCESS, what)?;
    // SAFETY:
    // - the call names this place; no call writes it now.
    Ok(unsafe { size.read() })
}

fn all_busy(ctx: &Ctx) -> Verdict {
    with_calls(ctx, |job, right, desc, size| {
        job.memory.fill(0x3c);
        job.meet();
        let posted = fill(|nth| c!(utofu_nop(job.hdl, TCQ, cb(nth))))?;
        for function in functions() {
            for flags in [0, TCQ | LOCAL | REMOTE, DELAY | TCQ] {
                let call = Call { flags, ..*right };
                let what = format!("{} with flags {flags:#x} and a full queue", function.name);
                code_is((function.start)(&call), BUSY, what)?;
                let size = prepared(function, &call, size)?;
                gives! { UTOFU_ERR_BUSY:
                    utofu_post_toq(job.hdl, desc.as_ptr().cast_mut().cast(), size, cb(1));
                }
            }
        }
        job.queue.completes(1..=posted)?;
        job.queue.tcq_is_empty()?;
        job.meet();
        job.queue.mrq_is_empty()?;
        job.memory.all(0, 1024, 0x3c, "after BUSY")?;
        job.meet();
        for function in functions() {
            let flags = TCQ | LOCAL;
            let call = Call { flags, ..*right };
            ensure_eq!((function.start)(&call), SUCCESS, "{}, room", function.name);
            let (commands, notices) = function.counts(BLOCKS);
            counts(job, flags, commands, notices, right.cbdata)?;
        }
        Ok(())
    })
}

/// Takes the completions and notices of a call; both ranks have made the same call.
fn counts(job: &Job<'_>, flags: u64, commands: usize, notices: usize, cbdata: usize) -> Verdict {
    for _ in 0..if flags & TCQ != 0 { commands } else { 0 } {
        ensure_eq!(job.queue.tcq()?, cbdata, "cbdata");
    }
    let local = if flags & LOCAL != 0 { notices } else { 0 };
    let remote = if flags & REMOTE != 0 { notices } else { 0 };
    let mut seen = [0; 2];
    for _ in 0..local + remote {
        let notice = job.queue.mrq()?;
        ensure_eq!(notice.edata, 255, "edata");
        seen[usize::from(notice.notice_type % 2)] += 1;
    }
    ensure_eq!(seen, [local, remote], "local and remote notices");
    job.meet();
    job.queue.has_nothing()?;
    job.meet();
    Ok(())
}

fn each_flag(ctx: &Ctx) -> Verdict {
    with_calls(ctx, |job, right, desc, size| {
        let mut random = ctx.random(1);
        for function in functions() {
            let (commands, notices) = function.counts(BLOCKS);
            for set in 0..8u64 {
                let bits = [TCQ, LOCAL, REMOTE];
                let chosen = (0..3usize).filter(|bit| set & 1 << bit != 0);
                let flags = chosen.map(|bit| bits[bit]).sum();
                let cbdata = [usize::MAX, 0, 1 << 63, random.next() as usize][set as usize / 2];
                let call = Call {
                    flags,
                    cbdata,
                    ..*right
                };
                let told = |e: String| format!("{} with flags {flags:#x}: {e}", function.name);
                ensure_eq!((function.start)(&call), SUCCESS, "{}", function.name);
                counts(job, flags, commands, notices, cbdata).map_err(told)?;
                let size = prepared(function, &call, size)?;
                post::toq(job.hdl, desc.as_ptr(), size, !cbdata)?;
                counts(job, flags, commands, notices, !cbdata)
                    .map_err(|e| format!("prepared {}", told(e)))?;
            }
        }
        Ok(())
    })
}

fn in_range(ctx: &Ctx) -> Verdict {
    let (size, argument) = (UTOFU_ERR_INVALID_SIZE, UTOFU_ERR_INVALID_ARG);
    let cases = [
        (1, 0, SUCCESS),
        (1, 255, SUCCESS),
        (255, 24, SUCCESS),
        (1919, 1, SUCCESS),
        (1920, 255, SUCCESS),
        (1921, 0, size),
        (1 << 32, 255, size),
        (1, 256, argument),
        (1920, 1 << 32, argument),
        (1920, usize::MAX, argument),
    ];
    with_calls(ctx, |job, right, desc, written| {
        for function in functions().iter().filter(|f| f.takes.contains("packets")) {
            let (commands, _) = function.counts(BLOCKS);
            for (mtu, gap, expected) in cases {
                let call = Call { mtu, gap, ..*right };
                let what = format!("{} with MTU {mtu} and gap {gap}", function.name);
                for form in [function.start, function.prepare] {
                    code_is(form(&call), expected, &what)?;
                }
                if expected == SUCCESS {
                    counts(job, right.flags, commands, commands, right.cbdata)?;
                    // SAFETY:
                    // - `right` names this place; no call writes it now.
                    let size = unsafe { written.read() };
                    post::toq(job.hdl, desc.as_ptr(), size, 9)?;
                    counts(job, right.flags, commands, commands, 9)?;
                }
            }
        }
        Ok(())
    })
}

fn changed(job: &Job<'_>) -> Verdict {
    for round in 0..200u64 {
        if job.rank == 0 {
            let old = round / 4;
            match round % 4 {
                0 => job.armw8(1, 64, ADD, 1).ok(0, REMOTE, 0)?,
                1 => job.armw4(1, 128, ADD, 1).ok(0, REMOTE, 0)?,
                2 => job.cswap8(1, 72, old, old + 1).ok(0, REMOTE, 0)?,
                _ => job
                    .cswap4(1, 136, old as u32, old as u32 + 1)
                    .ok(0, REMOTE, 0)?,
            }
            job.await_word(0, round + 1)?;
        } else {
            job.queue.notice(RMT_ARMW)?;
            let at = [64, 128, 72, 136][round as usize % 4];
            job.memory
                .shows(at, round / 4 + 1, "the word that was notified")?;
            // No MRQ notice: the peer continues when it sees the word, so this notice could come before the peer's.
            job.put8(0, 0, round + 1).ok(0, TCQ, 0)?;
            job.queue.tcq()?;
        }
    }
    Ok(())
}

fn quiet_too(job: &Job<'_>) -> Verdict {
    let count = || job.queue.unread_tcq();
    for quiet in [1usize, 7, 60] {
        for nth in 0..quiet {
            match nth % 2 {
                0 => ok!(utofu_nop(job.hdl, 0, null_mut())),
                _ => job.put8(job.rank, 0, 1).ok(0, 0, 0)?,
            }
        }
        let seen = count()?;
        ensure!(seen <= quiet, "{seen} of {quiet} commands are unread");
        let mut left = usize::MAX;
        until("an end of unread commands", || {
            job.queue.poll_tcq().0 == NOT_FOUND && {
                left = count().unwrap_or(usize::MAX);
                left == 0
            }
        })?;
    }
    // Without unread entries the next command starts at once.
    ok!(utofu_nop(job.hdl, TCQ, cb(5)));
    ensure_eq!(count()?, 1, "commands unread");
    ensure_eq!(job.queue.tcq()?, 5, "cbdata");
    equal!(count()?, 0, "commands unread in the end")
}
