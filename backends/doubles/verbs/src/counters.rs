//! Counts of the operations of this process. [`verbs_double_count`] returns a count by name. `VERBS_DOUBLE_COUNTS` names a file; each process appends a JSON
//! line with all counts at its end.

use std::ffi::{CStr, c_char};
use std::io::Write;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($name:ident $text:literal)*) => {
        #[derive(Debug, Clone, Copy)]
        pub(crate) enum Count { $($name,)* }
        const NAMES: &[&str] = &[$($text,)*];
    };
}

counters! {
    Doorbells "doorbells"
    Write "wr.write"
    WriteImm "wr.write_imm"
    Send "wr.send"
    SendImm "wr.send_imm"
    Read "wr.read"
    CmpSwap "wr.cmp_swap"
    FetchAdd "wr.fetch_add"
    Inline "wr.inline"
    Signaled "wr.signaled"
    Completions "completions"
    Polls "polls"
    RecvDoorbells "recv_doorbells"
    RecvPosted "recv_posted"
    Rnr "rnr"
    Retries "retries"
    Mr "mr"
    Qp "qp"
}

static COUNTS: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];
/// The process that the counts belong to. A child process that never lists devices writes none.
static OWNER: AtomicU32 = AtomicU32::new(0);

pub fn count(what: Count) {
    add(what, 1);
}

pub fn add(what: Count, n: u64) {
    COUNTS[what as usize].fetch_add(n, Relaxed);
}

/// Counts belong to this process from this call on.
pub fn begin() {
    OWNER.store(std::process::id(), Relaxed);
}

/// Resets the counts in a child process.
pub fn forget() {
    OWNER.store(0, Relaxed);
    for count in &COUNTS {
        count.store(0, Relaxed);
    }
}

/// Writes the counts at the end of the process.
pub fn tell() {
    if OWNER.load(Relaxed) != std::process::id() {
        return;
    }
    let Some(path) = std::env::var_os("VERBS_DOUBLE_COUNTS") else {
        return;
    };
    let mut line = format!("{{\"pid\":{}", std::process::id());
    for (name, count) in NAMES.iter().zip(&COUNTS) {
        line += &format!(",\"{name}\":{}", count.load(Relaxed));
    }
    line += "}\n";
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path);
    if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
        eprintln!("VERBS_DOUBLE_COUNTS: {}: {error}", path.display());
    }
}

/// The count of this name in this process; `u64::MAX` for an unknown name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs_double_count(name: *const c_char) -> u64 {
    // SAFETY:
    // - the caller gives a C string.
    let name = unsafe { CStr::from_ptr(name) };
    NAMES
        .iter()
        .position(|known| known.as_bytes() == name.to_bytes())
        .map_or(u64::MAX, |at| COUNTS[at].load(Relaxed))
}
