//! A backend in one file: processes of one host reach each other over Unix sockets.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, listen, recv, send, shutdown, socket_with,
};
use unipgas_core::bundle::Tag;
use unipgas_core::descriptor::above;
use unipgas_core::random::random;
use unipgas_core::registry::Backend;
use unipgas_core::streams::greeting::SECRET;
use unipgas_core::streams::{
    Accepted, Begun, EventReceiver, Network, ProgressEvents, Stream, StreamBackend, StreamEnded,
    StreamTransport,
};
use unipgas_core::{Error, Result};

const TAG: Tag = Tag::new(7);

/// The description of this backend for the engine.
pub const BACKEND: Backend = Backend {
    name: "toy",
    old_name: None,
    tag: Some(TAG),
    variables: &[],
    open: |opening| {
        let sockets = Arc::new(Sockets::open()?);
        let events = EventReceiver::default();
        let transport = StreamTransport::open(sockets, &events, opening.beside.clone())?;
        Ok(Arc::new(transport))
    },
    probe: |between_hosts| match between_hosts {
        true => Err("its sockets reach no other host".into()),
        false => Ok(()),
    },
    network: true,
    native: None,
};

/// Bytes of a socket's name. The name is abstract: it is not in the file system.
const NAME: usize = 8;
/// The mode of all sockets here: no call waits.
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

fn os(call: &'static str) -> impl Fn(Errno) -> Error {
    move |error| Error::os(call, error)
}

fn socket() -> Result<OwnedFd> {
    let kind = (AddressFamily::UNIX, SocketType::STREAM);
    above(|| socket_with(kind.0, kind.1, FLAGS, None)).map_err(os("socket"))
}

fn place(name: &[u8]) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(name).map_err(os("a socket's name"))
}

/// The sockets of this process.
struct Sockets {
    listener: OwnedFd,
    /// The listener and all streams: readable while there is work.
    events: Arc<OwnedFd>,
    /// The secret, and the name of the listener.
    address: [u8; SECRET + NAME],
}

impl Sockets {
    fn open() -> Result<Sockets> {
        let address: [u8; SECRET + NAME] = random()?;
        let listener = socket()?;
        bind(&listener, &place(&address[SECRET..])?).map_err(os("bind"))?;
        listen(&listener, 4096).map_err(os("listen"))?;
        let events = above(|| epoll::create(epoll::CreateFlags::CLOEXEC));
        let events = Arc::new(events.map_err(os("epoll_create"))?);
        watch(&events, &listener)?;
        Ok(Sockets {
            listener,
            events,
            address,
        })
    }

    fn stream(&self, socket: OwnedFd) -> Result<Arc<Socket>> {
        watch(&self.events, &socket)?;
        Ok(Arc::new(Socket {
            socket,
            events: self.events.clone(),
            ended: AtomicBool::new(false),
        }))
    }
}

fn watch(events: &OwnedFd, socket: &OwnedFd) -> Result<()> {
    epoll::add(events, socket, EventData::new_u64(0), EventFlags::IN).map_err(os("epoll_ctl"))
}

fn watch_for(events: &OwnedFd, socket: &OwnedFd, flags: EventFlags) {
    let _ = epoll::modify(events, socket, EventData::new_u64(0), flags);
}

impl Network for Sockets {
    fn address(&self) -> &[u8] {
        &self.address
    }

    fn secret(&self) -> [u8; SECRET] {
        *self.address.first_chunk().expect("longer than a secret")
    }

    fn reach(&self, address: &[u8]) -> Result<Begun> {
        let parts = address.split_first_chunk();
        let (secret, name) = parts.ok_or(Error::Unreachable("not an address".into()))?;
        let socket = socket()?;
        match connect(&socket, &place(name)?) {
            Err(Errno::CONNREFUSED) => return Err(Error::PeerDead),
            Err(error) => return Err(Error::Unreachable(format!("connect: {error}"))),
            Ok(()) => {}
        }
        Ok(Begun {
            stream: self.stream(socket)?,
            secret: Some(*secret),
        })
    }

    fn accept(&self) -> Result<Option<Accepted>> {
        match above(|| accept_with(&self.listener, FLAGS)) {
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(os("accept")(error)),
            Ok(socket) => Ok(Some(Accepted {
                stream: self.stream(socket)?,
                known: None,
            })),
        }
    }

    fn want_guests(&self, wanted: bool) {
        let flags = if wanted {
            EventFlags::IN
        } else {
            EventFlags::empty()
        };
        watch_for(&self.events, &self.listener, flags);
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.events.as_fd()]
    }

    fn progress(&self, _turn: bool, _alone: bool) -> ProgressEvents {
        ProgressEvents {
            streams: true,
            guests: false,
            ended: false,
        }
    }

    fn is_moved_on_by_waiting(&self) -> bool {
        false
    }
}

impl StreamBackend for Sockets {
    const NAME: &'static str = BACKEND.name;
    const TAG: Tag = TAG;

    fn is_common(&self, _address: &[u8]) -> bool {
        true
    }
}

/// One end of a stream.
struct Socket {
    socket: OwnedFd,
    events: Arc<OwnedFd>,
    ended: AtomicBool,
}

impl Stream for Socket {
    fn push(&self, bytes: &[u8]) -> std::result::Result<usize, StreamEnded> {
        match send(&self.socket, bytes, SendFlags::NOSIGNAL) {
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            sent => sent.map_err(|_| StreamEnded),
        }
    }

    fn pull(&self, into: &mut Vec<u8>) -> std::result::Result<(), StreamEnded> {
        let mut part = [0; 16 << 10];
        let received = recv(&self.socket, &mut part, RecvFlags::empty());
        if let Ok((received, _)) = received {
            into.extend(&part[..received]);
        }
        match received {
            _ if self.ended.load(Ordering::Acquire) => Err(StreamEnded),
            Ok((1.., _)) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            _ => Err(StreamEnded),
        }
    }

    fn want_room(&self, wanted: bool) {
        let room = if wanted {
            EventFlags::OUT
        } else {
            EventFlags::empty()
        };
        watch_for(&self.events, &self.socket, EventFlags::IN | room);
    }

    fn end(&self) {
        let _ = epoll::delete(&self.events, &self.socket);
        self.ended.store(true, Ordering::Release);
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}
