//! What goes from gate to gate where the memory is not mapped, as bytes; and what becomes of it there.

use super::Result;
use super::cell::{Arrival, Gate};
use super::payload::{Head, MAX_WORDS, Payload};
use super::run::{Resolve, Run};
use super::state::{Lost, PORTS, Port, State};

/// An input on its way.
#[derive(Debug, Clone)]
pub struct Packet {
    /// The name of the gate that it goes to.
    pub gate: u64,
    /// The name of the gate that has sent it.
    pub source: u64,
    port: Port,
    payload: Payload,
}

/// Bytes before the words of the payload: names, input, kind of the payload.
const HEAD: usize = 24;
/// Bytes of the longest packet.
pub const LONGEST_PACKET: usize = HEAD + 8 * MAX_WORDS;

/// The gate that has sent something, as it was set when it did.
#[derive(Debug, Clone, Copy)]
pub struct Sender {
    /// Its name.
    pub name: u64,
    pub(super) state: State,
}

/// A relay whose inputs are there, as it is set.
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

    /// As bytes.
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

    /// From bytes that may be anything; `None` for what no gate sends. A payload that no gate sends is a mismatch.
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

/// Puts an input into its place at a gate of this process. What becomes ready by it is for the caller to [`execute`], at any later time.
///
/// # Errors
/// [`NotConfigured`](super::Error::NotConfigured), [`NotTheSource`](super::Error::NotTheSource), [`Overrun`](super::Error::Overrun): the sender's output is lost.
pub fn arrive(gate: &Gate, packet: &Packet) -> Result<Option<Ready>> {
    let arrival = gate.arrive(packet.port, packet.source, &packet.payload)?;
    Ok((arrival == Arrival::Ready).then(|| Ready {
        name: packet.gate,
        state: gate.state(),
    }))
}

/// Executes a relay that has become ready, and whatever becomes ready by that, unless it has been set again since.
pub fn execute<R: Resolve>(gate: &Gate, ready: Ready, resolve: &R) {
    resolve.begin();
    if gate.state().same_settings(ready.state) {
        Run::of(ready.name, gate, resolve);
    }
    resolve.end();
}

/// An output of this gate has been lost after it was sent: its circuit does not work any more.
pub fn lose_output(gate: &Gate, sender: &Sender) {
    gate.break_down(sender.state, Lost::Output);
}

/// Bytes at the beginning of a gate that tell of its settings.
pub const SETTINGS: usize = Gate::STATE + 8;

/// As [`neighbours`](super::neighbours), of the first [`SETTINGS`] bytes of a gate that is not mapped here.
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
