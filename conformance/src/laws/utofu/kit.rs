//! What the laws of uTofu are written with.
//!
//! Rank r of a law is node r of the mesh. [`with`] gives a body a VCQ of component 0 on the first TNI, and memory under STag
//! [`STAG`], so that peers compute everything.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use unipgas::utofu::ffi::MrqNotice;
use unipgas::utofu::status::Code;

use crate::law::{Ctx, Random, Verdict};
pub(crate) use crate::stall::Looks;

/// `UTOFU_SUCCESS`.
pub(crate) const SUCCESS: i32 = 0;
/// `UTOFU_ERR_NOT_FOUND`.
pub(crate) const NOT_FOUND: i32 = Code::NotFound as i32;
/// `UTOFU_ERR_BUSY`.
pub(crate) const BUSY: i32 = Code::Busy as i32;

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

/// Calls a function of the C interface and gives its code.
macro_rules! c {
    ($name:ident($($arg:expr),* $(,)?)) => {
        // SAFETY:
        // - pointers are null, or lead to places as large as the function's contract asks for; they outlive the call.
        unsafe { unipgas::utofu::ffi::$name($($arg),*) }
    };
}

/// Calls a function; the law fails unless it succeeds.
macro_rules! ok {
    ($name:ident($($arg:expr),* $(,)?)) => {
        match c!($name($($arg),*)) {
            0 => {}
            code => {
                return Err(format!(
                    "{} gave {} instead of success ({}:{})",
                    stringify!($name),
                    $crate::laws::utofu::kit::code_name(code),
                    $crate::laws::utofu::kit::file_name(file!()),
                    line!()
                ));
            }
        }
    };
}

/// Calls a function; the law fails unless it gives this code: `gives!(NotFound, utofu_poll_tcq(..))`.
macro_rules! gives {
    ($code:ident, $name:ident($($arg:expr),* $(,)?)) => {
        match (c!($name($($arg),*)), unipgas::utofu::status::Code::$code as i32) {
            (code, expected) => {
                if code != expected {
                    return Err(format!(
                        "{} gave {} instead of {} ({}:{})",
                        stringify!($name),
                        $crate::laws::utofu::kit::code_name(code),
                        $crate::laws::utofu::kit::code_name(expected),
                        $crate::laws::utofu::kit::file_name(file!()),
                        line!()
                    ));
                }
            }
        }
    };
}

/// A table of laws, each with a body of the same name, as the function `laws`.
macro_rules! laws {
    ($(
        $body:ident: $id:literal, $clause:literal, $processes:literal,
        [$($procedure:ident),* $(,)?] $(+ $flag:ident)*, $says:literal;
    )*) => {
        pub(crate) fn laws() -> Vec<&'static $crate::law::Law> {
            use $crate::law::{Api, Law};
            vec![$({
                static LAW: Law = Law {
                    $($flag: true,)*
                    ..Law::new(
                        Api::Utofu,
                        concat!("utofu.", $id),
                        concat!("uTofu ", $clause),
                        $says,
                        $processes,
                        &[$(concat!("utofu_", stringify!($procedure))),*],
                        $body,
                    )
                };
                &LAW
            }),*]
        }
    };
}

pub(crate) use {c, gives, laws, ok};

/// The name of a return code, for messages.
pub(crate) fn code_name(code: i32) -> String {
    match Code::ALL.iter().find(|known| **known as i32 == code) {
        Some(known) => format!("{code} ({known:?})"),
        None if code == SUCCESS => "0 (success)".into(),
        None => code.to_string(),
    }
}

/// The last part of a path, for messages.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Memory that peers may access at any time: a view.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) base: *mut u8,
    pub(crate) len: usize,
}

// SAFETY:
// - accessed by atomics only.
unsafe impl Send for Memory {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Memory {}

impl Memory {
    /// Memory of the heap with zeros, aligned to 256 bytes; it lives as long as the process.
    pub(crate) fn leaked(len: usize) -> Memory {
        let layout = std::alloc::Layout::from_size_align(len.max(1), 256).expect("a size");
        // SAFETY:
        // - the layout has a size.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        assert!(!base.is_null(), "no memory");
        Memory { base, len }
    }

