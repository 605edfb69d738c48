//! Poll sets (fi_poll(3)).

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use parking_lot::Mutex;
use unipgas_core::liveness_timer::LivenessTimer;
use unipgas_core::waits::{self, polled};

use super::counter::CounterObject;
use super::domain::DomainObject;
use super::queue::QueueObject;
use super::{Object, code, fid_of, fid_ops, given, no_bind, no_control, number, put};
use crate::completion::CompletionQueue;
use crate::counter::Counter;
use crate::domain::Domain;
use crate::status::{Errno, Result};
use crate::sys::*;
use crate::waits::Attached;

/// The counts of a counter at the last look. Queues do not use it.
pub(super) type Seen = (u64, u64);

/// An object of a poll set or wait set.
pub(super) trait Pollable: Send + Sync {
    fn attached(&self) -> &Attached;

    /// Makes progress. Returns whether the object may have something new, and updates `seen`.
    fn has_news(&self, seen: &mut Seen) -> bool;
}

impl Pollable for CompletionQueue {
    fn attached(&self) -> &Attached {
        &self.waits.attached
    }

    fn has_news(&self, _seen: &mut Seen) -> bool {
        self.look_for_entries()
    }
}

impl Pollable for Counter {
    fn attached(&self) -> &Attached {
        &self.waits.attached
    }

    fn has_news(&self, seen: &mut Seen) -> bool {
        let changed = || {
            let values = (self.read(), self.read_errors());
            (std::mem::replace(seen, values) != values).then_some(())
        };
        self.waits.attached.progress_until(changed).is_some()
    }
}

struct Member {
    fid: usize,
    context: usize,
    object: Arc<dyn Pollable>,
    seen: Seen,
}

struct PollSet {
    domain: Arc<Domain>,
    members: Mutex<Vec<Member>>,
    /// Schedules the notes about polls that find nothing.
    liveness: LivenessTimer,
}

type PollObject = Object<fid_poll, PollSet>;

static FID: fi_ops = fid_ops(close, no_bind, no_control);

static OPS: fi_ops_poll = fi_ops_poll {
    size: size_of::<fi_ops_poll>(),
    poll,
    poll_add,
    poll_del,
};

pub(super) unsafe extern "C" fn open_poll(
    domain: *mut fid_domain,
    attr: *mut fi_poll_attr,
    poll: *mut *mut fid_poll,
) -> c_int {
    code(|| {
        given(poll)?;
        // SAFETY:
        // - libfabric's contract: a domain of this provider, and attributes or null.
        let (domain, attr) = unsafe { (DomainObject::at(domain)?, attr.as_ref()) };
        if attr.is_some_and(|attr| attr.flags != 0) {
            return Err(Errno::INVAL);
        }
        let raw = fid_poll {
            fid: fid_of(FI_CLASS_POLL, std::ptr::null_mut(), &FID),
            ops: &OPS,
        };
        let set = PollSet {
            domain: domain.inner.domain.clone(),
            members: Mutex::default(),
            liveness: LivenessTimer::default(),
        };
        // SAFETY:
        // - libfabric's contract: the place is not null, so it is valid for a write.
        unsafe { put(poll, Object::create(raw, set)) }
    })
}

entries! { code -> c_int;
    fn close(fid: *mut fid) = PollObject::close(fid, |set| match set.members.lock().is_empty() {
        true => Ok(()),
        false => Err(Errno::BUSY),
    });
}

/// # Safety
/// `event` is null or an object of this provider.
unsafe fn member(event: *mut fid) -> Result<(Member, Arc<Domain>)> {
    // SAFETY:
    // - contract of this call. The class gives the type of the object.
    unsafe {
        let raw = event.as_ref().ok_or(Errno::INVAL)?;
        let (object, domain): (Arc<dyn Pollable>, _) = match raw.fclass {
            FI_CLASS_CQ => {
                let queue = &QueueObject::at(event)?.inner.queue;
                (queue.clone(), queue.domain())
            }
            FI_CLASS_CNTR => {
                let counter = &CounterObject::at(event)?.inner.counter;
                (counter.clone(), counter.domain())
            }
            _ => return Err(Errno::INVAL),
        };
        let mut seen = Seen::default();
        object.has_news(&mut seen);
        let member = Member {
            fid: event.addr(),
            context: raw.context.addr(),
            object,
            seen,
        };
        Ok((member, domain.clone()))
    }
}

unsafe extern "C" fn poll_add(set: *mut fid_poll, event: *mut fid, flags: u64) -> c_int {
    code(|| {
        // SAFETY:
        // - only poll sets have this table. libfabric's contract: `event` is an object of this provider, or null.
        let (set, (member, domain)) = unsafe { (&PollObject::at(set)?.inner, member(event)?) };
        if flags != 0 {
            return Err(Errno::BADFLAGS);
        }
        if !Arc::ptr_eq(&domain, &set.domain) {
            return Err(Errno::DOMAIN);
        }
        let mut members = set.members.lock();
        if members.iter().any(|known| known.fid == member.fid) {
            return Err(Errno::INVAL);
        }
        members.push(member);
        Ok(())
    })
}

unsafe extern "C" fn poll_del(set: *mut fid_poll, event: *mut fid, flags: u64) -> c_int {
    code(|| {
        // SAFETY:
        // - only poll sets have this table.
        let set = unsafe { &PollObject::at(set)?.inner };
        if flags != 0 {
            return Err(Errno::BADFLAGS);
        }
        let mut members = set.members.lock();
        let at = members.iter().position(|known| known.fid == event.addr());
        members.remove(at.ok_or(Errno::INVAL)?);
        Ok(())
    })
}

unsafe extern "C" fn poll(set: *mut fid_poll, contexts: *mut *mut c_void, count: c_int) -> c_int {
    let found = number(|| {
        // SAFETY:
        // - only poll sets have this table.
        let set = unsafe { &PollObject::at(set)?.inner };
        let most = usize::try_from(count).map_err(|_| Errno::INVAL)?;
        if most > 0 {
            given(contexts)?;
        }
        let mut found = 0;
        let mut members = set.members.lock();
        for at in 0..members.len() {
            if found == most {
                // The next poll begins with the members that this poll has not reached.
                members.rotate_left(at);
                break;
            }
            let member = &mut members[at];
            if member.object.has_news(&mut member.seen) {
                // SAFETY:
                // - libfabric's contract: `contexts` has room for `count` contexts, and `found` is less.
                unsafe {
                    let context = member.context as *mut c_void;
                    contexts.add(found).write(context);
                }
                found += 1;
            }
        }
        drop(members);
        if set.liveness.is_due() {
            polled(found > 0, || waits::call("fi_poll"));
        }
        Ok(found)
    });
    found as c_int
}
