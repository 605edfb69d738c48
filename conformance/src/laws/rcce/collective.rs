//! Broadcasts, multicasts and barriers; §5.3, §6.4, §9.11, §9.12.

use super::kit::*;

laws! {
    broadcast: "collective.bcast", "iRCCE 2.0 §9.11", 4, [RCCE_bcast, iRCCE_bcast, iRCCE_mcast],
        "every UE has the root's bytes, of every length and from every root, and nothing behind them changes";
    bcast_parts: "collective.bcast-parts", "iRCCE 2.0 §5.3, §9.11", 4, [iRCCE_bcast, RCCE_bcast, RCCE_comm_split],
        "broadcasts of parts stay among the members; roots are numbers among them";
    bcast_is_multicast: "collective.bcast-is-multicast", "iRCCE 2.0 §5.3", 4, [iRCCE_bcast, iRCCE_mcast, iRCCE_msend, iRCCE_mrecv, RCCE_bcast] + ordering,
        "for all UEs iRCCE_bcast is iRCCE_msend at the root and iRCCE_mrecv elsewhere, and meets them; for a part it is RCCE_bcast";
    multicast: "collective.multicast", "iRCCE 2.0 §9.12", 4, [iRCCE_msend, iRCCE_mrecv],
        "every other UE receives what the root sends, of every length";
    multicast_wildcards: "collective.multicast-wildcards", "iRCCE 2.0 §6.4", 4, [iRCCE_msend, iRCCE_mrecv, iRCCE_get_source, iRCCE_get_length] + ordering,
        "receivers need to know neither root nor length, and get both";
    multicast_within: "collective.multicast-within", "iRCCE 2.0 §6.1", 3, [iRCCE_mrecv_within, iRCCE_mrecv],
        "into a buffer of known size nothing is written behind it, and the others get all";
    multicast_order: "collective.multicast-order", "iRCCE 2.0 §9.12", 3, [iRCCE_msend, iRCCE_mrecv, iRCCE_ssend, iRCCE_srecv] + ordering,
        "multicasts of one root arrive in their order, however many receivers lag behind; they are no messages for iRCCE_srecv";
    barrier_holds: "collective.barrier", "RCCE RCCE_barrier", 5, [RCCE_barrier, iRCCE_barrier] + ordering,
        "no UE leaves a barrier before all have come";
    barrier_puts: "collective.barrier-after-put", "RCCE RCCE_barrier", 3, [RCCE_barrier, RCCE_put, RCCE_get] + ordering,
        "data put before a barrier is there after it";
    barrier_world: "collective.barrier-world", "iRCCE 2.0 §9.11", 3, [iRCCE_barrier, RCCE_barrier],
        "null, RCCE_COMM_WORLD and a copy of it are the same barrier, in either function";
    alone: "collective.alone", "iRCCE 2.0 §9.11", 1, [RCCE_bcast, iRCCE_bcast, iRCCE_mcast, iRCCE_msend, iRCCE_barrier, RCCE_barrier],
        "a job of one UE has collectives, too";
}

fn broadcast(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    for (nth, len) in LENGTHS.into_iter().enumerate() {
        for way in 0..3u64 {
            let root = (nth as i32 + way as i32) % n;
            let expected = content(ctx, nth as u64 * 3 + way, len);
            let bytes = Bytes::filled(len + 32, 0x48);
            if me == root {
                bytes.begin_with(&expected);
            }
            match way {
                0 => ok!(RCCE_bcast(bytes.ptr(), len, root, world())),
                1 => ok!(iRCCE_bcast(bytes.ptr(), len, root, world())),
                _ => ok!(iRCCE_mcast(bytes.ptr(), len, root)),
            }
            let what = format!("{len} bytes of UE {root}, way {way}");
            bytes.ends_as(&expected, 0x48, &what)?;
        }
    }
    Ok(())
}

