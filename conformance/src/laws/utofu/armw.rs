//! §2.2.5 ARMW, §3.7.1.11 to §3.7.1.14.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::kit::*;

laws! {
    words with(256): "armw8", "§2.2.5, §3.7.1.12", 2, [armw8],
        "each operation on 8 bytes leaves the right value, and the notice carries the one before";
    halves with(256): "armw4", "§2.2.5, §3.7.1.11", 2, [armw4],
        "each operation on 4 bytes leaves the right value and its neighbour alone; the notice has the one before, the rest 0";
    compare_swap with(256): "cswap", "§2.2.5, §3.7.1.13, §3.7.1.14", 2, [cswap4, cswap8],
        "a value equal to the compare operand is replaced, another is kept; the notice carries the one before";
    sums with(256): "armw.atomic", "§2.2.5", 4, [armw8] + ordering,
        "additions of several processes are each done once, and no two see the same value";
    half_sums with(256): "armw4.atomic", "§2.2.5", 3, [armw4] + ordering,
        "additions to the two halves of a word do not disturb each other";
    other_vcqs with(256): "armw.other-vcqs", "§2.2.5", 3, [armw8, create_vcq] + ordering,
        "operations through another VCQ and another TNI on the same memory are atomic against each other";
    beside_the_cpu with(256): "armw.cpu", "§2.2.5", 3, [armw8, armw4] + ordering,
        "the target's own atomic instructions and ARMW do not lose each other's work";
    swap_counts with(256): "cswap.count", "§2.2.5", 3, [cswap8] + ordering,
        "counting by compare and swap loses nothing";
    kinds_of_memory with(256): "armw.memory", "§2.2.5, §3.6", 2, [armw8, reg_mem] + ordering,
        "ARMW is atomic with the CPU on memory of the stack, of the heap and of the program's data";
    quiet with(256): "armw.quiet", "§2.2.5", 2, [armw8, armw4],
        "without notices the operation is done all the same";
}

fn apply(op: u32, old: u64, value: u64) -> u64 {
    match op {
        SWAP => value,
        ADD => old.wrapping_add(value),
        XOR => old ^ value,
        AND => old & value,
        _ => old | value,
    }
}

/// A round count high enough that the ranks meet although an operation takes nanoseconds.
fn many(ctx: &Ctx, at_least: u64) -> u64 {
    at_least * if ctx.is_quick() { 50 } else { 1 }
}

fn words(job: &Job<'_>) -> Verdict {
    let mut random = job.ctx.random(1);
    let at = 64 + 8 * (job.rank as usize);
    let (before, behind) = (at - 32, at + 32);
    let mut expected = 0;
    for round in 0..40 {
        for op in [SWAP, ADD, XOR, AND, OR] {
            let value = if round == 0 { u64::MAX } else { random.next() };
            let old = job.armw8(job.right(), at, op, value).before()?;
            ensure_eq!(old, expected, "value before operation {op}");
            expected = apply(op, old, value);
        }
    }
    let old = job.armw8(job.right(), at, ADD, 0).before()?;
    ensure_eq!(old, expected, "value in the end");
    job.meet();
    equal!(job.memory.words([before, behind]), [0; 2], "neighbours")
}

fn halves(job: &Job<'_>) -> Verdict {
    let mut random = job.ctx.random(1);
    job.memory.fill(0xff);
    job.meet();
    for at in [64usize, 68, 252] {
        let mut expected = u32::MAX;
        for _ in 0..20 {
            for op in [SWAP, ADD, XOR, AND, OR] {
                let value = random.next() as u32;
                let old = job.armw4(job.right(), at, op, value).before()?;
                ensure_eq!(old, u64::from(expected), "before operation {op} at {at}");
                expected = apply(op, old, value.into()) as u32;
            }
        }
        job.meet();
        let both = [at, at ^ 4].map(|at| job.memory.half(at).load(Ordering::Acquire));
        ensure_eq!(both, [expected, u32::MAX], "the halves at {at} and beside");
        job.meet();
        job.memory.fill(0xff);
        job.meet();
    }
    Ok(())
}

fn compare_swap(job: &Job<'_>) -> Verdict {
    let peer = job.right();
    let big = 0x1234_5678_9abc_def0u64;
    for (old, new, expected, left) in [
        (0, big, 0, big),
        (1, 2, big, big),
        (big, 5, big, 5),
        (5, 5, 5, 5),
    ] {
        job.cswap8(peer, 8, old, new).ok(0, LOCAL | REMOTE, 0)?;
        let notices = [job.queue.mrq()?, job.queue.mrq()?];
        let local = notices.iter().find(|one| one.notice_type == LCL_ARMW);
        let seen = local.map(|notice| notice.rmt_value);
        ensure_eq!(seen, Some(expected), "value before");
        job.meet();
        ensure_eq!(job.memory.get(8), left, "value after");
        job.meet();
    }
    job.memory.set(16, u64::MAX);
    job.meet();
    for (old, new, expected, left) in [
        (7, 8, u32::MAX, u32::MAX),
        (u32::MAX, 3, u32::MAX, 3),
        (3, 4, 3, 4),
    ] {
        let seen = job.cswap4(peer, 20, old, new).before()?;
        ensure_eq!(seen, u64::from(expected), "value before");
        job.meet();
        job.memory
            .shows(16, u64::from(left) << 32 | 0xffff_ffff, "the word after")?;
        job.meet();
    }
    Ok(())
}

/// Fails unless the word at `at` of a rank is this sum.
fn sum_is(job: &Job<'_>, rank: u32, at: usize, sum: u64) -> Verdict {
    job.meet();
    let sum = if job.rank == rank { sum } else { 0 };
    job.memory.shows(at, sum, "the sum")
}

