//! Memory regions.

use std::ffi::{c_int, c_void};

use super::counter::CounterObject;
use super::domain::DomainObject;
use super::{Object, code, fid_of, fid_ops, given, list, put};
use crate::memory::MemoryRegion;
use crate::status::{Errno, Result};
use crate::sys::*;

type MemoryObject = Object<fid_mr, MemoryRegion>;

static FID: fi_ops = fid_ops(close, bind, control);

/// Arguments of a registration.
struct Wanted<'a> {
    parts: &'a [libc::iovec],
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    context: *mut c_void,
}

/// # Safety
/// The arguments are valid as in fi_mr_reg(3).
unsafe fn create(domain: *mut fid, wanted: Wanted<'_>, memory: *mut *mut fid_mr) -> Result<()> {
    given(memory)?;
    // SAFETY:
    // - contract of this call: an object of this provider, or null.
    let class = unsafe { domain.as_ref() }.ok_or(Errno::INVAL)?.fclass;
    let [part] = wanted.parts else {
        return Err(Errno::INVAL);
    };
    if class != FI_CLASS_DOMAIN || wanted.offset != 0 {
        return Err(Errno::INVAL);
    }
    if wanted.flags != 0 {
        return Err(Errno::BADFLAGS);
    }
    // SAFETY:
    // - a domain, as its class says. Contract of this call: the memory stays valid until the region is closed.
    let region = unsafe {
        let domain = &DomainObject::at(domain)?.inner.domain;
        let (base, len) = (part.iov_base.cast(), part.iov_len);
        MemoryRegion::register(domain, base, len, wanted.access, wanted.key)?
    };
    let raw = fid_mr {
        fid: fid_of(FI_CLASS_MR, wanted.context, &FID),
        mem_desc: region.descriptor() as *mut c_void,
        key: region.key(),
    };
    // SAFETY:
    // - libfabric's contract: the place is not null, so it is valid for a write.
    unsafe { put(memory, Object::create(raw, region)) }
}

entries! { code -> c_int;
    fn register(
        domain: *mut fid, base: *const c_void, len: usize, access: u64, offset: u64, key: u64, flags: u64,
        memory: *mut *mut fid_mr, context: *mut c_void,
    ) = {
        let parts = &[libc::iovec { iov_base: base.cast_mut(), iov_len: len }];
        create(domain, Wanted { parts, access, offset, key, flags, context }, memory)
    };
    fn register_vector(
        domain: *mut fid, parts: *const libc::iovec, count: usize, access: u64, offset: u64, key: u64, flags: u64,
        memory: *mut *mut fid_mr, context: *mut c_void,
    ) = {
        let parts = list(parts, count, 1)?;
        create(domain, Wanted { parts, access, offset, key, flags, context }, memory)
    };
    // Structures of programs before libfabric 1.17 may lack the last members, which are not read.
    fn register_by_attributes(domain: *mut fid, attr: *const fi_mr_attr, flags: u64, memory: *mut *mut fid_mr) = {
        let attr = attr.as_ref().ok_or(Errno::INVAL)?;
        let wanted = Wanted {
            parts: list(attr.mr_iov, attr.iov_count, 1)?,
            access: attr.access,
            offset: attr.offset,
            key: attr.requested_key,
            flags,
            context: attr.context,
        };
        create(domain, wanted, memory)
    };
    fn close(fid: *mut fid) = MemoryObject::close(fid, |_| Ok(()));
}

/// The functions of a domain that register memory.
pub(super) static OPS: fi_ops_mr = fi_ops_mr {
    size: size_of::<fi_ops_mr>(),
    reg: register,
    regv: register_vector,
    regattr: register_by_attributes,
};

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    code(|| {
        // SAFETY:
        // - only memory regions have this table. libfabric's contract: `other` is null or an object of this provider, as its class says.
        unsafe {
            match other.as_ref().ok_or(Errno::INVAL)?.fclass {
                // Each endpoint of the domain reaches all of its regions.
                FI_CLASS_EP if flags == 0 => Ok(()),
                FI_CLASS_EP => Err(Errno::BADFLAGS),
                FI_CLASS_CNTR => {
                    if flags & !(FI_REMOTE_READ | FI_REMOTE_WRITE) != 0 || flags == 0 {
                        return Err(Errno::BADFLAGS);
                    }
                    let (reads, writes) =
                        (flags & FI_REMOTE_READ != 0, flags & FI_REMOTE_WRITE != 0);
                    let counter = &CounterObject::at(other)?.inner.counter;
                    MemoryObject::at(fid)?
                        .inner
                        .bind_counter(counter, reads, writes)
                }
                _ => Err(Errno::NOSYS),
            }
        }
    })
}

unsafe extern "C" fn control(_fid: *mut fid, command: c_int, _arg: *mut c_void) -> c_int {
    code(|| match command {
        FI_ENABLE | FI_REFRESH => Ok(()),
        _ => Err(Errno::NOSYS),
    })
}
