//! Wrong settings and lost inputs.

use unipgas_port::gate::{self, Error, Operation, Payload, ROUNDS, Role, Settings};

use crate::input::InputKind;
use crate::shape::{self, GateArray, TestCircuit, name};

fn start_all(circuit: &TestCircuit, gates: &GateArray, input: impl Fn(usize) -> Payload) {
    for rank in 0..circuit.ranks {
        gates.start(circuit.start(rank), &input(rank)).unwrap();
    }
}

/// Settings of a gate that starts and ends rounds.
fn start_end() -> Settings {
    Settings {
        role: Role::StartEnd,
        ..Settings::default()
    }
}

#[test]
fn all_learn_of_a_mismatch_and_the_next_round_works() {
    let sum = |elements: &[u64], flags| Payload::integers(Operation::Sum, elements, flags).unwrap();
    let odd_ones = [
        Payload::barrier(0),
        Payload::barrier(1),
        sum(&[1, 2], 0),
        sum(&[1], 1),
        sum(&[1], u64::MAX),
        Payload::integers(Operation::Max, &[1], 0).unwrap(),
        Payload::integers(Operation::Maxloc, &[1, 2], 0).unwrap(),
        Payload::doubles(Operation::Bfpsum, &[1.0], 0).unwrap(),
        Payload::doubles(Operation::Bfpsum, &[f64::MAX, -5e-324, 1.0], 9).unwrap(),
    ];
    for (shape, circuit) in shape::all() {
        let gates = GateArray::of(&circuit);
        for odd in odd_ones {
            for who in 0..circuit.ranks {
                start_all(&circuit, &gates, |rank| {
                    if rank == who { odd } else { sum(&[1], 0) }
                });
                for rank in 0..circuit.ranks {
                    let result = gates.poll(circuit.start(rank));
                    assert_eq!(
                        result.unwrap_err(),
                        Error::Mismatch,
                        "{shape}, {rank}, {odd:?} by {who}"
                    );
                    assert_eq!(
                        gates.poll(circuit.start(rank)).unwrap_err(),
                        Error::NotStarted
                    );
                }
                start_all(&circuit, &gates, |_| sum(&[1], 0));
                for rank in 0..circuit.ranks {
                    let result = gates.poll(circuit.start(rank)).unwrap().unwrap();
                    assert_eq!(result.as_integers(), [circuit.ranks as u64]);
                }
            }
        }
    }
}

#[test]
fn one_round_at_a_time() {
    let circuit = shape::guide(2);
    let gates = GateArray::of(&circuit);
    let barrier = Payload::barrier(0);
    for _ in 0..3 {
        assert_eq!(gates.poll(0).unwrap_err(), Error::NotStarted);
        gates.start(0, &barrier).unwrap();
        assert_eq!(gates.start(0, &barrier), Err(Error::Busy));
        assert!(gates.poll(0).unwrap().is_none());
        gates.start(1, &barrier).unwrap();
        // The round has ended, but its result is not taken.
        assert_eq!(gates.start(0, &barrier), Err(Error::Busy));
        assert!(gates.poll(1).unwrap().is_some());
        // Rank 1 is one round ahead.
        gates.start(1, &barrier).unwrap();
        assert!(gates.poll(1).unwrap().is_none());
        assert!(gates.poll(0).unwrap().is_some());
        gates.start(0, &barrier).unwrap();
        assert!(gates.poll(0).unwrap().is_some());
        assert!(gates.poll(1).unwrap().is_some());
    }
}

#[test]
fn only_start_gates_with_settings_start() {
    let circuit = shape::guide(4);
    let gates = GateArray::of(&circuit);
    let barrier = Payload::barrier(0);
    assert_eq!(gates.start(1, &barrier), Err(Error::NotAStart));
    gate::clear(gates.at(0));
    assert_eq!(gates.start(0, &barrier), Err(Error::NotConfigured));
    assert_eq!(
        GateArray::new(1).start(0, &barrier),
        Err(Error::NotConfigured)
    );
}

