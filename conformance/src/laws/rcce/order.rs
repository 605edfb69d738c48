//! Order: one send queue, a receive queue for each source; §3.4.

use super::kit::*;

laws! {
    same_pair: "order.same-pair", "iRCCE 2.0 §3.4", 2, [iRCCE_isend, iRCCE_irecv, iRCCE_isend_wait, iRCCE_irecv_wait] + ordering,
        "messages of one UE to another are received in the order of their sending, whatever their lengths";
    one_send_queue: "order.one-send-queue", "iRCCE 2.0 §3.4", 4, [iRCCE_isend, iRCCE_isend_wait, iRCCE_srecv] + ordering,
        "sends to any UEs end in the order of their calls: a UE that does not receive delays later sends";
    by_arrival: "order.by-arrival", "iRCCE 2.0 §3.4", 3, [iRCCE_irecv, iRCCE_irecv_wait, iRCCE_ssend],
        "receives complete as messages arrive: a receive without a message does not delay one from another source";
    mixed_kinds: "order.mixed-kinds", "iRCCE 2.0 §3.4, §7", 2,
        [iRCCE_isend, RCCE_send, iRCCE_ssend, iRCCE_issend, iRCCE_irecv, RCCE_recv, iRCCE_srecv, iRCCE_isrecv] + ordering,
        "blocking and non-blocking messages of one pair, in any mixture, keep their order";
    storm: "order.storm", "iRCCE 2.0 §3.4", 4, [iRCCE_isend, iRCCE_irecv, iRCCE_isend_push, iRCCE_irecv_push, iRCCE_isend_wait] + ordering,
        "hundreds of requests between all pairs, in a random order of calls, all end, each with its message";
    spam: "order.spam", "iRCCE 2.0 §2.3", 2, [iRCCE_isend, iRCCE_irecv, iRCCE_isend_wait, iRCCE_irecv_wait],
        "thousands of requests are begun before the first one is waited for";
}

fn length(random: &mut crate::Random) -> usize {
    let len = match random.below(5) {
        0 => random.below(40),
        1 => random.below(4096),
        2 => 8180 + random.below(30),
        3 => random.below(40_000),
        _ => random.below(150_000),
    };
    1 + len as usize
}

fn begin_send(ctx: &Ctx, nth: u64, len: usize, dest: i32) -> Result<(Send, Bytes), String> {
    let bytes = Bytes::of(&content(ctx, nth, len));
    Ok((isend(&bytes, dest)?.0, bytes))
}

fn begin_receive(len: usize, source: i32) -> Result<(Recv, Bytes), String> {
    let room = Bytes::filled(len, 0);
    Ok((irecv(&room, source)?.0, room))
}

fn is_message(ctx: &Ctx, room: &Bytes, nth: u64) -> Verdict {
    let expected = content(ctx, nth, room.len);
    room.holds(&expected, 0, &format!("message {nth:#x}"))
}

fn same_pair(ctx: &Ctx) -> Verdict {
    let mut random = ctx.random(1);
    let lengths: Vec<_> = (0..30).map(|_| length(&mut random)).collect();
    let late = random.below(2) == 0;
    if ctx.rank == 0 {
        let mut sends = Vec::new();
        for (nth, len) in lengths.iter().enumerate() {
            sends.push(begin_send(ctx, nth as u64, *len, 1)?);
        }
        ok!(iRCCE_isend_wait(null_mut()));
        for (_, bytes) in sends {
            bytes.free();
        }
    } else {
        if late {
            pause(10);
        }
        let mut receives = Vec::new();
        for len in &lengths {
            receives.push(begin_receive(*len, 0)?);
        }
        for (nth, (request, room)) in receives.into_iter().enumerate() {
            request.wait()?;
            ensure_eq!(request.size(), room.len as i32, "the size of message {nth}");
            is_message(ctx, &room, nth as u64)?;
            room.free();
        }
    }
    Ok(())
}

fn one_send_queue(ctx: &Ctx) -> Verdict {
    let mut random = ctx.random(2);
    let dests: Vec<_> = (0..24).map(|_| 1 + random.below(3) as i32).collect();
    let lengths: Vec<_> = dests.iter().map(|_| length(&mut random)).collect();
    let slow = 1 + random.below(3) as u32;
    if ctx.rank == 0 {
        let mut sends = Vec::new();
        for (nth, (dest, len)) in dests.iter().zip(&lengths).enumerate() {
            sends.push(begin_send(ctx, nth as u64, *len, *dest)?);
        }
        let mut ended = 0;
        until("the end of all sends", || {
            c!(iRCCE_isend_push());
            let states: Vec<_> = sends.iter().map(|(request, _)| request.status()).collect();
            let now = states.iter().take_while(|state| **state == SUCCESS).count();
            let ordered = !states[now..].contains(&SUCCESS);
            ensure!(ordered, "a send ended before one before it: {states:?}");
            ensure!(now >= ended, "a send that had ended has not");
            if let [first, rest @ ..] = &states[now..] {
                ensure_eq!(*first, PENDING, "the head of the queue");
                ensure!(rest.iter().all(|s| *s == RESERVED), "{rest:?}");
            }
            ended = now;
            Ok(now == states.len())
        })?;
        for (_, bytes) in sends {
            bytes.free();
        }
        return Ok(());
    }
    for (nth, (dest, len)) in dests.iter().zip(&lengths).enumerate() {
        if *dest == ctx.rank as i32 {
            if ctx.rank == slow {
                pause(2);
            }
            let seen = receive(*len, 0)?;
            ensure!(seen == content(ctx, nth as u64, *len), "message {nth}");
        }
    }
    Ok(())
}

