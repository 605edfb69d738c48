//! A VCQ of this process: the boundary to C.

use std::ffi::{c_int, c_ulong, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use unipgas_core::{Error, Result};
use unipgas_utofu_sys::*;

use crate::edata;
use crate::library::UtofuLibrary;

/// A virtual control queue. Calls for one VCQ need mutual exclusion; calls for different VCQs may be concurrent.
pub(crate) struct RawVcq {
    library: &'static UtofuLibrary,
    handle: utofu_vcq_hdl_t,
    /// Its ID for all processes.
    pub id: utofu_vcq_id_t,
    /// The TNI that serves it.
    pub tni: utofu_tni_id_t,
    /// The last descriptor is delayed until the next one.
    waits: AtomicBool,
}

/// Name of an error code in the guide.
pub fn name(code: c_int) -> String {
    let known = constants()
        .find(|(name, value)| name.starts_with("UTOFU_ERR_") && *value == i128::from(code));
    known.map_or_else(|| format!("uTofu's error {code}"), |(name, _)| name.into())
}

#[cold]
pub fn failed(code: c_int, what: &str) -> Error {
    Error::Os(format!("{what}: {}", name(code)))
}

/// Whether a poll returned a failed descriptor or notice. Other errors are failures of the poll itself.
fn is_of_descriptor(code: c_int) -> bool {
    matches!(code, UTOFU_ERR_TCQ_LENGTH..=UTOFU_ERR_TCQ_OTHER | UTOFU_ERR_MRQ_RMT_LENGTH..=UTOFU_ERR_MRQ_OTHER)
}

/// Bit of descriptor data: the descriptor has a local notice too. Callers leave it clear.
const TOLD: usize = 2;

fn data_of(data: usize, flags: c_ulong) -> *mut c_void {
    let told = flags & UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE != 0;
    std::ptr::without_provenance_mut(if told { data | TOLD } else { data })
}

/// EDATA of a descriptor. The caller's value, if it is not 0, is for the peer.
fn edata_of(edata: u64, data: usize, flags: c_ulong) -> c_ulong {
    let told = flags & UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE != 0;
    match (edata, told) {
        (0, true) => edata::told((data >> 2) as u32),
        (0, false) => edata::untold((data >> 2) as u32),
        (edata, _) => edata,
    }
}

/// The target in a descriptor's data, if the descriptor has a local notice.
pub fn is_told(data: usize) -> Option<u32> {
    (data & TOLD != 0).then_some((data >> 2) as u32)
}

/// Result of a poll.
pub(crate) enum PollResult<T> {
    /// A successful descriptor, or a notice.
    Success(T),
    /// A failure, with its code.
    Failure(T, c_int),
    /// No event.
    Nothing,
    /// The poll itself failed, and may have lost events.
    Broken(Error),
}

impl<T> PollResult<T> {
    fn of(code: c_int, what: &str, found: T) -> Self {
        match code {
            UTOFU_SUCCESS => PollResult::Success(found),
            UTOFU_ERR_NOT_FOUND => PollResult::Nothing,
            code if is_of_descriptor(code) => PollResult::Failure(found, code),
            code => PollResult::Broken(failed(code, what)),
        }
    }
}

impl RawVcq {
    /// Creates a VCQ on a TNI. It may share its CQ; an exclusive one is for programs that ask for it. `incarnation` gives it another ID than the VCQs of
    /// earlier processes of this rank: their late messages must not reach this memory. Errors: [`Error::Exhausted`]: no VCQ is free; [`Error::Os`].
    pub fn new(
        library: &'static UtofuLibrary,
        tni: utofu_tni_id_t,
        incarnation: u32,
    ) -> Result<Self> {
        let calls = &library.functions;
        let mut handle = 0;
        let mut code = UTOFU_ERR_USED;
        for component in components(library, tni, incarnation)? {
            let create = calls.utofu_create_vcq_with_cmp_id;
            // SAFETY:
            // - the call fills a place for the handle.
            code = unsafe { create(tni, component, UTOFU_VCQ_FLAG_THREAD_SAFE, &raw mut handle) };
            if code == UTOFU_SUCCESS {
                break;
            }
        }
        if code != UTOFU_SUCCESS {
            let create = calls.utofu_create_vcq;
            // SAFETY:
            // - the call fills a place for the handle.
            code = unsafe { create(tni, UTOFU_VCQ_FLAG_THREAD_SAFE, &raw mut handle) };
        }
        match code {
            UTOFU_SUCCESS => {}
            UTOFU_ERR_FULL | UTOFU_ERR_NOT_AVAILABLE => {
                return Err(Error::Exhausted("VCQs".into()));
            }
            code => return Err(failed(code, "utofu_create_vcq")),
        }
        let mut vcq = RawVcq {
            library,
            handle,
            id: 0,
            tni,
            waits: AtomicBool::new(false),
        };
        // SAFETY:
        // - the handle is valid, and the call fills a place for the ID.
        match unsafe { (calls.utofu_query_vcq_id)(handle, &raw mut vcq.id) } {
            UTOFU_SUCCESS => Ok(vcq),
            code => Err(failed(code, "utofu_query_vcq_id")),
        }
    }

    /// Registers memory, and returns its STADD. Peers can compute the STADD of memory with a tag. Errors: [`Error::Exhausted`]; [`Error::Os`].
    ///
    /// # Safety
    /// `len` bytes at `base` are valid until [`deregister`](RawVcq::deregister), and valid for writes unless `read_only`.
    pub unsafe fn register(
        &self,
        base: *mut u8,
        len: usize,
        read_only: bool,
        tag: Option<u32>,
    ) -> Result<u64> {
        let calls = &self.library.functions;
        let flags = match read_only {
            true => UTOFU_REG_MEM_FLAG_READ_ONLY,
            false => 0,
        };
        let (mut stadd, base) = (0, base.cast::<c_void>());
        // SAFETY:
        // - contract of this call: the bytes are valid. The call fills a place for the STADD.
        let code = unsafe {
            match tag {
                None => (calls.utofu_reg_mem)(self.handle, base, len, flags, &raw mut stadd),
                Some(tag) => (calls.utofu_reg_mem_with_stag)(
                    self.handle,
                    base,
                    len,
                    tag,
                    flags,
                    &raw mut stadd,
                ),
            }
        };
        match code {
            UTOFU_SUCCESS => Ok(stadd),
            UTOFU_ERR_FULL | UTOFU_ERR_NOT_AVAILABLE => Err(Error::Exhausted("STADDs".into())),
            UTOFU_ERR_OUT_OF_MEMORY => Err(Error::Exhausted("memory for a registration".into())),
            code => Err(failed(code, "utofu_reg_mem")),
        }
    }

    /// Deregisters memory.
    pub fn deregister(&self, stadd: u64) {
        // SAFETY:
        // - the handle is valid; the library refuses an invalid STADD.
        let code = unsafe { (self.library.functions.utofu_dereg_mem)(self.handle, stadd, 0) };
        if code != UTOFU_SUCCESS {
            tracing::debug!("tofu: utofu_dereg_mem: {}", name(code));
        }
    }

    /// The STADD of a peer's memory with this tag. Errors: [`Error::Os`].
    pub fn tagged(&self, peer: u64, tag: u32) -> Result<u64> {
        let mut stadd = 0;
        let query = self.library.functions.utofu_query_stadd;
        // SAFETY:
        // - the call fills a place for the STADD.
        match unsafe { query(peer, tag, &raw mut stadd) } {
            UTOFU_SUCCESS => Ok(stadd),
            code => Err(failed(code, "utofu_query_stadd")),
        }
    }

    /// The ID of a peer's VCQ with a path, which the library chooses. Otherwise all traffic to a node takes one path. Errors: [`Error::Os`].
    pub fn route(&self, peer: u64) -> Result<u64> {
        let mut route = peer;
        let set = self.library.functions.utofu_set_vcq_id_path;
        // SAFETY:
        // - the call changes the ID in place. Null coordinates are allowed (guide §3.3.2.3).
        match unsafe { set(&raw mut route, null_mut()) } {
            UTOFU_SUCCESS => Ok(route),
            code => Err(failed(code, "utofu_set_vcq_id_path")),
        }
    }

    /// Location of a VCQ, for people.
    #[cold]
    pub fn place(&self, vcq: u64) -> String {
        let mut coords = [0; 6];
        let (mut tni, mut cq, mut extra) = (0, 0, 0);
        let query = self.library.functions.utofu_query_vcq_info;
        // SAFETY:
        // - the call fills places for all results.
        let code = unsafe {
            query(
                vcq,
                coords.as_mut_ptr(),
                &raw mut tni,
                &raw mut cq,
                &raw mut extra,
            )
        };
        match code {
            UTOFU_SUCCESS => format!("the VCQ {vcq:#x} of the node {}", join(&coords)),
            _ => format!("the VCQ {vcq:#x}"),
        }
    }

    /// Writes `len` bytes of registered memory. Errors: [`Error::NotNow`], [`Error::Os`].
    ///
    /// # Safety
    /// The source does not change until the TNI has read it.
    #[inline]
    pub unsafe fn put(
        &self,
        peer: u64,
        (from, to): (u64, u64),
        len: usize,
        (edata, flags): (u64, c_ulong),
        cbdata: usize,
    ) -> Result<()> {
        let put = self.library.functions.utofu_put;
        let edata = edata_of(edata, cbdata, flags);
        let cbdata = data_of(cbdata, flags);
        // SAFETY:
        // - contract of this call: the source is valid. The library refuses an invalid STADD.
        let code = unsafe { put(self.handle, peer, from, to, len, edata, flags, cbdata) };
        self.posted(flags, code, "utofu_put")
    }

    /// Writes up to 32 bytes, which are copied in the call. Errors: as [`put`](RawVcq::put).
    ///
    /// # Safety
    /// The bytes are valid.
    #[inline]
    pub unsafe fn put_piggyback(
        &self,
        peer: u64,
        (bytes, len): (*const u8, usize),
        to: u64,
        (edata, flags): (u64, c_ulong),
        cbdata: usize,
    ) -> Result<()> {
        let calls = &self.library.functions;
        let edata = edata_of(edata, cbdata, flags);
        let cbdata = data_of(cbdata, flags);
        if len > size_of::<u64>() {
            let bytes = bytes.cast_mut().cast();
            let put = calls.utofu_put_piggyback;
            // SAFETY:
            // - contract of this call: the bytes are valid.
            let code = unsafe { put(self.handle, peer, bytes, to, len, edata, flags, cbdata) };
            return self.posted(flags, code, "utofu_put_piggyback");
        }
        let mut word = [0; size_of::<u64>()];
        // SAFETY:
        // - contract of this call: the bytes are valid. They fit in the word (checked above).
        unsafe { word.as_mut_ptr().copy_from_nonoverlapping(bytes, len) };
        let (word, put) = (u64::from_ne_bytes(word), calls.utofu_put_piggyback8);
        // SAFETY:
        // - the bytes are in the word.
        let code = unsafe { put(self.handle, peer, word, to, len, edata, flags, cbdata) };
        self.posted(flags, code, "utofu_put_piggyback8")
    }

    /// Reads `len` bytes into registered memory. Errors: as [`put`](RawVcq::put).
    ///
    /// # Safety
    /// The destination is valid for writes until completion, without other accesses.
    pub unsafe fn get(
        &self,
        peer: u64,
        (into, from): (u64, u64),
        len: usize,
        flags: c_ulong,
        cbdata: usize,
    ) -> Result<()> {
        let get = self.library.functions.utofu_get;
        let edata = edata_of(0, cbdata, flags);
        let cbdata = data_of(cbdata, flags);
        // SAFETY:
        // - contract of this call: the destination is valid.
        let code = unsafe { get(self.handle, peer, into, from, len, edata, flags, cbdata) };
        self.posted(flags, code, "utofu_get")
    }

    /// Changes an element of 4 or 8 bytes. Errors: as [`put`](RawVcq::put).
    pub fn armw(
        &self,
        peer: u64,
        at: u64,
        what: &Armw,
        flags: c_ulong,
        cbdata: usize,
    ) -> Result<()> {
        let calls = &self.library.functions;
        let edata = edata_of(0, cbdata, flags);
        let cbdata = data_of(cbdata, flags);
        let handle = self.handle;
        // SAFETY:
        // - the arguments are numbers, and the library refuses an invalid STADD.
        let code = unsafe {
            match *what {
                Armw::Change4(op, value) => {
                    (calls.utofu_armw4)(handle, peer, op, value, at, edata, flags, cbdata)
                }
                Armw::Change8(op, value) => {
                    (calls.utofu_armw8)(handle, peer, op, value, at, edata, flags, cbdata)
                }
                Armw::Swap4(old, new) => {
                    (calls.utofu_cswap4)(handle, peer, old, new, at, edata, flags, cbdata)
                }
                Armw::Swap8(old, new) => {
                    (calls.utofu_cswap8)(handle, peer, old, new, at, edata, flags, cbdata)
                }
            }
        };
        self.posted(flags, code, what.call())
    }

    /// Result of a post. Errors: [`Error::NotNow`]: the TOQ is full; [`Error::Os`].
    #[inline]
    fn posted(&self, flags: c_ulong, code: c_int, what: &str) -> Result<()> {
        match code {
            UTOFU_SUCCESS => {
                let waits = flags & UTOFU_ONESIDED_FLAG_DELAY_START != 0;
                self.waits.store(waits, Ordering::Relaxed);
                Ok(())
            }
            UTOFU_ERR_BUSY => Err(Error::NotNow),
            code => Err(failed(code, what)),
        }
    }

    /// Flags of a descriptor that may start with the next one. Only one at a time is delayed, so that the TOQ cannot fill up with delayed descriptors.
    #[inline]
    pub fn waiting(&self) -> c_ulong {
        match self.waits.load(Ordering::Relaxed) {
            true => 0,
            false => UTOFU_ONESIDED_FLAG_DELAY_START,
        }
    }

    /// Starts a [delayed](RawVcq::waiting) descriptor, and nothing else. False: the TOQ is full; polls make room.
    #[cold]
    pub fn start(&self) -> bool {
        if !self.waits.load(Ordering::Relaxed) {
            return true;
        }
        // SAFETY:
        // - the handle is valid.
        let code = unsafe { (self.library.functions.utofu_nop)(self.handle, 0, null_mut()) };
        let started = self.posted(0, code, "utofu_nop");
        if let Err(why) = &started {
            tracing::debug!("tofu: {why}");
        }
        started != Err(Error::NotNow)
    }

    /// The next entry of the TCQ: data of a descriptor that was posted with [`UTOFU_ONESIDED_FLAG_TCQ_NOTICE`], or that has failed.
    #[inline]
    pub fn poll_tcq(&self) -> PollResult<usize> {
        let mut cbdata = null_mut();
        let poll = self.library.functions.utofu_poll_tcq;
        // SAFETY:
        // - the handle is valid, and the call fills a place for the data.
        let code = unsafe { poll(self.handle, 0, &raw mut cbdata) };
        PollResult::of(code, "utofu_poll_tcq", cbdata.addr())
    }

    /// The next entry of the MRQ.
    #[inline]
    pub fn poll_mrq(&self) -> PollResult<utofu_mrq_notice> {
        let mut notice = utofu_mrq_notice::default();
        let poll = self.library.functions.utofu_poll_mrq;
        // SAFETY:
        // - the handle is valid, and the call fills a place for the notice.
        let code = unsafe { poll(self.handle, 0, &raw mut notice) };
        PollResult::of(code, "utofu_poll_mrq", notice)
    }
}

/// An atomic read-modify-write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Armw {
    /// Operation and operand of 4 bytes.
    Change4(utofu_armw_op, u32),
    /// Operation and operand of 8 bytes.
    Change8(utofu_armw_op, u64),
    /// Compare-and-swap of 4 bytes: comparand and new value.
    Swap4(u32, u32),
    /// Compare-and-swap of 8 bytes.
    Swap8(u64, u64),
}