/// Two gates: gate 0 has no inputs, and sends its packet to gate 1.
fn one_way() -> GateArray {
    let gates = GateArray::new(2);
    let teller = Settings {
        dst_packet: Some(name(1)),
        ..start_end()
    };
    let told = Settings {
        src_packet: Some(name(0)),
        ..start_end()
    };
    gate::configure(gates.at(0), &teller);
    gate::configure(gates.at(1), &told);
    gates
}

#[test]
fn masked_inputs_give_what_is_there() {
    let gates = one_way();
    for round in 0..3 * ROUNDS as u64 {
        let kind = InputKind {
            operation: Operation::Bfpsum,
            count: 3,
            flags: round % 2,
        };
        gates.start(1, &kind.input(1, round)).unwrap();
        assert!(gates.poll(1).unwrap().is_none());
        gates.start(0, &kind.input(0, round)).unwrap();
        // Both results are the input of gate 0: the own input of gate 1 is masked.
        for place in [0, 1] {
            kind.check(1, round, &gates.poll(place).unwrap().unwrap());
        }
    }
    // A gate without inputs and outputs: its round ends at once.
    gate::configure(gates.at(0), &start_end());
    gates.start(0, &Payload::barrier(5)).unwrap();
    assert_eq!(gates.poll(0).unwrap().unwrap().flags(), 5);
    // A relay without inputs never does anything.
    gate::configure(
        gates.at(0),
        &Settings {
            dst_packet: Some(name(1)),
            ..Settings::default()
        },
    );
    gates.start(1, &Payload::barrier(0)).unwrap();
    assert!(gates.poll(1).unwrap().is_none());
}

#[test]
fn what_is_told_must_be_what_was_asked() {
    let gates = one_way();
    gates.start(0, &Payload::barrier(0)).unwrap();
    gates
        .start(1, &Payload::integers(Operation::Bor, &[1], 0).unwrap())
        .unwrap();
    assert_eq!(gates.poll(1).unwrap_err(), Error::Mismatch);
    assert!(gates.poll(0).unwrap().is_some());
}

#[test]
fn inputs_that_come_too_early_are_not_lost_silently() {
    for started in [false, true] {
        let gates = one_way();
        let input = |n| Payload::integers(Operation::Sum, &[n], 0).unwrap();
        if started {
            gates.start(1, &input(0)).unwrap();
        }
        for round in 0..ROUNDS as u64 {
            gates.start(0, &input(round)).unwrap();
            assert!(gates.poll(0).unwrap().is_some());
        }
        assert!(!gate::is_broken(gates.at(1)));
        assert_eq!(gates.start(0, &input(9)), Err(Error::Overrun));
        assert!(gate::is_broken(gates.at(0)) && gate::is_broken(gates.at(1)));
        assert!(!gate::has_lost_input(gates.at(0)) && gate::has_lost_input(gates.at(1)));
        assert_eq!(gates.poll(0).unwrap_err(), Error::Broken);
        if started {
            assert_eq!(gates.poll(1).unwrap_err(), Error::Broken);
        }
        assert_eq!(gates.poll(1).unwrap_err(), Error::NotStarted);
        assert_eq!(gates.start(1, &input(0)), Err(Error::Broken));
        assert_eq!(gates.start(0, &input(0)), Err(Error::Broken));
    }
}

#[test]
fn early_inputs_are_kept_in_order() {
    let gates = one_way();
    let input = |n| Payload::integers(Operation::Sum, &[n], 0).unwrap();
    for turn in 0..10 {
        for n in 0..ROUNDS as u64 {
            gates.start(0, &input(10 * turn + n)).unwrap();
            gates.poll(0).unwrap().unwrap();
        }
        for n in 0..ROUNDS as u64 {
            gates.start(1, &input(0)).unwrap();
            let result = gates.poll(1).unwrap().unwrap();
            assert_eq!(result.as_integers(), [10 * turn + n]);
        }
    }
}

