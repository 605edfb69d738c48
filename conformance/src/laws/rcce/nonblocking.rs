//! Requests: §3, §9.2, §9.3.

use super::kit::*;

laws! {
    ping_ping given(false): "nonblocking.lengths", "iRCCE 2.0 §9.2, §9.3", 2, [iRCCE_isend, iRCCE_irecv, iRCCE_isend_wait, iRCCE_irecv_wait],
        "non-blocking messages of every length arrive both ways at once, and nothing is written behind them (ping-ping, §3.5)";
    ping_ping given(true): "nonblocking.synchronous-lengths", "iRCCE 2.0 §3.4", 2, [iRCCE_issend, iRCCE_isrecv, iRCCE_isend_wait, iRCCE_irecv_wait],
        "so do synchronous ones, also of zero bytes";
    issend_waits: "nonblocking.issend-waits", "iRCCE 2.0 §3.4", 2, [iRCCE_issend, iRCCE_isend_test, iRCCE_isrecv],
        "a synchronous non-blocking send, of zero bytes too, has not ended before its receive has begun";
    states: "nonblocking.states", "iRCCE 2.0 §9.2, §3.4", 3, [iRCCE_isend, iRCCE_isend_test, iRCCE_get_status, iRCCE_isend_wait],
        "the first of several sends is pending and the others, to any UE, are reserved; each becomes pending at the head";
    receive_states: "nonblocking.receive-states", "iRCCE 2.0 §9.3, §3.4", 3, [iRCCE_irecv, iRCCE_irecv_test, iRCCE_get_status],
        "the first of several receives from each source is pending, the others are reserved";
    test: "nonblocking.test", "iRCCE 2.0 §9.2, §9.3", 2, [iRCCE_isend_test, iRCCE_irecv_test],
        "tests do not wait; flag and return value say whether a request has ended, and go on to say so";
    null_flag: "nonblocking.null-flag", "iRCCE 2.0 §9.2, §9.3", 2, [iRCCE_isend_test, iRCCE_irecv_test],
        "the flag of a test can be left out: the return value says the same";
    test_pushes_one: "nonblocking.test-pushes-one", "iRCCE 2.0 §3.4, §7", 3, [iRCCE_isend_test, iRCCE_isend_push],
        "a test moves on the request that is passed and no other; a push moves the head of the queue";
    null_test: "nonblocking.null-test", "iRCCE 2.0 §3.4, §9.2, §9.3", 2, [iRCCE_isend_test, iRCCE_irecv_test],
        "a test of null is about the whole queue";
    null_wait: "nonblocking.null-wait", "iRCCE 2.0 §3.4, §9.2, §9.3", 2, [iRCCE_isend_wait, iRCCE_irecv_wait],
        "a wait for null waits for the whole queue";
    null_request: "nonblocking.null-request", "iRCCE 2.0 §3.4, §9.2, §9.3", 2, [iRCCE_isend, iRCCE_irecv, iRCCE_issend, iRCCE_isrecv],
        "without a request a send or receive waits at once";
    push: "nonblocking.push", "iRCCE 2.0 §9.2, §9.3", 2, [iRCCE_isend_push, iRCCE_irecv_push],
        "a push gives iRCCE_PENDING as long as there are requests, then success";
    wait_pushes: "nonblocking.wait-pushes", "iRCCE 2.0 §9.2, §9.3", 2, [iRCCE_isend_wait, iRCCE_irecv_wait],
        "a wait for a request makes progress on earlier requests and on the other kind";
    buffers: "nonblocking.buffers", "iRCCE 2.0 §3.4", 2, [iRCCE_isend, iRCCE_isend_wait],
        "after the wait a send buffer can be used again without harm";
    nothing: "nonblocking.nothing", "iRCCE 2.0 §9.2", 2, [iRCCE_isend, iRCCE_irecv, iRCCE_iprobe],
        "non-blocking messages of no bytes end at once, and nothing is sent";
}

fn ping_ping(ctx: &Ctx, synchronous: bool) -> Verdict {
    let (me, other) = (ctx.rank as i32, 1 - ctx.rank as i32);
    for len in LENGTHS {
        let of = |id: i32| content(ctx, (len as u64) << 1 | id as u64, len);
        let (bytes, room) = (Bytes::of(&of(me)), Bytes::filled(len + 32, 0x3c));
        let (out, into) = (Send::new(), Recv::new());
        let length = len as isize;
        let (from, to, out_at, into_at) = (bytes.ptr(), room.ptr(), out.0, into.0);
        let states = match synchronous {
            true => [
                c!(iRCCE_issend(from, length, other, out_at)),
                c!(iRCCE_isrecv(to, length, other, into_at)),
            ],
            false => [
                c!(iRCCE_isend(from, length, other, out_at)),
                c!(iRCCE_irecv(to, length, other, into_at)),
            ],
        };
        for_all(states, |state| one_of(state, &[SUCCESS, PENDING], len))?;
        wait_both(&out, &into)?;
        ensure_eq!((out.status(), into.status()), (SUCCESS, SUCCESS), "after");
        room.holds(&of(other), 0x3c, &format!("{len} bytes"))?;
        bytes.free();
        room.free();
    }
    Ok(())
}

