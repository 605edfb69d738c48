//! Launchers with an environment that suffices for a job on one host. No connection is used, so MPI in the same process can use it.

use super::launched::Server;
use crate::job::board::process_start_time;
use crate::job::check_size;
use crate::rendezvous::JobName;
use unipgas_base::{Deadline, Error, Result};

/// Variables with the number of ranks on this host.
const NEIGHBOURS: [&str; 2] = ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"];

/// Number of the job's `size` ranks on this host, if the environment shows it.
pub(super) fn neighbours(variable: &dyn Fn(&str) -> Option<String>, size: u32) -> Option<u32> {
    let number = |name: &str| variable(name)?.trim().parse::<u32>().ok();
    if size == 1 {
        return Some(1);
    }
    if let Some(here) = NEIGHBOURS.into_iter().find_map(number) {
        return Some(here);
    }
    // Only without the variables above: Slurm may have started the launcher of each host as a separate step.
    let hosts = number("SLURM_STEP_NUM_NODES").or_else(|| number("SLURM_NNODES"));
    (hosts == Some(1)).then_some(size)
}

/// A job described by the environment.
pub(super) struct Environment {
    source: &'static str,
    name: JobName,
    rank: u32,
    ranks: Vec<u32>,
    /// Pid and start time of the launcher's process above this one, if known.
    launcher: Option<(u32, u64)>,
}

impl Environment {
    /// A job with all of its `size` ranks on this host. Errors: [`Error::InvalidArgument`] if `rank` is not below `size`, or for an invalid size.
    pub(crate) fn new(
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
        check_size(size)?;
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
            "the launcher has named only one host".into(),
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

    fn commit(&self) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::super::fuzz::among;
    use super::*;

    #[test]
    fn ranks_of_this_host_are_counted() {
        let told = |variables: &[_], size| neighbours(&among(variables), size);
        assert_eq!(told(&[], 1), Some(1));
        assert_eq!(told(&[("MPI_LOCALNRANKS", "3")], 3), Some(3));
        assert_eq!(told(&[("OMPI_COMM_WORLD_LOCAL_SIZE", "2")], 3), Some(2));
        let step = ("SLURM_STEP_NUM_NODES", "1");
        assert_eq!(told(&[step, ("SLURM_NNODES", "2")], 3), Some(3));
        // Daemons of a launcher that Slurm has started one by one.
        assert_eq!(told(&[step, ("MPI_LOCALNRANKS", "1")], 3), Some(1));
        assert_eq!(told(&[("SLURM_STEP_NUM_NODES", "2")], 3), None);
        assert_eq!(told(&[], 3), None);
    }
}
