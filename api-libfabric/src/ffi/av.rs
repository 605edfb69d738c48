//! Address vectors.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Arc;

use parking_lot::Mutex;

use super::domain::DomainObject;
use super::event::{EventObject, EventQueue};
use super::naming::{self, Format, Series};
use super::{Object, check_free, code, fid_of, fid_ops, given, list, no_control, number, put};
use crate::av::AddressVector;
use crate::name::{Called, LEN};
use crate::status::{Errno, Result};
use crate::sys::*;

pub(super) struct AvPart {
    pub av: Arc<AddressVector>,
    format: Format,
    pub is_table: bool,
    /// An event queue reports insertions (FI_EVENT).
    asynchronous: bool,
    events: Mutex<Option<Arc<EventQueue>>>,
}

pub(super) type AvObject = Object<fid_av, AvPart>;

static FID: fi_ops = fid_ops(close, bind, no_control);

static OPS: fi_ops_av = fi_ops_av {
    size: size_of::<fi_ops_av>(),
    insert,
    insertsvc,
    insertsym,
    remove,
    lookup,
    straddr,
    av_set: super::av_set::open_set,
};

pub(super) unsafe extern "C" fn open_av(
    domain: *mut fid_domain,
    attr: *mut fi_av_attr,
    av: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    code(|| {
        given(av)?;
        // SAFETY:
        // - libfabric's contract: a domain of this provider, and attributes or null.
        let (domain, attr) = unsafe { (DomainObject::at(domain)?, attr.as_mut()) };
        let (mut asynchronous, mut is_table) = (false, true);
        if let Some(attr) = attr {
            if !(FI_AV_UNSPEC..=FI_AV_TABLE).contains(&attr.r#type) || attr.rx_ctx_bits != 0 {
                return Err(Errno::INVAL);
            }
            if !attr.name.is_null() {
                return Err(Errno::NOSYS);
            }
            if attr.flags & !(FI_COMPLETION | FI_SYMMETRIC) != 0 {
                return Err(Errno::BADFLAGS);
            }
            asynchronous = attr.flags & FI_COMPLETION != 0;
            is_table = attr.r#type != FI_AV_MAP;
            if attr.r#type == FI_AV_UNSPEC {
                attr.r#type = FI_AV_TABLE;
            }
        }
        let raw = fid_av {
            fid: fid_of(FI_CLASS_AV, context, &FID),
            ops: &OPS,
        };
        let part = AvPart {
            av: Arc::new(AddressVector::new(&domain.inner.domain)),
            format: domain.inner.format,
            is_table,
            asynchronous,
            events: Mutex::new(None),
        };
        // SAFETY:
        // - libfabric's contract: the place is not null, so it is valid for a write.
        unsafe { put(av, Object::create(raw, part)) }
    })
}

entries! { code -> c_int;
    fn close(fid: *mut fid) = AvObject::close(fid, |part| check_free(&part.av));
    fn lookup(av: *mut fid_av, address: u64, name: *mut c_void, len: *mut usize) = {
        let part = &AvObject::at(av)?.inner;
        copy_out(&part.format.write(&part.av.called(address)?), name, len).map(drop)
    };
    fn remove(av: *mut fid_av, addresses: *mut u64, count: usize, flags: u64) = {
        if flags != 0 {
            return Err(Errno::BADFLAGS);
        }
        let av = &AvObject::at(av)?.inner.av;
        let addresses = list(addresses.cast_const(), count, usize::MAX / 8)?;
        let mut result = Ok(());
        for address in addresses {
            result = result.and(av.remove(*address));
        }
        result
    };
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    code(|| {
        if flags != 0 {
            return Err(Errno::BADFLAGS);
        }
        // SAFETY:
        // - only address vectors have this table. libfabric's contract: `other` is an object of this provider, or null.
        unsafe {
            let object = AvObject::at(fid)?;
            if other.as_ref().ok_or(Errno::INVAL)?.fclass != FI_CLASS_EQ {
                return Err(Errno::INVAL);
            }
            let events = EventObject::at(other)?.inner.clone();
            *object.inner.events.lock() = Some(events);
        }
        Ok(())
    })
}

unsafe extern "C" fn insert(
    av: *mut fid_av,
    names: *const c_void,
    count: usize,
    addresses: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY:
        // - only address vectors have this table.
        let part = unsafe { &AvObject::at(av)?.inner };
        if count > isize::MAX as usize / LEN {
            return Err(Errno::INVAL);
        }
        if count > 0 {
            given(names)?;
        }
        let mut at = names;
        let each = || {
            // SAFETY:
            // - libfabric's contract: `count` names, one behind the other.
            let (called, len) = unsafe { part.format.read(at) };
            at = at.wrapping_byte_add(len);
            called
        };
        // SAFETY:
        // - libfabric's contract: `addresses` is null or has `count` elements. With FI_SYNC_ERR, `context` too.
        unsafe { part.insert(av, count, each, addresses, (flags, context)) }
    }) as c_int
}

