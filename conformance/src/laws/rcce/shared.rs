//! Resources of all UEs: memory, locks, and atomic increment registers (§4.5, §9.10).

use std::sync::atomic::{AtomicU32, Ordering};

use super::kit::*;
use crate::law::not_offered;

laws! {
    memory: "shared.memory", "RCCE RCCE_shmalloc", 3, [RCCE_shmalloc, RCCE_shfree, RCCE_shflush, RCCE_DCMflush],
        "other UEs read a UE's writes to shared memory; equal calls give equal places";
    allocation: "shared.allocation", "RCCE RCCE_shmalloc", 1, [RCCE_shmalloc, RCCE_shmalloc_request, RCCE_shfree],
        "64 MiB in total; null for 0 bytes, or without room; freed memory is merged and given again";
    own: "shared.own", "RCCE 1.0.13 RCCE_lib.h", 1, [RCCE_shmalloc_init, RCCE_shmalloc, RCCE_shfree],
        "after RCCE_shmalloc_init allocations lie in the program's memory, as many as there is room for";
    lock: "lock.exclusive", "RCCE RCCE_acquire_lock", 4, [RCCE_acquire_lock, RCCE_release_lock] + ordering,
        "one UE at a time has a lock; the next holder sees its writes";
    locks_apart: "lock.apart", "RCCE RCCE_acquire_lock", 3, [RCCE_acquire_lock, RCCE_release_lock],
        "each UE has a lock; any UE may release any lock";
    lock_fair: "lock.turns", "RCCE RCCE_acquire_lock", 3, [RCCE_acquire_lock, RCCE_release_lock, RCCE_flag_read],
        "every UE that waits for a lock gets it, also from a UE that takes it repeatedly";
    register: "air.register", "iRCCE 2.0 §9.10", 3, [iRCCE_atomic_alloc, iRCCE_atomic_inc, iRCCE_atomic_read, iRCCE_atomic_write],
        "a register is 0 at first, holds what is written, is read unchanged, and an increment gives what was there before";
    registers: "air.96", "iRCCE 2.0 §4.5", 2, [iRCCE_atomic_alloc, iRCCE_atomic_inc],
        "there are 96 registers, two of them of the barrier, which do not touch each other; then iRCCE_ERROR";
    concurrent: "air.concurrent", "iRCCE 2.0 §9.10", 4, [iRCCE_atomic_inc, iRCCE_atomic_read] + ordering,
        "concurrent increments are lost by none: all values come once";
    wraps: "air.wraps", "iRCCE 2.0 §4.5", 1, [iRCCE_atomic_inc, iRCCE_atomic_write],
        "registers have 32 bits";
}

fn memory(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    let words = c!(RCCE_shmalloc(4 * 1024)).cast::<AtomicU32>();
    if words.is_null() {
        return not_offered("the UEs are on several hosts");
    }
    let word = |nth: usize| {
        // SAFETY:
        // - 1024 words; all UEs access them by atomics.
        unsafe { &*words.add(nth) }
    };
    for round in 1..50u32 {
        for nth in (me as usize..1024).step_by(n as usize) {
            word(nth).store(round * 10_000 + nth as u32, Ordering::Relaxed);
        }
        match round % 2 {
            0 => c!(RCCE_shflush()),
            _ => ok!(RCCE_DCMflush()),
        }
        barrier()?;
        for nth in 0..1024 {
            let seen = word(nth).load(Ordering::Relaxed);
            ensure_eq!(seen, round * 10_000 + nth as u32, "{round}: word {nth}");
        }
        barrier()?;
    }
    c!(RCCE_shfree(words.cast()));
    barrier()
}

fn own(_: &Ctx) -> Verdict {
    let memory = Bytes::filled(1 << 16, 0);
    let range = memory.raw().addr()..memory.raw().addr() + (1 << 16);
    c!(RCCE_shmalloc_init(memory.ptr().cast(), 1 << 16));
    for _ in 0..2 {
        let parts = [0; 4].map(|_: i32| c!(RCCE_shmalloc(1 << 14)));
        let inside = |part: &*mut u8| range.contains(&part.addr());
        ensure!(parts.iter().all(inside), "not there: {parts:?}");
        ensure!(c!(RCCE_shmalloc(1)).is_null(), "more than there is");
        for part in parts {
            c!(RCCE_shfree(part));
        }
    }
    Ok(())
}

