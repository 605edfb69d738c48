//! Sockets as the network of the agent.

use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::event::epoll;
use unipgas_core::descriptor::{above, ready};
use unipgas_core::streams::greeting::SECRET;
use unipgas_core::streams::{
    Accepted, Begun, EventReceiver, Faults, Network, Order, ProgressEvents, Stream, StreamEnded,
    TransitState,
};
use unipgas_core::transport::Limits;
use unipgas_core::{Error, Result};

use crate::options::StreamsOptions;
use crate::pulse::Pulse;
use crate::stream::{self, Listener};
use crate::window::RequestWindow;

/// The mark of the socket that listens.
const LISTENER: u64 = u64::MAX;
/// The most events that are taken at once.
const AT_ONCE: usize = 64;

/// The network of sockets: the listening socket and the events of this process.
pub struct SocketStreams {
    options: StreamsOptions,
    listener: Listener,
    events: Arc<Events>,
    operations: Arc<AtomicU64>,
    /// A connection may wait for accept(2).
    called: AtomicBool,
    owner: Arc<EventReceiver>,
}

impl SocketStreams {
    /// Begins to listen. Errors: [`Error::Os`].
    pub(crate) fn listen(options: StreamsOptions, owner: Arc<EventReceiver>) -> Result<Self> {
        let listener = Listener::open(options.tcp)?;
        let events = Arc::new(Events::new()?);
        events.watch(&listener.socket, LISTENER)?;
        Ok(SocketStreams {
            options,
            listener,
            events,
            operations: Arc::default(),
            called: AtomicBool::new(false),
            owner,
        })
    }

    fn socket(&self, fd: OwnedFd, to: Option<SocketAddrV4>, guest: bool) -> Result<Arc<Socket>> {
        let called = Arc::new(AtomicBool::new(false));
        let mark = self.events.mark(called.clone(), guest);
        let socket = Arc::new(Socket {
            fd,
            to,
            events: self.events.clone(),
            mark,
            called,
            ended: AtomicBool::new(false),
            pulse: Mutex::default(),
        });
        self.events.watch(&socket.fd, mark)?;
        Ok(socket)
    }
}

impl Network for SocketStreams {
    fn address(&self) -> &[u8] {
        &self.listener.address
    }

    fn secret(&self) -> [u8; SECRET] {
        self.listener.secret
    }

    fn reach(&self, address: &[u8]) -> Result<Begun> {
        let (fd, secret) = stream::reach(address)?;
        Ok(Begun {
            stream: self.socket(fd, stream::place(address), false)?,
            secret: Some(secret),
        })
    }

    fn accept(&self) -> Result<Option<Accepted>> {
        if !self.called.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let accepted = self.listener.accept();
        let Some(fd) = accepted.map_err(|error| Error::os("accept", error))? else {
            self.called.store(false, Ordering::Relaxed);
            return Ok(None);
        };
        Ok(Some(Accepted {
            stream: self.socket(fd, None, true)?,
            known: None,
        }))
    }

    fn want_guests(&self, wanted: bool) {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, wanted);
        self.events
            .watch_for(&self.listener.socket, LISTENER, flags);
    }

    fn progress(&self, turn: bool, _: bool) -> ProgressEvents {
        let mut news = ProgressEvents {
            streams: false,
            guests: false,
            ended: false,
        };
        let mut room = [libc::epoll_event { events: 0, u64: 0 }; AT_ONCE];
        for mark in ready(&self.events.epoll, &mut room) {
            if mark == LISTENER {
                self.called.store(true, Ordering::Relaxed);
                if !turn {
                    self.owner.wake();
                }
            } else if let Some((called, guest)) = self.events.watched.lock().get(mark as usize) {
                called.store(true, Ordering::Relaxed);
                news.streams |= !guest;
                // With a drawn order, turns serve the streams of peers.
                news.guests |= *guest && !self.options.unordered;
            }
        }
        news
    }

    fn is_moved_on_by_waiting(&self) -> bool {
        !self.options.unordered
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.events.epoll.as_fd()]
    }

    fn limits(&self) -> Limits {
        self.options.limits
    }

    fn faults(&self) -> Option<Arc<dyn Faults>> {
        let faults = Asked {
            options: self.options,
            operations: self.operations.clone(),
        };
        Some(Arc::new(faults))
    }
}

/// Faults of the options.
struct Asked {
    options: StreamsOptions,
    operations: Arc<AtomicU64>,
}

impl Faults for Asked {
    fn order(&self) -> Option<Box<dyn Order>> {
        let window = || Box::new(RequestWindow::new(self.options.seed)) as _;
        self.options.unordered.then(window)
    }

