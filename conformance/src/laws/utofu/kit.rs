//! Tools for the laws of uTofu.
//!
//! Rank r of a law is node r of the mesh. [`with`] gives a body a VCQ of component 0 on the first TNI, and memory under STag [`STAG`].
//! So peers compute all IDs and addresses.

use std::fmt::Display;
use std::ops::RangeInclusive;
pub(crate) use std::ptr::null_mut;
use std::sync::atomic::Ordering;
pub(crate) use unipgas_utofu_sys::*;

use super::network::Network;
pub(crate) use super::post;

pub(crate) use crate::kit::{
    Memory, for_all, given, pause, random_bytes, threads, until, until_ok,
};
pub(crate) use crate::law::{Ctx, Verdict};
pub(crate) use crate::stall::Looks;
pub(crate) use crate::{ensure, ensure_eq, equal};

/// `UTOFU_SUCCESS`.
pub(crate) const SUCCESS: i32 = 0;
/// `UTOFU_ERR_NOT_FOUND`.
pub(crate) const NOT_FOUND: i32 = UTOFU_ERR_NOT_FOUND;
/// `UTOFU_ERR_BUSY`.
pub(crate) const BUSY: i32 = UTOFU_ERR_BUSY;

/// `UTOFU_ONESIDED_FLAG_STRONG_ORDER`.
pub(crate) const STRONG_ORDER: u64 = 1;
/// `UTOFU_ONESIDED_FLAG_PACKET_RESPONSE`.
pub(crate) const PACKET_RESPONSE: u64 = 1 << 1;
/// `UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE`.
pub(crate) const REMOTE: u64 = 1 << 2;
/// `UTOFU_ONESIDED_FLAG_PADDING`.
pub(crate) const PADDING: u64 = 1 << 3;
/// `UTOFU_ONESIDED_FLAG_CACHE_INJECTION`.
pub(crate) const CACHE_INJECTION: u64 = 1 << 5;
/// `UTOFU_ONESIDED_FLAG_DELAY_START`.
pub(crate) const DELAY: u64 = 1 << 8;
/// `UTOFU_ONESIDED_FLAG_TCQ_NOTICE`.
pub(crate) const TCQ: u64 = 1 << 14;
/// `UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE`.
pub(crate) const LOCAL: u64 = 1 << 15;

/// `UTOFU_VCQ_FLAG_THREAD_SAFE`.
pub(crate) const THREAD_SAFE: u64 = 1;
/// `UTOFU_VCQ_FLAG_EXCLUSIVE`.
pub(crate) const EXCLUSIVE: u64 = 1 << 1;
/// `UTOFU_VCQ_FLAG_SESSION_MODE`.
pub(crate) const SESSION_MODE: u64 = 1 << 2;

/// `enum utofu_mrq_notice_type`.
pub(crate) const LCL_PUT: u8 = 0;
pub(crate) const RMT_PUT: u8 = 1;
pub(crate) const LCL_GET: u8 = 2;
pub(crate) const RMT_GET: u8 = 3;
pub(crate) const LCL_ARMW: u8 = 4;
pub(crate) const RMT_ARMW: u8 = 5;

/// `enum utofu_armw_op`.
pub(crate) const SWAP: u32 = 1;
pub(crate) const ADD: u32 = 2;
pub(crate) const XOR: u32 = 3;
pub(crate) const AND: u32 = 4;
pub(crate) const OR: u32 = 5;

/// The interface that laws use.
pub(crate) const TNI: u16 = 0;
/// The STag of the memory that [`with`] registers.
pub(crate) const STAG: u32 = 0;
/// Bytes of a descriptor, `max_toq_desc_size`.
pub(crate) const DESC: usize = 64;

/// `UTOFU_ONESIDED_FLAG_SPS`.
pub(crate) const fn sps(steps: u64) -> u64 {
    steps << 24
}

/// `UTOFU_ONESIDED_FLAG_PATH`.
pub(crate) const fn path(id: u8) -> u64 {
    (id as u64) << 28
}

