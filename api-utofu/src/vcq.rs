//! VCQs (guide §2.2.1, §3.3): their handles and memory registrations.

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use unipgas_core::calls::{self, Call};
use unipgas_core::port::{PORTS, Port, Queues, RemotePort, ShortKey};
use unipgas_core::{Error, Rights};
use unipgas_utofu_sys::{
    UTOFU_VCQ_FLAG_EXCLUSIVE, UTOFU_VCQ_FLAG_SESSION_MODE, UTOFU_VCQ_FLAG_THREAD_SAFE,
};

use crate::caps::{RESERVED_STAGS, STAG_ALIGNMENT};
use crate::ids::VcqId;
use crate::locked::{LockRequest, Locked};
use crate::process::{UtofuProcess, is_child};
use crate::recent::RecentPorts;
use crate::status::{Result, ReturnCode, from_engine};

/// `UTOFU_VCQ_FLAG_*` (§3.3.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VcqFlags(u64);

impl VcqFlags {
    /// Several threads may use the VCQ at the same time.
    pub const THREAD_SAFE: Self = VcqFlags(UTOFU_VCQ_FLAG_THREAD_SAFE);
    /// No other VCQ shares its CQ.
    pub const EXCLUSIVE: Self = VcqFlags(UTOFU_VCQ_FLAG_EXCLUSIVE);
    /// Posted commands wait for puts that arrive at the VCQ (§2.2.8).
    pub const SESSION_MODE: Self = VcqFlags(UTOFU_VCQ_FLAG_SESSION_MODE);

    /// None.
    pub const fn empty() -> Self {
        VcqFlags(0)
    }

    /// Errors: [`ReturnCode::InvalidFlags`].
    pub fn from_bits(bits: u64) -> Result<Self> {
        let all = Self::THREAD_SAFE | Self::EXCLUSIVE | Self::SESSION_MODE;
        if bits & !all.0 == 0 {
            Ok(VcqFlags(bits))
        } else {
            Err(ReturnCode::InvalidFlags)
        }
    }

    /// Whether all of `others` are set.
    pub fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Whether one of `others` is set.
    pub fn intersects(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }
}

impl std::ops::BitOr for VcqFlags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        VcqFlags(self.0 | other.0)
    }
}

/// A VCQ of this process.
pub struct Vcq {
    handle: usize,
    id: VcqId,
    process: &'static UtofuProcess,
    port: Arc<Port>,
    /// Locked memory, with `UTOFU_SWAP_PROTECT`.
    locked: Option<Locked>,
    /// Cache of remote VCQs.
    known: RecentPorts,
}

static VCQS: [AtomicPtr<Vcq>; PORTS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; PORTS];

/// A VCQ in a call of this thread. A thread has at most one. The VCQ is not freed before the call ends.
pub struct InCall {
    vcq: &'static Vcq,
    _call: Call,
}

impl InCall {
    /// The VCQ beyond this call. For the only thread that may free it.
    pub(crate) fn outside(&self) -> &'static Vcq {
        self.vcq
    }

    /// Deregisters memory (§3.6.1.4). Waits for calls of this process that may be using the memory, so that the program can unmap it. Errors:
    /// [`ReturnCode::InvalidStadd`].
    pub fn dereg_mem(self, stadd: u64) -> Result<()> {
        self.release(stadd)?;
        drop(self);
        // In a signal handler that has interrupted a call, the wait would never end.
        if !Call::is_under_way() {
            calls::wait_for_others(|| true);
        }
        Ok(())
    }
}

impl std::ops::Deref for InCall {
    type Target = Vcq;
    #[inline(always)]
    fn deref(&self) -> &Vcq {
        self.vcq
    }
}

/// The VCQ behind a handle. Errors: [`ReturnCode::InvalidVcqHdl`]; [`ReturnCode::NotAvailable`] in the child of a fork.
#[inline(always)]
pub fn vcq(handle: usize) -> Result<InCall> {
    let call = Call::begin(|| {});
    if let Some(place) = VCQS.get(handle & 0xffff) {
        let vcq = place.load(Ordering::Acquire);
        // SAFETY:
        // - null, or made by Box::into_raw in `enter`. `remove` waits for the end of this call before it frees the VCQ.
        if let Some(vcq) = unsafe { vcq.as_ref() }
            && vcq.handle == handle
        {
            return Ok(InCall { vcq, _call: call });
        }
    }
    Err(no_vcq())
}