fn by_arrival(ctx: &Ctx) -> Verdict {
    if ctx.rank != 0 {
        if ctx.rank == 1 {
            // UE 1 sends after UE 2's messages have been received.
            ctx.sync();
        }
        for nth in 0..2 {
            let text = content(ctx, u64::from(ctx.rank) * 2 + nth, 500);
            send(&Bytes::of(&text), 0)?;
        }
        if ctx.rank == 2 {
            ctx.sync();
        }
        return Ok(());
    }
    let mut receives = Vec::new();
    for source in [1, 1, 2, 2] {
        receives.push(begin_receive(500, source)?);
    }
    for nth in [2, 3] {
        receives[nth].0.wait()?;
    }
    ensure_eq!(receives[0].0.test().1, 0, "a receive before its send");
    ctx.sync();
    for (nth, (request, room)) in receives.iter().enumerate() {
        request.wait()?;
        is_message(ctx, room, 2 + nth as u64)?;
    }
    Ok(())
}

fn mixed_kinds(ctx: &Ctx) -> Verdict {
    let mut random = ctx.random(3);
    let draws: Vec<_> = (0..40)
        .map(|_| (length(&mut random), random.below(4), random.below(4)))
        .collect();
    if ctx.rank == 0 {
        for (nth, (len, kind, _)) in draws.iter().enumerate() {
            let length = *len as isize;
            let bytes = Bytes::of(&content(ctx, nth as u64, *len));
            match kind {
                0 => drop(isend(&bytes, 1)?),
                1 => ok!(RCCE_send(bytes.ptr(), *len, 1)),
                2 => send(&bytes, 1)?,
                _ => drop(c!(iRCCE_issend(bytes.ptr(), length, 1, Send::new().0))),
            }
        }
        ok!(iRCCE_isend_wait(null_mut()));
        return Ok(());
    }
    let mut receives = Vec::new();
    for (len, _, kind) in &draws {
        let (room, length) = (Bytes::filled(*len, 0), *len as isize);
        match kind {
            0 => drop(c!(iRCCE_irecv(room.ptr(), length, 0, Recv::new().0))),
            1 => ok!(RCCE_recv(room.ptr(), *len, 0)),
            2 => ok!(iRCCE_srecv(room.ptr(), length, 0)),
            _ => drop(c!(iRCCE_isrecv(room.ptr(), length, 0, Recv::new().0))),
        }
        receives.push(room);
    }
    ok!(iRCCE_irecv_wait(null_mut()));
    for_all((0..).zip(&receives), |(nth, room)| {
        is_message(ctx, room, nth)
    })
}

fn storm(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    // All UEs draw the same messages and lengths. Each UE draws its order of calls.
    let mut random = ctx.random(4);
    let mut out = Vec::new();
    let mut into = Vec::new();
    for a in 0..n {
        for b in (0..n).filter(|b| *b != a) {
            for nth in 0..25u64 {
                let salt = (a as u64) << 16 | (b as u64) << 8 | nth;
                let what = (salt, 1 + random.below(12_000) as usize);
                if me == a {
                    out.push((b, what));
                } else if me == b {
                    into.push((a, what));
                }
            }
        }
    }
    let mut own = ctx.random(100 + u64::from(ctx.rank));
    // Random merges of the pairs' messages, each pair's in order.
    let mut merged = |of: Vec<(i32, (u64, usize))>| {
        let mut queues: Vec<std::collections::VecDeque<_>> = vec![Default::default(); n as usize];
        for (peer, what) in of {
            queues[peer as usize].push_back(what);
        }
        let mut order = Vec::new();
        while queues.iter().any(|queue| !queue.is_empty()) {
            let peer = own.below(n as u64) as usize;
            order.extend(queues[peer].pop_front().map(|what| (peer as i32, what)));
        }
        order
    };
    let (mut out, mut into) = (merged(out).into_iter(), merged(into).into_iter());
    let mut receives = Vec::new();
    let mut sends = Vec::new();
    loop {
        match own.below(6) {
            0 | 1 => {
                if let Some((dest, (nth, len))) = out.next() {
                    sends.push(begin_send(ctx, nth, len, dest)?.1);
                }
            }
            2 | 3 => {
                if let Some((source, (nth, len))) = into.next() {
                    receives.push((begin_receive(len, source)?, nth));
                }
            }
            4 => drop(c!(iRCCE_isend_push())),
            _ => drop(c!(iRCCE_irecv_push())),
        }
        if out.len() == 0 && into.len() == 0 {
            break;
        }
    }
    ok!(iRCCE_isend_wait(null_mut()));
    ok!(iRCCE_irecv_wait(null_mut()));
    for ((request, room), nth) in receives {
        ensure_eq!(request.status(), SUCCESS, "the status of message {nth:#x}");
        is_message(ctx, &room, nth)?;
        room.free();
    }
    sends.into_iter().for_each(Bytes::free);
    Ok(())
}

fn spam(ctx: &Ctx) -> Verdict {
    let (me, other) = (ctx.rank as i32, 1 - ctx.rank as i32);
    let text = |id: i32, nth: u32| [&nth.to_le_bytes()[..], &[id as u8; 60]].concat();
    let mut receives = Vec::new();
    for nth in 0..3000 {
        let bytes = Bytes::of(&text(me, nth));
        c!(iRCCE_isend(bytes.ptr(), 64, other, Send::new().0));
        receives.push(begin_receive(64, other)?);
    }
    ok!(iRCCE_isend_wait(null_mut()));
    ok!(iRCCE_irecv_wait(null_mut()));
    for (nth, (_, room)) in receives.iter().enumerate() {
        room.holds(&text(other, nth as u32), 0, &format!("message {nth}"))?;
    }
    Ok(())
}
