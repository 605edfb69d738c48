//! Helpers for the laws of RCCE.
//!
//! UE r is rank r of a law. `RCCE_init` and `iRCCE_init` come before a body, `RCCE_finalize` after it. The library may hold requests and
//! buffers: they live as long as the process, or until [`Bytes::free`].

use std::fmt::Display;
use std::ptr::NonNull;
pub(crate) use std::ptr::null_mut;

pub(crate) use unipgas_ircce_sys::*;

use crate::kit::same;
pub(crate) use crate::kit::{for_all, given, pause, until_ok as until};
pub(crate) use crate::law::{Ctx, Verdict};
pub(crate) use crate::library::{library, offered};
pub(crate) use crate::{ensure, ensure_eq, equal};

pub(crate) const SUCCESS: i32 = 0;
/// `iRCCE_ERROR`.
pub(crate) const ERROR: i32 = -1;
/// `iRCCE_PENDING`.
pub(crate) const PENDING: i32 = -2;
/// `iRCCE_RESERVED`.
pub(crate) const RESERVED: i32 = -3;
/// `iRCCE_NOT_ENQUEUED`.
pub(crate) const NOT_ENQUEUED: i32 = -4;
/// `iRCCE_ANY_SOURCE`.
pub(crate) const ANY_SOURCE: i32 = -1;
/// `iRCCE_ANY_LENGTH`.
pub(crate) const ANY_LENGTH: isize = -1;
/// `RCCE_LINE_SIZE`.
pub(crate) const LINE: usize = 32;
/// `RCCE_BUFF_SIZE_MAX`.
pub(crate) const MPB: usize = 8192;
/// `RCCE_INT`.
pub(crate) const INT: i32 = 63_636_363;
/// `RCCE_DOUBLE`.
pub(crate) const DOUBLE: i32 = 63_636_366;
/// `RCCE_SUM`.
pub(crate) const SUM: i32 = 23_232_323;
/// Lengths around the limits that cut messages: lines, MPBs, and thresholds of the engine.
pub(crate) const LENGTHS: [usize; 12] = [
    0, 1, 31, 32, 33, 4096, 8191, 8192, 8193, 65_536, 65_537, 1_048_576,
];

/// Calls a function of the C interface and returns its result.
macro_rules! c {
    ($name:ident($($arg:expr),* $(,)?)) => {
        // SAFETY:
        // - pointers are null or valid as the function's contract requires: large enough, and alive until the operation ends.
        unsafe { $crate::library::offered($crate::library::library().rcce.$name, stringify!($name))($($arg),*) }
    };
}

/// Calls a function; the law fails unless the result is this value: `gives!(PENDING, iRCCE_isend(..))`.
/// A table checks several calls: `gives! { CODE: first(..); second(..); }`, or `gives! { first(..) => CODE; second(..) => OTHER; }`.
macro_rules! gives {
    ($($name:ident($($arg:expr),* $(,)?) => $code:expr;)+) => {
        $crate::kit::check_rows! { c, $crate::laws::rcce::kit::code_name; $($name($($arg),*) => $code;)+ }
    };
    ($code:ident: $($name:ident($($arg:expr),* $(,)?);)+) => {
        gives! { $($name($($arg),*) => $code;)+ }
    };
    ($value:expr, $name:ident($($arg:expr),* $(,)?)) => {
        $crate::kit::check!(stringify!($name), c!($name($($arg),*)), $value, $crate::laws::rcce::kit::code_name)
    };
}

/// Calls a function; the law fails unless it succeeds.
macro_rules! ok {
    ($name:ident($($arg:expr),* $(,)?)) => {
        gives!(0, $name($($arg),*))
    };
}

/// As `ok!`, for the end of a body: gives the verdict.
macro_rules! done {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        gives!(0, $name($($arg),*));
        Ok::<(), String>(())
    }};
}

/// Calls a function and gives the value that it writes through its last parameter. The law fails unless the call succeeds.
macro_rules! got {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        let mut value = $crate::kit::Unset::unset();
        gives!(0, $name($($arg,)* &mut value));
        value
    }};
}

/// The table of a module's laws.
macro_rules! laws {
    ($($rows:tt)*) => {
        $crate::kit::table! { Rcce, "rcce.", "", ""; $($rows)* }
    };
}

pub(crate) use {c, done, gives, got, laws, ok};

/// The name of a return code, for messages.
pub(crate) fn code_name(code: i32) -> String {
    let name = match code {
        SUCCESS => "success",
        ERROR => "iRCCE_ERROR",
        PENDING => "iRCCE_PENDING",
        RESERVED => "iRCCE_RESERVED",
        NOT_ENQUEUED => "iRCCE_NOT_ENQUEUED",
        _ => "",
    };
    match name {
        "" => code.to_string(),
        name => format!("{code} ({name})"),
    }
}

