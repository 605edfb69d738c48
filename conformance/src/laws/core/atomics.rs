//! The table of atomic operations, carried out across the network.

use unipgas_core::atomic::{AtomicForm, apply_vector, supported};
use unipgas_core::{AtomicOp, AtomicRequest, AtomicType, Error, Remote, Rights};

use super::rank::{
    Rank, Says, cells, dawdle, is, on_ranks, out_of_bounds, read, read_word, refused, remote,
    untouched, update,
};
use crate::law::{Ctx, Random, Verdict};
use crate::{ensure, ensure_eq};

laws! {
    "core.atomic.table", "unipgas core: AtomicOp, AtomicType", 2,
        "every operation on every type does to a peer's memory what it does here, and cells that are not defined are refused" => table;
    "core.atomic.misaligned", "unipgas core: Channel::atomic", 2,
        "an element that is not aligned as its type is in C is refused, and nothing is written" => misaligned;
    "core.fetch-add.distinct", "GASPI 17.1 §10.2.1; unipgas core: Endpoint::fetch_add", 4 + ordering,
        "the values that all ranks fetch by adding 1 are distinct and complete" => distinct;
    "core.compare-swap.lock", "GASPI 17.1 §10.2.2; unipgas core: Endpoint::compare_swap", 4 + ordering,
        "exactly one of the ranks that swap a lock from free to taken succeeds" => lock;
    "core.atomic.exclusive", "unipgas core: Rights::EXCLUSIVE", 4 + ordering,
        "on memory with atomics under locks, additions of arrays and of single elements by all ranks are counted" => exclusive;
    "core.atomic.words", "unipgas core: Rights::WORDS", 2,
        "memory with atomics of words only takes additions, reads and compare-and-swaps of 8 bytes; other operations are refused, and nothing is written" => words;
}

/// Size of the largest element, and the number of elements in a vector.
pub(super) const SIZE: usize = 32;
pub(super) const COUNT: usize = 5;

/// Elements of plain values, small enough that comparisons go both ways.
pub(super) fn elements(ty: AtomicType, random: &mut Random) -> [u8; SIZE * COUNT] {
    let mut bytes = [0u8; SIZE * COUNT];
    let small = random.below(2) == 0;
    match ty {
        AtomicType::F32 | AtomicType::ComplexF32 => {
            for chunk in bytes.chunks_exact_mut(4) {
                let value = random.below(7) as f32 - 3.0;
                chunk.copy_from_slice(&(value * if small { 0.5 } else { 1e6 }).to_ne_bytes());
            }
        }
        AtomicType::F64 | AtomicType::ComplexF64 => {
            for chunk in bytes.chunks_exact_mut(8) {
                let value = random.below(7) as f64 - 3.0;
                chunk.copy_from_slice(&(value * if small { 0.5 } else { 1e9 }).to_ne_bytes());
            }
        }
        AtomicType::LongDouble | AtomicType::ComplexLongDouble => {
            for chunk in bytes.chunks_exact_mut(16) {
                let (sign, exponent) = (random.below(2) << 15, 0x3ffe + random.below(4));
                // x86-64 has 80 bits with an explicit integer bit, other processors 128.
                let value = match cfg!(target_arch = "x86_64") {
                    true => u128::from(sign | exponent) << 64 | 1 << 63,
                    false => u128::from(sign | exponent) << 112 | 1 << 111,
                };
                let zero = random.below(7) == 0;
                chunk.copy_from_slice(&if zero { 0 } else { value }.to_ne_bytes());
            }
        }
        _ if small => {
            for chunk in bytes.chunks_exact_mut(ty.size()) {
                chunk[0] = random.below(4) as u8;
            }
        }
        _ => random.fill(&mut bytes),
    }
    bytes
}

#[repr(align(32))]
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Elements(pub(super) [u8; SIZE * COUNT]);

/// The place of results, if there are any.
pub(super) fn results(fetches: bool, place: &mut [u8]) -> *mut u8 {
    match fetches {
        true => place.as_mut_ptr(),
        false => std::ptr::null_mut(),
    }
}

