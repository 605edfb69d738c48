//! The agent: a thread that carries out peers' atomic operations on memory that only its own process maps.
//!
//! It uses the same CPU atomics as everybody else, so that the program's own atomics on that memory mix correctly with
//! the peers'. Requests lie in the control block; a requester that dies while it holds one is found by its pid.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use unipgas_core::atomic::Exclusion;
use unipgas_core::bell::SLICE;
use unipgas_core::op::{AtomicRequest, Remote};
use unipgas_core::panics::keep_going;
use unipgas_core::transport::{Life, Peer};
use unipgas_core::{AtomicOp, AtomicType, Error, Result, Rights, atomic};

use crate::control::{Control, DONE, POSTED, REQUESTS, Request};
use crate::peer::{PeerProcess, ShmPeer};
use crate::registration::Home;

/// The running agent; dropping it ends the thread.
pub struct Agent {
    stop: Arc<AtomicBool>,
    home: Arc<Home>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// Starts the thread, with all signals blocked: they are for the program's own threads.
    pub fn start(home: &Arc<Home>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (home2, stop2) = (home.clone(), stop.clone());
        let blocked = SignalsBlocked::new();
        let thread = std::thread::Builder::new()
            .name("unipgas-agent".into())
            .stack_size(256 << 10)
            .spawn(move || keep_going(|| serve(home2.pool.view().control(), &stop2)))
            .map_err(|e| Error::os("start of the agent thread", e))?;
        drop(blocked);
        Ok(Agent {
            stop,
            home: home.clone(),
            thread: Some(thread),
        })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.home.pool.view().control().agent_bell.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Blocks all signals of the calling thread while it lives; a thread started meanwhile inherits that.
struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    fn new() -> Self {
        // SAFETY:
        // - both sets are plain data that the calls fill; the mask of the calling thread is restored on drop.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut old: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
            SignalsBlocked(old)
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY:
        // - the mask that `new` saved.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

fn serve(control: &Control, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        if serve_all(control) {
            continue;
        }
        let listening = control.agent_bell.listen();
        if !serve_all(control) && !stop.load(Ordering::Acquire) {
            listening.sleep(SLICE);
        }
        free_orphans(control);
    }
}

fn serve_all(control: &Control) -> bool {
    let mut any = false;
    for request in &control.requests {
        if request.state.load(Ordering::Acquire) == POSTED {
            request
                .status
                .store(execute(control, request), Ordering::Relaxed);
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
        let result = ask(peer, dst, i * size, what, operand, compare)?;
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

fn ask(
    peer: &Arc<PeerProcess>,
    dst: Remote<'_>,
    ahead: usize,
    what: u64,
    operand: Value,
    compare: Value,
) -> Result<Value> {
    let control = peer.control();
    let pid = std::process::id();
    let request = until(peer, |turn| {
        let request = &control.requests[(pid as usize + turn) % REQUESTS];
        request
            .state
            .compare_exchange(0, pid, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then_some(request)
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
    store(&request.operand, operand);
    store(&request.compare, compare);
    request.state.store(POSTED, Ordering::Release);
    control.agent_bell.ring_if_heard();
    until(peer, |_| {
        (request.state.load(Ordering::Acquire) == DONE).then_some(())
    })?;
    let (status, result) = (
        request.status.load(Ordering::Relaxed),
        load(&request.operand),
    );
    request.state.store(0, Ordering::Release);
    match status {
        0 => Ok(result),
        1 => Err(Error::StaleRegion),
        3 => Err(Error::Misaligned(
            AtomicType::ALL
                .get((what >> 8) as usize)
                .copied()
                .map_or(1, |t| t.alignment()),
        )),
        4 => Err(Error::AccessDenied),
        5 => Err(Error::Timeout),
        _ => Err(Error::Unsupported),
    }
}

/// Yields until `poll` gives a value or the peer has died. The agent shares our cores, so spinning would only delay it.
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
        std::thread::yield_now();
    }
}
