//! The agent: executes peers' atomic operations on memory that only its own process maps, and passes their active messages to handlers.
//!
//! The progress thread does the work, and requesters wake it by a bell. Threads that wait for a network execute requests that call no handler of the
//! program. The agent uses CPU atomics, so its operations mix correctly with the program's own atomics on that memory. Requests lie in the control block.
//! The pid in a request shows whether its requester has died.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use unipgas_core::atomic::Exclusion;
use unipgas_core::driver::{AtBell, Driven, Driver, Waits, give_way};
use unipgas_core::op::{AtomicRequest, Outcome, Remote, ReplyBuffer};
use unipgas_core::transport::{LONGEST_MESSAGE, Life, Peer};
use unipgas_core::{AtomicOp, AtomicType, Error, Result, Rights, atomic, process};

use crate::control::{
    ActiveMessage, AgentRequest, Control, DONE, MESSAGE, POSTED, REQUESTS, TAKEN,
};
use crate::peer::{PeerProcess, ShmPeer};
use crate::registration::RegistrationState;

/// The agent of a process. It serves requests until it is dropped.
pub(crate) struct Agent {
    _at: AtBell,
    _serving: Arc<Serving>,
}

struct Serving(Arc<RegistrationState>);

impl Agent {
    /// Errors: [`Error::Os`].
    pub fn start(home: &Arc<RegistrationState>) -> Result<Self> {
        let driver = Driver::of_this_process()?;
        home.show_alarm(driver.alarm())?;
        let serving = Arc::new(Serving(home.clone()));
        let driven = Arc::downgrade(&serving) as Weak<dyn Driven>;
        driver.enrol(driven, Waits::Never);
        // SAFETY:
        // - the bell is in the pool of its home.
        let at = unsafe {
            let bell = &raw const home.pool.view().control().agent_bell;
            driver.listen_at(bell, home.clone())
        };
        let _ = home.agent_driver.set(Arc::downgrade(&driver));
        Ok(Agent {
            _at: at,
            _serving: serving,
        })
    }
}

impl Driven for Serving {
    fn drive(&self) {
        while serve_all(&self.0, By::Driver).any {}
        free_orphans(self.0.pool.view().control());
    }
}

/// Executor of requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// The progress thread.
    Driver,
    /// Any thread that waits. It executes messages that call no handler of the program.
    Waiter,
}

/// Result of a look at the requests.
#[derive(Default)]
struct Served {
    /// Requests were executed.
    any: bool,
    /// Requests are left that need the progress thread.
    left: bool,
}

/// For a thread that waits: executes messages that call no handler of the program. For other requests it wakes the progress thread, which may not hear the
/// bell now. Returns whether it has executed a message.
pub fn serve(home: &RegistrationState) -> bool {
    let Some(driver) = home.agent_driver.get().filter(|_| home.is_here()) else {
        return false;
    };
    let asked = home.pool.view().control().asked.load(Ordering::Acquire);
    if home.looked_at.load(Ordering::Relaxed) == asked {
        return false;
    }
    // Later requests raise `asked` again.
    home.looked_at.store(asked, Ordering::Relaxed);
    let served = serve_all(home, By::Waiter);
    if served.left
        && let Some(driver) = driver.upgrade()
    {
        driver.wake();
    }
    served.any
}

fn serve_all(home: &RegistrationState, by: By) -> Served {
    let control = home.pool.view().control();
    let mut served = Served::default();
    for (request, message) in control.requests.iter().zip(&control.messages) {
        let (state, relaxed) = (&request.state, Ordering::Relaxed);
        let taken = state.load(relaxed) == POSTED
            && state
                .compare_exchange(POSTED, TAKEN, Ordering::Acquire, relaxed)
                .is_ok();
        if !taken {
            continue;
        }
        let status = match request.what.load(relaxed).checked_sub(MESSAGE) {
            Some(len) => hand_over(home, request, message, len, by),
            None => (by == By::Driver).then(|| execute(control, request)),
        };
        match status {
            Some(status) => {
                request.status.store(status, relaxed);
                state.store(DONE, Ordering::Release);
                served.any = true;
            }
            None => {
                state.store(POSTED, Ordering::Release);
                served.left = true;
            }
        }
    }
    served
}

/// Result of a request: success or a reason for the refusal.
const CARRIED_OUT: u32 = 0;
const GONE: u32 = 1;
const UNKNOWN: u32 = 2;
const MISALIGNED: u32 = 3;
const OUTSIDE: u32 = 4;
const LATE: u32 = 5;
const REFUSED: u32 = 6;

/// The largest element.
type Value = [u64; 4];

fn load(words: &[AtomicU64; 4]) -> Value {
    std::array::from_fn(|nth| words[nth].load(Ordering::Relaxed))
}

