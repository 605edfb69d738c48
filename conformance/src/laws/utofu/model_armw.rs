//! §2.2.5: each ARMW operation is atomic with all other accesses to the memory.

use std::sync::atomic::Ordering;

use super::kit::*;

laws! {
    bits with(256): "armw.bits", "§2.2.5", 3, [armw8] + ordering,
        "OR, AND and XOR by processes, VCQs and the target's CPU on their own bits of a word change no other bit, ever";
    half_bits with(256): "armw4.bits", "§2.2.5", 3, [armw4] + ordering,
        "the same of 4 bytes";
    tokens with(256): "armw.swap", "§2.2.5", 3, [armw8, armw4] + ordering,
        "SWAP hands every value on to one taker, the target's CPU among them";
    half_counts with(256): "cswap4.count", "§2.2.5", 3, [cswap4] + ordering,
        "counting by 4 byte compare and swap loses nothing, the target's CPU counting too";
    mixed with(256): "armw.mixed", "§2.2.5", 3, [armw8, cswap8] + ordering,
        "additions and compare and swap on the same word are one after the other";
    example with(256): "armw.example", "§2.2.5", 3, [armw4, armw8],
        "an addition of 11 to 22 leaves 33 and tells 22; additions wrap round; signs are none";
    own: "armw.own", "§2.1, §2.2.5", 1, [armw4, armw8, cswap8, create_vcq_with_cmp_id],
        "a process changes its own memory by ARMW too, through the same VCQ and through another one";
}

/// Fewer rounds if an operation takes long.
fn rounds(ctx: &Ctx) -> u64 {
    if ctx.is_quick() { 600 } else { 15 }
}

/// Runs `step(op, operand)`, which returns the previous value, on bits that only this caller changes.
fn own_bits(
    ctx: &Ctx,
    salt: u64,
    mask: u64,
    mut step: impl FnMut(u32, u64) -> Result<u64, String>,
) -> Verdict {
    let mut random = ctx.random(salt);
    let mut expected = 0;
    for _ in 0..rounds(ctx) {
        let bits = random.next() & mask;
        let (op, operand, next) = match random.below(3) {
            0 => (OR, bits, expected | bits),
            1 => (AND, !mask | bits, expected & bits),
            _ => (XOR, bits, expected ^ bits),
        };
        let old = step(op, operand)?;
        ensure!(
            old & mask == expected,
            "own bits {:#x} instead of {expected:#x} before operation {op}",
            old & mask
        );
        expected = next;
    }
    // In the end all are 0 again.
    let old = step(AND, !mask)?;
    equal!(old & mask, expected, "own bits in the end")
}

fn bits(job: &Job<'_>) -> Verdict {
    // The same memory through another TNI.
    let other = Queue::with_component(TNI + 1, 0, 0)?;
    let second = other.register_as(job.memory, 9)?;
    job.meet();
    let far = (vcq_of(0, TNI + 1, 0)?, stadd_of(other.id, 9)? + 64);
    let near = (job.vcq(0), job.at(0, 64));
    let mut turn = 0;
    let armw = |op: u32, operand: u64| {
        turn += 1;
        let (queue, (vcq, at)) = [(job.queue, near), (other, far)][turn % 2];
        post::armw8(queue.hdl, vcq, op, operand, at).before()
    };
    let mask = 0xffff << (16 * job.rank);
    if job.rank == 0 {
        let word = job.memory.word(64);
        let cpu = |op: u32, operand: u64| {
            Ok(match op {
                OR => word.fetch_or(operand, Ordering::AcqRel),
                AND => word.fetch_and(operand, Ordering::AcqRel),
                _ => word.fetch_xor(operand, Ordering::AcqRel),
            })
        };
        // Its CPU changes half of the bits, and its VCQs change the others, by turns.
        for nth in 0..3 {
            own_bits(job.ctx, 10 + nth, 0x00ff, cpu)?;
        }
        own_bits(job.ctx, 7, 0xff00, armw)?;
    } else {
        own_bits(job.ctx, u64::from(job.rank), mask, armw)?;
    }
    job.meet();
    ensure_eq!(job.memory.get(64), 0, "the word in the end");
    job.memory.all(0, 64, 0, "before the word")?;
    job.memory.all(72, 56, 0, "behind the word")?;
    other.deregister(second)?;
    job.meet();
    other.free()
}

