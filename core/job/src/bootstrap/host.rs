//! The board that the ranks of one host share, if their launcher provides none.
//!
//! The first rank makes the board and puts its token in the job's rendezvous file. No rank waits there for another. The file is removed when all ranks are
//! attached. No launcher watches the processes, so the ranks watch each other.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::job::{Board, RankState, cores_of_a_job};
use crate::rendezvous::{JobName, Layout, PROPERTIES_LEN, Rendezvous};
use unipgas_base::{Error, Result};

/// Processes that one look checks. Many ranks share the work, and each starts at another rank.
const LOOKS: u32 = 32;

/// The board, and the file by which others find it.
pub(super) struct Host {
    pub board: Board,
    /// Held by the process that has made the board: others open it there.
    _fd: Option<OwnedFd>,
    meeting: Mutex<Option<Rendezvous>>,
    next: Mutex<u32>,
}

/// The board of this process, which stays the same when the process joins its job again.
struct Known {
    host: Option<(u32, Arc<Host>)>,
    /// Deaths reported before the board existed.
    early: Vec<u32>,
}

static KNOWN: Mutex<Known> = Mutex::new(Known {
    host: None,
    early: Vec::new(),
});

impl Host {
    /// The board of the ranks on this host, for job `name` of `size` ranks.
    pub(crate) fn join(name: &JobName, rank: u32, size: u32) -> Result<Arc<Host>> {
        let mut known = KNOWN.lock();
        let pid = std::process::id();
        if let Some((of, host)) = &known.host
            && *of == pid
        {
            return Ok(host.clone());
        }
        let (board, fd) = Board::create_for(size, cores_of_a_job() as u32)?;
        let mine = board.token();
        let mut properties = [0; PROPERTIES_LEN];
        properties[..mine.len()].copy_from_slice(mine.as_bytes());
        let layout = Layout {
            places: size,
            places_per_group: size,
            words_per_group: 1,
            properties,
        };
        let meeting = Rendezvous::join(&name.with("board"), &layout)?;
        let found = meeting.properties().split(|byte| *byte == 0).next();
        let found = std::str::from_utf8(found.unwrap_or_default()).unwrap_or_default();
        let (board, fd) = if found == mine {
            (board, Some(fd))
        } else {
            (attach(found, size)?, None)
        };
        board.set_this_process(rank)?;
        board.tell_waits(rank);
        let host = Arc::new(Host {
            board,
            _fd: fd,
            meeting: Mutex::new(Some(meeting)),
            next: Mutex::new(rank + 1),
        });
        for dead in std::mem::take(&mut known.early) {
            host.mark(dead);
        }
        known.host = Some((pid, host.clone()));
        Ok(host)
    }

    /// All ranks are attached, so the file is removed.
    pub(crate) fn all_are_here(&self) {
        *self.meeting.lock() = None;
    }

    fn mark(&self, rank: u32) {
        if matches!(
            self.board.state(rank),
            Ok(RankState::Absent | RankState::Joined)
        ) {
            // Cannot fail: the rank is in range, as its state is known.
            let _ = self.board.mark_dead(rank);
        }
    }

    /// Checks the next ranks in turn, and marks the dead.
    pub fn look(&self) {
        let size = self.board.size();
        let Some(mut next) = self.next.try_lock() else {
            return;
        };
        for _ in 0..size.min(LOOKS) {
            let rank = *next % size;
            *next = rank + 1;
            if self.board.state(rank) == Ok(RankState::Joined) && self.board.process_has_ended(rank)
            {
                // The process may have left after its state was read. `mark` reads it again.
                self.mark(rank);
            }
        }
    }
}

/// Records the launcher's report that `rank` has died.
pub(super) fn mark_died(rank: u32) {
    let mut known = KNOWN.lock();
    match &known.host {
        Some((_, host)) => host.mark(rank),
        None => known.early.push(rank),
    }
}

/// Whether the death of `rank` is known.
pub(super) fn is_dead(rank: u32) -> bool {
    let known = KNOWN.lock();
    match &known.host {
        Some((_, host)) => host.board.state(rank) == Ok(RankState::Dead),
        None => known.early.contains(&rank),
    }
}

fn attach(token: &str, size: u32) -> Result<Board> {
    let board = Board::attach(token).map_err(|error| match error {
        Error::Unreachable(_) => Error::Unreachable(
            "the process that made this host's board for the job has ended, or cannot be opened in /proc".into(),
        ),
        other => other,
    })?;
    if board.size() != size {
        return Err(Error::Unreachable(format!(
            "the job's ranks do not agree on their number: {size} here, {} elsewhere",
            board.size()
        )));
    }
    Ok(board)
}
