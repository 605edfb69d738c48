//! The board of `unipgas run`, which also watches the processes and counts deaths.

use std::sync::atomic::AtomicU32;

use rustix::process::{Signal, kill_process};

use super::Bootstrap;
use super::fence::fence;
use crate::job::{Board, RankState};
use unipgas_base::{Deadline, Error, Result, process};
use unipgas_engine::host;

/// A rank of a job with a board.
pub(crate) struct Ranked {
    board: Board,
    rank: u32,
    incarnation: u32,
    /// Number of simulated hosts, among which the ranks are dealt in turn.
    hosts: u32,
}

impl Ranked {
    /// Joins as `rank`. If the rank's process has died, this process replaces it. Errors: [`Error::InvalidArgument`] if the job has no such rank.
    /// [`Error::Unreachable`] if another process has replaced it.
    pub(crate) fn new(board: Board, rank: u32) -> Result<Self> {
        if rank >= board.size() {
            return Err(Error::InvalidArgument(format!(
                "rank {rank} is not below the job's size of {}",
                board.size()
            )));
        }
        if board.state(rank)? == RankState::Dead && !board.begin_again(rank)? {
            return Err(Error::Unreachable(format!(
                "another process has just taken the place of rank {rank}"
            )));
        }
        board.set_pid(rank, std::process::id())?;
        board.set_state(rank, RankState::Joined)?;
        board.tell_waits(rank);
        let hosts = host::played()?.map_or(1, |(hosts, _)| hosts);
        Ok(Ranked {
            incarnation: board.died(rank)?,
            board,
            rank,
            hosts,
        })
    }
}

/// The key on a board. A value overwrites the value of the cycle before the last, which no process needs any more.
pub(super) fn key(name: &str, cycle: u32) -> String {
    format!("{name}.{}", cycle % 2)
}

/// Interrupts the process of `rank`, and notes on the board that its end is wanted. The launcher of another host finds the note there.
pub(super) fn interrupt(board: &Board, rank: u32) -> Result<()> {
    if board.is_afar(rank)? {
        return board.want_end(rank);
    }
    let process = process::named(board.pid(rank)?).ok_or(Error::PeerDead)?;
    board.want_end(rank)?;
    // Fails only if the process has just ended.
    let _ = kill_process(process, Signal::INT);
    Ok(())
}

impl Bootstrap for Ranked {
    fn source(&self) -> String {
        "unipgas run".into()
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.board.size()
    }

    fn neighbours(&self) -> u32 {
        let ranks = 0..self.size();
        ranks.filter(|rank| self.shares_host(*rank)).count() as u32
    }

    fn spans_hosts(&self) -> bool {
        self.hosts > 1 || self.board.hosts() > 1
    }

    fn hosts(&self) -> Option<u32> {
        Some(self.hosts.max(self.board.hosts()))
    }

    fn cpus(&self) -> u32 {
        self.board.cpus()
    }

    fn shares_host(&self, rank: u32) -> bool {
        self.board.is_afar(rank) == Ok(false) && rank % self.hosts == self.rank % self.hosts
    }

    fn publish(&self, name: &str, cycle: u32, value: &[u8]) -> Result<()> {
        self.board.publish(self.rank, &key(name, cycle), value)
    }

    fn fetch(&self, rank: u32, name: &str, cycle: u32) -> Result<Option<Vec<u8>>> {
        self.board.fetch(rank, &key(name, cycle))
    }

    fn fence(&self, cycle: u32, deadline: Deadline) -> Result<()> {
        if self.incarnation == 0 {
            return fence(&self.board, self.rank, cycle, deadline, |_| true, || Ok(()));
        }
        self.board.set_present(self.rank, self.incarnation)?;
        // Ranks that are dead now come later, or never.
        let living = |rank| self.board.state(rank) != Ok(RankState::Dead);
        fence(&self.board, self.rank, cycle, deadline, living, || Ok(()))
    }

    fn incarnation(&self) -> u32 {
        self.incarnation
    }

    fn died(&self, rank: u32) -> Result<u32> {
        self.board.died(rank)
    }

    fn present(&self, rank: u32) -> Result<u32> {
        self.board.present(rank)
    }

    fn first_cycle(&self) -> u32 {
        match self.incarnation {
            0 => 1,
            _ => self.board.epoch(self.rank).unwrap_or(1).max(1),
        }
    }

    fn deaths(&self) -> &AtomicU32 {
        self.board.death_count()
    }

    fn changes(&self) -> u32 {
        self.board.changes()
    }

    fn state(&self, rank: u32) -> Result<RankState> {
        self.board.state(rank)
    }

    fn launcher_lives(&self) -> bool {
        self.board.launcher_alive()
    }

    fn end(&self, rank: u32) -> Result<()> {
        interrupt(&self.board, rank)
    }

    fn leave(&self) -> Result<()> {
        self.board.set_state(self.rank, RankState::Finalized)
    }
}
