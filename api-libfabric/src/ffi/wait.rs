//! Wait sets (fi_poll(3)): one wait for several completion queues, counters and event queues.
//!
//! All waits of a process sleep at the engine's bell, so a set has no wait object. A wait polls the members.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use unipgas_core::wait_point::WaitPoint;

use super::fabric::{Fabric, FabricObject};
use super::poll::{Pollable, Seen};
use super::{Object, code, control_waits, deadline, fid_of, fid_ops, given, no_bind, put};
use crate::process;
use crate::status::{Errno, Result};
use crate::sys::*;
use crate::waits::wait_at;

/// A member of a set, with its state at the last look. Its close removes it.
struct Member(Weak<dyn Pollable>, Seen);

impl Member {
    fn is_there(&self) -> bool {
        self.0.strong_count() > 0
    }
}

pub(super) struct WaitSet {
    fabric: Arc<Fabric>,
    wait: c_int,
    point: WaitPoint,
    members: Mutex<Vec<Member>>,
}

type WaitObject = Object<fid_wait, WaitSet>;

static FID: fi_ops = fid_ops(close, no_bind, control);

static OPS: fi_ops_wait = fi_ops_wait {
    size: size_of::<fi_ops_wait>(),
    wait,
};

pub(super) unsafe extern "C" fn open_wait(
    fabric: *mut fid_fabric,
    attr: *mut fi_wait_attr,
    set: *mut *mut fid_wait,
) -> c_int {
    code(|| {
        given(set)?;
        // SAFETY:
        // - libfabric's contract: a fabric of this provider, and attributes or null.
        let (fabric, attr) = unsafe { (FabricObject::at(fabric)?, attr.as_ref()) };
        if attr.is_some_and(|attr| attr.flags != 0) {
            return Err(Errno::INVAL);
        }
        let wait = attr.map_or(FI_WAIT_UNSPEC, |attr| attr.wait_obj);
        match wait {
            FI_WAIT_UNSPEC | FI_WAIT_YIELD => {}
            // A set needs a way to wait, and cannot be in another set.
            FI_WAIT_NONE | FI_WAIT_SET => return Err(Errno::INVAL),
            _ => return Err(Errno::NOSYS),
        }
        let raw = fid_wait {
            fid: fid_of(FI_CLASS_WAIT, std::ptr::null_mut(), &FID),
            ops: &OPS,
        };
        let inner = WaitSet {
            fabric: fabric.inner.clone(),
            wait,
            point: WaitPoint::default(),
            members: Mutex::default(),
        };
        // SAFETY:
        // - libfabric's contract: the place is not null, so it is valid for a write.
        unsafe { put(set, Object::create(raw, inner)) }
    })
}

/// The set that a new object joins. Errors: [`Errno::INVAL`] for null, and for a set of another fabric.
///
/// # Safety
/// `set` is null or a wait set of this provider.
pub(super) unsafe fn set<'a>(set: *mut c_void, fabric: &Arc<Fabric>) -> Result<&'a WaitSet> {
    // SAFETY:
    // - contract of this call: null, or a wait set of this provider.
    let set = &unsafe { WaitObject::at(set) }?.inner;
    match Arc::ptr_eq(&set.fabric, fabric) {
        true => Ok(set),
        false => Err(Errno::INVAL),
    }
}

impl WaitSet {
    pub fn add(&self, member: &Arc<impl Pollable + 'static>) {
        let member: Arc<dyn Pollable> = member.clone();
        let mut members = self.members.lock();
        members.retain(Member::is_there);
        members.push(Member(Arc::downgrade(&member), Seen::default()));
    }

    fn look_at_peers(&self) {
        for member in &*self.members.lock() {
            let member = member.0.upgrade();
            member.inspect(|member| member.attached().look());
        }
    }

    /// Looks at all members: each look progresses its member and updates its seen state.
    fn look(&self) -> Option<()> {
        let mut members = self.members.lock();
        let news = members
            .iter_mut()
            .filter_map(|Member(object, seen)| object.upgrade()?.has_news(seen).then_some(()));
        news.last()
    }
}

unsafe extern "C" fn wait(set: *mut fid_wait, timeout: c_int) -> c_int {
    code(|| {
        // SAFETY:
        // - only wait sets have this table.
        let set = &unsafe { WaitObject::at(set) }?.inner;
        let (engine, call) = (process::engine()?, ("fi_wait", deadline(timeout)));
        let (wait, look) = ((call, Errno::TIMEDOUT), || set.look_at_peers());
        wait_at(&set.point, &engine, wait, look, || set.look())
    })
}

entries! { code -> c_int;
    fn control(fid: *mut fid, command: c_int, arg: *mut c_void)
        = control_waits((command, arg), None, WaitObject::at(fid)?.inner.wait);
    fn close(fid: *mut fid) = WaitObject::close(fid, |set| {
        if set.members.lock().iter().any(Member::is_there) {
            return Err(Errno::BUSY);
        }
        if let Ok(engine) = process::engine() {
            set.point.end(&engine);
        }
        Ok(())
    });
}
