//! An opened device: the state that its thread shares with the user's threads.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use unipgas_verbs_sys::*;

use crate::cq::Cq;
use crate::device::Device;
use crate::events::EventQueue;
use crate::fork;
use crate::memory::MemoryTable;
use crate::packet::{QPS_PER_NIC, qp_number};
use crate::qp::Qp;

/// The subject of an asynchronous event.
pub(crate) enum Subject {
    Qp(Arc<Qp>),
    Cq(Arc<Cq>),
    Port(u8),
    Device,
}

/// Tasks of the NIC's thread besides sending.
pub(crate) enum NicTask {
    /// The completion queue is overrun: its queue pairs fail.
    Overrun(Arc<Cq>),
    /// Report when all answers are sent.
    Flush(Arc<Flushed>),
    Stop,
}

#[derive(Default)]
pub(crate) struct Flushed {
    is_done: Mutex<bool>,
    changed: Condvar,
}

impl Flushed {
    pub fn done(&self) {
        *self.is_done.lock() = true;
        self.changed.notify_all();
    }
}

/// Wakes the NIC's thread.
struct Bell {
    dirty: Mutex<Vec<Arc<Qp>>>,
    jobs: Mutex<Vec<NicTask>>,
    sleeping: AtomicBool,
    fd: OwnedFd,
}

pub(crate) struct Nic {
    pub device: &'static Device,
    generation: u32,
    /// The NIC's number on the fabric.
    pub number: u32,
    pub context: AtomicPtr<ibv_context>,
    pub qps: RwLock<HashMap<u32, Arc<Qp>>>,
    next_qp: AtomicU32,
    pub memory: MemoryTable,
    pub events: EventQueue<(u32, Subject)>,
    /// The device has had a fatal error.
    pub is_dead: AtomicBool,
    pub handles: AtomicU32,
    pub srqs: AtomicU32,
    bell: Bell,
}

impl Nic {
    pub fn new(device: &'static Device, number: u32, seed: u32) -> Result<Self, Errno> {
        Ok(Nic {
            device,
            generation: fork::generation(),
            number,
            context: AtomicPtr::default(),
            qps: RwLock::default(),
            next_qp: AtomicU32::new(seed % QPS_PER_NIC),
            memory: MemoryTable::new(seed),
            events: EventQueue::new()?,
            is_dead: AtomicBool::new(false),
            handles: AtomicU32::new(1),
            srqs: AtomicU32::new(0),
            bell: Bell {
                dirty: Mutex::default(),
                jobs: Mutex::default(),
                sleeping: AtomicBool::new(false),
                fd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            },
        })
    }

    /// Whether an ancestor of this process opened the NIC. Its thread does not exist here, and its locks may be held forever.
    pub fn is_parents(&self) -> bool {
        self.generation != fork::generation()
    }

    pub fn is_usable(&self) -> bool {
        !self.is_parents() && !self.is_dead.load(SeqCst)
    }

    pub fn handle(&self) -> u32 {
        self.handles.fetch_add(1, Relaxed)
    }

    pub fn qp(&self, number: u32) -> Option<Arc<Qp>> {
        self.qps.read().get(&number).cloned()
    }

    pub fn all_qps(&self) -> Vec<Arc<Qp>> {
        let mut all: Vec<_> = self.qps.read().values().cloned().collect();
        all.sort_by_key(|qp| qp.number);
        all
    }

    /// Adds a queue pair. Numbers are assigned in sequence, so a number is not reused soon. `None`: the limit is reached.
    pub fn add_qp(&self, make: impl FnOnce(u32) -> Arc<Qp>) -> Option<Arc<Qp>> {
        let mut qps = self.qps.write();
        if qps.len() >= self.device.config.max_qp as usize {
            return None;
        }
        loop {
            let index = self.next_qp.fetch_add(1, Relaxed) % QPS_PER_NIC;
            let number = qp_number(self.number, index);
            if let Entry::Vacant(free) = qps.entry(number) {
                return Some(free.insert(make(number)).clone());
            }
        }
    }

    pub fn raise(&self, event: u32, subject: Subject) {
        self.events.push((event, subject));
    }

    /// Tells the NIC's thread that the queue pair has work.
    pub fn ring(&self, qp: &Arc<Qp>) {
        if !qp.is_dirty.swap(true, SeqCst) {
            self.bell.dirty.lock().push(qp.clone());
        }
        self.wake();
    }

    pub fn ring_all(&self) {
        for qp in self.all_qps() {
            self.ring(&qp);
        }
    }

    pub fn ask(&self, job: NicTask) {
        self.bell.jobs.lock().push(job);
        self.wake();
    }

    /// Waits until all answers that peers accept are sent.
    pub fn flush(&self, patience: Duration) {
        let flushed = Arc::new(Flushed::default());
        self.ask(NicTask::Flush(flushed.clone()));
        let mut is_done = flushed.is_done.lock();
        flushed
            .changed
            .wait_while_for(&mut is_done, |is_done| !*is_done, patience);
    }

    fn wake(&self) {
        if self.bell.sleeping.swap(false, SeqCst) {
            // The write fails only if the counter is full; then the thread wakes anyway.
            let _ = rustix::io::write(&self.bell.fd, &1u64.to_ne_bytes());
        }
    }

    /// The descriptor that wakes the NIC's thread. The thread reads it after it wakes.
    pub fn bell_fd(&self) -> impl AsFd + '_ {
        self.bell.fd.as_fd()
    }

    pub fn take_dirty(&self) -> Vec<Arc<Qp>> {
        let dirty = std::mem::take(&mut *self.bell.dirty.lock());
        for qp in &dirty {
            qp.is_dirty.store(false, SeqCst);
        }
        dirty
    }

    pub fn take_jobs(&self) -> Vec<NicTask> {
        std::mem::take(&mut *self.bell.jobs.lock())
    }

    /// Called before the NIC's thread sleeps. False: there is work.
    pub fn may_sleep(&self) -> bool {
        self.bell.sleeping.store(true, SeqCst);
        let idle = self.bell.dirty.lock().is_empty() && self.bell.jobs.lock().is_empty();
        if !idle {
            self.bell.sleeping.store(false, SeqCst);
        }
        idle
    }

    pub fn mark_awake(&self) {
        self.bell.sleeping.store(false, SeqCst);
    }

    /// Fatal error of the device: all later operations fail.
    pub fn die(&self) {
        if self.is_dead.swap(true, SeqCst) {
            return;
        }
        for qp in self.all_qps() {
            qp.fail();
        }
        self.raise(IBV_EVENT_DEVICE_FATAL, Subject::Device);
    }
}