#[test]
fn inputs_from_elsewhere_are_refused() {
    let barrier = Payload::barrier(0);
    let gates = GateArray::new(3);
    let to_two = Settings {
        dst_signal: Some(name(2)),
        ..start_end()
    };
    let relay = Settings {
        src_signal: Some(name(0)),
        ..Settings::default()
    };
    gate::configure(gates.at(0), &to_two);
    gate::configure(gates.at(1), &to_two);
    // No settings yet.
    assert_eq!(gates.start(0, &barrier), Err(Error::NotConfigured));
    assert_eq!(gates.poll(0).unwrap_err(), Error::Broken);
    gate::configure(gates.at(0), &to_two);
    gate::configure(gates.at(2), &relay);
    gates.start(0, &barrier).unwrap();
    assert!(!gate::is_broken(gates.at(2)));
    // Not the source, and then not the input that it has.
    assert_eq!(gates.start(1, &barrier), Err(Error::NotTheSource));
    assert!(gate::is_broken(gates.at(2)) && gate::is_broken(gates.at(1)));
    assert!(gate::has_lost_input(gates.at(2)) && !gate::has_lost_input(gates.at(1)));
    let packet = Settings {
        src_packet: Some(name(0)),
        ..Settings::default()
    };
    gate::configure(gates.at(0), &to_two);
    gate::configure(gates.at(2), &packet);
    assert_eq!(gates.start(0, &barrier), Err(Error::NotTheSource));
}

#[test]
fn a_gate_that_is_not_there_breaks_the_one_that_sends_to_it() {
    let circuit = shape::guide(4);
    let gates = GateArray::of(&circuit);
    // Rank 0's relay sends to a missing gate. Only rank 2 depends on this packet.
    let relay = Settings {
        role: Role::Relay,
        src_signal: Some(name(0)),
        src_packet: Some(name(2)),
        dst_signal: Some(name(0)),
        dst_packet: Some(17),
    };
    gate::configure(gates.at(1), &relay);
    let barrier = Payload::barrier(0);
    gates.start(0, &barrier).unwrap();
    let missing = Err(Error::Engine(unipgas_base::Error::PeerDead));
    assert_eq!(gates.start(circuit.start(1), &barrier), missing);
    assert!(gate::is_broken(gates.at(1)) && !gate::is_broken(gates.at(0)));
    assert!(!gate::has_lost_input(gates.at(1)));
    gates.start(circuit.start(2), &barrier).unwrap();
    gates.start(circuit.start(3), &barrier).unwrap();
    for rank in [0, 1, 3] {
        assert!(gates.poll(circuit.start(rank)).unwrap().is_some(), "{rank}");
    }
    assert!(gates.poll(circuit.start(2)).unwrap().is_none());
    circuit.configure(0, &gates);
    start_all(&circuit, &gates, |_| barrier);
    for rank in 0..4 {
        assert!(gates.poll(circuit.start(rank)).unwrap().is_some());
    }
}

#[test]
fn long_paths_are_executed_by_the_last_one_without_recursion() {
    // Recursion by gate would overflow the stack at this depth. At this width many gates wait.
    for circuit in [shape::ring(2_000), shape::tree(2_000)] {
        let gates = GateArray::of(&circuit);
        std::thread::scope(|scope| {
            let body = || {
                for _ in 0..3 {
                    start_all(&circuit, &gates, |_| Payload::barrier(0));
                    for rank in 0..circuit.ranks {
                        assert!(gates.poll(circuit.start(rank)).unwrap().is_some());
                    }
                }
            };
            let thread = std::thread::Builder::new().stack_size(64 << 10);
            thread.spawn_scoped(scope, body).unwrap().join().unwrap();
        });
    }
}

#[test]
fn a_comb_leaves_more_gates_than_are_kept_inline() {
    // A chain of relays. Each relay also sends to a tooth, which is another relay.
    let (length, barrier) = (200, Payload::barrier(0));
    let gates = GateArray::new(2 * length + 1);
    let relay = |source: usize, signal: bool, destinations: [Option<usize>; 2]| Settings {
        role: Role::Relay,
        src_signal: signal.then(|| name(source)),
        src_packet: (!signal).then(|| name(source)),
        dst_signal: destinations[0].map(name),
        dst_packet: destinations[1].map(name),
    };
    // A tooth gets a signal, and waits on the list until the packets have reached the end of the chain.
    let tooth = |n| length + n;
    for n in 1..length {
        let next = (n + 1 < length).then_some(n + 1);
        gate::configure(gates.at(n), &relay(n - 1, false, [Some(tooth(n)), next]));
        let end = (n == 1).then_some(2 * length);
        gate::configure(gates.at(tooth(n)), &relay(n, true, [None, end]));
    }
    let first = Settings {
        dst_packet: Some(name(1)),
        ..start_end()
    };
    gate::configure(gates.at(0), &first);
    let last = Settings {
        src_packet: Some(name(tooth(1))),
        ..start_end()
    };
    gate::configure(gates.at(2 * length), &last);
    for _ in 0..10 {
        gates.start(2 * length, &barrier).unwrap();
        gates.start(0, &barrier).unwrap();
        assert!(gates.poll(0).unwrap().is_some() && gates.poll(2 * length).unwrap().is_some());
    }
    assert!((0..=2 * length).all(|place| !gate::is_broken(gates.at(place))));
}

