//! Details of the manual: work within a call, its effect on other requests, and requests that it leaves alone.

use std::mem::MaybeUninit;

use super::kit::*;

laws! {
    fast_path: "nonblocking.at-once", "iRCCE 2.0 §3.4, §9.3", 2, [iRCCE_irecv, iRCCE_isrecv, iRCCE_get_status],
        "a first receive with an available message ends within the call";
    receive_test: "nonblocking.receive-test-one", "iRCCE 2.0 §3.4, §7", 3, [iRCCE_irecv_test, iRCCE_irecv_push, iRCCE_get_status],
        "a test of a receive does not complete another one with an available message; a push does";
    push_returns: "nonblocking.push-returns", "iRCCE 2.0 §3.4", 2, [iRCCE_isend_push, iRCCE_irecv_push, iRCCE_isend_test, iRCCE_irecv_test],
        "pushes and tests return at once while nothing can move";
    other_kind: "nonblocking.wait-pushes-other-kind", "iRCCE 2.0 §9.2, §9.3", 2, [iRCCE_isend_wait, iRCCE_irecv_wait, iRCCE_ssend],
        "a wait for a send makes progress on receives, and a wait for a receive on reserved sends";
    no_request: "mixing.null-request", "iRCCE 2.0 §7", 2, [iRCCE_irecv, iRCCE_isend],
        "a receive or send without a request, after sends that are not over, moves those on";
    whose: "wait-list.whose", "iRCCE 2.0 §9.7", 4, [iRCCE_wait_any, iRCCE_get_dest, iRCCE_get_source] + ordering,
        "a request that a list returns has the receiver or the sender of its message";
    unset: "tagged.unset", "iRCCE 2.0 §9.9", 2, [iRCCE_flag_write_tagged, iRCCE_wait_tagged, iRCCE_test_tagged],
        "a flag is unset with a tag as it is set with one, and waited for alike";
    size_of_any: "wildcard.size-of-any", "iRCCE 2.0 §6.1, §9.8", 2, [iRCCE_irecv, iRCCE_get_size, iRCCE_get_source],
        "after a receive from any source and of any length, its source and size are known; those of the last message also without a request";
    after_cancel: "nonblocking.after-cancel", "iRCCE 2.0 §4.2", 2, [iRCCE_isend_cancel, iRCCE_irecv_cancel],
        "a request that has begun cannot be cancelled and completes with the other side; later requests get their turns";
}

fn fast_path(ctx: &Ctx) -> Verdict {
    for (nth, len) in [1, 40, 5000, 9000].into_iter().enumerate() {
        for synchronous in [false, true] {
            let expected = content(ctx, nth as u64, len);
            if ctx.rank == 0 {
                send(&Bytes::of(&expected), 1)?;
                continue;
            }
            arrived(0)?;
            let (room, request) = (Bytes::filled(len, 0), Recv::new());
            let (place, length) = (room.ptr(), len as isize);
            match synchronous {
                true => gives!(SUCCESS, iRCCE_isrecv(place, length, 0, request.0)),
                false => gives!(SUCCESS, iRCCE_irecv(place, length, 0, request.0)),
            }
            room.holds(&expected, 0, "the message")?;
            request.has_status(SUCCESS, "the request")?;
            ensure_eq!(request.test(), (SUCCESS, 1), "the request");
        }
    }
    Ok(())
}

fn receive_test(ctx: &Ctx) -> Verdict {
    if ctx.rank != 0 {
        ctx.sync();
        isend(&Bytes::filled(50, ctx.rank as u8), 0)?;
        ctx.sync();
        ok!(iRCCE_isend_wait(null_mut()));
        return Ok(());
    }
    let rooms = [Bytes::filled(50, 0), Bytes::filled(50, 0)];
    let (first, second) = (irecv(&rooms[0], 1)?.0, irecv(&rooms[1], 2)?.0);
    ctx.sync();
    ctx.sync();
    // Both messages have been sent.
    until("the second receive", || Ok(second.test() == (SUCCESS, 1)))?;
    rooms[1].holds(&[2; 50], 0, "the second message")?;
    for _ in 0..100 {
        ensure_eq!(second.test(), (SUCCESS, 1), "the second receive");
        ensure_eq!(first.status(), PENDING, "the first receive, not pushed");
    }
    until("the push", || Ok(c!(iRCCE_irecv_push()) == SUCCESS))?;
    ensure_eq!(first.status(), SUCCESS, "the first receive after a push");
    rooms[0].holds(&[1; 50], 0, "the first message")
}

