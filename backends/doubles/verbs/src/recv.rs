//! Receive queues, of one queue pair or shared.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Relaxed, SeqCst},
};

use parking_lot::Mutex;
use unipgas_verbs_sys::*;

use crate::context::nic_of;
use crate::counters::{self, Count};
use crate::names::fail;
use crate::nic::Nic;
use crate::pd::{self, Pd};

/// A posted buffer.
pub(crate) struct PostedRecv {
    pub wr_id: u64,
    pub list: Vec<ibv_sge>,
    pub len: u64,
}

struct Inner {
    buffers: VecDeque<PostedRecv>,
    /// Number of posted buffers with completions that are not polled yet.
    used: u32,
    max_wr: u32,
}

pub(crate) struct RecvQueue {
    nic: Arc<Nic>,
    pub pd: Arc<Pd>,
    max_sge: u32,
    inner: Mutex<Inner>,
    /// Number of queue pairs that use the queue.
    pub users: AtomicU32,
}

impl RecvQueue {
    pub fn new(nic: &Arc<Nic>, pd: &Arc<Pd>, max_wr: u32, max_sge: u32) -> Self {
        RecvQueue {
            nic: nic.clone(),
            pd: pd.clone(),
            max_sge,
            inner: Mutex::new(Inner {
                buffers: VecDeque::new(),
                used: 0,
                max_wr,
            }),
            users: AtomicU32::new(0),
        }
    }

    pub fn take(&self) -> Option<PostedRecv> {
        self.inner.lock().buffers.pop_front()
    }

    pub fn take_all(&self) -> VecDeque<PostedRecv> {
        std::mem::take(&mut self.inner.lock().buffers)
    }

    /// Frees a slot: a completion was polled.
    pub fn free(&self) {
        let mut inner = self.inner.lock();
        inner.used = inner.used.saturating_sub(1);
    }

    /// Removes all buffers: the queue pair is reset.
    pub fn clear(&self) {
        let mut inner = self.inner.lock();
        inner.buffers.clear();
        inner.used = 0;
    }

    /// # Safety
    /// `first` is a list of work requests, and `bad` is valid for a write.
    pub unsafe fn post(&self, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
        counters::count(Count::RecvDoorbells);
        let mut at = first;
        let mut inner = self.inner.lock();
        while !at.is_null() {
            // SAFETY:
            // - contract of this function.
            let wr = unsafe { &*at };
            let count = u32::try_from(wr.num_sge).unwrap_or(u32::MAX);
            let error = match () {
                () if count > self.max_sge => libc::EINVAL,
                () if inner.used >= inner.max_wr => libc::ENOMEM,
                () => 0,
            };
            if error != 0 {
                // SAFETY:
                // - contract of this function.
                unsafe { *bad = at };
                return error;
            }
            // SAFETY:
            // - the list has the length that the work request states.
            let list = unsafe { list(wr.sg_list, count) };
            let len = list.iter().map(|sge| u64::from(sge.length)).sum();
            inner.used += 1;
            inner.buffers.push_back(PostedRecv {
                wr_id: wr.wr_id,
                list,
                len,
            });
            counters::count(Count::RecvPosted);
            at = wr.next;
        }
        0
    }
}

/// # Safety
/// `first` points to `count` elements, or `count` is 0.
pub unsafe fn list(first: *const ibv_sge, count: u32) -> Vec<ibv_sge> {
    match count {
        0 => Vec::new(),
        // SAFETY:
        // - contract of this function.
        count => unsafe { std::slice::from_raw_parts(first, count as usize) }.to_vec(),
    }
}

/// Users hold a pointer to the first field.
#[repr(C)]
struct Object {
    ibv: ibv_srq,
    queue: Arc<RecvQueue>,
}

/// # Safety
/// The queue is not destroyed.
pub unsafe fn of<'a>(queue: *mut ibv_srq) -> &'a Arc<RecvQueue> {
    // SAFETY:
    // - it lies at the beginning of an `Object`.
    unsafe { &(*queue.cast::<Object>()).queue }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_srq(
    domain: *mut ibv_pd,
    init: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    // SAFETY:
    // - the caller gives a domain of an open context, and attributes.
    let (context, pd, init) = unsafe { ((*domain).context, pd::of(domain), &mut *init) };
    // SAFETY:
    // - as above.
    let nic = unsafe { nic_of(context) };
    if !nic.is_usable() {
        return fail(libc::EIO);
    }
    let config = nic.device.config;
    let asked = &mut init.attr;
    if config.max_srq == 0 {
        return fail(libc::EOPNOTSUPP);
    }
    if !(1..=config.max_srq_wr).contains(&asked.max_wr) || asked.max_sge > config.max_sge {
        return fail(libc::EINVAL);
    }
    if nic.srqs.fetch_add(1, Relaxed) >= config.max_srq {
        nic.srqs.fetch_sub(1, Relaxed);
        return fail(libc::ENOMEM);
    }
    asked.max_sge = asked.max_sge.max(1);
    pd.users.fetch_add(1, SeqCst);
    let queue = RecvQueue::new(nic, pd, asked.max_wr, asked.max_sge);
    let queue = Arc::new(queue);
    // SAFETY:
    // - zero is valid in all its fields.
    let mut ibv: ibv_srq = unsafe { std::mem::zeroed() };
    ibv.context = context;
    ibv.srq_context = init.srq_context;
    ibv.pd = domain;
    ibv.handle = nic.handle();
    Box::into_raw(Box::new(Object { ibv, queue })).cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_srq(pointer: *mut ibv_srq) -> c_int {
    // SAFETY:
    // - the caller gives a queue that is not destroyed.
    let queue = unsafe { of(pointer) }.clone();
    if queue.nic.is_parents() {
        return 0;
    }
    if queue.users.load(SeqCst) > 0 {
        return libc::EBUSY;
    }
    queue.nic.srqs.fetch_sub(1, Relaxed);
    queue.pd.users.fetch_sub(1, SeqCst);
    // SAFETY:
    // - `ibv_create_srq` made it, and the caller does not use it again.
    drop(unsafe { Box::from_raw(pointer.cast::<Object>()) });
    0
}

pub unsafe extern "C" fn post_srq_recv(
    queue: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY:
    // - the caller gives a queue that is not destroyed, and arguments that meet the contract of `post`.
    unsafe {
        let queue = of(queue);
        if !queue.nic.is_usable() {
            *bad = first;
            return libc::EIO;
        }
        queue.post(first, bad)
    }
}
