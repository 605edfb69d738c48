//! A VCQ of this process, where C ends.

use std::ffi::{c_int, c_ulong, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use unipgas_core::{Error, Result};
use unipgas_utofu_sys::*;

use crate::edata;
use crate::library::Library;

/// A virtual control queue. Calls for one are made by one thread at a time; those for several may be made at once.
pub struct Vcq {
    library: &'static Library,
    handle: utofu_vcq_hdl_t,
    /// By which all processes know it.
    pub id: utofu_vcq_id_t,
    /// The TNI that works for it.
    pub tni: utofu_tni_id_t,
    /// A descriptor waits for the next one.
    waits: AtomicBool,
}

/// A code as it is called in the guide.
pub fn name(code: c_int) -> String {
    let known = constants()
        .find(|(name, value)| name.starts_with("UTOFU_ERR_") && *value == i128::from(code));
    known.map_or_else(|| format!("uTofu's error {code}"), |(name, _)| name.into())
}

#[cold]
pub fn failed(code: c_int, what: &str) -> Error {
    Error::Os(format!("{what}: {}", name(code)))
}

/// Whether a poll has found a descriptor that tells of an error, and has not failed itself.
fn is_of_descriptor(code: c_int) -> bool {
    matches!(code, UTOFU_ERR_TCQ_LENGTH..=UTOFU_ERR_TCQ_OTHER | UTOFU_ERR_MRQ_RMT_LENGTH..=UTOFU_ERR_MRQ_OTHER)
}

/// Of what a descriptor has with it, this says that a local notice tells of its end, too. Callers leave it free.
const TOLD: usize = 2;

fn data_of(data: usize, flags: c_ulong) -> *mut c_void {
    let told = flags & UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE != 0;
    std::ptr::without_provenance_mut(if told { data | TOLD } else { data })
}

/// The EDATA of a descriptor, unless the peer is told some.
fn edata_of(edata: u64, data: usize, flags: c_ulong) -> c_ulong {
    let told = flags & UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE != 0;
    match (edata, told) {
        (0, true) => edata::told((data >> 2) as u32),
        (0, false) => edata::untold((data >> 2) as u32),
        (edata, _) => edata,
    }
}

/// The number in a descriptor's data, if a local notice was to tell of its end.
pub fn is_told(data: usize) -> Option<u32> {
    (data & TOLD != 0).then_some((data >> 2) as u32)
}

/// What a poll finds.
pub enum Found<T> {
    /// What tells of something that has been done.
    Success(T),
    /// Of what has failed, and the code.
    Failure(T, c_int),
    /// Nothing.
    Nothing,
    /// The call itself fails, and who knows what it has lost.
    Broken(Error),
}

impl<T> Found<T> {
    fn of(code: c_int, what: &str, found: T) -> Self {
        match code {
            UTOFU_SUCCESS => Found::Success(found),
            UTOFU_ERR_NOT_FOUND => Found::Nothing,
            code if is_of_descriptor(code) => Found::Failure(found, code),
            code => Found::Broken(failed(code, what)),
        }
    }
}

impl Vcq {
    /// On a TNI. It may share its CQ: one of its own is for programs that ask for it. The `incarnation` gives it another ID than those that were before it
    /// there had: what is on its way to them must not find memory of this one. Errors: [`Error::Exhausted`]: there is none left; [`Error::Os`].
    pub fn new(library: &'static Library, tni: utofu_tni_id_t, incarnation: u32) -> Result<Self> {
        let calls = &library.functions;
        let mut handle = 0;
        let mut code = UTOFU_ERR_USED;
        for component in components(library, tni, incarnation)? {
            let create = calls.utofu_create_vcq_with_cmp_id;
            // SAFETY:
            // - the place for the handle is there.
            code = unsafe { create(tni, component, UTOFU_VCQ_FLAG_THREAD_SAFE, &raw mut handle) };
            if code == UTOFU_SUCCESS {
                break;
            }
        }
        if code != UTOFU_SUCCESS {
            let create = calls.utofu_create_vcq;
            // SAFETY:
            // - the place for the handle is there.
            code = unsafe { create(tni, UTOFU_VCQ_FLAG_THREAD_SAFE, &raw mut handle) };
        }
        match code {
            UTOFU_SUCCESS => {}
            UTOFU_ERR_FULL | UTOFU_ERR_NOT_AVAILABLE => {
                return Err(Error::Exhausted("VCQs".into()));
            }
            code => return Err(failed(code, "utofu_create_vcq")),
        }
        let mut vcq = Vcq {
            library,
            handle,
            id: 0,
            tni,
            waits: AtomicBool::new(false),
        };
        // SAFETY:
        // - a VCQ of this process, and a place for the ID.
        match unsafe { (calls.utofu_query_vcq_id)(handle, &raw mut vcq.id) } {
            UTOFU_SUCCESS => Ok(vcq),
            code => Err(failed(code, "utofu_query_vcq_id")),
        }
    }

    /// Registers memory; with a tag peers know where it is without being told. Gives its STADD. Errors: [`Error::Exhausted`]; [`Error::Os`].
    ///
    /// # Safety
    /// `len` bytes at `base` are valid until [`deregister`](Vcq::deregister), and may be written unless `read_only`.
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
        // - the caller's word; a place for the STADD.
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

    /// It is registered no more.
    pub fn deregister(&self, stadd: u64) {
        // SAFETY:
        // - a handle of this process; the library refuses what is no STADD of it.
        let code = unsafe { (self.library.functions.utofu_dereg_mem)(self.handle, stadd, 0) };
        if code != UTOFU_SUCCESS {
            tracing::debug!("tofu: utofu_dereg_mem: {}", name(code));
        }
    }

    /// The STADD of the memory that a peer has registered with this tag. Errors: [`Error::Os`].
    pub fn tagged(&self, peer: u64, tag: u32) -> Result<u64> {
        let mut stadd = 0;
        let query = self.library.functions.utofu_query_stadd;
        // SAFETY:
        // - a place for the STADD.
        match unsafe { query(peer, tag, &raw mut stadd) } {
            UTOFU_SUCCESS => Ok(stadd),
            code => Err(failed(code, "utofu_query_stadd")),
        }
    }

    /// The ID of a peer's VCQ with the path to it that the machine chooses: else all that goes to a node takes one way. Errors: [`Error::Os`].
    pub fn route(&self, peer: u64) -> Result<u64> {
        let mut route = peer;
        let set = self.library.functions.utofu_set_vcq_id_path;
        // SAFETY:
        // - an ID and its place; no coordinates (guide §3.3.2.3) are allowed.
        match unsafe { set(&raw mut route, null_mut()) } {
            UTOFU_SUCCESS => Ok(route),
            code => Err(failed(code, "utofu_set_vcq_id_path")),
        }
    }

    /// Where a VCQ is, for people.
    #[cold]
    pub fn place(&self, vcq: u64) -> String {
        let mut coords = [0; 6];
        let (mut tni, mut cq, mut extra) = (0, 0, 0);
        let query = self.library.functions.utofu_query_vcq_info;
        // SAFETY:
        // - places for all of them.
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
    /// The bytes stay as they are until they have been read.
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
        // - the caller's word; what is no STADD is refused.
        let code = unsafe { put(self.handle, peer, from, to, len, edata, flags, cbdata) };
        self.posted(flags, code, "utofu_put")
    }

    /// Writes bytes that are taken in the call, 32 at most. Errors: as [`put`](Vcq::put).
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
            // - the caller's word.
            let code = unsafe { put(self.handle, peer, bytes, to, len, edata, flags, cbdata) };
            return self.posted(flags, code, "utofu_put_piggyback");
        }
        let mut word = [0; size_of::<u64>()];
        // SAFETY:
        // - the caller's word; they fit, as just looked.
        unsafe { word.as_mut_ptr().copy_from_nonoverlapping(bytes, len) };
        let (word, put) = (u64::from_ne_bytes(word), calls.utofu_put_piggyback8);
        // SAFETY:
        // - the caller's word.
        let code = unsafe { put(self.handle, peer, word, to, len, edata, flags, cbdata) };
        self.posted(flags, code, "utofu_put_piggyback8")
    }

    /// Reads `len` bytes into registered memory. Errors: as [`put`](Vcq::put).
    ///
    /// # Safety
    /// The bytes are valid for writes, and nobody else's, until the end.
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
        // - the caller's word.
        let code = unsafe { get(self.handle, peer, into, from, len, edata, flags, cbdata) };
        self.posted(flags, code, "utofu_get")
    }

    /// Changes an element of 4 or 8 bytes. Errors: as [`put`](Vcq::put).
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
        // - plain numbers; what is no STADD is refused.
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

    /// What became of a descriptor. Errors: [`Error::NotNow`]: the TOQ is full; [`Error::Os`].
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

    /// Flags of what may wait for the next descriptor. One at a time: the TOQ must not be full of those that wait.
    #[inline]
    pub fn waiting(&self) -> c_ulong {
        match self.waits.load(Ordering::Relaxed) {
            true => 0,
            false => UTOFU_ONESIDED_FLAG_DELAY_START,
        }
    }

    /// Starts what [waits](Vcq::waiting), and nothing else. False: the TOQ is full; polls make room.
    #[cold]
    pub fn start(&self) -> bool {
        if !self.waits.load(Ordering::Relaxed) {
            return true;
        }
        // SAFETY:
        // - a handle of this process.
        let code = unsafe { (self.library.functions.utofu_nop)(self.handle, 0, null_mut()) };
        let started = self.posted(0, code, "utofu_nop");
        if let Err(why) = &started {
            tracing::debug!("tofu: {why}");
        }
        started != Err(Error::NotNow)
    }

    /// What the TCQ tells next: the data of a descriptor that was posted with [`UTOFU_ONESIDED_FLAG_TCQ_NOTICE`], or has failed.
    #[inline]
    pub fn poll_tcq(&self) -> Found<usize> {
        let mut cbdata = null_mut();
        let poll = self.library.functions.utofu_poll_tcq;
        // SAFETY:
        // - a handle of this process, and a place for the data.
        let code = unsafe { poll(self.handle, 0, &raw mut cbdata) };
        Found::of(code, "utofu_poll_tcq", cbdata.addr())
    }

    /// What the MRQ tells next.
    #[inline]
    pub fn poll_mrq(&self) -> Found<utofu_mrq_notice> {
        let mut notice = utofu_mrq_notice::default();
        let poll = self.library.functions.utofu_poll_mrq;
        // SAFETY:
        // - a handle of this process, and a place for the notice.
        let code = unsafe { poll(self.handle, 0, &raw mut notice) };
        Found::of(code, "utofu_poll_mrq", notice)
    }
}

