//! The process-wide state behind the C interface: the phase of the program (GASPI 17.1 §5.1).

use std::cell::Cell;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use unipgas_core::Deadline;
use unipgas_core::calls::{self, Call};

use crate::config::{self, Config};
use crate::process::{Initialising, Process, deadline};
use crate::status::{Result, Status};
use crate::{statistics, watch};

/// The running process, null outside the working phase; with [`WATCHED`] while calls are watched.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());

/// The process of the operating system that has initialised.
static BEGUN_IN: AtomicU32 = AtomicU32::new(0);

/// The highest bit of an address, which no process has: one comparison finds a process without watched calls.
const WATCHED: usize = 1 << (usize::BITS - 1);

fn marked(process: *mut Process, watched: bool) -> *mut Process {
    process.map_addr(|address| match watched && address != 0 {
        true => address | WATCHED,
        false => address & !WATCHED,
    })
}

/// State that changes at set-up and shutdown only.
struct Phase {
    config: Option<Config>,
    initialising: Option<Initialising>,
    /// Shutting down, but something is still under way.
    terminating: Option<Leaving>,
    /// A program in Rust holds the process itself.
    occupied: bool,
}

/// A process that new procedures do not find.
struct Leaving(*mut Process);

// SAFETY:
// - a Box, to which other threads have shared references until `others_leave` returns; processes are Send and Sync.
unsafe impl Send for Leaving {}

static PHASE: Mutex<Phase> = Mutex::new(Phase {
    config: None,
    initialising: None,
    terminating: None,
    occupied: false,
});

/// Number of [`Current`] in all threads.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Number of [`Current`] in this thread.
    static IN_USE_HERE: Cell<usize> = const { Cell::new(0) };
}