    fn backwards(&self) -> bool {
        // Without ordered lines no caller relies on this order.
        !self.options.limits.lines
    }

    fn loses(&self) -> bool {
        let Some(lose_at) = self.options.lose_at else {
            return false;
        };
        self.operations.fetch_add(1, Ordering::Relaxed) + 1 == lose_at
    }
}

/// Descriptors with events that cause a turn. The epoll descriptor itself can be polled.
struct Events {
    epoll: OwnedFd,
    /// Indexed by the marks of sockets: whether an event has come, and whether the peer began the stream.
    watched: Mutex<Vec<(Arc<AtomicBool>, bool)>>,
}

impl Events {
    fn new() -> Result<Self> {
        let epoll = above(|| epoll::create(epoll::CreateFlags::CLOEXEC));
        Ok(Events {
            epoll: epoll.map_err(|e| Error::os("epoll_create", e))?,
            watched: Mutex::default(),
        })
    }

    /// A mark for a socket: the mark of a dropped socket, or a new one.
    fn mark(&self, called: Arc<AtomicBool>, guest: bool) -> u64 {
        let mut watched = self.watched.lock();
        let free = watched
            .iter()
            .position(|(of, _)| Arc::strong_count(of) == 1);
        let mark = free.unwrap_or(watched.len());
        match free {
            Some(mark) => watched[mark] = (called, guest),
            None => watched.push((called, guest)),
        }
        mark as u64
    }

    /// Errors: [`Error::Os`].
    fn watch(&self, what: impl AsFd, mark: u64) -> Result<()> {
        let data = epoll::EventData::new_u64(mark);
        epoll::add(&self.epoll, what, data, epoll::EventFlags::IN)
            .map_err(|e| Error::os("epoll_ctl", e))
    }

    fn watch_for(&self, what: impl AsFd, mark: u64, flags: epoll::EventFlags) {
        let _ = epoll::modify(&self.epoll, what, epoll::EventData::new_u64(mark), flags);
    }

    /// Call before close(2): a copy in the child of a fork would keep the socket in epoll.
    fn forget(&self, what: impl AsFd) {
        let _ = epoll::delete(&self.epoll, what);
    }
}

/// One end of a stream.
struct Socket {
    fd: OwnedFd,
    /// The peer's address, over TCP.
    to: Option<SocketAddrV4>,
    events: Arc<Events>,
    mark: u64,
    /// An event: received bytes, room, or the end of the stream.
    called: Arc<AtomicBool>,
    /// [`end`](Stream::end) was called.
    ended: AtomicBool,
    pulse: Mutex<Pulse>,
}

impl Stream for Socket {
    fn push(&self, bytes: &[u8]) -> std::result::Result<usize, StreamEnded> {
        stream::push(&self.fd, bytes).map_err(|_| StreamEnded)
    }

    fn pull(&self, into: &mut Vec<u8>) -> std::result::Result<(), StreamEnded> {
        if !self.called.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let pulled = stream::pull(&self.fd, into);
        // A short read leaves the end of the stream to the next event, and `end` has removed the socket from epoll.
        if pulled.is_err() || self.ended.load(Ordering::Acquire) {
            self.called.store(true, Ordering::Relaxed);
            return Err(StreamEnded);
        }
        Ok(())
    }

    fn want_room(&self, wanted: bool) {
        let mut flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::OUT, wanted);
        self.events.watch_for(&self.fd, self.mark, flags);
    }

    fn look(&self) -> TransitState {
        let mut pulse = self.pulse.lock();
        let begins = pulse.begins(&self.fd);
        let found = pulse.look(&self.fd);
        if begins
            && found == TransitState::Silence
            && let Some(to) = &self.to
        {
            unipgas_core::tell(&format!(
                "no answer from {to}: the host is down, or a firewall is between, or no way leads there"
            ));
        }
        found
    }

    fn end(&self) {
        self.events.forget(&self.fd);
        let _ = rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Both);
        self.ended.store(true, Ordering::Release);
        // The next pull finds the end.
        self.called.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn the_first_pull_after_the_end_gives_the_last_bytes_and_the_end() {
        let sockets = SocketStreams::listen(StreamsOptions::default(), Arc::default()).unwrap();
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let (here, there) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        let socket = sockets.socket(here, None, false).unwrap();
        assert_eq!(stream::push(&there, b"answer"), Ok(6));
        socket.end();
        for expected in [&b"answer"[..], b""] {
            let mut last = Vec::new();
            assert!(socket.pull(&mut last).is_err());
            assert_eq!(last, expected);
        }
    }
}
