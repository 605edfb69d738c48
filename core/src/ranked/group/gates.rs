//! A group that meets in a circuit of its network's gates: how the members connect it, and how they pass.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Arena, Group, Walk};
use crate::circuit::{Circuit, Gates, partner, receiver, rounds};
use crate::op::{Flags, Local, Remote};
use crate::{Deadline, Error, Result};

/// The most rounds of a circuit.
const MOST: u32 = 16;
/// The name that a member tells who has too few gates; nobody uses the circuit then.
const NONE: u64 = u64::MAX - 1;

/// Words of an arena for each round: names of two gates, and whether all of whom the sender has heard are connected.
const WORDS: u32 = 3;
/// Bytes of an arena for those.
pub(super) const ROOM: usize = (MOST * WORDS) as usize * size_of::<u64>();
/// All are; or not.
const ALL: u64 = 2;
const NOT_ALL: u64 = 1;

/// A circuit that the members are connecting. Each only talks to those to whom it sends: the barrier without gates does that, too.
pub(super) struct Connecting {
    circuit: Option<Box<dyn Circuit>>,
    /// Where names of gates are, in all arenas.
    at: usize,
    rounds: u32,
    /// The gates that receive what this member sends, as far as it has asked for them.
    to: Vec<u64>,
    /// Whether this member's gates are connected, and those of all of whom it has heard.
    connected: Option<bool>,
    /// Rounds in which it has told that, and has heard it.
    told: u32,
    heard: u32,
}

impl Connecting {
    /// Claims the gates of a member of `n`. `None`: there is nobody to meet, or they are too many.
    pub fn new(gates: &dyn Gates, n: u32, at: usize) -> Option<Self> {
        let rounds = rounds(n);
        if !(1..=MOST).contains(&rounds) {
            return None;
        }
        let claimed = gates.claim(rounds);
        let claimed =
            claimed.inspect_err(|error| tracing::debug!("a group has no circuit: {error}"));
        Some(Connecting {
            circuit: claimed.ok(),
            at,
            rounds,
            to: Vec::new(),
            connected: None,
            told: 0,
            heard: 0,
        })
    }

    /// Where a member's gate of a round is named, and where the one is that sends to it in that round.
    fn places(&self, round: u32) -> (usize, usize) {
        let place = |nth: u32| self.at + nth as usize * size_of::<u64>();
        (place(WORDS * round), place(WORDS * round + 1))
    }

    /// Writes a word to a member's arena. Errors: as [`advance`](Connecting::advance).
    fn tell(
        &self,
        group: &Group,
        whom: u32,
        at: usize,
        word: u64,
        deadline: Deadline,
    ) -> Result<()> {
        let slot = Remote {
            region: group.peer(whom, deadline)?,
            offset: at,
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
                .put(source, slot, size_of_val(&word), flags, 0)
        };
        told.map(|_| ()).map_err(|error| group.blame(whom, error))
    }

    /// The name of a gate of this member's, as others get it: 0 is none.
    fn name(&self, round: u32) -> u64 {
        let gates = self.circuit.as_ref().map(|circuit| circuit.gates());
        let name = gates.and_then(|gates| gates.get(round as usize));
        name.copied().unwrap_or(NONE).wrapping_add(1)
    }

    /// Names this member's gates, before anybody looks into its arena. Errors: it is too small.
    pub fn show(&self, arena: &Arena) -> Result<()> {
        for round in 0..self.rounds {
            let (own, _) = self.places(round);
            arena.name(own)?.store(self.name(round), Ordering::Release);
        }
        Ok(())
    }

    /// Goes on until all members have connected their gates. Errors: [`Error::Timeout`]: call again; [`Error::RankDead`]. `None`: some have too few.
    pub fn advance(
        &mut self,
        group: &Group,
        deadline: Deadline,
    ) -> Result<Option<Box<dyn Circuit>>> {
        let (me, n) = (group.index(), group.size());
        while (self.to.len() as u32) < self.rounds {
            let round = self.to.len() as u32;
            let whom = partner(me, n, round);
            let region = group.peer(whom, deadline)?;
            let (offset, _) = self.places(receiver(round, self.rounds));
            let receives = (group.endpoint).load(group.world.engine(), Remote { region, offset });
            let receives = receives.map_err(|error| group.blame(whom, error))?;
            let (_, sends) = self.places(round);
            self.tell(group, whom, sends, self.name(round), deadline)?;
            self.to.push(receives.wrapping_sub(1));
        }
        if self.connected.is_none() {
            let of = |round| group.await_name(self.places(round).1, deadline);
            let from = (0..self.rounds).map(of).collect::<Result<Vec<_>>>()?;
            let connected = (self.circuit.as_mut()).map(|circuit| circuit.connect(&self.to, &from));
            if let Some(Err(error)) = &connected {
                tracing::debug!("a group has no circuit: {error}");
            }
            self.connected = Some(connected.is_some_and(|connected| connected.is_ok()));
        }
        // As in the barrier: nobody sends before all are connected.
        while self.heard < self.rounds {
            let (round, all) = (self.heard, self.connected == Some(true));
            let at = self.places(round).1 + size_of::<u64>();
            if self.told == round {
                let word = if all { ALL } else { NOT_ALL };
                self.tell(group, partner(me, n, round), at, word, deadline)?;
                self.told += 1;
            }
            // A word is told as it is, and awaited as a name is.
            let word = group.await_name(at, deadline)?.wrapping_add(1);
            self.connected = Some(all && word == ALL);
            self.heard += 1;
        }
        Ok(self.circuit.take().filter(|_| self.connected == Some(true)))
    }
}

impl Arena {
    fn name(&self, offset: usize) -> Result<&AtomicU64> {
        let local = self.local(offset, size_of::<u64>())?;
        // SAFETY:
        // - in bounds, aligned (the room is, and each name has a word), mapped while the world lives, used atomically only.
        Ok(unsafe { AtomicU64::from_ptr(local.ptr.cast()) })
    }
}

impl Group {
    fn await_name(&self, at: usize, deadline: Deadline) -> Result<u64> {
        let word = self.arena.name(at)?;
        self.await_one(deadline, || match word.load(Ordering::Acquire) {
            0 => None,
            name => Some(name.wrapping_sub(1)),
        })
    }

    /// From now on barriers go by this circuit.
    pub(super) fn meet_in(&self, circuit: Box<dyn Circuit>) {
        let mut circuit = Some(circuit);
        let _ = self.barrier.with(|walk| {
            walk.circuit = circuit.take();
            Ok(())
        });
    }

    /// A barrier by the gates.
    pub(super) fn pass(&self, walk: &mut Walk, deadline: Deadline) -> Result<()> {
        let Some(circuit) = &mut walk.circuit else {
            return Err(Error::Unsupported);
        };
        if !walk.running {
            circuit.begin()?;
            walk.running = true;
        }
        let mut since = None;
        let passed = self.world.engine().wait_for(
            deadline,
            &mut || self.check(&mut since),
            || match circuit.poll() {
                Ok(false) => None,
                Ok(true) => Some(Ok(())),
                Err(error) => Some(Err(error)),
            },
        )?;
        passed?;
        walk.running = false;
        Ok(())
    }
}
