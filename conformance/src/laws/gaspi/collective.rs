//! §11.2, §11.3: barriers and reductions.

use std::time::Instant;

use super::kit::*;
use crate::law::Random;

laws! {
    threads_in_turn: "collective.threads", "§11.2.1", 2, [gaspi_barrier, gaspi_allreduce] + ordering,
        "several threads may call the same collective of a group, as often in all processes: each call waits for its turn";
    nobody_leaves_early: "barrier.all-in", "§11.2.1", 4, [gaspi_barrier] + ordering,
        "after success of gaspi_barrier all members have invoked it";
    barrier_continues: "barrier.timeout", "§11.2.1", 4, [gaspi_barrier] + ordering,
        "a barrier that timed out is continued by the next call, however the members' timeouts are mixed";
    barrier_by_testing: "barrier.test", "§11.1", 3, [gaspi_barrier] + ordering,
        "a barrier can be completed by calls with GASPI_TEST alone, none of which waits";
    barrier_waits with_segment(64): "barrier.waits", "§11.2.1", 2, [gaspi_barrier],
        "gaspi_barrier gives GASPI_TIMEOUT after its time, and blocks with GASPI_BLOCK, until the last has come";
    barrier_pairs: "barrier.many", "§11.2.1", 3, [gaspi_barrier] + ordering,
        "consecutive barriers stay separate: no rank is ever two ahead";
    all_operations: "allreduce.operations", "§11.3.1", 4, [gaspi_allreduce] + ordering,
        "minimum, maximum and sum of every type, element by element, at every member";
    extreme_values: "allreduce.extremes", "§11.3.3", 3, [gaspi_allreduce],
        "signed, unsigned and floating types compare as such, at the ends of their ranges";
    most_elements: "allreduce.elem-max", "§11.3.1", 3, [gaspi_allreduce, gaspi_allreduce_elem_max],
        "up to gaspi_allreduce_elem_max elements are reduced, and no byte behind the result changes";
    in_place: "allreduce.in-place", "§11.3.1", 3, [gaspi_allreduce],
        "one buffer for both, as programs use it; the send buffer is otherwise left alone";
    same_everywhere: "allreduce.reproducible", "§11.3.1", 4, [gaspi_allreduce] + ordering,
        "floating sums are the same to the last bit at all members, and each time";
    allreduce_continues: "allreduce.timeout", "§11.3.1", 4, [gaspi_allreduce] + ordering,
        "a reduction that timed out is continued by the next call, however the members' timeouts are mixed";
    send_buffer_is_copied: "allreduce.copies", "§11.3.1", 3, [gaspi_allreduce] + ordering,
        "the send buffer is copied at the first invocation: it may be changed before the operation is continued";
    reduction_synchronises: "allreduce.all-in", "§11.3.1", 4, [gaspi_allreduce] + ordering,
        "after success of gaspi_allreduce all members have invoked it";
    barrier_and_reduction: "collective.side-by-side", "§11.1", 3, [gaspi_barrier, gaspi_allreduce] + ordering,
        "an allreduce and a barrier of one group can run at the same time";
    queues_are_independent: "collective.queues", "§3.10", 2, [gaspi_barrier, gaspi_queue_size],
        "collective operations do not touch the communication queues";
}

fn nobody_leaves_early(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 8)?;
    let mut random = ctx.random(u64::from(ctx.rank));
    for round in 1..=15u64 {
        if random.below(3) == 0 {
            pause(random.below(2));
        }
        count_at_all(ctx)?;
        ok!(gaspi_barrier(ALL, BLOCK));
        arrived(ctx, &memory, round)?;
    }
    Ok(())
}

/// A random timeout: GASPI_TEST, a few milliseconds, or [`LONG`].
pub(super) fn patience(random: &mut Random) -> u64 {
    [TEST, TEST, 1, 2, LONG][random.below(5) as usize]
}

/// Between a barrier and the next one the counter shows all arrivals, and at most one more of each rank.
fn arrived(ctx: &Ctx, memory: &Memory, round: u64) -> Verdict {
    let (seen, least) = (memory.get(0), round * u64::from(ctx.size));
    let right = (least..=least + u64::from(ctx.size)).contains(&seen);
    ensure!(
        right,
        "barrier {round} was left after {seen} of {least} arrivals"
    );
    Ok(())
}

