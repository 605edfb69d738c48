//! Processes without a launcher.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;

use super::Bootstrap;
use crate::job::{RankState, cores_of_a_job};
use unipgas_base::{Deadline, Error, Result};

/// Published values by rank, name and cycle.
type Published = BTreeMap<(u32, String, u32), Vec<u8>>;

/// A rank of a job inside this process: the only one, or one of those that [threads play](Alone::ranks).
pub struct Alone {
    rank: u32,
    size: u32,
    told: Arc<Mutex<Published>>,
    deaths: AtomicU32,
}

impl Default for Alone {
    /// A job of one process.
    fn default() -> Self {
        Alone {
            rank: 0,
            size: 1,
            told: Arc::default(),
            deaths: AtomicU32::new(0),
        }
    }
}

impl Alone {
    /// The ranks of a job of `size`. Fences do not wait: a rank fetches what another has published before.
    pub fn ranks(size: u32) -> impl Iterator<Item = Alone> {
        let told = Arc::default();
        (0..size).map(move |rank| Alone {
            rank,
            size,
            told: Arc::clone(&told),
            deaths: AtomicU32::new(0),
        })
    }
}

impl Bootstrap for Alone {
    fn source(&self) -> String {
        "none: a job of one".into()
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
        match self.size {
            1 => cores_of_a_job() as u32,
            size => size,
        }
    }

    fn shares_host(&self, rank: u32) -> bool {
        rank < self.size
    }

    fn publish(&self, name: &str, cycle: u32, value: &[u8]) -> Result<()> {
        let mut told = self.told.lock();
        told.remove(&(self.rank, name.into(), cycle.wrapping_sub(2)));
        told.insert((self.rank, name.into(), cycle), value.into());
        Ok(())
    }

    fn fetch(&self, rank: u32, name: &str, cycle: u32) -> Result<Option<Vec<u8>>> {
        Ok(self.told.lock().get(&(rank, name.into(), cycle)).cloned())
    }

    fn fence(&self, _: u32, _: Deadline) -> Result<()> {
        Ok(())
    }

    fn deaths(&self) -> &AtomicU32 {
        &self.deaths
    }

    fn state(&self, rank: u32) -> Result<RankState> {
        if self.shares_host(rank) {
            return Ok(RankState::Joined);
        }
        Err(Error::InvalidArgument(format!(
            "rank {rank} is not in a job of {}",
            self.size
        )))
    }

    fn end(&self, rank: u32) -> Result<()> {
        Err(Error::InvalidArgument(format!(
            "there is no other rank {rank} in a job of one"
        )))
    }
}
