//! §2.3, §3.4, §3.8: barrier gates, circuits, barriers and reductions.

use std::time::{Duration, Instant};

use unipgas::utofu::status::Code;
use unipgas::utofu::vbg::VbgSetting;

use super::circuit::*;
use super::kit::*;
use crate::law::{Ctx, Random, Verdict};
use crate::{ensure, ensure_eq};

laws! {
    all_have_started: "barrier.circuits", "§2.3.2", 8,
        [alloc_vbg, set_vbg, barrier, poll_barrier, free_vbg] + ordering,
        "in butterflies of 2, 4, 8 and of 10 as in figure 2.17, in rings and trees: who has completed a barrier knows that all have started it";
    many_rounds: "barrier.rounds", "§3.4", 4, [barrier, poll_barrier],
        "a circuit that has been built is used any number of times";
    integers: "barrier.reduce_uint64", "§3.8.1.2", 4, [reduce_uint64, poll_reduce_uint64] + ordering,
        "BAND, BOR, BXOR, MAX, MAXLOC and SUM of 1 to 6 integers give the same right values everywhere and change no element more";
    ties: "barrier.maxloc", "§2.3.4", 4, [reduce_uint64, poll_reduce_uint64],
        "MAXLOC takes pairs: of equal values the smaller location wins, whoever has it";
    doubles: "barrier.reduce_double", "§3.8.1.3", 4, [reduce_double, poll_reduce_double] + ordering,
        "BFPSUM of 1 to 3 doubles is the exact sum rounded once, the same bits everywhere and in every circuit";
    special_doubles: "barrier.reduce_double.special", "§2.3.4", 4, [reduce_double, poll_reduce_double],
        "BFPSUM cancels exactly, keeps subnormal numbers, and gives infinities and NaN where they belong";
    several_at_once: "barrier.several", "§2.3.3", 4, [alloc_vbg, barrier, reduce_uint64, poll_barrier, poll_reduce_uint64] + ordering,
        "circuits on different VBGs, of the same TNI and of others, carry different operations at the same time";
    mismatch: "barrier.mismatch", "§3.8", 4, [barrier, reduce_uint64, reduce_double, poll_barrier, poll_reduce_uint64, poll_reduce_double],
        "participants who start different functions, operations or numbers of elements get MISMATCH, no data, and can go on";
    busy: "barrier.busy", "§3.8.1.1", 2, [barrier, poll_barrier, reduce_uint64, poll_reduce_uint64, reduce_double, poll_reduce_double],
        "a circuit that is in use cannot be started again, and one that has not been started cannot be polled: BUSY";
    set_again: "barrier.set_again", "§3.4.2.1", 4, [set_vbg, barrier, poll_barrier],
        "set_vbg on VBGs that are set: the last call takes effect, in any order of VBGs and for a part of them";
    info: "barrier.query_vbg_info", "§3.4.3.1", 2, [alloc_vbg, query_vbg_info],
        "a VBG id, of this process or another, tells coordinates, TNI and BG; the first of an array can start, the others are relays";
    free_and_again: "barrier.free", "§3.4.1.2", 2, [alloc_vbg, free_vbg, set_vbg, barrier, poll_barrier],
        "VBGs that were freed are allocated again, and circuits of them work";
    asleep: "barrier.relay-asleep", "§2.3.1", 4, [barrier, poll_barrier, reduce_uint64, poll_reduce_uint64],
        "gates send on what they have received although their process calls nothing after its start";
    beside: "barrier.neighbours", "§2.3.1, §2.3.2", 4, [reduce_uint64, poll_reduce_uint64] + ordering,
        "a circuit of gates between neighbours waits for these alone: those further away may be rounds behind or ahead";
    not_before: "barrier.not-before", "§3.8.2.1", 3, [barrier, poll_barrier],
        "polling returns NOT_COMPLETED at once while a participant has not started";
}

/// The code that polling ends with.
fn ends_with(what: &str, code: Code, poll: impl FnMut() -> i32) -> Verdict {
    let seen = ended(what, poll)?;
    ensure!(
        seen == code as i32,
        "{what} gave {} instead of {code:?}",
        code_name(seen)
    );
    Ok(())
}

