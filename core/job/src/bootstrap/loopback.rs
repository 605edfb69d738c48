//! A job with all ranks in this process, like the processes of the engine's [`loopback`](unipgas_engine::loopback) are.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;

use super::Bootstrap;
use crate::job::RankState;
use unipgas_base::{Deadline, Error, Result};

type Published = Mutex<HashMap<(u32, String, u32), Vec<u8>>>;

/// A job in one process. Its ranks do not die, and its fences do not wait.
pub struct LoopbackJob {
    size: u32,
    published: Arc<Published>,
}

impl LoopbackJob {
    /// A job of this size.
    pub fn of(size: u32) -> Self {
        LoopbackJob {
            size,
            published: Arc::default(),
        }
    }

    /// One of its ranks.
    pub fn rank(&self, rank: u32) -> Arc<dyn Bootstrap> {
        Arc::new(LoopbackRank {
            published: self.published.clone(),
            rank,
            size: self.size,
            deaths: AtomicU32::new(0),
        })
    }
}

struct LoopbackRank {
    published: Arc<Published>,
    rank: u32,
    size: u32,
    deaths: AtomicU32,
}

impl Bootstrap for LoopbackRank {
    fn source(&self) -> String {
        "the loopback".into()
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn neighbours(&self) -> u32 {
        self.size
    }

    fn cpus(&self) -> u32 {
        self.size
    }

    fn shares_host(&self, _: u32) -> bool {
        true
    }

    fn publish(&self, name: &str, cycle: u32, value: &[u8]) -> Result<()> {
        let key = (self.rank, name.into(), cycle);
        self.published.lock().insert(key, value.into());
        Ok(())
    }

    fn fetch(&self, rank: u32, name: &str, cycle: u32) -> Result<Option<Vec<u8>>> {
        let published = self.published.lock();
        Ok(published.get(&(rank, name.into(), cycle)).cloned())
    }

    fn fence(&self, _: u32, _: Deadline) -> Result<()> {
        Ok(())
    }

    fn deaths(&self) -> &AtomicU32 {
        &self.deaths
    }

    fn state(&self, _: u32) -> Result<RankState> {
        Ok(RankState::Joined)
    }

    fn end(&self, _: u32) -> Result<()> {
        Err(Error::Unsupported)
    }
}
