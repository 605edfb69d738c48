//! Helpers of the libfabric laws.
//!
//! As libfabric's core does, laws call the provider through the tables of its objects ([`call`]). [`with`] gives a body an endpoint
//! with the addresses of all ranks, and memory that all ranks may access.

pub(crate) use std::ffi::{c_int, c_void};
use std::ops::Deref;
pub(crate) use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};
pub(crate) use unipgas_libfabric_sys::*;

pub(crate) use super::envelope::*;
pub(crate) use super::job::*;
pub(crate) use super::station::{
    Plan, Registered, Station, av_attr, close, counter_attr, name_of, open_queue, vector,
};
pub(crate) use super::words::*;
pub(crate) use crate::kit::{Memory, for_all, given, pause, random_bytes, same, until, until_ok};
pub(crate) use crate::law::{Ctx, Verdict};
use crate::stall;
pub(crate) use crate::stall::Looks;
pub(crate) use crate::{ensure, ensure_eq, equal};

/// Timeout, in milliseconds, of a wait that must end earlier.
pub(crate) const LONG: c_int = stall::LONG.as_millis() as c_int;
/// Bytes of an endpoint's name.
pub(crate) const NAME: usize = 64;
/// The mode bits that FI_MR_BASIC stands for.
pub(crate) const BASIC: c_int = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
pub(crate) const AGAIN: isize = -(FI_EAGAIN as isize);
pub(crate) const AVAIL: isize = -(FI_EAVAIL as isize);

/// `enum fi_op`.
pub(crate) const MIN: c_int = 0;
pub(crate) const SUM: c_int = 2;
pub(crate) const BOR: c_int = 6;
pub(crate) const BXOR: c_int = 9;
pub(crate) const READ: c_int = 10;
pub(crate) const WRITE: c_int = 11;
pub(crate) const CSWAP: c_int = 12;
pub(crate) const MSWAP: c_int = 18;
/// `enum fi_datatype`.
pub(crate) const INT8: c_int = 0;
pub(crate) const UINT32: c_int = 5;
pub(crate) const UINT64: c_int = FI_UINT64;

/// Calls an entry of an object's table: `call!(atomic ep, write(..))`. `fid` selects the table in its `fid`, `obj` its `ops`.
macro_rules! call {
    (fid $object:expr, $entry:ident($($arg:expr),* $(,)?)) => {
        // SAFETY:
        // - the law has opened the object and not closed it; pointers are null or valid for the size that the call's page requires, until the
        //   operation completes; likewise below.
        unsafe { ((*(*$object).fid.ops).$entry)($object.cast(), $($arg),*) }
    };
    (obj $object:expr, $entry:ident($($arg:expr),* $(,)?)) => {
        // SAFETY:
        // - as above.
        unsafe { ((*(*$object).ops).$entry)($object.cast(), $($arg),*) }
    };
    ($table:ident $object:expr, $entry:ident($($arg:expr),* $(,)?)) => {
        // SAFETY:
        // - as above.
        unsafe { ((*(*$object).$table).$entry)($object.cast(), $($arg),*) }
    };
}

/// As [`call`]. The law fails unless the call returns 0.
macro_rules! ok {
    ($table:ident $object:expr, $entry:ident($($arg:tt)*)) => {
        $crate::kit::check!(
            stringify!($entry),
            call!($table $object, $entry($($arg)*)) as isize,
            0,
            $crate::laws::libfabric::kit::code_name
        )
    };
}

/// As [`call`]. The law fails unless the call returns minus this number: `gives!(FI_EINVAL, atomic ep, write(..))`.
macro_rules! gives {
    ($errno:ident, $table:ident $object:expr, $entry:ident($($arg:tt)*)) => {
        $crate::kit::check!(
            stringify!($entry),
            call!($table $object, $entry($($arg)*)) as isize,
            -($errno as isize),
            $crate::laws::libfabric::kit::code_name
        )
    };
}

/// Opens an object. The call's last two arguments, place and context, are left out: `open!(obj domain, cntr_open(null_mut()))`.
macro_rules! open {
    ($table:ident $object:expr, $entry:ident($($arg:expr),*)) => {{
        let mut opened = null_mut();
        ok!($table $object, $entry($($arg,)* &mut opened, null_mut()));
        opened
    }};
}

/// An array of rows: a name, and further columns.
macro_rules! rows {
    ($($name:literal: $($column:expr),+;)+) => {
        [$(($name, $($column),+)),+]
    };
}

/// The table of a module's laws.
macro_rules! laws {
    ($($rows:tt)*) => {
        $crate::kit::table! { Libfabric, "libfabric.", "", "fi_"; $($rows)* }
    };
}

