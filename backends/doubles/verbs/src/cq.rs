//! Completion queues.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

use parking_lot::Mutex;
use unipgas_verbs_sys::*;

use crate::channel::{self, Channel};
use crate::context::nic_of;
use crate::counters::{self, Count};
use crate::events::Taken;
use crate::names::{fail, set_errno};
use crate::nic::{Nic, NicTask, Subject};
use crate::qp::Qp;
use crate::recv::RecvQueue;

/// Number of empty polls after which the polling thread yields the CPU.
const PATIENCE: u32 = 64;

/// Slots that become free when a completion is polled.
pub(crate) enum Frees {
    /// All slots of the send queue up to this one.
    Send(u64),
    /// One slot of the receive queue.
    Recv(Arc<RecvQueue>),
}

pub(crate) struct QueuedCompletion {
    pub wc: ibv_wc,
    pub qp: Arc<Qp>,
    pub frees: Frees,
    /// It also wakes a channel that is armed for solicited completions only.
    pub solicited: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Armed {
    #[default]
    No,
    Solicited,
    Next,
}

#[derive(Default)]
struct Inner {
    entries: VecDeque<QueuedCompletion>,
    depth: usize,
    armed: Armed,
    overrun: bool,
}

pub(crate) struct Cq {
    nic: Arc<Nic>,
    inner: Mutex<Inner>,
    /// Read without the lock: empty polls do not delay other threads.
    len: AtomicUsize,
    /// Number of empty polls since the last completion.
    in_vain: AtomicU32,
    channel: Option<Arc<Channel>>,
    pub object: AtomicPtr<ibv_cq>,
    pub users: AtomicU32,
    pub taken: Taken,
}

impl Cq {
    pub fn push(self: &Arc<Self>, entry: QueuedCompletion) {
        let mut inner = self.inner.lock();
        if inner.entries.len() >= inner.depth {
            if !inner.overrun {
                inner.overrun = true;
                self.nic.raise(IBV_EVENT_CQ_ERR, Subject::Cq(self.clone()));
                self.nic.ask(NicTask::Overrun(self.clone()));
            }
            return;
        }
        let wakes = match inner.armed {
            Armed::No => false,
            Armed::Solicited => entry.solicited || entry.wc.status != IBV_WC_SUCCESS,
            Armed::Next => true,
        };
        inner.entries.push_back(entry);
        self.len.store(inner.entries.len(), Release);
        if wakes {
            inner.armed = Armed::No;
            if let Some(channel) = &self.channel {
                channel.events.push(self.clone());
            }
        }
    }

    /// Removes the completions of a queue pair that is reset or destroyed.
    pub fn forget(&self, qp: &Arc<Qp>) {
        let mut inner = self.inner.lock();
        inner.entries.retain(|entry| {
            let of_it = Arc::ptr_eq(&entry.qp, qp);
            if let (true, Frees::Recv(queue)) = (of_it, &entry.frees) {
                queue.free();
            }
            !of_it
        });
        self.len.store(inner.entries.len(), Release);
    }

