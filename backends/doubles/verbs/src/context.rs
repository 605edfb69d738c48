//! Opens and closes devices, and returns asynchronous events.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use unipgas_verbs_sys::*;

use crate::engine::NicEngine;
use crate::names::{fail, set_errno};
use crate::nic::{Nic, Subject};
use crate::{cq, device, faults, fork, pairs, post, recv};

/// The value of `abi_compat` by which users recognize an extended context.
const IS_EXTENDED: *mut c_void = ptr::without_provenance_mut(usize::MAX);

/// Users get the address of its `verbs.context`.
#[repr(C)]
struct Context {
    verbs: verbs_context,
    nic: Arc<Nic>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

fn whole(context: *mut ibv_context) -> *mut Context {
    context
        .wrapping_byte_sub(offset_of!(verbs_context, context))
        .cast()
}

/// # Safety
/// The context is open.
pub unsafe fn nic_of<'a>(context: *mut ibv_context) -> &'a Arc<Nic> {
    // SAFETY:
    // - it is a field of a `Context`, which lives until it is closed.
    unsafe { &(*whole(context)).nic }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(pointer: *mut ibv_device) -> *mut ibv_context {
    fork::watch();
    let device = device::of(pointer);
    let engine = match NicEngine::open(device) {
        Ok(engine) => engine,
        Err(error) => return fail(error.raw_os_error()),
    };
    let nic = engine.nic.clone();
    let name = format!("nic-{:x}", nic.number);
    // The program's own threads handle signals.
    let thread = without_signals(|| {
        std::thread::Builder::new().name(name).spawn(move || {
            let _guard = AbortOnPanic;
            engine.run();
        })
    });
    let Ok(thread) = thread else {
        return fail(libc::EAGAIN);
    };
    // SAFETY:
    // - zero is valid in all its fields.
    let mut verbs: verbs_context = unsafe { std::mem::zeroed() };
    verbs.query_device_ex = Some(query_device_ex);
    verbs.sz = size_of::<verbs_context>();
    verbs.context.device = pointer;
    verbs.context.ops.poll_cq = Some(cq::poll);
    verbs.context.ops.req_notify_cq = Some(cq::request_notification);
    verbs.context.ops.post_srq_recv = Some(recv::post_srq_recv);
    verbs.context.ops.post_send = Some(post::post_send);
    verbs.context.ops.post_recv = Some(pairs::post_recv);
    verbs.context.cmd_fd = -1;
    verbs.context.async_fd = nic.events.fd();
    verbs.context.num_comp_vectors = 1;
    verbs.context.abi_compat = IS_EXTENDED;
    let context = Box::into_raw(Box::new(Context {
        verbs,
        nic: nic.clone(),
        thread: Mutex::new(Some(thread)),
    }));
    let context = context
        .wrapping_byte_add(offset_of!(verbs_context, context))
        .cast();
    nic.context.store(context, SeqCst);
    faults::opened(&nic);
    context
}

/// A panic of the NIC's thread ends the process, which would otherwise wait forever.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// Threads that `begin` starts have all signals blocked.
fn without_signals<T>(begin: impl FnOnce() -> T) -> T {
    // SAFETY:
    // - both sets are on the stack, and the old one is restored.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let begun = begin();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        begun
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    // SAFETY:
    // - the caller gives an open context, and does not use it again.
    let nic = unsafe { nic_of(context) }.clone();
    if nic.is_parents() {
        return 0;
    }
    faults::closed(&nic);
    nic.ask(crate::nic::NicTask::Stop);
    // SAFETY:
    // - `ibv_open_device` made it, and the NIC's thread does not use it.
    let whole = unsafe { Box::from_raw(whole(context)) };
    if let Some(thread) = whole.thread.lock().take() {
        let _ = thread.join();
    }
    0
}

unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    _input: *const c_void,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    if size < size_of::<ibv_device_attr>() {
        return libc::EINVAL;
    }
    // SAFETY:
    // - the caller gives an open context.
    let device = unsafe { nic_of(context) }.device;
    // SAFETY:
    // - zero is valid in all its fields.
    let mut known: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
    known.orig_attr = device.attributes();
    known.phys_port_cnt_ex = device.config.ports.into();
    if device.config.odp {
        let rc = IBV_ODP_SUPPORT_SEND
            | IBV_ODP_SUPPORT_RECV
            | IBV_ODP_SUPPORT_WRITE
            | IBV_ODP_SUPPORT_READ
            | IBV_ODP_SUPPORT_ATOMIC
            | IBV_ODP_SUPPORT_SRQ_RECV;
        known.odp_caps.general_caps = IBV_ODP_SUPPORT.into();
        known.odp_caps.per_transport_caps = [rc, 0, 0];
    }
    let len = size.min(size_of::<ibv_device_attr_ex>());
    // SAFETY:
    // - the caller gives a buffer of this size.
    unsafe { ptr::copy_nonoverlapping((&raw const known).cast::<u8>(), attr.cast(), len) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    // SAFETY:
    // - the caller gives an open context.
    let nic = unsafe { nic_of(context) };
    let (event_type, subject) = match nic.events.take() {
        Ok(taken) => taken,
        Err(error) => {
            set_errno(error.raw_os_error());
            return -1;
        }
    };
    let element = match subject {
        Subject::Qp(qp) => {
            qp.taken.take();
            qp.object.load(SeqCst).cast()
        }
        Subject::Cq(cq) => {
            cq.taken.take();
            cq.object.load(SeqCst).cast()
        }
        Subject::Port(number) => ptr::without_provenance_mut(number.into()),
        Subject::Device => ptr::null_mut(),
    };
    // SAFETY:
    // - the caller gives a valid pointer for the result.
    unsafe {
        event.write(ibv_async_event {
            element,
            event_type,
        })
    };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY:
    // - the caller gives an event that `ibv_get_async_event` wrote, and destroys its object only afterwards.
    unsafe {
        let element = (*event).element;
        match (*event).event_type {
            IBV_EVENT_CQ_ERR => cq::of(element.cast()).taken.acknowledge(1),
            IBV_EVENT_QP_FATAL
            | IBV_EVENT_QP_REQ_ERR
            | IBV_EVENT_QP_ACCESS_ERR
            | IBV_EVENT_COMM_EST
            | IBV_EVENT_SQ_DRAINED
            | IBV_EVENT_QP_LAST_WQE_REACHED => pairs::of(element.cast()).taken.acknowledge(1),
            _ => {}
        }
    }
}