pub(crate) use {call, gives, laws, ok, open, rows};

/// Text for the result of a call.
pub(crate) fn code_name(code: isize) -> String {
    match code {
        ..0 => match error_numbers().find(|(_, known)| *known as isize == -code) {
            Some((name, _)) => format!("{code} ({name})"),
            None => code.to_string(),
        },
        code => code.to_string(),
    }
}

/// A context with this address.
pub(crate) fn cx(value: usize) -> *mut c_void {
    value as *mut c_void
}

/// Memory that is freed at the end of its scope.
pub(crate) struct Buffer(Memory);

impl Buffer {
    /// As [`Memory::new`].
    pub(crate) fn new(len: usize) -> Buffer {
        Buffer(Memory::new(len))
    }
}

impl Deref for Buffer {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        &self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.0.free();
    }
}

/// The value of a variable that the provider writes through a pointer.
pub(crate) fn current<T: Copy>(place: &T) -> T {
    // SAFETY:
    // - a reference is valid for reads.
    unsafe { std::ptr::from_ref(place).read_volatile() }
}

/// The u64 in the first 8 bytes.
pub(crate) fn u64_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"))
}

/// Waits until `look` finds something.
pub(crate) fn found<T>(
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>, String>,
) -> Result<T, String> {
    let mut looks = Looks::for_the(what);
    loop {
        match look()? {
            Some(found) => return Ok(found),
            None => looks.again(),
        }
    }
}

/// fi_control(3) with a value. Returns the value after it.
pub(crate) fn control<T, V>(object: *mut T, command: c_int, mut value: V) -> Result<V, String> {
    let object: *mut fid_ep = object.cast();
    ok!(fid object, control(command, (&raw mut value).cast()));
    Ok(value)
}

/// Fails unless a call has given minus this error number.
pub(crate) fn denied(errno: i32, code: isize, what: &str) -> Verdict {
    let (seen, expected) = (code_name(code), code_name(-(errno as isize)));
    equal!(seen, expected, "{what}")
}

/// Runs `other` on another thread, and `here` on this one. Returns both results.
pub(crate) fn beside<A: Send, B>(
    other: impl FnOnce() -> A + Send,
    here: impl FnOnce() -> B,
) -> Result<(A, B), String> {
    std::thread::scope(|scope| {
        let (other, here) = (scope.spawn(other), here());
        let other = other.join().map_err(|_| "the other thread panics")?;
        Ok((other, here))
    })
}

/// Whether a call that posts has posted. Fails unless the call gave 0 or -FI_EAGAIN.
pub(crate) fn accepted(code: isize) -> Result<bool, String> {
    match code {
        0 => Ok(true),
        AGAIN => Ok(false),
        code => Err(format!("posting gave {}", code_name(code))),
    }
}

/// The context of an entry as a number.
pub(crate) trait Context {
    fn context(&self) -> usize;
}

impl Context for fi_cq_tagged_entry {
    fn context(&self) -> usize {
        self.op_context.addr()
    }
}

impl Context for fi_cq_err_entry {
    fn context(&self) -> usize {
        self.op_context.addr()
    }
}

/// The end of an operation.
pub(crate) enum End {
    Success(fi_cq_tagged_entry),
    Failure(fi_cq_err_entry),
}

impl End {
    /// The context of the operation.
    pub(crate) fn context(&self) -> usize {
        match self {
            End::Success(entry) => entry.context(),
            End::Failure(error) => error.context(),
        }
    }
}

/// A completion queue of any format. Reads use an entry of the longest format.
#[derive(Clone, Copy)]
pub(crate) struct Queue(pub(crate) *mut fid_cq);

/// An empty entry.
pub(crate) fn blank() -> fi_cq_tagged_entry {
    fi_cq_tagged_entry {
        op_context: null_mut(),
        flags: 0,
        len: 0,
        buf: null_mut(),
        data: 0,
        tag: 0,
    }
}

impl Queue {
    /// Reads the queue once.
    pub(crate) fn read(self) -> (isize, fi_cq_tagged_entry) {
        let mut entry = blank();
        let code = call!(obj self.0, read((&raw mut entry).cast(), 1));
        (code, entry)
    }

    /// The end of an operation, if the queue has one.
    pub(crate) fn look(self) -> Result<Option<End>, String> {
        match self.read() {
            (1, entry) => Ok(Some(End::Success(entry))),
            (AVAIL, _) => Ok(Some(End::Failure(self.take_error()?))),
            (AGAIN, _) => Ok(None),
            (code, _) => Err(format!("fi_cq_read gave {}", code_name(code))),
        }
    }