fn barrier_continues(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 8)?;
    let mut random = ctx.random(u64::from(ctx.rank));
    for round in 1..=12u64 {
        count_at_all(ctx)?;
        let mut call = || c!(gaspi_barrier(ALL, patience(&mut random)));
        repeat("gaspi_barrier", &mut call)?;
        arrived(ctx, &memory, round)?;
    }
    Ok(())
}

fn barrier_by_testing(ctx: &Ctx) -> Verdict {
    for _ in 0..10 {
        if ctx.rank != 0 {
            // Rank 0 joins after these calls have returned: a call that waits is a deadlock.
            for _ in 0..5 {
                gives!(GASPI_TIMEOUT, gaspi_barrier(ALL, TEST));
            }
        }
        ctx.sync();
        repeat("gaspi_barrier", || c!(gaspi_barrier(ALL, TEST)))?;
    }
    Ok(())
}

fn barrier_waits(ctx: &Ctx, memory: Memory) -> Verdict {
    if ctx.rank == 1 {
        ctx.sync();
        pause(60);
        add(0, 0, 0, 1)?;
        return barrier();
    }
    let start = Instant::now();
    gives!(GASPI_TIMEOUT, gaspi_barrier(ALL, TEST));
    gives!(GASPI_TIMEOUT, gaspi_barrier(ALL, 20));
    ensure!(ms(start) >= 19, "a timeout of 20 ms after {} ms", ms(start));
    ctx.sync();
    ok!(gaspi_barrier(ALL, BLOCK));
    memory.shows(0, 1, "the other rank's work before its arrival")
}

fn barrier_pairs(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 8 * ctx.size as usize)?;
    barrier()?;
    for round in 1..=60u64 {
        memory.set(8 * ctx.rank as usize, round);
        let at = 8 * u64::from(ctx.rank);
        for rank in others(ctx) {
            post::write_notify(0, at, rank, 0, at, 8, ctx.rank, round as u32).ok(0, LONG)?;
        }
        for rank in others(ctx) {
            ensure_eq!(notified(0, u32::from(rank))?, round as u32, "the round");
            ensure_eq!(memory.get(8 * rank as usize), round, "rank {rank}'s word");
        }
        barrier()?;
    }
    flush(0)
}

/// One element type of §11.3.3.
trait Element: Copy + PartialEq + std::fmt::Debug + Default {
    const C: u32;
    fn draw(random: &mut Random) -> Self;
    fn reduce(op: u32, a: Self, b: Self) -> Self;
}

macro_rules! element {
    ($($ty:ty = $c:literal, $draw:expr;)*) => {$(
        impl Element for $ty {
            const C: u32 = $c;
            fn draw(random: &mut Random) -> Self {
                let draw: fn(u64) -> $ty = $draw;
                draw(random.next())
            }
            fn reduce(op: u32, a: Self, b: Self) -> Self {
                match op {
                    0 => if b < a { b } else { a },
                    1 => if b > a { b } else { a },
                    _ => a + b,
                }
            }
        }
    )*};
}

// The values are small: no sum of four overflows. They are whole numbers: floating-point sums are exact in any order.
element! {
    i32 = 0, |x| (x as i32) / 4;
    u32 = 1, |x| (x as u32) / 4;
    f32 = 2, |x| f32::from((x as i16) / 4);
    f64 = 3, |x| f64::from((x as i32) / 4);
    i64 = 4, |x| (x as i64) / 4;
    u64 = 5, |x| x / 4;
}

fn reduced<T: Element>(ctx: &Ctx, num: usize, round: u64) -> Verdict {
    let data = |rank: u32| -> Vec<T> {
        let mut random = ctx.random(1000 * round + u64::from(rank) + 10 * u64::from(T::C));
        (0..num).map(|_| T::draw(&mut random)).collect()
    };
    for op in 0..3 {
        let send = data(ctx.rank);
        let mut expected = data(0);
        for rank in 1..ctx.size {
            for (held, other) in expected.iter_mut().zip(data(rank)) {
                *held = T::reduce(op, *held, other);
            }
        }
        let mut receive = vec![T::default(); num + 1];
        post::allreduce(send.as_ptr(), receive.as_mut_ptr(), num as u32, op, T::C).ok(ALL, LONG)?;
        ensure_eq!(receive.pop(), Some(T::default()), "behind the result");
        ensure_eq!(receive, expected, "op {op} on {num} of type {}", T::C);
        ensure_eq!(send, data(ctx.rank), "the send buffer afterwards");
    }
    Ok(())
}