/// Calls a function of the C interface and returns its code.
macro_rules! c {
    ($name:ident($($arg:expr),* $(,)?)) => {
        // SAFETY:
        // - each pointer is null, or leads to a place as large as the contract of the function asks for; the place outlives the call.
        unsafe { ($crate::library::utofu().$name)($($arg),*) }
    };
}

/// Calls a function; the law fails unless it succeeds.
macro_rules! ok {
    ($name:ident($($arg:expr),* $(,)?)) => {
        $crate::kit::check!(stringify!($name), c!($name($($arg),*)), 0, $crate::laws::utofu::kit::code_name)
    };
}

/// As `ok!`, for the end of a body: gives the verdict.
macro_rules! done {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        ok!($name($($arg),*));
        Ok::<(), String>(())
    }};
}

/// The value that a function writes through its last parameter, initially zeros; the law fails unless the call succeeds.
macro_rules! got {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        let mut value = Default::default();
        ok!($name($($arg,)* &mut value));
        value
    }};
}

/// Calls a function; the law fails unless it gives this code: `gives!(UTOFU_ERR_NOT_FOUND, utofu_poll_tcq(..))`.
/// Takes a table for several calls: `gives! { CODE: first(..); second(..); }`, or `gives! { CODE: first(..); OTHER: second(..); }`.
macro_rules! gives {
    ($code:ident: $($name:ident($($arg:expr),* $(,)?);)+) => {{$(
        $crate::kit::check!(
            stringify!($name($($arg),*)),
            c!($name($($arg),*)),
            $code,
            $crate::laws::utofu::kit::code_name
        );
    )+}};
    ($($code:ident: $name:ident($($arg:expr),* $(,)?);)+) => {$(
        gives! { $code: $name($($arg),*); }
    )+};
    ($code:ident, $name:ident($($arg:expr),* $(,)?)) => {
        $crate::kit::check!(
            stringify!($name),
            c!($name($($arg),*)),
            $code,
            $crate::laws::utofu::kit::code_name
        )
    };
}

/// The table of a module's laws.
macro_rules! laws {
    ($($rows:tt)*) => {
        $crate::kit::table! { Utofu, "utofu.", "uTofu ", "utofu_"; $($rows)* }
    };
}

pub(crate) use {c, done, gives, got, laws, ok};

/// The name of a return code, for messages.
pub(crate) fn code_name(code: i32) -> String {
    match return_codes().find(|(_, known)| *known == code) {
        Some((name, _)) => format!("{code} ({name})"),
        None if code == SUCCESS => "0 (success)".into(),
        None => code.to_string(),
    }
}

/// Fails unless a call gave this code.
#[track_caller]
pub(crate) fn code_is(seen: i32, expected: i32, what: impl Display) -> Verdict {
    crate::kit::gives(&what.to_string(), (seen, expected), code_name)
}

/// Fails unless the code is in the range.
pub(crate) fn code_in(code: i32, range: RangeInclusive<i32>, what: impl Display) -> Verdict {
    ensure!(range.contains(&code), "{what} gave {}", code_name(code));
    Ok(())
}

/// Fails unless the code is one of these.
pub(crate) fn one_of(code: i32, allowed: &[i32], what: impl Display) -> Verdict {
    crate::kit::one_of(code, allowed, what, code_name)
}

/// Coordinates of a rank's node.
pub(crate) fn coords(rank: u32) -> Result<[u8; 6], String> {
    let network = Network::from_env()?;
    Ok(network.coords(rank / network.per_node))
}

/// Coordinates that `query` writes; it writes no byte behind them.
fn written_coords(query: impl FnOnce(*mut u8) -> Verdict) -> Result<[u8; 6], String> {
    let mut room = [0xee; 7];
    query(room.as_mut_ptr())?;
    let [at @ .., behind] = room;
    ensure_eq!(behind, 0xee, "the byte behind the coordinates");
    Ok(at)
}

/// Coordinates of this process.
pub(crate) fn my_coords() -> Result<[u8; 6], String> {
    written_coords(|at| done!(utofu_query_my_coords(at)))
}

/// Place of this process if each process has a node to itself; otherwise the first place on its node.
pub(crate) fn own_place() -> Result<u32, String> {
    let at = my_coords()?;
    let network = Network::from_env()?;
    let node = network.node(&at).ok_or("a place beyond the shape")?;
    Ok(node * network.per_node)
}