fn store(words: &[AtomicU64; 4], value: Value) {
    for (word, value) in words.iter().zip(value) {
        word.store(value, Ordering::Relaxed);
    }
}

/// As [`execute`], of a message. `None`: the progress thread has to do it.
fn hand_over(
    home: &RegistrationState,
    request: &AgentRequest,
    words: &ActiveMessage,
    len: u64,
    by: By,
) -> Option<u32> {
    let slot = request.slot.load(Ordering::Relaxed);
    let generation = request.generation.load(Ordering::Relaxed);
    let entry = home.pool.view().control().slots.get(slot as usize);
    let Some(Ok(entry)) = entry.map(|slot| slot.read(generation)) else {
        return Some(GONE);
    };
    let offset = request.offset.load(Ordering::Relaxed);
    if offset > entry.len || len as usize > LONGEST_MESSAGE {
        return Some(OUTSIDE);
    }
    let (bytes, mut reply) = (words.read(len as usize), Vec::new());
    let (region, at, handlers) = ((slot, generation), offset as usize, &home.handlers);
    let handled = match by {
        By::Driver => handlers.handle(region, at, &bytes, &mut reply),
        By::Waiter => handlers.handle_if_plain(region, at, &bytes, &mut reply)?,
    };
    Some(match handled {
        Ok(()) => {
            reply.truncate(LONGEST_MESSAGE);
            words.write(&reply);
            request.operand[0].store(reply.len() as u64, Ordering::Relaxed);
            CARRIED_OUT
        }
        Err(Error::Refused(why)) => {
            request.operand[0].store(why.into(), Ordering::Relaxed);
            REFUSED
        }
        Err(_) => GONE,
    })
}

/// Everything in the request was written by another process and is checked here.
fn execute(control: &Control, request: &AgentRequest) -> u32 {
    let what = request.what.load(Ordering::Relaxed);
    let (Some(op), Some(ty)) = (
        AtomicOp::ALL.get((what & 0xff) as usize).copied(),
        AtomicType::ALL.get((what >> 8) as usize).copied(),
    ) else {
        return UNKNOWN;
    };
    let Some(slot) = control
        .slots
        .get(request.slot.load(Ordering::Relaxed) as usize)
    else {
        return GONE;
    };
    let Ok(entry) = slot.read(request.generation.load(Ordering::Relaxed)) else {
        return GONE;
    };
    let offset = request.offset.load(Ordering::Relaxed);
    let end = offset.checked_add(ty.size() as u64);
    // An access to an address without memory would end the program.
    let by_address = entry.rights.contains(Rights::BY_ADDRESS);
    if by_address || end.is_none_or(|end| end > entry.len) {
        return OUTSIDE;
    }
    let operand = load(&request.operand);
    let compare = load(&request.compare);
    let mut result = Value::default();
    let target = entry.address.wrapping_add(offset) as *mut u8;
    let exclusion = if entry.rights.contains(Rights::EXCLUSIVE) {
        Exclusion::Locks(&control.locks)
    } else {
        Exclusion::Words(&control.locks)
    };
    // SAFETY:
    // - the target lies in a region that this process has registered, and its registrant keeps it valid.
    // - operand, comparand and result are locals that hold the largest element.
    let outcome = unsafe {
        atomic::apply_in(
            exclusion,
            op,
            ty,
            target,
            1,
            operand.as_ptr().cast(),
            compare.as_ptr().cast(),
            result.as_mut_ptr().cast(),
        )
    };
    store(&request.operand, result);
    match outcome {
        Ok(()) => CARRIED_OUT,
        Err(Error::Misaligned(_)) => MISALIGNED,
        Err(Error::Timeout) => LATE,
        Err(_) => UNKNOWN,
    }
}

/// In place of the requester's pid: it will not take the answer.
const GIVEN_UP: u32 = 0;