fn issend_waits(ctx: &Ctx) -> Verdict {
    for len in [0usize, 1, 100, 8193] {
        let bytes = Bytes::filled(len, 4);
        if ctx.rank == 0 {
            let (request, length) = (Send::new(), len as isize);
            gives!(PENDING, iRCCE_issend(bytes.ptr(), length, 1, request.0));
            for _ in 0..50 {
                request.tests((PENDING, 0), format!("{len} bytes without a receive"))?;
            }
            ctx.sync();
            request.wait()?;
        } else {
            ctx.sync();
            let request = Recv::new();
            c!(iRCCE_isrecv(bytes.ptr(), len as isize, 0, request.0));
            request.wait()?;
        }
    }
    Ok(())
}

fn states(ctx: &Ctx) -> Verdict {
    // To UEs 1, 2, 1, 2. Each message is received after UE 0 has checked the states after the one before.
    let dest = |nth: usize| 1 + nth as i32 % 2;
    let mut requests = Vec::new();
    if ctx.rank == 0 {
        for nth in 0..4 {
            let bytes = Bytes::of(&content(ctx, nth as u64, 300));
            let (request, state) = isend(&bytes, dest(nth))?;
            let expected = if nth == 0 { PENDING } else { RESERVED };
            ensure_eq!(state, expected, "send {nth}");
            requests.push(request);
        }
    }
    for done in 0..4 {
        ctx.sync();
        if ctx.rank as i32 == dest(done) {
            ensure_eq!(receive(300, 0)?, content(ctx, done as u64, 300), "{done}");
        } else if ctx.rank == 0 {
            for (nth, request) in requests.iter().enumerate().skip(done) {
                let expected = if nth == done { PENDING } else { RESERVED };
                request.has_status(expected, format!("the status of send {nth} after {done}"))?;
            }
            requests[done].wait()?;
            requests[done].has_status(SUCCESS, format!("the status of send {done} after all"))?;
        }
        ctx.sync();
    }
    Ok(())
}

fn receive_states(ctx: &Ctx) -> Verdict {
    if ctx.rank != 0 {
        ctx.sync();
        for nth in 0..2 {
            let text = content(ctx, u64::from(ctx.rank) * 2 + nth, 200);
            send(&Bytes::of(&text), 0)?;
        }
        return Ok(());
    }
    let mut requests = Vec::new();
    for (nth, source) in [1, 1, 2, 2].into_iter().enumerate() {
        let room = Bytes::filled(200, 0);
        let (request, state) = irecv(&room, source)?;
        let expected = if nth % 2 == 0 { PENDING } else { RESERVED };
        ensure_eq!(state, expected, "receive {nth}");
        request.has_status(expected, format_args!("receive {nth}"))?;
        ensure_eq!(request.test(), (expected, 0), "receive {nth} again");
        requests.push((request, room, source));
    }
    ctx.sync();
    for (nth, (request, room, source)) in requests.iter().enumerate() {
        request.wait()?;
        let expected = content(ctx, *source as u64 * 2 + nth as u64 % 2, 200);
        room.holds(&expected, 0, "the message")?;
    }
    Ok(())
}

/// Tests a request until it has ended, and once more.
fn ends(what: &str, test: impl Fn() -> (i32, i32)) -> Verdict {
    until(what, || match test() {
        (PENDING, 0) => Ok(false),
        seen => {
            ensure_eq!(seen, (SUCCESS, 1), "{what} at its end");
            Ok(true)
        }
    })?;
    equal!(test(), (SUCCESS, 1), "{what}, once more")
}

fn test(ctx: &Ctx) -> Verdict {
    for len in [8, 5000, 100_000] {
        let bytes = Bytes::of(&content(ctx, 1, len));
        if ctx.rank == 0 {
            let (request, _) = isend(&bytes, 1)?;
            for _ in 0..30 {
                ensure_eq!(request.test(), (PENDING, 0), "a send without a receive");
            }
            ctx.sync();
            ends("the send", || request.test())?;
        } else {
            let room = Bytes::filled(len, 0);
            ctx.sync();
            let (request, _) = irecv(&room, 0)?;
            ends("the receive", || request.test())?;
            room.holds(&bytes.get(), 0, "the message")?;
        }
    }
    Ok(())
}

