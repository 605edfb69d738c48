//! §2.3, §3.4, §3.8: barrier gates, circuits, barriers and reductions.

use std::time::Instant;

use super::circuit::*;
use super::kit::*;

laws! {
    all_have_started circuits(shapes(8)): "barrier.circuits", "§2.3.2", 8,
        [alloc_vbg, set_vbg, barrier, poll_barrier, free_vbg] + ordering,
        "in butterflies of 2, 4, 8 and of 10 as in figure 2.17, in rings and trees: a process completes a barrier after all have started it";
    many_rounds circuits(of_four()): "barrier.rounds", "§3.4", 4, [barrier, poll_barrier],
        "a circuit that has been built is used any number of times";
    several_at_once with(TABLE + 8): "barrier.several", "§2.3.3", 4, [alloc_vbg, barrier, reduce_uint64, poll_barrier, poll_reduce_uint64] + ordering,
        "circuits on different VBGs, of the same TNI and of others, carry different operations at the same time";
    mismatch circuits(of_four()): "barrier.mismatch", "§3.8", 4, [barrier, reduce_uint64, reduce_double, poll_barrier, poll_reduce_uint64, poll_reduce_double],
        "participants who start different functions, operations or numbers of elements get MISMATCH, no data, and can go on";
    asleep circuits(of_four()): "barrier.relay-asleep", "§2.3.1", 4, [barrier, poll_barrier, reduce_uint64, poll_reduce_uint64],
        "gates send on what they have received although their process calls nothing after its start";
    beside circuit(neighbours(4)): "barrier.neighbours", "§2.3.1, §2.3.2", 4, [reduce_uint64, poll_reduce_uint64] + ordering,
        "a circuit of gates between neighbours waits for these alone: those further away may be rounds behind or ahead";
    not_before circuits([ring(3), folded(3), tree(3)]): "barrier.not-before", "§3.8.2.1", 3, [barrier, poll_barrier],
        "polling returns NOT_COMPLETED at once while a participant has not started";
}

/// Adds to the word behind the table at rank 0; returns the previous value.
fn add(job: &Job<'_>, value: u64) -> Result<u64, String> {
    job.armw8(0, TABLE, ADD, value).before()
}

pub(super) fn shapes(most: usize) -> Vec<Plan> {
    let mut all = vec![
        butterfly(2),
        butterfly(4),
        ring(2),
        ring(3),
        tree(4),
        folded(3),
    ];
    if most > 4 {
        all.extend([butterfly(8), folded(10), ring(7), tree(8)]);
    }
    all
}

fn all_have_started(job: &Job<'_>, circuit: &Circuit, _: u64) -> Verdict {
    let mut random = job.ctx.random(u64::from(job.ctx.rank));
    for round in 1..=6 {
        for end in circuit.ends() {
            if random.below(4) == 0 {
                pause(random.below(2));
            }
            add(job, 1)?;
            ok!(utofu_barrier(end, 0));
        }
        for end in circuit.ends() {
            completed("a barrier", || c!(utofu_poll_barrier(end, 0)))?;
            let (seen, all) = (add(job, 0)?, circuit.participants() as u64 * round);
            ensure!(
                seen >= all,
                "{round}: completed after {seen} starts of {all}"
            );
        }
    }
    Ok(())
}

fn many_rounds(job: &Job<'_>, circuit: &Circuit, _: u64) -> Verdict {
    // More rounds than a gate keeps inputs for.
    for _ in 0..if job.ctx.is_quick() { 3000 } else { 40 } {
        circuit.barrier()?;
    }
    circuit.integers(SUM, 1, |_| vec![1], &[4])
}

fn several_at_once(job: &Job<'_>) -> Verdict {
    let places = (0..6).flat_map(|tni| of_four().map(|plan| (plan, tni)));
    let circuits = places.map(|(plan, tni)| Circuit::build(job, plan, tni));
    let circuits = circuits.collect::<Result<Vec<_>, _>>()?;
    // The ranks start in the same order or in different orders: circuits are independent.
    let mut random = job.ctx.random(u64::from(job.ctx.rank) + 77);
    for round in 0..if job.ctx.is_quick() { 20u64 } else { 5 } {
        let mut order: Vec<usize> = (0..circuits.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i as u64 + 1) as usize);
        }
        let op = |nth: usize| if nth.is_multiple_of(3) { 0 } else { SUM };
        for nth in order.iter().copied() {
            let data = [round + nth as u64, u64::from(job.ctx.rank)];
            let code = start(circuits[nth].ends()[0], op(nth), &data);
            code_is(code, SUCCESS, "starting")?;
        }
        let mut left: Vec<usize> = order;
        let mut looks = Looks::new();
        while !left.is_empty() {
            let nth = left[random.below(left.len() as u64) as usize];
            let mut data = [0u64; 2];
            match poll(circuits[nth].ends()[0], op(nth), &mut data) {
                NOT_COMPLETED => looks.again(),
                SUCCESS => {
                    let sums = [4 * (round + nth as u64), 6];
                    let expected = if op(nth) == SUM { sums } else { [0; 2] };
                    ensure_eq!(data, expected, "sum of circuit {nth}");
                    left.retain(|other| *other != nth);
                }
                code => return Err(format!("circuit {nth} gave {}", code_name(code))),
            }
        }
    }
    job.meet();
    circuits.into_iter().try_for_each(Circuit::free)
}