/// Adds to the word behind the table at rank 0 and gives what was there.
fn add(job: &Job<'_>, value: u64) -> Result<u64, String> {
    ok!(utofu_armw8(
        job.hdl,
        job.vcq(0),
        ADD,
        value,
        job.at(0, TABLE),
        0,
        LOCAL,
        cb(0)
    ));
    Ok(job.queue.notice(LCL_ARMW)?.rmt_value)
}

fn shapes(most: usize) -> Vec<(&'static str, Plan)> {
    let mut all = vec![
        ("butterfly of 2", butterfly(2)),
        ("butterfly of 4", butterfly(4)),
        ("ring of 2", ring(2)),
        ("ring of 3", ring(3)),
        ("tree of 4", tree(4)),
        ("folded butterfly of 3", folded(3)),
    ];
    if most > 4 {
        all.extend([
            ("butterfly of 8", butterfly(8)),
            ("folded butterfly of 10", folded(10)),
            ("ring of 7", ring(7)),
            ("tree of 8", tree(8)),
        ]);
    }
    all
}

fn all_have_started(ctx: &Ctx) -> Verdict {
    with(ctx, TABLE + 8, |job| {
        let mut random = ctx.random(u64::from(ctx.rank));
        for (name, plan) in shapes(8) {
            let circuit = Circuit::build(job, plan, TNI)?;
            let all = circuit.participants() as u64;
            if job.rank == 0 {
                job.memory.set(TABLE, 0);
            }
            job.meet();
            for round in 1..=6 {
                for end in circuit.ends() {
                    if random.below(4) == 0 {
                        pause(random.below(2));
                    }
                    add(job, 1)?;
                    ok!(utofu_barrier(end, 0));
                }
                for end in circuit.ends() {
                    completed(name, || c!(utofu_poll_barrier(end, 0)))?;
                    let seen = add(job, 0)?;
                    ensure!(
                        seen >= all * round,
                        "{name}, round {round}: completed after {seen} starts instead of {}",
                        all * round
                    );
                }
            }
            job.meet();
            circuit.free()?;
        }
        Ok(())
    })
}

fn many_rounds(ctx: &Ctx) -> Verdict {
    with(ctx, TABLE + 8, |job| {
        for plan in [butterfly(4), ring(4), tree(4)] {
            let circuit = Circuit::build(job, plan, TNI)?;
            // More than the counters of a gate hold.
            for _ in 0..3000 {
                circuit.barrier()?;
            }
            circuit.integers(SUM, 1, |_| vec![1], &[4])?;
            job.meet();
            circuit.free()?;
        }
        Ok(())
    })
}

/// What a participant contributes in a round.
fn contribution(ctx: &Ctx, round: u64, who: usize) -> Vec<u64> {
    let mut random = ctx.random(round << 8 | who as u64);
    // Few values, so that maxima are equal often; now and then any.
    (0..6)
        .map(|_| match random.below(3) {
            0 => random.next(),
            1 => u64::MAX - random.below(2),
            _ => random.below(3),
        })
        .collect()
}

fn reduced(op: u32, inputs: &[Vec<u64>]) -> Vec<u64> {
    let mut result = inputs[0].clone();
    for input in &inputs[1..] {
        if op == MAXLOC {
            for pair in 0..3 {
                let (value, place) = (input[2 * pair], input[2 * pair + 1]);
                let best = (result[2 * pair], result[2 * pair + 1]);
                if value > best.0 || value == best.0 && place < best.1 {
                    result[2 * pair] = value;
                    result[2 * pair + 1] = place;
                }
            }
            continue;
        }
        for (a, b) in result.iter_mut().zip(input) {
            *a = match op {
                BAND => *a & b,
                BOR => *a | b,
                BXOR => *a ^ b,
                MAX => (*a).max(*b),
                _ => a.wrapping_add(*b),
            };
        }
    }
    result
}