/// Id of the VCQ of a component on the first CQ of a TNI of a rank's node.
pub(crate) fn vcq_of(rank: u32, tni: u16, component: u16) -> Result<u64, String> {
    let coords = coords(rank)?;
    vcq_id(&coords, tni, 0, component)
}

/// Id of the VCQ with these coordinates, TNI, CQ and component.
pub(crate) fn vcq_id(at: &[u8; 6], tni: u16, cq: u16, component: u16) -> Result<u64, String> {
    let at = at.as_ptr().cast_mut();
    Ok(got!(utofu_construct_vcq_id(at, tni, cq, component)))
}

/// Coordinates, TNI, CQ and component of a VCQ.
pub(crate) fn vcq_info(id: u64) -> Result<([u8; 6], u16, u16, u16), String> {
    let (mut on, mut nth, mut extra) = (99, 99, 99);
    let (tni, cq, component) = (&mut on, &mut nth, &mut extra);
    let at = written_coords(|at| done!(utofu_query_vcq_info(id, at, tni, cq, component)))?;
    Ok((at, on, nth, extra))
}

/// Coordinates, TNI and BG of a VBG.
pub(crate) fn vbg_info(id: u64) -> Result<([u8; 6], u16, u16), String> {
    let (mut on, mut nth, mut extra) = (99, 99, 99);
    let (tni, bg, extra) = (&mut on, &mut nth, &mut extra);
    let at = written_coords(|at| done!(utofu_query_vbg_info(id, at, tni, bg, extra)))?;
    Ok((at, on, nth))
}

/// Sets the path that a VCQ id names.
pub(crate) fn set_path(vcq: &mut u64, path: &[u8]) -> Verdict {
    done!(utofu_set_vcq_id_path(vcq, path.as_ptr().cast_mut()))
}

/// STADD of the memory under a reserved STag of a VCQ.
pub(crate) fn stadd_of(vcq_id: u64, stag: u32) -> Result<u64, String> {
    let stadd = got!(utofu_query_stadd(vcq_id, stag));
    Ok(stadd)
}

/// A VCQ; `Queue::free` frees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queue {
    pub(crate) hdl: usize,
    pub(crate) id: u64,
}

impl Queue {
    /// Component 0 on the first CQ of [`TNI`], with `len` bytes of zeros under [`STAG`], and their STADD.
    pub(crate) fn with_memory(len: usize) -> Result<(Queue, Memory, u64), String> {
        let (queue, memory) = (Queue::with_component(TNI, 0, 0)?, Memory::new(len));
        Ok((queue, memory, queue.register_as(memory, STAG)?))
    }

    /// Creates a VCQ with these flags, with a component ID of the library's choice.
    pub(crate) fn create(tni: u16, flags: u64) -> Result<Queue, String> {
        let hdl = got!(utofu_create_vcq(tni, flags));
        Queue::of(hdl)
    }

    pub(crate) fn with_component(tni: u16, component: u16, flags: u64) -> Result<Queue, String> {
        let hdl = got!(utofu_create_vcq_with_cmp_id(tni, component, flags));
        Queue::of(hdl)
    }

    fn of(hdl: usize) -> Result<Queue, String> {
        let id = got!(utofu_query_vcq_id(hdl));
        Ok(Queue { hdl, id })
    }

    /// ID of the VCQ of the same component, CQ and TNI at another rank, if all ranks create their VCQs alike.
    pub(crate) fn at_rank(&self, rank: u32) -> Result<u64, String> {
        let (_, tni, cq, component) = vcq_info(self.id)?;
        vcq_id(&coords(rank)?, tni, cq, component)
    }

    pub(crate) fn free(self) -> Verdict {
        ok!(utofu_free_vcq(self.hdl));
        Ok(())
    }

    /// Deregisters the memory and frees the VCQ.
    pub(crate) fn close(self, stadd: u64) -> Verdict {
        self.deregister(stadd)?;
        self.free()
    }

