//! Any source and any length; §6, and receives into buffers of known size.

use super::kit::*;

laws! {
    any_length: "wildcard.any-length", "iRCCE 2.0 §6.1", 2, [iRCCE_srecv, iRCCE_irecv, iRCCE_isrecv, iRCCE_get_length, iRCCE_get_size],
        "a receive of any length takes a message of every length, and says how long it was";
    any_source: "wildcard.any-source", "iRCCE 2.0 §6.2", 4, [iRCCE_srecv, iRCCE_get_source] + ordering,
        "a receive from any source takes one message and returns its source; each UE's messages come in order";
    any_source_request: "wildcard.any-source-request", "iRCCE 2.0 §6.2", 4, [iRCCE_irecv, iRCCE_irecv_wait, iRCCE_get_source] + ordering,
        "non-blocking receives from any source find their sources, each message once";
    precedence: "wildcard.precedence", "iRCCE 2.0 §6.2", 2, [iRCCE_irecv, iRCCE_irecv_test],
        "a receive that names its source takes a message before one from any source, even if that was begun first";
    found: "wildcard.found", "iRCCE 2.0 §6.2", 2, [iRCCE_irecv, iRCCE_get_status],
        "a receive from any source takes an available message at once";
    master_worker: "wildcard.master-worker", "iRCCE 2.0 §6.3", 5, [iRCCE_srecv, iRCCE_ssend, iRCCE_get_source, iRCCE_get_length] + ordering,
        "a master takes strings of any length from any worker";
    known_size: "wildcard.known-size", "iRCCE 2.0 §6.1", 2, [iRCCE_srecv_within, iRCCE_irecv_within, iRCCE_isrecv_within],
        "with a known buffer size, a message of any length is never written behind it";
    unknown_size: "wildcard.unknown-size", "iRCCE 2.0 §6.1", 2, [iRCCE_srecv_within, iRCCE_irecv_within],
        "a size of (size_t)-1 means an unknown size: everything is written";
    requests_by_length: "wildcard.longer-requests", "iRCCE 2.0 §9.3", 2, [iRCCE_irecv, iRCCE_irecv_wait, iRCCE_irecv_test, iRCCE_get_status],
        "a request with a message longer than its buffer ends with ERROR_MESSAGE_LENGTH, in all calls, and writes nothing behind it";
    last: "wildcard.last-message", "iRCCE 2.0 §9.8", 3, [iRCCE_get_source, iRCCE_get_length, iRCCE_irecv_wait],
        "source and length of the last message are known after a receive by any call";
}

fn any_length(ctx: &Ctx) -> Verdict {
    for (nth, len) in LENGTHS.into_iter().enumerate() {
        for way in 0..3 {
            let expected = content(ctx, nth as u64 * 3 + way, len);
            if ctx.rank == 0 {
                send(&Bytes::of(&expected), 1)?;
                continue;
            }
            let room = Bytes::filled(len + 32, 0x29);
            let request = Recv::new();
            match way {
                0 => ok!(iRCCE_srecv(room.ptr(), ANY_LENGTH, 0)),
                1 => drop(c!(iRCCE_irecv(room.ptr(), ANY_LENGTH, 0, request.0))),
                _ => drop(c!(iRCCE_isrecv(room.ptr(), ANY_LENGTH, 0, request.0))),
            }
            if way > 0 {
                request.wait()?;
                ensure_eq!(request.size(), len as i32, "the size of the request");
            }
            room.holds(&expected, 0x29, &format!("{len} bytes"))?;
            ensure_eq!(c!(iRCCE_get_length()), len as i32, "iRCCE_get_length");
            let size = c!(iRCCE_get_size(null_mut(), null_mut()));
            ensure_eq!(size, len as i32, "iRCCE_get_size");
            room.free();
        }
    }
    Ok(())
}

/// Each UE but 0 sends `each` numbered messages to UE 0.
fn numbered(ctx: &Ctx, each: u32) -> Verdict {
    let mut random = ctx.random(u64::from(ctx.rank));
    for nth in 0..each {
        let mut text = nth.to_le_bytes().to_vec();
        text.resize(4 + random.below(9000) as usize, ctx.rank as u8);
        send(&Bytes::of(&text), 0)?;
    }
    Ok(())
}

/// Fails unless the message is the next one of its source.
fn next_of(next: &mut [u32], source: i32, room: &Bytes, len: i32) -> Verdict {
    let place = next.get_mut(source as usize);
    let expected = place.ok_or(format!("a message of UE {source}"))?;
    let text = &room.get()[..len as usize];
    let nth = u32::from_le_bytes(text[..4].try_into().expect("4 bytes"));
    ensure_eq!(nth, *expected, "the number of the message of UE {source}");
    let own = text[4..].iter().all(|b| i32::from(*b) == source);
    ensure!(own, "message {nth} of UE {source} is another's");
    *expected += 1;
    Ok(())
}

