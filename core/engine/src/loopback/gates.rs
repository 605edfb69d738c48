//! Barrier gates of a loopback network. As on Tofu, a gate passes on its signal after it has the signal of the gate before it and the packet from afar. The
//! poll of a circuit moves its signal.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::circuit::{Circuit, GateNetwork, GateOp};
use crate::{Error, Result};

/// The most words of one reduction, for all operations.
const MOST_WORDS: usize = 6;

/// The gates of all processes of a network, by name, with the packets that have arrived for them.
#[derive(Default)]
pub(crate) struct LoopbackGates {
    arrived: Mutex<BTreeMap<u64, VecDeque<Vec<u64>>>>,
}

impl LoopbackGates {
    /// Whether a gate of this name exists.
    fn has(&self, name: u64) -> bool {
        self.arrived.lock().contains_key(&name)
    }

    /// Sends a packet. If the gate no longer exists, the packet is lost.
    fn send(&self, name: u64, words: Vec<u64>) {
        if let Some(packets) = self.arrived.lock().get_mut(&name) {
            packets.push_back(words);
        }
    }

    fn take(&self, name: u64) -> Option<Vec<u64>> {
        self.arrived.lock().get_mut(&name)?.pop_front()
    }
}

impl GateNetwork for Arc<LoopbackGates> {
    fn claim(&self, count: usize) -> Result<Box<dyn Circuit>> {
        let mut arrived = self.arrived.lock();
        let next = arrived.last_key_value().map_or(1, |(last, _)| last + 1);
        let names: Vec<u64> = (next..).take(count).collect();
        arrived.extend(names.iter().map(|name| (*name, VecDeque::new())));
        Ok(Box::new(Ring {
            all: self.clone(),
            to: vec![None; count],
            from: vec![None; count],
            names,
            run: None,
        }))
    }

    fn most(&self, _: GateOp) -> usize {
        MOST_WORDS
    }
}

/// A signal in progress around the gates of a process.
struct Run {
    by: GateOp,
    /// Number of gates that it has passed.
    passed: usize,
    words: Vec<u64>,
}

/// The gates of a member. Its signal moves around them.
struct Ring {
    all: Arc<LoopbackGates>,
    names: Vec<u64>,
    to: Vec<Option<u64>>,
    from: Vec<Option<u64>>,
    run: Option<Run>,
}

fn combine(by: GateOp, held: &mut [u64], other: &[u64]) {
    for (held, other) in held.iter_mut().zip(other) {
        *held = match by {
            GateOp::Max => (*held).max(*other),
            GateOp::Sum => held.wrapping_add(*other),
            GateOp::SumF64 => (f64::from_bits(*held) + f64::from_bits(*other)).to_bits(),
        };
    }
}

impl Ring {
    /// Moves the signal as far as the arrived packets permit. Returns whether it has passed all gates.
    fn advance(&self, run: &mut Run) -> bool {
        let count = self.names.len();
        loop {
            let gate = run.passed % count;
            if run.passed > 0 && self.from[gate].is_some() {
                let Some(packet) = self.all.take(self.names[gate]) else {
                    return false;
                };
                match count {
                    // A single gate has no signal with the member's own words, so the packet replaces them.
                    1 => run.words = packet,
                    _ => combine(run.by, &mut run.words, &packet),
                }
            }
            if run.passed == count {
                return true;
            }
            if let Some(to) = self.to[gate] {
                self.all.send(to, run.words.clone());
            }
            run.passed += 1;
        }
    }
}

impl Circuit for Ring {
    fn gates(&self) -> &[u64] {
        &self.names
    }

    fn connect(&mut self, to: &[Option<u64>], from: &[Option<u64>]) -> Result<()> {
        let mut named = to.iter().chain(from).flatten();
        if let Some(name) = named.find(|name| !self.all.has(**name)) {
            return Err(Error::InvalidArgument(format!("there is no gate {name}")));
        }
        self.to.copy_from_slice(to);
        self.from.copy_from_slice(from);
        Ok(())
    }

    fn meet(&mut self) -> Result<()> {
        self.reduce(GateOp::Max, &[])
    }

    fn have_met(&mut self) -> Result<bool> {
        self.poll_reduced(GateOp::Max, &mut [])
    }

    fn reduce(&mut self, by: GateOp, words: &[u64]) -> Result<()> {
        let words = words.to_vec();
        let run = Run {
            by,
            passed: 0,
            words,
        };
        match self.run.replace(run) {
            Some(_) => Err(Error::Busy),
            None => Ok(()),
        }
    }

    fn poll_reduced(&mut self, _: GateOp, words: &mut [u64]) -> Result<bool> {
        let mut run = self.run.take().ok_or(Error::Busy)?;
        let around = self.advance(&mut run);
        if !around {
            self.run = Some(run);
            return Ok(false);
        }
        if run.words.len() != words.len() {
            return Err(Error::InvalidArgument("another operation's packet".into()));
        }
        words.copy_from_slice(&run.words);
        Ok(true)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut arrived = self.all.arrived.lock();
        for name in &self.names {
            arrived.remove(name);
        }
    }
}