    fn pop(&self, most: usize) -> Vec<QueuedCompletion> {
        if self.len.load(Acquire) == 0 {
            // A real NIC needs no CPU. This one may need the CPU that the poll occupies.
            if self.in_vain.fetch_add(1, Relaxed) >= PATIENCE {
                self.in_vain.store(0, Relaxed);
                std::thread::yield_now();
            }
            return Vec::new();
        }
        self.in_vain.store(0, Relaxed);
        let mut inner = self.inner.lock();
        let count = most.min(inner.entries.len());
        let popped = inner.entries.drain(..count).collect();
        self.len.store(inner.entries.len(), Release);
        popped
    }
}

/// Users hold a pointer to the first field.
#[repr(C)]
struct Object {
    ibv: ibv_cq,
    cq: Arc<Cq>,
}

/// # Safety
/// The queue is not destroyed.
pub unsafe fn of<'a>(queue: *mut ibv_cq) -> &'a Arc<Cq> {
    // SAFETY:
    // - it lies at the beginning of an `Object`.
    unsafe { &(*queue.cast::<Object>()).cq }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    queue_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    // SAFETY:
    // - the caller gives an open context.
    let nic = unsafe { nic_of(context) };
    if !nic.is_usable() {
        return fail(libc::EIO);
    }
    let most = nic.device.config.max_cqe as c_int;
    if !(1..=most).contains(&cqe) || vector != 0 {
        return fail(libc::EINVAL);
    }
    // SAFETY:
    // - the caller gives null or a channel that is not destroyed.
    let shared = unsafe { channel::optional(channel) };
    if let Some(channel) = &shared {
        channel.users.fetch_add(1, SeqCst);
    }
    let cq = Arc::new(Cq {
        nic: nic.clone(),
        inner: Mutex::new(Inner {
            depth: cqe as usize,
            ..Inner::default()
        }),
        len: AtomicUsize::new(0),
        in_vain: AtomicU32::new(0),
        channel: shared,
        object: AtomicPtr::default(),
        users: AtomicU32::new(0),
        taken: Taken::default(),
    });
    // SAFETY:
    // - zero is valid in all its fields.
    let mut ibv: ibv_cq = unsafe { std::mem::zeroed() };
    ibv.context = context;
    ibv.channel = channel;
    ibv.cq_context = queue_context;
    ibv.handle = nic.handle();
    ibv.cqe = cqe;
    let object = Box::into_raw(Box::new(Object {
        ibv,
        cq: cq.clone(),
    }));
    cq.object.store(object.cast(), SeqCst);
    object.cast()
}

/// Waits until the program has acknowledged all its events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_cq(queue: *mut ibv_cq) -> c_int {
    // SAFETY:
    // - the caller gives a queue that is not destroyed.
    let cq = unsafe { of(queue) }.clone();
    if cq.nic.is_parents() {
        return 0;
    }
    if cq.users.load(SeqCst) > 0 {
        return libc::EBUSY;
    }
    if let Some(channel) = &cq.channel {
        channel.events.withdraw(|of| Arc::ptr_eq(of, &cq));
        channel.users.fetch_sub(1, SeqCst);
    }
    cq.nic
        .events
        .withdraw(|(_, subject)| matches!(subject, Subject::Cq(of) if Arc::ptr_eq(of, &cq)));
    cq.taken.wait();
    // SAFETY:
    // - `ibv_create_cq` made it, and the caller does not use it again.
    drop(unsafe { Box::from_raw(queue.cast::<Object>()) });
    0
}

pub unsafe extern "C" fn poll(queue: *mut ibv_cq, most: c_int, into: *mut ibv_wc) -> c_int {
    // SAFETY:
    // - the caller gives a queue that is not destroyed.
    let cq = unsafe { of(queue) };
    if cq.nic.is_parents() || most < 0 {
        set_errno(libc::EIO);
        return -1;
    }
    counters::count(Count::Polls);
    let popped = cq.pop(most as usize);
    counters::add(Count::Completions, popped.len() as u64);
    for (at, entry) in popped.iter().enumerate() {
        // SAFETY:
        // - the caller gives an array of `most` elements.
        unsafe { into.add(at).write(entry.wc) };
        match &entry.frees {
            Frees::Send(slot) => {
                entry.qp.freed.fetch_max(*slot, SeqCst);
            }
            Frees::Recv(queue) => queue.free(),
        }
    }
    popped.len() as c_int
}

pub unsafe extern "C" fn request_notification(queue: *mut ibv_cq, solicited: c_int) -> c_int {
    // SAFETY:
    // - the caller gives a queue that is not destroyed.
    let cq = unsafe { of(queue) };
    if cq.nic.is_parents() {
        return libc::EIO;
    }
    let mut inner = cq.inner.lock();
    if solicited == 0 {
        inner.armed = Armed::Next;
    } else if inner.armed == Armed::No {
        inner.armed = Armed::Solicited;
    }
    0
}