    /// Pages of their own, with zeros, as long as the process.
    pub(crate) fn pages(len: usize) -> Result<Memory, String> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY:
        // - a new mapping.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, flags, -1, 0) };
        crate::ensure!(base != libc::MAP_FAILED, "no memory");
        let base = base.cast();
        Ok(Memory { base, len })
    }

    /// As [`Memory::leaked`], to be given back by [`Memory::free`].
    pub(crate) fn free(self) {
        let layout = std::alloc::Layout::from_size_align(self.len.max(1), 256).expect("a size");
        // SAFETY:
        // - laws free what they got from `leaked` once, when its registration has ended and nobody uses it.
        unsafe { std::alloc::dealloc(self.base, layout) };
    }

    pub(crate) fn bytes(&self) -> &[AtomicU8] {
        // SAFETY:
        // - `len` bytes that live (laws free them after their last use); everybody here uses atomics.
        unsafe { std::slice::from_raw_parts(self.base.cast(), self.len) }
    }

    /// The u64 at byte `at`, a multiple of 8.
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.len);
        // SAFETY:
        // - in bounds and aligned: memory of laws is aligned to 8 bytes at least.
        unsafe { &*self.base.add(at).cast() }
    }

    /// The u32 at byte `at`, a multiple of 4.
    pub(crate) fn half(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.len);
        // SAFETY:
        // - as for `word`.
        unsafe { &*self.base.add(at).cast() }
    }

    pub(crate) fn get(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, at: usize, value: u64) {
        self.word(at).store(value, Ordering::Release);
    }

    pub(crate) fn fill(&self, value: u8) {
        self.fill_range(0, self.len, value);
    }

    pub(crate) fn fill_range(&self, at: usize, len: usize, value: u8) {
        for byte in &self.bytes()[at..at + len] {
            byte.store(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn store(&self, at: usize, bytes: &[u8]) {
        for (place, byte) in self.bytes()[at..at + bytes.len()].iter().zip(bytes) {
            place.store(*byte, Ordering::Relaxed);
        }
    }

    pub(crate) fn load(&self, at: usize, len: usize) -> Vec<u8> {
        let bytes = self.bytes()[at..at + len].iter();
        bytes.map(|byte| byte.load(Ordering::Relaxed)).collect()
    }

    /// Fails where the bytes are not the expected ones; says where first.
    pub(crate) fn holds(&self, at: usize, expected: &[u8], what: &str) -> Verdict {
        let len = expected.len();
        for (i, (place, expected)) in self.bytes()[at..at + len].iter().zip(expected).enumerate() {
            let seen = place.load(Ordering::Relaxed);
            if seen != *expected {
                return Err(format!(
                    "{what}: byte {i} of {len} is {seen:#x} instead of {expected:#x}"
                ));
            }
        }
        Ok(())
    }

    /// Fails where a byte of the range is not `value`.
    pub(crate) fn all(&self, at: usize, len: usize, value: u8, what: &str) -> Verdict {
        match self.bytes()[at..at + len]
            .iter()
            .position(|byte| byte.load(Ordering::Relaxed) != value)
        {
            None => Ok(()),
            Some(i) => Err(format!("{what}: byte {} is not {value:#x}", at + i)),
        }
    }
}

/// Coordinates of a rank's node.
pub(crate) fn coords(rank: u32) -> Result<[u8; 6], String> {
    let process =
        unipgas::utofu::current().map_err(|code| format!("no process of uTofu: {code:?}"))?;
    Ok(process.shape().coords(rank / process.processes_per_node()))
}

/// Id of the VCQ of a component on the first CQ of a TNI of a rank's node.
pub(crate) fn vcq_of(rank: u32, tni: u16, component: u16) -> Result<u64, String> {
    let coords = coords(rank)?;
    let mut id = 0;
    ok!(utofu_construct_vcq_id(
        coords.as_ptr(),
        tni,
        0,
        component,
        &mut id
    ));
    Ok(id)
}

/// Begin of the memory under a reserved STag of a VCQ.
pub(crate) fn stadd_of(vcq_id: u64, stag: u32) -> Result<u64, String> {
    let mut stadd = 0;
    ok!(utofu_query_stadd(vcq_id, stag, &mut stadd));
    Ok(stadd)
}

/// A VCQ; `Queue::free` gives it back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queue {
    pub(crate) hdl: usize,
    pub(crate) id: u64,
}

impl Queue {
    /// Any one of these flags.
    pub(crate) fn create(tni: u16, flags: u64) -> Result<Queue, String> {
        let mut hdl = 0;
        ok!(utofu_create_vcq(tni, flags, &mut hdl));
        Queue::of(hdl)
    }

    pub(crate) fn with_component(tni: u16, component: u16, flags: u64) -> Result<Queue, String> {
        let mut hdl = 0;
        ok!(utofu_create_vcq_with_cmp_id(
            tni, component, flags, &mut hdl
        ));
        Queue::of(hdl)
    }

    fn of(hdl: usize) -> Result<Queue, String> {
        let mut id = 0;
        ok!(utofu_query_vcq_id(hdl, &mut id));
        Ok(Queue { hdl, id })
    }

    pub(crate) fn free(self) -> Verdict {
        ok!(utofu_free_vcq(self.hdl));
        Ok(())
    }

    /// Registers memory.
    pub(crate) fn register(&self, memory: Memory) -> Result<u64, String> {
        let mut stadd = 0;
        ok!(utofu_reg_mem(
            self.hdl,
            memory.base,
            memory.len,
            0,
            &mut stadd
        ));
        Ok(stadd)
    }

    pub(crate) fn register_as(&self, memory: Memory, stag: u32) -> Result<u64, String> {
        let mut stadd = 0;
        ok!(utofu_reg_mem_with_stag(
            self.hdl,
            memory.base,
            memory.len,
            stag,
            0,
            &mut stadd
        ));
        Ok(stadd)
    }

    pub(crate) fn deregister(&self, stadd: u64) -> Verdict {
        ok!(utofu_dereg_mem(self.hdl, stadd, 0));
        Ok(())
    }

    /// One look at the TCQ: the code and the cbdata.
    pub(crate) fn poll_tcq(&self) -> (i32, usize) {
        let mut cbdata: *mut c_void = std::ptr::null_mut();
        let code = c!(utofu_poll_tcq(self.hdl, 0, &mut cbdata));
        (code, cbdata as usize)
    }

    /// One look at the MRQ: the code and the notice.
    pub(crate) fn poll_mrq(&self) -> (i32, MrqNotice) {
        let mut notice = MrqNotice::default();
        let code = c!(utofu_poll_mrq(self.hdl, 0, &mut notice));
        (code, notice)
    }

    /// The next entry of the TCQ, whatever its code.
    pub(crate) fn next_tcq(&self) -> Result<(i32, usize), String> {
        next("an entry of the TCQ", || self.poll_tcq())
    }

    /// The next entry of the MRQ, whatever its code.
    pub(crate) fn next_mrq(&self) -> Result<(i32, MrqNotice), String> {
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
    pub(crate) fn mrq(&self) -> Result<MrqNotice, String> {
        match self.next_mrq()? {
            (SUCCESS, notice) => Ok(notice),
            (code, _) => Err(format!("utofu_poll_mrq gave {}", code_name(code))),
        }
    }

    /// The next notice, a success of this type.
    pub(crate) fn notice(&self, kind: u8) -> Result<MrqNotice, String> {
        let notice = self.mrq()?;
        crate::ensure_eq!(notice.notice_type, kind, "the type of the notice");
        Ok(notice)
    }

    /// Fails if there is anything in the TCQ.
    pub(crate) fn tcq_is_empty(&self) -> Verdict {
        let (code, cbdata) = self.poll_tcq();
        crate::ensure!(
            code == NOT_FOUND,
            "an entry of the TCQ that nobody asked for: {}, cbdata {cbdata:#x}",
            code_name(code)
        );
        Ok(())
    }

    /// Fails if there is anything in the MRQ.
    pub(crate) fn mrq_is_empty(&self) -> Verdict {
        let (code, notice) = self.poll_mrq();
        crate::ensure!(
            code == NOT_FOUND,
            "a notice in the MRQ that nobody asked for: {}, {notice:?}",
            code_name(code)
        );
        Ok(())
    }

    /// Calls until the code is not BUSY; meanwhile takes what is in the TCQ and gives its cbdata to `seen`.
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

/// Repeats a poll until there is something.
pub(crate) fn next<T>(what: &str, mut poll: impl FnMut() -> (i32, T)) -> Result<(i32, T), String> {
    let mut looks = Looks::for_the(what);
    loop {
        match poll() {
            (NOT_FOUND, _) => looks.again(),
            found => return Ok(found),
        }
    }
}

/// Waits until the condition holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) -> Verdict {
    let mut looks = Looks::for_the(what);
    while !condition() {
        looks.again();
    }
    Ok(())
}

/// A pointer for cbdata.
pub(crate) fn cb(value: usize) -> *mut c_void {
    value as *mut c_void
}

/// What a body is given by [`with`].
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

    /// Waits until all ranks have come here; nothing of uTofu is used for it.
    pub(crate) fn meet(&self) {
        self.ctx.sync();
    }

    /// Writes 8 bytes to a rank's memory and waits until they are there; first for room, if commands under way have taken all of it.
    pub(crate) fn write(&self, rank: u32, offset: usize, value: u64) -> Verdict {
        let (to, at) = (self.vcq(rank), self.at(rank, offset));
        self.queue.post_seen(
            |_| (),
            || {
                c!(utofu_put_piggyback8(
                    self.hdl,
                    to,
                    value,
                    at,
                    8,
                    0,
                    LOCAL,
                    std::ptr::null_mut()
                ))
            },
        )?;
        self.queue.notice(LCL_PUT)?;
        Ok(())
    }

    /// Waits until the word of the own memory at byte `offset` has this value. The MRQ is not touched.
    pub(crate) fn await_word(&self, offset: usize, value: u64) -> Verdict {
        until(
            &format!("{value:#x} in byte {offset} of the memory"),
            || self.memory.get(offset) == value,
        )
    }
}

/// Runs the body with a VCQ and `len` bytes of zeros under [`STAG`], which all ranks have before any one begins; at the end all
/// ranks meet, and what was made is given back.
pub(crate) fn with(ctx: &Ctx, len: usize, body: impl FnOnce(&Job<'_>) -> Verdict) -> Verdict {
    with_flags(ctx, len, 0, body)
}

/// As [`with`], with flags for the VCQ.
pub(crate) fn with_flags(
    ctx: &Ctx,
    len: usize,
    flags: u64,
    body: impl FnOnce(&Job<'_>) -> Verdict,
) -> Verdict {
    let queue = Queue::with_component(TNI, 0, flags)?;
    crate::ensure_eq!(queue.id, vcq_of(ctx.rank, TNI, 0)?, "the id of the VCQ");
    let memory = Memory::leaked(len.next_multiple_of(256));
    let stadd = queue.register_as(memory, STAG)?;
    ctx.sync();
    body(&Job {
        ctx,
        rank: ctx.rank,
        size: ctx.size,
        queue,
        hdl: queue.hdl,
        memory,
        stadd,
    })?;
    ctx.sync();
    queue.deregister(stadd)?;
    queue.free()?;
    memory.free();
    // A law that begins early would find no VCQ.
    ctx.sync();
    Ok(())
}

pub(crate) fn random_bytes(random: &mut Random, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}

pub(crate) fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Runs the work on `n` threads and gives the first failure.
pub(crate) fn threads(n: usize, work: impl Fn(usize) -> Verdict + Sync) -> Verdict {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..n)
            .map(|i| {
                let work = &work;
                scope.spawn(move || work(i))
            })
            .collect();
        let mut verdict = Ok(());
        for thread in threads {
            let one = thread
                .join()
                .unwrap_or_else(|_| Err("a thread panicked".into()));
            verdict = verdict.and(one);
        }
        verdict
    })
}
