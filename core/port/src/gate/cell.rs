//! A gate in shared memory: its state, its settings and the payloads of its inputs.

use super::payload::{Head, MAX_WORDS, Payload};
use super::state::{Lost, PORTS, Port, State};
use super::{Error, Result};
use unipgas_base::on_line;
use unipgas_base::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Rounds for which a gate stores inputs. A synchronising circuit needs two: a process can start the next round while others are still in the last one.
pub const ROUNDS: usize = 4;

/// Words of a payload in its 64-byte slot. On longer cache lines, neighbouring rounds share a line.
const NEAR: usize = if cfg!(loom) { 1 } else { 8 };
/// Further words of the longest payloads. Zero for the model checker, which keeps a history of each word.
const FAR: usize = if cfg!(loom) { 0 } else { MAX_WORDS - NEAR };

on_line! {
    #[derive(Debug, Default)]
    #[repr(C)]
    struct Settled {
        /// Names of the sources and destinations, by port. A name is valid only if the state word has the port.
        sources: [AtomicU64; 2],
        destinations: [AtomicU64; 2],
    }
}

on_line! {
    /// Used by the owner alone.
    #[derive(Debug, Default)]
    #[repr(C)]
    pub(super) struct Owned {
        /// Phase of the owner's round.
        pub(super) phase: AtomicU32,
        /// Kind of the payload that started the round.
        pub(super) head: AtomicU32,
        pub(super) flags: AtomicU64,
    }
}

on_line! {
    /// The state word and payload heads. A barrier without a reduction changes nothing else.
    #[derive(Debug, Default)]
    #[repr(C)]
    struct Arrivals {
        state: AtomicU64,
        heads: [[AtomicU32; ROUNDS]; 2],
    }
}

#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Near([AtomicU64; NEAR]);

on_line! {
    /// A barrier gate in memory that peers share. All-zero bytes are a gate without settings. Any bytes are valid.
    ///
    /// Payloads are relaxed atomics. The release of the state word publishes them; readers acquire that word first. If a process dies at any instruction, the
    /// worst result is a circuit that ends no more rounds.
    #[derive(Debug)]
    #[repr(C)]
    pub struct Gate {
        settled: Settled,
        pub(super) owned: Owned,
        arrivals: Arrivals,
        near: [[Near; ROUNDS]; 2],
        far: [[[AtomicU64; FAR]; ROUNDS]; 2],
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Gate>() == 3 * unipgas_base::cache::LINE + 64 * (8 + 8 * 12));

/// Role of a gate, and names of the sources and destinations. `None`: the port is masked; the gate does not wait for it, or does not send to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settings {
    /// The gate's kind.
    pub role: Role,
    /// Source of the signal.
    pub src_signal: Option<u64>,
    /// Source of the packet.
    pub src_packet: Option<u64>,
    /// Destination of the signal.
    pub dst_signal: Option<u64>,
    /// Destination of the packet.
    pub dst_packet: Option<u64>,
}

/// The two kinds of gates (uTofu guide §2.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// Fires when all its inputs have arrived.
    #[default]
    Relay,
    /// Sends when its owner starts a round. The round ends when all inputs have arrived.
    StartEnd,
}

/// Effect of an input on the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The gate waits for more inputs, or another thread executes it.
    Taken,
    /// The relay is ready. The caller must execute it.
    Ready,
    /// A round of the start/end gate has ended.
    Ended,
}

impl Gate {
    /// A gate without settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Offsets of the source and destination names.
    pub(super) const NAMES: [usize; 2] = [
        std::mem::offset_of!(Gate, settled.sources),
        std::mem::offset_of!(Gate, settled.destinations),
    ];
    /// Offset of the state.
    pub(super) const STATE: usize = std::mem::offset_of!(Gate, arrivals.state);
    /// Offset of the payloads.
    #[cfg(all(any(test, fuzzing), not(loom)))]
    pub(super) const PAYLOADS: usize = std::mem::offset_of!(Gate, near);

    /// Gate `index` of an array of gates at `base`.
    ///
    /// # Safety
    /// - `base` is aligned for a gate, and `index` is within the array of `Gate`s at `base`;
    /// - the memory is mapped readable and writable for all of `'a`;
    /// - for all of `'a`, this process accesses the memory only through `&Gate`. (Other processes may write anything.)
    #[inline(always)]
    pub unsafe fn at<'a>(base: *mut u8, index: usize) -> &'a Gate {
        debug_assert!(base.addr().is_multiple_of(align_of::<Gate>()));
        // SAFETY:
        // - contract of this call: it is aligned, within the array, and mapped for `'a`;
        // - a gate consists of atomic integers, so any bytes are valid;
        // - contract of this call: all references are shared, and atomics may change through shared references.
        unsafe { &*base.cast::<Gate>().add(index) }
    }

    #[inline(always)]
    pub(super) fn state(&self) -> State {
        State(self.arrivals.state.load(Acquire))
    }

    /// Replaces `old` by `new`, or returns the current state. A failure can be spurious.
    #[inline(always)]
    fn replace(&self, old: State, new: State) -> std::result::Result<(), State> {
        let state = &self.arrivals.state;
        match state.compare_exchange_weak(old.0, new.0, AcqRel, Acquire) {
            Ok(_) => Ok(()),
            Err(found) => Err(State(found)),
        }
    }

    /// Removes the settings. Later inputs are refused.
    pub(super) fn clear(&self) -> State {
        let mut old = self.state();
        loop {
            match self.replace(old, old.cleared()) {
                Ok(()) => return old.cleared(),
                Err(found) => old = found,
            }
        }
    }

