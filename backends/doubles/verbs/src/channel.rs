//! Completion channels.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use unipgas_verbs_sys::*;

use crate::context::nic_of;
use crate::cq::{self, Cq};
use crate::events::EventQueue;
use crate::names::{fail, set_errno};

pub(crate) struct Channel {
    pub events: EventQueue<Arc<Cq>>,
    pub users: AtomicU32,
}

/// Users hold a pointer to the first field.
#[repr(C)]
struct Object {
    ibv: ibv_comp_channel,
    channel: Arc<Channel>,
}

/// # Safety
/// The channel is not destroyed.
pub unsafe fn of<'a>(channel: *mut ibv_comp_channel) -> &'a Arc<Channel> {
    // SAFETY:
    // - it lies at the beginning of an `Object`.
    unsafe { &(*channel.cast::<Object>()).channel }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    // SAFETY:
    // - the caller gives an open context.
    if !unsafe { nic_of(context) }.is_usable() {
        return fail(libc::EIO);
    }
    let events = match EventQueue::new() {
        Ok(events) => events,
        Err(error) => return fail(error.raw_os_error()),
    };
    let channel = Arc::new(Channel {
        events,
        users: AtomicU32::new(0),
    });
    let ibv = ibv_comp_channel {
        context,
        fd: channel.events.fd(),
        refcnt: 0,
    };
    Box::into_raw(Box::new(Object { ibv, channel })).cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY:
    // - the caller gives a channel that is not destroyed.
    if unsafe { of(channel) }.users.load(SeqCst) > 0 {
        return libc::EBUSY;
    }
    // SAFETY:
    // - `ibv_create_comp_channel` made it; the caller does not use it again, and `users` is 0.
    drop(unsafe { Box::from_raw(channel.cast::<Object>()) });
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    queue: *mut *mut ibv_cq,
    queue_context: *mut *mut c_void,
) -> c_int {
    // SAFETY:
    // - the caller gives a channel that is not destroyed.
    let taken = unsafe { of(channel) }.events.take();
    match taken {
        Ok(cq) => {
            cq.taken.take();
            let object = cq.object.load(SeqCst);
            // SAFETY:
            // - the queue is not destroyed before its event is acknowledged;
            // - the caller gives valid pointers for both results.
            unsafe {
                *queue = object;
                *queue_context = (*object).cq_context;
            }
            0
        }
        Err(error) => {
            set_errno(error.raw_os_error());
            -1
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_cq_events(queue: *mut ibv_cq, count: u32) {
    // SAFETY:
    // - the caller gives a queue that is not destroyed.
    unsafe { cq::of(queue) }.taken.acknowledge(count.into());
}

/// The channel behind a pointer. Null gives `None`: the queue has no channel.
///
/// # Safety
/// The channel is null, or is not destroyed.
pub unsafe fn optional(channel: *mut ibv_comp_channel) -> Option<Arc<Channel>> {
    // SAFETY:
    // - contract of this function, and it is not null here.
    (!ptr::eq(channel, ptr::null())).then(|| unsafe { of(channel) }.clone())
}
