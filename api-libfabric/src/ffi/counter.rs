//! Counters.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::domain::DomainObject;
use super::{Object, code, control_waits, deadline, fid_of, fid_ops, given, no_bind, put};
use crate::completion::Wait;
use crate::counter::Counter;
use crate::status::{Errno, Result};
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
            set.add(&counter_made);
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

entries! { code -> c_int;
    fn control(fid: *mut fid, command: c_int, arg: *mut c_void) = {
        let part = &CounterObject::at(fid)?.inner;
        control_waits((command, arg), part.counter.descriptor(), part.wait)
    };
    fn close(fid: *mut fid) = CounterObject::close_apart(fid, |part| part.counter.domain(), |part| part.counter.close());
    fn add(counter: *mut fid_cntr, value: u64) = change(counter, |counter| counter.add(value));
    fn set(counter: *mut fid_cntr, value: u64) = change(counter, |counter| counter.set(value));
    fn adderr(counter: *mut fid_cntr, value: u64) = change(counter, |counter| counter.add_errors(value));
    fn seterr(counter: *mut fid_cntr, value: u64) = change(counter, |counter| counter.set_errors(value));
    fn wait(counter: *mut fid_cntr, threshold: u64, timeout: c_int)
        = CounterObject::at(counter)?.inner.counter.wait(threshold, deadline(timeout));
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
unsafe fn change(counter: *mut fid_cntr, what: impl FnOnce(&Counter)) -> Result<()> {
    // SAFETY:
    // - contract of this call: a counter of this provider, or null.
    what(&unsafe { CounterObject::at(counter) }?.inner.counter);
    Ok(())
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
