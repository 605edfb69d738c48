//! Address vector sets.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::av::AvObject;
use super::{Object, code, fid_of, fid_ops, given, no_bind, no_control, put};
use crate::collectives::{AvSet, Collective};
use crate::status::{Errno, Result};
use crate::sys::*;

pub(super) type SetObject = Object<fid_av_set, Arc<AvSet>>;

static FID: fi_ops = fid_ops(close, no_bind, no_control);

static OPS: fi_ops_av_set = fi_ops_av_set {
    size: size_of::<fi_ops_av_set>(),
    set_union,
    intersect,
    diff,
    insert,
    remove,
    addr,
};

/// Flags that restrict a set to operations.
const FLAGS: [(u64, Collective); 9] = [
    (FI_BARRIER_SET, Collective::Barrier),
    (FI_BROADCAST_SET, Collective::Broadcast),
    (FI_ALLTOALL_SET, Collective::AllToAll),
    (FI_ALLREDUCE_SET, Collective::AllReduce),
    (FI_ALLGATHER_SET, Collective::AllGather),
    (FI_REDUCE_SCATTER_SET, Collective::ReduceScatter),
    (FI_REDUCE_SET, Collective::Reduce),
    (FI_SCATTER_SET, Collective::Scatter),
    (FI_GATHER_SET, Collective::Gather),
];

pub(super) unsafe extern "C" fn open_set(
    av: *mut fid_av,
    attr: *mut fi_av_set_attr,
    set: *mut *mut fid_av_set,
    context: *mut c_void,
) -> c_int {
    code(|| {
        given(set)?;
        // SAFETY:
        // - libfabric's contract: an address vector of this provider and attributes, or null.
        let (part, attr) =
            unsafe { (&AvObject::at(av)?.inner, attr.as_ref().ok_or(Errno::INVAL)?) };
        let known = FLAGS.iter().fold(FI_UNIVERSE, |all, (flag, _)| all | flag);
        if attr.flags & !known != 0 {
            return Err(Errno::BADFLAGS);
        }
        if attr.comm_key_size != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let operations = FLAGS.iter().filter(|(flag, _)| attr.flags & flag != 0);
        let operations: Vec<Collective> = operations.map(|(_, operation)| *operation).collect();
        let members = members(attr, part.is_table, || part.av.addresses())?;
        let made = AvSet::new(&part.av, members, &operations)?;
        let raw = fid_av_set {
            fid: fid_of(FI_CLASS_AV_SET, context, &FID),
            ops: &OPS,
        };
        // SAFETY:
        // - libfabric's contract: the place is not null, so it is valid for a write.
        unsafe { put(set, Object::create(raw, made)) }
    })
}

/// The initial members. Errors: [`Errno::INVAL`] if the range is invalid, exceeds the expected number of members, or is in a map.
fn members(
    attr: &fi_av_set_attr,
    is_table: bool,
    all: impl FnOnce() -> Vec<u64>,
) -> Result<Vec<u64>> {
    let (start, end) = (attr.start_addr, attr.end_addr);
    let empty = start == FI_ADDR_NOTAVAIL && end == FI_ADDR_NOTAVAIL;
    if attr.flags & FI_UNIVERSE != 0 {
        return Ok(all());
    }
    if empty {
        return match attr.stride {
            0 => Ok(Vec::new()),
            _ => Err(Errno::INVAL),
        };
    }
    let range = start <= end && end != FI_ADDR_NOTAVAIL && is_table;
    if !range || attr.stride == 0 {
        return Err(Errno::INVAL);
    }
    if attr.count != 0 && (end - start) / attr.stride >= attr.count as u64 {
        return Err(Errno::INVAL);
    }
    let mut members = all();
    members.retain(|address| {
        (start..=end).contains(address) && (address - start).is_multiple_of(attr.stride)
    });
    Ok(members)
}

/// # Safety
/// Both are sets of this provider, or null.
unsafe fn change(
    set: *mut fid_av_set,
    other: *const fid_av_set,
    how: fn(&AvSet, &AvSet) -> Result<()>,
) -> Result<()> {
    // SAFETY:
    // - contract of this call: sets of this provider, or null.
    unsafe { how(&SetObject::at(set)?.inner, &SetObject::at(other)?.inner) }
}

entries! { code -> c_int;
    fn close(fid: *mut fid) = SetObject::close(fid, |_| Ok(()));
    fn set_union(set: *mut fid_av_set, other: *const fid_av_set) = change(set, other, AvSet::unite);
    fn intersect(set: *mut fid_av_set, other: *const fid_av_set) = change(set, other, AvSet::intersect);
    fn diff(set: *mut fid_av_set, other: *const fid_av_set) = change(set, other, AvSet::subtract);
    fn insert(set: *mut fid_av_set, address: u64) = SetObject::at(set)?.inner.insert(address);
    fn remove(set: *mut fid_av_set, address: u64) = SetObject::at(set)?.inner.remove(address);
    fn addr(set: *mut fid_av_set, address: *mut u64) = put(address, SetObject::at(set)?.inner.address());
}
