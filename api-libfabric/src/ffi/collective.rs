//! Groups of endpoints, and collective operations.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Weak};

use super::av_set::SetObject;
use super::domain::DomainObject;
use super::endpoint::{Poster, flagged, part};
use super::{Object, code, fid_of, fid_ops, given, no, no_bind, no_control, posted, put};
use crate::collectives::{Collective, CollectiveCall, MOST_BYTES, MOST_MEMBERS, elements};
use crate::endpoint::Endpoint;
use crate::status::{Errno, Result};
use crate::sys::*;

pub(super) static OPS: fi_ops_collective = fi_ops_collective {
    size: size_of::<fi_ops_collective>(),
    barrier,
    broadcast,
    alltoall,
    allreduce,
    allgather,
    reduce_scatter,
    reduce,
    scatter,
    gather,
    msg: no,
    barrier2,
};

/// An endpoint's membership in a group.
pub(super) struct Membership {
    endpoint: Weak<Endpoint>,
    group: u64,
}

type MembershipObject = Object<fid_mc, Membership>;

static FID: fi_ops = fid_ops(close, no_bind, no_control);

/// The `join` function of endpoints.
pub(super) unsafe extern "C" fn join(
    endpoint: *mut fid_ep,
    address: *const c_void,
    flags: u64,
    group: *mut *mut fid_mc,
    context: *mut c_void,
) -> c_int {
    code(|| {
        if flags & FI_COLLECTIVE == 0 {
            return Err(Errno::NOSYS);
        }
        // Each collective sends and receives, so the flags name both or neither.
        let access = flags & !FI_COLLECTIVE;
        if access != 0 && access != FI_SEND | FI_RECV {
            return Err(Errno::BADFLAGS);
        }
        given(group)?;
        // SAFETY:
        // - only endpoints have this table. libfabric's contract: `address` is null or has a set of this provider.
        let (part, address, set) = unsafe {
            let address = address.cast::<fi_collective_addr>().as_ref();
            let address = address.ok_or(Errno::INVAL)?;
            let set = &SetObject::at(address.set)?.inner;
            (part(endpoint)?, address.coll_addr, set)
        };
        let events = part.events.lock().clone().ok_or(Errno::NOEQ)?;
        let raw = fid_mc {
            fid: fid_of(FI_CLASS_MC, context, &FID),
            fi_addr: FI_ADDR_NOTAVAIL,
        };
        let membership = Membership {
            endpoint: Arc::downgrade(&part.endpoint),
            group: FI_ADDR_NOTAVAIL,
        };
        let object = MembershipObject::create(raw, membership);
        let (place, context) = (object.addr(), context.addr());
        let told = events.clone();
        let joined = Box::new(move |result: Result<()>| {
            let (place, context) = (place as *mut fid, context as *mut c_void);
            match result {
                Ok(()) => told.tell(FI_JOIN_COMPLETE, place, context, 0),
                Err(errno) => told.fail(place, context, 0, errno.0),
            }
        });
        let done = part.endpoint.join(set, address, joined);
        // SAFETY:
        // - made above. The event of a completed join already holds the address. The program must not use it before this call returns.
        unsafe {
            match done {
                Ok(joined) => {
                    let made = object.cast::<MembershipObject>();
                    (*made).raw.fi_addr = joined;
                    (*made).inner.group = joined;
                    put(group, object)
                }
                Err(errno) => {
                    MembershipObject::destroy(object);
                    Err(errno)
                }
            }
        }
    })
}

entries! { code -> c_int;
    fn close(fid: *mut fid) = MembershipObject::close(fid, |membership| match membership.endpoint.upgrade() {
        Some(endpoint) => endpoint.leave(membership.group),
        None => Ok(()),
    });
}

fn kind_of(number: c_int) -> Result<Collective> {
    let kind = usize::try_from(number)
        .ok()
        .and_then(|number| Collective::ALL.get(number));
    kind.copied().ok_or(Errno::OPNOTSUPP)
}