fn null_flag(ctx: &Ctx) -> Verdict {
    let (other, bytes) = (1 - ctx.rank as i32, Bytes::filled(50, 2));
    let (into, _) = irecv(&Bytes::filled(50, 0), other)?;
    gives!(PENDING, iRCCE_irecv_test(into.0, null_mut()));
    gives!(PENDING, iRCCE_irecv_test(null_mut(), null_mut()));
    ctx.sync();
    let (out, _) = isend(&bytes, other)?;
    until("both", || {
        let sent = c!(iRCCE_isend_test(out.0, null_mut()));
        let received = c!(iRCCE_irecv_test(into.0, null_mut()));
        one_of(sent, &[SUCCESS, PENDING], "the send")?;
        one_of(received, &[SUCCESS, PENDING], "the receive")?;
        Ok((sent, received) == (SUCCESS, SUCCESS))
    })
}

fn test_pushes_one(ctx: &Ctx) -> Verdict {
    let bytes = Bytes::filled(64, 5);
    let mut sends = Vec::new();
    if ctx.rank == 0 {
        sends = vec![isend(&bytes, 1)?, isend(&bytes, 2)?];
        ensure_eq!(sends[1].1, RESERVED, "the second send");
    }
    ctx.sync();
    if ctx.rank == 1 {
        receive(64, 0)?;
    }
    ctx.sync();
    if let [(first, _), (second, _)] = sends.as_slice() {
        for _ in 0..100 {
            second.tests((RESERVED, 0), "the second send, while only it is tested")?;
        }
        first.has_status(PENDING, "the first send, before any push")?;
        until("an empty queue", || Ok(c!(iRCCE_isend_push()) == SUCCESS))?;
        first.has_status(SUCCESS, "the first send after the push")?;
        second.has_status(SUCCESS, "the second send after the push")?;
    } else if ctx.rank == 2 {
        receive(64, 0)?;
    }
    Ok(())
}

fn null_test(ctx: &Ctx) -> Verdict {
    let bytes = Bytes::filled(100, 6);
    let mut flag = -7;
    gives!(SUCCESS, iRCCE_isend_test(null_mut(), &mut flag));
    ensure_eq!(flag, 1, "the test of an empty send queue");
    gives!(SUCCESS, iRCCE_irecv_test(null_mut(), &mut flag));
    ensure_eq!(flag, 1, "the test of empty receive queues");
    if ctx.rank == 0 {
        let requests = [(); 3].map(|()| isend(&bytes, 1));
        gives!(PENDING, iRCCE_isend_test(null_mut(), &mut flag));
        ensure_eq!(flag, 0, "the test of a queue of three");
        ctx.sync();
        until("an empty send queue", || {
            let code = c!(iRCCE_isend_test(null_mut(), &mut flag));
            ensure_eq!(code == SUCCESS, flag == 1, "code and flag");
            Ok(flag == 1)
        })?;
        for_all(requests, |request| {
            request?
                .0
                .has_status(SUCCESS, "a send after its queue is empty")
        })?;
        ctx.sync();
        send(&bytes, 1)
    } else {
        ctx.sync();
        for_all(0..3, |_| receive(100, 0))?;
        let (request, _) = irecv(&Bytes::filled(100, 0), 0)?;
        gives!(PENDING, iRCCE_irecv_test(null_mut(), &mut flag));
        ensure_eq!(flag, 0, "the test of a receive queue of one");
        ctx.sync();
        until("empty receive queues", || {
            let code = c!(iRCCE_irecv_test(null_mut(), &mut flag));
            ensure_eq!(code == SUCCESS, flag == 1, "code and flag");
            Ok(flag == 1)
        })?;
        equal!(request.status(), SUCCESS, "the receive")
    }
}

fn null_wait(ctx: &Ctx) -> Verdict {
    let other = 1 - ctx.rank as i32;
    ok!(iRCCE_isend_wait(null_mut()));
    ok!(iRCCE_irecv_wait(null_mut()));
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    for nth in 0..5 {
        let len = 1 + 4000 * nth;
        sends.push(isend(&Bytes::of(&content(ctx, nth as u64, len)), other)?.0);
        let room = Bytes::filled(len, 0);
        receives.push((irecv(&room, other)?.0, room));
    }
    ok!(iRCCE_isend_wait(null_mut()));
    for send in sends {
        ensure_eq!(send.status(), SUCCESS, "a send after the wait for all");
    }
    ok!(iRCCE_irecv_wait(null_mut()));
    for (nth, (receive, room)) in receives.iter().enumerate() {
        receive.has_status(SUCCESS, "a receive after the wait for all")?;
        room.holds(&content(ctx, nth as u64, room.len), 0, "its message")?;
    }
    Ok(())
}

