//! Event queues (fi_eq(3)). What they tell of here: insertions into address vectors, and events that the program writes itself.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::fabric::{Fabric, FabricObject};
use super::{Object, code, fid_of, given, is_free, no, no_bind, no_control, number, put};
use crate::status::{Errno, Result};
use crate::sys::*;

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

pub(super) struct EventQueue {
    events: Mutex<Events>,
    more: Condvar,
    can_wait: bool,
    _fabric: Arc<Fabric>,
}

pub(super) type EventObject = Object<fid_eq, Arc<EventQueue>>;

static FID: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close,
    bind: no_bind,
    control: no_control,
    ops_open: no,
    tostr: no,
    ops_set: no,
};

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
        // - a fabric of ours and attributes (or null), by the interface.
        let (fabric, attr) = unsafe { (FabricObject::at(fabric)?, attr.as_ref()) };
        let wait = attr.map_or(FI_WAIT_UNSPEC, |attr| attr.wait_obj);
        if !matches!(wait, FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_YIELD) {
            return Err(Errno::NOSYS);
        }
        let raw = fid_eq {
            fid: fid_of(FI_CLASS_EQ, context, &FID),
            ops: &OPS,
        };
        let inner = Arc::new(EventQueue {
            events: Mutex::default(),
            more: Condvar::new(),
            can_wait: wait != FI_WAIT_NONE,
            _fabric: fabric.inner.clone(),
        });
        // SAFETY:
        // - not null, so a place for a pointer.
        unsafe { put(queue, Object::create(raw, inner)) }
    })
}

impl EventQueue {
    fn lock(&self) -> MutexGuard<'_, Events> {
        self.events.lock()
    }

    fn push(&self, event: u32, bytes: Box<[u8]>) {
        self.lock().events.push_back((event, bytes));
        self.more.notify_all();
    }

    /// Tells of an event of an object.
    pub fn tell(&self, event: u32, fid: *mut fid, context: *mut c_void, data: u64) {
        let entry = fi_eq_entry { fid, context, data };
        // SAFETY:
        // - a structure of two pointers and a word, without gaps.
        let bytes: [u8; size_of::<fi_eq_entry>()] = unsafe { std::mem::transmute(entry) };
        self.push(event, Box::new(bytes));
    }

    /// Tells of a failure.
    pub fn fail(&self, fid: *mut fid, context: *mut c_void, data: u64, errno: i32) {
        self.lock().failures.push_back(Failure {
            fid: fid.addr(),
            context: context.addr(),
            data,
            errno,
        });
        self.more.notify_all();
    }

    /// Before a wait. Errors: [`Errno::AGAIN`] if there is something to read.
    pub fn arm(&self) -> Result<()> {
        let events = self.lock();
        if events.events.is_empty() && events.failures.is_empty() {
            Ok(())
        } else {
            Err(Errno::AGAIN)
        }
    }
}

/// # Safety
/// The arguments of fi_eq_read(3).
unsafe fn take(
    events: &mut Events,
    event: *mut u32,
    buffer: *mut c_void,
    len: usize,
    flags: u64,
) -> Result<usize> {
    if !events.failures.is_empty() {
        return Err(Errno::AVAIL);
    }
    let (kind, bytes) = events.events.front().ok_or(Errno::AGAIN)?;
    if bytes.len() > len {
        return Err(Errno::TOOSMALL);
    }
    given(buffer)?;
    // SAFETY:
    // - the caller's word; the buffer is long enough.
    unsafe {
        put(event, *kind)?;
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), bytes.len());
    }
    let len = bytes.len();
    if flags & FI_PEEK == 0 {
        events.events.pop_front();
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
    // - our caller's arguments.
    number(|| unsafe {
        let queue = &EventObject::at(queue)?.inner;
        take(&mut queue.lock(), event, buffer, len, flags)
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
        // - an event queue, by the table.
        let queue = unsafe { &EventObject::at(queue)?.inner };
        if !queue.can_wait {
            return Err(Errno::INVAL);
        }
        let end = u64::try_from(timeout)
            .ok()
            .map(|millis| Instant::now() + Duration::from_millis(millis));
        let mut events = queue.lock();
        while events.events.is_empty() && events.failures.is_empty() {
            let left = match end {
                None => Duration::from_secs(1),
                Some(end) => end.saturating_duration_since(Instant::now()),
            };
            if left.is_zero() {
                return Err(Errno::AGAIN);
            }
            queue.more.wait_for(&mut events, left);
        }
        // SAFETY:
        // - our caller's arguments.
        unsafe { take(&mut events, event, buffer, len, flags) }
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
        // - an event queue, and as many bytes, by the interface.
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
        // - an event queue, by the table, and a place for an entry, by the interface.
        unsafe {
            let queue = &EventObject::at(queue)?.inner;
            given(entry)?;
            let failure = queue.lock().failures.pop_front().ok_or(Errno::AGAIN)?;
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
    // - the caller's buffer with its length.
    unsafe { super::queue::text(errno, buffer, len) }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    code(|| {
        // SAFETY:
        // - an event queue, by the table that this function is in.
        let object = unsafe { EventObject::at(fid) }?;
        if !is_free(&object.inner) {
            return Err(Errno::BUSY);
        }
        // SAFETY:
        // - nobody has it any more but the caller, who gives it up.
        unsafe { EventObject::destroy(fid) };
        Ok(())
    })
}
