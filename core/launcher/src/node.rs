//! The launcher of the ranks on one host, which sends their news to the launchers of the other hosts.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use super::frames::{self, End, Frames, Sender, Written};
use crate::job_snapshot::JobSnapshot;
use unipgas_core::job::Board;
use unipgas_core::job::board::SentRecord;
use unipgas_core::{Error, Result, own_thread};

/// The ranks on this host, and the pipes to the launcher of the whole: see [`Hosts`](super::Hosts). At the end of the input pipe, the ranks here are
/// killed.
#[derive(Debug, Clone)]
pub struct NodeRanks {
    hosts: u32,
    /// Identity of the job, if known.
    job: Option<u64>,
    here: Vec<u32>,
    input: Arc<OwnedFd>,
    output: Arc<Sender>,
}

impl NodeRanks {
    /// The ranks `here`, ascending, of a job on `hosts` hosts. Standard input and output are the pipes.
    ///
    /// # Errors
    /// [`Error::Os`] without descriptors for the pipes.
    pub fn new(hosts: u32, here: Vec<u32>) -> Result<NodeRanks> {
        let pipe = |fd: BorrowedFd<'_>| {
            fd.try_clone_to_owned()
                .map_err(|e| Error::os("no pipe to the launcher of the whole", e))
        };
        Ok(NodeRanks {
            hosts,
            job: None,
            here,
            input: Arc::new(pipe(std::io::stdin().as_fd())?),
            output: Arc::new(Sender::new(pipe(std::io::stdout().as_fd())?)),
        })
    }

    /// A part as the launcher of the whole describes it in its first frame, and the plan in that frame: see [`Launch::run_on`](super::Launch::run_on).
    ///
    /// # Errors
    /// [`Error::Unreachable`] without a valid first frame. As [`NodeRanks::new`].
    pub fn open() -> Result<(NodeRanks, Vec<u8>)> {
        let part = NodeRanks::new(0, Vec::new())?;
        let none = || Error::Unreachable("the launcher of the whole says nothing".into());
        let (kind, payload) = frames::first(&part.input)?.ok_or_else(none)?;
        let begin: frames::Begin = frames::record(&payload)
            .filter(|_| kind == frames::BEGIN)
            .ok_or_else(none)?;
        let part = NodeRanks {
            hosts: begin.hosts,
            job: Some(begin.job),
            here: begin.here,
            ..part
        };
        Ok((part, begin.plan))
    }

    /// The ranks that start on this host.
    pub fn here(&self) -> &[u32] {
        &self.here
    }

    /// Sends data of the caller to the launcher of the whole, after all frames sent before. `kind` is [`OWN`](frames::OWN) or higher.
    ///
    /// # Errors
    /// [`Error::Os`] if it has ended. [`Error::InvalidArgument`] for more than 16 MiB.
    pub fn send(&self, kind: u8, bytes: &[u8]) -> Result<()> {
        self.output.send(kind, bytes)
    }

    /// Write errors are ignored, here and below. If the launcher of the whole has ended, the input pipe closes too, which ends the job.
    pub(super) fn tell_started(&self) {
        let _ = self.send(frames::STARTED, &[]);
    }

    pub(super) fn tell_end(&self, end: End) {
        let _ = self.send(frames::ENDED, &frames::payload(&end));
    }

    pub(super) fn tell_cannot(&self, rank: u32, why: &Error) {
        let mut payload = rank.to_le_bytes().to_vec();
        payload.extend_from_slice(why.to_string().as_bytes());
        let _ = self.send(frames::CANNOT, &payload);
    }

    pub(super) fn tell_output(&self, rank: u32, is_stderr: bool, text: &[u8]) -> Result<()> {
        self.send(frames::OUTPUT, &frames::to_output(rank, is_stderr, text))
    }

    /// Text for the launcher of the whole to print.
    pub(super) fn say(&self, text: &str) {
        let _ = self.send(frames::SAID, text.as_bytes());
    }

    pub(super) fn tell_picture(&self, picture: &JobSnapshot) {
        let _ = self.send(frames::SHOWN, &frames::payload(picture));
    }

    pub(super) fn tell_taken(&self) -> Result<()> {
        self.send(frames::TAKEN, &[])
    }
}

/// A request of the launcher of the whole.
pub(super) enum Asked {
    /// End this rank.
    End(u32),
    /// Send this signal to all ranks.
    Signal(i32),
    /// Send a picture of the ranks here.
    Show,
    /// End the job.
    EndAll,
    /// Start a replacement process for this rank.
    Start(u32),
    /// The rank has failed, and gets no replacement.
    GivenUp(u32),
    /// Last request: no process of the job runs.
    Over,
    /// Output of a rank has been written.
    Written(Written),
    /// Pass this input to rank 0.
    Input(Vec<u8>),
    /// Kill all ranks: the launcher of the whole has ended, or sends malformed data.
    Kill,
}

/// A board that exchanges news with the boards of the other hosts.
pub(super) struct Mirror {
    board: Arc<Board>,
    over: Arc<AtomicBool>,
    teller: Option<JoinHandle<()>>,
    heard: Arc<Heard>,
}

/// Requests that have not been carried out. A separate thread reads them and waits for nothing else. Otherwise two launchers with full pipes could
/// deadlock.
struct Heard {
    asked: Mutex<Vec<Asked>>,
    bell: OwnedFd,
}

