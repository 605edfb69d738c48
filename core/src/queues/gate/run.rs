//! Rounds: starting one, executing the gates that become ready by it, and taking the result.

use super::cell::{Arrival, Gate, Settings};
use super::inline::Inline;
use super::packet::{Packet, Sender};
use super::payload::{Head, Operation, Payload};
use super::state::{Lost, PORTS, Port, State};
use super::{Error, Result};
use crate::sync::atomic::Ordering::*;
use crate::sync::fence;

/// Where gates are found by their names.
pub trait Resolve {
    /// The gate with this name. On the path of every barrier: it should cost no more than the reading of a table.
    ///
    /// # Errors
    /// Any, if there is no such gate or its process is gone; [`start`] returns it. [`crate::Error::Unsupported`] where it is not mapped
    /// here: what goes there is [sent](Self::send).
    fn gate(&self, name: u64) -> crate::Result<&Gate>;

    /// Sends `packet` to a gate that is not mapped here, after what its sender has sent there before. If it is lost on the way, `sender`
    /// [is told](super::lose_output).
    ///
    /// # Errors
    /// Any, if it cannot be sent.
    fn send(&self, packet: &Packet, sender: Sender) -> crate::Result<()> {
        let _ = (packet, sender);
        Err(crate::Error::Unsupported)
    }

    /// From now on gates are looked up, and used until [`end`](Self::end): by one thread at a time for each start/end gate.
    fn begin(&self) {}

    /// No gate is used any more that was looked up since [`begin`](Self::begin).
    fn end(&self) {}

    /// Wakes the owner of this gate, whose poll has something to tell now. The name may be unknown.
    fn wake(&self, name: u64);
}

/// Phases of the owner's round.
const IDLE: u32 = 0;
const STARTING: u32 = 1;
const STARTED: u32 = 2;
const TAKING: u32 = 3;

/// Ready gates that are kept without an allocation: as many as one thread leaves behind on the longest path through a
/// circuit of up to this many steps.
const INLINE: usize = 32;

/// The most gates that one call executes. No circuit has as many; a loop of settings that somebody wrote over would.
const LIMIT: u32 = if cfg!(any(test, fuzzing)) {
    1 << 10
} else {
    1 << 20
};

/// Gives the gate its settings; inputs and rounds of earlier settings are gone. Only the owner may do so.
pub fn configure(gate: &Gate, settings: &Settings) {
    gate.clear();
    gate.owned.phase.store(IDLE, Relaxed);
    gate.configure(settings);
}

/// Takes the gate's settings away, so that nothing can arrive there. Only the owner may do so.
pub fn clear(gate: &Gate) {
    gate.clear();
    gate.owned.phase.store(IDLE, Relaxed);
}

/// Whether the gate has got an input that it could not keep, or has lost an output, since it was configured. A circuit
/// in which one gate is broken ends no more rounds at some of its processes; so whoever waits looks at all of its own.
#[inline(always)]
pub fn is_broken(gate: &Gate) -> bool {
    gate.state().is_broken()
}

/// Whether the gate is broken since it has got an input that it could not keep: its source ran too far ahead, or is not the one
/// that is set.
pub fn has_lost_input(gate: &Gate) -> bool {
    gate.state().has_lost_input()
}

/// The gates that this one is set to get inputs from and to send outputs to, whosever it is. Who follows these names from gate to
/// gate sees the whole circuit, as far as it has been set.
pub fn neighbours(gate: &Gate) -> impl Iterator<Item = u64> {
    let state = gate.state();
    PORTS.into_iter().flat_map(move |port| {
        let source = (state.is_configured() && state.waits_for(port)).then(|| gate.source(port));
        let destination =
            (state.is_configured() && state.sends(port)).then(|| gate.destination(port));
        source.into_iter().chain(destination)
    })
}

/// The gates whose inputs this one lacks in its round.
pub fn awaited(gate: &Gate) -> impl Iterator<Item = u64> {
    let state = gate.state();
    let lacks = move |port: &Port| state.waits_for(*port) && state.unused(*port) == 0;
    let missing = PORTS.into_iter().filter(lacks);
    missing
        .filter(move |_| state.is_configured())
        .map(|port| gate.source(port))
}

