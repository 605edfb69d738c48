//! Atomicity with several concurrent initiators.

use super::kit::*;
use super::matrix::Call;
use super::value::*;
use crate::law::Random;

laws! {
    sums in_modes(256): "atomic.sum", "fi_atomic(3) §4", 2, [fetch_atomic, atomic] + ordering,
        "fetching additions of several processes are each done once, and no two see the same value";
    sums in_modes(256): "atomic.sum.crowd", "fi_atomic(3) §4", 4, [fetch_atomic, atomic] + ordering,
        "so are atomics of four processes at once";
    families in_modes(256): "atomic.families", "fi_atomic(3) §4", 3, [atomic, fetch_atomic, compare_atomic] + ordering,
        "the families of calls are atomic against each other: counts by addition, fetching addition and compare and swap add up";
    commuting in_modes(256): "atomic.commuting", "fi_atomic(3) §4.2", 3, [atomic] + ordering,
        "whatever the order, each operation of several processes that commutes leaves what all operands together give";
    swaps in_modes(256): "atomic.swap", "fi_atomic(3) §4.4", 3, [fetch_atomic] + ordering,
        "each value that several processes swap in is swapped out once, or is there in the end";
    masks in_modes(256): "atomic.masks", "fi_atomic(3) §4.2, §4.5", 4, [compare_atomic] + ordering,
        "masked swaps of several processes in one element leave each other's bits alone";
    narrow in_modes(256): "atomic.narrow", "fi_atomic(3) §4.1", 4, [fetch_atomic] + ordering,
        "additions to 8-bit and 16-bit elements side by side do not disturb each other";
    wide in_modes(512): "atomic.wide", "fi_atomic(3) §4.1", 3, [atomic, fetch_atomic] + ordering,
        "elements of 16 and 32 bytes are changed as a whole: sums of several processes are right, and no half is seen alone";
    arrays in_modes(512): "atomic.array", "fi_atomic(3) §4, §8", 3, [atomic] + ordering,
        "each element of an array is operated on atomically, against arrays that overlap it";
    borders in_modes(8192): "atomic.border", "fi_atomic(3) §4", 2, [atomic] + ordering,
        "a complex number at any address is changed as a whole, also against an element that is its second half";
    instances in_modes(256): "atomic.instances", "fi_atomic(3) §4.8", 2, [atomic, domain] + ordering,
        "one actor is the domain of this name, not an instance of it: two instances of each process work on one word";
}

fn sums(job: &Job<'_>) -> Verdict {
    let each = many(job.ctx, 50);
    let fetched = (0..each).map(|_| job.fetch(0, 8, SUM, 1));
    let seen: Vec<u64> = fetched.collect::<Result<_, _>>()?;
    ensure!(seen.is_sorted_by(|a, b| a < b), "the counts do not rise");
    job.update(0, 16, SUM, seen.iter().sum())?;
    job.meet();
    let total = each * u64::from(job.size);
    job.shows_at(0, 8, total, "the sum")?;
    let all = total * (total - 1) / 2;
    job.shows_at(0, 16, all, "the sum of what was seen")
}

fn families(job: &Job<'_>) -> Verdict {
    let each = many(job.ctx, 20);
    for nth in 0..each {
        match (job.rank as u64 + nth) % 3 {
            0 => job.update(1, 24, SUM, 1)?,
            1 => drop(job.fetch(1, 24, SUM, 1)?),
            _ => {
                let mut known = job.fetch(1, 24, READ, 0)?;
                loop {
                    match job.compare((1, 24), CSWAP, known + 1, known)? {
                        seen if seen == known => break,
                        seen => known = seen,
                    }
                }
            }
        }
    }
    job.meet();
    let found = job.fetch(1, 24, READ, 0)?;
    equal!(found, each * u64::from(job.size), "the count")
}