fn integers(ctx: &Ctx) -> Verdict {
    with(ctx, TABLE + 8, |job| {
        let mut round = 0;
        for (name, plan) in shapes(4) {
            let circuit = Circuit::build(job, plan, TNI)?;
            for op in [BAND, BOR, BXOR, MAX, MAXLOC, SUM] {
                for count in (1..=6).filter(|count| op != MAXLOC || count % 2 == 0) {
                    round += 1;
                    let inputs: Vec<Vec<u64>> = (0..circuit.participants())
                        .map(|who| contribution(ctx, round, who))
                        .collect();
                    let expected = reduced(op, &inputs);
                    circuit
                        .integers(op, count, |who| inputs[who].clone(), &expected)
                        .map_err(|e| format!("{name}: {e}"))?;
                }
            }
            circuit.free()?;
            job.meet();
        }
        Ok(())
    })
}

fn ties(ctx: &Ctx) -> Verdict {
    with(ctx, TABLE + 8, |job| {
        for plan in [butterfly(4), ring(4), tree(4)] {
            let circuit = Circuit::build(job, plan, TNI)?;
            for winner in 0..4 {
                let input = |who: usize| {
                    let far = (who + 4 - winner) as u64 % 4;
                    // All equal; one greater at the winner; equal at all but the winner.
                    let below = u64::from(who == winner);
                    vec![
                        9,
                        100 + far,
                        u64::from(who == winner),
                        u64::MAX - far,
                        u64::MAX - below,
                        10 * far,
                    ]
                };
                let expected = [9, 100, 1, u64::MAX, u64::MAX, 10];
                circuit.integers(MAXLOC, 6, input, &expected)?;
            }
            // An odd number has no pairs.
            for end in circuit.ends() {
                let data = [1u64; 6];
                for count in [1, 3, 5] {
                    gives!(
                        InvalidNumber,
                        utofu_reduce_uint64(end, MAXLOC, data.as_ptr(), count, 0)
                    );
                }
            }
            circuit.free()?;
            job.meet();
        }
        Ok(())
    })
}

/// A number of up to 53 bits somewhere in 2^0 to 2^93, as an integer.
fn wide_integer(random: &mut Random) -> i128 {
    let bits = random.next() >> (11 + random.below(50));
    let value = i128::from(bits) << random.below(40);
    if random.below(2) == 0 { value } else { -value }
}

fn doubles(ctx: &Ctx) -> Verdict {
    with(ctx, TABLE + 8, |job| {
        for (index, (name, plan)) in shapes(4).into_iter().enumerate() {
            let circuit = Circuit::build(job, plan, TNI)?;
            for round in 0..30u64 {
                let count = 1 + (round % 3) as usize;
                // Sums of integers that i128 holds exactly; its conversion rounds once, to even. Scaling by a power of two is exact.
                let scale = 2f64.powi(ctx.random(round).below(1000) as i32 - 500);
                let inputs: Vec<Vec<i128>> = (0..circuit.participants())
                    .map(|who| {
                        let mut random = ctx.random((index as u64) << 32 | round << 8 | who as u64);
                        (0..3).map(|_| wide_integer(&mut random)).collect()
                    })
                    .collect();
                let expected: Vec<f64> = (0..3)
                    .map(|nth| inputs.iter().map(|input| input[nth]).sum::<i128>() as f64 * scale)
                    .collect();
                let input = |who: usize| {
                    inputs[who]
                        .iter()
                        .map(|value| *value as f64 * scale)
                        .collect()
                };
                circuit
                    .doubles(count, input, &expected)
                    .map_err(|e| format!("{name}: {e}"))?;
            }
            circuit.free()?;
            job.meet();
        }
        Ok(())
    })
}

