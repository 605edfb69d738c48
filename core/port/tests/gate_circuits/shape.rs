//! The shapes of circuits, and gates to build them from.

use std::sync::atomic::{AtomicU64, Ordering::*};

use unipgas_port::gate::{self, Gate, Payload, Resolve, Role, Settings};

/// Gates do not interpret names. These are large numbers, so an array index in their place fails.
const NAME: u64 = 0xb6_0000_0000_0000;

/// Name of the gate with this place in the array.
pub fn name(place: usize) -> u64 {
    NAME + place as u64 * 0x1_0001
}

pub fn place(name: u64) -> Option<usize> {
    let place = name.checked_sub(NAME)?;
    (place % 0x1_0001 == 0).then_some((place / 0x1_0001) as usize)
}

/// Settings of the gates of several ranks. All ranks have the same number of gates; the first is the start/end gate.
#[derive(Clone)]
pub struct TestCircuit {
    pub ranks: usize,
    each: usize,
    settings: Vec<Settings>,
}

impl TestCircuit {
    fn new(ranks: usize, each: usize) -> Self {
        let mut settings = vec![Settings::default(); ranks * each];
        settings
            .iter_mut()
            .step_by(each)
            .for_each(|s| s.role = Role::StartEnd);
        Self {
            ranks,
            each,
            settings,
        }
    }

    pub fn gates(&self) -> usize {
        self.settings.len()
    }

    /// The rank that owns the gate.
    pub fn owner(&self, place: usize) -> usize {
        place / self.each
    }

    pub fn start(&self, rank: usize) -> usize {
        rank * self.each
    }

    fn signal(&mut self, rank: usize, from: usize, to: usize) {
        let (from, to) = (rank * self.each + from, rank * self.each + to);
        assert_eq!(self.settings[from].dst_signal.replace(name(to)), None);
        assert_eq!(self.settings[to].src_signal.replace(name(from)), None);
    }

    fn packet(&mut self, from: (usize, usize), to: (usize, usize)) {
        let [from, to] = [from, to].map(|(rank, gate)| rank * self.each + gate);
        assert_eq!(self.settings[from].dst_packet.replace(name(to)), None);
        assert_eq!(self.settings[to].src_packet.replace(name(from)), None);
    }

    /// Moves the circuit to the gates from `first` on.
    pub fn configure(&self, first: usize, gates: &impl Resolve) {
        let moved = |old: Option<u64>| old.map(|old| name(place(old).unwrap() + first));
        for (index, settings) in self.settings.iter().enumerate() {
            let settings = Settings {
                role: settings.role,
                src_signal: moved(settings.src_signal),
                src_packet: moved(settings.src_packet),
                dst_signal: moved(settings.dst_signal),
                dst_packet: moved(settings.dst_packet),
            };
            gate::configure(gates.gate(name(first + index)).unwrap(), &settings);
        }
    }
}

/// The butterfly of the uTofu guide, §5.2.1, for a power of two of ranks.
pub fn butterfly(ranks: usize) -> TestCircuit {
    folded(ranks)
}

/// A butterfly of the greatest power of two of ranks. Each other rank sends its input to one of them, and gets the
/// result from it (uTofu guide, figure 2.17, for ten).
pub fn folded(ranks: usize) -> TestCircuit {
    let steps = ranks.ilog2() as usize;
    let core = 1 << steps;
    let mut circuit = TestCircuit::new(ranks, steps + 2);
    for rank in 0..core {
        let extra = (rank + core < ranks).then_some(rank + core);
        // Gates 1 to `steps` combine. A rank with an extra rank has one more gate before them, and its last gate sends to the extra
        // rank. In a plain butterfly this packet goes to the partner's end gate.
        let first = if extra.is_some() { steps + 1 } else { 1 };
        circuit.signal(rank, 0, first);
        if let Some(extra) = extra {
            circuit.packet((extra, 0), (rank, first));
            circuit.signal(rank, first, 1);
        }
        for step in 1..steps {
            circuit.signal(rank, step, step + 1);
        }
        circuit.signal(rank, steps, 0);
        for step in 1..=steps {
            let sender = if step > 1 {
                step - 1
            } else if extra.is_some() {
                first
            } else {
                0
            };
            circuit.packet((rank, sender), (rank ^ 1 << (step - 1), step));
        }
        if let Some(extra) = extra {
            circuit.packet((rank, steps), (extra, 0));
        }
    }
    circuit
}