fn table(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 4096, |rank| {
        let there = rank.data_of(rank.other())?;
        let mut random = ctx.random(u64::from(ctx.rank));
        let mut mirror = Elements([0; SIZE * COUNT]);
        let dst = remote(&there, 128);
        for (op, ty) in cells() {
            for nth in 0..6 {
                // A new target every third time; otherwise the result of the last operation.
                if nth % 3 == 0 {
                    mirror = Elements(elements(ty, &mut random));
                    rank.put(&mirror.0, dst).says("putting a target")?;
                }
                let (operand, compare) = (elements(ty, &mut random), elements(ty, &mut random));
                let count = if nth % 2 == 0 { 1 } else { COUNT };
                let fetches = op.form() == AtomicForm::FetchOnly || random.below(2) == 0;
                let operands = (&operand[..], &compare[..]);
                cell(rank, dst, (op, ty, count), fetches, operands, &mut mirror)?;
            }
        }
        ctx.sync();
        untouched(&rank.data, (0, 128), 0, "before the elements")?;
        let behind = 128 + SIZE * COUNT;
        let rest = (behind, 4096 - behind);
        untouched(&rank.data, rest, 0, "behind the elements")
    })
}

fn cell(
    rank: &Rank<'_>,
    dst: Remote<'_>,
    (op, ty, count): (AtomicOp, AtomicType, usize),
    fetches: bool,
    (operand, compare): (&[u8], &[u8]),
    mirror: &mut Elements,
) -> Verdict {
    let (mut fetched, mut expected) = ([0x3cu8; SIZE * COUNT], [0x3cu8; SIZE * COUNT]);
    let request = AtomicRequest {
        compare: compare.as_ptr(),
        result: results(fetches, &mut fetched),
        ..update(op, ty, count, operand.as_ptr())
    };
    // Operands, comparands and results have room for COUNT elements of SIZE bytes.
    let result = rank.atomic(dst, &request);
    let what = format!("{op:?} on {count} {ty:?}");
    if !supported(op, ty) {
        refused(result, is(Error::Unsupported), &what)?;
    } else {
        result.says(&what)?;
        let (target, place) = (mirror.0.as_mut_ptr(), results(fetches, &mut expected));
        let (operand, compare) = (operand.as_ptr(), compare.as_ptr());
        // SAFETY:
        // - as above; the mirror is aligned to 32 bytes and belongs to this call.
        unsafe { apply_vector(op, ty, target, count, operand, compare, place) }
            .says("the mirror")?;
        // SAFETY:
        // - a plain local; the operation has written it through a pointer.
        let fetched = unsafe { (&raw const fetched).read_volatile() };
        ensure!(
            fetched == expected,
            "{what}: fetched {fetched:02x?} instead of {expected:02x?}"
        );
    }
    let seen = rank.get(dst, SIZE * COUNT).says("get")?;
    ensure!(
        seen == mirror.0,
        "{what}: left {seen:02x?} instead of {:02x?}",
        mirror.0
    );
    Ok(())
}

fn misaligned(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 4096, |rank| {
        let there = rank.data_of(rank.other())?;
        let operand = [0xffu8; 64];
        for &ty in AtomicType::ALL {
            if !supported(AtomicOp::Write, ty) {
                continue;
            }
            for offset in (1..ty.alignment()).map(|at| 64 + at) {
                for count in [1, 2] {
                    let request = update(AtomicOp::Write, ty, count, operand.as_ptr());
                    let result = rank.atomic(remote(&there, offset), &request);
                    let what = format!("{count} {ty:?} at offset {offset}");
                    refused(result, is(Error::Misaligned(ty.alignment())), &what)?;
                }
            }
        }
        for offset in [1, 4, 7] {
            let dst = remote(&there, offset);
            for (what, result) in [
                ("fetch-add", rank.fetch_add(dst, 1)),
                ("compare-swap", rank.compare_swap(dst, 0, 1)),
            ] {
                let what = format!("{what} at offset {offset}");
                refused(result, is(Error::Misaligned(8)), &what)?;
            }
        }
        ctx.sync();
        untouched(&rank.data, (0, 4096), 0, "by a refused operation")
    })
}