/// Frees the requests of requesters that have died.
fn free_orphans(control: &Control) {
    for request in &control.requests {
        let state = request.state.load(Ordering::Acquire);
        let pid = match state {
            0 | POSTED | TAKEN => continue,
            DONE => request.requester.load(Ordering::Relaxed),
            pid => pid,
        };
        if pid == GIVEN_UP || process::has_ended(pid) {
            let _ = request
                .state
                .compare_exchange(state, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// Sends `request` to the agent of `peer`, element by element, and waits for the answers.
///
/// # Safety
/// The request's pointers are valid as [`AtomicRequest`] says.
pub unsafe fn perform(
    home: &RegistrationState,
    peer: &Arc<PeerProcess>,
    dst: Remote<'_>,
    request: &AtomicRequest,
) -> Result<()> {
    let size = request.ty.size();
    for i in 0..request.count {
        // SAFETY:
        // - contract of `values`, which is the contract of this call: the pointers of the request are valid for `count` elements, and `i` is below.
        let (operand, compare) = unsafe { values(request, i) };
        let what = code(request);
        let fill = |request: &AgentRequest, _: &ActiveMessage| {
            store(&request.operand, operand);
            store(&request.compare, compare);
        };
        let result = ask(home, peer, dst, i * size, what, fill, |result, _| result)?;
        if !request.result.is_null() {
            // SAFETY:
            // - `count` elements are valid for writes at `result`.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    result.as_ptr().cast(),
                    request.result.add(i * size),
                    size,
                );
            }
        }
    }
    Ok(())
}

/// As [`perform`], of one element; the end may be reported later, by `late`.
///
/// # Safety
/// As there; the result until the operation is complete.
pub unsafe fn perform_late(
    home: &RegistrationState,
    peer: &Arc<PeerProcess>,
    dst: Remote<'_>,
    request: &AtomicRequest,
    context: u64,
    late: &late::Late,
) -> Result<Outcome> {
    // SAFETY:
    // - contract of `values` and `Late::change`, which is the contract of this call: the operands are valid now, the result until completion.
    unsafe {
        let result = (request.result, request.ty.size());
        let (operand, compare) = values(request, 0);
        let asked = (code(request), operand, compare);
        late.change(home, peer, dst, asked, result, context)
    }
}

fn code(request: &AtomicRequest) -> u64 {
    request.op as u64 | (request.ty as u64) << 8
}

/// Operand and comparand of an element.
///
/// # Safety
/// As [`perform`].
unsafe fn values(request: &AtomicRequest, nth: usize) -> (Value, Value) {
    let size = request.ty.size();
    let value = |from: *const u8| {
        let mut value = Value::default();
        if !from.is_null() {
            // SAFETY:
            // - `count` elements of at most 32 bytes are valid at each pointer that is not null.
            unsafe {
                let from = from.add(nth * size);
                std::ptr::copy_nonoverlapping(from, value.as_mut_ptr().cast(), size);
            }
        }
        value
    };
    (value(request.operand), value(request.compare))
}

/// Sends `message` to the agent of `peer`, and waits for the answer. Errors: [`Error::Unsupported`] if the region has no handler.
pub fn send(
    home: &RegistrationState,
    peer: &Arc<PeerProcess>,
    to: Remote<'_>,
    message: &[u8],
    reply: ReplyBuffer,
) -> Result<()> {
    check_handled(peer, to)?;
    let what = MESSAGE | message.len() as u64;
    let fill = |_: &AgentRequest, words: &ActiveMessage| words.write(message);
    ask(home, peer, to, 0, what, fill, |[len, ..], words| {
        take_reply(reply, len, words);
    })
}

/// Errors: [`Error::Unsupported`].
pub fn check_handled(peer: &PeerProcess, to: Remote<'_>) -> Result<()> {
    let slot = to.region.parts().detail[1] as usize;
    match peer.control().slots[slot].is_handled() {
        true => Ok(()),
        false => Err(Error::Unsupported),
    }
}

fn take_reply(reply: ReplyBuffer, len: u64, words: &ActiveMessage) {
    if reply.room() > 0 {
        reply.take(&words.read((len as usize).min(LONGEST_MESSAGE)));
    }
}

/// `take` takes the answer.
fn ask<T>(
    home: &RegistrationState,
    peer: &Arc<PeerProcess>,
    dst: Remote<'_>,
    ahead: usize,
    what: u64,
    fill: impl FnOnce(&AgentRequest, &ActiveMessage),
    take: impl FnOnce(Value, &ActiveMessage) -> T,
) -> Result<T> {
    let control = peer.control();
    let nth = until(home, peer, |turn| claim(control, turn))?;
    post(control, nth, place(dst, ahead), what, fill);
    let state = &control.requests[nth].state;
    until(home, peer, |_| {
        (state.load(Ordering::Acquire) == DONE).then_some(())
    })?;
    answer(control, nth, take)
}

/// Slot, generation and offset.
type Place = (u32, u32, u64);

fn place(dst: Remote<'_>, ahead: usize) -> Place {
    let parts = dst.region.parts();
    let offset = (dst.offset + ahead) as u64;
    (parts.detail[1] as u32, parts.expected, offset)
}

/// A request that is free becomes this process's.
fn claim(control: &Control, turn: usize) -> Option<usize> {
    let pid = std::process::id();
    let nth = (pid as usize + turn) % REQUESTS;
    let state = &control.requests[nth].state;
    state
        .compare_exchange(0, pid, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
        .then_some(nth)
}

/// Posts a claimed request to the peer.
fn post(
    control: &Control,
    nth: usize,
    (slot, generation, offset): Place,
    what: u64,
    fill: impl FnOnce(&AgentRequest, &ActiveMessage),
) {
    let request = &control.requests[nth];
    let relaxed = Ordering::Relaxed;
    request.requester.store(std::process::id(), relaxed);
    request.slot.store(slot, relaxed);
    request.generation.store(generation, relaxed);
    request.offset.store(offset, relaxed);
    request.what.store(what, relaxed);
    fill(request, &control.messages[nth]);
    request.state.store(POSTED, Ordering::Release);
    control.asked.fetch_add(1, Ordering::Release);
    control.agent_bell.ring_if_heard();
}

/// Takes the result of an executed request, and frees the request.
fn answer<T>(
    control: &Control,
    nth: usize,
    take: impl FnOnce(Value, &ActiveMessage) -> T,
) -> Result<T> {
    let request = &control.requests[nth];
    let (status, what, result) = (
        request.status.load(Ordering::Relaxed),
        request.what.load(Ordering::Relaxed),
        load(&request.operand),
    );
    let taken = (status == CARRIED_OUT).then(|| take(result, &control.messages[nth]));
    request.state.store(0, Ordering::Release);
    if let Some(taken) = taken {
        return Ok(taken);
    }
    Err(match status {
        GONE => Error::StaleRegion,
        MISALIGNED => Error::Misaligned(
            AtomicType::ALL
                .get((what >> 8) as usize)
                .copied()
                .map_or(1, |t| t.alignment()),
        ),
        OUTSIDE => Error::AccessDenied,
        LATE => Error::Timeout,
        REFUSED => Error::Refused(result[0] as u32),
        _ => Error::Unsupported,
    })
}

/// Yields until `poll` gives a value or the peer has died. The agent shares the cores of this process, so spinning would delay it. Requests of peers are
/// executed meanwhile, because the peer may wait for one.
fn until<T>(
    home: &RegistrationState,
    peer: &Arc<PeerProcess>,
    mut poll: impl FnMut(usize) -> Option<T>,
) -> Result<T> {
    let handle = ShmPeer {
        process: peer.clone(),
    };
    let mut turn = 0usize;
    loop {
        if let Some(value) = poll(turn) {
            return Ok(value);
        }
        turn += 1;
        if turn.is_multiple_of(4096) && handle.life() != Life::Alive {
            return Err(Error::PeerDead);
        }
        serve(home);
        give_way();
    }
}

pub(crate) mod late;

#[cfg(test)]
mod tests {
    use unipgas_core::transport::Handler;

    use super::*;
    use crate::control::{RegionKind, SlotEntry};
    use crate::pool::MemoryPool;

    struct Upper {
        plain: bool,
    }

    impl Handler for Upper {
        fn handle(
            &self,
            _: usize,
            message: &[u8],
            reply: &mut Vec<u8>,
        ) -> std::result::Result<(), u32> {
            *reply = message.to_ascii_uppercase();
            Ok(())
        }

        fn is_plain(&self, _: &[u8]) -> bool {
            self.plain
        }
    }

    fn post(home: &RegistrationState, nth: usize, (slot, generation): (u32, u32), message: &[u8]) {
        let control = home.pool.view().control();
        let request = &control.requests[nth];
        request.slot.store(slot, Ordering::Relaxed);
        request.generation.store(generation, Ordering::Relaxed);
        let what = MESSAGE | message.len() as u64;
        request.what.store(what, Ordering::Relaxed);
        control.messages[nth].write(message);
        request.state.store(POSTED, Ordering::Release);
        control.asked.fetch_add(1, Ordering::Release);
    }

    #[test]
    fn who_waits_leaves_what_runs_code_to_the_progress_thread() {
        let home = RegistrationState::new(MemoryPool::create(1).unwrap(), false);
        let control = home.pool.view().control();
        let region = |slot: u32, plain| {
            let generation = control.slots[slot as usize].open(SlotEntry {
                kind: RegionKind::Private,
                rights: Rights::WRITE,
                offset: 0,
                len: 64,
                address: 0,
            });
            let place = (slot, generation);
            home.handlers.insert(place, Arc::new(Upper { plain }));
            place
        };
        let (plain, other) = (region(0, true), region(1, false));
        let state = |nth: usize| control.requests[nth].state.load(Ordering::Acquire);
        post(&home, 3, plain, b"plain");
        post(&home, 5, other, b"other");
        assert!(!serve(&home), "there is no agent yet");
        let driver = Driver::of_this_process().unwrap();
        let _ = home.agent_driver.set(Arc::downgrade(&driver));
        assert!(serve(&home));
        assert_eq!((state(3), state(5)), (DONE, POSTED));
        assert_eq!(control.messages[3].read(5), b"PLAIN");
        assert!(!serve(&home), "nothing new has been asked");
        assert!(serve_all(&home, By::Driver).any);
        assert_eq!((state(3), state(5)), (DONE, DONE));
        assert_eq!(control.messages[5].read(5), b"OTHER");
    }
}
