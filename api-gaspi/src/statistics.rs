//! Statistics (GASPI 17.1 §14.1): calls, times and bytes of the procedures. They are off by default. The program or UNIPGAS_STATS enables
//! them.

use std::ffi::CStr;
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use unipgas_core::variables;

use crate::environment;
use crate::links::{of_rank, put_out};
use crate::status::{Result, Status};
use crate::watch;

/// Lowest level that counts calls and bytes.
const CALLS: u32 = 1;
/// Lowest level that also counts times, and the bytes of each rank.
const TIMES: u32 = 2;

/// Names of the counted procedures.
#[rustfmt::skip]
const PROCEDURES: [&CStr; 31] = [
    c"gaspi_write", c"gaspi_read", c"gaspi_write_notify", c"gaspi_read_notify", c"gaspi_write_list", c"gaspi_write_list_notify",
    c"gaspi_read_list", c"gaspi_read_list_notify", c"gaspi_notify", c"gaspi_notify_waitsome", c"gaspi_notify_reset", c"gaspi_wait",
    c"gaspi_passive_send", c"gaspi_passive_receive", c"gaspi_atomic_fetch_add", c"gaspi_atomic_compare_swap", c"gaspi_barrier",
    c"gaspi_allreduce", c"gaspi_allreduce_user", c"gaspi_allreduce_user_17", c"gaspi_group_commit", c"gaspi_segment_alloc", c"gaspi_segment_create",
    c"gaspi_segment_register", c"gaspi_segment_bind", c"gaspi_segment_use", c"gaspi_segment_delete", c"gaspi_connect",
    c"gaspi_operation_submit", c"gaspi_operation_list_submit", c"gaspi_request_wait",
];

/// Kind of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// A write to a segment of a rank.
    Written,
    /// A read from a segment of a rank.
    Read,
    /// A passive message to a rank.
    Sent,
}

const MOVED: [(&CStr, &CStr); 3] = [
    (c"bytes_written", c"bytes of successful writes"),
    (c"bytes_read", c"bytes of successful reads"),
    (
        c"bytes_sent",
        c"bytes of passive messages that were received",
    ),
];

const BY_RANK: [(&CStr, &CStr); 3] = [
    (c"bytes_written_to", c"bytes of successful writes to a rank"),
    (c"bytes_read_from", c"bytes of successful reads from a rank"),
    (
        c"bytes_sent_to",
        c"bytes of passive messages that a rank received",
    ),
];

/// First counter of each kind.
const OF_CALLS: usize = 0;
const OF_BYTES: usize = PROCEDURES.len();
const OF_TIMES: usize = OF_BYTES + MOVED.len();
const OF_RANKS: usize = OF_TIMES + PROCEDURES.len();
const ALL: usize = OF_RANKS + BY_RANK.len();

/// Ranks have 16 bits.
const RANKS: usize = 1 << 16;

static LEVEL: AtomicU32 = AtomicU32::new(0);
static COUNTERS: [AtomicU64; OF_RANKS] = [const { AtomicU64::new(0) }; OF_RANKS];
/// Values for all ranks, for each counter with an argument. Allocated at the first count.
static OF_EACH_RANK: [OnceLock<Box<[AtomicU64]>>; BY_RANK.len()] =
    [const { OnceLock::new() }; BY_RANK.len()];

/// Description of a counter (§14.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterInfo {
    /// Whether its argument is a rank.
    pub of_rank: bool,
    /// Its name.
    pub name: &'static CStr,
    /// The meaning of its value.
    pub description: &'static CStr,
    /// Lowest level at which it counts.
    pub level: u32,
}