impl Mirror {
    pub(crate) fn start(part: &NodeRanks, board: &Arc<Board>) -> Result<Mirror> {
        for rank in (0..board.size()).filter(|rank| part.here.binary_search(rank).is_err()) {
            board.set_afar(rank)?;
        }
        board.set_hosts(part.hosts);
        if let Some(job) = part.job {
            board.set_everywhere(job);
        }
        board.begin_mirror();
        let over = Arc::new(AtomicBool::new(false));
        let teller = {
            let (board, part, over) = (board.clone(), part.clone(), over.clone());
            own_thread::start("job-mirror", move || tell(&board, &part, &over))?
        };
        let mut mirror = Mirror {
            board: board.clone(),
            over,
            teller: Some(teller),
            heard: Arc::new(Heard {
                asked: Mutex::default(),
                bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                    .map_err(|e| Error::os("cannot watch the job's other launchers", e))?,
            }),
        };
        mirror.hear(part)?;
        Ok(mirror)
    }

    /// Starts the reading thread. It ends with the pipe, or after the last request, and is not joined.
    fn hear(&mut self, part: &NodeRanks) -> Result<()> {
        let (board, heard, input) = (self.board.clone(), self.heard.clone(), part.input.clone());
        own_thread::start("job-orders", move || {
            let mut frames = Frames::default();
            loop {
                let came = read_frames(&input, &mut frames);
                let asked = came.map(|frames| understand(&board, frames));
                let asked = asked.unwrap_or_else(|| vec![Asked::Kill]);
                let last = asked
                    .iter()
                    .any(|one| matches!(one, Asked::Kill | Asked::Over));
                heard.asked.lock().extend(asked);
                // Fails only if it is readable already.
                let _ = rustix::io::write(&heard.bell, &1u64.to_ne_bytes());
                if last {
                    return;
                }
            }
        })
        .map(drop)
    }

    /// Readable if [`asked`](Mirror::asked) has requests.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.heard.bell.as_fd()
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        let mut count = [0; 8];
        // Before the requests are taken: a later request rings again.
        let _ = rustix::io::read(&self.heard.bell, &mut count);
        std::mem::take(&mut *self.heard.asked.lock())
    }
}

/// Reads whole frames. `None`: end of file, or malformed data.
fn read_frames(input: &OwnedFd, frames: &mut Frames) -> Option<Vec<(u8, Vec<u8>)>> {
    let mut block = [0; 64 << 10];
    match rustix::io::read(input, &mut block) {
        Ok(0) => return None,
        Ok(n) => frames.add(&block[..n]),
        Err(rustix::io::Errno::INTR) => {}
        Err(_) => return None,
    }
    let mut whole = Vec::new();
    while let Some(frame) = frames.next().ok()? {
        whole.push(frame);
    }
    Some(whole)
}

/// Converts frames to requests. News goes to the board.
pub(super) fn understand(board: &Board, frames: Vec<(u8, Vec<u8>)>) -> Vec<Asked> {
    let mut asked = Vec::new();
    for (kind, payload) in frames {
        let word = <[u8; 4]>::try_from(payload.as_slice()).map(u32::from_le_bytes);
        asked.push(match (kind, word) {
            (frames::NEWS, _) if board.take(&payload) => continue,
            (frames::LOST, Ok(rank)) if board.lose(rank) => continue,
            (frames::END, Ok(rank)) => Asked::End(rank),
            (frames::SIGNAL, Ok(signal)) => Asked::Signal(signal as i32),
            (frames::SHOW, _) => Asked::Show,
            (frames::END_ALL, _) => Asked::EndAll,
            (frames::START, Ok(rank)) => Asked::Start(rank),
            (frames::GIVEN_UP, Ok(rank)) => Asked::GivenUp(rank),
            (frames::OVER, _) => Asked::Over,
            (frames::WRITTEN, _) => frames::record(&payload).map_or(Asked::Kill, Asked::Written),
            (frames::INPUT, _) => Asked::Input(payload),
            _ => Asked::Kill,
        });
    }
    asked
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        self.board.nudge_mirror();
        if let Some(teller) = self.teller.take() {
            // A panic has already been reported.
            let _ = teller.join();
        }
    }
}

/// Sends news of the ranks here, and wanted ends of ranks elsewhere, until `over` is set.
fn tell(board: &Board, part: &NodeRanks, over: &AtomicBool) {
    let mut told: BTreeMap<u32, SentRecord> = BTreeMap::new();
    let mut wanted = vec![false; board.size() as usize];
    loop {
        // Before `over` is read: a change after this line ends the sleep.
        let seen = board.news();
        let last = over.load(Ordering::Acquire);
        let mut send = || -> Result<()> {
            for rank in 0..board.size() {
                if !board.is_afar(rank)? {
                    if let Some(news) = board.give(rank, told.entry(rank).or_default()) {
                        part.send(frames::NEWS, &news)?;
                    }
                    continue;
                }
                let wanted = &mut wanted[rank as usize];
                let is_wanted = board.end_is_wanted(rank);
                if is_wanted && !*wanted {
                    part.send(frames::END, &rank.to_le_bytes())?;
                }
                *wanted = is_wanted;
            }
            Ok(())
        };
        // The launcher of the whole has ended. The input pipe closes too, which ends the job.
        if send().is_err() || last {
            return;
        }
        board.await_news(seen);
    }
}
