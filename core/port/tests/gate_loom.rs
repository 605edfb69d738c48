//! The gates' state word under the model checker:
//! `RUSTFLAGS="--cfg loom" cargo test -p unipgas-core --release --test gate_loom`.
#![cfg(loom)]

#[path = "../../base/tests/loom_kit/mod.rs"]
mod loom_kit;

use loom::sync::Arc;
use loom_kit::{beside, model};
use unipgas_port::gate::{self, Error, Gate, Operation, Payload, Resolve, Role, Settings};

struct Gates(Vec<Gate>);

impl Gates {
    fn new(settings: &[Settings]) -> Arc<Self> {
        let gates = settings.iter().map(|settings| {
            let gate = Gate::new();
            gate::configure(&gate, settings);
            gate
        });
        Arc::new(Self(gates.collect()))
    }

    fn start(&self, place: u64, element: u64) -> gate::Result<()> {
        let input = Payload::integers(Operation::Sum, &[element], 0).unwrap();
        gate::start(&self.0[place as usize], place, &input, self)
    }

    /// The sum, if the round has ended.
    fn poll(&self, place: u64) -> gate::Result<Option<u64>> {
        let mut result = Payload::default();
        let ended = gate::poll(&self.0[place as usize], &mut result)?;
        Ok(ended.then(|| result.as_integers()[0]))
    }
}

impl Resolve for Gates {
    fn gate(&self, name: u64) -> unipgas_base::Result<&Gate> {
        self.0
            .get(name as usize)
            .ok_or(unipgas_base::Error::StaleRegion)
    }

    fn wake(&self, _name: u64) {}
}

/// A circuit of gates. Each gate: whether it is a start/end gate, and the destinations of its signal and its packet.
fn circuit(gates: &[(bool, Option<u64>, Option<u64>)]) -> Arc<Gates> {
    let mut settings = vec![Settings::default(); gates.len()];
    for (me, &(end, signal, packet)) in gates.iter().enumerate() {
        settings[me].role = if end { Role::StartEnd } else { Role::Relay };
        (settings[me].dst_signal, settings[me].dst_packet) = (signal, packet);
        if let Some(to) = signal {
            settings[to as usize].src_signal = Some(me as u64);
        }
        if let Some(to) = packet {
            settings[to as usize].src_packet = Some(me as u64);
        }
    }
    Gates::new(&settings)
}

/// Two ranks start a round at the same time. In each interleaving both rounds end with the sum of both inputs.
fn round_of_two(
    preemptions: usize,
    ends: [u64; 2],
    gates: impl Fn() -> Arc<Gates> + Sync + Send + 'static,
) {
    model(preemptions, move || {
        let gates = gates();
        let other = beside(&gates, move |gates| {
            gates.start(ends[1], 30).unwrap();
            gates.poll(ends[1]).unwrap()
        });
        gates.start(ends[0], 12).unwrap();
        let results = [gates.poll(ends[0]).unwrap(), other.join().unwrap()];
        // The last rank executed all steps. A rank without a result then has its result at this poll.
        for (end, result) in ends.into_iter().zip(results) {
            let result = result.or_else(|| gates.poll(end).unwrap());
            assert_eq!(result, Some(42), "a round did not end");
            assert_eq!(gates.poll(end), Err(Error::NotStarted));
        }
        assert!(gates.0.iter().all(|gate| !gate::is_broken(gate)));
    });
}

#[test]
fn two_ends_that_tell_each_other() {
    round_of_two(3, [0, 1], || {
        circuit(&[(true, Some(0), Some(1)), (true, Some(1), Some(0))])
    });
}

#[test]
fn one_relay_that_both_may_execute() {
    round_of_two(3, [0, 1], || {
        circuit(&[
            (true, Some(2), None),
            (true, None, Some(2)),
            (false, Some(0), Some(1)),
        ])
    });
}

#[test]
fn a_relay_for_each() {
    round_of_two(2, [0, 2], || {
        circuit(&[
            (true, Some(1), Some(3)),
            (false, Some(0), None),
            (true, Some(3), Some(1)),
            (false, Some(2), None),
        ])
    });
}

#[test]
fn the_next_round_comes_while_the_relay_is_executed() {
    // Two start/end gates without inputs, a relay, and a receiving gate: inputs arrive while another thread fires the relay.
    model(3, || {
        let gates = circuit(&[
            (true, Some(2), None),
            (true, None, Some(2)),
            (false, None, Some(3)),
            (true, None, None),
        ]);
        let teller = |gates: &Gates, me: u64| {
            for round in 0..2 {
                gates.start(me, (me + 1) << (8 * round)).unwrap();
                assert_eq!(gates.poll(me), Ok(Some((me + 1) << (8 * round))));
            }
        };
        let other = beside(&gates, move |gates| teller(&gates, 1));
        teller(&gates, 0);
        other.join().unwrap();
        for sum in [3, 3 << 8] {
            gates.start(3, 0).unwrap();
            assert_eq!(gates.poll(3), Ok(Some(sum)));
        }
    });
}

#[test]
fn one_of_two_pollers_takes_the_result() {
    model(3, || {
        let gates = circuit(&[(true, Some(0), None)]);
        gates.start(0, 5).unwrap();
        let other = beside(&gates, move |gates| gates.poll(0));
        let results = [gates.poll(0), other.join().unwrap()];
        let taken = results
            .iter()
            .filter(|result| **result == Ok(Some(5)))
            .count();
        assert_eq!(taken, 1, "{results:?}");
        assert_eq!(gates.start(0, 6), Ok(()));
        assert_eq!(gates.poll(0), Ok(Some(6)));
    });
}

#[test]
fn who_polls_for_another_operation_takes_nothing() {
    model(3, || {
        let gates = circuit(&[(true, Some(0), None)]);
        gates.start(0, 5).unwrap();
        let other = beside(&gates, move |gates| {
            let mut result = Payload::default();
            let wanted = |operation| operation == Operation::Barrier;
            gate::poll_for(&gates.0[0], wanted, &mut result)
        });
        let first = gates.poll(0).unwrap();
        assert!(!matches!(other.join().unwrap(), Ok(true)));
        assert_eq!(first.or_else(|| gates.poll(0).unwrap()), Some(5));
        assert_eq!(gates.poll(0), Err(Error::NotStarted));
    });
}

#[test]
fn configuring_anew_ends_what_arrives_late() {
    // A sender races with the owner, which configures the gate again: a late input is either lost or counted, never both.
    model(3, || {
        let gates = circuit(&[(true, None, Some(1)), (true, None, None)]);
        let told = Settings {
            role: Role::StartEnd,
            src_packet: Some(0),
            ..Settings::default()
        };
        let other = beside(&gates, move |gates| gates.start(0, 1));
        gate::configure(&gates.0[1], &told);
        let sent = other.join().unwrap();
        gates.start(1, 0).unwrap();
        match gates.poll(1) {
            Ok(None) => {}
            result => assert_eq!((result, sent), (Ok(Some(1)), Ok(()))),
        }
    });
}

#[test]
fn rounds_of_two_threads_do_not_overtake_each_other() {
    // The signal that ends the round of the first gate arrives before its packet to the second gate.
    model(3, || {
        let gates = circuit(&[(true, Some(0), Some(1)), (true, None, None)]);
        let other = beside(&gates, move |gates| {
            if gates.poll(0) == Ok(Some(1)) {
                gates.start(0, 2).unwrap();
            }
        });
        gates.start(0, 1).unwrap();
        other.join().unwrap();
        gates.start(1, 0).unwrap();
        assert_eq!(gates.poll(1), Ok(Some(1)));
    });
}
