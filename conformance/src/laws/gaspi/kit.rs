//! Macros and functions of the GASPI laws.

use std::fmt::Display;
pub(crate) use std::ptr::null_mut;
use std::time::{Duration, Instant};

use unipgas_core::wait::Watch;
pub(crate) use unipgas_gaspi_sys::*;

pub(crate) use super::post;
pub(crate) use crate::kit::{Memory, for_all, given, pause, random_bytes, threads, until_ok};
pub(crate) use crate::law::{Ctx, Verdict};
use crate::stall;
pub(crate) use crate::stall::Looks;
pub(crate) use crate::{ensure, ensure_eq, equal};

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

/// As `ok!`, for the end of a body: gives the verdict.
macro_rules! done {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        ok!($name($($arg),*));
        Ok::<(), String>(())
    }};
}

/// Calls a procedure and gives the value that it writes through its last parameter. The law fails unless the call succeeds.
macro_rules! got {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        let mut value = $crate::kit::Unset::unset();
        ok!($name($($arg,)* &mut value));
        value
    }};
}

/// Calls a procedure; the law fails unless it gives this code.
/// A table of several calls: `gives! { CODE: first(..); second(..); }`, or `gives! { first(..) => CODE; second(..) => OTHER; }`.
macro_rules! gives {
    ($($name:ident($($arg:expr),* $(,)?) => $code:expr;)+) => {
        $crate::kit::check_rows! { c, $crate::laws::gaspi::kit::code_name; $($name($($arg),*) => $code;)+ }
    };
    ($code:ident: $($name:ident($($arg:expr),* $(,)?);)+) => {
        gives! { $($name($($arg),*) => $code;)+ }
    };
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

/// An operation of the user for reductions.
macro_rules! operation {
    ($name:ident($one:pat, $two:pat, $result:pat, $state:pat, $num:pat, $bytes:pat) $body:block) => {
        extern "C" fn $name(
            $one: *mut u8,
            $two: *mut u8,
            $result: *mut u8,
            $state: *mut c_void,
            $num: u32,
            $bytes: u64,
            _: u64,
        ) -> i32 $body
    };
}

/// The table of a module's laws.
macro_rules! laws {
    ($($rows:tt)*) => {
        $crate::kit::table! { Gaspi, "gaspi.", "GASPI 17.1 ", ""; $($rows)* }
    };
}

pub(crate) use {c, calls, done, gives, got, laws, ok, operation};

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

/// Waits for one of these notifications. Gives its id.
pub(crate) fn waited(segment: u8, begin: u32, num: u32, timeout: u64) -> Result<u32, String> {
    let mut id = u32::MAX;
    ok!(gaspi_notify_waitsome(segment, begin, num, &mut id, timeout));
    Ok(id)
}

/// Waits for one of these notifications and resets it. Gives its id and its value.
pub(crate) fn taken(segment: u8, begin: u32, num: u32) -> Result<(u32, u32), String> {
    let id = waited(segment, begin, num, LONG)?;
    Ok((id, got!(gaspi_notify_reset(segment, id))))
}

/// The code of a wait for one of these notifications.
pub(crate) fn waitsome(segment: u8, begin: u32, num: u32, timeout: u64) -> i32 {
    let mut id = u32::MAX;
    c!(gaspi_notify_waitsome(segment, begin, num, &mut id, timeout))
}

/// Fails if one of these notifications is there.
pub(crate) fn none_notified(segment: u8, begin: u32, num: u32) -> Verdict {
    let code = waitsome(segment, begin, num, TEST);
    ensure_eq!(
        code_name(code),
        code_name(TIMEOUT),
        "{num} notifications from {begin} of segment {segment}"
    );
    Ok(())
}

/// Writes from segment 0 to the one of another rank, with a notification: rank, offset here and there; id and value.
pub(crate) fn announce(
    queue: u8,
    (rank, from, to): (u32, usize, usize),
    len: usize,
    (id, value): (usize, u32),
) -> Verdict {
    let (from, to, len, id) = (from as u64, to as u64, len as u64, id as u32);
    post::write_notify(0, from, rank as u16, 0, to, len, id, value).ok(queue, LONG)
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

/// Checks a word of this rank's memory between two barriers, if this is the rank that has it.
pub(crate) fn sum_at(ctx: &Ctx, rank: u32, memory: &Memory, at: usize, sum: u64) -> Verdict {
    barrier()?;
    if ctx.rank == rank {
        memory.shows(at, sum, "the sum")?;
    }
    barrier()
}

/// Adds 1 to the first word of segment 0 at all ranks.
pub(crate) fn count_at_all(ctx: &Ctx) -> Verdict {
    (0..ctx.size as u16).try_for_each(|rank| add(0, 0, rank, 1).map(drop))
}

/// Creates a queue.
pub(crate) fn new_queue() -> Result<u8, String> {
    let mut queue = u8::MAX;
    ok!(gaspi_queue_create(&mut queue, LONG));
    Ok(queue)
}

/// Receives a passive message. Gives its sender.
pub(crate) fn receive(segment: u8, at: u64, size: u64) -> Result<u16, String> {
    let mut sender = u16::MAX;
    ok!(gaspi_passive_receive(segment, at, &mut sender, size, LONG));
    Ok(sender)
}

/// The code of a call that receives a passive message.
pub(crate) fn received(segment: u8, at: u64, size: u64, timeout: u64) -> i32 {
    let mut sender = u16::MAX;
    c!(gaspi_passive_receive(
        segment,
        at,
        &mut sender,
        size,
        timeout
    ))
}

/// The state vector.
pub(crate) fn states(ctx: &Ctx) -> Result<Vec<i32>, String> {
    let mut states = vec![9i32; ctx.size as usize + 1];
    ok!(gaspi_state_vec_get(states.as_mut_ptr()));
    ensure_eq!(states.pop(), Some(9), "the entry behind the state vector");
    Ok(states)
}

/// Waits until the state vector shows that a rank is corrupt.
pub(crate) fn until_corrupt(ctx: &Ctx, rank: u32) -> Verdict {
    until_ok("the death to be known", || {
        Ok(states(ctx)?[rank as usize] == 1)
    })
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

/// The code of a sum over a group.
pub(crate) fn summed(group: u8, timeout: u64) -> i32 {
    let (one, mut all) = (1u64, 0u64);
    post::allreduce(&raw const one, &raw mut all, 1, SUM, 5).code(group, timeout)
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

/// Makes a group of these ranks, without a commit.
pub(crate) fn uncommitted(ranks: impl IntoIterator<Item = u16>) -> Result<u8, String> {
    let group = got!(gaspi_group_create());
    for_all(ranks, |rank| done!(gaspi_group_add(group, rank)))?;
    Ok(group)
}

/// Makes a committed group of these ranks.
pub(crate) fn group_of(ranks: &[u16]) -> Result<u8, String> {
    let group = uncommitted(ranks.iter().copied())?;
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
