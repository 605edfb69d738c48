//! Blocking messages: RCCE_send and RCCE_recv, iRCCE_ssend and iRCCE_srecv, probes; §5.2, §7, §9.4.

use super::kit::*;

laws! {
    each_length given(false): "blocking.lengths", "iRCCE 2.0 §9.4", 2, [iRCCE_ssend, iRCCE_srecv],
        "messages of every length arrive both ways, and nothing is written behind them";
    each_length given(true): "blocking.plain-lengths", "RCCE RCCE_send", 2, [RCCE_send, RCCE_recv],
        "RCCE's own messages of every length arrive both ways, and nothing is written behind them";
    mixed: "blocking.mixed", "iRCCE 2.0 §9.4", 2, [RCCE_send, RCCE_recv, iRCCE_ssend, iRCCE_srecv],
        "RCCE_send meets iRCCE_srecv, and iRCCE_ssend RCCE_recv";
    each_waits given((&LENGTHS[..], false)): "blocking.synchronous", "iRCCE 2.0 §9.4, §8", 2, [iRCCE_ssend, iRCCE_srecv, RCCE_wtime],
        "iRCCE_ssend ends after its receive has begun, messages of zero bytes too";
    each_waits given((&LENGTHS[1..], true)): "blocking.plain-synchronous", "RCCE RCCE_send", 2, [RCCE_send, RCCE_recv, RCCE_wtime],
        "RCCE_send ends after its receive has begun";
    nothing: "blocking.nothing", "RCCE RCCE_send", 2, [RCCE_send, RCCE_recv, RCCE_recv_test, iRCCE_iprobe],
        "RCCE_send and RCCE_recv of no bytes succeed at once, and nothing is sent";
    plain_test: "blocking.plain-test", "RCCE RCCE_recv_test", 2, [RCCE_recv_test, RCCE_send],
        "RCCE_recv_test gives 0 and leaves the buffer alone while there is no message, else receives all of it and gives 1";
    test: "blocking.test", "iRCCE 2.0 §9.4", 2, [iRCCE_srecv_test, iRCCE_ssend],
        "iRCCE_srecv_test does the same, from any source and of any length too";
    probe: "blocking.probe", "iRCCE 2.0 §9.4", 3, [iRCCE_probe, iRCCE_srecv, iRCCE_ssend],
        "iRCCE_probe waits for a message, names its sender, and leaves it to be received";
    iprobe: "blocking.iprobe", "iRCCE 2.0 §9.3", 3, [iRCCE_iprobe, iRCCE_ssend],
        "iRCCE_iprobe returns whether a message can be received now, and its source; null pointers are permitted";
    longer: "blocking.longer-than-buffer", "iRCCE 2.0 §6.1", 2, [iRCCE_srecv, RCCE_recv, iRCCE_get_length],
        "a message longer than the buffer writes nothing behind it: ERROR_MESSAGE_LENGTH; the sender ends, the next message is whole";
    shorter: "blocking.shorter-than-buffer", "iRCCE 2.0 §9.8", 2, [iRCCE_srecv, RCCE_recv, iRCCE_get_length, iRCCE_get_source],
        "a message shorter than the buffer is received; the rest of the buffer stays";
    pairs: "blocking.pairs", "iRCCE 2.0 §9.4", 4, [iRCCE_ssend, iRCCE_srecv] + ordering,
        "messages between all pairs, of random lengths, arrive in order and whole";
    ring: "blocking.ring", "RCCE RCCE_send", 5, [RCCE_send, RCCE_recv] + ordering,
        "a ring where all but one send first passes on what it got";
}

fn each_length(ctx: &Ctx, plain: bool) -> Verdict {
    for (len, from) in LENGTHS.into_iter().flat_map(|len| [(len, 0), (len, 1)]) {
        let expected = content(ctx, len as u64 * 2 + from as u64, len);
        if ctx.rank as i32 == from {
            let bytes = Bytes::of(&expected);
            send_by(plain, &bytes, 1 - from)?;
            bytes.ends_as(&expected, 0, "what was sent")?;
        } else {
            let room = Bytes::filled(len + 64, 0xa5);
            receive_by(plain, &room, len, from)?;
            room.ends_as(&expected, 0xa5, &format!("{len} bytes from UE {from}"))?;
        }
    }
    Ok(())
}

/// A blocking send, by RCCE or by iRCCE.
fn send_by(plain: bool, bytes: &Bytes, dest: i32) -> Verdict {
    match plain {
        true => done!(RCCE_send(bytes.ptr(), bytes.len, dest)),
        false => send(bytes, dest),
    }
}

/// A blocking receive, by RCCE or by iRCCE.
fn receive_by(plain: bool, room: &Bytes, len: usize, source: i32) -> Verdict {
    match plain {
        true => done!(RCCE_recv(room.ptr(), len, source)),
        false => done!(iRCCE_srecv(room.ptr(), len as isize, source)),
    }
}