/// The `query_collective` function of domains.
pub(super) unsafe extern "C" fn query(
    domain: *mut fid_domain,
    collective: c_int,
    attr: *mut fi_collective_attr,
    flags: u64,
) -> c_int {
    code(|| {
        // SAFETY:
        // - only domains have this table. libfabric's contract: attributes or null.
        let attr = unsafe {
            DomainObject::at(domain)?;
            attr.as_mut().ok_or(Errno::INVAL)?
        };
        if flags != 0 {
            return Err(Errno::BADFLAGS);
        }
        if attr.mode != 0 {
            return Err(Errno::INVAL);
        }
        let elements = elements(kind_of(collective)?, (attr.datatype, attr.op))?;
        let size = elements.map_or(0, |(ty, _)| ty.size());
        let count = MOST_BYTES.checked_div(size).unwrap_or(0);
        attr.datatype_attr = fi_atomic_attr { count, size };
        attr.max_members = MOST_MEMBERS;
        Ok(())
    })
}

/// # Safety
/// The arguments are valid as in fi_collective(3). `flags`: `None` for a call without a flags argument.
unsafe fn start(
    endpoint: *mut fid_ep,
    group: u64,
    call: CollectiveCall,
    flags: Option<u64>,
    context: *mut c_void,
) -> Result<()> {
    // SAFETY:
    // - contract of this call: the arguments are valid.
    unsafe {
        let part = part(endpoint)?;
        let posting = match flags {
            Some(flags) => flagged(context, flags, 0),
            None => part.plain(true, context),
        };
        part.endpoint.collective(group, &call, &posting)
    }
}

const BARRIER: CollectiveCall = CollectiveCall {
    kind: Collective::Barrier,
    root: FI_ADDR_NOTAVAIL,
    what: (FI_VOID, FI_NOOP),
    operand: std::ptr::null(),
    result: std::ptr::null_mut(),
    count: 0,
};

entries! { posted -> isize;
    fn barrier(endpoint: *mut fid_ep, group: u64, context: *mut c_void) = start(endpoint, group, BARRIER, None, context);
    fn barrier2(endpoint: *mut fid_ep, group: u64, flags: u64, context: *mut c_void)
        = start(endpoint, group, BARRIER, Some(flags), context);
    fn broadcast(
        endpoint: *mut fid_ep, buffer: *mut c_void, count: usize, _desc: *mut c_void, group: u64, root: u64, datatype: c_int,
        flags: u64, context: *mut c_void,
    ) = {
        let (kind, what) = (Collective::Broadcast, (datatype, FI_NOOP));
        let (operand, result) = (buffer.cast_const().cast(), buffer.cast());
        let call = CollectiveCall { kind, root, what, operand, result, count };
        start(endpoint, group, call, Some(flags), context)
    };
}

/// Defines functions with an operand and a result. The brackets hold the optional arguments: root and operation.
macro_rules! operations {
    ($($name:ident = $kind:ident [$($root:ident)?] [$($op:ident)?];)*) => { entries! { posted -> isize; $(
        fn $name(
            endpoint: *mut fid_ep, operand: *const c_void, count: usize, _desc: *mut c_void, result: *mut c_void,
            _result_desc: *mut c_void, group: u64, $($root: u64,)? datatype: c_int, $($op: c_int,)? flags: u64, context: *mut c_void,
        ) = {
            let of = [$($root,)? FI_ADDR_NOTAVAIL];
            let by = [$($op,)? FI_NOOP];
            let call = CollectiveCall {
                kind: Collective::$kind,
                root: of[0],
                what: (datatype, by[0]),
                operand: operand.cast(),
                result: result.cast(),
                count,
            };
            start(endpoint, group, call, Some(flags), context)
        };
    )*}};
}

operations! {
    alltoall = AllToAll [] [];
    allreduce = AllReduce [] [op];
    allgather = AllGather [] [];
    reduce_scatter = ReduceScatter [] [op];
    reduce = Reduce [root] [op];
    scatter = Scatter [root] [];
    gather = Gather [root] [];
}
