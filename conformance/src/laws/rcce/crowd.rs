//! As many UEs as the chip has cores.

use super::kit::*;

laws! {
    collectives: "crowd.collectives", "RCCE RCCE_MAXNP", 48, [RCCE_barrier, RCCE_bcast, RCCE_allreduce, iRCCE_msend, iRCCE_mrecv],
        "48 UEs have barriers, broadcasts, multicasts and reductions";
    messages: "crowd.messages", "RCCE RCCE_MAXNP", 48, [iRCCE_isend, iRCCE_irecv, iRCCE_isend_wait, iRCCE_irecv_wait],
        "48 UEs send to each other, all to all";
    one_takes_all: "crowd.one-takes-all", "iRCCE 2.0 §6.2", 48, [iRCCE_srecv, iRCCE_ssend, iRCCE_get_source],
        "one UE takes the messages of 47 others from any source";
    counters: "crowd.counters", "iRCCE 2.0 §4.5", 48, [iRCCE_atomic_inc, RCCE_acquire_lock, RCCE_flag_write],
        "48 UEs count at one register, take turns at one lock, and write each other's flags";
}

fn collectives(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    ensure_eq!(n, 48, "the number of UEs");
    for round in 0..3 {
        let root = (round * 17 + 5) % n;
        barrier()?;
        let expected = content(ctx, round as u64, 9000);
        let bytes = Bytes::of_root(me == root, &expected);
        ok!(RCCE_bcast(bytes.ptr(), 9000, root, world()));
        bytes.holds(&expected, 0, "the broadcast")?;
        let (data, result) = (Bytes::of(&me.to_ne_bytes()), Bytes::filled(4, 0));
        allreduce(&data, &result, 1, (INT, SUM), world())?;
        result.holds(&(47 * 24i32).to_ne_bytes(), 0, "the sum")?;
        if me == root {
            ok!(iRCCE_msend(bytes.ptr(), 9000));
        } else {
            bytes.fill(0);
            ok!(iRCCE_mrecv(bytes.ptr(), ANY_LENGTH, ANY_SOURCE));
        }
        bytes.holds(&expected, 0, "the multicast")?;
    }
    barrier()
}

fn messages(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    let of = |a: i32, b: i32| {
        let len = 200 + (a * b) as usize % 3000;
        content(ctx, (a as u64) << 8 | b as u64, len)
    };
    let mut receives = Vec::new();
    for shift in 1..n {
        let source = (me + n - shift) % n;
        let room = Bytes::filled(of(source, me).len(), 0);
        receives.push((irecv(&room, source)?.0, room, source));
    }
    for shift in 1..n {
        let dest = (me + shift) % n;
        isend(&Bytes::of(&of(me, dest)), dest)?;
    }
    for (request, room, source) in receives {
        request.wait()?;
        room.holds(&of(source, me), 0, &format!("the message of UE {source}"))?;
    }
    done!(iRCCE_isend_wait(null_mut()))
}

fn one_takes_all(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    if me != 0 {
        return send(&Bytes::filled(me as usize * 3, me as u8), 0);
    }
    let mut seen = Vec::new();
    for _ in 1..n {
        let room = Bytes::filled(200, 0);
        ok!(iRCCE_srecv(room.ptr(), ANY_LENGTH, ANY_SOURCE));
        let source = c!(iRCCE_get_source(null_mut()));
        ensure!(!seen.contains(&source), "UE {source} twice");
        room.holds(&vec![source as u8; source as usize * 3], 0, "its message")?;
        seen.push(source);
    }
    Ok(())
}

fn counters(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    let register = new_register()? as *const _;
    let flag = new_flag()?;
    barrier()?;
    for_all(0..20, |_| done!(iRCCE_atomic_inc(register, null_mut())))?;
    ok!(RCCE_acquire_lock(7));
    let value = flag_at(flag, 7)?;
    ok!(RCCE_flag_write(&mut { flag }, value + 1, 7));
    ok!(RCCE_release_lock(7));
    barrier()?;
    ensure_eq!(got!(iRCCE_atomic_read(register)), n * 20, "the register");
    ensure_eq!(flag_at(flag, 7)?, n, "the flag that was counted in");
    barrier()?;
    ok!(RCCE_flag_write(&mut { flag }, me + 1000, (me + 1) % n));
    ok!(RCCE_wait_until(flag, (me + n - 1) % n + 1000));
    barrier()
}
