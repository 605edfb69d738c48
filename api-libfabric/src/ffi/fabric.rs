//! The fabric object.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::counter::CounterObject;
use super::domain::open_domain;
use super::event::{EventObject, open_event_queue};
use super::queue::QueueObject;
use super::{Object, check_free, code, fid_of, fid_ops, list, no, no_bind, no_control, put};
use crate::status::Errno;
use crate::sys::*;

/// State of a fabric. Its domains, event queues and wait sets hold references to it.
pub(super) struct Fabric {
    /// API version that the program requests.
    pub version: u32,
}

pub(super) type FabricObject = Object<fid_fabric, Arc<Fabric>>;

static FID: fi_ops = fid_ops(close, no_bind, no_control);

static OPS: fi_ops_fabric = fi_ops_fabric {
    size: size_of::<fi_ops_fabric>(),
    domain,
    passive_ep: no,
    eq_open: open_event_queue,
    wait_open: super::wait::open_wait,
    trywait,
    domain2,
};

/// The `fabric` function of the provider's table.
pub(super) unsafe extern "C" fn open_fabric(
    attr: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    code(|| {
        // SAFETY:
        // - libfabric's contract: null or valid.
        let attr = unsafe { attr.as_ref() }.ok_or(Errno::INVAL)?;
        let raw = fid_fabric {
            fid: fid_of(FI_CLASS_FABRIC, context, &FID),
            ops: &OPS,
            api_version: attr.api_version,
        };
        let kept = Fabric {
            version: attr.api_version,
        };
        super::given(fabric)?;
        // SAFETY:
        // - libfabric's contract: the place is not null, so it is valid for a write.
        unsafe { put(fabric, Object::create(raw, Arc::new(kept))) }
    })
}

entries! { code -> c_int;
    fn close(fid: *mut fid) = FabricObject::close(fid, check_free);
    fn domain(fabric: *mut fid_fabric, info: *mut fi_info, domain: *mut *mut fid_domain, context: *mut c_void)
        = open_domain(fabric, info, domain, context);
    fn domain2(
        fabric: *mut fid_fabric, info: *mut fi_info, domain: *mut *mut fid_domain, flags: u64, context: *mut c_void,
    ) = match flags {
        0 => open_domain(fabric, info, domain, context),
        _ => Err(Errno::BADFLAGS),
    };
}

unsafe extern "C" fn trywait(_fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int {
    code(|| {
        let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
        // SAFETY:
        // - libfabric's contract: `count` pointers.
        for fid in unsafe { list(fids.cast_const(), count, usize::MAX) }? {
            // SAFETY:
            // - libfabric's contract: an object of this provider, or null.
            let class = unsafe { fid.as_ref() }.ok_or(Errno::INVAL)?.fclass;
            // SAFETY:
            // - the class gives the type of the object.
            unsafe {
                match class {
                    FI_CLASS_CQ => QueueObject::at(*fid)?.inner.queue.arm()?,
                    FI_CLASS_CNTR => CounterObject::at(*fid)?.inner.counter.arm()?,
                    FI_CLASS_EQ => EventObject::at(*fid)?.inner.arm()?,
                    _ => return Err(Errno::NOSYS),
                }
            }
        }
        Ok(())
    })
}
