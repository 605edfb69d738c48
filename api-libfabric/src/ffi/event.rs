//! Event queues (fi_eq(3)). They report insertions into address vectors, joins of groups, and events that the program writes.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use unipgas_core::liveness_timer::LivenessTimer;
use unipgas_core::wait_point::WaitPoint;

use super::fabric::{Fabric, FabricObject};
use super::poll::{Pollable, Seen};
use super::{
    Object, check_free, code, control_waits, deadline, fid_of, fid_ops, given, no_bind, number, put,
};
use crate::endpoint::Endpoint;
use crate::process;
use crate::status::{Errno, Result};
use crate::sys::*;
use crate::waits::{Attached, wait_at};

struct Failure {
    fid: usize,
    context: usize,
    data: u64,
    errno: i32,
}

#[derive(Default)]
struct Events {
    events: VecDeque<(u32, Box<[u8]>)>,
    failures: VecDeque<Failure>,
}

impl Events {
    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.failures.is_empty()
    }
}

pub(super) struct EventQueue {
    events: Mutex<Events>,
    wait: c_int,
    /// Its descriptor is readable while the queue has entries.
    point: WaitPoint,
    /// Endpoints with FI_COLLECTIVE. Reads of the queue progress their joins.
    attached: Attached,
    /// Schedules the liveness checks of peers while reads find no event.
    liveness: LivenessTimer,
    _fabric: Arc<Fabric>,
}

pub(super) type EventObject = Object<fid_eq, Arc<EventQueue>>;

static FID: fi_ops = fid_ops(close, no_bind, control);

static OPS: fi_ops_eq = fi_ops_eq {
    size: size_of::<fi_ops_eq>(),
    read,
    readerr,
    write,
    sread,
    strerror,
};

pub(super) unsafe extern "C" fn open_event_queue(
    fabric: *mut fid_fabric,
    attr: *mut fi_eq_attr,
    queue: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    code(|| {
        given(queue)?;
        // SAFETY:
        // - libfabric's contract: a fabric of this provider, and attributes or null.
        let (fabric, attr) = unsafe { (FabricObject::at(fabric)?, attr.as_ref()) };
        let wait = attr.map_or(FI_WAIT_UNSPEC, |attr| attr.wait_obj);
        let point = match wait {
            FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_YIELD | FI_WAIT_SET => WaitPoint::default(),
            FI_WAIT_FD => WaitPoint::with_descriptor()?,
            _ => return Err(Errno::NOSYS),
        };
        point.clear();
        let raw = fid_eq {
            fid: fid_of(FI_CLASS_EQ, context, &FID),
            ops: &OPS,
        };
        let inner = Arc::new(EventQueue {
            events: Mutex::default(),
            wait,
            point,
            attached: Attached::default(),
            liveness: LivenessTimer::default(),
            _fabric: fabric.inner.clone(),
        });
        if let (FI_WAIT_SET, Some(attr)) = (wait, attr) {
            // SAFETY:
            // - libfabric's contract: a wait set of this provider, or null.
            unsafe { super::wait::set(attr.wait_set, &fabric.inner) }?.add(&inner);
        }
        // SAFETY:
        // - libfabric's contract: the place is not null, so it is valid for a write.
        unsafe { put(queue, Object::create(raw, inner)) }
    })
}

impl EventQueue {
    fn lock(&self) -> MutexGuard<'_, Events> {
        self.events.lock()
    }

    fn push(&self, event: u32, bytes: Box<[u8]>) {
        self.add(|events| events.events.push_back((event, bytes)));
    }

    /// Adds an event of an object.
    pub fn tell(&self, event: u32, fid: *mut fid, context: *mut c_void, data: u64) {
        let entry = fi_eq_entry { fid, context, data };
        // SAFETY:
        // - two pointers and a word, without padding.
        let bytes: [u8; size_of::<fi_eq_entry>()] = unsafe { std::mem::transmute(entry) };
        self.push(event, Box::new(bytes));
    }

    /// Adds a failure of an object.
    pub fn fail(&self, fid: *mut fid, context: *mut c_void, data: u64, errno: i32) {
        let failure = Failure {
            fid: fid.addr(),
            context: context.addr(),
            data,
            errno,
        };
        self.add(|events| events.failures.push_back(failure));
    }

    /// Adds to the events, and wakes the threads that wait for them.
    fn add(&self, add: impl FnOnce(&mut Events)) {
        let mut events = self.lock();
        add(&mut events);
        self.point.signal();
        drop(events);
        self.wake();
    }

    fn wake(&self) {
        // Without an engine no thread sleeps.
        if let Some(engine) = process::opened() {
            engine.ring();
        }
    }

    /// Makes the descriptor unreadable if the queue has become empty. The caller holds the lock, so that both change together.
    fn show(&self, events: &Events) {
        if events.is_empty() {
            self.point.clear();
        }
    }

    /// Reads of the queue progress the joins of `endpoint`, until [`EventQueue::detach`].
    pub fn attach(&self, endpoint: &Arc<Endpoint>) {
        self.attached.add(endpoint);
        // A waiting `sread` progresses joins, too, from now on.
        self.wake();
    }

    /// FI_WAIT_FD.
    pub fn has_descriptor(&self) -> bool {
        self.point.descriptor().is_some()
    }

    /// Ends the effect of [`EventQueue::attach`].
    pub fn detach(&self, endpoint: &Endpoint) {
        self.attached.remove(endpoint);
    }

    /// Progresses joins if the queue is empty.
    fn progress(&self) {
        if self.lock().is_empty() {
            if self.liveness.is_due() {
                self.attached.look();
            }
            let something = || (!self.lock().is_empty()).then_some(());
            self.attached.progress_until(something);
        }
    }

    /// Prepares a wait. Errors: [`Errno::AGAIN`] if the queue has entries.
    pub fn arm(&self) -> Result<()> {
        self.progress();
        if self.lock().is_empty() {
            Ok(())
        } else {
            Err(Errno::AGAIN)
        }
    }
}

