//! Rounds: starts a round, executes the gates that become ready, and takes the result.

use super::cell::{Arrival, Gate, Settings};
use super::inline::Inline;
use super::packet::{Packet, Sender};
use super::payload::{Head, Operation, Payload};
use super::state::{Lost, PORTS, Port, State};
use super::{Error, Result};
use unipgas_base::sync::atomic::Ordering::*;
use unipgas_base::sync::fence;

/// Lookup of gates by name.
pub trait Resolve {
    /// The gate with this name. Each barrier calls it, so it should cost no more than a table lookup.
    ///
    /// # Errors
    /// [`unipgas_base::Error::Unsupported`] if the gate is not mapped here: its input is then [sent](Self::send). Any other if the gate does not exist or its process
    /// has died; [`start`] returns it.
    fn gate(&self, name: u64) -> unipgas_base::Result<&Gate>;

    /// Sends `packet` to a gate that is not mapped here, in order with earlier packets of its sender. If the packet is lost later, the implementor calls
    /// [`lose_output`](super::lose_output) with `sender`.
    ///
    /// # Errors
    /// Any, if it cannot be sent.
    fn send(&self, packet: &Packet, sender: Sender) -> unipgas_base::Result<()> {
        let _ = (packet, sender);
        Err(unipgas_base::Error::Unsupported)
    }

    /// Begins a section that looks up and uses gates, until [`end`](Self::end). One thread at a time is in it for each start/end gate.
    fn begin(&self) {}

    /// Ends the section. The gates looked up since [`begin`](Self::begin) are not used any more.
    fn end(&self) {}

    /// Wakes the owner of this gate: its poll can now return a result. The name may be unknown.
    fn wake(&self, name: u64);
}

/// Phases of the owner's round.
const IDLE: u32 = 0;
const STARTING: u32 = 1;
const STARTED: u32 = 2;
const TAKING: u32 = 3;

/// Number of ready gates stored without allocation: on a path of this many steps, one thread leaves at most this many behind.
const INLINE: usize = 32;

/// Limit of gates that one call executes. Real circuits are smaller; corrupt settings can form an endless loop.
const LIMIT: u32 = if cfg!(any(test, fuzzing)) {
    1 << 10
} else {
    1 << 20
};

/// Configures the gate, and discards inputs and rounds of earlier settings. Only the owner may call.
pub fn configure(gate: &Gate, settings: &Settings) {
    gate.clear();
    gate.owned.phase.store(IDLE, Relaxed);
    gate.configure(settings);
}

/// Removes the gate's settings, so that it refuses inputs. Only the owner may call.
pub fn clear(gate: &Gate) {
    gate.clear();
    gate.owned.phase.store(IDLE, Relaxed);
}

/// Whether the gate has dropped an input or lost an output since it was configured. If one gate is broken, rounds no longer end at some processes of the
/// circuit. A waiting process therefore checks all its gates of the circuit.
#[inline(always)]
pub fn is_broken(gate: &Gate) -> bool {
    gate.state().is_broken()
}

/// Whether the gate is broken because it dropped an input: its source was too many rounds ahead, or was not the configured source.
pub fn has_lost_input(gate: &Gate) -> bool {
    gate.state().has_lost_input()
}

/// The configured sources and destinations of the gate, of any process. Following these names from gate to gate finds the whole circuit, as far as it is
/// configured.
pub fn neighbours(gate: &Gate) -> impl Iterator<Item = u64> {
    let state = gate.state();
    PORTS.into_iter().flat_map(move |port| {
        let source = (state.is_configured() && state.waits_for(port)).then(|| gate.source(port));
        let destination =
            (state.is_configured() && state.sends(port)).then(|| gate.destination(port));
        source.into_iter().chain(destination)
    })
}