    /// Registers memory.
    pub(crate) fn register(&self, memory: Memory) -> Result<u64, String> {
        let stadd = got!(utofu_reg_mem(self.hdl, memory.base.cast(), memory.len, 0));
        Ok(stadd)
    }

    pub(crate) fn register_as(&self, memory: Memory, stag: u32) -> Result<u64, String> {
        let stadd = got!(utofu_reg_mem_with_stag(
            self.hdl,
            memory.base.cast(),
            memory.len,
            stag,
            0
        ));
        Ok(stadd)
    }

    pub(crate) fn deregister(&self, stadd: u64) -> Verdict {
        ok!(utofu_dereg_mem(self.hdl, stadd, 0));
        Ok(())
    }

    /// One poll of the TCQ: the code and the cbdata.
    pub(crate) fn poll_tcq(&self) -> (i32, usize) {
        let mut cbdata: *mut c_void = null_mut();
        let code = c!(utofu_poll_tcq(self.hdl, 0, &mut cbdata));
        (code, cbdata as usize)
    }

    /// One poll of the MRQ: the code and the notice.
    pub(crate) fn poll_mrq(&self) -> (i32, utofu_mrq_notice) {
        let mut notice = utofu_mrq_notice::default();
        let code = c!(utofu_poll_mrq(self.hdl, 0, &mut notice));
        (code, notice)
    }

    /// Puts a word until that succeeds: the target may not be there yet.
    pub(crate) fn write_when_there(&self, to: u64, at: u64, value: u64) -> Verdict {
        until_ok("the target of a put", || {
            post::put_piggyback8(self.hdl, to, value, at, 8).ok(0, LOCAL, 0)?;
            let _ = self.poll_tcq();
            let is_there = self.next_mrq()?.0 == SUCCESS;
            pause(u64::from(!is_there));
            Ok(is_there)
        })
    }

    /// The next entry of the TCQ, whatever its code.
    pub(crate) fn next_tcq(&self) -> Result<(i32, usize), String> {
        next("an entry of the TCQ", || self.poll_tcq())
    }

    /// The next entry of the MRQ, whatever its code.
    pub(crate) fn next_mrq(&self) -> Result<(i32, utofu_mrq_notice), String> {
        next("a notice in the MRQ", || self.poll_mrq())
    }

    /// The cbdata of the next entry of the TCQ, a success.
    pub(crate) fn tcq(&self) -> Result<usize, String> {
        match self.next_tcq()? {
            (SUCCESS, cbdata) => Ok(cbdata),
            (code, _) => Err(format!("utofu_poll_tcq gave {}", code_name(code))),
        }
    }

    /// The next notice of the MRQ, a success.
    pub(crate) fn mrq(&self) -> Result<utofu_mrq_notice, String> {
        match self.next_mrq()? {
            (SUCCESS, notice) => Ok(notice),
            (code, _) => Err(format!("utofu_poll_mrq gave {}", code_name(code))),
        }
    }

    /// Fails unless the next entry of the TCQ has this code and this cbdata.
    #[track_caller]
    pub(crate) fn tcq_is(&self, code: i32, cbdata: usize, what: &str) -> Verdict {
        let (seen, which) = self.next_tcq()?;
        code_is(seen, code, what)?;
        ensure_eq!(which, cbdata, "cbdata of {what}");
        Ok(())
    }

    /// The next notice, a success of this type.
    pub(crate) fn notice(&self, kind: u8) -> Result<utofu_mrq_notice, String> {
        let notice = self.mrq()?;
        ensure_eq!(notice.notice_type, kind, "the type of the notice");
        Ok(notice)
    }

    /// The number of entries of the TCQ that are unread.
    pub(crate) fn unread_tcq(&self) -> Result<usize, String> {
        let mut count = usize::MAX;
        ok!(utofu_query_num_unread_tcq(self.hdl, &mut count));
        Ok(count)
    }

    /// The number of notices of the MRQ that are unread.
    pub(crate) fn unread_mrq(&self) -> Result<usize, String> {
        let mut count = usize::MAX;
        ok!(utofu_query_num_unread_mrq(self.hdl, &mut count));
        Ok(count)
    }

