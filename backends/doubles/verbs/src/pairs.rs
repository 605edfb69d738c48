//! Creates, queries and destroys queue pairs, and posts their receive buffers.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::SeqCst};

use parking_lot::Mutex;
use unipgas_verbs_sys::*;

use crate::context::nic_of;
use crate::counters::{self, Count};
use crate::events::Taken;
use crate::faults;
use crate::names::fail;
use crate::nic::{Nic, Subject};
use crate::qp::{Qp, QpState, Receiver, Requester};
use crate::recv::{self, RecvQueue};
use crate::{cq, pd};

/// Users hold a pointer to the first field.
#[repr(C)]
struct Object {
    ibv: ibv_qp,
    qp: Arc<Qp>,
}

/// # Safety
/// The queue pair is not destroyed.
pub unsafe fn of<'a>(qp: *mut ibv_qp) -> &'a Arc<Qp> {
    // SAFETY:
    // - it lies at the beginning of an `Object`.
    unsafe { &(*qp.cast::<Object>()).qp }
}

/// Errors: EINVAL or another error code, if the device cannot provide such a queue pair.
fn check(nic: &Nic, init: &ibv_qp_init_attr) -> Result<(), c_int> {
    let (config, cap) = (nic.device.config, &init.cap);
    let has_srq = !init.srq.is_null();
    match () {
        () if !nic.is_usable() => Err(libc::EIO),
        () if faults::takes_qp() => Err(libc::ENOMEM),
        () if init.qp_type != IBV_QPT_RC => Err(libc::EOPNOTSUPP),
        () if init.send_cq.is_null() || init.recv_cq.is_null() => Err(libc::EINVAL),
        () if cap.max_send_wr > config.max_qp_wr
            || cap.max_send_sge > config.max_sge
            || cap.max_inline_data > config.inline =>
        {
            Err(libc::EINVAL)
        }
        () if !has_srq
            && (cap.max_recv_wr > config.max_qp_wr || cap.max_recv_sge > config.max_sge) =>
        {
            Err(libc::EINVAL)
        }
        () => Ok(()),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_qp(
    domain: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY:
    // - the caller gives a domain of an open context, and attributes.
    let (context, pd, init) = unsafe { ((*domain).context, pd::of(domain), &mut *init) };
    // SAFETY:
    // - as above.
    let nic = unsafe { nic_of(context) };
    if let Err(error) = check(nic, init) {
        return fail(error);
    }
    let is_shared = !init.srq.is_null();
    if is_shared {
        (init.cap.max_recv_wr, init.cap.max_recv_sge) = (0, 0);
    }
    let cap = init.cap;
    // SAFETY:
    // - queues that the caller gives are not destroyed, and `check` refused null completion queues.
    let (send_cq, recv_cq, recv) = unsafe {
        let recv = match is_shared {
            true => recv::of(init.srq).clone(),
            false => {
                let own = RecvQueue::new(nic, pd, cap.max_recv_wr, cap.max_recv_sge);
                Arc::new(own)
            }
        };
        (
            cq::of(init.send_cq).clone(),
            cq::of(init.recv_cq).clone(),
            recv,
        )
    };
    // SAFETY:
    // - zero is valid in all its fields.
    let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
    attr.cap = cap;
    let made = nic.add_qp(|number| {
        Arc::new(Qp {
            nic: nic.clone(),
            number,
            pd: pd.clone(),
            all_signaled: init.sq_sig_all != 0,
            cap,
            send_cq,
            recv_cq,
            recv,
            is_shared,
            freed: AtomicU64::new(0),
            is_dirty: AtomicBool::new(false),
            state: Mutex::new(QpState {
                state: IBV_QPS_RESET,
                attr,
                is_over: false,
                sender: Requester::default(),
                receiver: Receiver::default(),
            }),
            object: AtomicPtr::default(),
            taken: Taken::default(),
        })
    });
    let Some(qp) = made else {
        return fail(libc::ENOMEM);
    };
    qp.pd.users.fetch_add(1, SeqCst);
    qp.send_cq.users.fetch_add(1, SeqCst);
    qp.recv_cq.users.fetch_add(1, SeqCst);
    qp.recv.users.fetch_add(1, SeqCst);
    counters::count(Count::Qp);
    // SAFETY:
    // - zero is valid in all its fields.
    let mut ibv: ibv_qp = unsafe { std::mem::zeroed() };
    ibv.context = context;
    ibv.qp_context = init.qp_context;
    ibv.pd = domain;
    ibv.send_cq = init.send_cq;
    ibv.recv_cq = init.recv_cq;
    ibv.srq = init.srq;
    ibv.handle = nic.handle();
    ibv.qp_num = qp.number;
    ibv.state = IBV_QPS_RESET;
    ibv.qp_type = init.qp_type;
    let object = Box::into_raw(Box::new(Object {
        ibv,
        qp: qp.clone(),
    }));
    qp.object.store(object.cast(), SeqCst);
    object.cast()
}

/// Waits until the program has acknowledged all its events. Its unpolled completions are removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_qp(pointer: *mut ibv_qp) -> c_int {
    // SAFETY:
    // - the caller gives a queue pair that is not destroyed.
    let qp = unsafe { of(pointer) }.clone();
    let nic = &qp.nic;
    if nic.is_parents() {
        return 0;
    }
    nic.qps.write().remove(&qp.number);
    {
        let mut state = qp.state.lock();
        qp.reset(&mut state);
        state.is_over = true;
    }
    nic.events
        .withdraw(|(_, subject)| matches!(subject, Subject::Qp(of) if Arc::ptr_eq(of, &qp)));
    qp.taken.wait();
    qp.pd.users.fetch_sub(1, SeqCst);
    qp.send_cq.users.fetch_sub(1, SeqCst);
    qp.recv_cq.users.fetch_sub(1, SeqCst);
    qp.recv.users.fetch_sub(1, SeqCst);
    // SAFETY:
    // - `ibv_create_qp` made it, and the caller does not use it again.
    drop(unsafe { Box::from_raw(pointer.cast::<Object>()) });
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp(
    pointer: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY:
    // - the caller gives a queue pair that is not destroyed.
    let qp = unsafe { of(pointer) };
    if qp.nic.is_parents() {
        return libc::EIO;
    }
    let state = qp.state.lock();
    let mut known = state.attr;
    known.qp_state = state.state;
    known.cur_qp_state = state.state;
    // SAFETY:
    // - the caller gives valid pointers for both results.
    unsafe {
        attr.write(known);
        init.write(ibv_qp_init_attr {
            qp_context: (*pointer).qp_context,
            send_cq: (*pointer).send_cq,
            recv_cq: (*pointer).recv_cq,
            srq: (*pointer).srq,
            cap: qp.cap,
            qp_type: IBV_QPT_RC,
            sq_sig_all: qp.all_signaled.into(),
        });
        (*pointer).state = state.state;
    }
    0
}

pub unsafe extern "C" fn post_recv(
    pointer: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY:
    // - the caller gives a queue pair that is not destroyed.
    let qp = unsafe { of(pointer) };
    let error = match () {
        () if !qp.nic.is_usable() => libc::EIO,
        () if qp.is_shared || qp.state.lock().state == IBV_QPS_RESET => libc::EINVAL,
        // SAFETY:
        // - the contract of `ibv_post_recv` includes the contract of `post_own`.
        () => return unsafe { post_own(qp, first, bad) },
    };
    // SAFETY:
    // - the caller gives a valid pointer for the result.
    unsafe { *bad = first };
    error
}

/// # Safety
/// The contract of [`RecvQueue::post`].
unsafe fn post_own(qp: &Arc<Qp>, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY:
    // - contract of this function.
    let error = unsafe { qp.recv.post(first, bad) };
    if qp.state.lock().state == IBV_QPS_ERR {
        qp.flush(qp.recv.take_all());
    }
    error
}
