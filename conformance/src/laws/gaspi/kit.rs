//! Macros and functions of the GASPI laws.

use std::fmt::Display;
pub(crate) use std::ptr::null_mut;
use std::time::{Duration, Instant};

use unipgas_core::wait::Watch;
pub(crate) use unipgas_gaspi_sys::*;

pub(crate) use super::post;
pub(crate) use crate::kit::{Memory, pause, random_bytes, threads};
pub(crate) use crate::law::{Ctx, Verdict};
use crate::stall;
pub(crate) use crate::stall::Looks;
pub(crate) use crate::{ensure, ensure_eq};

/// `GASPI_BLOCK`.
pub(crate) const BLOCK: u64 = u64::MAX;
/// `GASPI_TEST`.
pub(crate) const TEST: u64 = 0;
/// Milliseconds after which an expected event is missing.
pub(crate) const LONG: u64 = stall::LONG.as_millis() as u64;
/// `GASPI_GROUP_ALL`.
pub(crate) const ALL: u8 = 0;
/// `GASPI_SUCCESS`.
pub(crate) const SUCCESS: i32 = 0;
/// `GASPI_TIMEOUT`.
pub(crate) const TIMEOUT: i32 = 1;
/// `GASPI_ERROR`.
pub(crate) const ERROR: i32 = -1;
/// `GASPI_QUEUE_FULL`.
pub(crate) const QUEUE_FULL: i32 = 23;

/// Calls a procedure of the C interface and gives its code.
macro_rules! c {
    ($name:ident($($arg:expr),* $(,)?)) => {
        // SAFETY:
        // - contract of the procedure: each pointer is null, or leads to a place that is large enough and outlives the call.
        unsafe { $crate::library::offered($crate::library::library().gaspi.$name, stringify!($name))($($arg),*) }
    };
}

/// Calls a procedure; the law fails unless it succeeds.
macro_rules! ok {
    ($name:ident($($arg:expr),* $(,)?)) => {
        $crate::kit::check!(stringify!($name), c!($name($($arg),*)), 0, $crate::laws::gaspi::kit::code_name)
    };
}

/// Calls a procedure and gives the value that it writes through its last parameter, initially 0. The law fails unless the call succeeds.
macro_rules! got {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        let mut value = Default::default();
        ok!($name($($arg,)* &mut value));
        value
    }};
}

/// Calls a procedure; the law fails unless it gives this code.
/// A table of several calls: `gives! { CODE: first(..); second(..); }`.
macro_rules! gives {
    ($code:ident: $($name:ident($($arg:expr),* $(,)?);)+) => {{$(
        $crate::kit::check!(
            stringify!($name($($arg),*)),
            c!($name($($arg),*)),
            $code,
            $crate::laws::gaspi::kit::code_name
        );
    )+}};
    ($status:ident, $name:ident($($arg:expr),* $(,)?)) => {
        $crate::kit::check!(
            stringify!($name),
            c!($name($($arg),*)),
            $status,
            $crate::laws::gaspi::kit::code_name
        )
    };
}

/// A call that is repeated, with its name.
pub(crate) type Call<'a> = (&'static str, Box<dyn FnMut() -> i32 + 'a>);