    /// Fails if there is anything in the TCQ.
    pub(crate) fn tcq_is_empty(&self) -> Verdict {
        let (code, cbdata) = self.poll_tcq();
        ensure!(
            code == NOT_FOUND,
            "an unrequested entry of the TCQ: {}, cbdata {cbdata:#x}",
            code_name(code)
        );
        Ok(())
    }

    /// Fails if there is anything in the MRQ.
    pub(crate) fn mrq_is_empty(&self) -> Verdict {
        let (code, notice) = self.poll_mrq();
        ensure!(
            code == NOT_FOUND,
            "an unrequested notice in the MRQ: {}, {notice:?}",
            code_name(code)
        );
        Ok(())
    }

    /// Fails if there is anything in the TCQ or the MRQ.
    pub(crate) fn has_nothing(&self) -> Verdict {
        self.tcq_is_empty()?;
        self.mrq_is_empty()
    }

    /// Fails unless the next entries of the TCQ are successes with these cbdata.
    pub(crate) fn completes(&self, all: impl IntoIterator<Item = usize>) -> Verdict {
        for_all(all, |cbdata| equal!(self.tcq()?, cbdata, "cbdata"))
    }

    /// Takes a notice of this type for each of `all`.
    pub(crate) fn notices<T>(&self, all: impl IntoIterator<Item = T>, kind: u8) -> Verdict {
        for_all(all, |_| self.notice(kind))
    }

    /// As [`post_seen`](Self::post_seen), for a queue without TCQ notices.
    pub(crate) fn post(&self, call: impl FnMut() -> i32) -> Verdict {
        self.post_seen(|_| (), call)
    }

    /// Repeats the call until the code is not BUSY; passes the cbdata of each TCQ entry that it polls to `seen`.
    pub(crate) fn post_seen(
        &self,
        mut seen: impl FnMut(usize),
        mut call: impl FnMut() -> i32,
    ) -> Verdict {
        let mut looks = Looks::new();
        loop {
            match call() {
                BUSY => {
                    while let (SUCCESS, cbdata) = self.poll_tcq() {
                        seen(cbdata);
                    }
                    looks.again();
                }
                SUCCESS => return Ok(()),
                code => return Err(format!("posting gave {}", code_name(code))),
            }
        }
    }
}

impl Queue {
    /// Posts `count` commands, each with a TCQ notice, and waits until all are complete.
    pub(crate) fn send_all(&self, count: u64, mut post: impl FnMut(u64) -> i32) -> Verdict {
        let mut sent = 0;
        for nth in 0..count {
            self.post_seen(|_| sent += 1, || post(nth))?;
        }
        while sent < count {
            self.tcq()?;
            sent += 1;
        }
        Ok(())
    }

    /// Fills the own MRQ: all `count` puts are sent before the first poll of the MRQ. Then it takes as many notices.
    pub(crate) fn fill_mrq(&self, count: u64, flags: u64) -> Verdict {
        let stadd = self.register_as(Memory::new(256), STAG)?;
        self.send_all(count, |nth| {
            post::put_piggyback8(self.hdl, self.id, nth, stadd, 8).code(0, flags | TCQ, 0)
        })?;
        for_all(0..count, |_| self.mrq())
    }
}

/// Polls until there is an entry.
pub(crate) fn next<T>(what: &str, mut poll: impl FnMut() -> (i32, T)) -> Result<(i32, T), String> {
    let mut looks = Looks::for_the(what);
    loop {
        match poll() {
            (NOT_FOUND, _) => looks.again(),
            found => return Ok(found),
        }
    }
}

/// A pointer for cbdata.
pub(crate) fn cb(value: usize) -> *mut c_void {
    value as *mut c_void
}

/// The arguments of a body of [`with`].
pub(crate) struct Job<'a> {
    pub(crate) ctx: &'a Ctx,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    /// Component 0 on the first CQ of [`TNI`].
    pub(crate) queue: Queue,
    pub(crate) hdl: usize,
    pub(crate) memory: Memory,
    /// Of `memory`.
    pub(crate) stadd: u64,
}

