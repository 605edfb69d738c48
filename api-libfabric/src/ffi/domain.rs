//! The domain object.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use unipgas_core::variables;

use super::fabric::{Fabric, FabricObject};
use super::naming::Format;
use super::{Object, check_free, code, fid_of, fid_ops, given, no, put};
use crate::atomics::{Family, valid};
use crate::domain::{Domain, DomainOptions};
use crate::messages::MOST_TAGGED_BYTES;
use crate::status::{Errno, Result};
use crate::sys::*;

pub(super) struct DomainPart {
    pub domain: Arc<Domain>,
    /// Format of endpoint names.
    pub format: Format,
    pub fabric: Arc<Fabric>,
}

pub(super) type DomainObject = Object<fid_domain, DomainPart>;

static FID: fi_ops = fid_ops(close, bind, control);

static OPS: fi_ops_domain = fi_ops_domain {
    size: size_of::<fi_ops_domain>(),
    av_open: super::av::open_av,
    cq_open: super::queue::open_queue,
    endpoint: super::endpoint::open_endpoint,
    scalable_ep: no,
    cntr_open: super::counter::open_counter,
    poll_open: super::poll::open_poll,
    stx_ctx: super::shared::open_transmits,
    srx_ctx: super::shared::open_receives,
    query_atomic,
    query_collective: super::collective::query,
    endpoint2: super::endpoint::open_endpoint2,
};

/// # Safety
/// The arguments are valid as in fi_domain(3).
pub(super) unsafe fn open_domain(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    domain: *mut *mut fid_domain,
    context: *mut c_void,
) -> Result<()> {
    given(domain)?;
    // SAFETY:
    // - contract of this call: a fabric of this provider, and an info from getinfo or null.
    let (fabric, attr, format) = unsafe {
        let info = info.as_ref().ok_or(Errno::INVAL)?;
        (
            FabricObject::at(fabric)?,
            info.domain_attr.as_ref().ok_or(Errno::INVAL)?,
            Format::of(info.addr_format).ok_or(Errno::INVAL)?,
        )
    };
    let basic = attr.mr_mode & FI_MR_BASIC != 0;
    let options = DomainOptions {
        virtual_addresses: basic || attr.mr_mode & FI_MR_VIRT_ADDR != 0,
        own_keys: basic || attr.mr_mode & FI_MR_PROV_KEY != 0,
        by_address: !basic && attr.mr_mode & FI_MR_ALLOCATED == 0,
        in_place: variables::switch("UNIPGAS_MR_ALLOCATED", false)?,
        automatic: attr.data_progress == FI_PROGRESS_AUTO,
    };
    let raw = fid_domain {
        fid: fid_of(FI_CLASS_DOMAIN, context, &FID),
        ops: &OPS,
        mr: &super::memory::OPS,
    };
    let part = DomainPart {
        domain: Domain::open(options)?,
        format,
        fabric: fabric.inner.clone(),
    };
    // SAFETY:
    // - libfabric's contract: the place is not null, so it is valid for a write.
    unsafe { put(domain, Object::create(raw, part)) }
}

entries! { code -> c_int;
    // The watcher is the domain's own, so the domain ends outside of `apart`.
    fn close(fid: *mut fid) = DomainObject::close(fid, |part| {
        let domain = &part.domain;
        domain.watcher().apart(|| check_free(domain))
    });
    fn control(fid: *mut fid, command: c_int, arg: *mut c_void)
        = super::trigger::control(&DomainObject::at(fid)?.inner.domain, command, arg);
}

unsafe extern "C" fn bind(_fid: *mut fid, other: *mut fid, _flags: u64) -> c_int {
    code(|| {
        // SAFETY:
        // - libfabric's contract: an object of this provider, or null.
        let class = unsafe { other.as_ref() }.ok_or(Errno::INVAL)?.fclass;
        // A domain has no asynchronous operations, so its event queue gets no events.
        if class == FI_CLASS_EQ {
            Ok(())
        } else {
            Err(Errno::INVAL)
        }
    })
}

unsafe extern "C" fn query_atomic(
    _domain: *mut fid_domain,
    datatype: c_int,
    op: c_int,
    attr: *mut fi_atomic_attr,
    flags: u64,
) -> c_int {
    code(|| {
        let family = match flags & !FI_TAGGED {
            0 => Family::Base,
            FI_FETCH_ATOMIC => Family::Fetch,
            FI_COMPARE_ATOMIC => Family::Compare,
            _ => return Err(Errno::BADFLAGS),
        };
        let valid = valid(family, datatype, op)?;
        let size = valid.ty.size();
        let tagged = flags & FI_TAGGED != 0;
        let count = if tagged {
            MOST_TAGGED_BYTES / size
        } else {
            valid.count
        };
        let answer = fi_atomic_attr { count, size };
        // SAFETY:
        // - libfabric's contract: `attr` is null or valid for a write.
        unsafe { put(attr, answer) }
    })
}
