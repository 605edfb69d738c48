//! The timeline of a job: events of its processes in the Trace Event Format, for Perfetto, Chrome and speedscope. Each process appends
//! to the file of UNIPGAS_TRACE. Without UNIPGAS_TRACE the cost is one test of a flag.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};

use crate::sync::caller::calling;
use crate::{exit, process, tell, variables};

/// Least size of a copy or transfer that is recorded, in bytes.
pub(crate) const LARGE: usize = 64 << 10;
/// Least duration of a wait that is recorded.
const LONG: Duration = Duration::from_micros(10);
/// Events stay in memory for this time, or until they have `MUCH` bytes.
const KEPT: Duration = Duration::from_millis(500);
const MUCH: usize = 64 << 10;

/// The recorder of this process. Never freed. The child of a fork makes its own: the parent's may be locked.
static RECORDER: AtomicPtr<Recorder> = AtomicPtr::new(std::ptr::null_mut());

/// The state of one process's timeline.
struct Recorder {
    pid: u32,
    /// Name in messages: the rank, or the process id without one.
    name: u32,
    /// Process number for viewers: rank + 1, or the process id. Viewers take 0 for no process.
    number: u32,
    clock: (Instant, Duration),
    waiting: Mutex<Waiting>,
}

/// Events that are not yet written, and their file.
struct Waiting {
    file: File,
    text: Vec<u8>,
    written: Instant,
}

/// An event of the format. Times are in microseconds since 1970.
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
    /// Identifies the two ends of an arrow.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'a str>,
    args: Value,
}

/// Whether this process records a timeline.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    !RECORDER.load(Ordering::Relaxed).is_null()
}

/// The recorder of this process. A recorder inherited by fork does not count.
fn recorder() -> Option<&'static Recorder> {
    // SAFETY:
    // - the pointer is null, or leaked by `begin`.
    let recorder = unsafe { RECORDER.load(Ordering::Acquire).as_ref() };
    recorder.filter(|recorder| recorder.pid == process::id())
}

/// Starts the timeline if UNIPGAS_TRACE is set. Further calls have no effect. A process without a `rank` uses its process id.
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
    // A process that is killed early appears in the timeline, too.
    flush();
    // The child of a fork inherits the handler.
    if before.is_null() {
        // SAFETY:
        // - the handler takes no argument and uses only static data.
        unsafe { libc::atexit(at_exit) };
    }
}

/// Opens the file, to which other processes also append. Its first line opens the list; the format allows a missing end.
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
    exit::run(flush);
}

/// Writes the events in memory.
fn flush() {
    if let Some(recorder) = recorder() {
        recorder.waiting.lock().write();
    }
}

impl Recorder {
    /// Converts to microseconds since 1970.
    fn microseconds(&self, at: Instant) -> f64 {
        let (then, time) = self.clock;
        let before = then.saturating_duration_since(at);
        let time = time + at.saturating_duration_since(then);
        time.saturating_sub(before).as_nanos() as f64 / 1e3
    }
}

impl Waiting {
    /// Appends whole lines in a single write, since other processes append to the same file. Write errors are ignored.
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

/// The name of this process in messages; 0 without a recorder.
fn own_name() -> u32 {
    recorder().map_or(0, |recorder| recorder.name)
}

/// The start of an event with a duration. The event is recorded at its end, under the name of the interface call in progress.
#[must_use]
pub struct Span(Instant);

/// Begins a span, if the timeline is on.
#[inline(always)]
pub fn span() -> Option<Span> {
    is_on().then(|| Span(Instant::now()))
}

/// Begins a span for a transfer of `len` bytes, if the timeline is on and `len` is at least `LARGE`.
#[inline(always)]
pub fn transfer(len: usize) -> Option<Span> {
    (len >= LARGE && is_on()).then(|| Span(Instant::now()))
}

impl Span {
    /// Records a transfer, which is complete or in flight.
    ///
    /// `extern "C"`: never unwinds, so callers on fast paths need no landing pads.
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
        // JSON numbers are exact up to 53 bits.
        let id = (u64::from(from & 0xFFFF) << 36)
            | (u64::from(to & 0xFFFF) << 20)
            | u64::from(number & 0xF_FFFF);
        record("message", ph, Some(self.0), Some(id), Value::Null);
    }
}

/// Records an instant event.
pub fn happened(name: &str, args: Value) {
    if is_on() {
        record(name, "i", None, None, args);
    }
}

/// Records the departure of a message to `to`. The sender chooses `number`: it is unique among messages in flight between the two.
#[cold]
pub fn message_left(span: Span, to: u32, number: u32, bytes: usize) {
    let from = own_name();
    span.end_of_message("message leaves", "s", (from, to, number), bytes);
}

/// Records the arrival of a message's payload. The sender has recorded the departure by [`message_left`].
#[cold]
pub fn message_came(span: Span, from: u32, number: u32, bytes: usize) {
    let to = own_name();
    span.end_of_message("message comes", "f", (from, to, number), bytes);
}

/// A wait. It is recorded at its end. A very long one is also recorded while it lasts: the process may be killed in it.
pub(crate) struct Wait {
    began: Instant,
    is_open: bool,
}

impl Wait {
    #[inline(always)]
    pub(crate) fn begins() -> Option<Self> {
        let began = || Wait {
            began: Instant::now(),
            is_open: false,
        };
        is_on().then(began)
    }

    /// Records the start of a very long wait.
    pub(crate) fn stays(&mut self, call: &str, args: impl FnOnce() -> Value) {
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

    /// Reports unsuccessful polls: the wait has lasted for `lasted`.
    pub(crate) fn polls_on(&mut self, lasted: Duration, call: &str) {
        if lasted >= KEPT {
            self.stays(call, || Value::Null);
        }
    }

    pub(crate) fn ends_at(self, end: Instant, call: &str, args: Value) {
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