fn mixed(ctx: &Ctx) -> Verdict {
    for len in LENGTHS.into_iter().filter(|len| *len > 0) {
        let expected = content(ctx, len as u64, len);
        let bytes = Bytes::of(&expected);
        for plain in [true, false] {
            if ctx.rank == 0 {
                send_by(plain, &bytes, 1)?;
            } else {
                bytes.fill(0);
                receive_by(!plain, &bytes, len, 0)?;
                bytes.holds(&expected, 0, &format!("of RCCE_send: {plain}"))?;
            }
        }
        bytes.free();
    }
    Ok(())
}

/// The clock is the same everywhere: the send ends after its receive has begun.
fn each_waits(ctx: &Ctx, (lengths, plain): (&[usize], bool)) -> Verdict {
    for len in lengths.iter().copied() {
        let bytes = Bytes::filled(len, 1);
        if ctx.rank == 0 {
            send_by(plain, &bytes, 1)?;
            let over = c!(RCCE_wtime());
            let begun = f64::from_le_bytes(receive(8, 1)?.try_into().expect("8 bytes"));
            ensure!(over >= begun, "{len} bytes: {} s too early", begun - over);
        } else {
            pause(25);
            let begun = c!(RCCE_wtime());
            ok!(iRCCE_srecv(bytes.ptr(), len as isize, 0));
            send(&Bytes::of(&begun.to_le_bytes()), 0)?;
        }
        bytes.free();
    }
    Ok(())
}

fn nothing(ctx: &Ctx) -> Verdict {
    let other = 1 - ctx.rank as i32;
    // Calls with no bytes do not wait for each other: UE 0 sends once, UE 1 receives twice.
    if ctx.rank == 0 {
        ok!(RCCE_send(null_mut(), 0, other));
    } else {
        ok!(RCCE_recv(null_mut(), 0, other));
        ok!(RCCE_recv(null_mut(), 0, other));
    }
    let test = got!(RCCE_recv_test(null_mut(), 0, other));
    ensure_eq!(test, 1, "a test for nothing");
    barrier()?;
    let flag = got!(iRCCE_iprobe(other, null_mut()));
    ensure_eq!(flag, 0, "something was sent");
    barrier()
}

fn plain_test(ctx: &Ctx) -> Verdict {
    each_test(ctx, |room, len| {
        Ok(got!(RCCE_recv_test(room.ptr(), len, 0)))
    })
}

fn test(ctx: &Ctx) -> Verdict {
    let ways = [
        (0, false),
        (0, true),
        (ANY_SOURCE, false),
        (ANY_SOURCE, true),
    ];
    for_all(ways, |(source, any)| {
        each_test(ctx, |room, len| {
            let len = if any { ANY_LENGTH } else { len as isize };
            Ok(got!(iRCCE_srecv_test(room.ptr(), len, source)))
        })
    })
}

fn each_test(ctx: &Ctx, call: impl Fn(&Bytes, usize) -> Result<i32, String>) -> Verdict {
    for len in [1, 33, 5000, 65_537] {
        let expected = content(ctx, len as u64, len);
        if ctx.rank == 0 {
            ctx.sync();
            let bytes = Bytes::of(&expected);
            ok!(RCCE_send(bytes.ptr(), len, 1));
            bytes.free();
        } else {
            let room = Bytes::filled(len + 32, 0xb1);
            for _ in 0..10 {
                ensure_eq!(call(&room, len)?, 0, "a test before anything was sent");
            }
            room.holds(&[], 0xb1, "the buffer of a test that says 0")?;
            ctx.sync();
            until("a message", || match call(&room, len)? {
                0 => {
                    room.holds(&[], 0xb1, "the buffer of a test that says 0")?;
                    Ok(false)
                }
                test => {
                    ensure_eq!(test, 1, "a test that says that there was one");
                    Ok(true)
                }
            })?;
            room.holds(&expected, 0xb1, "the message")?;
            ensure_eq!(call(&room, len)?, 0, "a test after the message");
            room.free();
        }
        barrier()?;
    }
    Ok(())
}

fn probe(ctx: &Ctx) -> Verdict {
    if ctx.rank != 0 {
        pause(20 * u64::from(ctx.rank));
        return send(&Bytes::of(&content(ctx, u64::from(ctx.rank), 100)), 0);
    }
    let mut rank = -7;
    ok!(iRCCE_probe(2, &mut rank));
    ensure_eq!(rank, 2, "the sender of a message from UE 2");
    ok!(iRCCE_probe(2, null_mut()));
    ok!(iRCCE_probe(1, &mut rank));
    ensure_eq!(rank, 1, "the sender of a message from UE 1");
    for _ in 0..2 {
        ok!(iRCCE_probe(ANY_SOURCE, &mut rank));
        ensure!(rank == 1 || rank == 2, "a message from UE {rank}");
        ensure_eq!(receive(100, rank)?, content(ctx, rank as u64, 100), "data");
    }
    Ok(())
}

