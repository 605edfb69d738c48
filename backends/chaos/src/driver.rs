//! What the channels of one transport share, and the thread that moves them on while nobody polls.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use unipgas_core::panics::keep_going;
use unipgas_core::transport::Transport;
use unipgas_core::{Error, Result};

use crate::channel::State;
use crate::config::ChaosConfig;
use crate::work::{Disaster, Stalls};

/// Time between two looks at channels that have something to do.
const BEAT: Duration = Duration::from_micros(200);
/// A channel that is polled less often than this in a beat is moved on.
const BUSY_POLLS: u64 = 4;

/// What belongs to the process.
pub struct Shared {
    pub inner: Arc<dyn Transport>,
    pub config: ChaosConfig,
    pub stalls: Stalls,
    channels: Mutex<Vec<Weak<State>>>,
    opened: AtomicU64,
    posted: AtomicU64,
    unfinished: AtomicUsize,
    stop: AtomicBool,
    bed: Mutex<()>,
    alarm: Condvar,
}

impl Shared {
    pub fn new(inner: Arc<dyn Transport>, config: ChaosConfig) -> Self {
        Shared {
            inner,
            config,
            stalls: Stalls::new(),
            channels: Mutex::new(Vec::new()),
            opened: AtomicU64::new(0),
            posted: AtomicU64::new(0),
            unfinished: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            bed: Mutex::new(()),
            alarm: Condvar::new(),
        }
    }

    /// The index of the next channel.
    pub fn next_channel(&self) -> u64 {
        self.opened.fetch_add(1, Ordering::Relaxed)
    }

    pub fn enrol(&self, state: &Arc<State>) {
        self.channels.lock().push(Arc::downgrade(state));
    }

    /// Counts an operation of the process; gives what befalls it.
    pub fn count(&self) -> Option<Disaster> {
        let number = self.posted.fetch_add(1, Ordering::Relaxed);
        if self.config.kill_at == Some(number) {
            return Some(Disaster::Kill);
        }
        match self.config.stall {
            Some((at, span)) if at == number => Some(Disaster::Stall(span)),
            _ => None,
        }
    }

    /// Somebody has one more operation that has not ended.
    pub fn more(&self) {
        if self.unfinished.fetch_add(1, Ordering::AcqRel) == 0 {
            drop(self.bed.lock());
            self.alarm.notify_one();
        }
    }

    /// `ended` operations have.
    pub fn fewer(&self, ended: usize) {
        self.unfinished.fetch_sub(ended, Ordering::AcqRel);
    }

    pub fn each(&self, mut visit: impl FnMut(&State)) {
        let channels: Vec<_> = {
            let mut channels = self.channels.lock();
            channels.retain(|c| c.strong_count() > 0);
            channels.iter().filter_map(Weak::upgrade).collect()
        };
        for channel in channels {
            visit(&channel);
        }
    }

    fn drive(&self) {
        let ticks = u64::from(self.config.max_delay_polls) / 4 + 1;
        loop {
            let mut bed = self.bed.lock();
            while self.unfinished.load(Ordering::Acquire) == 0 && !self.stopped() {
                self.alarm.wait(&mut bed);
            }
            if self.stopped() {
                return;
            }
            drop(bed);
            std::thread::sleep(BEAT);
            self.each(|channel| {
                if channel.polls_since_last_look() < BUSY_POLLS {
                    channel.run(ticks);
                }
            });
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// The progress thread; dropping it ends it.
pub struct Driver {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    pub fn start(shared: &Arc<Shared>) -> Result<Self> {
        let driven = shared.clone();
        let thread = std::thread::Builder::new()
            .name("unipgas-chaos".into())
            .spawn(move || keep_going(|| driven.drive()))
            .map_err(|error| Error::os("starting the progress thread of chaos", error))?;
        Ok(Driver {
            shared: shared.clone(),
            thread: Some(thread),
        })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        drop(self.shared.bed.lock());
        self.shared.alarm.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
