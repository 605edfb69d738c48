//! Gates with corrupt memory.

use super::cell::{Gate, Role, Settings};
use super::packet::{Packet, Sender, arrive, execute, lose_output};
use super::payload::{Operation, Payload};
use super::run::{Resolve, configure, has_lost_input, is_broken, neighbours, poll, start};
use super::state::Port;
use unipgas_base::fenced::Patch;
use unipgas_base::{Error, Result};

const GATES: usize = 3;

/// Gates by index. Packets to other names are sent.
struct Array([Gate; GATES]);

impl Resolve for Array {
    fn gate(&self, name: u64) -> Result<&Gate> {
        self.0.get(name as usize).ok_or(match name {
            0..8 => Error::Unsupported,
            _ => Error::StaleRegion,
        })
    }

    fn send(&self, packet: &Packet, sender: Sender) -> Result<()> {
        assert!(Packet::decode(&packet.encode()).is_some());
        lose_output(&self.0[0], &sender);
        Ok(())
    }

    fn wake(&self, _: u64) {}
}

/// A round that goes from the first gate through two relays and back to it.
fn array() -> Array {
    let gates = Array(std::array::from_fn(|_| Gate::new()));
    for (me, gate) in gates.0.iter().enumerate() {
        let [last, next] = [me + GATES - 1, me + 1].map(|name| Some((name % GATES) as u64));
        let settings = Settings {
            role: if me == 0 { Role::StartEnd } else { Role::Relay },
            src_signal: last,
            dst_signal: next,
            src_packet: last,
            dst_packet: next,
        };
        configure(gate, &settings);
    }
    gates
}

fn payload(kind: u8) -> Payload {
    use Operation::*;
    let flags = u64::from(kind >> 4);
    let integers = |operation, elements: &[u64]| Payload::integers(operation, elements, flags);
    let made = match kind % 8 {
        0 => Ok(Payload::barrier(flags)),
        1 => integers(Sum, &[1, u64::MAX]),
        2 => integers(Maxloc, &[1, 2, 3, 4]),
        3 => integers(Max, &[5; 6]),
        4 => Payload::doubles(Bfpsum, &[1e308, -1e-308, 5e-324], flags),
        5 => Payload::doubles(Bfpsum, &[f64::INFINITY], flags),
        6 => Payload::doubles(Bfpsum, &[-0.0, 1.0], flags),
        _ => integers(Bxor, &[7]),
    };
    made.expect("in bounds")
}

fn look(payload: &Payload) {
    let (integers, count) = (payload.as_integers().len(), payload.count());
    assert!(payload.is_mismatch() || integers == 0 || integers == count);
    for index in 0..=count {
        let _ = payload.double(index);
    }
    let _ = (payload.operation(), payload.flags(), format!("{payload:?}"));
}

/// Input: the kind of the round's payload (1 byte). Then patches of the gates.
pub(crate) fn gates(bytes: &[u8]) {
    let Some((kind, patches)) = bytes.split_first() else {
        return;
    };
    let gates = array();
    for patch in Patch::all(patches) {
        let gate = &gates.0[usize::from(patch.area) % GATES];
        let base = std::ptr::from_ref(gate).cast_mut().cast::<u8>();
        // SAFETY:
        // - the gate consists of atomics, and only this thread uses it.
        unsafe { patch.apply(base, size_of::<Gate>()) };
    }
    let given = payload(*kind);
    let mut result = Payload::default();
    for round in 0..3 {
        let _ = start(&gates.0[0], 0, &given, &gates);
        if poll(&gates.0[0], &mut result) == Ok(true) {
            look(&result);
        }
        for (gate, name) in gates.0.iter().zip(0..) {
            assert!(neighbours(gate).count() <= 4);
            let _ = (is_broken(gate), has_lost_input(gate));
            for port in [Port::Signal, Port::Packet] {
                let packet = Packet::new(name, round, port, &given);
                if let Ok(Some(ready)) = arrive(gate, &packet) {
                    execute(gate, ready, &gates);
                }
            }
            if poll(gate, &mut result) == Ok(true) {
                look(&result);
            }
        }
    }
}

pub(crate) fn all_gates() -> Vec<Vec<u8>> {
    let record = |gates: &Array, nth: usize, at: usize, len: usize| {
        let base = std::ptr::from_ref(&gates.0[nth]).cast::<u8>();
        // SAFETY:
        // - within the gate, and only this thread uses it.
        unsafe { Patch::of(nth as u8, base, at, len) }
    };
    let all = 0..16u8;
    all.map(|kind| {
        let gates = array();
        // Executes the round as far as the second relay, which waits for its other input.
        let packet = Packet::new(2, 1, Port::Packet, &payload(kind));
        let _ = arrive(&gates.0[2], &packet);
        let mut bytes = vec![kind];
        for nth in 0..GATES {
            let [names, _] = Gate::NAMES;
            bytes.extend(record(&gates, nth, names, 32));
            bytes.extend(record(&gates, nth, Gate::STATE, 40));
        }
        bytes.extend(record(&gates, 2, Gate::PAYLOADS + 64 * 4, 64));
        bytes.extend(record(&gates, 2, Gate::PAYLOADS, 64));
        bytes
    })
    .collect()
}