fn push_returns(ctx: &Ctx) -> Verdict {
    let bytes = Bytes::filled(100_000, 1);
    if ctx.rank == 1 {
        ctx.sync();
        ensure!(receive(100_000, 0)? == bytes.get(), "the message is wrong");
        return send(&Bytes::filled(10, 2), 0);
    }
    let out = isend(&bytes, 1)?.0;
    let into = irecv(&Bytes::filled(10, 0), ANY_SOURCE)?.0;
    let begin = c!(RCCE_wtime());
    for _ in 0..200 {
        ensure_eq!(out.test(), (PENDING, 0), "a send without a receive");
        ensure_eq!(into.test(), (RESERVED, 0), "a receive without a send");
        gives!(PENDING, iRCCE_isend_push());
        gives!(PENDING, iRCCE_irecv_push());
    }
    let passed = c!(RCCE_wtime()) - begin;
    ensure!(passed < 5.0, "800 calls that do not wait took {passed} s");
    ctx.sync();
    wait_both(&out, &into)
}

fn other_kind(ctx: &Ctx) -> Verdict {
    for len in [30, 9000, 100_000] {
        let bytes = Bytes::of(&content(ctx, len as u64, len));
        let room = Bytes::filled(len, 0);
        if ctx.rank == 0 {
            // The other UE receives this only after its message has left.
            let (into, out) = (irecv(&room, 1)?.0, isend(&bytes, 1)?.0);
            wait_both(&out, &into)?;
            room.holds(
                &bytes.get(),
                0,
                "the message that came during the wait for the send",
            )?;
            // The other UE sends only after the second of these messages has come.
            let into = irecv(&room, 1)?.0;
            let sends = [isend(&bytes, 1)?.0, isend(&bytes, 1)?.0];
            // The other UE may be here already and have received the first message.
            let states = [RESERVED, PENDING, SUCCESS];
            one_of(sends[1].status(), &states, "the second send")?;
            into.wait()?;
            sends[1].wait()?;
        } else {
            send(&bytes, 0)?;
            for _ in 0..3 {
                ensure!(receive(len, 0)? == bytes.get(), "a message is wrong");
            }
            send(&bytes, 0)?;
        }
    }
    Ok(())
}

fn no_request(ctx: &Ctx) -> Verdict {
    for len in [30, 9000, 100_000] {
        let bytes = Bytes::of(&content(ctx, len as u64, len));
        let room = Bytes::filled(len, 0);
        if ctx.rank == 0 {
            isend(&bytes, 1)?;
            isend(&bytes, 1)?;
            ok!(iRCCE_irecv(room.ptr(), len as isize, 1, null_mut()));
            room.holds(&bytes.get(), 0, "the answer to both")?;
            isend(&bytes, 1)?;
            isend(&bytes, 1)?;
            ok!(iRCCE_isend(bytes.ptr(), len as isize, 1, null_mut()));
            gives!(SUCCESS, iRCCE_isend_push());
        } else {
            for nth in 0..5 {
                if nth == 2 {
                    send(&bytes, 0)?;
                }
                ensure!(receive(len, 0)? == bytes.get(), "message {nth} is wrong");
            }
        }
    }
    Ok(())
}

fn whose(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    let mut list = MaybeUninit::uninit();
    c!(iRCCE_init_wait_list(list.as_mut_ptr()));
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    for other in (0..n).filter(|other| *other != me) {
        let into = irecv(&Bytes::filled(9000, 0), ANY_SOURCE)?.0;
        let out = isend(&Bytes::filled(100 * (1 + me as usize), 1), other)?.0;
        c!(iRCCE_add_to_wait_list(list.as_mut_ptr(), out.0, into.0));
        sends.push((out.0, other));
        receives.push(into.0);
    }
    let mut sources = Vec::new();
    for _ in 0..2 * (n - 1) {
        let (mut send, mut receive) = (null_mut(), null_mut());
        ok!(iRCCE_wait_any(list.as_mut_ptr(), &mut send, &mut receive));
        if receive.is_null() {
            let dest = c!(iRCCE_get_dest(send));
            let at = sends.iter().position(|known| *known == (send, dest));
            sends.remove(at.ok_or(format!("a send to {dest}, not begun or twice"))?);
        } else {
            ensure!(receives.contains(&receive), "another receive");
            let source = c!(iRCCE_get_source(receive));
            let size = Recv(receive).size();
            ensure_eq!(size, 100 * (1 + source), "the length from UE {source}");
            sources.push(source);
        }
    }
    sources.sort_unstable();
    let others: Vec<_> = (0..n).filter(|other| *other != me).collect();
    ensure_eq!(sources, others, "the senders");
    ensure!(sends.is_empty(), "a send was not given back");
    Ok(())
}

