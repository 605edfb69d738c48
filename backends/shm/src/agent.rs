//! The agent: carries out peers' atomic operations on memory that only its own process maps, and hands over their active messages. The
//! progress thread does that, whom requesters wake by a bell.
//!
//! It uses the same CPU atomics as everybody else, so that the program's own atomics on that memory mix correctly with
//! the peers'. Requests lie in the control block; a requester that dies while it holds one is found by its pid.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use unipgas_core::atomic::Exclusion;
use unipgas_core::driver::{AtBell, Driven, Driver, Waits, give_way};
use unipgas_core::op::{AtomicRequest, Remote, Reply};
use unipgas_core::transport::{LONGEST_MESSAGE, Life, Peer};
use unipgas_core::{AtomicOp, AtomicType, Error, Result, Rights, atomic};

use crate::control::{Control, DONE, MESSAGE, Message, POSTED, REQUESTS, Request};
use crate::peer::{PeerProcess, ShmPeer};
use crate::registration::Home;

/// The agent of a process, at work as long as this lives.
pub struct Agent {
    _at: AtBell,
    _serving: Arc<Serving>,
}

struct Serving(Arc<Home>);

impl Agent {
    /// Errors: [`Error::Os`].
    pub fn start(home: &Arc<Home>) -> Result<Self> {
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
        Ok(Agent {
            _at: at,
            _serving: serving,
        })
    }
}

impl Driven for Serving {
    fn drive(&self) {
        while serve_all(&self.0) {}
        free_orphans(self.0.pool.view().control());
    }
}

fn serve_all(home: &Home) -> bool {
    let control = home.pool.view().control();
    let mut any = false;
    for (request, message) in control.requests.iter().zip(&control.messages) {
        if request.state.load(Ordering::Acquire) == POSTED {
            let status = match request.what.load(Ordering::Relaxed).checked_sub(MESSAGE) {
                Some(len) => hand_over(home, request, message, len),
                None => execute(control, request),
            };
            request.status.store(status, Ordering::Relaxed);
            request.state.store(DONE, Ordering::Release);
            any = true;
        }
    }
    any
}

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

/// As [`execute`], of a message.
fn hand_over(home: &Home, request: &Request, words: &Message, len: u64) -> u32 {
    let slot = request.slot.load(Ordering::Relaxed);
    let generation = request.generation.load(Ordering::Relaxed);
    let control = home.pool.view().control();
    let entry = control.slots.get(slot as usize);
    let Some(Ok(entry)) = entry.map(|slot| slot.read(generation)) else {
        return 1;
    };
    let offset = request.offset.load(Ordering::Relaxed);
    if offset > entry.len || len as usize > LONGEST_MESSAGE {
        return 4;
    }
    let bytes = words.read(len as usize);
    let message = &bytes[..];
    let mut reply = Vec::new();
    match home
        .handlers
        .handle((slot, generation), offset as usize, message, &mut reply)
    {
        Ok(()) => {
            reply.truncate(LONGEST_MESSAGE);
            words.write(&reply);
            request.operand[0].store(reply.len() as u64, Ordering::Relaxed);
            0
        }
        Err(Error::Refused(why)) => {
            request.operand[0].store(why.into(), Ordering::Relaxed);
            6
        }
        Err(_) => 1,
    }
}

/// Everything in the request was written by another process and is checked here.
fn execute(control: &Control, request: &Request) -> u32 {
    let what = request.what.load(Ordering::Relaxed);
    let (Some(op), Some(ty)) = (
        AtomicOp::ALL.get((what & 0xff) as usize).copied(),
        AtomicType::ALL.get((what >> 8) as usize).copied(),
    ) else {
        return 2;
    };
    let Some(slot) = control
        .slots
        .get(request.slot.load(Ordering::Relaxed) as usize)
    else {
        return 1;
    };
    let Ok(entry) = slot.read(request.generation.load(Ordering::Relaxed)) else {
        return 1;
    };
    let offset = request.offset.load(Ordering::Relaxed);
    if offset
        .checked_add(ty.size() as u64)
        .is_none_or(|end| end > entry.len)
    {
        return 4;
    }
    let operand = load(&request.operand);
    let compare = load(&request.compare);
    let mut result = Value::default();
    let target = (entry.address + offset) as *mut u8;
    let exclusion = if entry.rights.contains(Rights::EXCLUSIVE) {
        Exclusion::Locks(&control.locks)
    } else {
        Exclusion::Words(&control.locks)
    };
    // SAFETY:
    // - the target lies in a region that this process has registered, and whose registrant keeps it valid.
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
        Ok(()) => 0,
        Err(Error::Misaligned(_)) => 3,
        Err(Error::Timeout) => 5,
        Err(_) => 2,
    }
}