#[cold]
fn no_vcq() -> ReturnCode {
    if is_child() {
        ReturnCode::NotAvailable
    } else {
        ReturnCode::InvalidVcqHdl
    }
}

/// In the child of a fork: makes all handles invalid.
pub(crate) fn disinherit() {
    for vcq in &VCQS {
        vcq.store(std::ptr::null_mut(), Ordering::Relaxed);
    }
}

/// The existing VCQs with these ids. `_vcq` keeps them valid: its call is in progress.
pub(crate) fn vcqs_of(
    _vcq: &InCall,
    ids: impl Iterator<Item = VcqId>,
) -> impl Iterator<Item = &Vcq> {
    ids.filter_map(|id| {
        // SAFETY:
        // - null, or a VCQ that is not freed before the call of `_vcq` ends.
        unsafe {
            VCQS[usize::from(id.port())]
                .load(Ordering::Acquire)
                .as_ref()
        }
    })
}

impl Vcq {
    pub(crate) fn new(
        process: &'static UtofuProcess,
        id: VcqId,
        port: Arc<Port>,
        swap_protect: bool,
    ) -> Self {
        // The number makes old handles invalid after the port's place is used again.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed).wrapping_add(1) as usize;
        Vcq {
            handle: number << 16 | usize::from(id.port()),
            id,
            process,
            port,
            locked: swap_protect.then(Locked::default),
            known: RecentPorts::default(),
        }
    }

    /// Makes its handle valid.
    pub(crate) fn enter(self) {
        let index = usize::from(self.id.port());
        VCQS[index].store(Box::into_raw(Box::new(self)), Ordering::Release);
    }

    /// Makes its handle invalid, waits for calls of other threads, and frees it. Errors: [`ReturnCode::InvalidVcqHdl`].
    pub(crate) fn remove(id: VcqId) -> Result<()> {
        let vcq = VCQS[usize::from(id.port())].swap(std::ptr::null_mut(), Ordering::AcqRel);
        if vcq.is_null() {
            return Err(ReturnCode::InvalidVcqHdl);
        }
        if calls::wait_for_others(|| true) {
            // SAFETY:
            // - made by Box::into_raw in `enter`. The swap gave it to this thread alone.
            // - calls that had found it before the swap have ended.
            let vcq = unsafe { Box::from_raw(vcq) };
            vcq.port.close();
            // A call with another VCQ may still use memory that was registered with this one.
            calls::wait_for_others(|| true);
        } else {
            // SAFETY:
            // - as above. The VCQ is never freed, because calls may still use it.
            unsafe { (*vcq).port.clone() }.leave_behind();
        }
        Ok(())
    }

    /// The handle.
    #[inline(always)]
    pub fn handle(&self) -> usize {
        self.handle
    }

    /// The id (§3.3.2.1).
    #[inline(always)]
    pub fn id(&self) -> VcqId {
        self.id
    }

    /// The port, which executes the commands.
    #[inline(always)]
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// The place of a VCQ's process. Errors: [`ReturnCode::InvalidVcqId`].
    pub(crate) fn place_of(&self, remote: VcqId) -> Result<u16> {
        self.process
            .place_of(remote)
            .ok_or(ReturnCode::InvalidVcqId)
    }

    /// The cached port of a remote VCQ, and its id in notices.
    ///
    /// # Safety
    /// As [`RecentPorts::get`].
    #[inline(always)]
    pub(crate) unsafe fn port_fast(&self, bits: u64) -> Option<(&RemotePort, u64)> {
        // SAFETY:
        // - contract of this call: see `RecentPorts::get`.
        unsafe { self.known.get(bits) }
    }

    /// Caches the port of a remote VCQ, if it exists.
    ///
    /// # Safety
    /// `queues` are the queues of this VCQ's port. Otherwise as [`RecentPorts::keep`].
    #[cold]
    pub(crate) unsafe fn remember(&self, queues: &Queues, bits: u64) {
        let found = VcqId::from_bits(bits).and_then(|id| {
            let place = self.process.place_of(id)?;
            Some((id, self.port.share(queues, place, id.port())?))
        });
        if let Some((id, port)) = found {
            // SAFETY:
            // - contract of this call: see `RecentPorts::keep`.
            unsafe { self.known.keep(bits, id.plain(), port) };
        }
    }

