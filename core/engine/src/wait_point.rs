//! Waits of threads for an object of an interface: in calls, or at a descriptor.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use unipgas_base::waiters::Waiters;
use unipgas_base::{Deadline, Error, Result, descriptor, waits};

use crate::engine::Engine;

/// A descriptor for waits. It is not readable yet.
fn event() -> Result<OwnedFd> {
    descriptor::above(|| eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC))
        .map_err(|e| Error::os("eventfd", e))
}

/// The waits for an object.
#[derive(Default)]
pub struct WaitPoint {
    waiters: Waiters,
    descriptor: Option<OwnedFd>,
    /// The descriptor is not readable, and the next signal has to make it so.
    armed: AtomicBool,
}

impl WaitPoint {
    /// Waits with a descriptor. Errors: [`Error::Os`].
    pub fn with_descriptor() -> Result<Self> {
        Ok(WaitPoint {
            descriptor: Some(event()?),
            ..WaitPoint::default()
        })
    }

    /// Readable when the object is ready, after [`WaitPoint::arm`].
    pub fn descriptor(&self) -> Option<RawFd> {
        self.descriptor.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Prepares a wait for the descriptor. False: the object is `ready`, and the thread must not wait.
    pub fn arm(&self, engine: &Engine, ready: impl FnOnce() -> bool) -> bool {
        self.clear();
        if ready() {
            self.armed.store(false, Ordering::Release);
            return false;
        }
        // The progress thread may be asleep, and must poll once more.
        engine.ring();
        true
    }

    /// Makes the descriptor unreadable until the next signal. An object that calls this whenever it has nothing needs no [`WaitPoint::arm`].
    pub fn clear(&self) {
        if let Some(descriptor) = &self.descriptor {
            let _ = rustix::io::read(descriptor, &mut [0u8; 8]);
        }
        self.armed.store(true, Ordering::Release);
    }

    /// Whether a thread is about to wait for the descriptor.
    pub fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Acquire)
    }

    /// Makes the descriptor readable for a thread that waits for it.
    pub fn signal(&self) {
        if let Some(descriptor) = &self.descriptor
            && self.armed.swap(false, Ordering::AcqRel)
        {
            // A full eventfd is readable, too.
            let _ = rustix::io::write(descriptor, &1u64.to_ne_bytes());
        }
    }

    /// Waits in the call with this name until `found` returns a value. At intervals, `look` checks the liveness of peers. Errors:
    /// [`Error::Timeout`]; [`Error::Ended`] after [`WaitPoint::end`].
    pub fn wait<T>(
        &self,
        engine: &Engine,
        (call, deadline): (&'static str, Deadline),
        mut look: impl FnMut(),
        found: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        let _inside = self.waiters.enter();
        let mut check = || {
            waits::call(call);
            look();
            self.waiters.check()
        };
        engine.wait_for(deadline, &mut check, found)
    }

    /// Ends all waits in calls, before the object is closed.
    pub fn end(&self, engine: &Engine) {
        self.waiters.end(|| engine.ring());
    }
}