/// Fails unless the code is one of these.
pub(crate) fn one_of(code: i32, allowed: &[i32], what: impl Display) -> Verdict {
    crate::kit::one_of(code, allowed, what, code_name)
}

/// An `iRCCE_SEND_REQUEST`.
#[derive(Clone, Copy)]
pub(crate) struct Send(pub(crate) *mut iRCCE_SEND_REQUEST);

impl Send {
    /// All zeros.
    pub(crate) fn new() -> Send {
        Send(zeroed())
    }

    /// `iRCCE_isend_test`: its result and its flag.
    pub(crate) fn test(&self) -> (i32, i32) {
        let mut flag = -7;
        let code = c!(iRCCE_isend_test(self.0, &mut flag));
        (code, flag)
    }

    /// `iRCCE_isend_cancel`: its result and its flag.
    pub(crate) fn cancel(&self) -> (i32, i32) {
        let mut flag = -7;
        let code = c!(iRCCE_isend_cancel(self.0, &mut flag));
        (code, flag)
    }

    pub(crate) fn wait(&self) -> Verdict {
        done!(iRCCE_isend_wait(self.0))
    }

    pub(crate) fn status(&self) -> i32 {
        c!(iRCCE_get_status(self.0, null_mut()))
    }

    pub(crate) fn has_status(&self, expected: i32, what: impl Display) -> Verdict {
        equal!(self.status(), expected, "{what}: status")
    }

    pub(crate) fn tests(&self, expected: (i32, i32), what: impl Display) -> Verdict {
        equal!(self.test(), expected, "{what}: test")
    }
}

/// An `iRCCE_RECV_REQUEST`.
#[derive(Clone, Copy)]
pub(crate) struct Recv(pub(crate) *mut iRCCE_RECV_REQUEST);

impl Recv {
    /// All zeros.
    pub(crate) fn new() -> Recv {
        Recv(zeroed())
    }

    /// `iRCCE_irecv_test`: its result and its flag.
    pub(crate) fn test(&self) -> (i32, i32) {
        let mut flag = -7;
        let code = c!(iRCCE_irecv_test(self.0, &mut flag));
        (code, flag)
    }

    /// `iRCCE_irecv_cancel`: its result and its flag.
    pub(crate) fn cancel(&self) -> (i32, i32) {
        let mut flag = -7;
        let code = c!(iRCCE_irecv_cancel(self.0, &mut flag));
        (code, flag)
    }

    pub(crate) fn wait(&self) -> Verdict {
        done!(iRCCE_irecv_wait(self.0))
    }

    pub(crate) fn status(&self) -> i32 {
        c!(iRCCE_get_status(null_mut(), self.0))
    }

    pub(crate) fn has_status(&self, expected: i32, what: impl Display) -> Verdict {
        equal!(self.status(), expected, "{what}: status")
    }

    pub(crate) fn source(&self) -> i32 {
        c!(iRCCE_get_source(self.0))
    }

    pub(crate) fn size(&self) -> i32 {
        c!(iRCCE_get_size(null_mut(), self.0))
    }
}

fn zeroed<T>() -> *mut T {
    // SAFETY:
    // - used for requests only: integers and pointers, for which zeros are valid.
    Box::into_raw(Box::new(unsafe { std::mem::zeroed() }))
}

/// Begins a send and returns its request and its code. An error code fails the law.
pub(crate) fn isend(bytes: &Bytes, dest: i32) -> Result<(Send, i32), String> {
    let (request, len) = (Send::new(), bytes.len as isize);
    let state = c!(iRCCE_isend(bytes.ptr(), len, dest, request.0));
    one_of(state, &[SUCCESS, PENDING, RESERVED], "iRCCE_isend")?;
    Ok((request, state))
}

/// Begins a receive, as [`isend`] a send.
pub(crate) fn irecv(bytes: &Bytes, source: i32) -> Result<(Recv, i32), String> {
    let (request, len) = (Recv::new(), bytes.len as isize);
    let state = c!(iRCCE_irecv(bytes.ptr(), len, source, request.0));
    one_of(state, &[SUCCESS, PENDING, RESERVED], "iRCCE_irecv")?;
    Ok((request, state))
}

/// A view of bytes on the heap, which the library may read and write.
#[derive(Clone, Copy)]
pub(crate) struct Bytes {
    base: *mut u8,
    pub(crate) len: usize,
}

// SAFETY:
// - laws pass a view to one thread at a time, or all threads only read.
unsafe impl std::marker::Send for Bytes {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Bytes {}

impl Bytes {
    pub(crate) fn of(bytes: &[u8]) -> Bytes {
        let leaked: &'static mut [u8] = Box::leak(bytes.into());
        Bytes {
            base: leaked.as_mut_ptr(),
            len: leaked.len(),
        }
    }

