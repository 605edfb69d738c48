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
use crate::process::{GaspiProcess, Initialising, deadline};
use crate::status::{Result, Status};
use crate::{statistics, watch};

/// The running process. Null outside the working phase. The [`WATCHED`] bit is set while calls are watched.
static PROCESS: AtomicPtr<GaspiProcess> = AtomicPtr::new(std::ptr::null_mut());

/// Process id of the operating system at initialisation.
static BEGUN_IN: AtomicU32 = AtomicU32::new(0);

/// The highest bit of an address. User addresses never have it, so one comparison finds a process without watched calls.
const WATCHED: usize = 1 << (usize::BITS - 1);

fn marked(process: *mut GaspiProcess, watched: bool) -> *mut GaspiProcess {
    process.map_addr(|address| match watched && address != 0 {
        true => address | WATCHED,
        false => address & !WATCHED,
    })
}

/// State that changes only at set-up and shutdown.
struct Phase {
    config: Option<Config>,
    initialising: Option<Initialising>,
    /// The process of a shutdown that has timed out or failed. The next [`term`] resumes it.
    terminating: Option<Leaving>,
    /// A Rust program owns a process.
    occupied: bool,
}

/// A process in shutdown. New procedures do not find it.
struct Leaving(*mut GaspiProcess);

// SAFETY:
// - the pointer comes from a Box. Other threads have shared references until `others_leave` returns. `GaspiProcess` is Send and Sync.
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

/// The process, for a procedure that may wait. `gaspi_proc_term` ends its waits, and frees the process after the last drop.
pub struct Current(&'static GaspiProcess);

impl Deref for Current {
    type Target = GaspiProcess;
    #[inline(always)]
    fn deref(&self) -> &GaspiProcess {
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
    // - null, or from Box::into_raw in `init`. `term` removes the pointer, and frees the process when `IN_USE` is zero.
    let Some(process) = (unsafe { process.as_ref() }) else {
        IN_USE.fetch_sub(1, Ordering::SeqCst);
        return Err(Status::ErrNoinit);
    };
    let _ = IN_USE_HERE.try_with(|here| here.set(here.get() + 1));
    Ok(Current(process))
}

/// Whether a process exists and its calls are not watched.
#[inline(always)]
pub(crate) fn is_unwatched() -> bool {
    PROCESS.load(Ordering::Relaxed).addr().cast_signed() > 0
}

/// The process, for a call that does not wait. `None` without a process, or if calls are watched. [`term`] frees the process after the call.
#[inline(always)]
pub(crate) fn in_call(_call: &Call) -> Option<&GaspiProcess> {
    let process = PROCESS.load(Ordering::Acquire);
    // SAFETY:
    // - neither null nor marked, so from Box::into_raw in `init`. `term` removes the pointer, waits for the calls in progress, and then frees it.
    (process.addr().cast_signed() > 0).then(|| unsafe { &*process })
}

/// Liveness check of peers, due at the beginning of a call.
#[cold]
pub(crate) fn look_around() {
    if let Ok(process) = process() {
        process.look_around();
    }
}

/// Switches the watching of calls.
pub(crate) fn watch(watched: bool) {
    let marked = |process| Some(marked(process, watched));
    let _ = PROCESS.fetch_update(Ordering::AcqRel, Ordering::Acquire, marked);
}

/// Whether the program is in its working phase.
pub fn initialized() -> bool {
    !PROCESS.load(Ordering::Acquire).is_null()
}

/// The configuration in force. Before initialisation: the configuration that the initialisation will use.
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
        // The next call resumes, also after the death of a rank: another process may take the rank.
        Err(status) => Err(status),
    }
}

/// `gaspi_proc_term` (§5.3.4).
pub fn term(timeout: u64) -> Result<()> {
    // A forked child is not a process of the job.
    if BEGUN_IN.load(Ordering::Relaxed) != std::process::id() {
        return Err(Status::ErrNoinit);
    }
    if IN_USE_HERE.get() > 0 || Call::is_under_way() {
        // A reduction callback or a signal handler calls this inside a procedure.
        return Err(Status::Error);
    }
    let mut phase = PHASE.lock();
    let running = marked(PROCESS.swap(std::ptr::null_mut(), Ordering::SeqCst), false);
    let leaving = match running.is_null() {
        true => phase.terminating.take().ok_or(Status::ErrNoinit)?,
        false => Leaving(running),
    };
    // SAFETY:
    // - from Box::into_raw in `init`, and freed only below.
    let process = unsafe { &*leaving.0 };
    let deadline = deadline(timeout);
    // A shutdown that timed out ends waits until now. The drain is a wait, too.
    process.world.engine().end_waits(false);
    let ready = process.drain_all(deadline);
    if let Err(status) = ready.and_then(|()| others_leave(process, deadline)) {
        phase.terminating = Some(leaving);
        return Err(status);
    }
    let alone = calls::wait_for_others(|| true);
    let (rank, size) = (process.rank(), process.num());
    process.leave(deadline);
    // Otherwise the memory is leaked: a thread may still read it.
    if alone {
        // SAFETY:
        // - from Box::into_raw in `init`, and no other thread uses it.
        drop(unsafe { Box::from_raw(leaving.0) });
    }
    statistics::end(rank, size);
    Ok(())
}

/// Ends the procedures of other threads. Waiting procedures return [`Status::Error`]. Errors: [`Status::Timeout`].
fn others_leave(process: &GaspiProcess, deadline: Deadline) -> Result<()> {
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

/// While it exists, the C interface cannot be initialised.
pub(crate) struct Occupied(());

/// Reserves the process for a Rust program. Errors: [`Status::ErrInited`] if a process exists.
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

/// Time of the first call of this function.
pub fn started() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}
