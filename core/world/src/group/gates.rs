//! Barriers and reductions by circuits of the network's gates: the connection of a circuit, and its use.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::words::Encoding;
use super::{Arena, Combine, RankGroup, Walk};
use unipgas_base::combine::{Combination, ElementType};
use unipgas_base::{Deadline, Error, Result};
use unipgas_engine::circuit::{Circuit, GateLinks, GateNetwork, butterfly};
use unipgas_engine::op::{Flags, Local};

/// Maximum of gates of a member. Groups have fewer members than 2^16.
const MOST: usize = 17;
/// Maximum of words in a reduction by gates.
const MOST_WORDS: usize = 8;
/// Gates do not ring. A sleeping thread looks again after these pauses, which grow.
const LOOK: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));
/// Gates fail when a member dies, maybe before other sources report the death. The operation waits this long for a report.
const UNTIL_SEEN: Duration = Duration::from_secs(5);
/// A member with too few gates writes this, instead of a name + 1. Then no member uses the circuit. 0: not written yet.
const NONE: u64 = u64::MAX;

/// Words of an arena for each gate: the name of the receiver, the name of the sender, and the connection state. The state covers all members that its writer
/// has heard of.
const TO: usize = 0;
const FROM: usize = 1;
const HEARD: usize = 2;
const WORDS: usize = 3;
/// Length of a circuit's words in an arena, in bytes.
pub(super) const ROOM: usize = MOST * WORDS * size_of::<u64>();
/// States: all these members are connected, or not all.
const ALL: u64 = 2;
const NOT_ALL: u64 = 1;

/// Whether operations of a kind use gates.
pub(super) enum Way {
    /// They use the schedule.
    Schedule,
    /// They use the schedule once; then the members connect gates. The gates' words are at this offset of each arena.
    Later(usize),
    /// The members connect gates.
    Connecting(Box<Connecting>),
    /// They use gates, if the gates support the operation. The encoding belongs to the reduction in progress.
    Gates(Box<dyn Circuit>, Option<Encoding>),
}

/// A circuit under connection. A member exchanges words with the neighbours of its gates.
pub(super) struct Connecting {
    circuit: Option<Box<dyn Circuit>>,
    gates: Vec<GateLinks>,
    at: usize,
    /// Number of gates with names that the neighbours know.
    named: usize,
    /// Whether the gates of this member, and of all members that it has heard of, are connected.
    connected: Option<bool>,
    /// Number of gates that have passed the state on.
    heard: usize,
}

impl Connecting {
    fn new(gates: &dyn GateNetwork, me: u32, n: u32, at: usize) -> Self {
        let shape = butterfly(me, n);
        let claimed = gates
            .claim(shape.len())
            .inspect_err(|error| tracing::debug!("a group has no circuit: {error}"));
        Connecting {
            circuit: claimed.ok(),
            gates: shape,
            at,
            named: 0,
            connected: None,
            heard: 0,
        }
    }

    fn place(&self, gate: usize, word: usize) -> usize {
        self.at + (gate * WORDS + word) * size_of::<u64>()
    }

    /// Writes a word about a gate of another member to that member's arena. Errors: as [`advance`](Connecting::advance).
    fn tell(
        &self,
        group: &RankGroup,
        (whom, gate): (u32, u32),
        about: usize,
        word: u64,
        deadline: Deadline,
    ) -> Result<()> {
        let place = group
            .peer(whom, deadline)?
            .at(self.place(gate as usize, about));
        let source = Local::unregistered((&raw const word).cast_mut().cast());
        let flags = Flags::INLINE | Flags::WAKE;
        // SAFETY:
        // - the call takes the word.
        let told = unsafe {
            group
                .endpoint
                .put(source, place, size_of_val(&word), flags, 0)
        };
        told.map(|_| ()).map_err(|error| group.blame(whom, error))
    }