/// The unchanged program of the uTofu guide, §5.2.1: the end gates make the last step. So two ranks need one gate each,
/// which signals itself.
pub fn guide(ranks: usize) -> TestCircuit {
    let steps = ranks.ilog2() as usize;
    let mut circuit = TestCircuit::new(ranks, steps);
    for rank in 0..ranks {
        for step in 0..steps {
            let next = (step + 1) % steps;
            circuit.signal(rank, step, next);
            circuit.packet((rank, step), (rank ^ 1 << step, next));
        }
    }
    circuit
}

/// A ring: the first lap collects the inputs, the second distributes the result.
pub fn ring(ranks: usize) -> TestCircuit {
    let mut circuit = TestCircuit::new(ranks, 3);
    let (collect, tell, last) = (1, 2, ranks - 1);
    circuit.packet((0, 0), (1, collect));
    for rank in 1..ranks {
        circuit.signal(rank, 0, collect);
        if rank < last {
            circuit.packet((rank, collect), (rank + 1, collect));
        }
    }
    circuit.signal(last, collect, 0);
    circuit.packet((last, collect), (0, tell));
    for rank in 0..last {
        circuit.signal(rank, tell, 0);
        if rank + 1 < last {
            circuit.packet((rank, tell), (rank + 1, tell));
        }
    }
    circuit
}

/// A binary tree: inputs go up, the result goes down.
pub fn tree(ranks: usize) -> TestCircuit {
    let mut circuit = TestCircuit::new(ranks, 5);
    let children =
        |rank: usize| (2 * rank + 1..2 * rank + 3).take_while(move |&child| child < ranks);
    // Gates 1 and 2 of a rank collect from its children; 3 and 4 send them the result.
    let top = |rank| children(rank).count();
    let told = |rank| if children(rank).count() == 0 { 0 } else { 3 };
    for rank in 0..ranks {
        for (index, child) in children(rank).enumerate() {
            circuit.signal(rank, index, index + 1);
            circuit.packet((child, top(child)), (rank, index + 1));
            circuit.packet((rank, 3 + index), (child, told(child)));
            if index > 0 {
                circuit.signal(rank, 2 + index, 3 + index);
            }
        }
        if top(rank) > 0 {
            circuit.signal(rank, 2 + top(rank), 0);
        }
    }
    circuit.signal(0, top(0), 3);
    circuit
}

pub fn all() -> Vec<(&'static str, TestCircuit)> {
    vec![
        ("guide of 2", guide(2)),
        ("guide of 4", guide(4)),
        ("guide of 8", guide(8)),
        ("butterfly of 2", butterfly(2)),
        ("butterfly of 4", butterfly(4)),
        ("butterfly of 8", butterfly(8)),
        ("folded butterfly of 3", folded(3)),
        ("folded butterfly of 10", folded(10)),
        ("ring of 2", ring(2)),
        ("ring of 7", ring(7)),
        ("tree of 2", tree(2)),
        ("tree of 10", tree(10)),
    ]
}

/// Gates in one array.
pub struct GateArray {
    gates: Vec<Gate>,
    pub wakes: AtomicU64,
}

impl GateArray {
    pub fn new(count: usize) -> Self {
        Self {
            gates: (0..count).map(|_| Gate::new()).collect(),
            wakes: AtomicU64::new(0),
        }
    }

    pub fn of(circuit: &TestCircuit) -> Self {
        let gates = Self::new(circuit.gates());
        circuit.configure(0, &gates);
        gates
    }

    pub fn at(&self, place: usize) -> &Gate {
        &self.gates[place]
    }

    pub fn start(&self, place: usize, payload: &Payload) -> gate::Result<()> {
        gate::start(self.at(place), name(place), payload, self)
    }

    /// The result, if the round has ended.
    pub fn poll(&self, place: usize) -> gate::Result<Option<Payload>> {
        let mut payload = Payload::default();
        Ok(gate::poll(self.at(place), &mut payload)?.then_some(payload))
    }
}

impl Resolve for GateArray {
    fn gate(&self, name: u64) -> unipgas_base::Result<&Gate> {
        let gate = place(name).and_then(|place| self.gates.get(place));
        gate.ok_or(unipgas_base::Error::PeerDead)
    }

    fn wake(&self, _name: u64) {
        self.wakes.fetch_add(1, Relaxed);
    }
}
