//! What the library tells of its choices, for who asks: events of `tracing`. A program in Rust listens by a subscriber of its own; for all others
//! UNIPGAS_LOG says what is told, and UNIPGAS_LOG_FILE where.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
pub use tracing::Level;

use crate::rendezvous::JobName;
use crate::variables::wrong;
use crate::{Result, descriptor, variables};

/// What was chosen to communicate by, and why.
pub const BACKEND: &str = "unipgas::backend";
/// The job, as this process sees it.
pub const JOB: &str = "unipgas::job";
/// By what each other process is reached.
pub const ROUTE: &str = "unipgas::route";
/// Memory of the program that is shared in place, or is not.
pub const MEMORY: &str = "unipgas::memory";

/// Somebody else who writes lines: libfabric, for its providers.
#[derive(Clone, Copy)]
pub struct Sink {
    /// How much it wants to be told; nothing changes that later.
    pub level: fn() -> Option<Level>,
    /// Writes a line. The target begins with the crate, or is one of those above.
    pub write: fn(level: Level, target: &str, line: &str),
}

/// Who is told what.
pub struct Wishes {
    /// What UNIPGAS_LOG says, if anything.
    pub filter: Option<String>,
    /// The file that UNIPGAS_LOG_FILE names. Without one, lines go to standard error.
    pub file: Option<File>,
    /// This process, as lines of a job name it.
    pub who: String,
    /// Somebody else, and how much of it.
    pub sink: Option<(Level, Sink)>,
}

/// Has events written from now on. Errors: a line.
pub type Listener = fn(Wishes) -> Result<()>;

static LISTENER: Mutex<Option<Listener>> = Mutex::new(None);
static SINK: Mutex<Option<Sink>> = Mutex::new(None);
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// Has events written by this when UNIPGAS_LOG asks for that. The library that links all brings it: the engine has no need of it.
pub fn listen_by(listener: Listener) {
    *LISTENER.lock() = Some(listener);
}

/// Has events written by this, too, if it is said before the library begins.
pub fn tell_also(sink: Sink) {
    *SINK.lock() = Some(sink);
}

/// Begins to tell, if the environment asks for that; more often does nothing. Errors: [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a value
/// that is no filter.
pub fn begin() -> Result<()> {
    if HAS_BEGUN.load(Ordering::Acquire) {
        return Ok(());
    }
    let filter = variables::get("UNIPGAS_LOG")?;
    let sink = SINK.lock().and_then(|sink| Some(((sink.level)()?, sink)));
    if let Some(listener) = *LISTENER.lock()
        && (filter.is_some() || sink.is_some())
    {
        let who = who();
        let file = match &filter {
            Some(_) => file()?,
            None => None,
        };
        listener(Wishes {
            filter,
            file,
            who,
            sink,
        })?;
    }
    HAS_BEGUN.store(true, Ordering::Release);
    Ok(())
}

/// The file of UNIPGAS_LOG_FILE: several processes append lines to it, so the position is always the end. Errors: the file cannot be opened.
fn file() -> Result<Option<File>> {
    const NAME: &str = "UNIPGAS_LOG_FILE";
    let Some(path) = variables::get(NAME)? else {
        return Ok(None);
    };
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
    match descriptor::open(&path, flags, Mode::from_raw_mode(0o666)) {
        Ok(file) => Ok(Some(file.into())),
        Err(error) => Err(wrong(
            NAME,
            &path,
            &format!("must be a file that this process can append to ({error})"),
        )),
    }
}

/// This process, as lines of a job name it.
fn who() -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    match JobName::from_env().ok().and_then(|job| job.rank()) {
        Some(rank) => format!("rank {rank} on {host}"),
        None => format!("process {} on {host}", std::process::id()),
    }
}
