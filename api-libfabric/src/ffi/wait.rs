//! Wait sets (fi_poll(3)): one wait for several completion queues, counters and event queues.
//!
//! All waits of a process sleep at the engine's bell, so a set has no wait object. A wait polls the members.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use unipgas_core::Error;
use unipgas_core::wait_point::WaitPoint;

use super::event::EventQueue;
use super::fabric::{Fabric, FabricObject};
use super::poll::has_changed;
use super::{Object, code, control_waits, deadline, fid_of, fid_ops, given, no_bind, put};
use crate::completion::CompletionQueue;
use crate::counter::Counter;
use crate::process;
use crate::status::{Errno, Result};
use crate::sys::*;

/// A member of a set. Its close removes it.
enum Member {
    Queue(Weak<CompletionQueue>),
    /// With its values at the last look.
    Counter(Weak<Counter>, (u64, u64)),
    Events(Weak<EventQueue>),
}

impl Member {
    fn is_there(&self) -> bool {
        0 < match self {
            Member::Queue(queue) => queue.strong_count(),
            Member::Counter(counter, _) => counter.strong_count(),
            Member::Events(events) => events.strong_count(),
        }
    }

    /// Progresses the member. Returns whether it has something new.
    fn look(&mut self) -> bool {
        match self {
            Member::Queue(queue) => queue.upgrade().is_some_and(|it| it.look_for_entries()),
            Member::Counter(counter, seen) => {
                let counter = counter.upgrade();
                counter.is_some_and(|it| {
                    let changed = || has_changed(&it, seen).then_some(());
                    it.waits.attached.progress_until(changed).is_some()
                })
            }
            Member::Events(events) => events.upgrade().is_some_and(|it| it.arm().is_err()),
        }
    }

    /// Checks the liveness of the member's peers.
    fn look_at_peers(&self) {
        match self {
            Member::Queue(queue) => queue
                .upgrade()
                .iter()
                .for_each(|it| it.waits.attached.look()),
            Member::Counter(counter, _) => {
                counter
                    .upgrade()
                    .iter()
                    .for_each(|it| it.waits.attached.look());
            }
            Member::Events(_) => {}
        }
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
    fn add(&self, member: Member) {
        let mut members = self.members.lock();
        members.retain(Member::is_there);
        members.push(member);
    }

    pub fn add_queue(&self, queue: &Arc<CompletionQueue>) {
        self.add(Member::Queue(Arc::downgrade(queue)));
    }

    pub fn add_counter(&self, counter: &Arc<Counter>) {
        self.add(Member::Counter(Arc::downgrade(counter), (0, 0)));
    }

    pub fn add_events(&self, events: &Arc<EventQueue>) {
        self.add(Member::Events(Arc::downgrade(events)));
    }
}

unsafe extern "C" fn wait(set: *mut fid_wait, timeout: c_int) -> c_int {
    code(|| {
        // SAFETY:
        // - only wait sets have this table.
        let set = &unsafe { WaitObject::at(set) }?.inner;
        let look_at_peers = || set.members.lock().iter().for_each(Member::look_at_peers);
        let look = || {
            let mut members = set.members.lock();
            // Looks at all members: each look progresses its member and updates the values seen.
            let news = members
                .iter_mut()
                .filter_map(|member| member.look().then_some(()));
            news.last()
        };
        let (engine, call) = (process::engine()?, ("fi_wait", deadline(timeout)));
        let waited = set.point.wait(&engine, call, look_at_peers, look);
        waited.map_err(|error| match error {
            Error::Ended => Errno::CANCELED,
            _ => Errno::TIMEDOUT,
        })
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
