//! What a process knows of its job: its rank, the number of ranks, and the place where they publish what the others need.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{Board, RankState, foreign};
use crate::{Deadline, Error, Result, variables};

/// How long a wait at the board yields before it sleeps.
const YIELD: Duration = Duration::from_millis(1);
/// Shortest and longest sleep after that.
const SLEEP: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));
/// Shortest and longest sleep at a fence, whose last rank wakes the others; the first one is longer where many look at many.
const NAP: (Duration, Duration) = (Duration::from_millis(2), Duration::from_secs(1));
const NAP_EACH: Duration = Duration::from_micros(20);

/// The job of this process. Without a launcher it is a job of one.
pub struct Job {
    rank: u32,
    size: u32,
    board: Option<Board>,
    /// What a job of one has published.
    own: Mutex<Vec<(String, Vec<u8>)>>,
}

impl Job {
    /// The job that the environment names: UNIPGAS_JOB (the board), UNIPGAS_RANK and UNIPGAS_SIZE; a job of one without
    /// UNIPGAS_JOB. Errors: [`Error::InvalidArgument`] for values that do not fit together, and where another launcher has started
    /// several processes, [`Error::Unreachable`] if the launcher has gone.
    pub fn from_env() -> Result<Self> {
        variables::check()?;
        let Some(token) = variables::get("UNIPGAS_JOB")? else {
            foreign::refuse(&|name| std::env::var(name).ok())?;
            return Ok(Job::alone());
        };
        let number = |name: &str| -> Result<u32> {
            let value = variables::get(name)?.unwrap_or_default();
            let must = "must be a number beside UNIPGAS_JOB: start the program by `unipgas run`";
            value
                .parse()
                .map_err(|_| variables::wrong(name, &value, must))
        };
        let (rank, size) = (number("UNIPGAS_RANK")?, number("UNIPGAS_SIZE")?);
        let board = Board::attach(&token)?;
        if size != board.size() {
            return Err(Error::InvalidArgument(format!(
                "UNIPGAS_SIZE is {size}, but the job has {} ranks",
                board.size()
            )));
        }
        Job::on_board(board, rank)
    }

    /// Rank `rank` of the job on `board`. Errors: [`Error::InvalidArgument`] for a rank that the job does not have.
    pub fn on_board(board: Board, rank: u32) -> Result<Self> {
        if rank >= board.size() {
            return Err(Error::InvalidArgument(format!(
                "rank {rank} is not below the job's size of {}",
                board.size()
            )));
        }
        board.set_pid(rank, std::process::id())?;
        board.set_state(rank, RankState::Joined)?;
        Ok(Job {
            rank,
            size: board.size(),
            board: Some(board),
            own: Mutex::default(),
        })
    }

    /// A job of one.
    pub fn alone() -> Self {
        Job {
            rank: 0,
            size: 1,
            board: None,
            own: Mutex::default(),
        }
    }

    /// This process's rank, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The board, unless this is a job of one.
    pub fn board(&self) -> Option<&Board> {
        self.board.as_ref()
    }

    /// Tells the other ranks `value` (at most 192 bytes) under `key` (at most 31). The same key overwrites.
    pub fn publish(&self, key: &str, value: &[u8]) -> Result<()> {
        if let Some(board) = &self.board {
            return board.publish(self.rank, key, value);
        }
        let mut own = self.own.lock();
        own.retain(|(known, _)| known != key);
        own.push((key.into(), value.into()));
        Ok(())
    }

    /// What `rank` has published under `key`, waiting for it. Errors: [`Error::Timeout`], [`Error::RankDead`].
    pub fn fetch(&self, rank: u32, key: &str, deadline: Deadline) -> Result<Vec<u8>> {
        self.wait(deadline, || match &self.board {
            Some(board) => {
                let value = board.fetch(rank, key)?;
                if value.is_none() && matches!(board.state(rank)?, RankState::Dead) {
                    return Err(Error::RankDead(rank));
                }
                Ok(value)
            }
            None => {
                let own = self.own.lock();
                Ok(own
                    .iter()
                    .find(|(known, _)| rank == 0 && known == key)
                    .map(|(_, value)| value.clone()))
            }
        })
    }

    /// Waits until every rank has come to fence number `epoch` (from 1 on). Errors: [`Error::Timeout`]: call again;
    /// [`Error::RankDead`] if a rank has died.
    pub fn fence(&self, epoch: u32, deadline: Deadline) -> Result<()> {
        let Some(board) = &self.board else {
            return Ok(());
        };
        board.arrive(self.rank, epoch)?;
        let mut next = 0;
        let mut poll = || {
            while next < self.size && board.epoch(next)? >= epoch {
                next += 1;
            }
            for rank in next..self.size {
                // One that left an earlier life cycle may come again, unless its process has ended.
                let ended = match board.state(rank)? {
                    RankState::Dead => true,
                    RankState::Finalized => !process_exists(board.pid(rank)?),
                    _ => false,
                };
                if ended && board.epoch(rank)? < epoch {
                    return Err(Error::RankDead(rank));
                }
            }
            Ok((next == self.size).then_some(()))
        };
        let mut nap = (NAP.0 + NAP_EACH * self.size).min(NAP.1);
        loop {
            let limit = deadline.remaining().unwrap_or(nap);
            if limit.is_zero() {
                return poll()?.ok_or(Error::Timeout);
            }
            if let Some(all) = board.sleep(limit.min(nap), &mut poll)? {
                return Ok(all);
            }
            nap = (nap * 2).min(NAP.1);
        }
    }

    fn wait<T>(
        &self,
        deadline: Deadline,
        mut poll: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let start = Instant::now();
        let mut sleep = SLEEP.0;
        loop {
            if let Some(value) = poll()? {
                return Ok(value);
            }
            if deadline.expired() {
                return Err(Error::Timeout);
            }
            if start.elapsed() < YIELD {
                std::thread::yield_now();
            } else {
                std::thread::sleep(sleep.min(deadline.remaining().unwrap_or(sleep)));
                sleep = (sleep * 2).min(SLEEP.1);
            }
        }
    }
}

/// Whether no thread of process `pid` runs any more; nobody need have waited for it yet.
pub(crate) fn process_ended(pid: u32) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::Pid;
    let Some(process) = Pid::from_raw(pid as i32) else {
        return true;
    };
    match crate::descriptor::process(process) {
        Ok(life) => {
            let mut fds = [PollFd::new(&life, PollFlags::IN)];
            matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1))
        }
        Err(rustix::io::Errno::SRCH) => true,
        Err(_) => !process_exists(pid),
    }
}

fn process_exists(pid: u32) -> bool {
    rustix::process::Pid::from_raw(pid as i32)
        .is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}
