//! Counts of calls and operations of this process.

use std::ffi::{c_char, c_int, c_ulong};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use serde_json::{Map, Value, json};
use unipgas_utofu_sys::{
    UTOFU_ONESIDED_PATH_MASK, UTOFU_ONESIDED_SPS_MASK, UtofuFunctions, constants,
};

const CALLS: usize = UtofuFunctions::NAMES.len();
/// Bits that a flag of one-sided communication can have.
const BITS: usize = c_ulong::BITS as usize;

static MADE: [AtomicU64; CALLS] = [const { AtomicU64::new(0) }; CALLS];
static INJECTED: [AtomicU64; CALLS] = [const { AtomicU64::new(0) }; CALLS];
static FLAGS: [AtomicU64; BITS] = [const { AtomicU64::new(0) }; BITS];
static SPS: AtomicU64 = AtomicU64::new(0);
static PATHS: AtomicU64 = AtomicU64::new(0);

/// Maxima that are recorded besides the counts of calls and flags.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Most {
    /// Descriptors of a CQ with unread TCQ descriptors.
    Toq,
    /// Descriptors in the MRQ of a VCQ.
    Mrq,
    /// Local notices of a VCQ that are requested and not yet returned.
    LocalNotices,
}
const MOST: [&str; 3] = ["toq", "mrq", "local_notices"];
static MOSTS: [AtomicU64; MOST.len()] = [const { AtomicU64::new(0) }; MOST.len()];
/// Calls that found the TOQ full.
static FULL: AtomicU64 = AtomicU64::new(0);

/// The process that the counts belong to. The child of a fork writes none.
static OWNER: AtomicU32 = AtomicU32::new(0);

pub fn call(index: usize) {
    MADE[index].fetch_add(1, Relaxed);
}

pub fn injected(index: usize) {
    INJECTED[index].fetch_add(1, Relaxed);
}

pub fn flags(flags: c_ulong) {
    let single = flags & !(UTOFU_ONESIDED_SPS_MASK | UTOFU_ONESIDED_PATH_MASK);
    for (bit, count) in FLAGS.iter().enumerate() {
        if single >> bit & 1 == 1 {
            count.fetch_add(1, Relaxed);
        }
    }
    for (mask, count) in [
        (UTOFU_ONESIDED_SPS_MASK, &SPS),
        (UTOFU_ONESIDED_PATH_MASK, &PATHS),
    ] {
        if flags & mask != 0 {
            count.fetch_add(1, Relaxed);
        }
    }
}

pub fn at_least(what: Most, number: usize) {
    MOSTS[what as usize].fetch_max(number as u64, Relaxed);
}

pub fn full() {
    FULL.fetch_add(1, Relaxed);
}

/// The counts that are not 0, as a JSON object.
fn named<'a>(counts: impl IntoIterator<Item = (&'a str, &'a AtomicU64)>) -> Value {
    let counts = counts
        .into_iter()
        .map(|(name, count)| (name, count.load(Relaxed)));
    let some: Map<String, Value> = counts
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect();
    some.into()
}

fn flag_counts() -> impl Iterator<Item = (&'static str, &'static AtomicU64)> {
    const PREFIX: &str = "UTOFU_ONESIDED_FLAG_";
    constants()
        .filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?, value)))
        .map(|(name, value)| (name, &FLAGS[value.trailing_zeros() as usize]))
        .chain([("SPS", &SPS), ("PATH", &PATHS)])
}

fn text() -> String {
    let names = UtofuFunctions::NAMES.iter().copied();
    json!({
        "pid": std::process::id(),
        "calls": named(names.clone().zip(&MADE)),
        "injected": named(names.zip(&INJECTED)),
        "flags": named(flag_counts()),
        "toq_full": FULL.load(Relaxed),
        "most": named(MOST.into_iter().zip(&MOSTS)),
    })
    .to_string()
}

extern "C" fn tell() {
    if OWNER.load(Relaxed) != std::process::id() {
        return;
    }
    let Some(mut path) = std::env::var_os("TOFU_DOUBLE_COUNTS") else {
        return;
    };
    path.push(format!(".{}", std::process::id()));
    if let Err(error) = std::fs::write(&path, text() + "\n") {
        eprintln!("TOFU_DOUBLE_COUNTS: {}: {error}", path.display());
    }
}

/// Makes this process write its counts at its end.
pub fn begin() {
    static ONCE: OnceLock<c_int> = OnceLock::new();
    OWNER.store(std::process::id(), Relaxed);
    // SAFETY:
    // - the function stays loaded: the library is never unloaded.
    ONCE.get_or_init(|| unsafe { libc::atexit(tell) });
}

/// Writes the counts of this process as JSON, with a final zero byte, if `room` bytes are sufficient. Returns the number of bytes that are needed.
///
/// # Safety
/// `place` is null, or valid for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tofu_double_counts(place: *mut c_char, room: usize) -> usize {
    let text = text();
    if !place.is_null() && text.len() < room {
        // SAFETY:
        // - contract of this function: not null, so valid for `room` bytes, which hold the text and the zero.
        unsafe {
            place
                .cast::<u8>()
                .copy_from_nonoverlapping(text.as_ptr(), text.len());
            place.add(text.len()).write(0);
        }
    }
    text.len() + 1
}
