//! PMI: MPICH's `mpiexec` (Hydra) and related launchers, `srun --mpi=pmi2`.
//!
//! On one host the environment suffices, and the connection is not used: MPI in the same process may use it. With several hosts, the process talks to the
//! server in [PMI-1 or PMI-2](connection).

mod answer;
mod connection;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod mapping;
mod stream;

use std::sync::Arc;

use parking_lot::Mutex;

use super::environment::{Environment, neighbours};
use super::launched::Server;
use crate::job::check_size;
use crate::rendezvous::{JobName, launcher_above};
use connection::{Connection, Version};
use unipgas_base::{Deadline, Error, Result, exit, variables};

/// The job of the PMI server that has started this process. `None`: no such server.
///
/// # Errors
/// [`Error::InvalidArgument`] for inconsistent values. [`Error::Unreachable`] if the server is needed and fails, or if MPI has the connection.
pub(super) fn from_env() -> Result<Option<Box<dyn Server>>> {
    if variables::get("PMI_RANK")?.is_none() || variables::get("PMI_SIZE")?.is_none() {
        return Ok(None);
    }
    let name = JobName::from_env()?;
    let (Some(rank), Some(size)) = (name.rank(), name.size()) else {
        return Ok(None);
    };
    check_size(size)?;
    if neighbours(&|variable| std::env::var(variable).ok(), size) == Some(size) {
        let environment = Environment::new("PMI", name, rank, size, launcher_above())?;
        return Ok(Some(Box::new(environment)));
    }
    let Some(fd) = variables::get("PMI_FD")? else {
        return Ok(None);
    };
    let fd = fd
        .parse()
        .map_err(|_| variables::wrong("PMI_FD", &fd, "must be a descriptor"))?;
    if mpi_is_here() {
        return Err(Error::Unreachable(
            "MPI in this process has the connection to the PMI server, and the job has several hosts: start it by a launcher with PMIx"
                .into(),
        ));
    }
    let connection = connection(fd, rank)?;
    let (version, (neighbours, hosts)) = {
        let mut connection = connection.lock();
        (connection.version(), connection.neighbours(rank, size)?)
    };
    Ok(Some(Box::new(Pmi {
        connection,
        version,
        name,
        rank,
        size,
        neighbours,
        hosts,
    })))
}

/// The version to try first. Slurm's server speaks PMI-2. Hydra's (MPICH 4.0) speaks both, but jobs on several hosts sometimes fail by PMI-2, and never by
/// PMI-1.
fn preferred(variable: &dyn Fn(&str) -> Option<String>) -> Version {
    match variable("SLURM_STEP_ID").or_else(|| variable("SLURM_STEPID")) {
        Some(_) => Version::Two,
        None => Version::One,
    }
}

fn mpi_is_here() -> bool {
    // SAFETY:
    // - dlsym only looks the name up.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"MPI_Init".as_ptr()) }.is_null()
}

/// The connection of this process, from its first job to its exit.
static CONNECTION: Mutex<Option<(u32, Shared)>> = Mutex::new(None);

type Shared = Arc<Mutex<Connection>>;

fn connection(fd: i32, rank: u32) -> Result<Shared> {
    let mut known = CONNECTION.lock();
    let pid = std::process::id();
    if let Some((of, connection)) = &*known
        && *of == pid
    {
        return Ok(connection.clone());
    }
    let job = std::env::var("PMI_JOBID").ok();
    let made = Arc::new(Mutex::new(Connection::begin(
        fd,
        preferred(&|name| std::env::var(name).ok()),
        rank,
        job.as_deref(),
    )?));
    *known = Some((pid, made.clone()));
    // SAFETY:
    // - `at_exit` stays valid as long as the process.
    unsafe { libc::atexit(at_exit) };
    Ok(made)
}

extern "C" fn at_exit() {
    exit::run(|| {
        if let Some((of, connection)) = CONNECTION.lock().take()
            && of == std::process::id()
        {
            connection.lock().finalize();
        }
    });
}

struct Pmi {
    connection: Shared,
    version: Version,
    name: JobName,
    rank: u32,
    size: u32,
    neighbours: Vec<u32>,
    hosts: u32,
}

impl Server for Pmi {
    fn source(&self) -> String {
        match self.version {
            Version::One => "PMI-1".into(),
            Version::Two => "PMI-2".into(),
        }
    }

    fn name(&self) -> &JobName {
        &self.name
    }

    /// Hydra's job names are names of its proxies, and each host has another proxy. The name of the key-value space is the same on all hosts.
    fn everywhere(&self) -> String {
        self.connection.lock().space().to_owned()
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn neighbours(&self) -> &[u32] {
        &self.neighbours
    }

    fn hosts(&self) -> Option<u32> {
        Some(self.hosts)
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        let key = format!("unipgas.{}.{key}", self.rank);
        self.connection.lock().put(&key, value)
    }

    fn get(&self, rank: u32, key: &str) -> Result<Option<Vec<u8>>> {
        self.connection.lock().get(&format!("unipgas.{rank}.{key}"))
    }

    fn fence(&self, deadline: Deadline) -> Result<()> {
        self.connection.lock().barrier(deadline)
    }

    fn commit(&self) -> Result<()> {
        self.connection.lock().barrier(Deadline::Never)
    }

    fn lives(&self) -> bool {
        // A thread at a fence holds the lock, and notices the end of the server itself.
        self.connection
            .try_lock()
            .is_none_or(|connection| connection.is_open())
    }
}