fn allocation(_: &Ctx) -> Verdict {
    const ALL: usize = 64 << 20;
    let whole = c!(RCCE_shmalloc(ALL));
    ensure!(!whole.is_null(), "64 MiB were not given");
    ensure!(c!(RCCE_shmalloc(1)).is_null(), "more than 64 MiB");
    c!(RCCE_shfree(whole));
    for wrong in [0, ALL + 1, usize::MAX, usize::MAX - 63] {
        ensure!(c!(RCCE_shmalloc(wrong)).is_null(), "{wrong} bytes");
    }
    let parts: Vec<_> = (0..4).map(|_| c!(RCCE_shmalloc(ALL / 4 - 3))).collect();
    ensure!(parts.iter().all(|part| !part.is_null()), "no quarter");
    for nth in [2, 0, 1, 3] {
        c!(RCCE_shfree(parts[nth]));
        c!(RCCE_shfree(parts[nth]));
    }
    c!(RCCE_shfree(null_mut()));
    let mut odd = 5u8;
    c!(RCCE_shfree(&mut odd));
    let mut chunk = 7;
    let found = c!(RCCE_shmalloc_request(3 * ALL, &mut chunk));
    ensure!(!found.is_null() && chunk == 3 * ALL / 4, "half: {chunk}");
    let none = c!(RCCE_shmalloc_request(0, &mut chunk));
    ensure!(none.is_null() && chunk == 0, "nothing: {chunk}");
    let part = c!(RCCE_shmalloc_request(100, null_mut()));
    ensure!(!part.is_null(), "without a place for the size");
    // SAFETY:
    // - the first and the last of the bytes that were given.
    unsafe {
        let last = found.add(3 * ALL / 4 - 1);
        found.write(1);
        last.write(2);
        ensure_eq!((found.read(), last.read()), (1, 2), "what was written");
    }
    Ok(())
}

fn lock(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    // A counter in UE 1's MPB, changed by gets and puts under the lock of UE 2.
    let place = c!(iRCCE_malloc(32));
    let counter = Bytes::filled(4, 0);
    let count = || i32::from_ne_bytes(counter.get().try_into().expect("4 bytes"));
    let each = if ctx.is_quick() { 60 } else { 15 };
    if me == 1 {
        ok!(iRCCE_put(place, counter.raw(), 4, 1));
    }
    barrier()?;
    let mut random = ctx.random(30 + me as u64);
    for _ in 0..each {
        ok!(RCCE_acquire_lock(2));
        ok!(iRCCE_get(counter.raw(), place, 4, 1));
        let next = count() + 1;
        if random.below(20) == 0 {
            std::thread::yield_now();
        }
        let bytes = Bytes::of(&next.to_ne_bytes());
        ok!(iRCCE_put(place, bytes.raw(), 4, 1));
        ok!(RCCE_release_lock(2));
    }
    barrier()?;
    ok!(iRCCE_get(counter.raw(), place, 4, 1));
    ensure_eq!(count(), n * each, "the counter");
    barrier()
}

fn locks_apart(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    ok!(RCCE_acquire_lock(me));
    barrier()?;
    // All locks are taken. Each UE releases the lock of the next UE, then all UEs can take their locks again.
    ok!(RCCE_release_lock((me + 1) % n));
    ok!(RCCE_acquire_lock(me));
    ok!(RCCE_release_lock(me));
    // Releases a free lock.
    ok!(RCCE_release_lock(me));
    ok!(RCCE_acquire_lock(me));
    barrier()?;
    ok!(RCCE_release_lock(me));
    barrier()
}

fn lock_fair(ctx: &Ctx) -> Verdict {
    let flags = [new_flag()?, new_flag()?];
    barrier()?;
    if ctx.rank > 0 {
        for _ in 0..20 {
            ok!(RCCE_acquire_lock(0));
            ok!(RCCE_release_lock(0));
        }
        ok!(RCCE_flag_write(&mut { flags[ctx.rank as usize - 1] }, 1, 0));
        return barrier();
    }
    // UE 0 takes the lock again at once, until the others have had it, too.
    until("the others' turns", || {
        ok!(RCCE_acquire_lock(0));
        ok!(RCCE_release_lock(0));
        Ok((flag_at(flags[0], 0)?, flag_at(flags[1], 0)?) == (1, 1))
    })?;
    barrier()
}

