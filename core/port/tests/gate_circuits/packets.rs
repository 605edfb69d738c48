//! Ranks that reach their own gates only. Packets to others are bytes on a wire, which keeps their order and delays them.

use std::cell::RefCell;
use std::collections::VecDeque;

use unipgas_base::Error;
use unipgas_port::gate::{
    self, Gate, LONGEST_PACKET, Operation, Packet, Payload, Ready, Resolve, SETTINGS, Sender,
};

use crate::input::{InputKind, mix};
use crate::shape::{self, GateArray, TestCircuit, name, place};

type Wire = VecDeque<(Vec<u8>, Sender)>;

struct Apart {
    circuit: TestCircuit,
    gates: GateArray,
    /// Wires, indexed by sender and receiver.
    wires: RefCell<Vec<Wire>>,
    ready: RefCell<Vec<Ready>>,
}

/// The gates as one rank reaches them.
struct Side<'a> {
    all: &'a Apart,
    rank: usize,
}

impl Resolve for Side<'_> {
    fn gate(&self, name: u64) -> unipgas_base::Result<&Gate> {
        let place = place(name).ok_or(Error::StaleRegion)?;
        match self.all.circuit.owner(place) == self.rank {
            true => Ok(self.all.gates.at(place)),
            false => Err(Error::Unsupported),
        }
    }

    fn send(&self, packet: &Packet, sender: Sender) -> unipgas_base::Result<()> {
        let to = self.all.circuit.owner(place(packet.gate).unwrap());
        let bytes = packet.encode();
        assert!(bytes.len() <= LONGEST_PACKET);
        let mut wires = self.all.wires.borrow_mut();
        wires[self.rank * self.all.circuit.ranks + to].push_back((bytes, sender));
        Ok(())
    }

    fn wake(&self, _name: u64) {}
}

impl Apart {
    fn new(circuit: TestCircuit) -> Self {
        Apart {
            gates: GateArray::of(&circuit),
            wires: RefCell::new(vec![Wire::new(); circuit.ranks * circuit.ranks]),
            ready: RefCell::default(),
            circuit,
        }
    }

    fn side(&self, place: usize) -> Side<'_> {
        let rank = self.circuit.owner(place);
        Side { all: self, rank }
    }

    fn start(&self, rank: usize, payload: &Payload) -> gate::Result<()> {
        let place = self.circuit.start(rank);
        gate::start(
            self.gates.at(place),
            name(place),
            payload,
            &self.side(place),
        )
    }

    /// Delivers the next packet of a wire, as bytes. False: the wire is empty.
    fn deliver(&self, wire: usize) -> bool {
        let Some((bytes, sender)) = self.wires.borrow_mut()[wire].pop_front() else {
            return false;
        };
        let packet = Packet::decode(&bytes).expect("what was sent");
        assert_eq!(packet.encode(), bytes);
        match gate::arrive(self.gates.at(place(packet.gate).unwrap()), &packet) {
            Ok(ready) => self.ready.borrow_mut().extend(ready),
            Err(_) => {
                let sent = place(sender.name).unwrap();
                gate::lose_output(self.gates.at(sent), &sender);
            }
        }
        true
    }

    fn execute(&self, nth: usize) {
        let ready = self.ready.borrow_mut().swap_remove(nth);
        let at = place(ready.name).unwrap();
        gate::execute(self.gates.at(at), ready, &self.side(at));
    }
}