/// Starts a round on the owner's start/end gate, whose name is `name`: sends the payload, and executes whatever gates
/// thereby have all of their inputs, whosever they are.
///
/// # Errors
/// Nothing has been sent after [`Error::Busy`] (the last round has not ended, or its result has not been taken),
/// [`Error::NotConfigured`], [`Error::NotAStart`] and [`Error::Broken`]. After any other error the round is under way:
/// something could not be delivered (the first such error is returned), the gate that sent it is broken, and
/// [`poll`] tells what becomes of the round here.
pub fn start<R: Resolve>(gate: &Gate, name: u64, payload: &Payload, resolve: &R) -> Result<()> {
    let state = gate.state();
    if !state.is_configured() {
        return Err(Error::NotConfigured);
    }
    if !state.is_end() {
        return Err(Error::NotAStart);
    }
    if state.is_broken() {
        return Err(Error::Broken);
    }
    let owned = &gate.owned;
    if owned
        .phase
        .compare_exchange(IDLE, STARTING, Acquire, Relaxed)
        .is_err()
    {
        return Err(Error::Busy);
    }
    owned.head.store(payload.head().0, Relaxed);
    owned.flags.store(payload.flags(), Relaxed);
    if !state.waits() {
        gate.keep(payload);
    }
    let mut run = Run::new(resolve);
    resolve.begin();
    run.send(name, gate, state, payload);
    run.execute();
    resolve.end();
    // Only now can the round end here, and the next one start: an output never overtakes one of the round before.
    owned.phase.store(STARTED, Release);
    // Who was woken while the phase was another one, and sleeps again, has issued the other half.
    fence::light();
    if gate.state().is_ready() {
        resolve.wake(name);
    }
    run.failed.map_or(Ok(()), Err)
}

/// Looks whether the round on the owner's start/end gate has ended. If so, takes the result, `true` is returned and the
/// next round can be started; `into` is undefined otherwise.
///
/// # Errors
/// The round is over after all of them. [`Error::NotStarted`]: there is none; [`Error::Mismatch`]: participants gave
/// different operations, numbers of elements or flags; [`Error::Broken`]: this gate is broken, and must be configured
/// again.
pub fn poll(gate: &Gate, into: &mut Payload) -> Result<bool> {
    poll_for(gate, |_| true, into)
}

/// As [`poll`], for those who wait for the end of some operations only. Errors: as [`poll`]; a round of an operation that is not
/// `wanted` is none to them, and stays as it is.
#[inline]
pub fn poll_for(
    gate: &Gate,
    wanted: impl Fn(Operation) -> bool,
    into: &mut Payload,
) -> Result<bool> {
    let owned = &gate.owned;
    let is_wanted = || {
        let head = Head(owned.head.load(Relaxed));
        head.operation().is_some_and(&wanted)
    };
    match owned.phase.load(Acquire) {
        STARTED if is_wanted() => {}
        STARTED | IDLE => return Err(Error::NotStarted),
        _ => return Ok(false),
    }
    while has_ended(gate.state()) {
        // Of several threads that poll at once, one takes the result.
        if owned
            .phase
            .compare_exchange(STARTED, TAKING, Acquire, Relaxed)
            .is_err()
        {
            return Ok(false);
        }
        // Another thread may have taken what was seen above, and started the next round.
        let state = gate.state();
        let still_wanted = is_wanted();
        if still_wanted && has_ended(state) {
            let result = take(gate, state, into);
            owned.phase.store(IDLE, Release);
            return result;
        }
        owned.phase.store(STARTED, Release);
        if !still_wanted {
            return Err(Error::NotStarted);
        }
    }
    Ok(false)
}

/// Whether the round that has been started on the gate is over.
#[inline(always)]
fn has_ended(state: State) -> bool {
    !state.waits() || state.is_ready() || state.is_broken()
}

#[inline(always)]
fn take(gate: &Gate, state: State, into: &mut Payload) -> Result<bool> {
    if state.is_broken() {
        return Err(Error::Broken);
    }
    if state.waits() {
        gate.reduce(state, into);
        gate.retire(state).ok_or(Error::NotConfigured)?;
    } else {
        gate.kept(into);
    }
    let (head, flags) = (&gate.owned.head, &gate.owned.flags);
    // The inputs may agree among themselves and still not be what was started here.
    if into.is_mismatch() || !into.is_like(Head(head.load(Relaxed)), flags.load(Relaxed)) {
        return Err(Error::Mismatch);
    }
    Ok(true)
}