    /// Waits for the end of an operation.
    pub(crate) fn end(self) -> Result<End, String> {
        found("the end of an operation", || self.look())
    }

    /// Waits for the next entry, which must be a success.
    pub(crate) fn next(self) -> Result<fi_cq_tagged_entry, String> {
        match self.end()? {
            End::Success(entry) => Ok(entry),
            End::Failure(error) => Err(format!(
                "an operation failed: {} (context {:#x}, flags {:#x})",
                code_name(-(error.err as isize)),
                error.context(),
                error.flags
            )),
        }
    }

    /// Waits for the next message, which must be a success. Returns the sender's address, too.
    pub(crate) fn next_from(self) -> Result<(fi_cq_tagged_entry, u64), String> {
        let (mut entry, mut source) = (blank(), 7);
        until("a message", || {
            call!(obj self.0, readfrom((&raw mut entry).cast(), 1, &mut source)) == 1
        })?;
        Ok((entry, source))
    }

    /// Waits for the next entry, which must have this context.
    pub(crate) fn of(self, context: usize) -> Result<fi_cq_tagged_entry, String> {
        let entry = self.next()?;
        ensure_eq!(entry.context(), context, "the entry's context");
        Ok(entry)
    }

    /// Waits for a success for each element of `all`.
    pub(crate) fn successes(self, all: impl IntoIterator) -> Verdict {
        for_all(all, |_| self.next())
    }

    /// As [`successes`](Queue::successes), each with this context.
    pub(crate) fn successes_of(self, context: usize, all: impl IntoIterator) -> Verdict {
        for_all(all, |_| self.of(context))
    }

    pub(crate) fn take_error(self) -> Result<fi_cq_err_entry, String> {
        // SAFETY:
        // - plain data, of which zeros are a value.
        let mut error: fi_cq_err_entry = unsafe { std::mem::zeroed() };
        let code = call!(obj self.0, readerr(&mut error, 0));
        ensure_eq!(code, 1, "fi_cq_readerr after -FI_EAVAIL");
        Ok(error)
    }

    /// Waits for the next failure. Fails if a success comes first.
    pub(crate) fn error(self) -> Result<fi_cq_err_entry, String> {
        match self.end()? {
            End::Failure(error) => Ok(error),
            End::Success(entry) => Err(format!(
                "success (flags {:#x}) where a failure was to come",
                entry.flags
            )),
        }
    }

    /// Waits for the next failure, which must have this error number.
    pub(crate) fn fails(self, errno: i32, what: &str) -> Result<fi_cq_err_entry, String> {
        let error = self.error().map_err(|text| format!("{what}: {text}"))?;
        ensure_eq!(error.err, errno, "{what}: the failure");
        Ok(error)
    }

    /// As [`fails`](Queue::fails). The failure must have this context.
    pub(crate) fn fails_of(
        self,
        context: usize,
        errno: i32,
        what: &str,
    ) -> Result<fi_cq_err_entry, String> {
        let error = self.fails(errno, what)?;
        ensure_eq!(error.context(), context, "{what}: the context");
        Ok(error)
    }

    /// Fails if the queue has an entry.
    pub(crate) fn is_empty(self) -> Verdict {
        for_all(0..20, |_| {
            let (code, entry) = self.read();
            ensure!(
                code == AGAIN,
                "the queue should be empty: {}, flags {:#x}",
                code_name(code),
                entry.flags
            );
            Ok(())
        })
    }

    /// Makes progress without taking an entry.
    pub(crate) fn progress(self) {
        if !self.0.is_null() {
            let _ = call!(obj self.0, read(null_mut(), 0));
        }
    }
}

/// The number of successes that a counter has counted.
pub(crate) fn value_of(counter: *mut fid_cntr) -> u64 {
    call!(obj counter, read())
}

/// The number of failures that a counter has counted.
pub(crate) fn errors_of(counter: *mut fid_cntr) -> u64 {
    call!(obj counter, readerr())
}

/// Fails if the time since `start` is shorter than a wait of `ms` milliseconds.
pub(crate) fn took_all(start: Instant, ms: c_int) -> Verdict {
    let took = start.elapsed();
    let whole = took >= Duration::from_millis(ms as u64);
    ensure!(whole, "a wait of {ms} ms took {took:?}");
    Ok(())
}

/// Repetitions: `at_least`, or 20 times as many on a backend with nanosecond operations, as coincidences are rarer there.
pub(crate) fn many(ctx: &Ctx, at_least: u64) -> u64 {
    match ctx.is_quick() {
        true => 20 * at_least,
        false => at_least,
    }
}