    /// The bytes of a root; as many zeros elsewhere.
    pub(crate) fn of_root(is_root: bool, bytes: &[u8]) -> Bytes {
        match is_root {
            true => Bytes::of(bytes),
            false => Bytes::filled(bytes.len(), 0),
        }
    }

    pub(crate) fn filled(len: usize, value: u8) -> Bytes {
        Bytes::of(&vec![value; len])
    }

    /// A view of some of the bytes.
    pub(crate) fn part(&self, at: usize, len: usize) -> Bytes {
        assert!(at + len <= self.len);
        let base = self.base.wrapping_add(at);
        Bytes { base, len }
    }

    /// The pointer type of messages.
    pub(crate) fn ptr(&self) -> *mut c_char {
        self.base.cast()
    }

    /// The pointer type of put and get.
    pub(crate) fn raw(&self) -> *mut u8 {
        self.base
    }

    pub(crate) fn get(&self) -> Vec<u8> {
        // SAFETY:
        // - the bytes live until [`Bytes::free`], the last use of a view.
        unsafe { std::slice::from_raw_parts(self.base, self.len) }.to_vec()
    }

    pub(crate) fn fill(&self, value: u8) {
        // SAFETY:
        // - as above; no operation uses the bytes when a law fills them.
        unsafe { self.base.write_bytes(value, self.len) };
    }

    pub(crate) fn begin_with(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len);
        // SAFETY:
        // - as above.
        unsafe {
            self.base
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        };
    }

    /// Frees the memory. No operation may use it any more.
    pub(crate) fn free(self) {
        // SAFETY:
        // - made from a boxed slice of this length by `of`.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.base, self.len)) });
    }

    /// As [`holds`](Self::holds), and frees the memory.
    pub(crate) fn ends_as(self, expected: &[u8], rest: u8, what: &str) -> Verdict {
        self.holds(expected, rest, what)?;
        self.free();
        Ok(())
    }

    /// Fails unless the first bytes are the expected ones and all others are `rest`.
    pub(crate) fn holds(&self, expected: &[u8], rest: u8, what: &str) -> Verdict {
        let mut whole = vec![rest; self.len];
        let first = expected.len().min(self.len);
        whole[..first].copy_from_slice(&expected[..first]);
        same(&self.get(), &whole, what)
    }
}

/// Sends these bytes (`iRCCE_ssend`).
pub(crate) fn send_text(text: &[u8], dest: i32) -> Verdict {
    let bytes = Bytes::of(text);
    send(&bytes, dest)?;
    bytes.free();
    Ok(())
}

/// Waits for both.
pub(crate) fn wait_both(out: &Send, into: &Recv) -> Verdict {
    out.wait()?;
    into.wait()
}

/// The bytes of message `nth`: the same on all UEs.
pub(crate) fn content(ctx: &Ctx, nth: u64, len: usize) -> Vec<u8> {
    crate::kit::bytes_of(ctx, 0x6d65_7373 + nth, len)
}

/// This UE's number in the type of the calls, and the number of UEs.
pub(crate) fn place(ctx: &Ctx) -> (i32, i32) {
    (ctx.rank as i32, ctx.size as i32)
}

/// `RCCE_COMM_WORLD`, as programs see it.
pub(crate) fn world() -> RCCE_COMM {
    variable(library().rcce_variables.RCCE_COMM_WORLD, "RCCE_COMM_WORLD")
}

/// The value of a variable of the library.
pub(crate) fn variable<T: Copy>(place: Option<NonNull<T>>, name: &'static str) -> T {
    // SAFETY:
    // - a variable of this type, which RCCE_init alone writes.
    unsafe { offered(place, name).read() }
}

pub(crate) fn barrier() -> Verdict {
    done!(RCCE_barrier(null_mut()))
}

/// Waits for messages with `iRCCE_iprobe` until one from `source` could be received.
pub(crate) fn arrived(source: i32) -> Verdict {
    until(&format!("a message from {source}"), || {
        let mut flag = -7;
        ok!(iRCCE_iprobe(source, null_mut(), &mut flag));
        Ok(flag == 1)
    })
}

/// A new flag.
pub(crate) fn new_flag() -> Result<*mut i32, String> {
    let flag = got!(RCCE_flag_alloc());
    ensure!(!flag.is_null(), "RCCE_flag_alloc gave no flag");
    Ok(flag)
}

/// A flag's value at a UE.
pub(crate) fn flag_at(flag: *mut i32, id: i32) -> Result<i32, String> {
    let mut value = -7;
    ok!(RCCE_flag_read(flag, &mut value, id));
    Ok(value)
}