/// Calls that are repeated: `calls! { first(..); second(..); }`.
macro_rules! calls {
    ($($name:ident($($arg:expr),* $(,)?);)+) => {
        vec![$((stringify!($name), Box::new(|| c!($name($($arg),*))) as Box<dyn FnMut() -> i32 + '_>)),+]
    };
}

/// The table of a module's laws.
macro_rules! laws {
    ($($rows:tt)*) => {
        $crate::kit::table! { Gaspi, "gaspi.", "GASPI 17.1 ", ""; $($rows)* }
    };
}

pub(crate) use {c, calls, gives, got, laws, ok};

/// The name of a return code, for messages.
pub(crate) fn code_name(code: i32) -> String {
    match RETURN_CODES.iter().find(|(_, known)| *known == code) {
        Some((name, _)) => format!("{code} ({name})"),
        None => code.to_string(),
    }
}

/// Fails unless the code is an error: neither success nor timeout nor a full queue.
pub(crate) fn is_error(code: i32) -> bool {
    !matches!(code, SUCCESS | TIMEOUT | QUEUE_FULL)
}

/// Fails unless the code is an error.
pub(crate) fn must_fail(code: i32, what: impl Display) -> Verdict {
    ensure!(is_error(code), "{what} gave {}", code_name(code));
    Ok(())
}

/// Fails unless the code is one of these.
pub(crate) fn one_of(code: i32, allowed: &[i32], what: impl Display) -> Verdict {
    crate::kit::one_of(code, allowed, what, code_name)
}

/// Creates a segment at all ranks (zeroed).
pub(crate) fn segment(id: u8, len: usize) -> Result<Memory, String> {
    ok!(gaspi_segment_create(id, len as u64, ALL, LONG, 0));
    memory(id, len)
}

/// The memory of a segment of this process.
pub(crate) fn memory(id: u8, len: usize) -> Result<Memory, String> {
    let mut base = null_mut();
    ok!(gaspi_segment_ptr(id, &mut base));
    ensure!(!base.is_null(), "gaspi_segment_ptr gave a null pointer");
    Ok(Memory { base, len })
}

pub(crate) fn barrier() -> Verdict {
    ok!(gaspi_barrier(ALL, LONG));
    Ok(())
}

pub(crate) fn flush(queue: u8) -> Verdict {
    ok!(gaspi_wait(queue, LONG));
    Ok(())
}

pub(crate) fn queue_size(queue: u8) -> Result<u32, String> {
    let mut size = u32::MAX;
    ok!(gaspi_queue_size(queue, &mut size));
    Ok(size)
}

/// Waits for a notification and resets it. Gives its value.
pub(crate) fn notified(segment: u8, id: u32) -> Result<u32, String> {
    let (mut first, mut value) = (u32::MAX, 0);
    let code = c!(gaspi_notify_waitsome(segment, id, 1, &mut first, LONG));
    ensure_eq!(code, SUCCESS, "notification {id} of segment {segment}");
    ensure_eq!(first, id, "the notification that came");
    ok!(gaspi_notify_reset(segment, id, &mut value));
    ensure!(value != 0, "notification {id} was announced but is zero");
    Ok(value)
}

/// Fails if one of these notifications is there.
pub(crate) fn none_notified(segment: u8, begin: u32, num: u32) -> Verdict {
    let mut first = 0;
    let code = c!(gaspi_notify_waitsome(segment, begin, num, &mut first, TEST));
    ensure_eq!(
        code_name(code),
        code_name(TIMEOUT),
        "{num} notifications from {begin} of segment {segment}"
    );
    Ok(())
}

/// The value before an addition.
pub(crate) fn add(segment: u8, at: u64, rank: u16, value: u64) -> Result<u64, String> {
    let mut old = 0xdead;
    ok!(gaspi_atomic_fetch_add(
        segment, at, rank, value, &mut old, LONG
    ));
    Ok(old)
}

/// The value before a compare-swap.
pub(crate) fn swap(
    segment: u8,
    at: u64,
    rank: u16,
    comparator: u64,
    new: u64,
) -> Result<u64, String> {
    let mut old = 0xdead;
    ok!(gaspi_atomic_compare_swap(
        segment, at, rank, comparator, new, &mut old, LONG
    ));
    Ok(old)
}

/// Adds 1 to the first word of segment 0 at all ranks.
pub(crate) fn count_at_all(ctx: &Ctx) -> Verdict {
    (0..ctx.size as u16).try_for_each(|rank| add(0, 0, rank, 1).map(drop))
}

/// The next rank.
pub(crate) fn right(ctx: &Ctx) -> u16 {
    ((ctx.rank + 1) % ctx.size) as u16
}

/// The previous rank.
pub(crate) fn left(ctx: &Ctx) -> u16 {
    ((ctx.rank + ctx.size - 1) % ctx.size) as u16
}

pub(crate) fn others(ctx: &Ctx) -> impl Iterator<Item = u16> + use<> {
    let (rank, size) = (ctx.rank, ctx.size);
    (0..size).filter(move |r| *r != rank).map(|r| r as u16)
}

/// Nanoseconds of the clock that all processes of the machine share.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Milliseconds since `start`.
pub(crate) fn ms(start: Instant) -> u64 {
    start.elapsed().as_millis() as u64
}

/// Total of this process's sleeps without a wake-up. A timeout limits this time on any machine, however loaded.
pub(crate) fn in_vain() -> Duration {
    Watch::in_vain_so_far()
}

/// `GASPI_OP_MIN` and `GASPI_OP_SUM`.
pub(crate) const MIN: u32 = 0;
pub(crate) const SUM: u32 = 2;

/// One number of each member of a group, reduced by gaspi_allreduce.
pub(crate) fn reduced(group: u8, operation: u32, value: u64) -> Result<u64, String> {
    let mut all = 0u64;
    post::allreduce(&raw const value, &raw mut all, 1, operation, 5).ok(group, LONG)?;
    Ok(all)
}

/// The sum over all ranks of one number.
pub(crate) fn sum_of_all(value: u64) -> Result<u64, String> {
    reduced(ALL, SUM, value)
}

/// Repeats a call while it times out. A job without progress is ended from outside. Gives the last code and the number of timeouts.
pub(crate) fn until(mut call: impl FnMut() -> i32) -> Result<(i32, u32), String> {
    let mut looks = Looks::new();
    let mut timeouts = 0;
    loop {
        match call() {
            TIMEOUT => {
                looks.again();
                timeouts += 1;
            }
            code => return Ok((code, timeouts)),
        }
    }
}

/// As [`until`], for a call that must succeed in the end. Gives the number of timeouts.
pub(crate) fn repeat(what: &str, call: impl FnMut() -> i32) -> Result<u32, String> {
    match until(call).map_err(|e| format!("{what}: {e}"))? {
        (SUCCESS, timeouts) => Ok(timeouts),
        (code, _) => Err(format!("{what} gave {}", code_name(code))),
    }
}

/// Makes a committed group of these ranks.
pub(crate) fn group_of(ranks: &[u16]) -> Result<u8, String> {
    let mut group = u8::MAX;
    ok!(gaspi_group_create(&mut group));
    for rank in ranks {
        ok!(gaspi_group_add(group, *rank));
    }
    ok!(gaspi_group_commit(group, LONG));
    Ok(group)
}

/// The configuration as it is now.
pub(crate) fn config() -> Result<gaspi_config_t, String> {
    let mut config = gaspi_config_t::default();
    ok!(gaspi_config_get(&mut config));
    Ok(config)
}

/// For bare laws: initialises with a changed configuration, runs, terminates and restores the configuration.
pub(crate) fn with_config(
    change: impl FnOnce(&mut gaspi_config_t),
    body: impl FnOnce() -> Verdict,
) -> Verdict {
    let before = config()?;
    let mut changed = before;
    change(&mut changed);
    ok!(gaspi_config_set(changed));
    ok!(gaspi_proc_init(LONG));
    body()?;
    // Without `build_infrastructure` the body may not have committed GASPI_GROUP_ALL.
    ok!(gaspi_group_commit(ALL, LONG));
    ok!(gaspi_barrier(ALL, LONG));
    ok!(gaspi_proc_term(LONG));
    ok!(gaspi_config_set(before));
    Ok(())
}

/// As [`with_config`], for the body of a law.
pub(crate) fn configured(
    ctx: &Ctx,
    change: impl FnOnce(&mut gaspi_config_t),
    body: impl FnOnce(&Ctx) -> Verdict,
) -> Verdict {
    with_config(change, || body(ctx))
}

/// Runs the body with segment 0 of zeros, which all ranks have created.
pub(crate) fn with_segment(
    ctx: &Ctx,
    len: usize,
    body: impl FnOnce(&Ctx, Memory) -> Verdict,
) -> Verdict {
    let memory = segment(0, len)?;
    barrier()?;
    body(ctx, memory)
}
