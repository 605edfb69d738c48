//! Objects that the progress thread drives until they are dropped. It drives them when the engine's bell rings, from the first watched object on, and in
//! beats while a [`Beats`] exists.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use unipgas_base::Result;

use crate::driver::{AtBell, Driven, Driver, Waits};
use crate::engine::Engine;
use crate::liveness_timer::LivenessTimer;

/// An object that the progress thread drives.
pub trait Watched: Send + Sync {
    /// Makes progress without waiting for it. Only a search for a peer may wait for the peer's answer. `at_peers`: a check of their liveness is due.
    fn look(&self, at_peers: bool);
}

#[derive(Default)]
struct Shared {
    watched: Mutex<Vec<Weak<dyn Watched>>>,
    /// `looking`: held while the progress thread uses watched objects. `wanted`: number of threads that wait for it.
    looking: Mutex<()>,
    wanted: AtomicUsize,
    liveness: LivenessTimer,
}

impl Shared {
    fn add(&self, what: Weak<dyn Watched>) {
        let mut watched = self.watched.lock();
        watched.retain(|known| known.strong_count() > 0);
        watched.push(what);
    }
}

impl Driven for Shared {
    fn drive(&self) {
        // A thread that closes an object must not wait for this round. It may wait for this thread, and rings the bell afterwards.
        if self.wanted.load(Ordering::Acquire) > 0 {
            return;
        }
        let Some(_looking) = self.looking.try_lock() else {
            return;
        };
        let watched: Vec<_> = {
            let watched = self.watched.lock();
            watched.iter().filter_map(Weak::upgrade).collect()
        };
        // A program that sleeps at a descriptor makes no calls that find a death.
        let at_peers = self.liveness.is_due();
        for what in watched {
            what.look(at_peers);
        }
    }
}

/// Drives watched objects during its lifetime.
pub struct Watcher {
    engine: Arc<Engine>,
    shared: Arc<Shared>,
    /// Set once an object is watched.
    at_bell: Mutex<Option<AtBell>>,
    in_beats: AtomicBool,
}

/// The progress thread drives the watched objects in beats while this exists.
pub struct Beats(Arc<Driver>);

impl Beats {
    /// Starts the beats. `driver`: the result of [`Watcher::watch_in_beats`].
    pub fn of(driver: &Arc<Driver>) -> Self {
        driver.more_in_time();
        Beats(driver.clone())
    }
}

impl Drop for Beats {
    fn drop(&mut self) {
        self.0.fewer(1);
    }
}

impl Watcher {
    /// A watcher without objects.
    pub fn new(engine: &Arc<Engine>) -> Self {
        Watcher {
            engine: engine.clone(),
            shared: Arc::default(),
            at_bell: Mutex::new(None),
            in_beats: AtomicBool::new(false),
        }
    }

    /// Drives `what` while it exists and [`Beats`] of the result exist. Errors: [`Error::Os`](crate::Error::Os).
    pub fn watch_in_beats(&self, what: Weak<dyn Watched>) -> Result<Arc<Driver>> {
        let driver = Driver::of_this_process()?;
        self.shared.add(what);
        if !self.in_beats.swap(true, Ordering::AcqRel) {
            let driven = Arc::downgrade(&self.shared) as Weak<dyn Driven>;
            driver.enrol(driven, Waits::Maybe);
        }
        Ok(driver)
    }

    /// Drives `what` while it exists.
    pub fn watch(&self, what: Weak<dyn Watched>) -> Result<()> {
        let mut at_bell = self.at_bell.lock();
        self.shared.add(what);
        if at_bell.is_none() {
            let driven = Arc::downgrade(&self.shared) as Weak<dyn Driven>;
            // An endpoint may look for a peer and wait for its answer.
            *at_bell = Some(self.engine.drive_at_bell(driven, Waits::Maybe)?);
        }
        self.engine.ring();
        Ok(())
    }

    /// Runs `what` while the progress thread uses no watched object. So a closed object has no other user when its close returns.
    pub fn apart<T>(&self, what: impl FnOnce() -> T) -> T {
        self.shared.wanted.fetch_add(1, Ordering::AcqRel);
        let looking = self.shared.looking.lock();
        self.shared.wanted.fetch_sub(1, Ordering::AcqRel);
        let done = what();
        drop(looking);
        self.engine.ring();
        done
    }
}
