//! A process without a launcher.

use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;

use super::Bootstrap;
use crate::job::{RankState, cores_of_a_job};
use unipgas_base::{Deadline, Error, Result};

/// A job of one process.
#[derive(Default)]
pub struct Alone {
    told: Mutex<Vec<(String, u32, Vec<u8>)>>,
    deaths: AtomicU32,
}

impl Bootstrap for Alone {
    fn source(&self) -> String {
        "none: a job of one".into()
    }

    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        1
    }

    fn neighbours(&self) -> u32 {
        1
    }

    fn cpus(&self) -> u32 {
        cores_of_a_job() as u32
    }

    fn shares_host(&self, rank: u32) -> bool {
        rank == 0
    }

    fn publish(&self, name: &str, cycle: u32, value: &[u8]) -> Result<()> {
        let mut told = self.told.lock();
        told.retain(|(known, of, _)| known != name || of.abs_diff(cycle) == 1);
        told.push((name.into(), cycle, value.into()));
        Ok(())
    }

    fn fetch(&self, rank: u32, name: &str, cycle: u32) -> Result<Option<Vec<u8>>> {
        let told = self.told.lock();
        let found = told
            .iter()
            .find(|(known, of, _)| rank == 0 && known == name && *of == cycle);
        Ok(found.map(|(_, _, value)| value.clone()))
    }

    fn fence(&self, _: u32, _: Deadline) -> Result<()> {
        Ok(())
    }

    fn deaths(&self) -> &AtomicU32 {
        &self.deaths
    }

    fn state(&self, rank: u32) -> Result<RankState> {
        if rank == 0 {
            return Ok(RankState::Joined);
        }
        Err(Error::InvalidArgument(format!(
            "rank {rank} is not in a job of 1"
        )))
    }

    fn end(&self, rank: u32) -> Result<()> {
        Err(Error::InvalidArgument(format!(
            "there is no other rank {rank} in a job of one"
        )))
    }
}
