//! A thread of the library that looks where the program does not: queues whose descriptors are being waited for, endpoints whose messages
//! are to get on by themselves. It sleeps at the engine's bell, and exists only where something asks for it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use unipgas_core::{Deadline, Engine, own_thread};

use crate::status::Result;

/// What is looked after.
pub(crate) trait Watched: Send + Sync {
    /// Does what there is to do, without waiting.
    fn look(&self);
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    watched: Mutex<Vec<Weak<dyn Watched>>>,
    /// Held while the thread has hold of what it looks after; and how many others want it.
    looking: Mutex<()>,
    wanted: AtomicUsize,
}

/// The thread, once there is one. Dropping it ends the thread.
pub(crate) struct Watcher {
    engine: Arc<Engine>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Watcher {
    pub fn new(engine: &Arc<Engine>) -> Self {
        Watcher {
            engine: engine.clone(),
            shared: Arc::default(),
            thread: Mutex::new(None),
        }
    }

    /// Looks after `what` as long as it exists.
    pub fn watch(&self, what: Weak<dyn Watched>) -> Result<()> {
        let mut thread = self.thread.lock();
        let mut watched = self.shared.watched.lock();
        watched.retain(|known| known.strong_count() > 0);
        watched.push(what);
        drop(watched);
        if thread.is_none() {
            let (engine, shared) = (self.engine.clone(), self.shared.clone());
            *thread = Some(own_thread::start("unipgas-fabric", move || {
                look_after(&engine, &shared)
            })?);
        }
        self.engine.ring();
        Ok(())
    }

    /// Does something while the thread has hold of nothing: so that what is closed is nobody's any more when its close returns.
    pub fn apart<T>(&self, what: impl FnOnce() -> T) -> T {
        self.shared.wanted.fetch_add(1, Ordering::AcqRel);
        let _looking = self.shared.looking.lock();
        self.shared.wanted.fetch_sub(1, Ordering::AcqRel);
        what()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.get_mut().take() {
            self.engine.bell().ring();
            // What is watched may be what was dropped last, by the thread itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

fn look_after(engine: &Engine, shared: &Shared) {
    let look = || {
        if shared.stop.load(Ordering::Acquire) {
            return Some(());
        }
        // Who closes something is not kept waiting by one look after the other.
        if shared.wanted.load(Ordering::Acquire) > 0 {
            std::thread::yield_now();
            return None;
        }
        let looking = shared.looking.lock();
        let watched: Vec<_> = {
            let watched = shared.watched.lock();
            watched.iter().filter_map(Weak::upgrade).collect()
        };
        for what in watched {
            what.look();
        }
        drop(looking);
        None
    };
    let _ = engine.wait_for(Deadline::Never, &mut || Ok(()), look);
}
