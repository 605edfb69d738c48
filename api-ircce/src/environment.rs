//! The process-wide state of the C interface: the UE between `RCCE_init` and `RCCE_finalize`, and the end of the process.

use std::ffi::c_void;
use std::io::Write;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use unipgas_core::transport::Life;
use unipgas_core::{Error, exit};

use crate::launch::LaunchSettings;
use crate::process::Ue;
use crate::status::{ErrorCode, Failure, Result};

/// The running UE. Null before `RCCE_init` and after `RCCE_finalize`.
static UE: AtomicPtr<Ue> = AtomicPtr::new(null_mut());

/// Process id of the UE. A forked child of the program is not the UE.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Upper half: number of UEs. Lower half: number of the last UE of this process. 0: no UE has run.
static LAST: AtomicU64 = AtomicU64::new(0);

/// State that only `init` and `finalize` change.
struct Phase {
    life_cycles: u32,
    /// Finished UEs. They stay, since programs may still read memory of the library.
    #[allow(clippy::vec_box, reason = "their addresses must stay")]
    finished: Vec<Box<Ue>>,
}

static PHASE: Mutex<Phase> = Mutex::new(Phase {
    life_cycles: 0,
    finished: Vec::new(),
});

/// The running UE. Errors: [`Failure::NotRunning`].
#[inline(always)]
pub fn current() -> Result<&'static Ue> {
    let ue = UE.load(Ordering::Acquire);
    // SAFETY:
    // - the pointer is null or comes from `Box::into_raw` in `init`. `finalize` moves the box to `finished` and never frees it.
    unsafe { ue.as_ref() }.ok_or(Failure::NotRunning)
}

/// Whether a UE is running, and no thread is finalizing it.
pub(crate) fn is_running() -> bool {
    current().is_ok_and(|ue| !ue.is_finishing())
}

/// This UE's number and the number of UEs. Also valid after `RCCE_finalize`. Errors: [`Failure::NotRunning`] before `RCCE_init`.
pub fn place() -> Result<(u32, u32)> {
    match LAST.load(Ordering::Relaxed) {
        0 => Err(Failure::NotRunning),
        place => Ok((place as u32, (place >> 32) as u32)),
    }
}

/// `RCCE_init` after parsing of the arguments. `cores`: the cores named there. Returns the running UE if there is one. Errors, with a line on stderr:
/// [`ErrorCode::NumUes`]; [`ErrorCode::Malloc`] if a resource is exhausted; [`ErrorCode::CoreNotInHostfile`] for other failures, such as a wrong environment. The process
/// ends if another UE has died.
pub fn init(cores: &[i32]) -> Result<&'static Ue> {
    let mut phase = PHASE.lock();
    if let Ok(ue) = current() {
        return Ok(ue);
    }
    let tell = |why: &str, code: ErrorCode| {
        tell_on_stderr(&format!("RCCE_init: {why}"));
        Failure::Code(code)
    };
    let wishes =
        LaunchSettings::from_env().map_err(|why| tell(&why, ErrorCode::CoreNotInHostfile))?;
    let cores = if cores.is_empty() {
        &wishes.cores
    } else {
        cores
    };
    let started = Ue::start(&wishes, cores);
    let ue = started.map_err(|failure| match failure {
        Failure::Engine(Error::RankDead(id)) => give_up(&Error::RankDead(id)),
        Failure::Code(ErrorCode::NumUes) => tell("a job has at most 48 UEs", ErrorCode::NumUes),
        Failure::Engine(Error::Exhausted(what)) => {
            tell(&format!("out of {what}"), ErrorCode::Malloc)
        }
        other => tell(&other.to_string(), ErrorCode::CoreNotInHostfile),
    })?;
    phase.life_cycles += 1;
    if phase.life_cycles == 1 {
        leave_at_exit();
    }
    let place = u64::from(ue.num()) << 32 | u64::from(ue.id());
    LAST.store(place, Ordering::Relaxed);
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    UE.store(Box::into_raw(Box::new(ue)), Ordering::Release);
    current()
}

