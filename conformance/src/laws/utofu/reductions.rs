//! §2.3.4, §3.8.1: results of reductions at barrier gates.

use super::barrier::shapes;
use super::circuit::*;
use super::kit::*;
use crate::law::Random;

laws! {
    integers with(TABLE + 8): "barrier.reduce_uint64", "§3.8.1.2", 4, [reduce_uint64, poll_reduce_uint64] + ordering,
        "BAND, BOR, BXOR, MAX, MAXLOC and SUM of 1 to 6 integers give the same right values everywhere and change no element more";
    ties with(TABLE + 8): "barrier.maxloc", "§2.3.4", 4, [reduce_uint64, poll_reduce_uint64],
        "MAXLOC takes pairs: of equal values the smaller location wins, whoever has it";
    doubles with(TABLE + 8): "barrier.reduce_double", "§3.8.1.3", 4, [reduce_double, poll_reduce_double] + ordering,
        "BFPSUM of 1 to 3 doubles is the exact sum rounded once, the same bits everywhere and in every circuit";
    special_doubles with(TABLE + 8): "barrier.reduce_double.special", "§2.3.4", 4, [reduce_double, poll_reduce_double],
        "BFPSUM cancels exactly, keeps subnormal numbers, and gives infinities and NaN where they belong";
}

/// The input of a participant in a round.
fn contribution(ctx: &Ctx, round: u64, who: usize) -> Vec<u64> {
    let mut random = ctx.random(round << 8 | who as u64);
    // A few values, so that equal maxima are frequent, and some random ones.
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

fn integers(job: &Job<'_>) -> Verdict {
    let mut round = 0;
    for (name, plan) in shapes(4) {
        let circuit = Circuit::build(job, plan, TNI)?;
        for op in [BAND, BOR, BXOR, MAX, MAXLOC, SUM] {
            for count in (1..=6).filter(|count| op != MAXLOC || count % 2 == 0) {
                round += 1;
                let inputs: Vec<Vec<u64>> = (0..circuit.participants())
                    .map(|who| contribution(job.ctx, round, who))
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
}

fn ties(job: &Job<'_>) -> Verdict {
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
                gives! { UTOFU_ERR_INVALID_NUMBER:
                    utofu_reduce_uint64(end, MAXLOC, data.as_ptr().cast_mut(), count, 0);
                }
            }
        }
        circuit.free()?;
        job.meet();
    }
    Ok(())
}

/// An integer of up to 53 significant bits, at a scale from 2^0 to 2^93.
fn wide_integer(random: &mut Random) -> i128 {
    let bits = random.next() >> (11 + random.below(50));
    let value = i128::from(bits) << random.below(40);
    if random.below(2) == 0 { value } else { -value }
}

fn doubles(job: &Job<'_>) -> Verdict {
    for (index, (name, plan)) in shapes(4).into_iter().enumerate() {
        let circuit = Circuit::build(job, plan, TNI)?;
        for round in 0..if job.ctx.is_quick() { 30u64 } else { 9 } {
            let count = 1 + (round % 3) as usize;
            // Sums of integers that i128 holds exactly; its conversion rounds once, to even. Scaling by a power of two is exact.
            let scale = 2f64.powi(job.ctx.random(round).below(1000) as i32 - 500);
            let inputs: Vec<Vec<i128>> = (0..circuit.participants())
                .map(|who| {
                    let mut random = job
                        .ctx
                        .random((index as u64) << 32 | round << 8 | who as u64);
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
}

fn special_doubles(job: &Job<'_>) -> Verdict {
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
    for plan in [butterfly(4), ring(4), tree(4)] {
        let circuit = Circuit::build(job, plan, TNI)?;
        for (nth, (terms, sum)) in cases.iter().enumerate() {
            // If rounds take long, only one rank has the first term; the seed selects it.
            let turns = if job.ctx.is_quick() { 4 } else { 1 };
            for turn in (nth + (job.ctx.seed % 4) as usize..).take(turns) {
                // A sum of very different magnitudes between simple ones.
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
}