/// The operands of a rank. Factors are odd: the product modulo 2^64 keeps its information.
fn operands(ctx: &Ctx, rank: u32, op: c_int, count: u64) -> Vec<u64> {
    let mut random = ctx.random(u64::from(rank) << 8 | op as u64);
    let one = |random: &mut Random| match OPS[op as usize] {
        "PROD" => random.next() | 1,
        "LXOR" => random.below(2),
        // With more bits, all bits would be set and the result would prove nothing.
        "BOR" => 1 << random.below(64),
        "BAND" => !(1 << random.below(64)),
        _ => random.next(),
    };
    (0..count).map(|_| one(&mut random)).collect()
}

fn commuting(job: &Job<'_>) -> Verdict {
    let each = many(job.ctx, 8);
    let ty = Type::of(UINT64);
    for (nth, op) in [MIN, 1, SUM, 3, BOR, 7, 8, BXOR].into_iter().enumerate() {
        let (at, start) = (8 * nth, 0x1234_5678_9abc_def1u64);
        if job.rank == 0 {
            job.memory.set(at, start);
        }
        job.meet();
        for operand in operands(job.ctx, job.rank, op, each) {
            job.update(0, at, op, operand)?;
        }
        job.meet();
        let all = (0..job.size).flat_map(|rank| operands(job.ctx, rank, op, each));
        let expected = all.fold(Value::Bits(start.into()), |value, operand| {
            ty.apply(op, value, Value::Bits(operand.into()), value)
        });
        let seen = job.fetch(0, at, READ, 0)?;
        ensure_eq!(Value::Bits(seen.into()), expected, "{}", OPS[op as usize]);
        job.meet();
    }
    Ok(())
}

fn swaps(job: &Job<'_>) -> Verdict {
    let each = many(job.ctx, 25);
    let mut out = 0u64;
    for nth in 1..=each {
        let value = u64::from(job.rank) << 32 | nth;
        out = out.wrapping_add(value.wrapping_mul(value));
        let before = job.fetch(2, 40, WRITE, value)?;
        out = out.wrapping_sub(before.wrapping_mul(before));
    }
    // Squares prevent two errors from cancelling each other out.
    job.update(0, 8, SUM, out)?;
    job.meet();
    if job.rank == 0 {
        let last = job.fetch(2, 40, READ, 0)?;
        job.memory.shows(
            8,
            last.wrapping_mul(last),
            "the values that were not swapped out",
        )?;
    }
    Ok(())
}

fn masks(job: &Job<'_>) -> Verdict {
    let each = many(job.ctx, 25);
    let (shift, mut mine) = (16 * job.rank, 0);
    let mask = 0xffffu64 << shift;
    for nth in 1..=each {
        let before = job.compare((0, 32), MSWAP, nth << shift | !mask, mask)?;
        ensure_eq!((before & mask) >> shift, mine, "the own bits before");
        mine = nth & 0xffff;
    }
    job.meet();
    let expected = (0..4).fold(0, |all, rank| all | (each & 0xffff) << (16 * rank));
    equal!(job.fetch(0, 32, READ, 0)?, expected, "all bits")
}

fn narrow(job: &Job<'_>) -> Verdict {
    let each = many(job.ctx, 20);
    for (datatype, at, size) in [(INT8 + 1, 64, 1), (INT8 + 3, 72, 2)] {
        for before in 0..each {
            let (operand, mut result) = ([1u8, 0], [0u8; 2]);
            let place = job.place(0, at + size * job.rank as usize);
            let mut call = Call::fetch((datatype, SUM), place, &operand, &mut result);
            job.done(|| call.post(job.ep))?;
            let seen = u64::from(u16::from_le_bytes(result)) & (u64::MAX >> (64 - 8 * size));
            let expected = before & (u64::MAX >> (64 - 8 * size));
            ensure_eq!(seen, expected, "an element of {size} bytes");
        }
    }
    Ok(())
}

