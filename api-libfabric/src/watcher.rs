//! What the progress thread looks after where the program does not: queues whose descriptors are being waited for, endpoints whose messages
//! are to get on by themselves. It does so when the engine's bell is rung, and only where something asks for it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use unipgas_core::Engine;
use unipgas_core::driver::{AtBell, Driven, Waits};

use crate::status::Result;

/// What is looked after.
pub(crate) trait Watched: Send + Sync {
    /// Does what there is to do, without waiting.
    fn look(&self);
}

#[derive(Default)]
struct Shared {
    watched: Mutex<Vec<Weak<dyn Watched>>>,
    /// Held while the progress thread has hold of what it looks after; and how many others want it.
    looking: Mutex<()>,
    wanted: AtomicUsize,
}

impl Driven for Shared {
    fn drive(&self) {
        // Who closes something is not kept waiting, may itself wait for this thread, and begins another turn.
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
        for what in watched {
            what.look();
        }
    }
}

/// Looks after what has been given to it, as long as it lives.
pub(crate) struct Watcher {
    engine: Arc<Engine>,
    shared: Arc<Shared>,
    /// Once something is looked after.
    at_bell: Mutex<Option<AtBell>>,
}

impl Watcher {
    pub fn new(engine: &Arc<Engine>) -> Self {
        Watcher {
            engine: engine.clone(),
            shared: Arc::default(),
            at_bell: Mutex::new(None),
        }
    }

    /// Looks after `what` as long as it exists.
    pub fn watch(&self, what: Weak<dyn Watched>) -> Result<()> {
        let mut at_bell = self.at_bell.lock();
        let mut watched = self.shared.watched.lock();
        watched.retain(|known| known.strong_count() > 0);
        watched.push(what);
        drop(watched);
        if at_bell.is_none() {
            let driven = Arc::downgrade(&self.shared) as Weak<dyn Driven>;
            // Endpoints may look for peers, who answer later.
            *at_bell = Some(self.engine.drive_at_bell(driven, Waits::Maybe)?);
        }
        self.engine.ring();
        Ok(())
    }

    /// Does something while the progress thread has hold of nothing: so that what is closed is nobody's any more when its close returns.
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