impl Job<'_> {
    /// The VCQ id of a rank.
    pub(crate) fn vcq(&self, rank: u32) -> u64 {
        vcq_of(rank, TNI, 0).expect("the coordinates of a rank of the job")
    }

    /// The STADD of byte `offset` of a rank's memory.
    pub(crate) fn at(&self, rank: u32, offset: usize) -> u64 {
        stadd_of(self.vcq(rank), STAG).expect("a reserved STag of a rank of the job")
            + offset as u64
    }

    /// The next rank.
    pub(crate) fn right(&self) -> u32 {
        (self.rank + 1) % self.size
    }

    /// The previous rank.
    pub(crate) fn left(&self) -> u32 {
        (self.rank + self.size - 1) % self.size
    }

    /// Waits until all ranks have arrived, without uTofu.
    pub(crate) fn meet(&self) {
        self.ctx.sync();
    }

    /// Writes 8 bytes to a rank's memory and waits for completion. With a full queue it first waits for room.
    pub(crate) fn write(&self, rank: u32, offset: usize, value: u64) -> Verdict {
        let (to, at) = (self.vcq(rank), self.at(rank, offset));
        let put = post::put_piggyback8(self.hdl, to, value, at, 8);
        self.queue.post(|| put.code(0, LOCAL, 0))?;
        self.queue.notice(LCL_PUT)?;
        Ok(())
    }

    /// Sends in each round from rank 0, which then waits until rank 1 has checked; the rounds count from 1.
    pub(crate) fn rounds(
        &self,
        rounds: u64,
        send: impl Fn(u64) -> Verdict,
        check: impl Fn(u64) -> Verdict,
    ) -> Verdict {
        for_all(1..=rounds, |round| match self.rank {
            0 => send(round).and_then(|()| self.await_word(0, round)),
            _ => check(round).and_then(|()| self.put8(0, 0, round).ok(0, 0, 0)),
        })
    }

    /// Waits until word 0 of the own memory is the sum of the left rank's additions, which all are posted; they leave it so.
    pub(crate) fn sum_arrives(&self, sum: u64) -> Verdict {
        until("all additions", || self.memory.get(0) >= sum)?;
        self.meet();
        self.memory.shows(0, sum, "additions of the left rank")
    }

    /// Waits until a byte of the own memory has this value.
    pub(crate) fn await_byte(&self, at: usize, value: u8) -> Verdict {
        let byte = &self.memory.bytes()[at];
        until("the last byte", || byte.load(Ordering::Acquire) == value)
    }

    /// Waits until the word of the own memory at byte `offset` has this value. Does not poll the MRQ.
    pub(crate) fn await_word(&self, offset: usize, value: u64) -> Verdict {
        until(
            &format!("{value:#x} in byte {offset} of the memory"),
            || self.memory.get(offset) == value,
        )
    }
}

/// Runs the body with a VCQ and `len` bytes of zeros under [`STAG`]. All ranks have them before a body begins; at the end all
/// ranks meet, and the VCQ and the memory are freed.
pub(crate) fn with<T>(
    ctx: &Ctx,
    len: usize,
    body: impl FnOnce(&Job<'_>) -> Result<T, String>,
) -> Result<T, String> {
    with_flags(ctx, len, 0, body)
}

/// Like [`with`], with flags for the VCQ.
pub(crate) fn with_flags<T>(
    ctx: &Ctx,
    len: usize,
    flags: u64,
    body: impl FnOnce(&Job<'_>) -> Result<T, String>,
) -> Result<T, String> {
    let queue = Queue::with_component(TNI, 0, flags)?;
    ensure_eq!(queue.id, vcq_of(ctx.rank, TNI, 0)?, "the id of the VCQ");
    let memory = Memory::new(len.next_multiple_of(256));
    let stadd = queue.register_as(memory, STAG)?;
    ctx.sync();
    let result = body(&Job {
        ctx,
        rank: ctx.rank,
        size: ctx.size,
        queue,
        hdl: queue.hdl,
        memory,
        stadd,
    })?;
    ctx.sync();
    queue.close(stadd)?;
    memory.free();
    // A next law that begins early would not find the VCQ of this rank.
    ctx.sync();
    Ok(result)
}
