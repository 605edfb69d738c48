//! Cancelled requests, and the properties of requests; §4.2, §9.6, §9.8.

use super::kit::*;

laws! {
    cancel_send: "nonblocking.cancel-send", "iRCCE 2.0 §4.2, §9.6", 2, [iRCCE_isend_cancel],
        "a reserved send can be cancelled and is never sent; the head of the queue cannot; nor what has ended";
    cancel_receive: "nonblocking.cancel-receive", "iRCCE 2.0 §4.2, §9.6", 2, [iRCCE_irecv_cancel],
        "a reserved receive can be cancelled and takes no message; the head of a queue cannot; nor what has ended";
    cancel_any: "nonblocking.cancel-any-source", "iRCCE 2.0 §4.2, §6.2", 2, [iRCCE_irecv_cancel],
        "a receive from any source that has found none can be cancelled";
    queries: "nonblocking.queries", "iRCCE 2.0 §9.8", 2,
        [iRCCE_get_dest, iRCCE_get_source, iRCCE_get_size, iRCCE_get_status, iRCCE_get_length],
        "dest, source, size and status of requests, and of the last message; -1 on misuse";
    no_push: "nonblocking.status-does-not-push", "iRCCE 2.0 §9.8", 2, [iRCCE_get_status, iRCCE_isend_test],
        "iRCCE_get_status tells what is known and moves nothing on";
    itself: "nonblocking.itself", "iRCCE 2.0 §3", 1, [iRCCE_isend, iRCCE_irecv, iRCCE_isend_wait],
        "a UE can send to itself";
    members: "nonblocking.members", "iRCCE 2.0 §9.8", 2, [iRCCE_isend, iRCCE_irecv],
        "programs read dest and source of the structures";
}

/// Of five requests the second and the fourth can be cancelled, once, and the head cannot.
fn cancels(kind: &str, cancel: impl Fn(usize) -> (i32, i32)) -> Verdict {
    for nth in [1, 3] {
        ensure_eq!(cancel(nth), (SUCCESS, 1), "cancelling {kind} {nth}");
        ensure_eq!(cancel(nth), (NOT_ENQUEUED, 0), "cancel {kind} {nth} again");
    }
    let head = cancel(0);
    ensure!(head.1 == 0 && head.0 != SUCCESS, "the head: {head:?}");
    Ok(())
}

fn cancel_send(ctx: &Ctx) -> Verdict {
    if ctx.rank == 1 {
        ctx.sync();
        for nth in [0, 2, 4] {
            ensure_eq!(receive(30, 0)?, content(ctx, nth, 30), "message {nth}");
        }
        barrier()?;
        let flag = got!(iRCCE_iprobe(0, null_mut()));
        return equal!(flag, 0, "a cancelled message has come");
    }
    let mut requests = Vec::new();
    for nth in 0..5 {
        requests.push(isend(&Bytes::of(&content(ctx, nth, 30)), 1)?.0);
    }
    let cancel = |nth: usize| requests[nth].cancel();
    cancels("send", cancel)?;
    gives!(NOT_ENQUEUED, iRCCE_isend_cancel(null_mut(), null_mut()));
    ctx.sync();
    requests[4].wait()?;
    ensure_eq!(cancel(4), (NOT_ENQUEUED, 0), "cancelling what has ended");
    ensure_eq!(requests[0].test(), (SUCCESS, 1), "the head, still queued");
    barrier()
}

fn cancel_receive(ctx: &Ctx) -> Verdict {
    if ctx.rank == 0 {
        ctx.sync();
        for_all(0..3, |nth| send(&Bytes::of(&content(ctx, nth, 30)), 1))?;
        return Ok(());
    }
    let mut requests = Vec::new();
    for _ in 0..5 {
        let room = Bytes::filled(30, 0xdd);
        requests.push((irecv(&room, 0)?.0, room));
    }
    let cancel = |nth: usize| requests[nth].0.cancel();
    cancels("receive", cancel)?;
    gives!(NOT_ENQUEUED, iRCCE_irecv_cancel(null_mut(), null_mut()));
    ctx.sync();
    for (nth, left) in [0, 2, 4].into_iter().enumerate() {
        requests[left].0.wait()?;
        let room = &requests[left].1;
        room.holds(&content(ctx, nth as u64, 30), 0, "a message")?;
    }
    for room in [&requests[1].1, &requests[3].1] {
        room.holds(&[], 0xdd, "the buffer of a cancelled receive")?;
    }
    equal!(cancel(4), (NOT_ENQUEUED, 0), "cancelling what has ended")
}

