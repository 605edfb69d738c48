//! More messages than all buffers hold: between all UEs at once, and to a UE that is stopped meanwhile. `failure` covers the death of a
//! UE: it ends the others.

use super::kit::*;
use crate::kit::last_stops_for_a_while;

laws! {
    flood given((|_| Ok(())) as Before): "full-queue.both-sides", "iRCCE 2.0 §3, §7", 3, [iRCCE_isend, iRCCE_irecv, iRCCE_isend_wait, iRCCE_irecv_wait] + ordering,
        "UEs that flood each other with messages of all lengths, and write to each other's MPBs meanwhile, get all of them in order";
    flood given(last_stops_for_a_while as Before): "full-queue.stopped", "iRCCE 2.0 §3, §7", 3, [iRCCE_isend, iRCCE_irecv, RCCE_put, RCCE_get],
        "so do UEs of which one is stopped meanwhile";
}

const MANY: u64 = 60;

/// Message `nth` of a UE to another one.
fn message(ctx: &Ctx, from: i32, to: i32, nth: u64) -> Vec<u8> {
    let len = LENGTHS[(nth as usize + from as usize) % (LENGTHS.len() - 1)];
    content(ctx, ((from * 64 + to) as u64) << 32 | nth, len)
}

/// The step of each UE before the flood.
type Before = fn(&Ctx) -> Verdict;

fn flood(ctx: &Ctx, before: Before) -> Verdict {
    let (me, n) = place(ctx);
    let others = || (0..n).filter(|other| *other != me);
    let window = c!(iRCCE_malloc(LINE * n as usize));
    crate::ensure!(!window.is_null(), "iRCCE_malloc gave nothing");
    barrier()?;
    before(ctx)?;
    let (mut out, mut into) = (Vec::new(), Vec::new());
    for nth in 0..MANY {
        for other in others() {
            let expected = message(ctx, other, me, nth);
            let room = Bytes::filled(expected.len(), 0xdd);
            into.push((irecv(&room, other)?.0, room, expected));
            let bytes = Bytes::of(&message(ctx, me, other, nth));
            out.push((isend(&bytes, other)?.0, bytes));
            let line = Bytes::filled(LINE, nth as u8);
            let there = window.wrapping_add(LINE * me as usize);
            ok!(RCCE_put(there, line.raw(), LINE as i32, other));
            let back = Bytes::filled(LINE, 0);
            ok!(RCCE_get(back.raw(), there, LINE as i32, other));
            ensure_eq!(back.get(), line.get(), "the line of {other}");
        }
    }
    for (request, bytes) in out {
        request.wait()?;
        bytes.free();
    }
    for (nth, (request, room, expected)) in into.into_iter().enumerate() {
        request.wait()?;
        room.ends_as(&expected, 0, &format!("message {nth}"))?;
    }
    barrier()
}
