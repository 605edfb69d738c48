//! A thread that writes the output of the ranks and the messages of the launcher. It may block on a slow reader.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam::channel::{self, Receiver, RecvTimeoutError, Sender};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::ends::{OutputProperties, write_own};
use super::frames::Written;
use super::lines::{Gone, Label, Lines, PAUSE};
use super::signals::{Inbox, asks};
use super::{GRACE, Keeper, Launch, Output};
use unipgas_core::leave_unfinished;
use unipgas_core::{Error, Result, own_thread};

/// A request to the thread.
#[derive(Debug)]
pub(super) enum Print {
    Output {
        host: usize,
        rank: u32,
        is_stderr: bool,
        bytes: Vec<u8>,
    },
    /// A message of the launcher. It comes after all earlier output of these ranks.
    Said(String, Vec<u32>),
    Over,
}

/// Handle of the thread.
pub(super) struct Printer {
    print: Sender<Print>,
    /// Readable when all output has been written.
    done: Arc<OwnedFd>,
    lost: Arc<AtomicBool>,
}

impl Printer {
    /// The thread calls `written` for written output, with the number of its host.
    pub(crate) fn start(
        launch: &Launch,
        written: impl Fn(usize, Written) + Send + 'static,
    ) -> Result<Printer> {
        let done = eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(|e| Error::os("cannot watch the output (eventfd)", e))?;
        let (print, printed) = channel::unbounded();
        let printer = Printer {
            print,
            done: Arc::new(done),
            lost: Arc::default(),
        };
        let mut pages = Some(Pages::new(launch, Box::new(written), printer.lost.clone()));
        let done = printer.done.clone();
        own_thread::start("job-printer", move || {
            if let Some(pages) = pages.take() {
                pages.write(&printed);
            }
            // Fails only if it is readable already.
            let _ = rustix::io::write(&done, &1u64.to_ne_bytes());
        })?;
        Ok(printer)
    }

    pub(crate) fn sender(&self) -> Sender<Print> {
        self.print.clone()
    }

    pub(crate) fn print(&self, print: Print) {
        // Cannot fail before `Print::Over`.
        let _ = self.print.send(print);
    }

    /// Waits until all output has been written. The wait ends early at the end of the keeper, after `limit`, or [`GRACE`] after a signal that does not ask
    /// for a picture. Returns whether output was lost.
    pub(crate) fn finish(
        self,
        inbox: Option<&Inbox>,
        keeper: Option<&Keeper>,
        limit: Option<Duration>,
    ) -> bool {
        self.print(Print::Over);
        let after = |limit: Duration| Instant::now().checked_add(limit);
        let mut end = limit.and_then(after);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            let mut fds = vec![PollFd::new(&self.done, PollFlags::IN)];
            let keeper = keeper.map(AsFd::as_fd);
            let others = keeper.into_iter().chain(inbox.map(Inbox::fd));
            fds.extend(others.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            // After an interrupt, all conditions are checked again.
            let _ = poll(&mut fds, timeout.as_ref());
            let is_ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
            if is_ready(0) {
                return self.lost.load(Ordering::Acquire);
            }
            if keeper.is_some() && is_ready(1) || left.is_some_and(|left| left.is_zero()) {
                // No message: its reader may be the reader that is stuck.
                return true;
            }
            while let Some(arrived) = inbox.and_then(Inbox::next) {
                if !asks(arrived.signal) && end.is_none() {
                    end = after(GRACE);
                }
            }
        }
    }
}

/// Standard output and error, or the one file for both.
struct Pages {
    lines: Vec<Lines>,
    closed: [bool; 2],
    written: Box<dyn Fn(usize, Written) + Send>,
    lost: Arc<AtomicBool>,
}

impl Pages {
    fn new(
        launch: &Launch,
        written: Box<dyn Fn(usize, Written) + Send>,
        lost: Arc<AtomicBool>,
    ) -> Pages {
        let OutputProperties { one, .. } = launch.ends;
        let pause = match launch.size {
            1 => Duration::ZERO,
            _ => PAUSE,
        };
        let label = |is_stderr| match launch.output {
            Output::Tag if launch.ends.is_coloured(is_stderr) => Label::Coloured,
            Output::Tag => Label::Plain,
            _ => Label::None,
        };
        let files: &[bool] = if one { &[false] } else { &[false, true] };
        let lines = files.iter().map(|file| Lines::new(label(*file), pause));
        Pages {
            lines: lines.collect(),
            closed: [false; 2],
            written,
            lost,
        }
    }

    /// Writes requests until the last one.
    fn write(mut self, printed: &Receiver<Print>) {
        loop {
            let next = self.lines.iter().filter_map(Lines::next).min();
            let print = match next {
                Some(at) => printed.recv_deadline(at),
                None => printed.recv().map_err(RecvTimeoutError::from),
            };
            let now = Instant::now();
            match print {
                Ok(Print::Output {
                    host,
                    rank,
                    is_stderr,
                    bytes,
                }) => {
                    let page = self.page(is_stderr);
                    self.lines[page].add(host, rank, &bytes, now);
                }
                Ok(Print::Said(text, ranks)) => self.say(&text, &ranks),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Print::Over) | Err(RecvTimeoutError::Disconnected) => return self.close(),
            }
            self.lines.iter_mut().for_each(|lines| lines.look(now));
            self.put();
        }
    }

    fn page(&self, is_stderr: bool) -> usize {
        usize::from(is_stderr).min(self.lines.len() - 1)
    }

    /// Writes text that may be written now.
    fn put(&mut self) {
        for page in 0..self.lines.len() {
            let text = std::mem::take(&mut self.lines[page].out);
            let is_stderr = page == 1;
            if !self.closed[page]
                && !text.is_empty()
                && let Err(error) = write_own(is_stderr, &text)
            {
                self.fail(page, &error);
            }
            for Gone { host, rank, bytes } in std::mem::take(&mut self.lines[page].gone) {
                let written = Written {
                    rank,
                    is_stderr,
                    bytes,
                    closed: self.closed,
                };
                (self.written)(host, written);
            }
        }
    }

    /// A broken pipe, such as after `head`, closes the streams of the ranks. Other errors, such as a full device, may be temporary.
    fn fail(&mut self, page: usize, error: &std::io::Error) {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            match self.lines.len() {
                1 => self.closed = [true; 2],
                _ => self.closed[page] = true,
            }
        } else if !self.lost.swap(true, Ordering::AcqRel) {
            self.say(
                &format!("cannot pass on the output of the job: {error}"),
                &[],
            );
        }
    }

    /// Write errors are ignored: standard error may be closed.
    fn say(&mut self, text: &str, ranks: &[u32]) {
        for lines in &mut self.lines {
            ranks.iter().for_each(|rank| lines.flush(*rank));
        }
        let page = self.page(true);
        self.lines[page].interrupt();
        self.put();
        let _ = writeln!(std::io::stderr(), "unipgas: {text}");
    }

    fn close(mut self) {
        let unfinished: Vec<bool> = self.lines.iter_mut().map(Lines::close).collect();
        self.put();
        if unfinished.last() == Some(&true) {
            leave_unfinished();
        }
    }
}