unsafe extern "C" fn insertsvc(
    av: *mut fid_av,
    node: *const c_char,
    service: *const c_char,
    address: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY:
        // - only address vectors have this table. libfabric's contract: C strings or null.
        let (part, called) =
            unsafe { (&AvObject::at(av)?.inner, naming::resolve(node, service, 0)) };
        let called = || match called {
            Ok(called) => called.ok_or(Errno::INVAL),
            Err(_) => Err(Errno::ADDRNOTAVAIL),
        };
        // SAFETY:
        // - as for `insert`.
        unsafe { part.insert(av, 1, called, address, (flags, context)) }
    }) as c_int
}

unsafe extern "C" fn insertsym(
    av: *mut fid_av,
    node: *const c_char,
    nodes: usize,
    service: *const c_char,
    services: usize,
    addresses: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY:
        // - only address vectors have this table. libfabric's contract: C strings or null.
        let (part, node, service) = unsafe {
            (
                &AvObject::at(av)?.inner,
                Series::of(node)?,
                Series::of(service)?,
            )
        };
        let count = nodes.checked_mul(services).ok_or(Errno::INVAL)?;
        if count > c_int::MAX as usize || !node.has(nodes) || !service.has(services) {
            return Err(Errno::INVAL);
        }
        let mut nth = 0;
        let each = || {
            let (node, service) = (node.nth(nth / services), service.nth(nth % services));
            nth += 1;
            // SAFETY:
            // - C strings or null.
            match unsafe { naming::resolve(pointer(&node), pointer(&service), 0) } {
                Ok(called) => called.ok_or(Errno::INVAL),
                Err(_) => Err(Errno::ADDRNOTAVAIL),
            }
        };
        // SAFETY:
        // - as for `insert`.
        unsafe { part.insert(av, count, each, addresses, (flags, context)) }
    }) as c_int
}

fn pointer(text: &Option<CString>) -> *const c_char {
    text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr())
}

impl AvPart {
    /// Inserts `count` endpoints from `each`. Returns the number of valid ones, or 0 if an event reports it.
    ///
    /// # Safety
    /// `addresses` is null or valid for `count` writes. With FI_SYNC_ERR, `context` is null or valid for `count` writes of an int.
    unsafe fn insert(
        &self,
        av: *mut fid_av,
        count: usize,
        mut each: impl FnMut() -> Result<Called>,
        addresses: *mut u64,
        (flags, context): (u64, *mut c_void),
    ) -> Result<usize> {
        if flags & !(FI_MORE | FI_SYNC_ERR) != 0 {
            return Err(Errno::BADFLAGS);
        }
        let events = self.events.lock();
        if self.asynchronous && events.is_none() {
            return Err(Errno::NOEQ);
        }
        let mut good = 0;
        for nth in 0..count {
            let called = each();
            good += usize::from(called.is_ok());
            let errno = called.as_ref().err().map_or(0, |errno| errno.0);
            if let (Some(events), true, 1..) = (&*events, self.asynchronous, errno) {
                events.fail(av.cast(), context, nth as u64, errno);
            }
            let address = called.map_or(FI_ADDR_NOTAVAIL, |called| self.av.insert(called));
            // SAFETY:
            // - contract of this call: both are null or valid for `count` writes.
            unsafe {
                if !addresses.is_null() {
                    addresses.add(nth).write(address);
                }
                if flags & FI_SYNC_ERR != 0 && !context.is_null() {
                    context.cast::<c_int>().add(nth).write(errno);
                }
            }
        }
        if let (Some(events), true) = (&*events, self.asynchronous) {
            events.tell(FI_AV_COMPLETE, av.cast(), context, good as u64);
            return Ok(0);
        }
        Ok(good)
    }
}

/// Copies the bytes that fit, and sets `len` to the full length. Returns whether all of them fit.
///
/// # Safety
/// `len` is null or points to the length of the buffer.
pub(super) unsafe fn copy_out(bytes: &[u8], buffer: *mut c_void, len: *mut usize) -> Result<bool> {
    // SAFETY:
    // - contract of this call: the buffer has `len` bytes.
    unsafe {
        let len = len.as_mut().ok_or(Errno::INVAL)?;
        let room = std::mem::replace(len, bytes.len());
        let fits = room.min(bytes.len());
        if fits > 0 {
            given(buffer)?;
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), fits);
        }
        Ok(room >= bytes.len())
    }
}

unsafe extern "C" fn straddr(
    av: *mut fid_av,
    name: *const c_void,
    buffer: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    // SAFETY:
    // - only address vectors have this table. libfabric's contract: an endpoint's name, and a buffer of `len` bytes.
    let done = number(|| unsafe {
        let (called, _) = AvObject::at(av)?.inner.format.read(name);
        let text = called?.to_string();
        let room = len.as_ref().copied().ok_or(Errno::INVAL)?;
        copy_out(format!("{text}\0").as_bytes(), buffer.cast(), len)?;
        if room > 0 {
            buffer.add(room.min(text.len() + 1) - 1).write(0);
        }
        Ok(0)
    });
    if done < 0 { std::ptr::null() } else { buffer }
}