/// A UE that has written its round to its flag may be one round ahead at most.
pub(crate) fn in_round(flag: *mut i32, id: i32, round: i32) -> Verdict {
    let value = flag_at(flag, id)?;
    let near = value == round || value == round + 1;
    ensure!(near, "UE {id} was in round {value}, not {round}");
    Ok(())
}

/// The result of iRCCE_test_tagged.
pub(crate) fn test_tag(flag: *mut i32, value: i32, tag: *mut c_void) -> Result<i32, String> {
    let (len, mut result) = (if tag.is_null() { 0 } else { 28 }, -7);
    ok!(iRCCE_test_tagged(flag, value, &mut result, tag, len));
    Ok(result)
}

/// `RCCE_init` and `iRCCE_init`.
pub(crate) fn begin() -> Verdict {
    ok!(RCCE_init(null_mut(), null_mut()));
    done!(iRCCE_init())
}

/// A barrier, by iRCCE or by RCCE.
pub(crate) fn meet(improved: bool, comm: *mut RCCE_COMM) -> Verdict {
    match improved {
        true => done!(iRCCE_barrier(comm)),
        false => done!(RCCE_barrier(comm)),
    }
}

/// A broadcast, by iRCCE or by RCCE.
pub(crate) fn bcast(improved: bool, bytes: &Bytes, root: i32, comm: RCCE_COMM) -> Verdict {
    match improved {
        true => done!(iRCCE_bcast(bytes.ptr(), bytes.len, root, comm)),
        false => done!(RCCE_bcast(bytes.ptr(), bytes.len, root, comm)),
    }
}

/// Source and length of the last message.
pub(crate) fn last_message() -> (i32, i32) {
    (c!(iRCCE_get_source(null_mut())), c!(iRCCE_get_length()))
}

/// The colours of two interleaved parts.
pub(crate) unsafe extern "C" fn parity(id: i32, _: *mut c_void) -> i32 {
    id % 2
}

/// The colours of pairs of neighbours.
pub(crate) unsafe extern "C" fn halves(id: i32, _: *mut c_void) -> i32 {
    id / 2
}

/// The part of this UE.
pub(crate) fn split(
    colour: unsafe extern "C" fn(i32, *mut c_void) -> i32,
) -> Result<RCCE_COMM, String> {
    Ok(got!(RCCE_comm_split(Some(colour), null_mut())))
}

/// The address of a register's handle.
pub(crate) type Register = usize;

pub(crate) fn new_register() -> Result<Register, String> {
    let register = got!(iRCCE_atomic_alloc());
    ensure!(!register.is_null(), "iRCCE_atomic_alloc gave no register");
    Ok(register as usize)
}

/// The value of an atomic increment register.
pub(crate) fn register_value(register: Register) -> Result<i32, String> {
    Ok(got!(iRCCE_atomic_read(register as *const _)))
}

/// Fails unless a register has this value.
pub(crate) fn register_is(register: Register, value: i32, what: impl Display) -> Verdict {
    equal!(register_value(register)?, value, "{what}")
}

/// The pointer type of tagged flags.
pub(crate) fn tag(bytes: &Bytes) -> *mut c_void {
    bytes.raw().cast()
}

/// Writes a flag with a tag of `len` bytes.
pub(crate) fn write_tagged(
    flag: *mut i32,
    value: i32,
    id: i32,
    bytes: &Bytes,
    len: i32,
) -> Verdict {
    let (flag, tag) = (&mut { flag }, tag(bytes));
    done!(iRCCE_flag_write_tagged(flag, value, id, tag, len))
}

/// Reduces `num` elements of a type by an operation.
pub(crate) fn reduce(
    data: &Bytes,
    result: &Bytes,
    num: i32,
    (ty, op): (i32, i32),
    root: i32,
    comm: RCCE_COMM,
) -> Verdict {
    let (data, result) = (data.ptr(), result.ptr());
    done!(RCCE_reduce(data, result, num, ty, op, root, comm))
}

/// As [`reduce`], with the result at all members.
pub(crate) fn allreduce(
    data: &Bytes,
    result: &Bytes,
    num: i32,
    (ty, op): (i32, i32),
    comm: RCCE_COMM,
) -> Verdict {
    let (data, result) = (data.ptr(), result.ptr());
    done!(RCCE_allreduce(data, result, num, ty, op, comm))
}

/// A blocking send (`iRCCE_ssend`), checked.
pub(crate) fn send(bytes: &Bytes, dest: i32) -> Verdict {
    done!(iRCCE_ssend(bytes.ptr(), bytes.len as isize, dest))
}

/// Receives a message of this length (`iRCCE_srecv`) and returns it.
pub(crate) fn receive(len: usize, source: i32) -> Result<Vec<u8>, String> {
    let bytes = Bytes::filled(len, 0xee);
    ok!(iRCCE_srecv(bytes.ptr(), len as isize, source));
    let received = bytes.get();
    bytes.free();
    Ok(received)
}