/// Frees the requests of requesters that have died.
fn free_orphans(control: &Control) {
    for request in &control.requests {
        let state = request.state.load(Ordering::Acquire);
        let pid = match state {
            0 | POSTED => continue,
            DONE => request.requester.load(Ordering::Relaxed),
            pid => pid,
        };
        // SAFETY:
        // - signal 0 only asks whether the process exists.
        let gone = unsafe { libc::kill(pid as i32, 0) } == -1
            && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
        if gone {
            let _ = request
                .state
                .compare_exchange(state, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// Has `peer`'s agent carry out `request`, element by element, and waits for the answers.
///
/// # Safety
/// The request's pointers are valid as [`AtomicRequest`] says.
pub unsafe fn perform(
    peer: &Arc<PeerProcess>,
    dst: Remote<'_>,
    request: &AtomicRequest,
) -> Result<()> {
    let size = request.ty.size();
    for i in 0..request.count {
        let mut operand = Value::default();
        let mut compare = Value::default();
        // SAFETY:
        // - `count` elements of at most 32 bytes are valid at each pointer that is not null.
        unsafe {
            if !request.operand.is_null() {
                std::ptr::copy_nonoverlapping(
                    request.operand.add(i * size),
                    operand.as_mut_ptr().cast(),
                    size,
                );
            }
            if !request.compare.is_null() {
                std::ptr::copy_nonoverlapping(
                    request.compare.add(i * size),
                    compare.as_mut_ptr().cast(),
                    size,
                );
            }
        }
        let what = request.op as u64 | (request.ty as u64) << 8;
        let fill = |request: &Request, _: &Message| {
            store(&request.operand, operand);
            store(&request.compare, compare);
        };
        let result = ask(peer, dst, i * size, what, fill, |result, _| result)?;
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

/// Has `peer`'s agent hand `message` over, and waits for the answer. Errors: [`Error::Unsupported`] if nobody takes messages there.
pub fn send(peer: &Arc<PeerProcess>, to: Remote<'_>, message: &[u8], reply: Reply) -> Result<()> {
    let slot = to.region.parts().detail[1] as usize;
    if !peer.control().slots[slot].is_handled() {
        return Err(Error::Unsupported);
    }
    let what = MESSAGE | message.len() as u64;
    let fill = |_: &Request, words: &Message| words.write(message);
    ask(peer, to, 0, what, fill, |[len, ..], words| {
        if reply.room() > 0 {
            reply.take(&words.read((len as usize).min(LONGEST_MESSAGE)));
        }
    })
}

/// `take` takes the answer.
fn ask<T>(
    peer: &Arc<PeerProcess>,
    dst: Remote<'_>,
    ahead: usize,
    what: u64,
    fill: impl FnOnce(&Request, &Message),
    take: impl FnOnce(Value, &Message) -> T,
) -> Result<T> {
    let control = peer.control();
    let pid = std::process::id();
    let (request, message) = until(peer, |turn| {
        let nth = (pid as usize + turn) % REQUESTS;
        let request = &control.requests[nth];
        request
            .state
            .compare_exchange(0, pid, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then_some((request, &control.messages[nth]))
    })?;
    request.requester.store(pid, Ordering::Relaxed);
    request
        .slot
        .store(dst.region.parts().detail[1] as u32, Ordering::Relaxed);
    request
        .generation
        .store(dst.region.parts().expected, Ordering::Relaxed);
    request
        .offset
        .store((dst.offset + ahead) as u64, Ordering::Relaxed);
    request.what.store(what, Ordering::Relaxed);
    fill(request, message);
    request.state.store(POSTED, Ordering::Release);
    control.agent_bell.ring_if_heard();
    until(peer, |_| {
        (request.state.load(Ordering::Acquire) == DONE).then_some(())
    })?;
    let (status, result) = (
        request.status.load(Ordering::Relaxed),
        load(&request.operand),
    );
    let taken = (status == 0).then(|| take(result, message));
    request.state.store(0, Ordering::Release);
    if let Some(taken) = taken {
        return Ok(taken);
    }
    Err(match status {
        1 => Error::StaleRegion,
        3 => Error::Misaligned(
            AtomicType::ALL
                .get((what >> 8) as usize)
                .copied()
                .map_or(1, |t| t.alignment()),
        ),
        4 => Error::AccessDenied,
        5 => Error::Timeout,
        6 => Error::Refused(result[0] as u32),
        _ => Error::Unsupported,
    })
}

/// Gives way until `poll` gives a value or the peer has died. The agent shares our cores, so spinning would only delay it.
fn until<T>(peer: &Arc<PeerProcess>, mut poll: impl FnMut(usize) -> Option<T>) -> Result<T> {
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
        give_way();
    }
}
