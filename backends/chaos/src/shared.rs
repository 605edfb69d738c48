//! State that the channels of one transport share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use unipgas_core::transport::Transport;

use crate::channel::ChannelState;
use crate::config::ChaosConfig;
use crate::work::{Disaster, Stalls};

/// State of the process.
pub(crate) struct Shared {
    pub inner: Arc<dyn Transport>,
    pub config: ChaosConfig,
    pub stalls: Stalls,
    channels: Mutex<Vec<Weak<ChannelState>>>,
    opened: AtomicU64,
    posted: AtomicU64,
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
        }
    }

    /// The index of the next channel.
    pub fn next_channel(&self) -> u64 {
        self.opened.fetch_add(1, Ordering::Relaxed)
    }

    pub fn enrol(&self, state: &Arc<ChannelState>) {
        let mut channels = self.channels.lock();
        channels.retain(|c| c.strong_count() > 0);
        channels.push(Arc::downgrade(state));
    }

    /// Counts an operation of the process. Returns its disaster, if any.
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

    pub fn each(&self, mut visit: impl FnMut(&ChannelState)) {
        let channels: Vec<_> = {
            let channels = self.channels.lock();
            channels.iter().filter_map(Weak::upgrade).collect()
        };
        for channel in channels {
            visit(&channel);
        }
    }
}
