//! Queues of events with a descriptor to poll, and the counts of events that are taken but not acknowledged.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};

use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

/// The descriptor counts the waiting events. Its user decides by O_NONBLOCK whether `take` blocks.
pub(crate) struct EventQueue<T> {
    fd: OwnedFd,
    waiting: Mutex<VecDeque<T>>,
}

impl<T> EventQueue<T> {
    pub fn new() -> Result<Self, Errno> {
        Ok(EventQueue {
            fd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?,
            waiting: Mutex::default(),
        })
    }

    pub fn fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    pub fn push(&self, event: T) {
        let mut waiting = self.waiting.lock();
        waiting.push_back(event);
        // Fails only for 2^64 events.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Errors: no event waits and the descriptor is nonblocking; a signal.
    pub fn take(&self) -> Result<T, Errno> {
        loop {
            rustix::io::read(&self.fd, &mut [0; 8])?;
            // A counted event may have been withdrawn.
            if let Some(event) = self.waiting.lock().pop_front() {
                return Ok(event);
            }
        }
    }

    /// Removes matching events that are not taken yet.
    pub fn withdraw(&self, of: impl Fn(&T) -> bool) {
        let mut waiting = self.waiting.lock();
        let before = waiting.len();
        waiting.retain(|event| !of(event));
        for _ in waiting.len()..before {
            let mut polled = [PollFd::new(&self.fd, PollFlags::IN)];
            if poll(&mut polled, Some(&Timespec::default())) == Ok(1) {
                let _ = rustix::io::read(&self.fd, &mut [0; 8]);
            }
        }
    }
}

/// Count of the taken events of one object. The object is destroyed only after all are acknowledged.
#[derive(Default)]
pub(crate) struct Taken {
    unacknowledged: Mutex<u64>,
    changed: Condvar,
}

impl Taken {
    pub fn take(&self) {
        *self.unacknowledged.lock() += 1;
    }

    pub fn acknowledge(&self, count: u64) {
        let mut left = self.unacknowledged.lock();
        *left = left.saturating_sub(count);
        self.changed.notify_all();
    }

    /// Waits until all are acknowledged.
    pub fn wait(&self) {
        let mut left = self.unacknowledged.lock();
        while *left > 0 {
            self.changed.wait(&mut left);
        }
    }
}