fn null_request(ctx: &Ctx) -> Verdict {
    for len in LENGTHS {
        let (expected, length) = (content(ctx, 1, len), len as isize);
        if ctx.rank == 0 {
            let bytes = Bytes::of(&expected);
            ok!(iRCCE_isend(bytes.ptr(), length, 1, null_mut()));
            // The send has ended: its buffer may be used.
            bytes.fill(0);
            ok!(iRCCE_issend(bytes.ptr(), length, 1, null_mut()));
            bytes.free();
        } else {
            let room = Bytes::filled(len, 1);
            ok!(iRCCE_irecv(room.ptr(), length, 0, null_mut()));
            room.holds(&expected, 0, "of iRCCE_isend")?;
            ok!(iRCCE_isrecv(room.ptr(), length, 0, null_mut()));
            room.holds(&vec![0; len], 0, "of iRCCE_issend")?;
            room.free();
        }
    }
    Ok(())
}

fn push(ctx: &Ctx) -> Verdict {
    let bytes = Bytes::filled(40, 8);
    gives!(SUCCESS, iRCCE_isend_push());
    gives!(SUCCESS, iRCCE_irecv_push());
    let pushes = |call: &dyn Fn() -> i32| {
        until("the end of the pushes", || {
            let code = call();
            one_of(code, &[SUCCESS, PENDING], "a push")?;
            Ok(code == SUCCESS)
        })
    };
    if ctx.rank == 0 {
        let request = isend(&bytes, 1)?.0;
        isend(&bytes, 1)?;
        gives!(PENDING, iRCCE_isend_push());
        gives!(SUCCESS, iRCCE_irecv_push());
        ctx.sync();
        pushes(&|| c!(iRCCE_isend_push()))?;
        ensure_eq!(request.test(), (SUCCESS, 1), "a send after the push");
        ctx.sync();
        send(&bytes, 1)
    } else {
        ctx.sync();
        receive(40, 0)?;
        receive(40, 0)?;
        let request = irecv(&Bytes::filled(40, 0), 0)?.0;
        gives!(PENDING, iRCCE_irecv_push());
        gives!(SUCCESS, iRCCE_isend_push());
        ctx.sync();
        pushes(&|| c!(iRCCE_irecv_push()))?;
        equal!(request.test(), (SUCCESS, 1), "a receive after the push")
    }
}

fn wait_pushes(ctx: &Ctx) -> Verdict {
    // Each UE waits for the last of its requests only.
    let (me, other) = (ctx.rank as i32, 1 - ctx.rank as i32);
    for len in [20, 9000, 200_000] {
        let of = |id: i32, nth: u64| content(ctx, (len as u64) << 8 | nth << 1 | id as u64, len);
        let mut sends = Vec::new();
        let mut receives = Vec::new();
        for nth in 0..4 {
            sends.push(isend(&Bytes::of(&of(me, nth)), other)?.0);
            let room = Bytes::filled(len, 0);
            receives.push((irecv(&room, other)?.0, room));
        }
        if me == 0 {
            sends[3].wait()?;
            receives[3].0.wait()?;
        } else {
            receives[3].0.wait()?;
            sends[3].wait()?;
        }
        for nth in 0..4 {
            sends[nth].has_status(SUCCESS, format!("send {nth} of 4 after the last one"))?;
            receives[nth].0.wait()?;
            let room = &receives[nth].1;
            room.holds(&of(other, nth as u64), 0, "a message")?;
        }
    }
    Ok(())
}

fn buffers(ctx: &Ctx) -> Verdict {
    for len in [3, 33, 4096, 8193, 40_000, 100_000, 1 << 20] {
        let expected = content(ctx, len as u64, len);
        if ctx.rank == 0 {
            let bytes = Bytes::of(&expected);
            let request = isend(&bytes, 1)?.0;
            request.wait()?;
            bytes.fill(0xff);
            bytes.free();
        } else {
            pause(5);
            let seen = receive(len, 0)?;
            ensure!(seen == expected, "{len} bytes changed late have come");
        }
    }
    Ok(())
}

fn nothing(ctx: &Ctx) -> Verdict {
    let other = 1 - ctx.rank as i32;
    let (out, into) = (Send::new(), Recv::new());
    gives!(SUCCESS, iRCCE_isend(null_mut(), 0, other, out.0));
    gives!(SUCCESS, iRCCE_irecv(null_mut(), 0, other, into.0));
    ensure_eq!([out.test(), into.test()], [(SUCCESS, 1); 2], "their tests");
    wait_both(&out, &into)?;
    ok!(iRCCE_isend(null_mut(), 0, other, null_mut()));
    ok!(iRCCE_irecv(null_mut(), 0, other, null_mut()));
    barrier()?;
    let flag = got!(iRCCE_iprobe(other, null_mut()));
    ensure_eq!(flag, 0, "something was sent");
    barrier()
}
