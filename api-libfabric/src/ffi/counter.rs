//! Counters.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::domain::DomainObject;
use super::{Object, code, deadline, fid_of, fid_ops, given, is_free, no_bind, put};
use crate::completion::Wait;
use crate::counter::Counter;
use crate::status::Errno;
use crate::sys::*;

pub(super) struct CounterPart {
    pub counter: Arc<Counter>,
    wait: c_int,
}

pub(super) type CounterObject = Object<fid_cntr, CounterPart>;

static FID: fi_ops = fid_ops(close, no_bind, control);

static OPS: fi_ops_cntr = fi_ops_cntr {
    size: size_of::<fi_ops_cntr>(),
    read,
    readerr,
    add,
    set,
    wait,
    adderr,
    seterr,
};

pub(super) unsafe extern "C" fn open_counter(
    domain: *mut fid_domain,
    attr: *mut fi_cntr_attr,
    counter: *mut *mut fid_cntr,
    context: *mut c_void,
) -> c_int {
    code(|| {
        given(counter)?;
        // SAFETY:
        // - libfabric's contract: a domain of this provider, and attributes or null.
        let (domain, attr) = unsafe { (DomainObject::at(domain)?, attr.as_ref()) };
        if attr.is_some_and(|attr| attr.events != 0 || attr.flags != 0) {
            return Err(Errno::INVAL);
        }
        let wait_obj = attr.map_or(FI_WAIT_UNSPEC, |attr| attr.wait_obj);
        let wait = match wait_obj {
            FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_YIELD => Wait::Call,
            FI_WAIT_SET => Wait::Set,
            FI_WAIT_FD => Wait::Descriptor,
            _ => return Err(Errno::NOSYS),
        };
        let set = match attr {
            Some(attr) if attr.wait_obj == FI_WAIT_SET => {
                // SAFETY:
                // - libfabric's contract: a wait set of this provider, or null.
                Some(unsafe { super::wait::set(attr.wait_set, &domain.inner.fabric) }?)
            }
            _ => None,
        };
        let counter_made = Counter::with_wait(&domain.inner.domain, wait)?;
        if let Some(set) = set {
            set.add_counter(&counter_made);
        }
        let raw = fid_cntr {
            fid: fid_of(FI_CLASS_CNTR, context, &FID),
            ops: &OPS,
        };
        let inner = CounterPart {
            counter: counter_made,
            wait: wait_obj,
        };
        // SAFETY:
        // - libfabric's contract: the place is not null, so it is valid for a write.
        unsafe { put(counter, Object::create(raw, inner)) }
    })
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    code(|| {
        // SAFETY:
        // - only counters have this table. libfabric's contract: the argument fits the command.
        unsafe {
            let part = &CounterObject::at(fid)?.inner;
            match command {
                FI_GETWAIT => {
                    let descriptor = part.counter.descriptor().ok_or(Errno::NODATA)?;
                    put(arg.cast::<c_int>(), descriptor)
                }
                FI_GETWAITOBJ => put(arg.cast::<c_int>(), part.wait),
                _ => Err(Errno::NOSYS),
            }
        }
    })
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    code(|| {
        // SAFETY:
        // - only counters have this table.
        let Some(object) = (unsafe { CounterObject::to_close(fid) })? else {
            return Ok(());
        };
        let counter = &object.inner.counter;
        if !counter.attached.is_empty() {
            return Err(Errno::BUSY);
        }
        let domain = counter.domain().clone();
        domain.watcher().apart(|| {
            if !is_free(counter) {
                return Err(Errno::BUSY);
            }
            counter.waiters.end(|| domain.engine().ring());
            // SAFETY:
            // - `is_free`: no other reference exists, and the caller gives the object up.
            unsafe { CounterObject::destroy(fid) };
            Ok(())
        })
    })
}

/// # Safety
/// `counter` is a counter of this provider, or null.
unsafe fn number(counter: *mut fid_cntr, what: impl FnOnce(&Counter) -> u64) -> u64 {
    let mut value = 0;
    let _ = code(|| {
        // SAFETY:
        // - contract of this call: a counter of this provider, or null.
        value = what(&unsafe { CounterObject::at(counter) }?.inner.counter);
        Ok(())
    });
    value
}

/// # Safety
/// `counter` is a counter of this provider, or null.
unsafe fn change(counter: *mut fid_cntr, what: impl FnOnce(&Counter)) -> c_int {
    code(|| {
        // SAFETY:
        // - contract of this call: a counter of this provider, or null.
        what(&unsafe { CounterObject::at(counter) }?.inner.counter);
        Ok(())
    })
}

unsafe extern "C" fn read(counter: *mut fid_cntr) -> u64 {
    // SAFETY:
    // - only counters have this table; likewise below.
    unsafe { number(counter, Counter::read) }
}

unsafe extern "C" fn readerr(counter: *mut fid_cntr) -> u64 {
    // SAFETY:
    // - as above.
    unsafe { number(counter, Counter::read_errors) }
}

unsafe extern "C" fn add(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY:
    // - as above.
    unsafe { change(counter, |counter| counter.add(value)) }
}

unsafe extern "C" fn set(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY:
    // - as above.
    unsafe { change(counter, |counter| counter.set(value)) }
}

unsafe extern "C" fn adderr(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY:
    // - as above.
    unsafe { change(counter, |counter| counter.add_errors(value)) }
}

unsafe extern "C" fn seterr(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY:
    // - as above.
    unsafe { change(counter, |counter| counter.set_errors(value)) }
}

unsafe extern "C" fn wait(counter: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int {
    code(|| {
        // SAFETY:
        // - as above.
        let counter = &unsafe { CounterObject::at(counter) }?.inner.counter;
        counter.wait(threshold, deadline(timeout))
    })
}