fn half_bits(job: &Job<'_>) -> Verdict {
    let armw = |op: u32, operand: u64| job.armw4(0, 68, op, operand as u32).before();
    if job.rank == 0 {
        let half = job.memory.half(68);
        own_bits(job.ctx, 5, 0xff, |op, operand| {
            let operand = operand as u32;
            let old = match op {
                OR => half.fetch_or(operand, Ordering::AcqRel),
                AND => half.fetch_and(operand, Ordering::AcqRel),
                _ => half.fetch_xor(operand, Ordering::AcqRel),
            };
            // Only this rank writes the neighbouring half.
            job.memory.half(64).fetch_add(1, Ordering::AcqRel);
            Ok(old.into())
        })?;
    } else {
        own_bits(job.ctx, u64::from(job.rank), 0xff << (8 * job.rank), armw)?;
    }
    job.meet();
    let count = [rounds(job.ctx) + 1, 0, 0][job.rank as usize];
    equal!(job.memory.get(64), count, "both halves in the end")
}

fn tokens(job: &Job<'_>) -> Verdict {
    let count = rounds(job.ctx);
    // Each rank swaps its own values in. Xor and sum of the old values and the rest equal xor and sum of the input.
    let mine = |nth: u64| (u64::from(job.rank) + 1) << 20 | nth;
    let mut out = (0u64, 0u64);
    let add = |all: &mut (u64, u64), value: u64| {
        all.0 ^= value.wrapping_mul(0x9e37_79b9);
        all.1 = all.1.wrapping_add(value);
    };
    let mut got = |value| add(&mut out, value);
    for nth in 1..=count {
        if job.rank == 0 {
            got(job.memory.word(64).swap(mine(nth), Ordering::AcqRel));
            let half = job.memory.half(72);
            got(half.swap(mine(nth) as u32, Ordering::AcqRel).into());
            continue;
        }
        got(job.armw8(0, 64, SWAP, mine(nth)).before()?);
        got(job.armw4(0, 72, SWAP, mine(nth) as u32).before()?);
    }
    job.write(0, 128 + 16 * job.rank as usize, out.0)?;
    job.write(0, 136 + 16 * job.rank as usize, out.1)?;
    job.meet();
    if job.rank == 0 {
        let half = u64::from(job.memory.half(72).load(Ordering::Acquire));
        let mut all = (0u64, 0u64);
        add(&mut all, job.memory.get(64));
        add(&mut all, half);
        for rank in 0..3 {
            all.0 ^= job.memory.get(128 + 16 * rank);
            all.1 = all.1.wrapping_add(job.memory.get(136 + 16 * rank));
        }
        // The input: each value twice, so that the xor is 0.
        let sum: u64 = (1..=3u64)
            .flat_map(|rank| (1..=count).map(move |nth| rank << 20 | nth))
            .sum();
        ensure_eq!(all, (0, 2 * sum), "completed entries, and remaining ones");
    }
    Ok(())
}

fn half_counts(job: &Job<'_>) -> Verdict {
    let rounds = rounds(job.ctx) / 3;
    let mut guess = 0u32;
    for _ in 0..rounds {
        loop {
            let (operand, compare) = (guess + 1, guess);
            let old = if job.rank == 0 {
                let (Ok(old) | Err(old)) = job.memory.half(20).compare_exchange(
                    compare,
                    operand,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                );
                old
            } else {
                job.cswap4(0, 20, compare, operand).before()? as u32
            };
            if old == guess {
                guess += 1;
                break;
            }
            guess = old;
        }
    }
    job.meet();
    if job.rank == 0 {
        job.memory
            .shows(16, (3 * rounds) << 32, "the count and its neighbour")?;
    }
    Ok(())
}