fn sums(job: &Job<'_>) -> Verdict {
    let rounds = many(job.ctx, 30);
    let mut last = None;
    for _ in 0..rounds {
        let old = job.armw8(0, 128, ADD, 1).before()?;
        ensure!(last.is_none_or(|last| last < old), "{old} after {last:?}");
        last = Some(old);
    }
    sum_is(job, 0, 128, rounds * u64::from(job.size))
}

fn half_sums(job: &Job<'_>) -> Verdict {
    let rounds = many(job.ctx, 30);
    let at = 128 + 4 * (job.rank as usize % 2);
    for _ in 0..rounds {
        job.armw4(0, at, ADD, u32::MAX).before()?;
    }
    // Of ranks 0 and 2, and of rank 1.
    let [low, high] = [2 * rounds as u32, rounds as u32].map(|sum| u64::from(sum.wrapping_neg()));
    sum_is(job, 0, 128, high << 32 | low)
}

fn other_vcqs(job: &Job<'_>) -> Verdict {
    let rounds = many(job.ctx, 20);
    // VCQs of two TNIs of rank 0 register the same memory.
    let other = Queue::with_component(TNI + 1, 0, 0)?;
    let second = other.register_as(job.memory, 9)?;
    job.meet();
    for round in 0..rounds {
        if (round + u64::from(job.rank)).is_multiple_of(2) {
            job.armw8(0, 128, ADD, 1).before()?;
        } else {
            let id = vcq_of(0, TNI + 1, 0)?;
            let to = stadd_of(id, 9)? + 128;
            post::armw8(other.hdl, id, ADD, 1, to).ok(0, LOCAL, 0)?;
            other.notice(LCL_ARMW)?;
        }
    }
    sum_is(job, 0, 128, rounds * u64::from(job.size))?;
    other.deregister(second)?;
    job.meet();
    other.free()
}

fn beside_the_cpu(job: &Job<'_>) -> Verdict {
    let rounds = many(job.ctx, 30);
    for round in 0..rounds {
        if job.rank == 0 {
            job.memory.word(128).fetch_add(1, Ordering::AcqRel);
            job.memory.half(64).fetch_add(1, Ordering::AcqRel);
            if round % 16 == 0 {
                std::thread::yield_now();
            }
        } else {
            job.armw8(0, 128, ADD, 1).before()?;
            job.armw4(0, 64, ADD, 1).before()?;
        }
    }
    sum_is(job, 0, 128, 3 * rounds)?;
    sum_is(job, 0, 64, 3 * rounds)
}

fn swap_counts(job: &Job<'_>) -> Verdict {
    let rounds = many(job.ctx, 10);
    let mut guess = 0;
    for _ in 0..rounds {
        loop {
            let old = job.cswap8(1, 0, guess, guess + 1).before()?;
            if old == guess {
                guess += 1;
                break;
            }
            guess = old;
        }
    }
    sum_is(job, 1, 0, rounds * u64::from(job.size))
}

static DATA: AtomicU64 = AtomicU64::new(0);
static SMALL: AtomicU32 = AtomicU32::new(0);

fn kinds_of_memory(job: &Job<'_>) -> Verdict {
    let rounds = many(job.ctx, 20);
    let (on_stack, on_heap) = (AtomicU64::new(0), Box::new(AtomicU64::new(0)));
    DATA.store(0, Ordering::Release);
    SMALL.store(0, Ordering::Release);
    let words = [&on_stack, &*on_heap, &DATA];
    let mut places = words.map(|word| (word.as_ptr().cast(), 8)).to_vec();
    places.push((SMALL.as_ptr().cast(), 4));
    let mut stadds = Vec::new();
    for (nth, (base, len)) in places.into_iter().enumerate() {
        let stadd = job.queue.register(Memory { base, len })?;
        job.write(job.right(), 8 * nth, stadd)?;
        stadds.push(stadd);
    }
    job.meet();
    let (theirs, small) = (job.memory.words([0, 8, 16]), job.memory.get(24));
    let peer = job.vcq(job.left());
    for _ in 0..rounds {
        for (word, stadd) in words.into_iter().zip(theirs) {
            word.fetch_add(1, Ordering::AcqRel);
            post::armw8(job.hdl, peer, ADD, 1, stadd).ok(0, LOCAL, 0)?;
        }
        SMALL.fetch_add(1, Ordering::AcqRel);
        post::armw4(job.hdl, peer, ADD, 1, small).ok(0, LOCAL, 0)?;
        job.queue.notices(0..4, LCL_ARMW)?;
    }
    job.meet();
    let sums = words.map(|word| word.load(Ordering::Acquire));
    ensure_eq!(sums, [2 * rounds; 3], "on the stack, on the heap, in data");
    let small = u64::from(SMALL.load(Ordering::Acquire));
    ensure_eq!(small, 2 * rounds, "4 bytes of the program's data");
    for_all(stadds, |stadd| job.queue.deregister(stadd))
}

fn quiet(job: &Job<'_>) -> Verdict {
    const ROUNDS: u64 = 100;
    for _ in 0..ROUNDS {
        job.armw8(0, 0, ADD, 1).ok(0, 0, 0)?;
        job.armw4(0, 8, ADD, 1).ok(0, 0, 0)?;
    }
    if job.rank == 0 {
        job.await_word(0, 2 * ROUNDS)?;
        job.await_word(8, 2 * ROUNDS)?;
    }
    job.meet();
    job.queue.has_nothing()
}
