//! The timeline of a job: what its processes did when, as events of the Trace Event Format, which Perfetto, Chrome and speedscope show. Each process appends
//! to the file that UNIPGAS_TRACE names. Where nothing names one, a look at a flag is all that it costs.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};

use crate::sync::caller::calling;
use crate::sync::polls;
use crate::{exit, process, tell, variables};

/// Copies and transfers of so many bytes are told.
pub const LARGE: usize = 64 << 10;
/// Waits are told that have lasted so long.
const LONG: Duration = Duration::from_micros(10);
/// What has been told stays in memory for so long, or until there is so much of it.
const KEPT: Duration = Duration::from_millis(500);
const MUCH: usize = 64 << 10;

/// Made by a process for itself, and never freed: what a fork leaves locked is the parent's.
static RECORDER: AtomicPtr<Recorder> = AtomicPtr::new(std::ptr::null_mut());

/// Where the events of a process go.
struct Recorder {
    pid: u32,
    /// As messages name it: the rank.
    name: u32,
    /// What viewers call it; 0 is nobody's to them.
    number: u32,
    clock: (Instant, Duration),
    waiting: Mutex<Waiting>,
}

/// What is still to be written.
struct Waiting {
    file: File,
    text: Vec<u8>,
    written: Instant,
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
    !RECORDER.load(Ordering::Relaxed).is_null()
}

/// That of this process, and not of one that has started it by fork.
fn recorder() -> Option<&'static Recorder> {
    // SAFETY:
    // - null, or leaked by `begin`.
    let recorder = unsafe { RECORDER.load(Ordering::Acquire).as_ref() };
    recorder.filter(|recorder| recorder.pid == process::id())
}

/// Begins, if the environment asks for it; more often does nothing. `rank` of a job; a process without one goes by its id.
pub fn begin(rank: Option<u32>) {
    let Ok(Some(path)) = variables::get("UNIPGAS_TRACE") else {
        return;
    };
    if recorder().is_some() {
        return;
    }
    let file = match open(&path) {
        Ok(file) => file,
        Err(error) => return tell(&format!("UNIPGAS_TRACE={path}: {error}")),
    };
    let pid = process::id();
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let fresh: &Recorder = Box::leak(Box::new(Recorder {
        pid,
        name: rank.unwrap_or(pid),
        number: rank.map_or(pid, |rank| rank + 1),
        clock: (Instant::now(), since.unwrap_or_default()),
        waiting: Mutex::new(Waiting {
            file,
            text: Vec::new(),
            written: Instant::now(),
        }),
    }));
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let name = match rank {
        Some(rank) => format!("rank {rank} on {host}, process {pid}"),
        None => format!("process {pid} on {host}"),
    };
    let before = RECORDER.swap(std::ptr::from_ref(fresh).cast_mut(), Ordering::AcqRel);
    record("process_name", "M", None, None, json!({ "name": name }));
    let index = json!({ "sort_index": fresh.number });
    record("process_sort_index", "M", None, None, index);
    // Also of a process that is ended before it has done anything.
    flush();
    // The child of a fork has its parent's handler.
    if before.is_null() {
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
    let polls = polls::take();
    exit::run(|| {
        drop(polls);
        flush();
    });
}

/// Writes what is still in memory.
fn flush() {
    if let Some(recorder) = recorder() {
        recorder.waiting.lock().write();
    }
}

impl Recorder {
    /// Since 1970.
    fn microseconds(&self, at: Instant) -> f64 {
        let (then, time) = self.clock;
        let before = then.saturating_duration_since(at);
        let time = time + at.saturating_duration_since(then);
        time.saturating_sub(before).as_nanos() as f64 / 1e3
    }
}

impl Waiting {
    /// In whole lines and one piece: others append to the same file.
    fn write(&mut self) {
        let _ = self.file.write_all(&self.text);
        self.text.clear();
        self.written = Instant::now();
    }
}

#[cold]
fn record(name: &str, ph: &str, began: Option<Instant>, id: Option<u64>, args: Value) {
    let now = Instant::now();
    let lasted = began.filter(|_| ph == "X").map(|began| now - began);
    record_at((name, ph), (began.unwrap_or(now), lasted), id, args);
}

#[cold]
fn record_at(
    (name, ph): (&str, &str),
    (at, lasted): (Instant, Option<Duration>),
    id: Option<u64>,
    args: Value,
) {
    let Some(recorder) = recorder() else { return };
    let event = Event {
        name,
        cat: match ph {
            "s" | "f" => "message",
            _ => "unipgas",
        },
        ph,
        ts: recorder.microseconds(at),
        dur: lasted.map(|lasted| lasted.as_nanos() as f64 / 1e3),
        pid: recorder.number,
        tid: rustix::thread::gettid().as_raw_nonzero().get(),
        id,
        bp: (ph == "f").then_some("e"),
        args,
    };
    let mut waiting = recorder.waiting.lock();
    if serde_json::to_writer(&mut waiting.text, &event).is_ok() {
        waiting.text.extend_from_slice(b",\n");
    }
    if waiting.text.len() >= MUCH || waiting.written.elapsed() >= KEPT {
        waiting.write();
    }
}

/// As messages name this process.
fn own_name() -> u32 {
    recorder().map_or(0, |recorder| recorder.name)
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
    /// A transfer, which has come to an end, or is under way.
    ///
    /// As C's functions it never unwinds: callers on fast paths need not be prepared for that.
    #[cold]
    #[inline(never)]
    pub extern "C" fn transferred(&self, len: usize) {
        let call = calling();
        let name = if call.is_empty() { "transfer" } else { &call };
        record(name, "X", Some(self.0), None, json!({ "bytes": len }));
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
    let from = own_name();
    span.end_of_message("message leaves", "s", (from, to, number), bytes);
}

/// The payload of a message is got, of which [`message_left`] has told at the sender.
#[cold]
pub(crate) fn message_came(span: Span, from: u32, number: u32, bytes: usize) {
    let to = own_name();
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
        let now = Instant::now();
        match self.is_open || now - self.began < LONG {
            true => self.ends_at(now, "", Value::Null),
            false => self.ends_at(now, &calling(), args()),
        }
    }

    /// It is polled in vain, and has been for so long.
    pub fn polls_on(&mut self, lasted: Duration, call: &str) {
        if lasted >= KEPT {
            self.stays(call, || Value::Null);
        }
    }

    pub fn ends_at(self, end: Instant, call: &str, args: Value) {
        if self.is_open {
            record_at(("", "E"), (end, None), None, Value::Null);
        } else if end - self.began >= LONG {
            let span = (self.began, Some(end - self.began));
            record_at((named(call), "X"), span, None, args);
        }
    }
}

fn named(call: &str) -> &str {
    if call.is_empty() { "wait" } else { call }
}