fn unset(ctx: &Ctx) -> Verdict {
    let (me, other) = (ctx.rank as i32, 1 - ctx.rank as i32);
    let flag = got!(iRCCE_flag_alloc_tagged());
    ok!(iRCCE_flag_write(&mut { flag }, 1, me));
    barrier()?;
    for round in 0..20u64 {
        let sent = Bytes::of(&content(ctx, round << 1 | me as u64, 20));
        let value = i32::from(round % 2 == 1);
        let result = test_tag(flag, value, null_mut())?;
        // The other UE may have written already.
        ensure!(result == 0 || result == 1, "a test gave {result}");
        write_tagged(flag, value, other, &sent, 20)?;
        let room = Bytes::filled(28, 0x2e);
        ok!(iRCCE_wait_tagged(flag, value, tag(&room), 20));
        let expected = content(ctx, round << 1 | other as u64, 20);
        room.holds(&expected, 0x2e, &format!("the tag of round {round}"))?;
        barrier()?;
    }
    Ok(())
}

fn size_of_any(ctx: &Ctx) -> Verdict {
    for len in LENGTHS {
        if ctx.rank == 1 {
            ctx.sync();
            send(&Bytes::of(&content(ctx, 1, len)), 0)?;
            ctx.sync();
            continue;
        }
        let (room, request) = (Bytes::filled(len + 8, 0x2f), Recv::new());
        let code = c!(iRCCE_irecv(room.ptr(), ANY_LENGTH, ANY_SOURCE, request.0));
        ensure_eq!(code, RESERVED, "a receive from anyone");
        ensure_eq!(request.source(), ANY_SOURCE, "source before a message");
        ctx.sync();
        until("the message", || match request.test() {
            (SUCCESS, 1) => Ok(true),
            (PENDING | RESERVED, 0) => Ok(false),
            seen => Err(format!("a test gave {seen:?}")),
        })?;
        ensure_eq!((request.source(), request.size()), (1, len as i32), "both");
        ensure_eq!(last_message(), (1, len as i32), "of the last message");
        let size = c!(iRCCE_get_size(null_mut(), null_mut()));
        ensure_eq!(size, len as i32, "size of the last message");
        room.holds(&content(ctx, 1, len), 0x2f, "the message")?;
        ctx.sync();
        room.free();
    }
    Ok(())
}

fn after_cancel(ctx: &Ctx) -> Verdict {
    for len in [30, 9000, 100_000] {
        let of = |nth: u64| content(ctx, nth, len);
        if ctx.rank == 1 {
            ctx.sync();
            for nth in 0..2 {
                ensure!(receive(len, 0)? == of(nth), "message {nth} is wrong");
            }
            for_all(2..4, |nth| send(&Bytes::of(&of(nth)), 0))?;
            continue;
        }
        let [first, second] = [of(0), of(1)].map(|text| isend(&Bytes::of(&text), 1));
        let out = [first?.0, second?.0];
        let rooms = [Bytes::filled(len, 0), Bytes::filled(len, 0)];
        let into = [irecv(&rooms[0], 1)?.0, irecv(&rooms[1], 1)?.0];
        for _ in 0..3 {
            for (code, flag) in [out[0].cancel(), into[0].cancel()] {
                ensure!(flag == 0 && code != SUCCESS, "a head: {code}, {flag}");
            }
        }
        ctx.sync();
        ok!(iRCCE_isend_wait(null_mut()));
        ok!(iRCCE_irecv_wait(null_mut()));
        for (nth, room) in rooms.iter().enumerate() {
            room.holds(&of(2 + nth as u64), 0, "a message")?;
        }
        for nth in 0..2 {
            out[nth].has_status(SUCCESS, "a send")?;
            into[nth].has_status(SUCCESS, "a receive")?;
        }
    }
    Ok(())
}
