//! The job of the columns `core`: its ranks tell each other their addresses where the measured processes meet.
//!
//! The loaded library and this program have an engine each. Both would take the same names at the launcher's place of meeting.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};

use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use unipgas_core::bootstrap::Bootstrap;
use unipgas_core::job::{Job, RankState};
use unipgas_core::{Deadline, Error, Result, host};

use crate::ctx::BenchContext;

/// A process's part of it. Values are lines: the name, the cycle, and the value in hexadecimal digits.
pub(super) struct Meeting {
    rank: u32,
    cpus: u32,
    /// The host of each rank.
    hosts: Vec<Vec<u8>>,
    own: Mutex<String>,
    /// By rank.
    all: OnceLock<Vec<String>>,
    deaths: AtomicU32,
}

impl Meeting {
    /// Tells all processes the host of this one.
    pub fn new(ctx: &BenchContext) -> Result<Arc<Meeting>> {
        Ok(Arc::new(Meeting {
            rank: ctx.rank as u32,
            cpus: ctx.cores as u32,
            hosts: ctx.share(&host::id()?.to_ne_bytes()),
            own: Mutex::default(),
            all: OnceLock::new(),
            deaths: AtomicU32::new(0),
        }))
    }

    /// The job.
    pub fn job(self: &Arc<Self>) -> Job {
        Job::new(self.clone())
    }

    /// Exchanges with all processes what has been published: `fetch` finds nothing before.
    pub fn exchange(&self, ctx: &BenchContext) {
        let all = ctx.share(self.own.lock().as_bytes());
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let _ = self.all.set(all.into_iter().map(text).collect());
    }
}

impl Bootstrap for Meeting {
    fn source(&self) -> String {
        "unipgas bench".into()
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.hosts.len() as u32
    }

    fn neighbours(&self) -> u32 {
        let ranks = 0..self.size();
        ranks.filter(|rank| self.shares_host(*rank)).count() as u32
    }

    fn cpus(&self) -> u32 {
        self.cpus
    }

    fn shares_host(&self, rank: u32) -> bool {
        self.hosts.get(rank as usize) == self.hosts.get(self.rank as usize)
    }

    fn publish(&self, name: &str, cycle: u32, value: &[u8]) -> Result<()> {
        let line = format!("{name} {cycle} {}\n", HEXLOWER.encode(value));
        self.own.lock().push_str(&line);
        Ok(())
    }

    fn fetch(&self, rank: u32, name: &str, cycle: u32) -> Result<Option<Vec<u8>>> {
        let key = format!("{name} {cycle} ");
        let told = self.all.get().and_then(|all| all.get(rank as usize));
        // The last value of a name counts.
        let value =
            told.and_then(|told| told.lines().rev().find_map(|line| line.strip_prefix(&key)));
        Ok(value.and_then(|value| HEXLOWER.decode(value.as_bytes()).ok()))
    }

    fn fence(&self, _: u32, _: Deadline) -> Result<()> {
        match self.all.get() {
            Some(_) => Ok(()),
            None => Err(Error::Timeout),
        }
    }

    fn deaths(&self) -> &AtomicU32 {
        &self.deaths
    }

    fn state(&self, _: u32) -> Result<RankState> {
        // A measurement ends with the first process that fails.
        Ok(RankState::Joined)
    }

    fn end(&self, rank: u32) -> Result<()> {
        Err(Error::Unreachable(format!(
            "rank {rank} of a measurement is ended by its launcher alone"
        )))
    }
}
