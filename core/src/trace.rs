//! The timeline of a job: what its processes did when, as events of the Trace Event Format, which Perfetto, Chrome and speedscope show. Each process appends
//! to the file that UNIPGAS_TRACE names. Where nothing names one, a look at a flag is all that it costs.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};

use crate::waits::calling;
use crate::{process, tell, variables};

/// Copies and transfers of so many bytes are told.
pub const LARGE: usize = 64 << 10;
/// Waits are told that have lasted so long.
const LONG: Duration = Duration::from_micros(10);
/// What has been told stays in memory for so long, or until there is so much of it.
const KEPT: Duration = Duration::from_millis(500);
const MUCH: usize = 64 << 10;

static IS_ON: AtomicBool = AtomicBool::new(false);
/// Of this process, as messages name it.
static RANK: AtomicU32 = AtomicU32::new(0);
static RECORDER: Mutex<Option<Recorder>> = Mutex::new(None);

/// Where the events of this process go.
struct Recorder {
    file: File,
    /// What viewers call a process; 0 is nobody's to them.
    number: u32,
    /// Of this process, and not of one that it has started by fork.
    pid: u32,
    text: Vec<u8>,
    written: Instant,
    clock: (Instant, Duration),
}

/// As the format has it; times in microseconds since 1970.
#[derive(Serialize)]
struct Event<'a> {
    name: &'a str,
    cat: &'a str,
    ph: &'a str,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    pid: u32,
    tid: i32,
    /// What joins the two ends of an arrow.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'a str>,
    args: Value,
}

/// Whether anything is told.
#[inline(always)]
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Begins, if the environment asks for it; more often does nothing. `rank` of a job; a process without one goes by its id.
pub fn begin(rank: Option<u32>) {
    let Ok(Some(path)) = variables::get("UNIPGAS_TRACE") else {
        return;
    };
    let mut recorder = RECORDER.lock();
    if recorder
        .as_ref()
        .is_some_and(|known| known.pid == process::id())
    {
        return;
    }
    let file = match open(&path) {
        Ok(file) => file,
        Err(error) => return tell(&format!("UNIPGAS_TRACE={path}: {error}")),
    };
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let fresh = Recorder {
        file,
        number: rank.map_or(process::id(), |rank| rank + 1),
        pid: process::id(),
        text: Vec::new(),
        written: Instant::now(),
        clock: (Instant::now(), since.unwrap_or_default()),
    };
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let name = match rank {
        Some(rank) => format!("rank {rank} on {host}, process {}", process::id()),
        None => format!("process {} on {host}", process::id()),
    };
    let is_first = recorder.replace(fresh).is_none();
    RANK.store(rank.unwrap_or(process::id()), Ordering::Relaxed);
    IS_ON.store(true, Ordering::Relaxed);
    if let Some(recorder) = &mut *recorder {
        recorder.append("process_name", "M", None, None, json!({ "name": name }));
        recorder.append(
            "process_sort_index",
            "M",
            None,
            None,
            json!({ "sort_index": recorder.number }),
        );
        // Also of a process that is ended before it has done anything.
        recorder.write();
    }
    if is_first {
        // SAFETY:
        // - the handler takes no argument, and all that it uses is static.
        unsafe { libc::atexit(at_exit) };
    }
}

/// The file, which others append to as well. Its first line opens the list, whose end may be missing.
fn open(path: &str) -> std::io::Result<File> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
    let begun = file.metadata()?.len() > 0;
    if !begun {
        file.write_all(b"[\n")?;
    }
    rustix::fs::flock(&file, rustix::fs::FlockOperation::Unlock)?;
    Ok(file)
}

extern "C" fn at_exit() {
    flush();
}

/// Writes what is still in memory.
pub fn flush() {
    if let Some(recorder) = &mut *RECORDER.lock() {
        recorder.write();
    }
}

impl Recorder {
    fn now(&self, at: Instant) -> f64 {
        let (then, time) = self.clock;
        let before = then.saturating_duration_since(at);
        let time = time + at.saturating_duration_since(then);
        time.saturating_sub(before).as_nanos() as f64 / 1e3
    }