impl Armw {
    fn call(&self) -> &'static str {
        match self {
            Armw::Change4(..) => "utofu_armw4",
            Armw::Change8(..) => "utofu_armw8",
            Armw::Swap4(..) => "utofu_cswap4",
            Armw::Swap8(..) => "utofu_cswap8",
        }
    }
}

impl Drop for RawVcq {
    fn drop(&mut self) {
        // SAFETY:
        // - `new` created the handle, and this is its last use.
        let code = unsafe { (self.library.functions.utofu_free_vcq)(self.handle) };
        if code != UTOFU_SUCCESS {
            tracing::debug!("tofu: utofu_free_vcq: {}", name(code));
        }
    }
}

/// Six coordinates, in the format of the machine's tools.
fn join(coords: &[u8; 6]) -> String {
    coords.map(|one| one.to_string()).join(",")
}

/// The TNIs that this process can use. Errors: [`Error::Unreachable`].
pub fn tnis(library: &'static UtofuLibrary) -> Result<Vec<utofu_tni_id_t>> {
    let (mut ids, mut count) = (null_mut(), 0);
    let calls = &library.functions;
    // The first call of the library, in which it reads its environment.
    // SAFETY:
    // - the call fills places for the array and its length.
    let code =
        library.begin(|| unsafe { (calls.utofu_get_onesided_tnis)(&raw mut ids, &raw mut count) });
    if code != UTOFU_SUCCESS || ids.is_null() {
        return Err(Error::Unreachable(format!(
            "utofu_get_onesided_tnis: {}: this is no node with a Tofu interconnect, or the job may not use it",
            name(code)
        )));
    }
    // SAFETY:
    // - contract of `utofu_get_onesided_tnis`: the array has `count` elements.
    let found = unsafe { std::slice::from_raw_parts(ids, count) }.to_vec();
    // SAFETY:
    // - the library allocates the array by malloc for the caller (guide §3.2.1.1).
    unsafe { libc::free(ids.cast()) };
    match found.is_empty() {
        true => Err(Error::Unreachable("no TNI is left for this process".into())),
        false => Ok(found),
    }
}