fn any_source(ctx: &Ctx) -> Verdict {
    let each = 20;
    if ctx.rank != 0 {
        return numbered(ctx, each);
    }
    let mut next = vec![0; ctx.size as usize];
    let room = Bytes::filled(9100, 0);
    for _ in 0..each * (ctx.size - 1) {
        ok!(iRCCE_srecv(room.ptr(), ANY_LENGTH, ANY_SOURCE));
        let (source, length) = last_message();
        next_of(&mut next, source, &room, length)?;
    }
    equal!(&next[1..], &[each; 3], "messages of each")
}

fn any_source_request(ctx: &Ctx) -> Verdict {
    let each = 20;
    if ctx.rank != 0 {
        return numbered(ctx, each);
    }
    let mut receives = Vec::new();
    for _ in 0..each * (ctx.size - 1) {
        let (request, room) = (Recv::new(), Bytes::filled(9100, 0));
        c!(iRCCE_irecv(room.ptr(), ANY_LENGTH, ANY_SOURCE, request.0));
        receives.push((request, room));
        if receives.len() % 7 == 0 {
            c!(iRCCE_irecv_push());
        }
    }
    let mut next = vec![0; ctx.size as usize];
    for (request, room) in &receives {
        request.wait()?;
        next_of(&mut next, request.source(), room, request.size())?;
        room.free();
    }
    equal!(&next[1..], &[each; 3], "messages of each")
}

fn precedence(ctx: &Ctx) -> Verdict {
    if ctx.rank == 1 {
        ctx.sync();
        send(&Bytes::filled(20, 1), 0)?;
        ctx.sync();
        return send(&Bytes::filled(20, 2), 0);
    }
    let (any, named) = (Recv::new(), Recv::new());
    let (any_room, named_room) = (Bytes::filled(20, 0), Bytes::filled(20, 0));
    gives!(RESERVED, iRCCE_irecv(any_room.ptr(), 20, ANY_SOURCE, any.0));
    gives!(PENDING, iRCCE_irecv(named_room.ptr(), 20, 1, named.0));
    ctx.sync();
    named.wait()?;
    named_room.holds(&[1; 20], 0, "the message of the receive with a source")?;
    ensure_eq!(any.test(), (RESERVED, 0), "the other one");
    ctx.sync();
    any.wait()?;
    any_room.holds(&[2; 20], 0, "the message of the other receive")?;
    equal!(any.source(), 1, "its source")
}

fn found(ctx: &Ctx) -> Verdict {
    if ctx.rank == 1 {
        return send(&Bytes::filled(20, 1), 0);
    }
    arrived(ANY_SOURCE)?;
    let (request, room) = (Recv::new(), Bytes::filled(20, 0));
    gives!(SUCCESS, iRCCE_irecv(room.ptr(), 20, ANY_SOURCE, request.0));
    request.has_status(SUCCESS, "the request")?;
    ensure_eq!((request.source(), request.size()), (1, 20), "the request");
    room.holds(&[1; 20], 0, "the message")
}

fn master_worker(ctx: &Ctx) -> Verdict {
    let text = |id: i32| format!("{}", id as u64 * 7_919 + ctx.seed % 1000);
    if ctx.rank != 0 {
        return send(&Bytes::of(text(ctx.rank as i32).as_bytes()), 0);
    }
    let mut seen = Vec::new();
    for _ in 1..ctx.size {
        let room = Bytes::filled(24, 0);
        ok!(iRCCE_srecv(room.ptr(), ANY_LENGTH, ANY_SOURCE));
        let (source, length) = last_message();
        let what = format!("the string of UE {source}");
        room.holds(text(source).as_bytes(), 0, &what)?;
        ensure_eq!(length, text(source).len() as i32, "length");
        seen.push(source);
    }
    seen.sort_unstable();
    equal!(seen, [1, 2, 3, 4], "the workers")
}