fn cancel_any(ctx: &Ctx) -> Verdict {
    if ctx.rank == 1 {
        ctx.sync();
        return send(&Bytes::filled(10, 3), 0);
    }
    let room = Bytes::filled(10, 0xdd);
    let (request, state) = irecv(&room, ANY_SOURCE)?;
    ensure_eq!(state, RESERVED, "a receive without a source");
    ensure_eq!(request.cancel(), (SUCCESS, 1), "it could be cancelled");
    gives!(SUCCESS, iRCCE_irecv_push());
    ctx.sync();
    ensure_eq!(receive(10, ANY_SOURCE)?, [3; 10], "the message");
    room.holds(&[], 0xdd, "the buffer of the cancelled receive")
}

fn queries(ctx: &Ctx) -> Verdict {
    let other = 1 - ctx.rank as i32;
    ensure_eq!(c!(iRCCE_get_dest(null_mut())), -1, "dest of null");
    ensure_eq!(c!(iRCCE_get_status(null_mut(), null_mut())), -1, "status");
    ensure_eq!(c!(iRCCE_get_source(null_mut())), -1, "source before any");
    ensure_eq!(c!(iRCCE_get_length()), -1, "length before any message");
    let (room, bytes) = (Bytes::filled(77, 0), Bytes::filled(77, 1));
    let into = irecv(&room, other)?.0;
    let out = isend(&bytes, other)?.0;
    ensure_eq!(c!(iRCCE_get_dest(out.0)), other, "dest");
    ensure_eq!(into.source(), other, "source");
    let sizes = (c!(iRCCE_get_size(out.0, null_mut())), into.size());
    ensure_eq!(sizes, (77, 77), "sizes");
    ensure_eq!(c!(iRCCE_get_size(out.0, into.0)), -1, "size of two");
    ensure_eq!(c!(iRCCE_get_status(out.0, into.0)), -1, "status of two");
    wait_both(&out, &into)?;
    ensure_eq!((out.status(), into.status()), (SUCCESS, SUCCESS), "status");
    let ends = (c!(iRCCE_get_dest(out.0)), into.source());
    ensure_eq!(ends, (other, other), "dest and source, later");
    ensure_eq!(c!(iRCCE_get_source(null_mut())), other, "the last source");
    ensure_eq!(c!(iRCCE_get_size(null_mut(), null_mut())), 77, "last size");
    equal!(c!(iRCCE_get_length()), 77, "length of the last message")
}

fn no_push(ctx: &Ctx) -> Verdict {
    if ctx.rank == 1 {
        ctx.sync();
        receive(60, 0)?;
        ctx.sync();
        return Ok(());
    }
    let request = isend(&Bytes::filled(60, 1), 1)?.0;
    ctx.sync();
    ctx.sync();
    for _ in 0..100 {
        ensure_eq!(request.status(), PENDING, "the status while nothing pushes");
    }
    until("the end", || Ok(request.test() == (SUCCESS, 1)))?;
    equal!(request.status(), SUCCESS, "the status after a test")
}

fn itself(ctx: &Ctx) -> Verdict {
    for len in LENGTHS {
        let expected = content(ctx, len as u64, len);
        let (bytes, room) = (Bytes::of(&expected), Bytes::filled(len, 0));
        let out = isend(&bytes, 0)?.0;
        let into = irecv(&room, 0)?.0;
        wait_both(&out, &into)?;
        room.holds(&expected, 0, &format!("{len} bytes"))?;
        if len > 0 {
            let into = irecv(&room, ANY_SOURCE)?.0;
            send(&bytes, 0)?;
            into.wait()?;
            ensure_eq!(into.source(), 0, "the source");
        }
        bytes.free();
        room.free();
    }
    Ok(())
}

fn members(ctx: &Ctx) -> Verdict {
    let other = 1 - ctx.rank as i32;
    let into = irecv(&Bytes::filled(5, 0), ANY_SOURCE)?.0;
    // SAFETY:
    // - requests live as long as the process, and programs may read these members.
    unsafe {
        ensure_eq!((*into.0).source, -1, "the member source before the message");
        ensure!((*into.0).finished == 0, "finished without a message");
        ctx.sync();
        let bytes = Bytes::filled(5, 1);
        let out = isend(&bytes, other)?.0;
        ensure_eq!((*out.0).dest, other, "the member dest");
        ensure_eq!((*out.0).privbuf, bytes.ptr(), "the member privbuf");
        wait_both(&out, &into)?;
        ensure_eq!((*out.0).dest, other, "the member dest at the end");
        ensure_eq!((*into.0).source, other, "the member source at the end");
        ensure_eq!((*out.0).privbuf, bytes.ptr(), "privbuf at the end");
        let finished = (*out.0).finished != 0 && (*into.0).finished != 0;
        ensure!(finished, "the member finished at the end");
    }
    Ok(())
}