fn all_operations(ctx: &Ctx) -> Verdict {
    for (round, num) in [1usize, 2, 3, 64, 255].into_iter().enumerate() {
        let round = round as u64;
        reduced::<i32>(ctx, num, round)?;
        reduced::<u32>(ctx, num, round)?;
        reduced::<f32>(ctx, num, round)?;
        reduced::<f64>(ctx, num, round)?;
        reduced::<i64>(ctx, num, round)?;
        reduced::<u64>(ctx, num, round)?;
    }
    Ok(())
}

fn extreme_values(ctx: &Ctx) -> Verdict {
    macro_rules! ends {
        ($($ty:ty = $c:literal: $values:expr;)*) => {$(
            let values: [$ty; 3] = $values;
            let send = [values[ctx.rank as usize]];
            let mut low = [values[1]];
            let mut high = [values[1]];
            ok!(gaspi_allreduce(send.as_ptr().cast(), low.as_mut_ptr().cast(), 1, 0, $c, ALL, LONG));
            ok!(gaspi_allreduce(send.as_ptr().cast(), high.as_mut_ptr().cast(), 1, 1, $c, ALL, LONG));
            ensure_eq!((low[0], high[0]), (values[0], values[2]), "minimum and maximum of {}", stringify!($ty));
        )*};
    }
    ends! {
        i32 = 0: [i32::MIN, -1, i32::MAX];
        u32 = 1: [0, 0x7fff_ffff, u32::MAX];
        f32 = 2: [f32::NEG_INFINITY, -1e-40, f32::MAX];
        f64 = 3: [-f64::MAX, 1e-310, f64::INFINITY];
        i64 = 4: [i64::MIN, -1, i64::MAX];
        u64 = 5: [0, 0x7fff_ffff_ffff_ffff, u64::MAX];
    }
    Ok(())
}

fn most_elements(ctx: &Ctx) -> Verdict {
    let most = got!(gaspi_allreduce_elem_max());
    ensure!(most >= 1, "gaspi_allreduce_elem_max {most}");
    reduced::<u64>(ctx, most as usize, 1)?;
    reduced::<f64>(ctx, most as usize, 2)?;
    reduced::<i32>(ctx, most as usize, 3)?;
    let send = vec![0u64; most as usize + 1];
    let mut receive = vec![9u64; most as usize + 1];
    let sum = post::allreduce(send.as_ptr(), receive.as_mut_ptr(), most + 1, 2, 5);
    sum.gives(GASPI_ERR_INV_NUM, ALL, LONG)?;
    ensure!(receive.iter().all(|v| *v == 9), "a refused call wrote");
    barrier()
}

fn in_place(ctx: &Ctx) -> Verdict {
    for num in [1usize, 7, 255] {
        let mine = (0..num as u64).map(|i| i * 10 + u64::from(ctx.rank));
        let mut values: Vec<u64> = mine.collect();
        let both: *mut u8 = values.as_mut_ptr().cast();
        post::allreduce(both.cast_const(), both, num as u32, 2, 5).ok(ALL, LONG)?;
        let expected: Vec<u64> = (0..num as u64).map(|i| i * 30 + 3).collect();
        ensure_eq!(values, expected, "the sum in place");
    }
    Ok(())
}

fn same_everywhere(ctx: &Ctx) -> Verdict {
    for round in 0..6u64 {
        let mut random = ctx.random(round * 100 + u64::from(ctx.rank));
        let send = [(); 50].map(|()| {
            let exponent = random.below(60) as i32 - 30;
            (random.next() as i64 as f64) * 2f64.powi(exponent)
        });
        let bits = || {
            let mut sum = [0f64; 50];
            post::allreduce(send.as_ptr(), sum.as_mut_ptr(), 50, 2, 3).ok(ALL, LONG)?;
            Ok::<_, String>(sum.map(f64::to_bits))
        };
        let first = bits()?;
        for _ in 0..2 {
            ensure_eq!(bits()?, first, "the bits of the same sum, again");
        }
        let (mut low, mut high) = (vec![0u64; 50], vec![0u64; 50]);
        post::allreduce(first.as_ptr(), low.as_mut_ptr(), 50, 0, 5).ok(ALL, LONG)?;
        post::allreduce(first.as_ptr(), high.as_mut_ptr(), 50, 1, 5).ok(ALL, LONG)?;
        ensure_eq!(low, high, "the bits of a sum at all members");
    }
    Ok(())
}

