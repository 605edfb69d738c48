//! Protection domains, and the registration of memory in them.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use unipgas_verbs_sys::*;

use crate::context::nic_of;
use crate::counters::{self, Count};
use crate::memory::{Region, is_allowed, is_mapped};
use crate::names::fail;
use crate::{faults, kept_pages};

pub(crate) struct Pd {
    pub number: u32,
    /// Number of regions and queues of the domain. While it is not 0, the domain is not freed.
    pub users: AtomicU32,
}

/// Users hold a pointer to the first field.
#[repr(C)]
struct Object {
    ibv: ibv_pd,
    pd: Arc<Pd>,
}

/// # Safety
/// The domain is not freed.
pub unsafe fn of<'a>(domain: *mut ibv_pd) -> &'a Arc<Pd> {
    // SAFETY:
    // - it lies at the beginning of an `Object`.
    unsafe { &(*domain.cast::<Object>()).pd }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY:
    // - the caller gives an open context.
    let nic = unsafe { nic_of(context) };
    if !nic.is_usable() {
        return fail(libc::EIO);
    }
    let number = nic.handle();
    let users = AtomicU32::new(0);
    let ibv = ibv_pd {
        context,
        handle: number,
    };
    let pd = Arc::new(Pd { number, users });
    Box::into_raw(Box::new(Object { ibv, pd })).cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dealloc_pd(domain: *mut ibv_pd) -> c_int {
    // SAFETY:
    // - the caller gives a domain of an open context.
    let (users, nic) = unsafe { (of(domain).users.load(SeqCst), nic_of((*domain).context)) };
    match () {
        () if nic.is_parents() => 0,
        () if users > 0 => libc::EBUSY,
        () => {
            // SAFETY:
            // - `ibv_alloc_pd` made it, `users` is 0, and the caller does not use it again.
            drop(unsafe { Box::from_raw(domain.cast::<Object>()) });
            0
        }
    }
}

/// Whether the kernel would refuse to lock any memory for a device (RLIMIT_MEMLOCK).
fn may_lock_nothing() -> bool {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock);
    let locks = || {
        let held = rustix::thread::capabilities(None);
        held.is_ok_and(|held| {
            held.effective
                .contains(rustix::thread::CapabilitySet::IPC_LOCK)
        })
    };
    limit.current == Some(0) && !locks()
}

const KNOWN: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND
    | IBV_ACCESS_ZERO_BASED
    | IBV_ACCESS_ON_DEMAND
    | IBV_ACCESS_HUGETLB;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr(
    domain: *mut ibv_pd,
    addr: *mut c_void,
    len: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY:
    // - the caller gives a domain of an open context.
    let (context, pd) = unsafe { ((*domain).context, of(domain)) };
    // SAFETY:
    // - as above.
    let nic = unsafe { nic_of(context) };
    if !nic.is_usable() {
        return fail(libc::EIO);
    }
    // A device may ignore optional access flags.
    let access = access as u32 & !IBV_ACCESS_OPTIONAL_RANGE;
    let config = nic.device.config;
    let odp = access & IBV_ACCESS_ON_DEMAND != 0;
    let wraps = addr.addr().checked_add(len).is_none();
    if access & !KNOWN != 0 || !is_allowed(access) || wraps || len == 0 {
        return fail(libc::EINVAL);
    }
    if odp && !config.odp {
        return fail(libc::EOPNOTSUPP);
    }
    if faults::takes_registration() || nic.memory.len() >= config.max_mr as usize {
        return fail(libc::ENOMEM);
    }
    if !odp && !is_mapped(addr.cast(), len) {
        return fail(libc::EFAULT);
    }
    if !odp && may_lock_nothing() {
        return fail(libc::EPERM);
    }
    if !odp {
        kept_pages::register(addr.cast(), len);
    }
    let start = if access & IBV_ACCESS_ZERO_BASED != 0 {
        0
    } else {
        addr.addr() as u64
    };
    let (lkey, rkey) = nic.memory.register(Region {
        start,
        base: addr.cast(),
        len: len as u64,
        access,
        pd: pd.number,
        odp,
    });
    pd.users.fetch_add(1, SeqCst);
    counters::count(Count::Mr);
    Box::into_raw(Box::new(ibv_mr {
        context,
        pd: domain,
        addr,
        length: len,
        handle: lkey,
        lkey,
        rkey,
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dereg_mr(region: *mut ibv_mr) -> c_int {
    // SAFETY:
    // - the caller gives a region of an open context.
    let (context, domain, key) = unsafe { ((*region).context, (*region).pd, (*region).lkey) };
    // SAFETY:
    // - as above.
    let nic = unsafe { nic_of(context) };
    if nic.is_parents() {
        return 0;
    }
    let Some(was) = nic.memory.deregister(key) else {
        return libc::EINVAL;
    };
    if !was.odp {
        kept_pages::deregister(was.base, was.len as usize);
    }
    // SAFETY:
    // - a domain is not freed before its regions;
    // - `ibv_reg_mr` made the region, and the caller does not use it again.
    unsafe {
        of(domain).users.fetch_sub(1, SeqCst);
        drop(Box::from_raw(region));
    }
    0
}