fn distinct(ctx: &Ctx) -> Verdict {
    const ADDS: usize = 100;
    on_ranks(ctx, 8192, |rank| {
        let there = rank.data_of(0)?;
        let mut random = ctx.random(u64::from(ctx.rank));
        let mut values = Vec::new();
        let at = remote(&there, 64);
        for _ in 0..ADDS {
            let value = rank.fetch_add(at, 1).says("fetch-add")?;
            ensure!(
                values.last().is_none_or(|last| *last < value),
                "value {value} was fetched after {:?}",
                values.last()
            );
            values.push(value);
            dawdle(&mut random);
        }
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_ne_bytes())
            .collect();
        let at = remote(&there, 1024 + ctx.rank as usize * ADDS * 8);
        rank.put(&bytes, at).says("put")?;
        ctx.sync();
        if ctx.rank == 0 {
            let all = 0..ctx.size as usize * ADDS;
            let word = |nth| read_word(&rank.data, 1024 + 8 * nth);
            let mut all: Vec<u64> = all.map(word).collect();
            all.sort_unstable();
            let mut numbered = all.iter().zip(0..);
            let wrong = numbered.find(|(value, expected)| **value != *expected);
            ensure!(
                wrong.is_none(),
                "a value of 0..{} is missing or fetched twice: {wrong:?}",
                all.len()
            );
            let sum = read_word(&rank.data, 64);
            ensure_eq!(sum, (ctx.size as usize * ADDS) as u64, "sum");
        }
        Ok(())
    })
}

fn words(ctx: &Ctx) -> Verdict {
    const AT: usize = 64;
    on_ranks(ctx, 4096, |rank| {
        let region = rank.share(7, 4096, Rights::FULL | Rights::WORDS)?;
        ctx.sync();
        // Regions of this process count, too.
        for owner in [rank.other(), ctx.rank] {
            let there = rank.listed(owner, 7)?;
            let dst = |offset| remote(&there, offset);
            for ((op, ty), count) in cells().flat_map(|cell| [1, 2].map(|count| (cell, count))) {
                change_words(rank, dst(AT), (op, ty, count))?;
            }
            let misaligned = rank.fetch_add(dst(AT + 4), 1);
            refused(misaligned, is(Error::Misaligned(8)), "half a word further")?;
            let behind = rank.fetch_add(dst(4096), 1);
            refused(behind, out_of_bounds, "behind the end")?;
            ctx.sync();
        }
        let changed = (AT..AT + 16).step_by(8);
        ensure!(
            (0..4096)
                .step_by(8)
                .all(|at| changed.clone().any(|c| c == at) || read(&region, at, 8) == [0; 8]),
            "more than the words has changed"
        );
        Ok(())
    })
}

/// One operation on two words, which must take effect or be refused without a change.
fn change_words(
    rank: &Rank<'_>,
    dst: Remote<'_>,
    (op, ty, count): (AtomicOp, AtomicType, usize),
) -> Verdict {
    let before = [0x0102_0304_0506_0708u64, 9];
    // Room for elements of any type.
    let operand = [3u64; 8];
    let mut fetched = [0u64; 8];
    rank.put(&before.map(u64::to_ne_bytes).concat(), dst)
        .says("putting the words")?;
    let request = AtomicRequest {
        compare: before.as_ptr().cast(),
        result: fetched.as_mut_ptr().cast(),
        ..update(op, ty, count, operand.as_ptr())
    };
    // Operands and results have room for two elements of the largest type. Comparands have 16 bytes: operations on more than one word are
    // refused before the comparands are read.
    let result = rank.atomic(dst, &request);
    let expected = match op {
        _ if count != 1 || !matches!(ty, AtomicType::U64 | AtomicType::I64) => None,
        AtomicOp::Sum => Some(before[0] + 3),
        AtomicOp::Read => Some(before[0]),
        AtomicOp::Cswap => Some(3),
        _ => None,
    };
    let what = format!("{op:?} of {count} {ty:?}");
    match expected {
        None => refused(result, is(Error::Unsupported), &what)?,
        Some(_) => {
            result.says(&what)?;
            ensure_eq!(fetched[0], before[0], "what {op:?} has fetched");
        }
    }
    let after = rank.get(dst, 16).says("getting the words")?;
    let after = [0, 8].map(|at| u64::from_ne_bytes(after[at..at + 8].try_into().expect("8 bytes")));
    let wanted = [expected.unwrap_or(before[0]), before[1]];
    ensure_eq!(after, wanted, "the words after {what}");
    Ok(())
}

