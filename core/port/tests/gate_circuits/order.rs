//! One thread plays all ranks, in random but repeatable orders.

use unipgas_port::gate::{Operation, Payload};

use crate::input::{InputKind, OPERATIONS, mix};
use crate::shape::{self, GateArray, TestCircuit};

/// Plays the ranks in random order. No rank ends a round that another rank has not started.
fn play(circuit: &TestCircuit, gates: &GateArray, first: usize, seed: u64, rounds: u64) {
    let ranks = circuit.ranks;
    // Rounds that each rank has started, and ended.
    let (mut started, mut ended) = (vec![0; ranks], vec![0; ranks]);
    let mut random = seed;
    while ended.iter().any(|&n| n < rounds) {
        random = mix(random + 1);
        let rank = (random >> 20) as usize % ranks;
        let place = first + circuit.start(rank);
        if started[rank] == ended[rank] {
            if started[rank] < rounds {
                let round = seed + started[rank];
                gates
                    .start(place, &InputKind::of(round).input(rank as u64, round))
                    .unwrap();
                started[rank] += 1;
            }
            continue;
        }
        let Some(result) = gates.poll(place).unwrap() else {
            let late = started.iter().any(|&n| n < started[rank]);
            assert!(late, "all have started, and the round has not ended");
            continue;
        };
        let round = ended[rank];
        ended[rank] += 1;
        assert!(
            started.iter().all(|&n| n > round),
            "ended before all had started"
        );
        InputKind::of(seed + round).check(ranks as u64, seed + round, &result);
    }
}

#[test]
fn every_shape_reduces_everything() {
    for (name, circuit) in shape::all() {
        println!("{name}");
        let gates = GateArray::of(&circuit);
        for seed in 0..20 {
            play(&circuit, &gates, 0, seed << 32, 100);
        }
    }
}

#[test]
fn counters_of_rounds_wrap() {
    for circuit in [shape::guide(2), shape::folded(3)] {
        let gates = GateArray::of(&circuit);
        play(&circuit, &gates, 0, 1, 0x1_0100);
    }
}

#[test]
fn the_inputs_have_all_kinds() {
    for operation in OPERATIONS {
        let kinds = || {
            (0..2000)
                .map(InputKind::of)
                .filter(|kind| kind.operation == operation)
        };
        assert!(kinds().any(|kind| kind.flags != 0) && kinds().any(|kind| kind.flags == 0));
        let most = match operation {
            Operation::Barrier => 0,
            Operation::Bfpsum => 3,
            _ => 6,
        };
        assert_eq!(kinds().map(|kind| kind.count).max(), Some(most));
    }
}

#[test]
fn configuring_again_forgets_what_was() {
    let circuit = shape::guide(4);
    let gates = GateArray::of(&circuit);
    for round in 0..600 {
        // Some ranks have started a round that never ends.
        for rank in 0..round % 4 {
            gates
                .start(circuit.start(rank), &Payload::barrier(7))
                .unwrap();
        }
        circuit.configure(0, &gates);
        play(&circuit, &gates, 0, round as u64, 3);
    }
}

#[test]
fn the_longest_sums_arrive_whole() {
    let circuit = shape::folded(10);
    let gates = GateArray::of(&circuit);
    let term = |rank: usize| match rank % 5 {
        0 => f64::MAX,
        1 => -5e-324,
        2 => 1.0,
        3 => -f64::MAX,
        _ => 1e-160,
    };
    for _ in 0..10 {
        for rank in 0..circuit.ranks {
            let elements = [term(rank), -term(rank), term(rank + 1) / 3.0];
            let input = Payload::doubles(Operation::Bfpsum, &elements, 3).unwrap();
            gates.start(circuit.start(rank), &input).unwrap();
        }
        for rank in 0..circuit.ranks {
            let result = gates.poll(circuit.start(rank)).unwrap().unwrap();
            assert_eq!(result.double(0), Some(2.0));
            assert_eq!(result.double(1), Some(-2.0));
            assert_eq!(result.double(2), Some(2.0 * (1.0 / 3.0)));
            assert_eq!(result.double(3), None);
        }
    }
}

#[test]
fn circuits_beside_each_other_do_not_meet() {
    let shapes = shape::all();
    let count = shapes.iter().map(|(_, circuit)| circuit.gates()).sum();
    let gates = GateArray::new(count);
    let mut first = 0;
    let mut places = Vec::new();
    for (_, circuit) in &shapes {
        circuit.configure(first, &gates);
        places.push(first);
        first += circuit.gates();
    }
    // In each circuit one rank starts after all others.
    let barrier = Payload::barrier(0);
    for late in [false, true] {
        for ((_, circuit), &first) in shapes.iter().zip(&places) {
            for rank in 0..circuit.ranks {
                if (rank == circuit.ranks - 1) == late {
                    gates.start(first + circuit.start(rank), &barrier).unwrap();
                }
            }
            for rank in 0..circuit.ranks - usize::from(!late) {
                let ended = gates.poll(first + circuit.start(rank)).unwrap();
                assert_eq!(ended.is_some(), late);
            }
        }
    }
}