#[derive(Clone, Copy)]
struct Ready<'r> {
    name: u64,
    gate: &'r Gate,
}

/// What one call executes.
pub(super) struct Run<'r, R> {
    resolve: &'r R,
    ready: Inline<Ready<'r>, INLINE>,
    spilled: Vec<Ready<'r>>,
    failed: Option<Error>,
}

impl<'r, R: Resolve> Run<'r, R> {
    #[inline(always)]
    fn new(resolve: &'r R) -> Self {
        Run {
            resolve,
            ready: Inline::new(),
            spilled: Vec::new(),
            failed: None,
        }
    }

    /// Executes a relay that is ready, and those that become so.
    pub(super) fn of(name: u64, gate: &'r Gate, resolve: &'r R) {
        let mut run = Run::new(resolve);
        run.spilled.push(Ready { name, gate });
        run.execute();
    }

    /// Sends the payload to the destinations of the gate that has this name and state.
    #[inline(always)]
    fn send(&mut self, name: u64, gate: &Gate, state: State, payload: &Payload) {
        for port in PORTS {
            if !state.sends(port) {
                continue;
            }
            let destination = gate.destination(port);
            let target = match self.resolve.gate(destination) {
                Ok(target) => target,
                Err(error) => {
                    self.send_afar((name, gate, state), (port, destination), payload, error);
                    continue;
                }
            };
            match target.arrive(port, name, payload) {
                Ok(Arrival::Taken) => {}
                Ok(Arrival::Ended) => self.resolve.wake(destination),
                Ok(Arrival::Ready) => {
                    let ready = Ready {
                        name: destination,
                        gate: target,
                    };
                    if let Err(ready) = self.ready.push(ready) {
                        self.spilled.push(ready);
                    }
                }
                Err(error) => {
                    self.resolve.wake(destination);
                    self.fail(name, gate, state, error);
                }
            }
        }
    }

    /// Where the destination is not at hand.
    #[cold]
    fn send_afar(
        &mut self,
        (name, gate, state): (u64, &Gate, State),
        (port, destination): (Port, u64),
        payload: &Payload,
        why: crate::Error,
    ) {
        let sent = match why {
            crate::Error::Unsupported => {
                let packet = Packet::new(destination, name, port, payload);
                self.resolve.send(&packet, Sender { name, state })
            }
            why => Err(why),
        };
        if let Err(error) = sent {
            self.fail(name, gate, state, error.into());
        }
    }

    /// An output of the gate is lost: its owner and the caller get to know.
    #[cold]
    fn fail(&mut self, name: u64, gate: &Gate, state: State, error: Error) {
        gate.break_down(state, Lost::Output);
        self.resolve.wake(name);
        self.failed.get_or_insert(error);
    }

    /// Executes the gates that are ready, and those that become so.
    #[inline(always)]
    fn execute(&mut self) {
        let mut left = LIMIT;
        while let Some(Ready { name, gate }) = self.spilled.pop().or_else(|| self.ready.pop()) {
            self.fire(name, gate, &mut left);
            if left == 0 {
                self.failed.get_or_insert(Error::Overrun);
                return;
            }
        }
    }

    /// Executes a gate for which this thread is responsible, since its input made the gate ready. While it is ready
    /// nobody else becomes responsible. The next inputs cannot all come before these are used up, as long as each start
    /// gate is started by its owner only, one round after the other (the last one is waited for here); where
    /// somebody does otherwise, they are this thread's as well.
    #[inline(always)]
    fn fire(&mut self, name: u64, gate: &'r Gate, left: &mut u32) {
        let mut payload = Payload::default();
        let mut state = gate.state();
        while state.is_ready() && !state.is_end() && *left > 0 {
            *left -= 1;
            gate.reduce(state, &mut payload);
            self.send(name, gate, state, &payload);
            match gate.retire(state) {
                Some(next) => state = next,
                None => return,
            }
        }
    }
}