/// The sources of the inputs that the current round still lacks.
pub fn awaited(gate: &Gate) -> impl Iterator<Item = u64> {
    let state = gate.state();
    let lacks = move |port: &Port| state.waits_for(*port) && state.unused(*port) == 0;
    let missing = PORTS.into_iter().filter(lacks);
    missing
        .filter(move |_| state.is_configured())
        .map(|port| gate.source(port))
}

/// Starts a round on the owner's start/end gate with name `name`. Sends the payload, and executes all gates that become ready, of any process.
///
/// # Errors
/// Nothing was sent after [`Error::Busy`] (the last round has not ended, or its result has not been taken), [`Error::NotConfigured`], [`Error::NotAStart`] and
/// [`Error::Broken`]. After any other error the round is in progress. The error is the first failed delivery; the gate that sent it is broken. [`poll`] returns
/// the state of the round here.
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
    // The round can end and the next one start only from here on. So an output never overtakes an output of the last round.
    owned.phase.store(STARTED, Release);
    // A waiter that was woken in an earlier phase, and sleeps again, has issued the heavy fence.
    fence::light();
    if gate.state().is_ready() {
        resolve.wake(name);
    }
    run.failed.map_or(Ok(()), Err)
}

/// Checks whether the round on the owner's start/end gate has ended. If so, takes the result and returns `true`; the next round can start. Otherwise `into` is
/// undefined.
///
/// # Errors
/// After each error the round has ended. [`Error::NotStarted`]: no round; [`Error::Mismatch`]: participants gave different operations, element counts or flags;
/// [`Error::Broken`]: this gate is broken, and must be configured again.
pub fn poll(gate: &Gate, into: &mut Payload) -> Result<bool> {
    poll_for(gate, |_| true, into)
}

/// [`poll`] that accepts rounds of `wanted` operations only. Errors: as [`poll`]; [`Error::NotStarted`] also for a round of another operation, which stays
/// unchanged.
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
        // If several threads poll at once, one takes the result.
        if owned
            .phase
            .compare_exchange(STARTED, TAKING, Acquire, Relaxed)
            .is_err()
        {
            return Ok(false);
        }
        // Another thread may have taken the result seen above, and started the next round.
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

/// Whether the round that was started on the gate has ended.
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
    // The inputs may agree with each other, but not with the round that was started here.
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

/// The gates that one call executes.
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

    /// Executes a ready relay, and the relays that become ready by it.
    pub(super) fn of(name: u64, gate: &'r Gate, resolve: &'r R) {
        let mut run = Run::new(resolve);
        run.spilled.push(Ready { name, gate });
        run.execute();
    }

    /// Sends the payload to the destinations of the gate. `name` and `state` belong to the gate.
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

    /// Sends to a destination that is not mapped or does not exist.
    #[cold]
    fn send_afar(
        &mut self,
        (name, gate, state): (u64, &Gate, State),
        (port, destination): (Port, u64),
        payload: &Payload,
        why: unipgas_base::Error,
    ) {
        let sent = match why {
            unipgas_base::Error::Unsupported => {
                let packet = Packet::new(destination, name, port, payload);
                self.resolve.send(&packet, Sender { name, state })
            }
            why => Err(why),
        };
        if let Err(error) = sent {
            self.fail(name, gate, state, error.into());
        }
    }

    /// Notes that an output of the gate is lost. Wakes its owner, and keeps the error for the caller.
    #[cold]
    fn fail(&mut self, name: u64, gate: &Gate, state: State, error: Error) {
        gate.break_down(state, Lost::Output);
        self.resolve.wake(name);
        self.failed.get_or_insert(error);
    }

    /// Executes the gates that are ready or become ready.
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

    /// Executes a gate. This thread's input made the gate ready, so this thread is responsible for it. While the gate is ready, no other thread becomes
    /// responsible. The next inputs cannot all arrive before these are used, if each owner starts rounds one after the other. (The last round is awaited here.)
    /// Otherwise this thread executes the next inputs as well.
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