fn bcast_parts(ctx: &Ctx) -> Verdict {
    let comm = split(halves)?;
    ensure_eq!((comm.size, comm.my_rank), (2, ctx.rank as i32 % 2), "part");
    for len in LENGTHS {
        for root in 0..2 {
            let from = ctx.rank as i32 / 2 * 2 + root;
            let expected = content(ctx, (len as u64) << 4 | from as u64, len);
            let mine = ctx.rank as i32 == from;
            for improved in [false, true] {
                let bytes = Bytes::of_root(mine, &expected);
                bcast(improved, &bytes, root, comm)?;
                bytes.ends_as(&expected, 0, &format!("{len} bytes of UE {from}"))?;
            }
        }
    }
    Ok(())
}

fn bcast_is_multicast(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    let part = split(parity)?;
    let mut random = ctx.random(8);
    for nth in 0..24 {
        let (root, len) = (nth % n, random.below(20_000) as usize);
        let expected = content(ctx, nth as u64, len);
        let bytes = Bytes::of_root(me == root, &expected);
        // The root's call changes more slowly than the others' calls.
        let way = if me == root { nth / n } else { nth + me };
        match way % 3 {
            0 => ok!(iRCCE_bcast(bytes.ptr(), len, root, world())),
            1 => ok!(iRCCE_mcast(bytes.ptr(), len, root)),
            _ if me == root => ok!(iRCCE_msend(bytes.ptr(), len as isize)),
            _ => ok!(iRCCE_mrecv(bytes.ptr(), ANY_LENGTH, ANY_SOURCE)),
        }
        bytes.holds(&expected, 0, &format!("broadcast {nth} of UE {root}"))?;
        // A receive from any source must not meet the next root.
        barrier()?;
        let expected = content(ctx, 100 + (nth + me % 2) as u64, len);
        let root = nth % part.size;
        let bytes = Bytes::of_root(part.my_rank == root, &expected);
        bcast((nth + part.my_rank) % 2 == 0, &bytes, root, part)?;
        bytes.holds(&expected, 0, &format!("broadcast {nth} of a part"))?;
    }
    Ok(())
}

fn multicast(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    for (nth, len) in LENGTHS.into_iter().enumerate() {
        let root = nth as i32 % n;
        let expected = content(ctx, nth as u64, len);
        if me == root {
            let bytes = Bytes::of(&expected);
            ok!(iRCCE_msend(bytes.ptr(), len as isize));
            // The call has returned: the buffer may be used.
            bytes.fill(0xff);
            bytes.free();
        } else {
            let room = Bytes::filled(len + 32, 0x49);
            ok!(iRCCE_mrecv(room.ptr(), len as isize, root));
            room.ends_as(&expected, 0x49, &format!("{len} bytes of UE {root}"))?;
        }
    }
    Ok(())
}

fn multicast_wildcards(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    let mut random = ctx.random(6);
    for nth in 0..20 {
        let (root, len) = (random.below(n as u64) as i32, random.below(20_000) as usize);
        let expected = content(ctx, nth, len);
        if me == root {
            let bytes = Bytes::of(&expected);
            ok!(iRCCE_msend(bytes.ptr(), len as isize));
        } else {
            let room = Bytes::filled(20_000, 0x50);
            ok!(iRCCE_mrecv(room.ptr(), ANY_LENGTH, ANY_SOURCE));
            let expected_message = (root, len as i32);
            ensure_eq!(last_message(), expected_message, "of multicast {nth}");
            room.ends_as(&expected, 0x50, "the multicast")?;
        }
        // The barrier separates the roots.
        barrier()?;
    }
    Ok(())
}

fn multicast_within(ctx: &Ctx) -> Verdict {
    for (nth, len) in [100, 9000, 300_000].into_iter().enumerate() {
        let expected = content(ctx, nth as u64, len);
        let bytes = Bytes::filled(len + 32, 0x51);
        match ctx.rank {
            0 => ok!(iRCCE_msend(Bytes::of(&expected).ptr(), len as isize)),
            1 => {
                let code = c!(iRCCE_mrecv_within(bytes.ptr(), ANY_LENGTH, 0, 60));
                ensure_eq!(code, RCCE_ERROR_MESSAGE_LENGTH, "60 of {len} bytes");
                bytes.holds(&expected[..60], 0x51, "60 bytes of it")?;
            }
            _ => {
                ok!(iRCCE_mrecv_within(bytes.ptr(), ANY_LENGTH, 0, usize::MAX));
                bytes.holds(&expected, 0x51, "all of it")?;
            }
        }
    }
    Ok(())
}