fn play(circuit: &TestCircuit, seed: u64, rounds: u64) {
    let apart = Apart::new(circuit.clone());
    let ranks = circuit.ranks;
    let (mut started, mut ended) = (vec![0; ranks], vec![0; ranks]);
    let mut random = seed;
    while ended.iter().any(|&n| n < rounds) {
        random = mix(random + 1);
        let (wires, ready) = (ranks * ranks, apart.ready.borrow().len());
        let drawn = (random >> 20) as usize;
        if random % 4 < 2 {
            apart.deliver(drawn % wires);
            continue;
        }
        if random % 4 == 2 && ready > 0 {
            apart.execute(drawn % ready);
            continue;
        }
        let rank = drawn % ranks;
        if started[rank] == ended[rank] {
            if started[rank] < rounds {
                let round = seed + started[rank];
                let input = InputKind::of(round).input(rank as u64, round);
                apart.start(rank, &input).unwrap();
                started[rank] += 1;
            }
            continue;
        }
        let Some(result) = apart.gates.poll(circuit.start(rank)).unwrap() else {
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
fn every_shape_reduces_everything_by_packets() {
    for (name, circuit) in shape::all() {
        println!("{name}");
        for seed in 0..10 {
            play(&circuit, seed << 32, 50);
        }
    }
}

#[test]
fn a_packet_that_is_refused_breaks_the_gate_that_has_sent_it() {
    let circuit = shape::butterfly(2);
    let apart = Apart::new(circuit.clone());
    apart.start(0, &Payload::barrier(0)).unwrap();
    // The destination gates have no settings.
    for place in circuit.start(1)..circuit.gates() {
        gate::clear(apart.gates.at(place));
    }
    for wire in 0..4 {
        while apart.deliver(wire) {}
    }
    let broken = (0..circuit.start(1)).filter(|place| gate::is_broken(apart.gates.at(*place)));
    assert_eq!(broken.count(), 1);
}

#[test]
fn a_relay_that_was_set_again_is_not_executed_for_what_came_before() {
    let circuit = shape::ring(3);
    let apart = Apart::new(circuit.clone());
    for rank in 0..2 {
        apart.start(rank, &Payload::barrier(0)).unwrap();
    }
    // The wire from rank 0 to rank 1.
    assert!(apart.deliver(1));
    assert_eq!(apart.ready.borrow().len(), 1);
    circuit.configure(0, &apart.gates);
    apart.execute(0);
    assert!(apart.wires.borrow().iter().all(|wire| wire.is_empty()));
}

#[test]
fn a_gate_tells_its_neighbours_by_its_bytes() {
    for (_, circuit) in shape::all() {
        let gates = GateArray::of(&circuit);
        for place in 0..circuit.gates() {
            let gate = gates.at(place);
            // SAFETY:
            // - a gate has at least SETTINGS bytes, and only this thread accesses it.
            let bytes = || unsafe { std::ptr::from_ref(gate).cast::<[u8; SETTINGS]>().read() };
            let mut seen: Vec<_> = gate::neighbours_in(&bytes());
            let mut expected: Vec<_> = gate::neighbours(gate).collect();
            seen.sort_unstable();
            expected.sort_unstable();
            assert_eq!(seen, expected);
            gate::clear(gate);
            assert!(gate::neighbours_in(&bytes()).is_empty());
        }
    }
}

proptest::proptest! {
    /// Any bytes are either refused as a packet, or decode to a packet that each gate takes or refuses and that can be forwarded.
    #[test]
    fn any_bytes_are_a_packet_or_nothing(mut bytes: Vec<u8>, words in 0usize..110, op in 0u8..12) {
        let whole = |bytes: &[u8]| {
            let Some(packet) = Packet::decode(bytes) else { return };
            let circuit = shape::tree(4);
            let gates = GateArray::of(&circuit);
            for place in 0..circuit.gates() {
                let _ = gate::arrive(gates.at(place), &packet);
            }
            assert!(Packet::decode(&packet.encode()).is_some());
        };
        whole(&bytes);
        // A packet with a valid length and operation.
        bytes.resize(24 + 8 * words, 0x3d);
        bytes[16..20].copy_from_slice(&1u32.to_le_bytes());
        bytes[20] = op;
        bytes[22..24].copy_from_slice(&(words as u16).to_le_bytes());
        whole(&bytes);
    }
}

#[test]
fn the_longest_payload_fits() {
    let inputs = [f64::MAX, f64::from_bits(1), -1.5];
    let payload = Payload::doubles(Operation::Bfpsum, &inputs, u64::MAX).unwrap();
    let circuit = shape::butterfly(2);
    let apart = Apart::new(circuit);
    apart.start(0, &payload).unwrap();
    apart.start(1, &payload).unwrap();
    for wire in 0..4 {
        while apart.deliver(wire) {}
    }
    while !apart.ready.borrow().is_empty() {
        apart.execute(0);
    }
    let result = apart.gates.poll(0).unwrap().expect("the end of the round");
    assert_eq!(result.double(0), Some(f64::INFINITY));
    assert_eq!(result.double(1), Some(f64::from_bits(2)));
    assert_eq!(result.double(2), Some(-3.0));
}
