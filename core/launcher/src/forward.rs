//! Threads that pass on the output of the ranks, and feed standard input to rank 0. The launcher of a part uses the launcher of the whole for both.

use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::process::ChildStdin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, epoll, eventfd};

use super::NodeRanks;
use super::frames::Written;
use super::output::Stream;
use unipgas_core::{Error, Result, own_thread};

const WAKE: u64 = u64::MAX;
/// One shot: the thread watches a stream again after it has passed on the bytes that it read.
const ONCE: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);

/// Passes on the output of the ranks.
pub(super) struct Forwarder {
    streams: Arc<Streams>,
    wake: Arc<OwnedFd>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The output streams of all ranks.
pub(super) struct Streams {
    epoll: OwnedFd,
    all: Mutex<Vec<Stream>>,
}

impl Forwarder {
    pub(crate) fn start() -> Result<Forwarder> {
        let parts = || -> rustix::io::Result<(OwnedFd, OwnedFd)> {
            let epoll = epoll::create(CreateFlags::CLOEXEC)?;
            let wake = eventfd(0, EventfdFlags::CLOEXEC)?;
            epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN)?;
            Ok((epoll, wake))
        };
        let (epoll, wake) = parts().map_err(|e| Error::os("cannot watch the ranks' output", e))?;
        let streams = Arc::new(Streams {
            epoll,
            all: Mutex::default(),
        });
        let over = Arc::new(AtomicBool::new(false));
        let thread = {
            let (streams, over) = (streams.clone(), over.clone());
            own_thread::start("job-output", move || streams.pass_on(&over))?
        };
        Ok(Forwarder {
            streams,
            wake: Arc::new(wake),
            over,
            thread: Some(thread),
        })
    }

    /// The streams, for the thread that reports written output.
    pub(crate) fn streams(&self) -> Arc<Streams> {
        self.streams.clone()
    }

    /// Adds a stream. `stream` makes it from `fd`.
    pub fn add(&self, fd: OwnedFd, stream: impl FnOnce(OwnedFd) -> Result<Stream>) -> Result<()> {
        let mut all = self.streams.all.lock();
        let data = EventData::new_u64(all.len() as u64);
        epoll::add(&self.streams.epoll, &fd, data, ONCE)
            .map_err(|e| Error::os("cannot watch a rank's output (epoll)", e))?;
        all.push(stream(fd)?);
        Ok(())
    }

    /// Passes on the last output of a rank.
    pub fn drain(&self, rank: u32) {
        let mut all = self.streams.all.lock();
        let of_rank = all.iter_mut().filter(|stream| stream.rank == rank);
        of_rank.for_each(Stream::drain);
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        // Fails only if it is readable already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic has already been reported.
            let _ = thread.join();
        }
        let mut all = self.streams.all.lock();
        all.iter_mut().for_each(Stream::finish);
    }
}

impl Streams {
    /// Counts written output, which is no longer in flight. Closes the streams without a reader.
    pub fn written(&self, written: Written) {
        let mut all = self.all.lock();
        if written.closed != [false; 2] {
            let of_nobody = |stream: &&mut Stream| written.closed[usize::from(stream.is_stderr)];
            let of_nobody = all.iter_mut().filter(of_nobody);
            of_nobody.for_each(Stream::shut);
        }
        let mut left = written.bytes;
        for (place, stream) in all.iter_mut().enumerate() {
            if (stream.rank, stream.is_stderr) == (written.rank, written.is_stderr) {
                let waited = stream.wants().is_none();
                left -= stream.count_written(left);
                if waited {
                    self.watch(place, stream);
                }
            }
        }
    }

    fn watch(&self, place: usize, stream: &Stream) {
        if let Some(fd) = stream.wants() {
            // Cannot fail: the descriptor is registered and open.
            let _ = epoll::modify(&self.epoll, fd, EventData::new_u64(place as u64), ONCE);
        }
    }

    fn pass_on(&self, over: &AtomicBool) {
        let mut events = Vec::with_capacity(64);
        while !over.load(Ordering::Acquire) {
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
            for event in events.drain(..) {
                let place = event.data.u64() as usize;
                if let Some(stream) = self.all.lock().get_mut(place) {
                    stream.pump();
                    self.watch(place, stream);
                }
            }
        }
    }
}

/// A thread that feeds standard input to rank 0, including its replacements.
pub(super) struct Feeder(Arc<(Mutex<Meal>, Condvar)>);

#[derive(Default)]
struct Meal {
    blocks: VecDeque<Vec<u8>>,
    /// The pipe of a new process of rank 0.
    reader: Option<ChildStdin>,
}

impl Feeder {
    pub(crate) fn start(part: &NodeRanks) -> Result<Feeder> {
        let shared = Arc::new((Mutex::new(Meal::default()), Condvar::new()));
        let (meal, part) = (shared.clone(), part.clone());
        // Not joined: it may block in a write to a process that does not read.
        own_thread::start("job-input", move || feed(&meal, &part))?;
        Ok(Feeder(shared))
    }

    pub(crate) fn becomes(&self, reader: ChildStdin) {
        self.0.0.lock().reader = Some(reader);
        self.0.1.notify_all();
    }

    pub(crate) fn feed(&self, block: Vec<u8>) {
        self.0.0.lock().blocks.push_back(block);
        self.0.1.notify_all();
    }
}

fn feed((meal, changed): &(Mutex<Meal>, Condvar), part: &NodeRanks) {
    let mut reader = None;
    let mut ended = false;
    loop {
        let block = {
            let mut meal = meal.lock();
            while meal.blocks.is_empty() && meal.reader.is_none() {
                changed.wait(&mut meal);
            }
            if let Some(new) = meal.reader.take() {
                reader = (!ended).then_some(new);
            }
            meal.blocks.pop_front()
        };
        match block {
            None => {}
            Some(block) if block.is_empty() => (ended, reader) = (true, None),
            Some(block) => {
                // A process that has ended, or has closed its input, reads no more.
                if let Some(pipe) = &mut reader
                    && pipe.write_all(&block).is_err()
                {
                    reader = None;
                }
                if part.tell_taken().is_err() {
                    return;
                }
            }
        }
    }
}