fn known_size(ctx: &Ctx) -> Verdict {
    for (nth, (len, room)) in [
        (5, 4),
        (40, 33),
        (9000, 8192),
        (70_000, 10),
        (1 << 20, 65_536),
        (8, 8),
        (3, 100),
        (1, 0),
    ]
    .into_iter()
    .enumerate()
    {
        for way in 0..3u64 {
            let expected = content(ctx, nth as u64 * 3 + way, len);
            if ctx.rank == 0 {
                send(&Bytes::of(&expected), 1)?;
                continue;
            }
            let bytes = Bytes::filled(len + 128, 0x6e);
            let request = Recv::new();
            let right = [SUCCESS, RCCE_ERROR_MESSAGE_LENGTH][usize::from(len > room)];
            let (place, any, into) = (bytes.ptr(), ANY_LENGTH, request.0);
            match way {
                0 => gives!(right, iRCCE_srecv_within(place, any, 0, room)),
                1 => drop(c!(iRCCE_irecv_within(place, any, 0, into, room))),
                _ => drop(c!(iRCCE_isrecv_within(place, any, 0, into, room))),
            }
            if way > 0 {
                gives!(right, iRCCE_irecv_wait(request.0));
            }
            let there = len.min(room);
            bytes.ends_as(&expected[..there], 0x6e, &format!("{len} bytes in {room}"))?;
        }
    }
    if ctx.rank == 0 {
        return send(&Bytes::filled(50, 1), 1);
    }
    // The size limits the write, too, if the program states a length beyond it.
    let bytes = Bytes::filled(100, 0x6f);
    let code = c!(iRCCE_srecv_within(bytes.ptr(), 50, 0, 20));
    ensure_eq!(code, RCCE_ERROR_MESSAGE_LENGTH, "50 bytes in 20");
    bytes.holds(&[1; 20], 0x6f, "a length beyond the buffer")
}

fn unknown_size(ctx: &Ctx) -> Verdict {
    for len in [1, 100, 9000, 100_000] {
        let expected = content(ctx, len as u64, len);
        if ctx.rank == 0 {
            send(&Bytes::of(&expected), 1)?;
            send(&Bytes::of(&expected), 1)?;
            continue;
        }
        let (bytes, request) = (Bytes::filled(len, 0), Recv::new());
        ok!(iRCCE_srecv_within(bytes.ptr(), ANY_LENGTH, 0, usize::MAX));
        bytes.holds(&expected, 0, "by srecv")?;
        bytes.fill(0);
        let (place, any, into) = (bytes.ptr(), ANY_LENGTH, request.0);
        c!(iRCCE_irecv_within(place, any, 0, into, usize::MAX));
        request.wait()?;
        bytes.holds(&expected, 0, "by irecv")?;
    }
    Ok(())
}

fn requests_by_length(ctx: &Ctx) -> Verdict {
    let wrong = RCCE_ERROR_MESSAGE_LENGTH;
    for (len, room) in [(33, 32), (9000, 100), (200_000, 65_536)] {
        let expected = content(ctx, len as u64, len);
        if ctx.rank == 0 {
            send(&Bytes::of(&expected), 1)?;
            send(&Bytes::of(&expected), 1)?;
            continue;
        }
        let requests = [Recv::new(), Recv::new()];
        let rooms = [Bytes::filled(len + 32, 0x71), Bytes::filled(len + 32, 0x71)];
        for (request, bytes) in requests.iter().zip(&rooms) {
            let state = c!(iRCCE_irecv(bytes.ptr(), room as isize, 0, request.0));
            ensure!([PENDING, RESERVED, wrong].contains(&state), "state {state}");
        }
        gives!(wrong, iRCCE_irecv_wait(requests[0].0));
        let second = || Ok(requests[1].test() == (wrong, 1));
        until("the second message", second)?;
        for (request, bytes) in requests.iter().zip(&rooms) {
            bytes.holds(&expected[..room], 0x71, "the message")?;
            ensure_eq!(request.status(), wrong, "the status");
            ensure_eq!(request.size(), len as i32, "the size");
            gives!(wrong, iRCCE_irecv_wait(request.0));
        }
    }
    Ok(())
}

fn last(ctx: &Ctx) -> Verdict {
    if ctx.rank != 0 {
        for turn in 0..4 {
            ctx.sync();
            if (turn + 1) % 2 + 1 == ctx.rank {
                send(&Bytes::filled(10 + turn as usize, 0), 0)?;
            }
        }
        return Ok(());
    }
    for turn in 0..4 {
        ctx.sync();
        let source = (turn + 1) % 2 + 1;
        let (room, request) = (Bytes::filled(64, 0), Recv::new());
        match turn {
            0 => ok!(iRCCE_srecv(room.ptr(), ANY_LENGTH, source)),
            1 => {
                c!(iRCCE_irecv(room.ptr(), ANY_LENGTH, ANY_SOURCE, request.0));
                request.wait()?;
            }
            2 => ok!(RCCE_recv(room.ptr(), 12, source)),
            _ => {
                arrived(source)?;
                let mut test = -7;
                let place = room.ptr();
                ok!(iRCCE_srecv_test(place, ANY_LENGTH, ANY_SOURCE, &mut test));
                ensure_eq!(test, 1, "the test");
            }
        }
        let expected = (source, 10 + turn);
        ensure_eq!(last_message(), expected, "source and length in {turn}");
    }
    Ok(())
}
