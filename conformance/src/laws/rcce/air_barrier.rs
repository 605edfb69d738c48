//! The barrier over atomic increment registers; §5.3, §9.11.
//!
//! The barrier of all UEs counts at the first two registers. Programs do not get those two. They find them before their own first
//! register, because registers are elements of an array.

use super::kit::*;

laws! {
    counts: "air-barrier.counts", "iRCCE 2.0 §5.3", 4, [iRCCE_barrier, iRCCE_atomic_read] + ordering,
        "every UE that comes to iRCCE_barrier increments one of two registers, in turns; the last one sets it back to 0, and all go";
    first_two: "air-barrier.first-two", "iRCCE 2.0 §5.3", 2, [iRCCE_barrier, iRCCE_atomic_alloc, iRCCE_atomic_write, iRCCE_atomic_inc],
        "two of the 96 registers belong to the barrier; use of the others and the barrier do not disturb each other";
    parts: "air-barrier.parts", "iRCCE 2.0 §9.11", 4, [iRCCE_barrier, RCCE_barrier, RCCE_comm_split],
        "in a part iRCCE_barrier is RCCE_barrier, meets it, and leaves the registers alone";
    holds: "air-barrier.holds", "iRCCE 2.0 §9.11", 5, [iRCCE_barrier, RCCE_put, RCCE_get] + ordering,
        "no UE leaves iRCCE_barrier before all have come, and what was put before it is there after it";
    crowd: "air-barrier.crowd", "iRCCE 2.0 §5.3", 48, [iRCCE_barrier],
        "48 UEs on few cores meet at iRCCE_barrier";
    idle: "air-barrier.idle", "iRCCE 2.0 §5.3", 3, [iRCCE_barrier],
        "a long wait at iRCCE_barrier leaves the core to other processes, also with open requests";
}

/// The first register of the program, and the two registers of the barrier before it.
fn registers() -> Result<(Register, [Register; 2]), String> {
    let (first, second) = (new_register()?, new_register()?);
    let size = second - first;
    Ok((first, [first - 2 * size, first - size]))
}

fn counts(ctx: &Ctx) -> Verdict {
    let (_, counters) = registers()?;
    let mut random = ctx.random(1);
    for round in 0..if ctx.is_quick() { 24 } else { 8 } {
        let (counter, other) = (counters[round % 2], counters[(round + 1) % 2]);
        // The UEs enter one by one, in a random order.
        let shift = random.below(u64::from(ctx.size)) as u32;
        let before = ((ctx.rank + shift) % ctx.size) as i32;
        until(&format!("{before} UEs in barrier {round}"), || {
            Ok(register_value(counter)? == before)
        })?;
        register_is(other, 0, format!("the other register in barrier {round}"))?;
        meet(true, &mut world())?;
        // The next use of this register needs this UE in the next barrier.
        register_is(counter, 0, format!("the register after barrier {round}"))?;
    }
    Ok(())
}

fn first_two(ctx: &Ctx) -> Verdict {
    let (first, counters) = registers()?;
    let mut mine = vec![first];
    for _ in 2..94 {
        mine.push(new_register()?);
    }
    let mut none = first as *const _;
    gives!(ERROR, iRCCE_atomic_alloc(&mut none));
    ensure!(none.is_null(), "a 95th register beside the barrier's");
    let apart = mine.iter().all(|register| !counters.contains(register));
    ensure!(apart, "a program has got a register of the barrier");
    for round in 0..if ctx.is_quick() { 30 } else { 5 } {
        for register in &mine {
            if ctx.rank == 0 {
                ok!(iRCCE_atomic_write(*register as *const _, round * 100));
            }
        }
        meet(true, &mut world())?;
        for register in &mine {
            ok!(iRCCE_atomic_inc(*register as *const _, null_mut()));
        }
        meet(true, &mut world())?;
        for register in &mine {
            let expected = round * 100 + ctx.size as i32;
            register_is(*register, expected, format!("a register in round {round}"))?;
        }
        meet(true, &mut world())?;
    }
    Ok(())
}

fn parts(ctx: &Ctx) -> Verdict {
    let (_, counters) = registers()?;
    let mut comm = split(parity)?;
    let flag = new_flag()?;
    let (me, partner) = (ctx.rank as i32, (ctx.rank as i32 + 2) % 4);
    for round in 1..if ctx.is_quick() { 40 } else { 12 } {
        ok!(RCCE_flag_write(&mut { flag }, round, me));
        let improved = (round as u32 + ctx.rank / 2).is_multiple_of(2);
        meet(improved, &mut comm)?;
        in_round(flag, partner, round)?;
        let seen = (register_value(counters[0])?, register_value(counters[1])?);
        ensure_eq!(seen, (0, 0), "the registers of the barrier of all");
    }
    // No UE may enter a barrier of all while another one still checks the registers.
    ok!(RCCE_barrier(null_mut()));
    meet(true, &mut world())
}

fn holds(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    let area = c!(iRCCE_malloc(1024));
    let mut random = ctx.random(20 + u64::from(ctx.rank));
    for round in 0..40u64 {
        if random.below(8) == 0 {
            pause(random.below(4));
        }
        let of = |id: i32| content(ctx, round << 4 | id as u64, 1000);
        ok!(RCCE_put(area, Bytes::of(&of(me)).raw(), 1000, (me + 1) % n));
        meet(true, &mut world())?;
        let back = Bytes::filled(1000, 0);
        ok!(RCCE_get(back.raw(), area, 1000, (me + 2) % n));
        back.ends_as(&of((me + 1) % n), 0, &format!("round {round}"))?;
        meet(true, &mut world())?;
    }
    Ok(())
}

fn crowd(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    ensure_eq!(n, 48, "the number of UEs");
    let flag = new_flag()?;
    for round in 1..12 {
        ok!(RCCE_flag_write(&mut { flag }, round, me));
        meet(true, &mut world())?;
        for id in [0, (me + 1) % n, (me + 23) % n, n - 1] {
            in_round(flag, id, round)?;
        }
    }
    meet(true, &mut world())
}

/// CPU seconds of this process.
fn used() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

fn idle(ctx: &Ctx) -> Verdict {
    const LATE: u64 = 600;
    for open in [false, true] {
        let (request, room) = (Recv::new(), Bytes::filled(8, 0));
        let source = (ctx.rank + 1) % ctx.size;
        if open {
            c!(iRCCE_irecv(room.ptr(), 8, source as i32, request.0));
        }
        meet(true, &mut world())?;
        let before = used();
        if ctx.rank == 1 {
            pause(LATE);
        }
        meet(true, &mut world())?;
        let used = used() - before;
        ensure!(
            used < 0.5 * LATE as f64 * 1e-3,
            "UE {} used {used} s of a core in a wait of {LATE} ms (a request open: {open})",
            ctx.rank
        );
        if open {
            let dest = (ctx.rank + ctx.size - 1) % ctx.size;
            let bytes = Bytes::filled(8, 9);
            c!(iRCCE_isend(bytes.ptr(), 8, dest as i32, Send::new().0));
            request.wait()?;
            ok!(iRCCE_isend_wait(null_mut()));
        }
    }
    Ok(())
}