fn special_doubles(ctx: &Ctx) -> Verdict {
    let (big, tiny, inf) = (f64::MAX, f64::from_bits(1), f64::INFINITY);
    let cases = [
        ([big, big, -big, -big], 0.0),
        ([big, 1.0, -big, 0.0], 1.0),
        (
            [1.0, 2f64.powi(-53), 2f64.powi(-106), 0.0],
            1.0 + f64::EPSILON,
        ),
        ([1.0, 2f64.powi(-53), 0.0, 0.0], 1.0),
        ([tiny, tiny, tiny, -tiny], 2.0 * tiny),
        (
            [f64::MIN_POSITIVE, -tiny, 0.0, 0.0],
            f64::MIN_POSITIVE - tiny,
        ),
        ([big, big, 0.0, 0.0], inf),
        ([inf, 1.0, -big, 0.0], inf),
        ([-inf, big, big, big], -inf),
        ([inf, -inf, 1.0, 1.0], f64::NAN),
        ([f64::NAN, 1.0, 1.0, inf], f64::NAN),
        ([-0.0, -0.0, -0.0, -0.0], -0.0),
        ([-0.0, 0.0, -0.0, -0.0], 0.0),
        ([1e-300, 1e300, -1e300, 0.0], 1e-300),
    ];
    with(ctx, TABLE + 8, |job| {
        for plan in [butterfly(4), ring(4), tree(4)] {
            let circuit = Circuit::build(job, plan, TNI)?;
            for (nth, (terms, sum)) in cases.iter().enumerate() {
                for turn in 0..4 {
                    // A wide sum beside narrow ones.
                    let input = |who: usize| vec![1.5, terms[(who + turn) % 4], -0.25];
                    circuit
                        .doubles(3, input, &[6.0, *sum, -1.0])
                        .map_err(|e| format!("case {nth}, {terms:?}: {e}"))?;
                }
            }
            circuit.free()?;
            job.meet();
        }
        Ok(())
    })
}

fn several_at_once(ctx: &Ctx) -> Verdict {
    with(ctx, TABLE + 8, |job| {
        let mut circuits = Vec::new();
        for tni in 0..6 {
            for plan in [butterfly(4), ring(4), tree(4)] {
                circuits.push(Circuit::build(job, plan, tni)?);
            }
        }
        // All ranks the same order of starts, or each its own: circuits know nothing of each other.
        let mut random = ctx.random(u64::from(ctx.rank) + 77);
        for round in 0..20u64 {
            let mut order: Vec<usize> = (0..circuits.len()).collect();
            for i in (1..order.len()).rev() {
                order.swap(i, random.below(i as u64 + 1) as usize);
            }
            for nth in &order {
                let end = circuits[*nth].ends()[0];
                if nth.is_multiple_of(3) {
                    ok!(utofu_barrier(end, 0));
                } else {
                    let data = [round + *nth as u64, u64::from(ctx.rank)];
                    ok!(utofu_reduce_uint64(end, SUM, data.as_ptr(), 2, 0));
                }
            }
            let mut left: Vec<usize> = order;
            let mut looks = Looks::new();
            while !left.is_empty() {
                let nth = left[random.below(left.len() as u64) as usize];
                let end = circuits[nth].ends()[0];
                let mut data = [0u64; 2];
                let code = if nth.is_multiple_of(3) {
                    c!(utofu_poll_barrier(end, 0))
                } else {
                    c!(utofu_poll_reduce_uint64(end, 0, data.as_mut_ptr()))
                };
                match code {
                    NOT_COMPLETED => looks.again(),
                    SUCCESS => {
                        if !nth.is_multiple_of(3) {
                            let expected = [4 * (round + nth as u64), 6];
                            ensure_eq!(data, expected, "sum of circuit {nth}");
                        }
                        left.retain(|other| *other != nth);
                    }
                    code => return Err(format!("circuit {nth} gave {}", code_name(code))),
                }
            }
        }
        job.meet();
        circuits.into_iter().try_for_each(Circuit::free)
    })
}

/// Starts something of this kind with this number of elements: 0 a barrier, 8 doubles, else integers.
fn start_any(end: u64, op: u32, count: usize) -> i32 {
    let (integers, doubles) = ([1u64; 6], [1f64; 3]);
    match op {
        0 => c!(utofu_barrier(end, 0)),
        BFPSUM => c!(utofu_reduce_double(end, op, doubles.as_ptr(), count, 0)),
        _ => c!(utofu_reduce_uint64(end, op, integers.as_ptr(), count, 0)),
    }
}