    /// Registers memory (§3.6.1.1). Errors: [`ReturnCode::InvalidAddress`], [`ReturnCode::InvalidSize`], [`ReturnCode::Full`],
    /// [`ReturnCode::OutOfResource`].
    ///
    /// # Safety
    /// `len` bytes at `addr` stay valid until they are deregistered as often as they were registered, or the VCQ is freed.
    pub unsafe fn reg_mem(&self, addr: *mut u8, len: usize, read_only: bool) -> Result<u64> {
        check_range(addr, len)?;
        let wish = self.locked.as_ref().map(|_| LockRequest::new(addr, len));
        // SAFETY:
        // - contract of this call: the memory is valid until its deregistration.
        let key = unsafe { self.port.register(addr, len, rights(read_only)) };
        self.registered(key, wish)
    }

    /// Registers memory under a STag that the program chooses (§3.6.1.2). Errors: [`ReturnCode::InvalidAddress`] and
    /// [`ReturnCode::InvalidSize`], also if the address or size is not a multiple of 256; [`ReturnCode::InvalidStag`], [`ReturnCode::Used`], [`ReturnCode::OutOfResource`].
    ///
    /// # Safety
    /// As [`Vcq::reg_mem`].
    pub unsafe fn reg_mem_with_stag(
        &self,
        addr: *mut u8,
        len: usize,
        stag: u32,
        read_only: bool,
    ) -> Result<u64> {
        check_range(addr, len)?;
        if !(addr as usize).is_multiple_of(STAG_ALIGNMENT) {
            return Err(ReturnCode::InvalidAddress);
        }
        if !len.is_multiple_of(STAG_ALIGNMENT) {
            return Err(ReturnCode::InvalidSize);
        }
        if stag >= RESERVED_STAGS {
            return Err(ReturnCode::InvalidStag);
        }
        let rights = rights(read_only);
        let wish = self.locked.as_ref().map(|_| LockRequest::new(addr, len));
        // SAFETY:
        // - contract of this call: the memory is valid until its deregistration.
        let key = unsafe { self.port.register_reserved(addr, len, stag, rights) };
        self.registered(key, wish)
    }

    fn registered(
        &self,
        key: unipgas_core::Result<ShortKey>,
        wish: Option<LockRequest>,
    ) -> Result<u64> {
        let key = key.map_err(|error| match error {
            // The range itself is valid, so its pages are not mapped, or not with these rights.
            Error::InvalidArgument(_) => ReturnCode::InvalidAddress,
            // Most often file descriptors, which the engine needs to read the program's mappings.
            Error::Os(_) => ReturnCode::OutOfResource,
            error => from_engine(error),
        })?;
        if let (Some(locked), Some(wish)) = (&self.locked, wish) {
            locked.add(key.0, wish);
        }
        Ok(key.0)
    }

    fn release(&self, stadd: u64) -> Result<()> {
        self.port.release(ShortKey(stadd)).map_err(from_engine)?;
        if let Some(locked) = &self.locked {
            locked.remove(stadd);
        }
        Ok(())
    }
}

fn rights(read_only: bool) -> Rights {
    if read_only {
        Rights::READ
    } else {
        Rights::FULL
    }
}

/// Maximum length of memory under one STADD, in bytes.
const MAX_LEN: usize = 1 << 40;

fn check_range(addr: *mut u8, len: usize) -> Result<()> {
    if len == 0 {
        return Err(ReturnCode::InvalidSize);
    }
    if addr.is_null() {
        return Err(ReturnCode::InvalidAddress);
    }
    // A STADD has 40 bits for an offset.
    if len > MAX_LEN || (addr as usize).checked_add(len).is_none() {
        return Err(ReturnCode::InvalidSize);
    }
    Ok(())
}

/// The STADD of memory registered under a STag with this VCQ, local or remote (§3.6.1.3). Errors: [`ReturnCode::InvalidStag`].
pub fn query_stadd(vcq: VcqId, stag: u32) -> Result<u64> {
    if stag < RESERVED_STAGS {
        Ok(ShortKey::reserved(vcq.port(), stag).0)
    } else {
        Err(ReturnCode::InvalidStag)
    }
}
