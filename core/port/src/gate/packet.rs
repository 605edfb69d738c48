//! Inputs as bytes, for gates that are not mapped, and their delivery at the target.

use super::Result;
use super::cell::{Arrival, Gate};
use super::payload::{Head, MAX_WORDS, Payload};
use super::run::{Resolve, Run};
use super::state::{Lost, PORTS, Port, State};

/// An input in flight.
#[derive(Debug, Clone)]
pub struct Packet {
    /// Name of the destination gate.
    pub gate: u64,
    /// Name of the gate that sent it.
    pub source: u64,
    port: Port,
    payload: Payload,
}

/// Bytes before the words of the payload: names, port, kind of the payload.
const HEAD: usize = 24;
/// Bytes of the longest packet.
pub const LONGEST_PACKET: usize = HEAD + 8 * MAX_WORDS;

/// The gate that sent a packet, with its settings at that time.
#[derive(Debug, Clone, Copy)]
pub struct Sender {
    /// Its name.
    pub name: u64,
    pub(super) state: State,
}

/// A relay with all inputs, and its settings at that time.
#[derive(Debug, Clone, Copy)]
pub struct Ready {
    /// Its name.
    pub name: u64,
    state: State,
}

impl Packet {
    pub(super) fn new(gate: u64, source: u64, port: Port, payload: &Payload) -> Self {
        Packet {
            gate,
            source,
            port,
            payload: *payload,
        }
    }

    /// Encodes it as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let words = self.payload.words();
        let mut bytes = Vec::with_capacity(HEAD + 8 * words.len());
        bytes.extend(self.gate.to_le_bytes());
        bytes.extend(self.source.to_le_bytes());
        bytes.extend((self.port as u32).to_le_bytes());
        bytes.extend(self.payload.head().0.to_le_bytes());
        for word in words {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    }

    /// Decodes bytes from a peer; they may be arbitrary. `None`: malformed. An invalid payload becomes a mismatch.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, words) = bytes.split_at_checked(HEAD)?;
        let word = |at: usize| Some(u64::from_le_bytes(*head[at..].first_chunk()?));
        let kind = word(16)?;
        let port = *PORTS.get(kind as u32 as usize)?;
        let head = Head((kind >> 32) as u32);
        let (words, rest) = words.as_chunks::<8>();
        if !rest.is_empty() || words.len() != head.words() {
            return None;
        }
        let mut payload = Payload::default();
        payload.read(head, |nth| {
            words.get(nth).map_or(0, |w| u64::from_le_bytes(*w))
        });
        Some(Packet {
            gate: word(0)?,
            source: word(8)?,
            port,
            payload,
        })
    }
}

/// Stores an input at a gate of this process. If a relay becomes ready, the caller must [`execute`] it, at any later time.
///
/// # Errors
/// [`NotConfigured`](super::Error::NotConfigured), [`NotTheSource`](super::Error::NotTheSource), [`Overrun`](super::Error::Overrun): the sender's output is
/// lost.
pub fn arrive(gate: &Gate, packet: &Packet) -> Result<Option<Ready>> {
    let arrival = gate.arrive(packet.port, packet.source, &packet.payload)?;
    Ok((arrival == Arrival::Ready).then(|| Ready {
        name: packet.gate,
        state: gate.state(),
    }))
}

/// Executes a ready relay, and the relays that become ready by it. Does nothing if the relay has been configured again.
pub fn execute<R: Resolve>(gate: &Gate, ready: Ready, resolve: &R) {
    resolve.begin();
    if gate.state().same_settings(ready.state) {
        Run::of(ready.name, gate, resolve);
    }
    resolve.end();
}

/// Marks the gate's circuit as broken: an output was lost after it was sent.
pub fn lose_output(gate: &Gate, sender: &Sender) {
    gate.break_down(sender.state, Lost::Output);
}

/// Length in bytes of the first part of a gate, which holds its settings.
pub const SETTINGS: usize = Gate::STATE + 8;

/// [`neighbours`](super::neighbours) for a gate that is not mapped here, from its first [`SETTINGS`] bytes.
pub fn neighbours_in(bytes: &[u8; SETTINGS]) -> Vec<u64> {
    let word = |at: usize| {
        bytes[at..]
            .first_chunk()
            .map_or(0, |w| u64::from_le_bytes(*w))
    };
    let state = State(word(Gate::STATE));
    let [sources, destinations] = Gate::NAMES;
    let mut all = Vec::new();
    for port in PORTS.into_iter().filter(|_| state.is_configured()) {
        if state.waits_for(port) {
            all.push(word(sources + 8 * port as usize));
        }
        if state.sends(port) {
            all.push(word(destinations + 8 * port as usize));
        }
    }
    all
}