/// The sender and the flag of iRCCE_iprobe.
fn probed(source: i32) -> Result<(i32, i32), String> {
    let (mut rank, mut flag) = (-7, -7);
    ok!(iRCCE_iprobe(source, &mut rank, &mut flag));
    Ok((rank, flag))
}

fn iprobe(ctx: &Ctx) -> Verdict {
    if ctx.rank != 0 {
        ctx.sync();
        return send(&Bytes::of(&[ctx.rank as u8; 40]), 0);
    }
    for source in [ANY_SOURCE, 0, 1, 2] {
        let flag = probed(source)?.1;
        ensure_eq!(flag, 0, "a message from {source} without a send");
        ok!(iRCCE_iprobe(source, null_mut(), null_mut()));
    }
    ctx.sync();
    for source in [2, 1] {
        arrived(source)?;
        // Probes leave the message in place.
        for _ in 0..3 {
            ensure_eq!(probed(source)?, (source, 1), "sender and flag");
        }
    }
    for left in (1..=2).rev() {
        let (rank, flag) = probed(ANY_SOURCE)?;
        ensure_eq!(flag, 1, "{left} messages");
        ensure_eq!(receive(40, rank)?, vec![rank as u8; 40], "from UE {rank}");
    }
    let flag = got!(iRCCE_iprobe(ANY_SOURCE, null_mut()));
    equal!(flag, 0, "a third message")
}

fn longer(ctx: &Ctx) -> Verdict {
    for (nth, (len, room)) in [
        (33, 32),
        (100, 1),
        (8193, 8192),
        (65_537, 100),
        (1 << 20, 4096),
        (10, 0),
    ]
    .into_iter()
    .enumerate()
    {
        let expected = content(ctx, nth as u64, len);
        if ctx.rank == 0 {
            send(&Bytes::of(&expected), 1)?;
            send(&Bytes::of(&[9; 9]), 1)?;
            continue;
        }
        let bytes = Bytes::filled(len + 64, 0xc3);
        let wrong = RCCE_ERROR_MESSAGE_LENGTH;
        // RCCE_recv of no bytes receives nothing.
        match nth % 2 == 0 || room == 0 {
            true => gives!(wrong, iRCCE_srecv(bytes.ptr(), room as isize, 0)),
            false => gives!(wrong, RCCE_recv(bytes.ptr(), room, 0)),
        }
        let what = format!("{len} bytes in a buffer of {room}");
        bytes.holds(&expected[..room], 0xc3, &what)?;
        ensure_eq!(receive(9, 0)?, [9; 9], "the next message");
    }
    Ok(())
}

fn shorter(ctx: &Ctx) -> Verdict {
    for (nth, (len, room)) in [(31, 32), (0, 10), (8191, 8193), (65_536, 1 << 20)]
        .into_iter()
        .enumerate()
    {
        let expected = content(ctx, nth as u64, len);
        if ctx.rank == 0 {
            send(&Bytes::of(&expected), 1)?;
            continue;
        }
        let bytes = Bytes::filled(room, 0xc4);
        receive_by(nth % 2 == 0, &bytes, room, 0)?;
        let what = format!("{len} bytes in a buffer of {room}");
        bytes.holds(&expected, 0xc4, &what)?;
        ensure_eq!(last_message(), (0, len as i32), "source and length");
    }
    Ok(())
}

fn pairs(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    let mut random = ctx.random(11);
    for round in 0..30u64 {
        // All UEs draw the same numbers: in each round, one pair after the other.
        for a in 0..n {
            for b in (0..n).filter(|b| *b != a) {
                let len = match random.below(4) {
                    0 => random.below(64),
                    1 => random.below(9000),
                    2 => 8180 + random.below(30),
                    _ => random.below(70_000),
                } as usize;
                let nth = round << 8 | (a as u64) << 4 | b as u64;
                if me == a {
                    send_text(&content(ctx, nth, len), b)?;
                } else if me == b {
                    let seen = receive(len, a)?;
                    ensure!(seen == content(ctx, nth, len), "{round}: {len} from {a}");
                }
            }
        }
    }
    Ok(())
}

fn ring(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let len = 1 + ctx.random(12).below(20_000) as usize;
    let mut bytes = Bytes::of(&content(ctx, me as u64, len));
    let mut room = Bytes::filled(len, 0);
    for round in 0..2 * n {
        if me == 0 {
            ok!(RCCE_recv(room.ptr(), len, left));
            ok!(RCCE_send(bytes.ptr(), len, right));
        } else {
            ok!(RCCE_send(bytes.ptr(), len, right));
            ok!(RCCE_recv(room.ptr(), len, left));
        }
        let origin = (me - round - 1).rem_euclid(n) as u64;
        room.holds(&content(ctx, origin, len), 0, &format!("round {round}"))?;
        std::mem::swap(&mut bytes, &mut room);
    }
    Ok(())
}