/// A change of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Armw {
    /// Of 4 bytes, by an operation with a value.
    Change4(utofu_armw_op, u32),
    /// Of 8.
    Change8(utofu_armw_op, u64),
    /// Of 4 bytes from an old value to a new one.
    Swap4(u32, u32),
    /// Of 8.
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

impl Drop for Vcq {
    fn drop(&mut self) {
        // SAFETY:
        // - made by `new`, and used no more.
        let code = unsafe { (self.library.functions.utofu_free_vcq)(self.handle) };
        if code != UTOFU_SUCCESS {
            tracing::debug!("tofu: utofu_free_vcq: {}", name(code));
        }
    }
}

/// Six coordinates, as the machine's tools write them.
fn join(coords: &[u8; 6]) -> String {
    coords.map(|one| one.to_string()).join(",")
}

/// The TNIs that this process can use. Errors: [`Error::Unreachable`].
pub fn tnis(library: &'static Library) -> Result<Vec<utofu_tni_id_t>> {
    let (mut ids, mut count) = (null_mut(), 0);
    let calls = &library.functions;
    // The first call of this library, at which it reads its environment.
    // SAFETY:
    // - places for the array and its length.
    let code =
        library.begin(|| unsafe { (calls.utofu_get_onesided_tnis)(&raw mut ids, &raw mut count) });
    if code != UTOFU_SUCCESS || ids.is_null() {
        return Err(Error::Unreachable(format!(
            "utofu_get_onesided_tnis: {}: this is no node with a Tofu interconnect, or the job may not use it",
            name(code)
        )));
    }
    // SAFETY:
    // - so many are there, by the word of the library.
    let found = unsafe { std::slice::from_raw_parts(ids, count) }.to_vec();
    // SAFETY:
    // - made by malloc for the caller (guide §3.2.1.1).
    unsafe { libc::free(ids.cast()) };
    match found.is_empty() {
        true => Err(Error::Unreachable("no TNI is left for this process".into())),
        false => Ok(found),
    }
}

