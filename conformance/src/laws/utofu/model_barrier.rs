//! §2.3: the inputs of a gate, circuits within one node, and sums that do not depend on the order.

use std::time::Instant;

use super::circuit::*;
use super::kit::*;
use crate::law::Random;

laws! {
    both_inputs with(256): "barrier.both-inputs", "§2.3.1", 2, [set_vbg, reduce_uint64, poll_reduce_uint64],
        "a relay sends when both its signal and its packet have come, in either order, and sends both";
    one_node circuits([ring(6), butterfly(4), tree(5)]): "barrier.one-node", "§2.3.1", 1, [alloc_vbg, set_vbg, barrier, poll_barrier],
        "packets go between the TNIs of a node: a circuit through all six in one process ends when all six have started";
    signals with(256): "barrier.signals", "§2.3.1, §2.3.2", 2, [alloc_vbg, set_vbg],
        "a signal to or from a VBG of another TNI or node is refused; a packet may have any";
    same_bits with(TABLE + 256): "barrier.reduce_double.same-bits", "§2.3.4", 4, [reduce_double, poll_reduce_double] + ordering,
        "BFPSUM gives the same bits at all processes, for each assignment of values, circuit and order of starts";
    elements circuit(butterfly(4)): "barrier.elements", "§2.3.4", 4, [reduce_uint64, poll_reduce_uint64, reduce_double, poll_reduce_double],
        "elements are reduced with those at the same place alone, for every number of elements; pairs with the pair";
    returns circuit(butterfly(2)): "barrier.returns", "§2.3.3", 2, [barrier, poll_barrier, reduce_uint64, put_piggyback8],
        "starting returns at once, and one-sided communication goes on while a barrier is under way";
}

/// Rank 0 has an end gate and a relay. The relay takes the packet of rank 1's end gate and releases both.
fn both_inputs(job: &Job<'_>) -> Verdict {
    let mut ids = [0u64; 2];
    let own = 2 - job.rank as usize;
    ok!(utofu_alloc_vbg(TNI, own, 0, ids.as_mut_ptr()));
    for (nth, id) in ids.iter().enumerate() {
        job.write(job.right(), 8 * nth, *id)?;
    }
    job.meet();
    let theirs = job.memory.words([0, 8]);
    let settings = if job.rank == 0 {
        vec![
            setting(ids[0], [ids[1]; 2], [NULL; 2]),
            setting(ids[1], [ids[0]; 2], [theirs[0]; 2]),
        ]
    } else {
        vec![setting(ids[0], [NULL; 2], [theirs[1]; 2])]
    };
    set_gates(&settings)?;
    job.meet();
    for round in 0..20u64 {
        let mut data = [round + 1 + u64::from(job.rank)];
        let late = round as u32 % 2;
        let addend = data;
        let start = || start(ids[0], SUM, &addend);
        if job.rank != late {
            ensure_eq!(start(), SUCCESS, "starting");
            // The relay has one of its two inputs.
            let begun = Instant::now();
            let mut none = [7u64];
            while begun.elapsed().as_millis() < 3 {
                gives! { UTOFU_ERR_NOT_COMPLETED:
                    utofu_poll_reduce_uint64(ids[0], 0, none.as_mut_ptr());
                }
            }
            ensure_eq!(none, [7], "data before the end");
        }
        job.meet();
        if job.rank == late {
            ensure_eq!(start(), SUCCESS, "starting");
        }
        finish(ids[0], SUM, &mut data)?;
        ensure_eq!(data, [2 * round + 3], "the sum of both inputs");
        job.meet();
    }
    free_gates(&ids[..own])
}

/// One participant on each TNI.
fn one_node(_: &Job<'_>, circuit: &Circuit, _: u64) -> Verdict {
    let ends = circuit.ends();
    for round in 0..30 {
        let late = ends[round % ends.len()];
        let others = || ends.iter().copied().filter(|end| *end != late);
        for end in others() {
            ok!(utofu_barrier(end, 0));
        }
        for end in others() {
            gives!(UTOFU_ERR_NOT_COMPLETED, utofu_poll_barrier(end, 0));
        }
        ok!(utofu_barrier(late, 0));
        for end in &ends {
            completed("a barrier", || c!(utofu_poll_barrier(*end, 0)))?;
        }
    }
    Ok(())
}

fn signals(job: &Job<'_>) -> Verdict {
    let here = gates::<2>(TNI, 0)?;
    let [elsewhere] = gates(TNI + 1, 0)?;
    job.write(job.right(), 0, here[1])?;
    job.meet();
    let theirs = job.memory.get(0);
    for wrong in [elsewhere, theirs] {
        for signals in [[wrong, here[1]], [here[1], wrong], [wrong, wrong]] {
            let code = set_code(&[setting(here[0], signals, [NULL; 2])]);
            let what = format!("signals of {signals:x?}");
            code_is(code, UTOFU_ERR_INVALID_VBG_ID, what)?;
        }
        for packets in [[wrong, NULL], [NULL, wrong], [wrong, wrong]] {
            set_gates(&[setting(here[0], [here[1]; 2], packets)])?;
        }
    }
    job.meet();
    free_gates(&here)?;
    free_gate(elsewhere)
}