/// Polls to the end; fails if the poll writes data without success.
pub(super) fn poll_any(end: u64, op: u32) -> Result<i32, String> {
    let mut data = [UNTOUCHED; 6];
    let code = ended("polling", || poll(end, op, &mut data))?;
    ensure!(
        code == SUCCESS || data == [UNTOUCHED; 6],
        "data was written with {}",
        code_name(code)
    );
    Ok(code)
}

fn mismatch(job: &Job<'_>, circuit: &Circuit, end: u64) -> Verdict {
    for (usual, other) in [
        ((SUM, 2), (MAX, 2)),
        ((SUM, 2), (SUM, 3)),
        ((0, 0), (SUM, 1)),
        ((BFPSUM, 1), (SUM, 1)),
        ((BFPSUM, 1), (BFPSUM, 2)),
        ((0, 0), (BFPSUM, 3)),
        ((BAND, 6), (BOR, 6)),
        ((MAXLOC, 2), (MAX, 2)),
    ] {
        for odd in 0..4 {
            let (op, count) = if job.rank == odd { other } else { usual };
            let code = start(end, op, &[1; 6][..count]);
            ensure_eq!(code, SUCCESS, "starting operation {op}");
            let code = poll_any(end, op)?;
            ensure_eq!(code, UTOFU_ERR_BARRIER_MISMATCH, "{usual:?}, {other:?}");
        }
        // The round is over, and the circuit works as before.
        circuit.integers(SUM, 1, |_| vec![2], &[8])?;
    }
    Ok(())
}

fn beside(job: &Job<'_>, _: &Circuit, end: u64) -> Verdict {
    let value = |rank: u32, round: u64| u64::from(rank) * 1000 + round;
    let meet = |round: u64| {
        let mut sum = [value(job.rank, round), 1];
        reduce(end, SUM, &mut sum, 2)?;
        let expected = value(job.left(), round) + value(job.right(), round);
        equal!(sum, [expected, 2], "the sum in round {round}")
    };
    // Rank 0 does not wait for rank 2.
    if job.rank == 2 {
        job.await_word(TABLE + 8, 1)?;
    }
    meet(0)?;
    if job.rank == 0 {
        job.write(2, TABLE + 8, 1)?;
    }
    let mut random = job.ctx.random(u64::from(job.rank));
    for round in 1..if job.ctx.is_quick() { 300 } else { 60 } {
        if random.below(40) == 0 {
            pause(1);
        }
        meet(round)?;
    }
    Ok(())
}

fn asleep(job: &Job<'_>, _: &Circuit, end: u64) -> Verdict {
    for awake in 0..4 {
        let mark = u64::from(awake) + 1;
        let mut sum = [u64::from(job.rank) + 1];
        begin(end, SUM, &sum)?;
        if job.rank != awake {
            until("the mark", || {
                pause(1);
                job.memory.get(TABLE + 8) == mark
            })?;
        }
        finish(end, SUM, &mut sum)?;
        if job.rank == awake {
            // All other ranks only read their memory: their part of the circuit must progress without them.
            for other in (0..4).filter(|other| *other != awake) {
                job.write(other, TABLE + 8, mark)?;
            }
        }
        ensure_eq!(sum, [10], "the sum");
        job.meet();
    }
    Ok(())
}

fn not_before(job: &Job<'_>, _: &Circuit, end: u64) -> Verdict {
    for late in 0..3 {
        if job.rank != late {
            ok!(utofu_barrier(end, 0));
            let start = Instant::now();
            while start.elapsed().as_millis() < 20 {
                gives!(UTOFU_ERR_NOT_COMPLETED, utofu_poll_barrier(end, 0));
            }
        }
        job.meet();
        if job.rank == late {
            ok!(utofu_barrier(end, 0));
        }
        completed("the barrier", || c!(utofu_poll_barrier(end, 0)))?;
        job.meet();
    }
    let code = ended("a poll behind it", || c!(utofu_poll_barrier(end, 0)))?;
    code_is(code, BUSY, "a poll behind it")
}