impl Pollable for EventQueue {
    fn attached(&self) -> &Attached {
        &self.attached
    }

    fn has_news(&self, _seen: &mut Seen) -> bool {
        self.arm().is_err()
    }
}

/// # Safety
/// The arguments are valid as in fi_eq_read(3).
unsafe fn take(
    queue: &EventQueue,
    event: *mut u32,
    buffer: *mut c_void,
    len: usize,
    flags: u64,
) -> Result<usize> {
    let mut events = queue.lock();
    if !events.failures.is_empty() {
        return Err(Errno::AVAIL);
    }
    let (kind, bytes) = events.events.front().ok_or(Errno::AGAIN)?;
    if bytes.len() > len {
        return Err(Errno::TOOSMALL);
    }
    given(buffer)?;
    // SAFETY:
    // - contract of this call: the buffer has `len` bytes, which are enough.
    unsafe {
        put(event, *kind)?;
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), bytes.len());
    }
    let len = bytes.len();
    if flags & FI_PEEK == 0 {
        events.events.pop_front();
        queue.show(&events);
    }
    Ok(len)
}

unsafe extern "C" fn read(
    queue: *mut fid_eq,
    event: *mut u32,
    buffer: *mut c_void,
    len: usize,
    flags: u64,
) -> isize {
    // SAFETY:
    // - libfabric's contract: the arguments are valid.
    number(|| unsafe {
        let queue = &EventObject::at(queue)?.inner;
        queue.progress();
        take(queue, event, buffer, len, flags)
    })
}

unsafe extern "C" fn sread(
    queue: *mut fid_eq,
    event: *mut u32,
    buffer: *mut c_void,
    len: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    number(|| {
        // SAFETY:
        // - only event queues have this table.
        let queue = unsafe { &EventObject::at(queue)?.inner };
        if matches!(queue.wait, FI_WAIT_NONE | FI_WAIT_SET) {
            return Err(Errno::INVAL);
        }
        // SAFETY:
        // - libfabric's contract: the arguments are valid.
        let found = || match unsafe { take(queue, event, buffer, len, flags) } {
            Err(Errno::AGAIN) => None,
            taken => Some(taken),
        };
        let (engine, call) = (process::engine()?, ("fi_eq_sread", deadline(timeout)));
        let look = || queue.attached.look();
        let wait = (call, Errno::AGAIN);
        wait_at(&queue.point, &engine, wait, look, || {
            queue.attached.progress_until(found)
        })?
    })
}

unsafe extern "C" fn write(
    queue: *mut fid_eq,
    event: u32,
    buffer: *const c_void,
    len: usize,
    _flags: u64,
) -> isize {
    number(|| {
        // SAFETY:
        // - only event queues have this table. libfabric's contract: `len` bytes.
        let (queue, bytes) = unsafe {
            let bytes = super::list(buffer.cast::<u8>(), len, 1 << 20)?;
            (&EventObject::at(queue)?.inner, bytes)
        };
        queue.push(event, bytes.into());
        Ok(len)
    })
}

unsafe extern "C" fn readerr(
    queue: *mut fid_eq,
    entry: *mut fi_eq_err_entry,
    _flags: u64,
) -> isize {
    number(|| {
        // SAFETY:
        // - only event queues have this table. libfabric's contract: `entry` is valid for a write.
        unsafe {
            let queue = &EventObject::at(queue)?.inner;
            given(entry)?;
            let failure = {
                let mut events = queue.lock();
                let failure = events.failures.pop_front().ok_or(Errno::AGAIN)?;
                queue.show(&events);
                failure
            };
            entry.write(fi_eq_err_entry {
                fid: failure.fid as *mut fid,
                context: failure.context as *mut c_void,
                data: failure.data,
                err: failure.errno,
                prov_errno: failure.errno,
                err_data: std::ptr::null_mut(),
                err_data_size: 0,
            });
        }
        Ok(size_of::<fi_eq_err_entry>())
    })
}

unsafe extern "C" fn strerror(
    _queue: *mut fid_eq,
    errno: c_int,
    _data: *const c_void,
    buffer: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY:
    // - libfabric's contract: a buffer of `len` bytes, or null.
    unsafe { super::queue::text(errno, buffer, len) }
}

entries! { code -> c_int;
    fn control(fid: *mut fid, command: c_int, arg: *mut c_void) = {
        let queue = &EventObject::at(fid)?.inner;
        control_waits((command, arg), queue.point.descriptor(), queue.wait)
    };
    fn close(fid: *mut fid) = EventObject::close(fid, |queue| {
        check_free(queue)?;
        if let Some(engine) = process::opened() {
            queue.point.end(&engine);
        }
        Ok(())
    });
}