/// Number of a counted procedure. `None`: the procedure is not counted.
pub const fn procedure(name: &str) -> Option<usize> {
    let mut nth = 0;
    while nth < PROCEDURES.len() {
        if same(PROCEDURES[nth].to_bytes(), name.as_bytes()) {
            return Some(nth);
        }
        nth += 1;
    }
    None
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// Whether the level is not 0.
pub fn is_on() -> bool {
    LEVEL.load(Ordering::Relaxed) != 0
}

/// Runs a procedure. Counts the call if it succeeds, and its time in any case.
#[cold]
pub fn counted<R>(number: usize, run: impl FnOnce() -> Result<R>) -> Result<R> {
    let level = LEVEL.load(Ordering::Relaxed);
    let start = (level >= TIMES).then(Instant::now);
    let result = run();
    if let Some(start) = start {
        let time = start.elapsed().as_nanos() as u64;
        COUNTERS[OF_TIMES + number].fetch_add(time, Ordering::Relaxed);
    }
    if result.is_ok() && level >= CALLS {
        COUNTERS[OF_CALLS + number].fetch_add(1, Ordering::Relaxed);
    }
    result
}

/// Counts bytes moved to or from a rank.
#[cold]
pub fn moved(what: Moved, rank: u16, bytes: u64) {
    let level = LEVEL.load(Ordering::Relaxed);
    let at = what as usize;
    COUNTERS[OF_BYTES + at].fetch_add(bytes, Ordering::Relaxed);
    if level >= TIMES {
        let ranks =
            OF_EACH_RANK[at].get_or_init(|| (0..RANKS).map(|_| AtomicU64::new(0)).collect());
        ranks[usize::from(rank)].fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Number of counters (§14.1.1).
pub fn counters() -> u32 {
    ALL as u32
}

/// Describes a counter (§14.1.2). Errors: [`Status::Error`] if it does not exist.
pub fn info(counter: u32) -> Result<CounterInfo> {
    let at = counter as usize;
    let of_rank = at >= OF_RANKS;
    let (name, description, level) = match at {
        OF_CALLS..OF_BYTES => (PROCEDURES[at], c"successful calls", CALLS),
        OF_BYTES..OF_TIMES => {
            let (name, description) = MOVED[at - OF_BYTES];
            (name, description, CALLS)
        }
        OF_TIMES..OF_RANKS => {
            let name = PROCEDURES[at - OF_TIMES];
            (name, c"nanoseconds in calls, successful or not", TIMES)
        }
        OF_RANKS..ALL => {
            let (name, description) = BY_RANK[at - OF_RANKS];
            (name, description, TIMES)
        }
        _ => return Err(Status::Error),
    };
    Ok(CounterInfo {
        of_rank,
        name,
        description,
        level,
    })
}

/// Enables the counters of this level and below, and disables the others (§14.1.3).
pub fn set_level(level: u32) {
    LEVEL.store(level, Ordering::Relaxed);
    watch::count(level > 0);
}

/// The value of a counter (§14.1.4). Errors: [`Status::Error`] if it does not exist; [`Status::ErrInvRank`].
pub fn value(counter: u32, argument: u32) -> Result<u64> {
    let at = counter as usize;
    if let Some(value) = COUNTERS.get(at) {
        return Ok(value.load(Ordering::Relaxed));
    }
    let ranks = OF_EACH_RANK.get(at - OF_RANKS).ok_or(Status::Error)?;
    let rank = usize::from(u16::try_from(argument).map_err(|_| Status::ErrInvRank)?);
    if environment::process().is_ok_and(|process| rank >= process.num() as usize) {
        return Err(Status::ErrInvRank);
    }
    let value = ranks.get().map(|ranks| ranks[rank].load(Ordering::Relaxed));
    Ok(value.unwrap_or(0))
}

/// Sets a counter to 0, for all arguments (§14.1.5). Errors: [`Status::Error`] if it does not exist.
pub fn reset(counter: u32) -> Result<()> {
    let at = counter as usize;
    if let Some(value) = COUNTERS.get(at) {
        value.store(0, Ordering::Relaxed);
        return Ok(());
    }
    let ranks = OF_EACH_RANK.get(at - OF_RANKS).ok_or(Status::Error)?;
    let ranks = ranks.get().into_iter().flatten();
    ranks.for_each(|value| value.store(0, Ordering::Relaxed));
    Ok(())
}

/// A line for each counter without arguments that is not 0: name, value and description.
fn lines() -> Vec<String> {
    let lines = (0..OF_RANKS as u32).filter_map(|counter| {
        let (info, value) = (info(counter).ok()?, value(counter, 0).ok()?);
        let (name, what) = (
            info.name.to_string_lossy(),
            info.description.to_string_lossy(),
        );
        (value > 0).then(|| format!("{name:<26} {value:>16} {what}"))
    });
    lines.collect()
}

/// The counters without arguments that are not 0, as a JSON record.
fn record(rank: u16, size: u16) -> String {
    let of = |kind: std::ops::Range<usize>| {
        let counters = kind.filter_map(|at| {
            let (info, value) = (info(at as u32).ok()?, value(at as u32, 0).ok()?);
            let name = info.name.to_string_lossy();
            (value > 0).then(|| format!("\"{name}\":{value}"))
        });
        counters.collect::<Vec<_>>().join(",")
    };
    let [calls, bytes, times] =
        [OF_CALLS..OF_BYTES, OF_BYTES..OF_TIMES, OF_TIMES..OF_RANKS].map(of);
    format!(
        "{{\"interface\":\"gaspi\",\"rank\":{rank},\"size\":{size},\"calls\":{{{calls}}},\"bytes\":{{{bytes}}},\"nanoseconds\":{{{times}}}}}\n"
    )
}

/// Sets the level to UNIPGAS_STATS, if it is set. Errors: [`Status::ErrEnv`], after a line with the reason.
pub fn begin() -> Result<()> {
    let level = variables::number("UNIPGAS_STATS").map_err(|error| {
        unipgas_core::tell(&error.to_string());
        Status::ErrEnv
    })?;
    if let Some(level) = level {
        set_level(u32::try_from(level).unwrap_or(u32::MAX));
    }
    Ok(())
}

/// If UNIPGAS_STATS is set: reports the counters of this process (`rank` of `size`), stops them, and sets them to 0. The next initialisation
/// starts them again.
pub fn end(rank: u16, size: u16) {
    let Ok(Some(1..)) = variables::number("UNIPGAS_STATS") else {
        return;
    };
    set_level(0);
    match variables::get("UNIPGAS_STATS_TO") {
        Ok(Some(path)) => {
            let record = record(rank, size);
            let appended = OpenOptions::new()
                .append(true)
                .open(&path)
                .and_then(|mut file| file.write_all(record.as_bytes()));
            if let Err(error) = appended {
                unipgas_core::tell(&format!(
                    "the statistics cannot be written to {path}: {error}"
                ));
            }
        }
        _ => print(Some(rank)),
    }
    (0..counters()).for_each(|counter| {
        let _ = reset(counter);
    });
}

/// Prints the counters, each line after the rank of the process.
pub fn print(rank: Option<u16>) {
    let rank = rank.map(of_rank).unwrap_or_default();
    let lines = lines().into_iter();
    let text = lines.flat_map(|line| [&rank[..], line.as_bytes(), b"\n"].concat());
    put_out(&text.collect::<Vec<u8>>());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_tells_what_it_counts() {
        let all: Vec<CounterInfo> = (0..counters()).map(|at| info(at).unwrap()).collect();
        for (at, one) in all.iter().enumerate() {
            assert!(one.level >= 1 && !one.name.is_empty());
            assert_eq!(one.of_rank, at >= OF_RANKS);
            let twice = all.iter().filter(|other| *other == one).count();
            assert_eq!(twice, 1, "{one:?}");
        }
        assert_eq!(info(counters()), Err(Status::Error));
        assert_eq!(value(counters(), 0), Err(Status::Error));
        assert_eq!(reset(counters()), Err(Status::Error));
        assert_eq!(value(counters() - 1, 65_536), Err(Status::ErrInvRank));
    }

    #[test]
    fn procedures_have_numbers() {
        assert_eq!(procedure("gaspi_write"), Some(0));
        assert_eq!(procedure("gaspi_connect"), Some(27));
        assert_eq!(procedure("gaspi_writ"), None);
        assert_eq!(procedure("gaspi_write_"), None);
    }
}