/// Any finite double, most of them of similar size, so that rounding matters.
fn any_double(random: &mut Random) -> f64 {
    let near = f64::from_bits(0x3ff0_0000_0000_0000 | random.next() >> 12);
    let value = match random.below(4) {
        0 => near * 2f64.powi(random.below(120) as i32 - 60),
        1 => near * 2f64.powi(random.below(1000) as i32 - 500),
        2 => f64::from_bits(random.next() >> 12),
        _ => near,
    };
    if random.below(2) == 0 { value } else { -value }
}

fn same_bits(job: &Job<'_>) -> Verdict {
    let circuits = of_four().into_iter().zip(0..);
    let circuits = circuits.map(|(plan, tni)| Circuit::build(job, plan, tni));
    let circuits = circuits.collect::<Result<Vec<_>, _>>()?;
    let mut pauses = job.ctx.random(u64::from(job.rank) + 50);
    for round in 0..if job.ctx.is_quick() { 12 } else { 4 } {
        let mut random = job.ctx.random(round);
        let terms: Vec<[f64; 3]> = (0..4)
            .map(|_| std::array::from_fn(|_| any_double(&mut random)))
            .collect();
        let mut first = None;
        for turn in 0..4 {
            for circuit in &circuits {
                let end = circuit.ends()[0];
                let mut bits = terms[(job.rank as usize + turn) % 4].map(f64::to_bits);
                if pauses.below(3) == 0 {
                    (0..pauses.below(2000)).for_each(|_| std::hint::spin_loop());
                }
                reduce(end, BFPSUM, &mut bits, 3)?;
                let first = *first.get_or_insert(bits);
                ensure_eq!(bits, first, "bits of the sums of {terms:?}");
            }
        }
        for (nth, bits) in first.unwrap_or_default().into_iter().enumerate() {
            job.write(job.right(), TABLE + 8 * nth, bits)?;
        }
        job.meet();
        let theirs = job.memory.words([TABLE, TABLE + 8, TABLE + 16]);
        ensure_eq!(Some(theirs), first, "bits at the left rank");
        job.meet();
    }
    circuits.into_iter().try_for_each(Circuit::free)
}

fn elements(job: &Job<'_>, _: &Circuit, end: u64) -> Verdict {
    let rank = u64::from(job.rank);
    for count in 1..=6usize {
        // Each element has a separate sum.
        let mut data: [u64; 6] = std::array::from_fn(|nth| rank << (8 * nth));
        reduce(end, SUM, &mut data, count)?;
        for (nth, sum) in data.into_iter().enumerate() {
            let terms = if nth < count { 6 } else { rank };
            ensure_eq!(sum, terms << (8 * nth), "element {nth} of {count}");
        }
    }
    for pairs in 1..=3usize {
        // Each pair has a different winner; the first pair's is rank 1.
        let value = |pair: u64| 100 + u64::from(rank == pair + 1);
        let mut data: [u64; 6] = std::array::from_fn(|nth| match nth % 2 {
            0 => value(nth as u64 / 2),
            _ => 1000 * (nth as u64 / 2) + rank,
        });
        reduce(end, MAXLOC, &mut data, 2 * pairs)?;
        for pair in 0..pairs as u64 {
            let at = 2 * pair as usize;
            let found = (data[at], data[at + 1]);
            ensure_eq!(found, (101, 1000 * pair + pair + 1), "pair {pair}");
        }
    }
    for count in 1..=3usize {
        let terms = |nth: u32, factor: u64| (factor * 10u64.pow(nth)) as f64;
        let mut data = [0, 1, 2].map(|nth| terms(nth, rank).to_bits());
        reduce(end, BFPSUM, &mut data, count)?;
        for (nth, sum) in data.into_iter().enumerate() {
            let expected = terms(nth as u32, if nth < count { 6 } else { rank });
            ensure_eq!(f64::from_bits(sum), expected, "element {nth} of {count}");
        }
    }
    Ok(())
}

fn returns(job: &Job<'_>, _: &Circuit, end: u64) -> Verdict {
    for round in 1..=20u64 {
        let late = round as u32 % 2;
        let op = if round % 4 < 2 { 0 } else { SUM };
        let start = || code_is(start(end, op, &[round]), SUCCESS, "starting");
        if job.rank != late {
            // The late rank starts after a word that this process's own communication sends.
            start()?;
            job.write(job.right(), TABLE, round)?;
        } else {
            job.await_word(TABLE, round)?;
            start()?;
        }
        let mut sum = [0u64];
        completed("the end", || poll(end, op, &mut sum))?;
        ensure!(op == 0 || sum == [2 * round], "a sum of {sum:?}");
    }
    Ok(())
}
