//! Waits for completion queues and counters, and the endpoints that make progress during a wait.

use std::sync::Arc;

use unipgas_core::biased::Biased;
use unipgas_core::wait_point::WaitPoint;
use unipgas_core::{Deadline, Engine, Error};

use crate::domain::Domain;
use crate::endpoint::Endpoint;
use crate::status::{Errno, Result};

/// The supported ways to wait for a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// No waits, only reads.
    None,
    /// Calls of [`CompletionQueue::wait`](crate::completion::CompletionQueue::wait).
    Call,
    /// Wait sets.
    Set,
    /// A file descriptor, and calls of [`CompletionQueue::wait`](crate::completion::CompletionQueue::wait).
    Descriptor,
}

/// Endpoints that make progress when a thread polls a queue or a counter.
pub(crate) struct Attached(Biased<Vec<Arc<Endpoint>>>);

impl Default for Attached {
    fn default() -> Self {
        Attached(Biased::new(Vec::new()))
    }
}

impl Attached {
    pub fn add(&self, endpoint: &Arc<Endpoint>) {
        let mut all = self.0.lock();
        if !all.iter().any(|known| Arc::ptr_eq(known, endpoint)) {
            all.push(endpoint.clone());
        }
    }

    pub fn remove(&self, endpoint: &Endpoint) {
        self.0
            .lock()
            .retain(|known| !std::ptr::eq(&**known, endpoint));
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    #[inline]
    pub fn progress(&self) {
        for endpoint in &*self.0.lock() {
            endpoint.progress();
        }
    }

    /// Makes progress until `found` returns a value. `None`: no message is left, so a thread may sleep.
    pub fn progress_until<T>(&self, mut found: impl FnMut() -> Option<T>) -> Option<T> {
        loop {
            self.progress();
            let found = found();
            if found.is_some() || !self.0.lock().iter().any(|endpoint| endpoint.has_lines()) {
                return found;
            }
        }
    }

    /// Checks the liveness of peers.
    pub fn look(&self) {
        for endpoint in &*self.0.lock() {
            endpoint.look_at_peers();
        }
    }
}

/// Waits at `point` in the call with this name. Errors: `late` at the deadline; [`Errno::CANCELED`] if another thread closes the object.
pub(crate) fn wait_at<T>(
    point: &WaitPoint,
    engine: &Engine,
    (call, late): ((&'static str, Deadline), Errno),
    look: impl FnMut(),
    found: impl FnMut() -> Option<T>,
) -> Result<T> {
    let waited = point.wait(engine, call, look, found);
    waited.map_err(|error| match error {
        Error::Ended => Errno::CANCELED,
        _ => late,
    })
}

/// The waits for an object of a domain.
pub(crate) struct Waits {
    pub domain: Arc<Domain>,
    pub attached: Attached,
    pub way: Wait,
    pub point: WaitPoint,
}

impl Waits {
    /// Waits of this way. Errors: the system refuses a descriptor.
    pub fn new(domain: &Arc<Domain>, way: Wait) -> Result<Waits> {
        Ok(Waits {
            domain: domain.clone(),
            attached: Attached::default(),
            way,
            point: match way {
                Wait::Descriptor => WaitPoint::with_descriptor()?,
                _ => WaitPoint::default(),
            },
        })
    }

    /// Makes progress on the endpoints and on deferred work.
    #[inline]
    pub fn progress(&self) {
        self.attached.progress();
        self.domain.deferred().progress();
    }

    /// As [`Attached::progress_until`], also of deferred work.
    pub fn progress_until<T>(&self, mut found: impl FnMut() -> Option<T>) -> Option<T> {
        self.attached.progress_until(|| {
            self.domain.deferred().progress();
            found()
        })
    }

    /// Prepares a wait for the descriptor (fi_trywait(3)). Errors: [`Errno::AGAIN`] if the object is `ready`.
    pub fn arm(&self, ready: impl FnOnce() -> bool) -> Result<()> {
        match self.point.arm(self.domain.engine(), ready) {
            true => Ok(()),
            false => Err(Errno::AGAIN),
        }
    }

    /// A turn of the progress thread, for a thread at the descriptor.
    pub fn look(&self, at_peers: bool, ready: impl FnOnce() -> bool) {
        if !self.point.is_armed() {
            return;
        }
        if at_peers {
            self.attached.look();
        }
        if ready() {
            self.point.signal();
        }
    }

    /// Waits in the call with this name. Errors: `late` at the deadline; [`Errno::CANCELED`] if another thread closes the object.
    pub fn wait<T>(
        &self,
        call: (&'static str, Deadline),
        late: Errno,
        mut look: impl FnMut(),
        mut found: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        let look = || {
            look();
            self.attached.look();
        };
        let found = || self.progress_until(&mut found);
        wait_at(&self.point, self.domain.engine(), (call, late), look, found)
    }

    /// Ends all waits, before the close of `object`. Errors: [`Errno::BUSY`] if it has other users.
    pub fn close<T>(&self, object: &Arc<T>) -> Result<()> {
        if !self.attached.is_empty() || Arc::strong_count(object) > 1 {
            return Err(Errno::BUSY);
        }
        self.point.end(self.domain.engine());
        Ok(())
    }
}