/// Polls it; fails if data was written without a success.
fn poll_any(end: u64, op: u32) -> Result<i32, String> {
    let mut data = [UNTOUCHED; 6];
    let code = ended("polling", || match op {
        0 => c!(utofu_poll_barrier(end, 0)),
        BFPSUM => c!(utofu_poll_reduce_double(end, 0, data.as_mut_ptr().cast())),
        _ => c!(utofu_poll_reduce_uint64(end, 0, data.as_mut_ptr())),
    })?;
    ensure!(
        code == SUCCESS || data == [UNTOUCHED; 6],
        "data was written with {}",
        code_name(code)
    );
    Ok(code)
}

fn mismatch(ctx: &Ctx) -> Verdict {
    let pairs = [
        ((SUM, 2), (MAX, 2)),
        ((SUM, 2), (SUM, 3)),
        ((0, 0), (SUM, 1)),
        ((BFPSUM, 1), (SUM, 1)),
        ((BFPSUM, 1), (BFPSUM, 2)),
        ((0, 0), (BFPSUM, 3)),
        ((BAND, 6), (BOR, 6)),
        ((MAXLOC, 2), (MAX, 2)),
    ];
    with(ctx, TABLE + 8, |job| {
        for plan in [butterfly(4), ring(4), tree(4)] {
            let circuit = Circuit::build(job, plan, TNI)?;
            let end = circuit.ends()[0];
            for (usual, other) in pairs {
                for odd in 0..4 {
                    let (op, count) = if job.rank == odd { other } else { usual };
                    let code = start_any(end, op, count);
                    ensure_eq!(code, SUCCESS, "starting operation {op}");
                    let code = poll_any(end, op)?;
                    ensure_eq!(
                        code,
                        Code::BarrierMismatch as i32,
                        "{usual:?}, but {other:?} at rank {odd}"
                    );
                }
                // The round is over, and the circuit as good as new.
                circuit.integers(SUM, 1, |_| vec![2], &[8])?;
            }
            job.meet();
            circuit.free()?;
        }
        Ok(())
    })
}

fn busy(ctx: &Ctx) -> Verdict {
    with(ctx, TABLE + 8, |job| {
        let circuit = Circuit::build(job, butterfly(2), TNI)?;
        let end = circuit.ends()[0];
        let (mut integers, mut doubles) = ([UNTOUCHED; 6], [7f64; 3]);
        let nothing_started = |integers: &mut [u64; 6], doubles: &mut [f64; 3]| -> Verdict {
            gives!(Busy, utofu_poll_barrier(end, 0));
            gives!(
                Busy,
                utofu_poll_reduce_uint64(end, 0, integers.as_mut_ptr())
            );
            gives!(Busy, utofu_poll_reduce_double(end, 0, doubles.as_mut_ptr()));
            ensure_eq!(*integers, [UNTOUCHED; 6], "data of a poll without a start");
            ensure_eq!(*doubles, [7f64; 3], "data of a poll without a start");
            Ok(())
        };
        for op in [0, SUM, BFPSUM] {
            nothing_started(&mut integers, &mut doubles)?;
            ensure_eq!(start_any(end, op, 2), SUCCESS, "the first start");
            for again in [0, SUM, BFPSUM] {
                let code = start_any(end, again, 2);
                ensure_eq!(code, BUSY, "starting {again} while {op} is under way");
            }
            // What was started is not what another function polls.
            if op != 0 {
                gives!(Busy, utofu_poll_barrier(end, 0));
            }
            if op != SUM {
                gives!(
                    Busy,
                    utofu_poll_reduce_uint64(end, 0, integers.as_mut_ptr())
                );
            }
            ensure_eq!(poll_any(end, op)?, SUCCESS, "the round after all that");
            // It has ended at both before it is polled in vain.
            job.meet();
        }
        nothing_started(&mut integers, &mut doubles)?;
        // Completed, but not looked at: still in use.
        ok!(utofu_barrier(end, 0));
        job.meet();
        gives!(Busy, utofu_barrier(end, 0));
        completed("the barrier", || c!(utofu_poll_barrier(end, 0)))?;
        job.meet();
        circuit.free()
    })
}