fn allreduce_continues(ctx: &Ctx) -> Verdict {
    let mut random = ctx.random(u64::from(ctx.rank));
    for round in 1..=12u64 {
        let send = [round, round * u64::from(ctx.rank)];
        let mut receive = [0u64; 2];
        let sum = post::allreduce(send.as_ptr(), receive.as_mut_ptr(), 2, 2, 5);
        repeat("gaspi_allreduce", || sum.code(ALL, patience(&mut random)))?;
        ensure_eq!(receive, [4 * round, 6 * round], "the sums of round {round}");
    }
    Ok(())
}

fn send_buffer_is_copied(ctx: &Ctx) -> Verdict {
    let late = ctx.random(0).below(3) as u32;
    for round in 1..=3u64 {
        let mut send = [round + u64::from(ctx.rank)];
        let mut receive = [0u64];
        if ctx.rank == late {
            pause(8);
        }
        let timeouts = repeat("gaspi_allreduce", || {
            let sum = post::allreduce(send.as_ptr(), receive.as_mut_ptr(), 1, 2, 5);
            let code = sum.code(ALL, TEST);
            // The library does not read the buffer any more.
            send[0] = 1_000_000;
            code
        })?;
        let what = format!("the sum of round {round} after {timeouts} timeouts");
        ensure_eq!(receive[0], 3 * round + 3, "{what}");
        barrier()?;
    }
    Ok(())
}

fn reduction_synchronises(ctx: &Ctx) -> Verdict {
    let memory = segment(0, 8)?;
    let n = u64::from(ctx.size);
    let mut random = ctx.random(u64::from(ctx.rank));
    for round in 1..=10u64 {
        if random.below(3) == 0 {
            pause(1);
        }
        count_at_all(ctx)?;
        ensure_eq!(sum_of_all(round)?, n * round, "the sum of round {round}");
        let seen = memory.get(0);
        ensure!(seen >= round * n, "{seen} of {} had come", round * n);
    }
    Ok(())
}

fn barrier_and_reduction(ctx: &Ctx) -> Verdict {
    for round in 1..=15u64 {
        // The order of the two calls differs from rank to rank.
        threads(2, |i| {
            if (i as u64 + u64::from(ctx.rank) + round).is_multiple_of(2) {
                std::thread::yield_now();
            }
            match i {
                0 => barrier(),
                _ => equal!(sum_of_all(round)?, 3 * round, "the sum of round {round}"),
            }
        })?;
    }
    // One thread has both in progress at once.
    for round in 1..=10u64 {
        let (send, mut receive) = ([round], [0u64]);
        let (mut met, mut summed) = (false, false);
        let mut looks = Looks::new();
        let sum = post::allreduce(send.as_ptr(), receive.as_mut_ptr(), 1, 2, 5);
        let ended = |code, what| match code {
            TIMEOUT => Ok(false),
            code => one_of(code, &[SUCCESS], what).map(|()| true),
        };
        while !met || !summed {
            looks.again();
            met = met || ended(c!(gaspi_barrier(ALL, TEST)), "gaspi_barrier")?;
            summed = summed || ended(sum.code(ALL, TEST), "gaspi_allreduce")?;
        }
        ensure_eq!(receive[0], 3 * round, "the sum beside a barrier");
    }
    Ok(())
}

fn queues_are_independent(ctx: &Ctx) -> Verdict {
    segment(0, 64)?;
    for _ in 0..3 {
        ok!(gaspi_write(0, 0, right(ctx), 0, 8, 8, 0, LONG));
    }
    barrier()?;
    sum_of_all(1)?;
    ensure_eq!(queue_size(0)?, 3, "queue size after collective operations");
    for queue in 1..8 {
        ensure_eq!(queue_size(queue)?, 0, "size of queue {queue}");
    }
    flush(0)?;
    barrier()
}

fn threads_in_turn(ctx: &Ctx) -> Verdict {
    const ROUNDS: u64 = 30;
    threads(3, |_| {
        for _ in 0..ROUNDS {
            barrier()?;
            ensure_eq!(sum_of_all(1)?, u64::from(ctx.size), "a sum of ones");
        }
        Ok(())
    })
}