/// `RCCE_finalize`. Errors: [`Failure::NotRunning`]; a code of [`Ue::finalize`]. The process ends if the engine fails, for example if another UE has died.
pub fn finalize() -> Result<()> {
    if !is_own_process() {
        return Err(Failure::NotRunning);
    }
    let mut phase = PHASE.lock();
    let finished = current()?.finish();
    if let Err(Failure::Engine(error)) = &finished {
        give_up(error);
    }
    let ue = UE.swap(null_mut(), Ordering::AcqRel);
    // SAFETY:
    // - the pointer comes from `Box::into_raw` in `init`. `current` has just found it, and the lock excludes a second `finalize`.
    phase.finished.push(unsafe { Box::from_raw(ue) });
    finished
}

/// Registers an exit handler that leaves the job. Programs may return from main without `RCCE_finalize`; the other UEs must not report this UE as dead.
fn leave_at_exit() {
    extern "C" fn leave(status: i32, _: *mut c_void) {
        if !is_own_process() {
            return;
        }
        if let Ok(ue) = current() {
            if status == 0 {
                exit::run(|| ue.messages.messenger.see_multicasts_through());
            }
            exit::run(|| drop(ue.world().leave()));
        }
    }
    unsafe extern "C" {
        /// As `atexit`, but the handler also gets the exit status.
        fn on_exit(leave: extern "C" fn(i32, *mut c_void), argument: *mut c_void) -> i32;
    }
    // SAFETY:
    // - `leave` does not unwind, and uses nothing that the C library destroys before it runs the handler.
    unsafe { on_exit(leave, null_mut()) };
}

fn is_own_process() -> bool {
    PROCESS.load(Ordering::Relaxed) == std::process::id()
}

/// Writes a line on stderr and ends the process with status 1; `unipgas run` then ends the other processes. RCCE has no return code for the death of another
/// UE or a failure of the engine.
#[cold]
pub fn give_up(error: &Error) -> ! {
    static ENDING: AtomicBool = AtomicBool::new(false);
    if ENDING.swap(true, Ordering::AcqRel) {
        // Another thread is ending the process.
        loop {
            std::thread::park();
        }
    }
    let error = match current() {
        Ok(ue) => ue
            .world()
            .name_the_gone(0..ue.world().size(), error.clone()),
        Err(_) => error.clone(),
    };
    let me = place().map_or(String::from("this UE"), |(id, _)| format!("UE {id}"));
    let left = |id: u32| current().is_ok_and(|ue| ue.world().life(id) == Life::Left);
    match error {
        Error::RankDead(id) if left(id) => {
            tell_on_stderr(&format!("UE {id} has ended, and {me} waits for it"));
        }
        Error::RankDead(id) => tell_on_stderr(&format!("UE {id} has died: {me} ends")),
        error => tell_on_stderr(&format!("{me}: {error}")),
    }
    let _ = std::io::stdout().flush();
    // SAFETY:
    // - `fflush` of all streams and `_exit` have no preconditions. `_exit` skips the program's exit handlers, which could wait for the dead UE.
    unsafe {
        libc::fflush(null_mut());
        libc::_exit(1)
    }
}

/// Writes one line with one write, since the other UEs may share the stream.
pub(crate) fn tell_on_stderr(text: &str) {
    unipgas_core::tell(text);
}

/// Classes of calls for `RCCE_debug_set`. The errors of an enabled class are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Debug {
    /// Flags, locks, communicators.
    Synch = 1,
    /// Copies and messages.
    Comm = 2,
    /// Voltage and frequency.
    Rpc = 4,
    /// Errors of the debug calls themselves.
    Debug = 8,
}

static DEBUG: AtomicU8 = AtomicU8::new(0);

/// `RCCE_debug_set` and `RCCE_debug_unset`. Errors: [`ErrorCode::DebugFlag`] if `flag` is not a debug flag.
pub fn debug(flag: i32, on: bool) -> Result<()> {
    let classes = match flag {
        111_111 => 0xf,
        111_444 => Debug::Synch as u8,
        111_555 => Debug::Comm as u8,
        111_666 => Debug::Rpc as u8,
        111_888 => Debug::Debug as u8,
        _ => return Err(ErrorCode::DebugFlag.into()),
    };
    if on {
        DEBUG.fetch_or(classes, Ordering::Relaxed);
    } else {
        DEBUG.fetch_and(!classes, Ordering::Relaxed);
    }
    Ok(())
}

/// Whether errors of this class are printed.
#[inline]
pub fn debugging(class: Debug) -> bool {
    DEBUG.load(Ordering::Relaxed) & class as u8 != 0
}
