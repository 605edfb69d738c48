//! Sockets, and the secret that protects them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, connect, listen, recv, send, socket_with,
};
use unipgas_core::descriptor::{above, tcp_listener};
use unipgas_core::random::random;
use unipgas_core::streams::greeting::SECRET;
use unipgas_core::{Deadline, Error, Result, host};

/// The kernel cuts it to its limit.
const BACKLOG: i32 = 4096;
/// Maximum time that a process of this host may take to accept.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest interval of TCP retransmissions, from Linux 6.15 on. Otherwise the intervals grow, and the death of a stopped process's host is noticed
/// late.
static ASK_AGAIN_MS: libc::c_int = 2000;
const TCP_RTO_MAX_MS: libc::c_int = 44;

const UNIX: u8 = 1;
const TCP: u8 = 2;
/// Random bytes of a Unix socket name. The name is abstract: it is not in the file system.
const NAME: usize = 8;

/// The listening socket of a process, and the secret that peers must send.
pub(crate) struct Listener {
    /// Non-blocking.
    pub socket: OwnedFd,
    /// Address for peers: kind, secret, name.
    pub address: Vec<u8>,
    pub secret: [u8; SECRET],
}

fn os(what: &str) -> impl Fn(Errno) -> Error {
    move |error| Error::os(what, error)
}

impl Listener {
    /// Listens at a random name. With TCP: at a port of the first address that other hosts can reach.
    pub fn open(tcp: bool) -> Result<Self> {
        let secret = random()?;
        let mut address = vec![if tcp { TCP } else { UNIX }];
        address.extend(secret);
        let socket = if tcp {
            let ip = host::own_address();
            let (socket, bound) = tcp_listener(ip.into(), BACKLOG)?;
            address.extend(ip.octets());
            address.extend(bound.port().to_le_bytes());
            socket
        } else {
            let socket = open(AddressFamily::UNIX)?;
            let name: [u8; NAME] = random()?;
            bind(&socket, &unix(&name)?).map_err(os("bind"))?;
            address.extend(name);
            listen(&socket, BACKLOG).map_err(os("listen"))?;
            rustix::io::ioctl_fionbio(&socket, true).map_err(os("ioctl"))?;
            socket
        };
        Ok(Listener {
            socket,
            address,
            secret,
        })
    }

    /// Accepts the next connection, if there is one. Does not block. Errors: there are no resources for it now.
    pub fn accept(&self) -> std::result::Result<Option<OwnedFd>, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            match above(|| accept_with(&self.socket, flags)) {
                Ok(socket) => {
                    tune(&socket);
                    return Ok(Some(socket));
                }
                // A signal, or a peer that has closed the connection.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                // Without a free descriptor it fails even if no connection waits.
                Err(error) if error != Errno::AGAIN && self.is_called() => return Err(error),
                Err(_) => return Ok(None),
            }
        }
    }

    fn is_called(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())) != Ok(0)
    }
}

/// The TCP address in an address of this backend. `None`: not TCP.
pub fn place(address: &[u8]) -> Option<SocketAddrV4> {
    let (_, rest) = address.split_first().filter(|(kind, _)| **kind == TCP)?;
    match rest.split_first_chunk::<SECRET>()? {
        (_, [a, b, c, d, low, high]) => {
            let host = Ipv4Addr::new(*a, *b, *c, *d);
            Some(SocketAddrV4::new(host, u16::from_le_bytes([*low, *high])))
        }
        _ => None,
    }
}