fn exclusive(ctx: &Ctx) -> Verdict {
    const ROUNDS: u64 = 12;
    const ELEMENTS: usize = 100;
    const AT: usize = 1000;
    on_ranks(ctx, 64, |rank| {
        let region = rank.share(7, 4096, Rights::FULL | Rights::EXCLUSIVE)?;
        ctx.sync();
        let there = rank.listed(0, 7)?;
        let mut random = ctx.random(u64::from(ctx.rank));
        let ones = [1u64; ELEMENTS];
        let last = remote(&there, AT + 8 * (ELEMENTS - 1));
        let mut values = Vec::new();
        for _ in 0..ROUNDS {
            let request = update(AtomicOp::Sum, AtomicType::U64, ELEMENTS, ones.as_ptr());
            rank.atomic(remote(&there, AT), &request).says("a sum")?;
            dawdle(&mut random);
            values.push(rank.fetch_add(last, 1).says("fetch-add")?);
        }
        ensure!(
            values.is_sorted_by(|a, b| a < b),
            "a rank fetched {values:?}"
        );
        ctx.sync();
        if ctx.rank == 0 {
            let all = u64::from(ctx.size) * ROUNDS;
            for nth in 0..ELEMENTS {
                let times = if nth == ELEMENTS - 1 { 2 } else { 1 };
                let value = read_word(&region, AT + 8 * nth);
                ensure_eq!(value, times * all, "element {nth}");
            }
            untouched(&region, (0, AT), 0, "before the array")?;
            let behind = AT + 8 * ELEMENTS;
            untouched(&region, (behind, 4096 - behind), 0, "behind the array")?;
        }
        ctx.sync();
        Ok(())
    })
}

fn lock(ctx: &Ctx) -> Verdict {
    const TURNS: u64 = 15;
    on_ranks(ctx, 4096, |rank| {
        let there = rank.data_of(0)?;
        let at = |offset| remote(&there, offset);
        let me = u64::from(ctx.rank) + 1;
        for _ in 0..TURNS {
            loop {
                let before = rank.compare_swap(at(64), 0, me).says("taking the lock")?;
                if before == 0 {
                    break;
                }
                ensure!(
                    before <= u64::from(ctx.size) && before != me,
                    "the lock held {before} when rank {} wanted it",
                    ctx.rank
                );
                std::thread::yield_now();
            }
            // Neither the get nor the put is atomic: only the lock excludes the other ranks.
            let sum = rank.get(at(256), 8).says("get")?;
            let sum = u64::from_ne_bytes(sum.try_into().expect("8 bytes")) + 1;
            std::thread::yield_now();
            rank.put(&sum.to_ne_bytes(), at(256)).says("put")?;
            let before = rank.compare_swap(at(64), me, 0);
            let before = before.says("giving the lock back")?;
            ensure_eq!(before, me, "holder of the lock that is given back");
        }
        ctx.sync();
        if ctx.rank == 0 {
            let seen = read_word(&rank.data, 256);
            ensure_eq!(seen, TURNS * u64::from(ctx.size), "sum of all turns");
        }
        Ok(())
    })
}
