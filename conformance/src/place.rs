//! The execution place of a body: a process of a job, or a thread that plays one.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use unipgas_core::job::{Board, Job, RankState};
use unipgas_core::loopback::LoopbackNet;

use crate::stall::Looks;

/// Key of the published number of meetings of a rank.
const TURN: &str = "conform.turn";
/// Key of the published bytes of a rank's law.
const TOLD: &str = "conform.told";
/// Start of the log line by which a rank takes the link of its host down.
pub(crate) const CUT: &str = "cut ";

/// The place of one rank.
#[derive(Clone)]
pub(crate) struct Place {
    rank: u32,
    board: Arc<Board>,
    turn: Arc<AtomicU64>,
    net: Option<Arc<LoopbackNet>>,
    log: Arc<Log>,
    /// Item and seed of log lines.
    item: (usize, u64),
}

impl Place {
    /// A place on `board`. A thread passes a `net`.
    pub fn new(
        rank: u32,
        board: Arc<Board>,
        turn: Arc<AtomicU64>,
        net: Option<Arc<LoopbackNet>>,
        log: Arc<Log>,
        item: (usize, u64),
    ) -> Self {
        Place {
            rank,
            board,
            turn,
            net,
            log,
            item,
        }
    }

    /// The network that the threads share.
    pub fn net(&self) -> Option<&Arc<LoopbackNet>> {
        self.net.as_ref()
    }

    /// The rank's view of the job.
    pub fn job(&self) -> unipgas_core::Result<Job> {
        Job::on_board(Board::attach(&self.board.token())?, self.rank)
    }

    /// Writes a log line about this rank and item.
    pub fn tell(&self, what: &str, text: &str) {
        self.log.line(what, self.rank, self.item, text);
    }

    /// Publishes bytes for the other ranks.
    pub fn publish(&self, bytes: &[u8]) {
        if let Err(error) = self.board.publish(self.rank, TOLD, bytes) {
            panic!("cannot publish bytes for the other ranks: {error}");
        }
    }

    /// The published bytes of a rank.
    pub fn published(&self, rank: u32) -> Option<Vec<u8>> {
        self.board.fetch(rank, TOLD).ok().flatten()
    }

    /// Waits until each live rank has called this the same number of times.
    pub fn sync(&self) {
        self.sync_while(&mut || {});
    }

    /// Like [`sync`](Place::sync); calls `meanwhile` while other ranks are missing.
    pub fn sync_while(&self, meanwhile: &mut dyn FnMut()) {
        if let Err(error) = self.meet(meanwhile) {
            panic!("the ranks cannot meet: {error}");
        }
    }

    fn meet(&self, meanwhile: &mut dyn FnMut()) -> unipgas_core::Result<()> {
        let turn = self.turn.fetch_add(1, Ordering::AcqRel) + 1;
        // Must run before the others can leave: after this, a rank that dies may be replaced by a process that never meets.
        let died = |rank| self.board.died(rank);
        let before = (0..self.board.size())
            .map(died)
            .collect::<unipgas_core::Result<Vec<_>>>()?;
        self.board.publish(self.rank, TURN, &turn.to_le_bytes())?;
        for (rank, before) in (0..).zip(before) {
            self.await_turn(rank, turn, before, meanwhile)?;
        }
        Ok(())
    }

    fn await_turn(
        &self,
        rank: u32,
        turn: u64,
        died: u32,
        meanwhile: &mut dyn FnMut(),
    ) -> unipgas_core::Result<()> {
        let mut looks = Looks::new();
        loop {
            if self::turn(&self.board, rank) >= turn
                || self.board.state(rank)? == RankState::Dead
                || self.board.died(rank)? > died
            {
                return Ok(());
            }
            meanwhile();
            looks.again();
        }
    }

    /// Whether a rank is on another host.
    pub fn is_afar(&self, rank: u32) -> bool {
        self.board.is_afar(rank) == Ok(true)
    }

    /// Takes the link of this host down.
    pub fn cuts(&self) {
        self.tell(CUT.trim_end(), "");
    }

    /// SIGKILL for this process.
    pub fn dies(&self) -> ! {
        assert!(
            self.net.is_none(),
            "laws that kill are not run on threads, and say so"
        );
        self.tell("dies", "");
        let me = rustix::process::getpid();
        loop {
            let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
        }
    }
}

/// Number of times that a rank has met the others.
pub(crate) fn turn(board: &Board, rank: u32) -> u64 {
    let told = board.fetch(rank, TURN).ok().flatten();
    told.and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "place of rank {}", self.rank)
    }
}

/// The log of the workers for the parent: lines appended to a memory file, each by one write.
pub(crate) struct Log(pub File);

impl Log {
    /// Appends a line.
    pub fn line(&self, what: &str, rank: u32, item: (usize, u64), text: &str) {
        let text = text.replace(['\n', '\r'], " ");
        let line = format!("{what} {rank} {} {} {text}\n", item.0, item.1);
        // Ignores write errors: the parent treats a missing line as a failure.
        let _ = (&self.0).write_all(line.as_bytes());
    }
}