fn register(ctx: &Ctx) -> Verdict {
    let register = new_register()?;
    register_is(register, 0, "a new register")?;
    barrier()?;
    for round in 0..ctx.size {
        if ctx.rank == round {
            for value in [5, 0, -1, i32::MAX, i32::MIN, 100] {
                ok!(iRCCE_atomic_write(register as *const _, value));
                for_all(0..2, |_| register_is(register, value, "data"))?;
            }
            let before = got!(iRCCE_atomic_inc(register as *const _));
            ensure_eq!(before, 100, "before an increment");
            register_is(register, 101, "after an increment")?;
            ok!(iRCCE_atomic_inc(register as *const _, null_mut()));
            ok!(iRCCE_atomic_read(register as *const _, null_mut()));
        }
        barrier()?;
        register_is(register, 102, "what every UE reads")?;
        barrier()?;
    }
    Ok(())
}

fn registers(ctx: &Ctx) -> Verdict {
    let registers = (0..94).map(|_| new_register());
    let registers: Vec<Register> = registers.collect::<Result<_, _>>()?;
    for _ in 0..2 {
        let mut none = registers[0] as *const _;
        gives!(ERROR, iRCCE_atomic_alloc(&mut none));
        ensure!(none.is_null(), "a 97th, with the two of the barrier");
    }
    if ctx.rank == 0 {
        for (nth, register) in registers.iter().copied().enumerate() {
            ok!(iRCCE_atomic_write(register as *const _, nth as i32 * 3));
        }
    }
    barrier()?;
    for (nth, register) in registers.iter().enumerate() {
        register_is(*register, nth as i32 * 3, format!("register {nth}"))?;
    }
    barrier()?;
    ok!(iRCCE_atomic_inc(registers[50] as *const _, null_mut()));
    barrier()?;
    for (nth, register) in registers.iter().enumerate() {
        let expected = nth as i32 * 3 + if nth == 50 { 2 } else { 0 };
        register_is(*register, expected, format!("register {nth} beside"))?;
    }
    Ok(())
}

fn concurrent(ctx: &Ctx) -> Verdict {
    let n = ctx.size as usize;
    let each = if ctx.is_quick() { 300 } else { 60 };
    let register = new_register()?;
    barrier()?;
    let mut seen = Vec::new();
    for _ in 0..each {
        let before = got!(iRCCE_atomic_inc(register as *const _));
        let last = seen.last().copied();
        ensure!(last < Some(before), "{before} after {last:?}");
        seen.push(before);
    }
    barrier()?;
    register_is(register, (each * n) as i32, "the final register")?;
    // Each value occurs once: the number of values and two sums show it.
    let sums = |values: &[i32]| {
        let sum = |power| values.iter().map(|v| i64::from(*v).pow(power)).sum::<i64>();
        [sum(1), sum(2)].map(i64::to_ne_bytes).concat()
    };
    let (data, result) = (Bytes::of(&sums(&seen)), Bytes::filled(16, 0));
    allreduce(&data, &result, 2, (63_636_364, SUM), world())?;
    let all: Vec<i32> = (0..(each * n) as i32).collect();
    result.holds(&sums(&all), 0, "the sums of all values")
}

fn wraps(_: &Ctx) -> Verdict {
    let register = new_register()?;
    for (from, to) in [(i32::MAX, i32::MIN), (-1, 0), (i32::MIN, i32::MIN + 1)] {
        let mut before = -7;
        ok!(iRCCE_atomic_write(register as *const _, from));
        ok!(iRCCE_atomic_inc(register as *const _, &mut before));
        ensure_eq!(before, from, "before an increment");
        register_is(register, to, "after an increment")?;
    }
    for wrong in [0, 8, register + 16, register + 1] {
        gives!(ERROR, iRCCE_atomic_inc(wrong as *const _, null_mut()));
        gives!(ERROR, iRCCE_atomic_read(wrong as *const _, null_mut()));
        gives!(ERROR, iRCCE_atomic_write(wrong as *const _, 1));
    }
    gives!(ERROR, iRCCE_atomic_alloc(null_mut()));
    Ok(())
}