/// Begins to connect to `address`. Returns the socket, and the secret to send. A TCP socket is connected when it becomes writable, and ends if the
/// peer's port is closed. Errors: [`Error::Unreachable`], [`Error::PeerDead`], [`Error::Os`].
pub fn reach(address: &[u8]) -> Result<(OwnedFd, [u8; SECRET])> {
    let unreachable = || Error::Unreachable("not an address of the streams backend".into());
    let (kind, rest) = address.split_first().ok_or_else(unreachable)?;
    let (secret, name) = rest.split_first_chunk().ok_or_else(unreachable)?;
    let (socket, connected) = match (*kind, name) {
        (UNIX, name) => {
            let socket = open(AddressFamily::UNIX)?;
            let name = unix(name.try_into().map_err(|_| unreachable())?)?;
            sockopt::set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))
                .map_err(os("setsockopt"))?;
            let late = Deadline::after(PATIENCE);
            let connected = loop {
                match connect(&socket, &name) {
                    // A signal: the kernel has not begun to connect.
                    Err(Errno::INTR) if !late.expired() => {}
                    connected => break connected,
                }
            };
            rustix::io::ioctl_fionbio(&socket, true).map_err(os("ioctl"))?;
            (socket, connected)
        }
        (TCP, _) => {
            let to = place(address).ok_or_else(unreachable)?;
            let socket = open(AddressFamily::INET)?;
            tune(&socket);
            rustix::io::ioctl_fionbio(&socket, true).map_err(os("ioctl"))?;
            let connected = match connect(&socket, &to) {
                Err(Errno::INPROGRESS | Errno::INTR) => Ok(()),
                connected => connected,
            };
            (socket, connected)
        }
        _ => return Err(unreachable()),
    };
    connected.map_err(|error| match error {
        Errno::CONNREFUSED | Errno::NOENT | Errno::CONNRESET => Error::PeerDead,
        Errno::AGAIN => Error::Unreachable("connect: the process accepts no connection".into()),
        error => Error::Unreachable(format!("connect: {error}")),
    })?;
    Ok((socket, *secret))
}

/// Sends the bytes that there is room for; returns their number. Errors: the stream has ended.
pub fn push(socket: impl AsFd, bytes: &[u8]) -> std::result::Result<usize, Errno> {
    loop {
        match send(&socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(0),
            result => return result,
        }
    }
}

/// Appends received bytes. Bytes that arrive meanwhile, and the end of the stream, may be left to the next call. Errors: the stream has ended.
pub fn pull(socket: impl AsFd, into: &mut Vec<u8>) -> std::result::Result<(), Errno> {
    // Other streams must have their turn.
    const AT_MOST: usize = 1 << 20;
    const PART: usize = 64 << 10;
    // Not on the stack: threads of programs may have small stacks.
    let mut part = Vec::with_capacity(PART);
    let mut taken = 0;
    while taken < AT_MOST {
        part.clear();
        match recv(&socket, spare_capacity(&mut part), RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(Errno::CONNRESET),
            Ok((len, _)) => {
                into.extend_from_slice(&part);
                taken += len;
                if len < PART {
                    break;
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn open(family: AddressFamily) -> Result<OwnedFd> {
    above(|| socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None))
        .map_err(os("socket"))
}

fn unix(name: &[u8; NAME]) -> Result<SocketAddrUnix> {
    let text: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    SocketAddrUnix::new_abstract_name(format!("unipgas-{text}").as_bytes())
        .map_err(os("a socket's name"))
}

/// Sets TCP options for small messages, and keepalive to detect the death of a host while the stream is idle (otherwise [`pulse`](crate::pulse)
/// does). Unix sockets refuse the options, and need none.
fn tune(socket: &OwnedFd) {
    let _ = sockopt::set_tcp_nodelay(socket, true);
    let _ = sockopt::set_socket_keepalive(socket, true);
    let _ = sockopt::set_tcp_keepidle(socket, Duration::from_secs(2));
    let _ = sockopt::set_tcp_keepintvl(socket, Duration::from_secs(1));
    let _ = sockopt::set_tcp_keepcnt(socket, 3);
    // SAFETY:
    // - the kernel reads an int, which lives through the call.
    let _ = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_RTO_MAX_MS,
            (&raw const ASK_AGAIN_MS).cast(),
            size_of_val(&ASK_AGAIN_MS) as libc::socklen_t,
        )
    };
}
