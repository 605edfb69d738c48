//! A foreign launcher provides rank, size and hosts. The ranks of a host share a [board](super::host) there.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;

use super::Bootstrap;
use super::fence::fence;
use super::host::Host;
use super::ranked::{interrupt, key};
use crate::job::{RankState, check_size};
use crate::rendezvous::{JobName, hash};
use unipgas_base::{Deadline, Error, Result};

/// The services of a launcher. Published values reach all hosts. A published value never changes.
pub(super) trait Server: Send + Sync {
    /// Its short name.
    fn source(&self) -> String;
    /// Name of the job, the same for all of its ranks on a host.
    fn name(&self) -> &JobName;
    /// The launcher's name of the job, the same for all of its ranks.
    fn everywhere(&self) -> String {
        self.name().to_string()
    }
    /// Rank of this process.
    fn rank(&self) -> u32;
    /// Number of ranks.
    fn size(&self) -> u32;
    /// The ranks on this host, ascending.
    fn neighbours(&self) -> &[u32];
    /// Publishes for the ranks of other hosts.
    fn put(&self, key: &str, value: &[u8]) -> Result<()>;
    /// Value that `rank`, on another host, has published before a fence.
    fn get(&self, rank: u32, key: &str) -> Result<Option<Vec<u8>>>;
    /// Makes published values visible without a fence. May wait until all ranks call it.
    fn commit(&self) -> Result<()>;
    /// Begins a fence of all ranks, or continues a fence after its timeout.
    fn fence(&self, deadline: Deadline) -> Result<()>;
    /// Whether the launcher still runs.
    fn lives(&self) -> bool;
    /// Number of hosts of the job, if the launcher provides it. All ranks get the same answer.
    fn hosts(&self) -> Option<u32> {
        None
    }
}

/// A rank of a job that a foreign launcher has started.
pub(crate) struct Launched {
    server: Box<dyn Server>,
    host: Arc<Host>,
    /// The job has several hosts.
    several: bool,
    /// Fences at which all hosts have arrived, but not yet all ranks of this host. A retry must not begin another fence of all hosts.
    half: Mutex<Vec<u32>>,
}

impl Launched {
    pub(super) fn new(server: Box<dyn Server>) -> Result<Self> {
        check_size(server.size())?;
        let host = Host::join(server.name(), server.rank(), server.size())?;
        let several = server.neighbours().len() < server.size() as usize;
        if several {
            host.board.set_everywhere(hash(&server.everywhere()));
        }
        host.board.set_state(server.rank(), RankState::Joined)?;
        let launched = Launched {
            several,
            server,
            host,
            half: Mutex::default(),
        };
        let elsewhere = (0..launched.size()).filter(|rank| !launched.shares_host(*rank));
        for rank in elsewhere {
            launched.host.board.set_afar(rank)?;
        }
        Ok(launched)
    }
}

impl Bootstrap for Launched {
    fn source(&self) -> String {
        self.server.source()
    }

    fn rank(&self) -> u32 {
        self.server.rank()
    }

    fn size(&self) -> u32 {
        self.server.size()
    }

    fn neighbours(&self) -> u32 {
        self.server.neighbours().len() as u32
    }

    fn hosts(&self) -> Option<u32> {
        match self.several {
            true => self.server.hosts(),
            false => Some(1),
        }
    }

    fn cpus(&self) -> u32 {
        self.host.board.cpus()
    }

    fn shares_host(&self, rank: u32) -> bool {
        !self.several && rank < self.size() || self.server.neighbours().binary_search(&rank).is_ok()
    }

    fn publish(&self, name: &str, cycle: u32, value: &[u8]) -> Result<()> {
        if self.several {
            self.server.put(&format!("{name}.{cycle}"), value)?;
        }
        self.host
            .board
            .publish(self.rank(), &key(name, cycle), value)
    }

    fn commit(&self) -> Result<()> {
        match self.several {
            true => self.server.commit(),
            false => Ok(()),
        }
    }

    fn fetch(&self, rank: u32, name: &str, cycle: u32) -> Result<Option<Vec<u8>>> {
        if self.shares_host(rank) || rank >= self.size() {
            return self.host.board.fetch(rank, &key(name, cycle));
        }
        self.server.get(rank, &format!("{name}.{cycle}"))
    }

    fn fence(&self, cycle: u32, deadline: Deadline) -> Result<()> {
        if self.several && !self.half.lock().contains(&cycle) {
            self.server.fence(deadline)?;
            self.half.lock().push(cycle);
        }
        let look = || {
            self.host.look();
            if self.server.lives() {
                return Ok(());
            }
            Err(Error::Unreachable(
                "the launcher of this job has ended".into(),
            ))
        };
        let here = |rank| self.shares_host(rank);
        fence(&self.host.board, self.rank(), cycle, deadline, here, look)?;
        self.half.lock().retain(|half| *half != cycle);
        self.host.all_are_here();
        Ok(())
    }

    fn deaths(&self) -> &AtomicU32 {
        self.host.board.death_count()
    }

    fn changes(&self) -> u32 {
        self.host.board.changes()
    }

    fn state(&self, rank: u32) -> Result<RankState> {
        self.host.board.state(rank)
    }

    fn look(&self) {
        self.host.look();
    }

    fn launcher_lives(&self) -> bool {
        self.server.lives()
    }

    fn end(&self, rank: u32) -> Result<()> {
        if self.shares_host(rank) {
            return interrupt(&self.host.board, rank);
        }
        Err(Error::Unreachable(format!(
            "rank {rank} is on another host: its peers inform it, not this process"
        )))
    }

    fn leave(&self) -> Result<()> {
        self.host.all_are_here();
        self.host.board.set_state(self.rank(), RankState::Finalized)
    }
}
