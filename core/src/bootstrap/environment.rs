//! Launchers whose environment tells all that a job on one host needs: no connection is used, so MPI in the same process can have it.

use super::launched::Server;
use crate::job::board::process_start_time;
use crate::rendezvous::JobName;
use crate::{Deadline, Error, Result};

/// What the environment has told.
pub(super) struct Environment {
    source: &'static str,
    name: JobName,
    rank: u32,
    ranks: Vec<u32>,
    /// Pid and start time of the launcher's process above this one, where it is known.
    launcher: Option<(u32, u64)>,
}

impl Environment {
    /// A job all of whose `size` ranks are here. Errors: [`Error::InvalidArgument`] for a rank that it does not have.
    pub fn new(
        source: &'static str,
        name: JobName,
        rank: u32,
        size: u32,
        launcher: Option<(u32, u64)>,
    ) -> Result<Self> {
        if rank >= size {
            return Err(Error::InvalidArgument(format!(
                "the environment says rank {rank} of {size} ({source}): unset it, or start anew"
            )));
        }
        Ok(Environment {
            source,
            name,
            rank,
            ranks: (0..size).collect(),
            launcher,
        })
    }

    fn one_host<T>() -> Result<T> {
        Err(Error::Unreachable(
            "the launcher has told of one host only".into(),
        ))
    }
}

impl Server for Environment {
    fn source(&self) -> String {
        self.source.into()
    }

    fn name(&self) -> &JobName {
        &self.name
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    fn neighbours(&self) -> &[u32] {
        &self.ranks
    }

    fn put(&self, _: &str, _: &[u8]) -> Result<()> {
        Self::one_host()
    }

    fn get(&self, _: u32, _: &str) -> Result<Option<Vec<u8>>> {
        Self::one_host()
    }

    fn fence(&self, _: Deadline) -> Result<()> {
        Self::one_host()
    }

    fn lives(&self) -> bool {
        self.launcher
            .is_none_or(|(pid, start)| process_start_time(pid) == Ok(start))
    }
}