fn wide(job: &Job<'_>) -> Verdict {
    let each = many(job.ctx, 10);
    // 128-bit integers, long double, double complex, long double complex.
    for (nth, datatype) in [15, 12, 11, 13].into_iter().enumerate() {
        let ty = Type::of(datatype);
        let one = match ty.is_integer() {
            // The carry crosses from the low to the high half.
            true => Value::Bits(1 << 64 | u128::from(u64::MAX)),
            false if ty.0 == Class::Real => Value::Number(1.0, 0.0),
            false => Value::Number(1.0, 1.0),
        };
        let sum = |count: u64| match one {
            Value::Bits(bits) => Value::Bits(bits.wrapping_mul(count.into())),
            Value::Number(a, b) => Value::Number(a * count as f64, b * count as f64),
        };
        let (operand, at) = (ty.encode(one), 64 + 64 * nth);
        let mut last = 0;
        for _ in 0..each {
            let mut result = vec![0; ty.size()];
            let mut call = Call::fetch((datatype, SUM), job.place(0, at), &operand, &mut result);
            job.done(|| call.post(job.ep))?;
            let most = each * u64::from(job.size);
            let count = (last..most).find(|n| ty.same(&result, &ty.encode(sum(*n))));
            let what = || format!("datatype {datatype}: {result:x?} is no sum above {last}");
            let count = count.ok_or_else(what)?;
            last = count + 1;
        }
        job.meet();
        let total = ty.encode(sum(each * u64::from(job.size)));
        let seen = job.read(0, at, ty.size())?;
        let holds = ty.same(&seen, &total);
        ensure!(holds, "datatype {datatype}: the sum is {seen:x?}");
    }
    Ok(())
}

fn arrays(job: &Job<'_>) -> Verdict {
    const ELEMENTS: usize = 24;
    let each = many(job.ctx, 10);
    // Each rank's array begins at a different offset.
    let first = |rank: u32| 4 * rank as usize;
    let operand = [1u8, 0, 0, 0].repeat(ELEMENTS);
    for _ in 0..each {
        let mut call = Call {
            count: ELEMENTS,
            ..Call::base((UINT32, SUM), job.place(1, 4 * first(job.rank)), &operand)
        };
        job.done(|| call.post(job.ep))?;
    }
    job.meet();
    let seen = job.read(1, 0, 4 * (ELEMENTS + 12))?;
    for (i, bytes) in seen.chunks(4).enumerate() {
        let ranks = (0..job.size).filter(|r| (first(*r)..first(*r) + ELEMENTS).contains(&i));
        let expected = ranks.count() as u32 * each as u32;
        ensure_eq!(bytes, expected.to_le_bytes(), "element {i}");
    }
    Ok(())
}

fn borders(job: &Job<'_>) -> Verdict {
    const DOUBLE: c_int = 9;
    const DOUBLE_COMPLEX: c_int = 11;
    let each = if job.ctx.is_quick() { 30_000 } else { 10 };
    for at in [248, 504, 4088, 64] {
        let one = [1f64.to_le_bytes(), 1f64.to_le_bytes()].concat();
        let whole = job.rank == 0;
        for _ in 0..each {
            let (ty, at, operand) = match whole {
                true => (DOUBLE_COMPLEX, at, &one[..]),
                false => (DOUBLE, at + 8, &one[..8]),
            };
            let mut call = Call::base((ty, SUM), job.place(0, at), operand);
            job.done(|| call.post(job.ep))?;
        }
        job.meet();
        let seen = job.read(0, at, 16)?;
        let parts = [0, 8].map(|part| f64::from_le_bytes(*seen[part..].first_chunk().unwrap()));
        let sums = [each as f64, (2 * each) as f64];
        ensure_eq!(parts, sums, "the sums at {at} and in its second half");
    }
    Ok(())
}

fn instances(job: &Job<'_>) -> Verdict {
    let each = many(job.ctx, 20);
    let other = Station::open(&Plan::DEFAULT)?;
    let names = (0..job.size).map(|rank| job.heard(rank));
    for_all(names, |name| other.insert(&name[..NAME]))?;
    let one = 1u64.to_le_bytes();
    for nth in 0..each {
        let mut call = Call::base((UINT64, SUM), job.place(0, 8), &one);
        let (ep, queue) = match nth % 2 {
            0 => (job.ep, job.tx),
            _ => (other.ep, other.tx),
        };
        job.post(|| call.post(ep))?;
        queue.next()?;
    }
    job.meet();
    job.shows_at(0, 8, each * u64::from(job.size), "the sum")?;
    other.close()
}
