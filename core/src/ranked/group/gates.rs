//! A group that meets, and reduces, in circuits of its network's gates: how the members connect one, and how they pass.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::words::Encoding;
use super::{Arena, Combine, Group, Walk};
use crate::circuit::{Circuit, Gate, Gates, butterfly};
use crate::combine::{Combination, Element};
use crate::op::{Flags, Local, Remote};
use crate::{Deadline, Error, Result};

/// The most gates of a member: groups have fewer members than 2^16.
const MOST: usize = 17;
/// The most words that go through gates at once.
const MOST_WORDS: usize = 8;
/// Gates ring for nobody: who sleeps looks again after such spans, longer and longer.
const LOOK: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));
/// Gates fail when a member dies, and may do so before others see that it has: so long its death is waited for.
const UNTIL_SEEN: Duration = Duration::from_secs(5);
/// Told by a member that has too few gates instead of a name and 1; nobody uses the circuit then. 0: nothing has been told.
const NONE: u64 = u64::MAX;

/// Words of an arena for each gate: the names of those that receive what it sends and that send what it receives, and whether all of whom that member has
/// heard are connected.
const TO: usize = 0;
const FROM: usize = 1;
const HEARD: usize = 2;
const WORDS: usize = 3;
/// Bytes of an arena for a circuit.
pub(super) const ROOM: usize = MOST * WORDS * size_of::<u64>();
/// All are; or not.
const ALL: u64 = 2;
const NOT_ALL: u64 = 1;

/// Whether operations of one kind go by gates.
pub(super) enum Way {
    /// They do not.
    Schedule,
    /// When the first one is done the members will connect gates, whose names have their place there in all arenas.
    Later(usize),
    /// They do that.
    Connecting(Box<Connecting>),
    /// They do, or what gates cannot do goes otherwise. How the operation that is under way does.
    Gates(Box<dyn Circuit>, Option<Encoding>),
}

/// A circuit that the members are connecting. Each talks to those with whom its gates exchange packets.
pub(super) struct Connecting {
    circuit: Option<Box<dyn Circuit>>,
    gates: Vec<Gate>,
    at: usize,
    /// Gates whose names their neighbours have been told.
    named: usize,
    /// Whether this member's gates are connected, and those of all of whom it has heard.
    connected: Option<bool>,
    /// Gates at which it has heard that, and has told it on.
    heard: usize,
}

impl Connecting {
    fn new(gates: &dyn Gates, me: u32, n: u32, at: usize) -> Self {
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

    /// Writes a word about a gate of another member to his arena. Errors: as [`advance`](Connecting::advance).
    fn tell(
        &self,
        group: &Group,
        (whom, gate): (u32, u32),
        about: usize,
        word: u64,
        deadline: Deadline,
    ) -> Result<()> {
        let place = Remote {
            region: group.peer(whom, deadline)?,
            offset: self.place(gate as usize, about),
        };
        let source = Local {
            ptr: (&raw const word).cast_mut().cast(),
            desc: 0,
        };
        let flags = Flags::INLINE | Flags::WAKE;
        // SAFETY:
        // - the word is taken in the call.
        let told = unsafe {
            group
                .endpoint
                .put(source, place, size_of_val(&word), flags, 0)
        };
        told.map(|_| ()).map_err(|error| group.blame(whom, error))
    }

    /// The names of the neighbours of all gates, as they tell them.
    fn names(
        &self,
        group: &Group,
        about: usize,
        of: impl Fn(&Gate) -> Option<(u32, u32)>,
        deadline: Deadline,
    ) -> Result<Vec<Option<u64>>> {
        let name = |(nth, gate): (usize, &Gate)| {
            let told = of(gate).map(|_| group.await_word(self.place(nth, about), deadline));
            Ok(told.transpose()?.map(|word| word - 1))
        };
        self.gates.iter().enumerate().map(name).collect()
    }

    /// Goes on until all members have connected their gates. Errors: [`Error::Timeout`]: call again; [`Error::RankDead`]. `None`: some have too few.
    fn advance(&mut self, group: &Group, deadline: Deadline) -> Result<Option<Box<dyn Circuit>>> {
        while let Some(gate) = self.gates.get(self.named) {
            let own = match &self.circuit {
                Some(circuit) => circuit.gates()[self.named].wrapping_add(1),
                None => NONE,
            };
            // Told once more after a timeout, it is the same.
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
        // As packets will go, so that none is sent before all are connected. The first gate begins, and ends.
        while self.heard <= self.gates.len() {
            let nth = self.heard % self.gates.len();
            let gate = self.gates[nth];
            // Heard once more after a timeout, it is the same.
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
        // - in bounds, aligned (the room is, and each word), mapped while the world lives, used atomically only.
        Ok(unsafe { AtomicU64::from_ptr(local.ptr.cast()) })
    }
}

impl Group {
    fn await_word(&self, at: usize, deadline: Deadline) -> Result<u64> {
        let word = self.arena.connecting(at)?;
        self.await_one(deadline, || match word.load(Ordering::Acquire) {
            0 => None,
            word => Some(word),
        })
    }

    /// Connects gates, where there are some and the first operation is done. Errors: as [`Connecting::advance`].
    fn find_way(&self, walk: &mut Walk, deadline: Deadline) -> Result<()> {
        if let Way::Connecting(connecting) = &mut walk.way {
            let circuit = connecting.advance(self, deadline)?;
            walk.way = circuit.map_or(Way::Schedule, |circuit| Way::Gates(circuit, None));
        }
        Ok(())
    }

    /// The first operation, after which gates are connected.
    fn first(&self, walk: &mut Walk, combine: &mut Combine<'_>, deadline: Deadline) -> Result<()> {
        self.walk(walk, deadline, combine)?;
        if let (Way::Later(at), Some(gates)) = (&walk.way, self.world.engine().gates()) {
            let connecting = Connecting::new(gates, self.index(), self.size(), *at);
            walk.way = Way::Connecting(Box::new(connecting));
        }
        Ok(())
    }

    /// A barrier, by gates as soon as they are connected.
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

    /// Reduces what is held, by gates where they are connected and do that.
    #[inline(never)]
    pub(super) fn reduce_held(
        &self,
        walk: &mut Walk,
        elements: Option<(Combination, Element)>,
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
        self.await_gates(deadline, || circuit.is_reduced(encoding.by, words))?;
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

    /// What gates have failed with, unless a member has died.
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