fn mixed(job: &Job<'_>) -> Verdict {
    let rounds = rounds(job.ctx);
    let (mut done, mut guess) = (0, 0);
    while done < rounds {
        // Rank 0 adds 2^40 by its CPU, rank 1 adds 2^20, rank 2 counts up by comparing.
        match job.rank {
            0 => drop(job.memory.word(8).fetch_add(1 << 40, Ordering::AcqRel)),
            1 => job.armw8(0, 8, ADD, 1 << 20).ok(0, 0, 0)?,
            _ => {
                let old = job.cswap8(0, 8, guess, guess + 1).before()?;
                let mine = old & 0xf_ffff;
                ensure_eq!(mine, done, "the count of who compares");
                done += u64::from(old == guess);
                guess = if old == guess { old + 1 } else { old };
                // The others may have stopped.
                continue;
            }
        }
        if job.rank == 1 && done % 64 == 0 {
            let _ = job.queue.poll_tcq();
        }
        done += 1;
    }
    job.meet();
    if job.rank == 0 {
        let all = rounds << 40 | rounds << 20 | rounds;
        until("all additions", || job.memory.get(8) == all)?;
    }
    Ok(())
}

fn example(job: &Job<'_>) -> Verdict {
    let peer = job.right();
    let cases = [
        (22, 11, 33),
        (u64::MAX, 1, 0),
        (1 << 63, 1 << 63, 0),
        (0xffff_ffff, 1, 1 << 32),
        (5, u64::MAX, 4),
    ];
    for (before, operand, after) in cases {
        job.memory.set(8, before);
        job.memory.set(16, before);
        job.meet();
        let (told, low) = (job.armw8(peer, 8, ADD, operand).before()?, operand as u32);
        ensure_eq!(told, before, "the value before");
        let told = job.armw4(peer, 16, ADD, low).before()?;
        ensure_eq!(told, before & 0xffff_ffff, "the 4 bytes before");
        job.meet();
        ensure_eq!(job.memory.get(8), after, "{before:#x} and {operand:#x}");
        let half = u64::from((before as u32).wrapping_add(low));
        let expected = before >> 32 << 32 | half;
        ensure_eq!(job.memory.get(16), expected, "4 bytes of {before:#x}");
        job.meet();
    }
    Ok(())
}

fn own(_: &Ctx) -> Verdict {
    let (one, two) = (
        Queue::with_component(TNI, 0, 0)?,
        Queue::with_component(TNI, 1, 0)?,
    );
    let memory = Memory::new(256);
    let (first, second) = (one.register(memory)?, two.register_as(memory, 8)?);
    let mut expected = 0;
    for (from, to, at) in [
        (one, one, first),
        (one, two, second),
        (two, one, first),
        (two, two, second),
    ] {
        post::armw8(from.hdl, to.id, ADD, 5, at).ok(1, LOCAL, 0)?;
        let flags = LOCAL | STRONG_ORDER;
        post::armw4(from.hdl, to.id, ADD, 2, at).ok(2, flags, 0)?;
        let both = [from.notice(LCL_ARMW)?, from.notice(LCL_ARMW)?];
        ensure_eq!(
            both.map(|notice| notice.rmt_value),
            [expected, expected + 5],
            "values before"
        );
        expected += 7;
        post::cswap8(from.hdl, to.id, expected, expected + 1, at).ok(3, LOCAL | REMOTE, 0)?;
        let mut notice = from.mrq()?;
        match notice.notice_type {
            LCL_ARMW => drop(to.notice(RMT_ARMW)?),
            _ => notice = from.notice(LCL_ARMW)?,
        }
        ensure_eq!(notice.rmt_value, expected, "the value before");
        expected += 1;
        ensure_eq!(memory.get(0), expected, "the word");
    }
    for_all([(one, first), (two, second)], |(queue, stadd)| {
        queue.mrq_is_empty()?;
        queue.close(stadd)
    })
}
