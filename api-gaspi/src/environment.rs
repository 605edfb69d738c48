//! The process-wide state behind the C interface: which phase of its life the program is in (GASPI 17.1 §5.1).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::config::{self, Config};
use crate::process::{Initialising, Process};
use crate::status::{Result, Status};
use crate::{statistics, watch};

/// The running process, null outside the working phase; with [`WATCHED`] while calls are watched.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());

/// The process of the operating system that has initialised.
static BEGUN_IN: AtomicU32 = AtomicU32::new(0);

/// The highest bit of an address, which those of processes have not: one look tells a process whose calls nobody watches from everything else.
const WATCHED: usize = 1 << (usize::BITS - 1);

fn marked(process: *mut Process, watched: bool) -> *mut Process {
    process.map_addr(|address| match watched && address != 0 {
        true => address | WATCHED,
        false => address & !WATCHED,
    })
}

/// What changes at set-up and shutdown only.
struct Phase {
    config: Option<Config>,
    initialising: Option<Initialising>,
    /// Shutting down, but something is still under way.
    terminating: Option<Box<Process>>,
    /// A program in Rust holds the process itself.
    occupied: bool,
}

static PHASE: Mutex<Phase> = Mutex::new(Phase {
    config: None,
    initialising: None,
    terminating: None,
    occupied: false,
});

/// The process, in its working phase. Errors: [`Status::ErrNoinit`].
#[inline(always)]
pub fn process() -> Result<&'static Process> {
    let process = marked(PROCESS.load(Ordering::Acquire), false);
    // SAFETY:
    // - null, or made by Box::into_raw in `init`; freed by `term`, after which (and during which) calls are undefined by the
    //   specification (§5.1) and not made by the Rust interface, whose `term` takes the process itself.
    unsafe { process.as_ref() }.ok_or(Status::ErrNoinit)
}

/// The process, in its working phase, if nobody watches its calls.
#[inline(always)]
pub(crate) fn unwatched() -> Option<&'static Process> {
    let process = PROCESS.load(Ordering::Acquire);
    // SAFETY:
    // - as for `process`: neither null nor marked.
    (process.addr().cast_signed() > 0).then(|| unsafe { &*process })
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
    let mut phase = PHASE.lock();
    let running = marked(PROCESS.swap(std::ptr::null_mut(), Ordering::AcqRel), false);
    let process = if running.is_null() {
        phase.terminating.take().ok_or(Status::ErrNoinit)?
    } else {
        // SAFETY:
        // - made by Box::into_raw in `init`, and the swap gave it to this thread alone.
        unsafe { Box::from_raw(running) }
    };
    let (rank, size) = (process.rank(), process.num());
    match process.term(timeout) {
        Ok(()) => {
            statistics::end(rank, size);
            Ok(())
        }
        Err((process, status)) => {
            phase.terminating = Some(process);
            Err(status)
        }
    }
}

/// Keeps the C interface from being initialised.
pub(crate) struct Occupied(());

/// A program in Rust makes a process of its own. Errors: [`Status::ErrInited`]: there is one already.
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