    pub(super) fn configure(&self, settings: &Settings) {
        let cleared = self.clear();
        let sources = [settings.src_signal, settings.src_packet];
        let destinations = [settings.dst_signal, settings.dst_packet];
        for port in 0..PORTS.len() {
            self.settled.sources[port].store(sources[port].unwrap_or(0), Relaxed);
            self.settled.destinations[port].store(destinations[port].unwrap_or(0), Relaxed);
        }
        let configured = cleared.configured(
            sources.map(|name| name.is_some()),
            destinations.map(|name| name.is_some()),
            settings.role == Role::StartEnd,
        );
        self.arrivals.state.store(configured.0, Release);
    }

    #[inline(always)]
    pub(super) fn destination(&self, port: Port) -> u64 {
        self.settled.destinations[port as usize].load(Relaxed)
    }

    pub(super) fn source(&self, port: Port) -> u64 {
        self.settled.sources[port as usize].load(Relaxed)
    }

    /// Marks the circuit as broken, if the gate still has the settings of `seen`.
    #[cold]
    pub(super) fn break_down(&self, seen: State, by: Lost) {
        let mut old = seen;
        while old.same_settings(seen) && old.broken(by) != old {
            match self.replace(old, old.broken(by)) {
                Ok(()) => return,
                Err(found) => old = found,
            }
        }
    }

    /// Stores an input from gate `source`, and counts it.
    #[inline(always)]
    pub(super) fn arrive(&self, port: Port, source: u64, payload: &Payload) -> Result<Arrival> {
        let mut old = self.state();
        'write: loop {
            if !old.is_configured() {
                return Err(Error::NotConfigured);
            }
            let expected = self.settled.sources[port as usize].load(Relaxed);
            if !old.waits_for(port) || expected != source {
                self.break_down(old, Lost::Input);
                return Err(Error::NotTheSource);
            }
            if usize::from(old.unused(port)) >= ROUNDS {
                self.break_down(old, Lost::Input);
                return Err(Error::Overrun);
            }
            let place = old.arrived(port);
            self.write(port, place, payload);
            loop {
                let new = old.arrive(port);
                let Err(found) = self.replace(old, new) else {
                    return Ok(match (old.is_ready(), new.is_ready(), new.is_end()) {
                        (false, true, false) => Arrival::Ready,
                        (false, true, true) => Arrival::Ended,
                        _ => Arrival::Taken,
                    });
                };
                // Inputs of the other port, and firings of the gate, do not affect the slot just written.
                let same = found.same_settings(old) && found.arrived(port) == place;
                old = found;
                if !same {
                    continue 'write;
                }
            }
        }
    }

    #[inline(always)]
    fn write(&self, port: Port, place: u16, payload: &Payload) {
        let (port, slot) = (port as usize, usize::from(place) % ROUNDS);
        self.arrivals.heads[port][slot].store(payload.head().0, Relaxed);
        let words = payload.words();
        if !words.is_empty() {
            let to = self.near[port][slot].0.iter().chain(&self.far[port][slot]);
            for (to, &word) in to.zip(words) {
                to.store(word, Relaxed);
            }
        }
    }

    #[inline(always)]
    fn head(&self, port: Port, place: u16) -> Head {
        Head(self.arrivals.heads[port as usize][usize::from(place) % ROUNDS].load(Relaxed))
    }

    fn read(&self, port: Port, place: u16, into: &mut Payload) {
        let head = self.head(port, place);
        let (port, slot) = (port as usize, usize::from(place) % ROUNDS);
        into.read(head, |index| match index.checked_sub(NEAR) {
            None => self.near[port][slot].0[index].load(Relaxed),
            Some(far) => self.far[port][slot]
                .get(far)
                .map_or(0, |word| word.load(Relaxed)),
        });
    }

    /// Combines the next inputs of `ready`.
    #[inline(always)]
    pub(super) fn reduce(&self, ready: State, into: &mut Payload) {
        let place = ready.fired();
        let plain = |port| !ready.waits_for(port) || self.head(port, place) == Head::BARRIER;
        if plain(Port::Signal) && plain(Port::Packet) {
            into.set_barrier();
        } else {
            self.reduce_words(ready, into);
        }
    }

    #[inline(never)]
    fn reduce_words(&self, ready: State, into: &mut Payload) {
        let place = ready.fired();
        match PORTS.map(|port| ready.waits_for(port)) {
            [true, true] => {
                let mut other = Payload::default();
                self.read(Port::Packet, place, &mut other);
                self.read(Port::Signal, place, into);
                into.combine(&other);
            }
            [false, true] => self.read(Port::Packet, place, into),
            [true, false] => self.read(Port::Signal, place, into),
            [false, false] => {}
        }
    }

    /// Frees the slots of the inputs that were next in `seen`. Returns the new state, or `None` if the settings have changed.
    #[inline(always)]
    pub(super) fn retire(&self, seen: State) -> Option<State> {
        let mut old = seen;
        while old.same_settings(seen) && old.fired() == seen.fired() {
            match self.replace(old, old.fire()) {
                Ok(()) => return Some(old.fire()),
                Err(found) => old = found,
            }
        }
        None
    }

    /// Stores the owner's payload, for a gate without inputs.
    pub(super) fn keep(&self, payload: &Payload) {
        self.write(Port::Signal, 0, payload);
    }

    /// Reads the payload that [`Self::keep`] stored.
    pub(super) fn kept(&self, into: &mut Payload) {
        self.read(Port::Signal, 0, into);
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            settled: Settled::default(),
            owned: Owned::default(),
            arrivals: Arrivals::default(),
            near: Default::default(),
            far: std::array::from_fn(|_| {
                std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::default()))
            }),
        }
    }
}
