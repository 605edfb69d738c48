//! What the ranks of a part write and read: its launcher passes it on to the launcher of the whole, and from it.
//!
//! Output is taken from the ranks as the launcher of the whole writes it: what is on the way is limited, and a rank that writes more waits, as
//! it would at a terminal.

use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::process::ChildStdin;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, epoll, eventfd};

use super::Part;
use super::output::Stream;
use crate::{Error, Result, own_thread};

/// Bytes that are on the way to the launcher of the whole.
const ON_THE_WAY: usize = 256 << 10;
const WAKE: u64 = u64::MAX;

/// Passes on what the ranks write, in a thread of its own.
pub(super) struct Forwarder {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    epoll: OwnedFd,
    wake: OwnedFd,
    streams: Mutex<Vec<Stream>>,
    course: Mutex<Course>,
    changed: Condvar,
}

#[derive(Default)]
struct Course {
    on_the_way: usize,
    over: bool,
}

impl Forwarder {
    pub fn start() -> Result<Forwarder> {
        let shared = || -> rustix::io::Result<Shared> {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let wake = eventfd(0, EventfdFlags::CLOEXEC)?;
            let data = epoll::EventData::new_u64(WAKE);
            epoll::add(&epoll, &wake, data, epoll::EventFlags::IN)?;
            Ok(Shared {
                epoll,
                wake,
                streams: Mutex::default(),
                course: Mutex::default(),
                changed: Condvar::new(),
            })
        };
        let shared = shared().map_err(|e| Error::os("cannot watch the ranks' output", e))?;
        let shared = Arc::new(shared);
        let thread = {
            let shared = shared.clone();
            own_thread::start("job-output", move || shared.pass_on())?
        };
        Ok(Forwarder {
            shared,
            thread: Some(thread),
        })
    }

    /// `stream` reads `fd`.
    pub fn add(&self, fd: OwnedFd, stream: impl FnOnce(OwnedFd) -> Result<Stream>) -> Result<()> {
        let mut streams = self.shared.streams.lock();
        let data = epoll::EventData::new_u64(streams.len() as u64);
        epoll::add(&self.shared.epoll, &fd, data, epoll::EventFlags::IN)
            .map_err(|e| Error::os("cannot watch a rank's output (epoll)", e))?;
        streams.push(stream(fd)?);
        Ok(())
    }

    /// Passes on the last words of a rank.
    pub fn drain(&self, rank: u32) {
        let mut streams = self.shared.streams.lock();
        let of_rank = streams.iter_mut().filter(|stream| stream.rank == rank);
        let passed = of_rank.map(Stream::pump).sum();
        self.shared.count(passed);
    }

    /// The launcher of the whole has written so many bytes; `closed`: where it can write no more.
    pub fn written(&self, bytes: usize, closed: [bool; 2]) {
        if closed != [false; 2] {
            let mut streams = self.shared.streams.lock();
            let of_nobody = |stream: &&mut Stream| closed[usize::from(stream.is_stderr)];
            streams
                .iter_mut()
                .filter(of_nobody)
                .for_each(|stream| stream.shut());
        }
        let mut course = self.shared.course.lock();
        course.on_the_way = course.on_the_way.saturating_sub(bytes);
        self.shared.changed.notify_all();
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.shared.course.lock().over = true;
        self.shared.changed.notify_all();
        // It only fails where it is readable anyway.
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // Panics have been told where they happened.
            let _ = thread.join();
        }
        self.shared
            .streams
            .lock()
            .iter_mut()
            .for_each(Stream::finish);
    }
}

impl Shared {
    fn count(&self, passed: usize) {
        self.course.lock().on_the_way += passed;
    }

    fn pass_on(&self) {
        let mut events = Vec::with_capacity(64);
        loop {
            {
                let mut course = self.course.lock();
                while course.on_the_way >= ON_THE_WAY && !course.over {
                    self.changed.wait(&mut course);
                }
                if course.over {
                    return;
                }
            }
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
            for event in events.drain(..) {
                let place = event.data.u64() as usize;
                if let Some(stream) = self.streams.lock().get_mut(place) {
                    self.count(stream.pump());
                }
            }
        }
    }
}

/// Hands standard input on to rank 0, whichever process that is, in a thread of its own.
pub(super) struct Feeder(Arc<(Mutex<Meal>, Condvar)>);

#[derive(Default)]
struct Meal {
    blocks: VecDeque<Vec<u8>>,
    /// The pipe of a process that has become rank 0.
    reader: Option<ChildStdin>,
}

impl Feeder {
    pub fn start(part: &Part) -> Result<Feeder> {
        let shared = Arc::new((Mutex::new(Meal::default()), Condvar::new()));
        let (meal, part) = (shared.clone(), part.clone());
        // It may be writing to who does not read when all is over: nobody waits for it.
        own_thread::start("job-input", move || feed(&meal, &part))?;
        Ok(Feeder(shared))
    }

    pub fn becomes(&self, reader: ChildStdin) {
        self.0.0.lock().reader = Some(reader);
        self.0.1.notify_all();
    }

    pub fn feed(&self, block: Vec<u8>) {
        self.0.0.lock().blocks.push_back(block);
        self.0.1.notify_all();
    }
}

fn feed((meal, changed): &(Mutex<Meal>, Condvar), part: &Part) {
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
                // A process that has ended, or closed it, reads no more of it.
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