/// A gate that gets nothing and sends nothing.
fn take_apart(setting: &mut VbgSetting) {
    setting.src_lcl_vbg_id = NULL;
    setting.src_rmt_vbg_id = NULL;
    setting.dst_lcl_vbg_id = NULL;
    setting.dst_rmt_vbg_id = NULL;
}

fn set_again(ctx: &Ctx) -> Verdict {
    with(ctx, TABLE + 8, |job| {
        let mut circuit = Circuit::build_spare(job, butterfly(4), TNI, 4)?;
        circuit.barrier()?;
        let mut random = ctx.random(u64::from(ctx.rank));
        for (nth, plan) in [
            ring(4),
            tree(4),
            butterfly(4),
            ring(3),
            ring(4),
            butterfly(2),
        ]
        .into_iter()
        .enumerate()
        {
            // A round that is never completed, since one does not start it.
            if job.rank != 0 && nth % 2 == 0 && (job.rank as usize) < circuit.plan.0.len() {
                ok!(utofu_barrier(circuit.ends()[0], 0));
            }
            job.meet();
            // What is on its way in that round must not come to the next circuit: none is sent any more, then all has come.
            for _ in 0..2 {
                if (job.rank as usize) < circuit.plan.0.len() {
                    circuit.set(|settings| settings.iter_mut().for_each(take_apart))?;
                }
                job.meet();
            }
            circuit.plan = plan;
            let among = (job.rank as usize) < circuit.plan.0.len();
            if among {
                let turns = random.below(4) as usize;
                circuit.set(|settings| {
                    let others = settings.len() - 1;
                    settings[1..].rotate_left(turns % others.max(1));
                })?;
            }
            job.meet();
            if among {
                let all = circuit.plan.0.len() as u64;
                let wide = circuit.mine.clone();
                ensure_eq!(wide, [job.rank as usize], "participants of this rank");
                for round in 0..3 {
                    circuit
                        .integers(SUM, 2, |_| vec![1, round], &[all, all * round])
                        .map_err(|e| format!("circuit {nth} on the same VBGs: {e}"))?;
                }
            }
            job.meet();
        }
        circuit.free()
    })
}

fn info(ctx: &Ctx) -> Verdict {
    with(ctx, TABLE + 8, |job| {
        for tni in 0..6 {
            let circuit = Circuit::build_spare(job, butterfly(2), tni, 5)?;
            let mut seen = Vec::new();
            for (who, ids) in circuit.ids.iter().enumerate() {
                for (nth, id) in ids.iter().enumerate() {
                    let mut at = [0xee; 7];
                    let (mut on, mut bg, mut extra) = (99, 99, 0);
                    ok!(utofu_query_vbg_info(
                        *id,
                        at.as_mut_ptr(),
                        &mut on,
                        &mut bg,
                        &mut extra
                    ));
                    let expected = coords((who % circuit.ranks) as u32)?;
                    ensure_eq!(at[..6], expected, "coordinates of VBG {id:#x}");
                    ensure_eq!(at[6], 0xee, "the byte behind the coordinates");
                    ensure_eq!(on, tni, "the TNI of VBG {id:#x}");
                    ensure!(bg < 48, "BG {bg} of VBG {id:#x}");
                    ensure_eq!(bg < 16, nth == 0, "whether BG {bg} starts and ends");
                    ensure!(*id != NULL, "a VBG has the null id");
                    seen.push(*id);
                }
            }
            seen.sort_unstable();
            seen.dedup();
            ensure_eq!(seen.len(), 12, "different VBG ids");
            job.meet();
            circuit.free()?;
        }
        Ok(())
    })
}

fn free_and_again(ctx: &Ctx) -> Verdict {
    with(ctx, TABLE + 8, |job| {
        for round in 0..40 {
            let plan = if round % 2 == 0 {
                butterfly(2)
            } else {
                ring(2)
            };
            let spare = round % 7;
            let circuit = Circuit::build_spare(job, plan, (round % 6) as u16, spare)?;
            circuit.barrier()?;
            circuit.integers(SUM, 1, |_| vec![3], &[6])?;
            if round % 3 == 0 {
                // Freed with a round under way.
                job.meet();
                if job.rank == 0 {
                    ok!(utofu_barrier(circuit.ends()[0], 0));
                }
            }
            job.meet();
            circuit.free()?;
            job.meet();
        }
        Ok(())
    })
}

