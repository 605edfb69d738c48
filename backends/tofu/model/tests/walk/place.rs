//! A job whose processes are all in this one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;
use unipgas_core::bootstrap::Bootstrap;
use unipgas_core::job::RankState;
use unipgas_core::{Deadline, Error, Result};

/// What all of them have published.
#[derive(Default)]
pub(crate) struct PublishedData(Mutex<HashMap<(u32, String, u32), Vec<u8>>>);

pub(crate) struct TestBootstrap {
    told: Arc<PublishedData>,
    rank: u32,
    size: u32,
    deaths: AtomicU32,
}

impl TestBootstrap {
    pub fn new(told: &Arc<PublishedData>, rank: u32, size: u32) -> Self {
        TestBootstrap {
            told: told.clone(),
            rank,
            size,
            deaths: AtomicU32::new(0),
        }
    }
}

impl Bootstrap for TestBootstrap {
    fn source(&self) -> String {
        "a test".into()
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
        let mut told = self.told.0.lock();
        told.insert((self.rank, name.into(), cycle), value.into());
        Ok(())
    }

    fn fetch(&self, rank: u32, name: &str, cycle: u32) -> Result<Option<Vec<u8>>> {
        Ok(self.told.0.lock().get(&(rank, name.into(), cycle)).cloned())
    }

    fn fence(&self, _: u32, _: Deadline) -> Result<()> {
        Ok(())
    }

    fn deaths(&self) -> &AtomicU32 {
        &self.deaths
    }

    fn changes(&self) -> u32 {
        0
    }

    fn state(&self, _: u32) -> Result<RankState> {
        Ok(RankState::Joined)
    }

    fn end(&self, _: u32) -> Result<()> {
        Err(Error::Unsupported)
    }

    fn leave(&self) -> Result<()> {
        Ok(())
    }
}