    /// The names of the gates' neighbours, when they have written them.
    fn names(
        &self,
        group: &RankGroup,
        about: usize,
        of: impl Fn(&GateLinks) -> Option<(u32, u32)>,
        deadline: Deadline,
    ) -> Result<Vec<Option<u64>>> {
        let name = |(nth, gate): (usize, &GateLinks)| {
            let told = of(gate).map(|_| group.await_word(self.place(nth, about), deadline));
            Ok(told.transpose()?.map(|word| word - 1))
        };
        self.gates.iter().enumerate().map(name).collect()
    }

    /// Continues until all members have connected their gates. Errors: [`Error::Timeout`]: call again; [`Error::RankDead`]. `None`: a member has too few gates,
    /// or a connection failed.
    fn advance(
        &mut self,
        group: &RankGroup,
        deadline: Deadline,
    ) -> Result<Option<Box<dyn Circuit>>> {
        while let Some(gate) = self.gates.get(self.named) {
            let own = match &self.circuit {
                Some(circuit) => circuit.gates()[self.named].wrapping_add(1),
                None => NONE,
            };
            // A retry after a timeout writes the same word.
            for (whom, about) in [(gate.to, FROM), (gate.from, TO)] {
                if let Some(whom) = whom {
                    self.tell(group, whom, about, own, deadline)?;
                }
            }
            self.named += 1;
        }
        if self.connected.is_none() {
            let to = self.names(group, TO, |gate| gate.to, deadline)?;
            let from = self.names(group, FROM, |gate| gate.from, deadline)?;
            let known = to.iter().chain(&from).all(|name| *name != Some(NONE - 1));
            let connected = match &mut self.circuit {
                Some(circuit) if known => circuit.connect(&to, &from),
                _ => Err(Error::Exhausted("gates".into())),
            };
            match (&connected, &self.circuit) {
                (Ok(()), Some(circuit)) => tracing::debug!(
                    "gates of a circuit: {:x?}, to {to:x?}, from {from:x?}",
                    circuit.gates()
                ),
                (Err(error), _) => tracing::debug!("a group has no circuit: {error}"),
                (Ok(()), None) => {}
            }
            self.connected = Some(connected.is_ok());
        }
        // The state takes the path of the packets, so no packet leaves before all gates are connected. The first gate begins and ends.
        while self.heard <= self.gates.len() {
            let nth = self.heard % self.gates.len();
            let gate = self.gates[nth];
            // A retry after a timeout reads the same word.
            if self.heard > 0 && gate.from.is_some() {
                let word = group.await_word(self.place(nth, HEARD), deadline)?;
                self.connected = Some(self.connected == Some(true) && word == ALL);
            }
            if let Some(whom) = gate.to
                && self.heard < self.gates.len()
            {
                let word = match self.connected {
                    Some(true) => ALL,
                    _ => NOT_ALL,
                };
                self.tell(group, whom, HEARD, word, deadline)?;
            }
            self.heard += 1;
        }
        Ok(self.circuit.take().filter(|_| self.connected == Some(true)))
    }
}

impl Arena {
    fn connecting(&self, offset: usize) -> Result<&AtomicU64> {
        let local = self.local(offset, size_of::<u64>())?;
        // SAFETY:
        // - in bounds; aligned, as the room and each word are; mapped while the world lives. All accesses are atomic.
        Ok(unsafe { AtomicU64::from_ptr(local.ptr.cast()) })
    }
}

impl RankGroup {
    fn await_word(&self, at: usize, deadline: Deadline) -> Result<u64> {
        let word = self.arena.connecting(at)?;
        self.await_one(deadline, || match word.load(Ordering::Acquire) {
            0 => None,
            word => Some(word),
        })
    }

    /// Connects gates after the first operation, if the network has some. Errors: as [`Connecting::advance`].
    fn find_way(&self, walk: &mut Walk, deadline: Deadline) -> Result<()> {
        if let Way::Connecting(connecting) = &mut walk.way {
            let circuit = connecting.advance(self, deadline)?;
            walk.way = circuit.map_or(Way::Schedule, |circuit| Way::Gates(circuit, None));
        }
        Ok(())
    }

