//! A thread for each rank.

use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use unipgas_port::gate::Payload;

use crate::input::{InputKind, mix};
use crate::shape::{self, GateArray, TestCircuit};

/// Waits for the result of the round.
fn finish(gates: &GateArray, place: usize) -> Payload {
    let begin = Instant::now();
    loop {
        if let Some(result) = gates.poll(place).unwrap() {
            return result;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(600),
            "the round never ends"
        );
        std::thread::yield_now();
    }
}

fn delay(random: u64) {
    match random % 64 {
        0 => std::thread::sleep(Duration::from_micros(random >> 8 & 63)),
        1..8 => std::thread::yield_now(),
        _ => (0..random >> 8 & 63).for_each(|_| std::hint::spin_loop()),
    }
}

/// One rank of several circuits, with rounds in all of them at the same time.
fn rank(
    rank: usize,
    circuits: &[(TestCircuit, usize)],
    started: &[Vec<AtomicU64>],
    gates: &GateArray,
    rounds: u64,
) {
    for round in 0..rounds {
        let kind = InputKind::of(round);
        for (index, (circuit, first)) in circuits.iter().enumerate() {
            if rank < circuit.ranks {
                delay(mix(mix(rank as u64) + round));
                started[index][rank].store(round + 1, Relaxed);
                gates
                    .start(first + circuit.start(rank), &kind.input(rank as u64, round))
                    .unwrap();
            }
        }
        for (index, (circuit, first)) in circuits.iter().enumerate() {
            if rank < circuit.ranks {
                let result = finish(gates, first + circuit.start(rank));
                // Relaxed: the barrier orders these loads after the stores.
                for all in &started[index] {
                    assert!(all.load(Relaxed) > round, "ended before all had started");
                }
                kind.check(circuit.ranks as u64, round, &result);
            }
        }
    }
}

fn run(circuits: Vec<TestCircuit>, rounds: u64) {
    let mut total = 0;
    let circuits: Vec<_> = circuits
        .into_iter()
        .map(|circuit| {
            let first = total;
            total += circuit.gates();
            (circuit, first)
        })
        .collect();
    let gates = GateArray::new(total);
    circuits
        .iter()
        .for_each(|(circuit, first)| circuit.configure(*first, &gates));
    let counters = |(circuit, _): &(TestCircuit, usize)| {
        (0..circuit.ranks).map(|_| AtomicU64::new(0)).collect()
    };
    let started: Vec<Vec<AtomicU64>> = circuits.iter().map(counters).collect();
    let most = circuits
        .iter()
        .map(|(circuit, _)| circuit.ranks)
        .max()
        .unwrap();
    std::thread::scope(|scope| {
        for me in 0..most {
            let (circuits, started, gates) = (&circuits, &started, &gates);
            scope.spawn(move || rank(me, circuits, started, gates, rounds));
        }
    });
    let ended: u64 = circuits
        .iter()
        .map(|(circuit, _)| circuit.ranks as u64 * rounds)
        .sum();
    assert!(
        gates.wakes.load(Relaxed) >= ended,
        "each end wakes its owner"
    );
}

#[test]
fn two_threads_for_many_rounds() {
    run(vec![shape::guide(2)], 100_000);
}

#[test]
fn every_shape_with_threads() {
    for (name, circuit) in shape::all() {
        println!("{name}");
        run(vec![circuit], 2_000);
    }
}

#[test]
fn several_circuits_at_once() {
    run(
        vec![
            shape::guide(2),
            shape::folded(3),
            shape::ring(4),
            shape::tree(5),
            shape::guide(4),
        ],
        4_000,
    );
}

#[test]
fn threads_take_turns_with_one_gate() {
    // Two threads use the gates of both ranks, and poll and start at any moment. Each result is taken once.
    let circuit = shape::guide(2);
    let gates = GateArray::of(&circuit);
    let rounds = 20_000;
    let taken = [AtomicU64::new(0), AtomicU64::new(0)];
    std::thread::scope(|scope| {
        for me in [0, 1, 0, 1] {
            let (gates, taken) = (&gates, &taken[me]);
            scope.spawn(move || {
                let begin = Instant::now();
                while taken.load(Acquire) < rounds {
                    use unipgas_port::gate::Error;
                    match gates.start(me, &Payload::barrier(0)) {
                        Ok(()) | Err(Error::Busy) => {}
                        Err(error) => panic!("{error}"),
                    }
                    match gates.poll(me) {
                        Ok(Some(_)) => drop(taken.fetch_add(1, Release)),
                        Ok(None) => std::thread::yield_now(),
                        Err(Error::NotStarted) => {}
                        Err(error) => panic!("{error}"),
                    }
                    assert!(begin.elapsed() < Duration::from_secs(600), "stuck");
                }
            });
        }
    });
    // The thread that stops first may have started one more round.
    let ended = taken.map(|taken| taken.into_inner());
    assert!(ended[0].abs_diff(ended[1]) <= 1, "{ended:?}");
}