/// Component IDs to try, in order, for a process that replaces another one. They exclude the first choice of its predecessor. The first process of a
/// rank has no predecessor, and lets the library choose. The lower half of the IDs is left to MPI and others.
fn components(
    library: &'static UtofuLibrary,
    tni: utofu_tni_id_t,
    incarnation: u32,
) -> Result<Vec<utofu_cmp_id_t>> {
    if incarnation == 0 {
        return Ok(Vec::new());
    }
    let most = caps(library, tni)?.num_cmp_ids.min(u32::from(u16::MAX));
    let upper = most / 2;
    let shifted = |nth: u32| most - 1 - (incarnation.wrapping_add(nth)) % upper;
    // One more would be the predecessor's first choice.
    let tried = 0..upper.saturating_sub(1);
    Ok(tried.map(|nth| shifted(nth) as utofu_cmp_id_t).collect())
}

/// Capabilities of a TNI. Errors: [`Error::Unreachable`].
pub fn caps(library: &'static UtofuLibrary, tni: utofu_tni_id_t) -> Result<utofu_onesided_caps> {
    let mut caps = null_mut();
    // SAFETY:
    // - the call fills the place with a pointer to memory of the library.
    let code = unsafe { (library.functions.utofu_query_onesided_caps)(tni, &raw mut caps) };
    match code == UTOFU_SUCCESS && !caps.is_null() {
        // SAFETY:
        // - contract of `utofu_query_onesided_caps`: the pointer is valid.
        true => Ok(unsafe { *caps }),
        false => Err(Error::Unreachable(format!(
            "utofu_query_onesided_caps: {}",
            name(code)
        ))),
    }
}