    /// The first operation. After it the members connect gates.
    fn first(&self, walk: &mut Walk, combine: &mut Combine<'_>, deadline: Deadline) -> Result<()> {
        self.walk(walk, deadline, combine)?;
        if let (Way::Later(at), Some(gates)) = (&walk.way, self.world.engine().gates()) {
            let connecting = Connecting::new(gates, self.index(), self.size(), *at);
            walk.way = Way::Connecting(Box::new(connecting));
        }
        Ok(())
    }

    /// A barrier. It uses gates once they are connected.
    #[inline(never)]
    pub(super) fn pass(&self, walk: &mut Walk, deadline: Deadline) -> Result<()> {
        self.find_way(walk, deadline)?;
        let circuit = match &mut walk.way {
            Way::Gates(circuit, _) => circuit,
            Way::Later(_) => return self.first(walk, &mut |_, _| Ok(()), deadline),
            _ => return self.walk(walk, deadline, &mut |_, _| Ok(())),
        };
        if !walk.running {
            circuit.meet().or_else(|error| self.gates_failed(error))?;
            walk.running = true;
        }
        self.await_gates(deadline, || circuit.have_met())?;
        walk.running = false;
        Ok(())
    }

    /// Reduces the held value. It uses gates if they are connected and support the reduction.
    #[inline(never)]
    pub(super) fn reduce_held(
        &self,
        walk: &mut Walk,
        elements: Option<(Combination, ElementType)>,
        combine: &mut Combine<'_>,
        deadline: Deadline,
    ) -> Result<()> {
        self.find_way(walk, deadline)?;
        let (circuit, by) = match &mut walk.way {
            Way::Gates(circuit, by) => (circuit, by),
            Way::Later(_) => return self.first(walk, combine, deadline),
            _ => return self.walk(walk, deadline, combine),
        };
        if !walk.running {
            let most = |by| (self.world.engine().gates()).map_or(0, |gates| gates.most(by));
            let most = |by| most(by).min(MOST_WORDS);
            let fits = |one: &Encoding| (1..=most(one.by)).contains(&one.words(walk.held.len()));
            let encoding = elements.and_then(|(how, element)| Encoding::of(how, element));
            *by = encoding.filter(fits);
        }
        let Some(encoding) = *by else {
            return self.walk(walk, deadline, combine);
        };
        let mut room = [0; MOST_WORDS];
        let words = &mut room[..encoding.words(walk.held.len())];
        if !walk.running {
            encoding.encode(&walk.held, words);
            (circuit.reduce(encoding.by, words)).or_else(|error| self.gates_failed(error))?;
            walk.running = true;
        }
        self.await_gates(deadline, || circuit.poll_reduced(encoding.by, words))?;
        encoding.decode(words, &mut walk.held);
        (walk.running, walk.begun) = (false, false);
        Ok(())
    }

    fn await_gates(
        &self,
        deadline: Deadline,
        mut look: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let engine = self.world.engine();
        let (mut since, mut span) = (None, LOOK.0);
        loop {
            let until = deadline.not_after(span);
            let waited = engine.wait_for(until, &mut || self.check(&mut since), || match look() {
                Ok(false) => None,
                Ok(true) => Some(Ok(())),
                Err(error) => Some(Err(error)),
            });
            match waited {
                Err(Error::Timeout) if !deadline.expired() => span = (span * 2).min(LOOK.1),
                waited => return waited?.or_else(|error| self.gates_failed(error)),
            }
        }
    }

    /// Returns the gates' error, unless a member has died.
    #[cold]
    fn gates_failed(&self, error: Error) -> Result<()> {
        let (mut since, patience) = (None, Deadline::after(UNTIL_SEEN));
        let mut check = || self.check(&mut since);
        let engine = self.world.engine();
        match engine.wait_for(patience, &mut check, || None::<()>) {
            Err(Error::Timeout) => Err(error),
            seen => seen,
        }
    }
}