fn multicast_order(ctx: &Ctx) -> Verdict {
    let mut random = ctx.random(7);
    let lengths: Vec<_> = (0..60).map(|_| random.below(9000) as usize).collect();
    let slow = 1 + random.below(2) as u32;
    if ctx.rank == 0 {
        for dest in 1..3 {
            let bytes = Bytes::filled(10, dest as u8);
            c!(iRCCE_isend(bytes.ptr(), 10, dest, Send::new().0));
        }
        for (nth, len) in lengths.iter().enumerate() {
            let bytes = Bytes::of(&content(ctx, nth as u64, *len));
            ok!(iRCCE_msend(bytes.ptr(), *len as isize));
            bytes.free();
        }
        ok!(iRCCE_isend_wait(null_mut()));
        return Ok(());
    }
    for (nth, len) in lengths.iter().enumerate() {
        if ctx.rank == slow && nth % 16 == 0 {
            pause(2);
        }
        let room = Bytes::filled(*len, 0);
        ok!(iRCCE_mrecv(room.ptr(), *len as isize, 0));
        let expected = content(ctx, nth as u64, *len);
        room.ends_as(&expected, 0, &format!("multicast {nth}"))?;
    }
    equal!(receive(10, 0)?, [ctx.rank as u8; 10], "the message between")
}

fn barrier_holds(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    let flag = new_flag()?;
    barrier()?;
    let mut random = ctx.random(20 + u64::from(ctx.rank));
    for round in 1..60 {
        if random.below(10) == 0 {
            pause(random.below(3));
        }
        ok!(RCCE_flag_write(&mut { flag }, round, me));
        match round % 2 {
            0 => barrier()?,
            _ => meet(true, &mut world())?,
        }
        for_all(0..n, |id| in_round(flag, id, round))?;
    }
    barrier()
}

fn barrier_puts(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    let area = c!(iRCCE_malloc(2048));
    for round in 0..20u64 {
        let of = |id: i32| content(ctx, round << 4 | id as u64, 2000);
        ok!(RCCE_put(area, Bytes::of(&of(me)).raw(), 2000, (me + 1) % n));
        barrier()?;
        let back = Bytes::filled(2000, 0);
        ok!(RCCE_get(back.raw(), area, 2000, me));
        back.holds(&of((me + n - 1) % n), 0, &format!("round {round}"))?;
        barrier()?;
    }
    Ok(())
}

fn barrier_world(ctx: &Ctx) -> Verdict {
    let flag = new_flag()?;
    for round in 1..24 {
        ok!(RCCE_flag_write(&mut { flag }, round, ctx.rank as i32));
        let mut copy = world();
        let comm: *mut RCCE_COMM = match (round as u32 + ctx.rank) % 3 {
            0 => null_mut(),
            1 => &mut copy,
            // The address of the program's variable.
            _ => offered(library().rcce_variables.RCCE_COMM_WORLD, "RCCE_COMM_WORLD").as_ptr(),
        };
        meet(round % 2 != 0, comm)?;
        for_all(0..ctx.size as i32, |id| in_round(flag, id, round))?;
    }
    barrier()
}

fn alone(ctx: &Ctx) -> Verdict {
    for len in LENGTHS {
        let expected = content(ctx, 1, len);
        let bytes = Bytes::of(&expected);
        ok!(RCCE_bcast(bytes.ptr(), len, 0, world()));
        ok!(iRCCE_bcast(bytes.ptr(), len, 0, world()));
        ok!(iRCCE_mcast(bytes.ptr(), len, 0));
        ok!(iRCCE_msend(bytes.ptr(), len as isize));
        bytes.holds(&expected, 0, "the root's bytes")?;
    }
    for _ in 0..100 {
        ok!(iRCCE_barrier(&mut world()));
        barrier()?;
    }
    Ok(())
}