fn beside(ctx: &Ctx) -> Verdict {
    with(ctx, TABLE + 16, |job| {
        let circuit = Circuit::build(job, neighbours(4), TNI)?;
        let end = circuit.ends()[0];
        let value = |rank: u32, round: u64| u64::from(rank) * 1000 + round;
        let start = |round: u64| {
            let data = [value(job.rank, round), 1];
            ok!(utofu_reduce_uint64(end, SUM, data.as_ptr(), 2, 0));
            Ok(())
        };
        let finish = |round: u64| {
            let mut sum = [0; 2];
            completed("the sum of the neighbours", || {
                c!(utofu_poll_reduce_uint64(end, 0, sum.as_mut_ptr()))
            })?;
            let expected = value(job.left(), round) + value(job.right(), round);
            ensure_eq!(sum, [expected, 2], "the sum in round {round}");
            Ok(())
        };
        // Rank 2 is nobody whom rank 0 waits for.
        if job.rank == 2 {
            job.await_word(TABLE + 8, 1)?;
        }
        start(0)?;
        finish(0)?;
        if job.rank == 0 {
            job.write(2, TABLE + 8, 1)?;
        }
        let mut random = ctx.random(u64::from(job.rank));
        for round in 1..300 {
            if random.below(40) == 0 {
                pause(1);
            }
            start(round)?;
            finish(round)?;
        }
        job.meet();
        circuit.free()
    })
}

fn asleep(ctx: &Ctx) -> Verdict {
    with(ctx, TABLE + 16, |job| {
        for (nth, plan) in [butterfly(4), ring(4), tree(4)].into_iter().enumerate() {
            let circuit = Circuit::build(job, plan, TNI)?;
            let end = circuit.ends()[0];
            for awake in 0..4 {
                let mark = (nth * 4 + awake as usize + 1) as u64;
                let data = [u64::from(job.rank) + 1];
                ok!(utofu_reduce_uint64(end, SUM, data.as_ptr(), 1, 0));
                let mut sum = [0];
                let mut finish = || {
                    completed("the reduction", || {
                        c!(utofu_poll_reduce_uint64(end, 0, sum.as_mut_ptr()))
                    })
                };
                if job.rank == awake {
                    // All others only look at their memory: their part of the circuit must go on without them.
                    finish()?;
                    for other in (0..4).filter(|other| *other != awake) {
                        job.write(other, TABLE + 8, mark)?;
                    }
                } else {
                    let mut looks = Looks::new();
                    while job.memory.get(TABLE + 8) != mark {
                        looks.pause(Duration::from_millis(1));
                    }
                    finish()?;
                }
                ensure_eq!(sum, [10], "the sum");
                job.meet();
            }
            circuit.free()?;
        }
        Ok(())
    })
}

fn not_before(ctx: &Ctx) -> Verdict {
    with(ctx, TABLE + 8, |job| {
        for plan in [ring(3), folded(3), tree(3)] {
            let circuit = Circuit::build(job, plan, TNI)?;
            let end = circuit.ends()[0];
            for late in 0..3 {
                if job.rank != late {
                    ok!(utofu_barrier(end, 0));
                    let start = Instant::now();
                    while start.elapsed().as_millis() < 20 {
                        gives!(NotCompleted, utofu_poll_barrier(end, 0));
                    }
                }
                job.meet();
                if job.rank == late {
                    ok!(utofu_barrier(end, 0));
                }
                completed("the barrier", || c!(utofu_poll_barrier(end, 0)))?;
                job.meet();
            }
            ends_with("a poll behind it", Code::Busy, || {
                c!(utofu_poll_barrier(end, 0))
            })?;
            job.meet();
            circuit.free()?;
        }
        Ok(())
    })
}
