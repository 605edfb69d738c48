//! A launcher that has some of a job's ranks on its host, and tells the launchers of the others what becomes of them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::frames::{self, Frames, Sender};
use crate::job::Board;
use crate::job::board::Told;
use crate::{Result, own_thread};

/// Which ranks are on this host, and the pipes by which the launcher of the whole talks to this one: see [`Hosts`](super::Hosts). When the
/// one that is read ends, the ranks here are killed.
#[derive(Debug, Clone)]
pub struct Part {
    here: Vec<u32>,
    input: Arc<OwnedFd>,
    output: Arc<Sender>,
}

impl Part {
    /// The ranks `here`, ascending.
    pub fn new(here: Vec<u32>, input: OwnedFd, output: OwnedFd) -> Part {
        Part {
            here,
            input: Arc::new(input),
            output: Arc::new(Sender::new(output)),
        }
    }

    /// The ranks on this host.
    pub fn here(&self) -> &[u32] {
        &self.here
    }

    /// Tells the launcher of the whole something of the caller's own, of a kind from [`OWN`](frames::OWN) on, after what has been told
    /// before.
    ///
    /// # Errors
    /// [`Error::Os`](crate::Error::Os) where it has ended; [`Error::InvalidArgument`](crate::Error::InvalidArgument) for 16 MiB and more.
    pub fn send(&self, kind: u8, bytes: &[u8]) -> Result<()> {
        self.output.send(kind, bytes)
    }

    pub(super) fn input(&self) -> BorrowedFd<'_> {
        self.input.as_fd()
    }
}

/// What the launcher of the whole asks for.
pub(super) enum Asked {
    /// The end of this rank.
    End(u32),
    /// This signal for all.
    Signal(i32),
    /// The end of the job.
    EndAll,
    /// Everything at once: it has ended, or makes no sense.
    Kill,
}

/// A board kept the same as those of the other hosts.
pub(super) struct Mirror {
    board: Arc<Board>,
    part: Part,
    over: Arc<AtomicBool>,
    teller: Option<JoinHandle<()>>,
    frames: Frames,
}

impl Mirror {
    pub fn start(part: &Part, board: &Arc<Board>) -> Result<Mirror> {
        for rank in (0..board.size()).filter(|rank| part.here.binary_search(rank).is_err()) {
            board.set_afar(rank)?;
        }
        board.begin_mirror();
        let over = Arc::new(AtomicBool::new(false));
        let teller = {
            let (board, part, over) = (board.clone(), part.clone(), over.clone());
            own_thread::start("job-mirror", move || tell(&board, &part, &over))?
        };
        Ok(Mirror {
            board: board.clone(),
            part: part.clone(),
            over,
            teller: Some(teller),
            frames: Frames::default(),
        })
    }

    /// There is something to read, or the other end is closed: what is asked for.
    pub fn hear(&mut self) -> Vec<Asked> {
        let mut block = [0; 64 << 10];
        match rustix::io::read(&self.part.input, &mut block) {
            Ok(0) => return vec![Asked::Kill],
            Ok(n) => self.frames.add(&block[..n]),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return vec![Asked::Kill],
        }
        let mut asked = Vec::new();
        loop {
            asked.push(match self.frames.next() {
                Ok(None) => return asked,
                Ok(Some((frames::NEWS, news))) if self.board.take(&news) => continue,
                Ok(Some((frames::END_ALL, _))) => Asked::EndAll,
                Ok(Some((kind @ (frames::END | frames::SIGNAL | frames::LOST), word))) => {
                    let Ok(word) = <[u8; 4]>::try_from(word) else {
                        asked.push(Asked::Kill);
                        continue;
                    };
                    match kind {
                        frames::END => Asked::End(u32::from_le_bytes(word)),
                        frames::SIGNAL => Asked::Signal(i32::from_le_bytes(word)),
                        _ if self.board.lose(u32::from_le_bytes(word)) => continue,
                        _ => Asked::Kill,
                    }
                }
                Ok(Some(_)) | Err(_) => Asked::Kill,
            });
        }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        self.board.nudge_mirror();
        if let Some(teller) = self.teller.take() {
            // Panics have been told where they happened.
            let _ = teller.join();
        }
    }
}

/// Tells what is new of the ranks here, and whose end is wanted elsewhere, until all is over.
fn tell(board: &Board, part: &Part, over: &AtomicBool) {
    let mut told = vec![Told::default(); part.here.len()];
    let mut wanted = vec![false; board.size() as usize];
    loop {
        let last = over.load(Ordering::Acquire);
        let seen = board.news();
        let mut send = || -> Result<()> {
            for (rank, told) in part.here.iter().zip(&mut told) {
                if let Some(news) = board.give(*rank, told) {
                    part.output.send(frames::NEWS, &news)?;
                }
            }
            for rank in 0..board.size() {
                let wanted = &mut wanted[rank as usize];
                if board.is_afar(rank)? && board.end_is_wanted(rank) && !*wanted {
                    *wanted = true;
                    part.output.send(frames::END, &rank.to_le_bytes())?;
                }
            }
            Ok(())
        };
        // With nobody to tell, the other pipe is closed, too, and that ends the job.
        if send().is_err() || last {
            return;
        }
        board.await_news(seen);
    }
}