    fn append(
        &mut self,
        name: &str,
        ph: &str,
        began: Option<Instant>,
        id: Option<u64>,
        args: Value,
    ) {
        let now = Instant::now();
        let (ts, lasted) = (
            self.now(began.unwrap_or(now)),
            began.map(|began| now - began),
        );
        let event = Event {
            name,
            cat: match ph {
                "s" | "f" => "message",
                _ => "unipgas",
            },
            ph,
            ts,
            dur: lasted
                .filter(|_| ph == "X")
                .map(|lasted| lasted.as_nanos() as f64 / 1e3),
            pid: self.number,
            tid: rustix::thread::gettid().as_raw_nonzero().get(),
            id,
            bp: (ph == "f").then_some("e"),
            args,
        };
        if serde_json::to_writer(&mut self.text, &event).is_ok() {
            self.text.extend_from_slice(b",\n");
        }
        if self.text.len() >= MUCH || now - self.written >= KEPT {
            self.write();
        }
    }

    /// In whole lines and one piece each: others append to the same file.
    fn write(&mut self) {
        // The parent of a fork has the same text, and tells it itself.
        if self.pid == std::process::id() {
            let _ = self.file.write_all(&self.text);
        }
        self.text.clear();
        self.written = Instant::now();
    }
}

#[cold]
fn record(name: &str, ph: &str, began: Option<Instant>, id: Option<u64>, args: Value) {
    if let Some(recorder) = &mut *RECORDER.lock()
        && recorder.pid == process::id()
    {
        recorder.append(name, ph, began, id, args);
    }
}

/// Something that takes time, and is told when it ends; its name is that of the interface's call that the thread is in.
#[must_use]
pub struct Span(Instant);

/// Something begins, if such are told.
#[inline(always)]
pub fn span() -> Option<Span> {
    is_on().then(|| Span(Instant::now()))
}

/// A transfer of `len` bytes begins, if such are told.
#[inline(always)]
pub fn transfer(len: usize) -> Option<Span> {
    (len >= LARGE && is_on()).then(|| Span(Instant::now()))
}

impl Span {
    /// It has ended. `what`: in a word, for calls that are not known by name.
    #[cold]
    pub fn ended(self, what: &str, args: Value) {
        let call = calling();
        let name = if call.is_empty() { what } else { &call };
        record(name, "X", Some(self.0), None, args);
    }

    fn end_of_message(
        self,
        what: &str,
        ph: &str,
        (from, to, number): (u32, u32, u32),
        bytes: usize,
    ) {
        let args = json!({ "from": from, "to": to, "bytes": bytes });
        record(what, "X", Some(self.0), None, args);
        // Numbers of JSON are exact to 53 bits.
        let id = (u64::from(from & 0xFFFF) << 36)
            | (u64::from(to & 0xFFFF) << 20)
            | u64::from(number & 0xF_FFFF);
        record("message", ph, Some(self.0), Some(id), Value::Null);
    }
}

/// Something has happened.
pub fn happened(name: &str, args: Value) {
    if is_on() {
        record(name, "i", None, None, args);
    }
}

/// A message of so many bytes has left for `to`; `number` is the sender's: of messages under way between the two no other has it.
#[cold]
pub(crate) fn message_left(span: Span, to: u32, number: u32, bytes: usize) {
    let from = RANK.load(Ordering::Relaxed);
    span.end_of_message("message leaves", "s", (from, to, number), bytes);
}

/// The payload of a message is got, of which [`message_left`] has told at the sender.
#[cold]
pub(crate) fn message_came(span: Span, from: u32, number: u32, bytes: usize) {
    let to = RANK.load(Ordering::Relaxed);
    span.end_of_message("message comes", "f", (from, to, number), bytes);
}

/// A wait: told when it ends, and, if it is very long, when that is seen: the process may be ended in it.
pub(crate) struct Wait {
    began: Instant,
    is_open: bool,
}

impl Wait {
    #[inline(always)]
    pub fn begins() -> Option<Self> {
        let began = || Wait {
            began: Instant::now(),
            is_open: false,
        };
        is_on().then(began)
    }

    /// It has lasted very long.
    pub fn stays(&mut self, call: &str, args: impl FnOnce() -> Value) {
        if !self.is_open {
            self.is_open = true;
            record(named(call), "B", Some(self.began), None, args());
            flush();
        }
    }

    pub fn ends(self, args: impl FnOnce() -> Value) {
        if self.is_open {
            record("", "E", None, None, Value::Null);
        } else if self.began.elapsed() >= LONG {
            record(named(&calling()), "X", Some(self.began), None, args());
        }
    }
}

fn named(call: &str) -> &str {
    if call.is_empty() { "wait" } else { call }
}