/// The process, for a procedure that may wait: `gaspi_proc_term` ends its waits, and frees the process after it.
pub struct Current(&'static Process);

impl Deref for Current {
    type Target = Process;
    #[inline(always)]
    fn deref(&self) -> &Process {
        self.0
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let _ = IN_USE_HERE.try_with(|here| here.set(here.get() - 1));
        IN_USE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The process, in its working phase. Errors: [`Status::ErrNoinit`].
#[inline]
pub fn process() -> Result<Current> {
    IN_USE.fetch_add(1, Ordering::SeqCst);
    let process = marked(PROCESS.load(Ordering::SeqCst), false);
    // SAFETY:
    // - null, or made by Box::into_raw in `init`; `term` takes it away, and frees it when the count of uses is zero.
    let Some(process) = (unsafe { process.as_ref() }) else {
        IN_USE.fetch_sub(1, Ordering::SeqCst);
        return Err(Status::ErrNoinit);
    };
    let _ = IN_USE_HERE.try_with(|here| here.set(here.get() + 1));
    Ok(Current(process))
}

/// Whether there is a process, and its calls are not watched.
#[inline(always)]
pub(crate) fn is_unwatched() -> bool {
    PROCESS.load(Ordering::Relaxed).addr().cast_signed() > 0
}

/// The process for a call, which does not wait, if its calls are not watched: [`term`] frees it after the call.
#[inline(always)]
pub(crate) fn in_call(_call: &Call) -> Option<&Process> {
    let process = PROCESS.load(Ordering::Acquire);
    // SAFETY:
    // - neither null nor marked; made by Box::into_raw in `init`. `term` takes it away, and frees it after the calls that are in progress then.
    (process.addr().cast_signed() > 0).then(|| unsafe { &*process })
}

/// For the beginning of a call: it is time to look at the lives of peers.
#[cold]
pub(crate) fn look_around() {
    if let Ok(process) = process() {
        process.look_around();
    }
}

/// Calls are watched from now on, or are not.
pub(crate) fn watch(watched: bool) {
    let marked = |process| Some(marked(process, watched));
    let _ = PROCESS.fetch_update(Ordering::AcqRel, Ordering::Acquire, marked);
}

/// Whether the program is in its working phase.
pub fn initialized() -> bool {
    !PROCESS.load(Ordering::Acquire).is_null()
}

/// The configuration in force, or that the next initialisation will use.
pub fn config() -> Config {
    if let Ok(process) = process() {
        return *process.config();
    }
    PHASE.lock().config.unwrap_or_default()
}

/// Sets the configuration of the next initialisation (§5.2.3). Errors: [`Status::ErrInited`], [`Status::ErrConfig`].
pub fn set_config(config: Config) -> Result<()> {
    if initialized() {
        return Err(Status::ErrInited);
    }
    config::check(&config)?;
    PHASE.lock().config = Some(config);
    Ok(())
}

/// `gaspi_proc_init` (§5.3.1).
pub fn init(timeout: u64) -> Result<()> {
    started();
    let mut phase = PHASE.lock();
    if initialized() || phase.terminating.is_some() || phase.occupied {
        return Err(Status::ErrInited);
    }
    if phase.initialising.is_none() {
        statistics::begin()?;
        let config = phase.config.unwrap_or_default();
        phase.initialising = Some(Initialising::begin(&config)?);
    }
    let result = match &mut phase.initialising {
        Some(initialising) => initialising.advance(timeout),
        None => Err(Status::Error),
    };
    match result {
        Ok(process) => {
            phase.initialising = None;
            BEGUN_IN.store(std::process::id(), Ordering::Relaxed);
            PROCESS.store(Box::into_raw(process), Ordering::Release);
            watch(watch::is_on());
            Ok(())
        }
        // The next call goes on, also when a rank has died: another process may take its place.
        Err(status) => Err(status),
    }
}

/// `gaspi_proc_term` (§5.3.4).
pub fn term(timeout: u64) -> Result<()> {
    // A child that the program has forked is not the process of the job.
    if BEGUN_IN.load(Ordering::Relaxed) != std::process::id() {
        return Err(Status::ErrNoinit);
    }
    if IN_USE_HERE.get() > 0 || Call::is_under_way() {
        // Within a procedure: in the operation of a reduction, or in a signal handler.
        return Err(Status::Error);
    }
    let mut phase = PHASE.lock();
    let running = marked(PROCESS.swap(std::ptr::null_mut(), Ordering::SeqCst), false);
    let leaving = match running.is_null() {
        true => phase.terminating.take().ok_or(Status::ErrNoinit)?,
        false => Leaving(running),
    };
    // SAFETY:
    // - made by Box::into_raw in `init`, and freed below alone.
    let process = unsafe { &*leaving.0 };
    let deadline = deadline(timeout);
    let ready = process.drain_all(deadline);
    if let Err(status) = ready.and_then(|()| others_leave(process, deadline)) {
        phase.terminating = Some(leaving);
        return Err(status);
    }
    let alone = calls::wait_for_others();
    let (rank, size) = (process.rank(), process.num());
    process.leave(deadline);
    // Else it stays: a thread may still look at it.
    if alone {
        // SAFETY:
        // - made by Box::into_raw in `init`, and no other thread has it.
        drop(unsafe { Box::from_raw(leaving.0) });
    }
    statistics::end(rank, size);
    Ok(())
}

/// Ends the procedures of other threads, with [`Status::Error`] where they wait. Errors: [`Status::Timeout`].
fn others_leave(process: &Process, deadline: Deadline) -> Result<()> {
    let engine = process.world.engine();
    engine.end_waits(true);
    while IN_USE.load(Ordering::SeqCst) > 0 {
        if deadline.expired() {
            return Err(Status::Timeout);
        }
        std::thread::sleep(Duration::from_micros(50));
        engine.bell().ring();
    }
    engine.end_waits(false);
    Ok(())
}

/// Keeps the C interface from being initialised.
pub(crate) struct Occupied(());

/// A program in Rust makes a process. Errors: [`Status::ErrInited`]: there is one already.
pub(crate) fn occupy() -> Result<Occupied> {
    let mut phase = PHASE.lock();
    let c = initialized() || phase.initialising.is_some() || phase.terminating.is_some();
    if c || phase.occupied {
        return Err(Status::ErrInited);
    }
    phase.occupied = true;
    Ok(Occupied(()))
}

impl Drop for Occupied {
    fn drop(&mut self) {
        PHASE.lock().occupied = false;
    }
}

/// When this program first asked for the time.
pub fn started() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}
