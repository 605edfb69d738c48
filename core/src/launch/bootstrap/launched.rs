//! A launcher that is not ours tells rank, size and hosts; the ranks of a host share a [board](super::host) there.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;

use super::Bootstrap;
use super::fence::fence;
use super::host::Host;
use super::ranked::{interrupt, key};
use crate::job::{RankState, check_size};
use crate::rendezvous::{JobName, hash};
use crate::{Deadline, Error, Result};

/// What a launcher tells. What goes through it reaches all hosts; a value that is published stays as it is.
pub(super) trait Server: Send + Sync {
    /// What it is, in a few words.
    fn source(&self) -> String;
    /// The job's name, the same for all of its ranks on a host.
    fn name(&self) -> &JobName;
    /// What the launcher calls the job, the same for all of its ranks.
    fn everywhere(&self) -> String {
        self.name().to_string()
    }
    /// This process.
    fn rank(&self) -> u32;
    /// All processes.
    fn size(&self) -> u32;
    /// The ranks on this host, ascending.
    fn neighbours(&self) -> &[u32];
    /// Publishes for the ranks of other hosts.
    fn put(&self, key: &str, value: &[u8]) -> Result<()>;
    /// What `rank` has published before a fence, on another host.
    fn get(&self, rank: u32, key: &str) -> Result<Option<Vec<u8>>>;
    /// Has what was published found without a fence; may wait until all ranks do so.
    fn commit(&self) -> Result<()>;
    /// Begins a fence of all ranks, or goes on with one whose time-out has come.
    fn fence(&self, deadline: Deadline) -> Result<()>;
    /// Whether the launcher still runs.
    fn lives(&self) -> bool;
    /// How many hosts the job has, if that is told: to all ranks or to none.
    fn hosts(&self) -> Option<u32> {
        None
    }
}

/// A rank of a job that another launcher has started.
pub struct Launched {
    server: Box<dyn Server>,
    host: Arc<Host>,
    /// Whether there are other hosts.
    several: bool,
    /// Fences at which all hosts have come, and not yet all ranks of this one: whoever calls again must not begin another one there.
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
            "rank {rank} is on another host: its process is told by its peers, not from here"
        )))
    }

    fn leave(&self) -> Result<()> {
        self.host.all_are_here();
        self.host.board.set_state(self.rank(), RankState::Finalized)
    }
}