#[test]
fn arguments_that_mean_nothing() {
    let invalid = |result: gate::Result<Payload>| matches!(result, Err(Error::Invalid(_)));
    for operation in [Operation::Barrier, Operation::Bfpsum] {
        assert!(invalid(Payload::integers(operation, &[1], 0)));
    }
    assert!(invalid(Payload::doubles(Operation::Sum, &[1.0], 0)));
    assert!(invalid(Payload::doubles(Operation::Bfpsum, &[], 0)));
    assert!(invalid(Payload::doubles(Operation::Bfpsum, &[1.0; 4], 0)));
    assert!(invalid(Payload::integers(Operation::Max, &[], 0)));
    assert!(invalid(Payload::integers(Operation::Max, &[1; 7], 0)));
    assert!(invalid(Payload::integers(Operation::Maxloc, &[1; 3], 0)));
    assert!(Payload::integers(Operation::Maxloc, &[1; 6], 0).is_ok());
}

#[test]
fn any_bytes_are_a_gate() {
    // Malformed memory gives wrong results or errors, but no undefined behaviour.
    let words = size_of::<unipgas_port::gate::Gate>() / 8 * 4;
    for seed in 0..300 {
        let mut memory = vec![0u64; words + align_of::<gate::Gate>() / 8];
        let at = memory.as_ptr().align_offset(align_of::<gate::Gate>());
        let mut random = seed;
        for word in &mut memory {
            random = crate::input::mix(random + 1);
            *word = match random % 4 {
                0 => u64::MAX,
                // Raises the share of configured gates with valid names.
                1 => random | 1 << 48,
                2 => name(random as usize >> 8 & 3),
                _ => random,
            };
        }
        let base = memory[at..].as_mut_ptr().cast::<u8>();
        struct Rubbish(*mut u8);
        impl gate::Resolve for Rubbish {
            fn gate(&self, name: u64) -> unipgas_base::Result<&gate::Gate> {
                let place = shape::place(name).filter(|&place| place < 4);
                let place = place.ok_or(unipgas_base::Error::StaleRegion)?;
                // SAFETY:
                // - the memory of four gates is aligned and lives as long as this.
                // - it is accessed through gates only from now on.
                Ok(unsafe { gate::Gate::at(self.0, place) })
            }
            fn wake(&self, _name: u64) {}
        }
        let gates = Rubbish(base);
        let (mut result, mut ended) = (Payload::default(), 0);
        for place in (0..4).chain(0..4) {
            let gate = gate::Resolve::gate(&gates, name(place)).unwrap();
            let _ = gate::start(gate, name(place), &Payload::barrier(0), &gates);
            ended += u32::from(gate::poll(gate, &mut result) == Ok(true));
        }
        // New settings repair the gates.
        for place in 0..4 {
            let (me, peer) = (name(place), name(place ^ 1));
            let settings = Settings {
                role: Role::StartEnd,
                src_signal: Some(me),
                dst_signal: Some(me),
                src_packet: Some(peer),
                dst_packet: Some(peer),
            };
            gate::configure(gate::Resolve::gate(&gates, me).unwrap(), &settings);
        }
        for place in 0..4 {
            let gate = gate::Resolve::gate(&gates, name(place)).unwrap();
            gate::start(gate, name(place), &Payload::barrier(0), &gates).unwrap();
            ended += u32::from(place % 2 == 1 && gate::poll(gate, &mut result) == Ok(true));
        }
        assert!(ended >= 2, "seed {seed}");
    }
}
