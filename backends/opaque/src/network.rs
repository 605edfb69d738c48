//! Sockets as the network under the agent.

use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::event::epoll;
use unipgas_core::descriptor::above;
use unipgas_core::streams::greeting::SECRET;
use unipgas_core::streams::{Accepted, Begun, Ended, Faults, Found, Network, Order, Stream};
use unipgas_core::transport::Limits;
use unipgas_core::{Error, Result};

use crate::options::Options;
use crate::pulse::Pulse;
use crate::stream::{self, Listener};
use crate::window::Window;

/// Where this process listens, and what has to happen for a turn.
pub struct Sockets {
    options: Options,
    listener: Listener,
    events: Arc<Events>,
    operations: Arc<AtomicU64>,
}

impl Sockets {
    /// Begins to listen. Errors: [`Error::Os`].
    pub fn open(options: Options) -> Result<Self> {
        let listener = Listener::open(options.tcp)?;
        let events = Arc::new(Events::new()?);
        events.watch(&listener.socket)?;
        Ok(Sockets {
            options,
            listener,
            events,
            operations: Arc::default(),
        })
    }

    fn socket(&self, fd: OwnedFd, to: Option<SocketAddrV4>) -> Result<Arc<Socket>> {
        self.events.watch(&fd)?;
        Ok(Arc::new(Socket {
            fd,
            to,
            events: self.events.clone(),
            pulse: Mutex::default(),
        }))
    }
}

impl Network for Sockets {
    fn address(&self) -> &[u8] {
        &self.listener.address
    }

    fn needs_beats(&self) -> bool {
        false
    }

    fn secret(&self) -> [u8; SECRET] {
        self.listener.secret
    }

    fn reach(&self, address: &[u8]) -> Result<Begun> {
        let (fd, secret) = stream::reach(address)?;
        Ok(Begun {
            stream: self.socket(fd, stream::place(address))?,
            secret: Some(secret),
        })
    }

    fn accept(&self) -> Result<Option<Accepted>> {
        let accepted = self.listener.accept();
        let Some(fd) = accepted.map_err(|error| Error::os("accept", error))? else {
            return Ok(None);
        };
        Ok(Some(Accepted {
            stream: self.socket(fd, None)?,
            known: None,
        }))
    }

    fn want_guests(&self, wanted: bool) {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, wanted);
        self.events.watch_for(&self.listener.socket, flags);
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.events.0.as_fd()]
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

/// What the options ask for.
struct Asked {
    options: Options,
    operations: Arc<AtomicU64>,
}

impl Faults for Asked {
    fn order(&self) -> Option<Box<dyn Order>> {
        let window = || Box::new(Window::new(self.options.seed)) as _;
        self.options.unordered.then(window)
    }

    fn backwards(&self) -> bool {
        // Then nobody relies on an order within lines.
        !self.options.limits.lines
    }

    fn loses(&self) -> bool {
        let Some(lose_at) = self.options.lose_at else {
            return false;
        };
        self.operations.fetch_add(1, Ordering::Relaxed) + 1 == lose_at
    }
}

/// The descriptors whose events call for a turn: itself one that can be polled.
struct Events(OwnedFd);

impl Events {
    fn new() -> Result<Self> {
        let events = above(|| epoll::create(epoll::CreateFlags::CLOEXEC));
        Ok(Events(events.map_err(|e| Error::os("epoll_create", e))?))
    }

    /// Errors: [`Error::Os`].
    fn watch(&self, what: impl AsFd) -> Result<()> {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&self.0, what, data, epoll::EventFlags::IN)
            .map_err(|e| Error::os("epoll_ctl", e))
    }

    fn watch_for(&self, what: impl AsFd, flags: epoll::EventFlags) {
        let _ = epoll::modify(&self.0, what, epoll::EventData::new_u64(0), flags);
    }

    /// Before it is closed: the child of a fork may have it, too, and then it would stay.
    fn forget(&self, what: impl AsFd) {
        let _ = epoll::delete(&self.0, what);
    }
}

/// One end of a stream.
struct Socket {
    fd: OwnedFd,
    /// Where somebody is to be reached, over TCP.
    to: Option<SocketAddrV4>,
    events: Arc<Events>,
    pulse: Mutex<Pulse>,
}

impl Stream for Socket {
    fn push(&self, bytes: &[u8]) -> std::result::Result<usize, Ended> {
        stream::push(&self.fd, bytes).map_err(|_| Ended)
    }

    fn pull(&self, into: &mut Vec<u8>) -> std::result::Result<(), Ended> {
        stream::pull(&self.fd, into).map_err(|_| Ended)
    }

    fn want_room(&self, wanted: bool) {
        let mut flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::OUT, wanted);
        self.events.watch_for(&self.fd, flags);
    }

    fn look(&self) -> Found {
        let mut pulse = self.pulse.lock();
        let begins = pulse.begins(&self.fd);
        let found = pulse.look(&self.fd);
        if begins
            && found == Found::Silence
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
    }
}
