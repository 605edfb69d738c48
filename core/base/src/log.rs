//! Log events about the library's choices, through `tracing`. A Rust program subscribes by itself. For other programs UNIPGAS_LOG
//! selects the events, and UNIPGAS_LOG_FILE the destination.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
pub use tracing::Level;

use crate::variables::wrong;
use crate::{Result, descriptor, variables};

/// The choice of the backend, and its reason.
pub const BACKEND: &str = "unipgas::backend";
/// This process's view of the job.
pub const JOB: &str = "unipgas::job";
/// The route to each other process.
pub const ROUTE: &str = "unipgas::route";
/// Program memory that is shared in place, or is not.
pub const MEMORY: &str = "unipgas::memory";

/// A further writer of lines: libfabric's log, for its providers.
#[derive(Clone, Copy)]
pub struct Sink {
    /// The level that it wants. The library reads it once, at the start.
    pub level: fn() -> Option<Level>,
    /// Writes a line. The target begins with the crate's name, or is one of the constants above.
    pub write: fn(level: Level, target: &str, line: &str),
}

/// Destinations of log lines and their filters.
pub struct LogSettings {
    /// The value of UNIPGAS_LOG, if set.
    pub filter: Option<String>,
    /// The file of UNIPGAS_LOG_FILE. Without one, lines go to standard error.
    pub file: Option<File>,
    /// The name of this process in log lines.
    pub who: String,
    /// A further writer, and its level.
    pub sink: Option<(Level, Sink)>,
}

/// Starts to write events. Errors: one line of text.
pub type Listener = fn(LogSettings) -> Result<()>;

static LISTENER: Mutex<Option<Listener>> = Mutex::new(None);
static SINK: Mutex<Option<Sink>> = Mutex::new(None);
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// Sets the writer of events for UNIPGAS_LOG. The top-level library provides it, since the engine itself does not need it.
pub fn listen_by(listener: Listener) {
    *LISTENER.lock() = Some(listener);
}

/// Adds a further writer of events. It has an effect only before the library begins.
pub fn tell_also(sink: Sink) {
    *SINK.lock() = Some(sink);
}

/// Starts the log if the environment or a sink asks for it. Lines name the process by its `rank`, if it has one. Further calls have no effect.
/// Errors: [`Error::InvalidArgument`](crate::Error::InvalidArgument) for an invalid value.
pub fn begin(rank: impl Fn() -> Option<u32>) -> Result<()> {
    if HAS_BEGUN.load(Ordering::Acquire) {
        return Ok(());
    }
    let filter = variables::get("UNIPGAS_LOG")?;
    let sink = SINK.lock().and_then(|sink| Some(((sink.level)()?, sink)));
    if let Some(listener) = *LISTENER.lock()
        && (filter.is_some() || sink.is_some())
    {
        let who = who(rank());
        let file = match &filter {
            Some(_) => file()?,
            None => None,
        };
        listener(LogSettings {
            filter,
            file,
            who,
            sink,
        })?;
    }
    HAS_BEGUN.store(true, Ordering::Release);
    Ok(())
}

/// Opens the file of UNIPGAS_LOG_FILE for append, since several processes write to it. Errors: the file cannot be opened.
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

/// The name of this process in log lines.
fn who(rank: Option<u32>) -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    match rank {
        Some(rank) => format!("rank {rank} on {host}"),
        None => format!("process {} on {host}", std::process::id()),
    }
}