/// The components whose IDs a process tries that others have been before: not the one that the process before it has tried first. Nobody was before the
/// first one, for which the library chooses. The lowest are MPI's, and others'.
fn components(
    library: &'static Library,
    tni: utofu_tni_id_t,
    incarnation: u32,
) -> Result<Vec<utofu_cmp_id_t>> {
    if incarnation == 0 {
        return Ok(Vec::new());
    }
    let most = caps(library, tni)?.num_cmp_ids.min(u32::from(u16::MAX));
    let upper = most / 2;
    let shifted = |nth: u32| most - 1 - (incarnation.wrapping_add(nth)) % upper;
    // Another turn would come to that of the process before.
    let tried = 0..upper.saturating_sub(1);
    Ok(tried.map(|nth| shifted(nth) as utofu_cmp_id_t).collect())
}

/// What a TNI can do. Errors: [`Error::Unreachable`].
pub fn caps(library: &'static Library, tni: utofu_tni_id_t) -> Result<utofu_onesided_caps> {
    let mut caps = null_mut();
    // SAFETY:
    // - a place for the pointer, which leads to memory of the library's.
    let code = unsafe { (library.functions.utofu_query_onesided_caps)(tni, &raw mut caps) };
    match code == UTOFU_SUCCESS && !caps.is_null() {
        // SAFETY:
        // - there, by the word of the library.
        true => Ok(unsafe { *caps }),
        false => Err(Error::Unreachable(format!(
            "utofu_query_onesided_caps: {}",
            name(code)
        ))),
    }
}
