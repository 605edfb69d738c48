//! §2.3.4, §3.8.1: results of reductions at barrier gates.

use super::barrier::shapes;
use super::circuit::*;
use super::kit::*;
use crate::law::Random;

laws! {
    integers circuits(shapes(4)): "barrier.reduce_uint64", "§3.8.1.2", 4, [reduce_uint64, poll_reduce_uint64] + ordering,
        "BAND, BOR, BXOR, MAX, MAXLOC and SUM of 1 to 6 integers give the same right values everywhere and change no element more";
    ties circuits(of_four()): "barrier.maxloc", "§2.3.4", 4, [reduce_uint64, poll_reduce_uint64],
        "MAXLOC takes pairs: the smallest location of equal values wins, on any process";
    doubles circuits(shapes(4)): "barrier.reduce_double", "§3.8.1.3", 4, [reduce_double, poll_reduce_double] + ordering,
        "BFPSUM of 1 to 3 doubles is the exact sum rounded once, the same bits everywhere and in every circuit";
    special_doubles circuits(of_four()): "barrier.reduce_double.special", "§2.3.4", 4, [reduce_double, poll_reduce_double],
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

fn integers(job: &Job<'_>, circuit: &Circuit, _: u64) -> Verdict {
    for op in [BAND, BOR, BXOR, MAX, MAXLOC, SUM] {
        for count in (1..=6).filter(|count| op != MAXLOC || count % 2 == 0) {
            let round = u64::from(op) << 8 | count as u64;
            let inputs: Vec<Vec<u64>> = (0..circuit.participants())
                .map(|who| contribution(job.ctx, round, who))
                .collect();
            let expected = reduced(op, &inputs);
            circuit.integers(op, count, |who| inputs[who].clone(), &expected)?;
        }
    }
    Ok(())
}

fn ties(_: &Job<'_>, circuit: &Circuit, end: u64) -> Verdict {
    for winner in 0..4 {
        let input = |who: usize| {
            let far = (who + 4 - winner) as u64 % 4;
            let wins = u64::from(who == winner);
            // All equal; one greater at the winner; equal at all but the winner.
            [
                9,
                100 + far,
                wins,
                u64::MAX - far,
                u64::MAX - wins,
                10 * far,
            ]
            .to_vec()
        };
        let expected = [9, 100, 1, u64::MAX, u64::MAX, 10];
        circuit.integers(MAXLOC, 6, input, &expected)?;
    }
    // An odd number has no pairs.
    for count in [1, 3, 5] {
        let code = start(end, MAXLOC, &[1; 6][..count]);
        code_is(code, UTOFU_ERR_INVALID_NUMBER, format!("MAXLOC of {count}"))?;
    }
    Ok(())
}

/// An integer of up to 53 significant bits, at a scale from 2^0 to 2^93.
fn wide_integer(random: &mut Random) -> i128 {
    let bits = random.next() >> (11 + random.below(50));
    let value = i128::from(bits) << random.below(40);
    if random.below(2) == 0 { value } else { -value }
}

fn doubles(job: &Job<'_>, circuit: &Circuit, _: u64) -> Verdict {
    let all = circuit.participants() as u64;
    for round in 0..if job.ctx.is_quick() { 30u64 } else { 9 } {
        let count = 1 + (round % 3) as usize;
        // Sums of integers that i128 holds exactly; its conversion rounds once, to even. Scaling by a power of two is exact.
        let scale = 2f64.powi(job.ctx.random(round).below(1000) as i32 - 500);
        let inputs: Vec<[i128; 3]> = (0..all)
            .map(|who| {
                let mut random = job.ctx.random(all << 32 | round << 8 | who);
                [(); 3].map(|()| wide_integer(&mut random))
            })
            .collect();
        let scaled = |integers: [i128; 3]| integers.map(|integer| integer as f64 * scale);
        let sums = [0, 1, 2].map(|nth| inputs.iter().map(|input| input[nth]).sum());
        circuit.doubles(count, |who| scaled(inputs[who]).to_vec(), &scaled(sums))?;
    }
    Ok(())
}

fn special_doubles(job: &Job<'_>, circuit: &Circuit, _: u64) -> Verdict {
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
    Ok(())
}
