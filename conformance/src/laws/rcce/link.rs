//! The link between hosts fails during an operation, or the launcher of a host is killed together with its UEs. RCCE has no error for
//! that: each remaining UE ends with one line on standard error and status 1, as after the death of a UE.
//!
//! The UEs are children of the law's processes, which check their end.

use super::failure::tells_the_loss;
use super::kit::*;
use crate::kit::{Lose, Sides, child};

laws! {
    barriers: "link.barrier", "RCCE.h", 4, [RCCE_barrier, iRCCE_barrier] + bare + needs_kill + needs_cut,
        "the link between UEs goes down while they are in barriers: they end with one line and status 1";
    flag: "link.flag", "RCCE.h", 4, [RCCE_wait_until] + bare + needs_kill + needs_cut,
        "the link between UEs goes down while they wait for a flag: they end with one line and status 1";
    transfers: "link.put", "RCCE.h", 4, [RCCE_put, RCCE_get, RCCE_flag_write] + bare + needs_kill + needs_cut,
        "the link between UEs goes down while they put and get: they end with one line and status 1";
    messages: "link.messages", "RCCE.h", 4, [iRCCE_isend, iRCCE_irecv, iRCCE_isend_wait, iRCCE_irecv_wait] + bare + needs_kill + needs_cut,
        "the link between UEs goes down while messages go round: they end with one line and status 1";
    receive: "link.receive", "RCCE.h", 4, [RCCE_recv] + bare + needs_kill + needs_cut,
        "the link between UEs goes down while each receives from one of the other side: they end with one line and status 1";
    collectives: "link.collectives", "RCCE.h", 4, [RCCE_bcast, RCCE_allreduce] + bare + needs_kill + needs_cut,
        "the link between UEs goes down while they broadcast and reduce: they end with one line and status 1";
    locks: "link.lock", "RCCE.h", 4, [RCCE_acquire_lock, RCCE_release_lock] + bare + needs_kill + needs_cut,
        "the link between UEs goes down while they take a lock of the other side: they end with one line and status 1";
    launcher: "link.launcher", "RCCE.h", 4, [RCCE_barrier, RCCE_put] + bare + needs_kill + kills_launcher,
        "the launcher of some UEs is killed while the others put to them: these end with one line and status 1, and nothing is left behind";
}

/// Runs rounds in the UEs until the loss of the other side ends them.
fn cut_off(ctx: &Ctx, round: impl Fn(&Sides, u64) -> Verdict) -> Verdict {
    without(ctx, Sides::cut, round)
}

fn without(ctx: &Ctx, lose: Lose, round: impl Fn(&Sides, u64) -> Verdict) -> Verdict {
    let sides = Sides::find(ctx)?;
    let (status, text) = child(&[], || {
        begin()?;
        // Each UE has communicated with all others.
        let (area, bytes) = (c!(iRCCE_malloc(32)), Bytes::filled(32, 1));
        for id in 0..ctx.size as i32 {
            ok!(RCCE_put(area, bytes.raw(), 32, id));
        }
        barrier()?;
        lose(&sides, ctx);
        for_all(0.., |nth| round(&sides, nth))
    })?;
    let ended = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 1;
    let right = ended && tells_the_loss(&text);
    ensure!(right, "the UE ended with status {status:#x} ({text:?})");
    Ok(())
}

fn barriers(ctx: &Ctx) -> Verdict {
    cut_off(ctx, |_, round| meet(round % 2 != 0, null_mut()))
}

fn flag(ctx: &Ctx) -> Verdict {
    cut_off(ctx, |_, _| done!(RCCE_wait_until(new_flag()?, 1)))
}

fn transfers(ctx: &Ctx) -> Verdict {
    cut_off(ctx, |_, _| transfer(ctx))
}

fn launcher(ctx: &Ctx) -> Verdict {
    without(ctx, Sides::kill_launcher, |_, _| transfer(ctx))
}

/// Puts, gets and flags to all UEs, in a loop.
fn transfer(ctx: &Ctx) -> Verdict {
    let (area, bytes) = (c!(iRCCE_malloc(256)), Bytes::filled(256, 1));
    let mut flag = new_flag()?;
    loop {
        for id in 0..ctx.size as i32 {
            ok!(RCCE_put(area, bytes.raw(), 256, id));
            ok!(RCCE_get(bytes.raw(), area, 256, id));
            ok!(RCCE_flag_write(&mut flag, 1, id));
        }
    }
}

fn messages(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    cut_off(ctx, |_, round| {
        let len = [10, 5000, 100_000][round as usize % 3];
        let (bytes, room) = (Bytes::filled(len, 1), Bytes::filled(len, 0));
        let into = irecv(&room, (me + n - 1) % n)?.0;
        let out = isend(&bytes, (me + 1) % n)?.0;
        wait_both(&out, &into)?;
        bytes.free();
        room.free();
        Ok(())
    })
}

fn receive(ctx: &Ctx) -> Verdict {
    cut_off(ctx, |sides, _| {
        let room = Bytes::filled(10, 0);
        done!(RCCE_recv(room.ptr(), 10, sides.lost()[0] as i32))
    })
}

fn collectives(ctx: &Ctx) -> Verdict {
    cut_off(ctx, |_, round| {
        let len = [10, 9000, 100_000][round as usize % 3];
        let bytes = Bytes::filled(len, 1);
        let root = (round % u64::from(ctx.size)) as i32;
        ok!(RCCE_bcast(bytes.ptr(), len, root, world()));
        bytes.free();
        let (data, result) = (Bytes::filled(800, 0), Bytes::filled(800, 0));
        allreduce(&data, &result, 100, (DOUBLE, SUM), world())?;
        data.free();
        result.free();
        Ok(())
    })
}

fn locks(ctx: &Ctx) -> Verdict {
    cut_off(ctx, |sides, _| {
        let of = sides.lost()[0] as i32;
        ok!(RCCE_acquire_lock(of));
        done!(RCCE_release_lock(of))
    })
}
