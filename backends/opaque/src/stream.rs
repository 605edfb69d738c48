//! Sockets, and who may use them.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, connect, getsockname, listen, recv, send, socket_with,
};
use unipgas_core::descriptor::above;
use unipgas_core::{Error, Result};

/// What a process tells whom it connects to, and only those know who have its address.
pub const SECRET: usize = 16;
const MAGIC: [u8; 8] = *b"unipgas1";
/// Bytes that an address takes in a greeting, filled with zeros.
pub const ADDRESS: usize = 32;
/// Bytes of a greeting.
pub const HELLO: usize = MAGIC.len() + SECRET + ADDRESS;
/// The kernel cuts it to what it allows.
const BACKLOG: i32 = 4096;
/// A host that does not answer for so long has gone.
const SILENCE_MS: u32 = 5000;

const UNIX: u8 = 1;
const TCP: u8 = 2;
/// Of a Unix socket's name, which lies in no file system.
const NAME: usize = 8;

/// What is sent first, by who listens at `own` himself.
pub fn hello(secret: &[u8; SECRET], own: &[u8]) -> [u8; HELLO] {
    let mut bytes = [0; HELLO];
    let parts = [&MAGIC[..], secret, own];
    for (byte, said) in bytes.iter_mut().zip(parts.into_iter().flatten()) {
        *byte = *said;
    }
    bytes
}

/// Where whoever sends this greeting listens; `None`: he does not know the secret.
pub fn greeted(said: &[u8; HELLO], secret: &[u8; SECRET]) -> Option<[u8; ADDRESS]> {
    let (said, own) = said.split_last_chunk::<ADDRESS>()?;
    let right = said == &hello(secret, &[])[..HELLO - ADDRESS];
    right.then_some(*own)
}

/// An address as it stands in a greeting; something else where it is none.
pub fn padded(address: &[u8]) -> [u8; ADDRESS] {
    let mut bytes = [0; ADDRESS];
    for (byte, said) in bytes.iter_mut().zip(address) {
        *byte = *said;
    }
    bytes
}

/// Where a process listens, and the secret that it wants to hear.
pub struct Listener {
    /// Non-blocking.
    pub socket: OwnedFd,
    /// As peers get it: kind, secret, name.
    pub address: Vec<u8>,
    pub secret: [u8; SECRET],
}

fn os(what: &str) -> impl Fn(Errno) -> Error {
    move |error| Error::os(what, error)
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(os("getrandom"))?;
    Ok(bytes)
}

impl Listener {
    /// At a name that nobody has, or, for TCP, a port of the first address that other hosts may reach.
    pub fn open(tcp: bool) -> Result<Self> {
        let secret = random()?;
        let mut address = vec![if tcp { TCP } else { UNIX }];
        address.extend(secret);
        let socket = open(if tcp {
            AddressFamily::INET
        } else {
            AddressFamily::UNIX
        })?;
        if tcp {
            let any = SocketAddrV4::new(own_address(), 0);
            bind(&socket, &any).map_err(os("bind"))?;
            let bound = getsockname(&socket).map_err(os("getsockname"))?;
            let Ok(SocketAddr::V4(bound)) = SocketAddr::try_from(bound) else {
                return Err(Error::Os("getsockname: not an IPv4 address".into()));
            };
            address.extend(bound.ip().octets());
            address.extend(bound.port().to_le_bytes());
        } else {
            let name: [u8; NAME] = random()?;
            bind(&socket, &unix(&name)?).map_err(os("bind"))?;
            address.extend(name);
        }
        listen(&socket, BACKLOG).map_err(os("listen"))?;
        rustix::io::ioctl_fionbio(&socket, true).map_err(os("ioctl"))?;
        Ok(Listener {
            socket,
            address,
            secret,
        })
    }

    /// The next one who has connected, if there is one; non-blocking.
    pub fn accept(&self) -> Option<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = above(|| accept_with(&self.socket, flags)).ok()?;
        tune(&socket);
        Some(socket)
    }
}

/// Connects to whoever listens at `address`, and greets him as the one who listens at `own`. Errors: [`Error::Unreachable`],
/// [`Error::PeerDead`] where nobody listens any more.
pub fn reach(address: &[u8], own: &[u8]) -> Result<OwnedFd> {
    let unreachable = || Error::Unreachable("not an address of the opaque backend".into());
    let (kind, rest) = address.split_first().ok_or_else(unreachable)?;
    let (secret, name) = rest.split_first_chunk().ok_or_else(unreachable)?;
    let (socket, connected) = match (*kind, name) {
        (UNIX, name) => {
            let socket = open(AddressFamily::UNIX)?;
            let name = name.try_into().map_err(|_| unreachable())?;
            let connected = connect(&socket, &unix(name)?);
            (socket, connected)
        }
        (TCP, [a, b, c, d, low, high]) => {
            let socket = open(AddressFamily::INET)?;
            let host = Ipv4Addr::new(*a, *b, *c, *d);
            let port = u16::from_le_bytes([*low, *high]);
            let connected = connect(&socket, &SocketAddrV4::new(host, port));
            (socket, connected)
        }
        _ => return Err(unreachable()),
    };
    connected.map_err(|error| match error {
        Errno::CONNREFUSED | Errno::NOENT | Errno::CONNRESET => Error::PeerDead,
        error => Error::Unreachable(format!("connect: {error}")),
    })?;
    tune(&socket);
    // The socket is new: there is room for so little.
    let greeting = hello(secret, own);
    match send(&socket, &greeting, SendFlags::NOSIGNAL) {
        Ok(HELLO) => {}
        _ => return Err(Error::PeerDead),
    }
    rustix::io::ioctl_fionbio(&socket, true).map_err(os("ioctl"))?;
    Ok(socket)
}

/// Sends what there is room for: bytes, 0 if there is none now. Errors: the stream has ended.
pub fn push(socket: impl AsFd, bytes: &[u8]) -> std::result::Result<usize, Errno> {
    loop {
        match send(&socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(0),
            result => return result,
        }
    }
}

/// Appends what has come. Errors: the stream has ended.
pub fn pull(socket: impl AsFd, into: &mut Vec<u8>) -> std::result::Result<(), Errno> {
    // Others wait for their turn.
    const AT_MOST: usize = 1 << 20;
    let mut part = [0u8; 64 << 10];
    let mut taken = 0;
    while taken < AT_MOST {
        match recv(&socket, &mut part, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(Errno::CONNRESET),
            Ok((len, _)) => {
                into.extend_from_slice(&part[..len]);
                taken += len;
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

/// What TCP needs for small messages, and to notice that a host has gone; a Unix socket refuses it, and needs nothing.
fn tune(socket: &OwnedFd) {
    let _ = sockopt::set_tcp_nodelay(socket, true);
    let _ = sockopt::set_socket_keepalive(socket, true);
    let _ = sockopt::set_tcp_keepidle(socket, std::time::Duration::from_secs(2));
    let _ = sockopt::set_tcp_keepintvl(socket, std::time::Duration::from_secs(1));
    let _ = sockopt::set_tcp_keepcnt(socket, 3);
    let _ = sockopt::set_tcp_user_timeout(socket, SILENCE_MS);
}

/// The first address of this host that is not its own loop's; the loop's if there is no other.
fn own_address() -> Ipv4Addr {
    let mut found = None;
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY:
    // - getifaddrs makes a list that ends with null, whose addresses are null or of their family; it is freed once, after its last use.
    unsafe {
        if libc::getifaddrs(&raw mut list) != 0 {
            return Ipv4Addr::LOCALHOST;
        }
        let mut at = list;
        while let Some(interface) = at.as_ref() {
            let address = interface.ifa_addr;
            if !address.is_null() && (*address).sa_family == libc::AF_INET as libc::sa_family_t {
                let address = address.cast::<libc::sockaddr_in>().read_unaligned();
                let address = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
                if !address.is_loopback() {
                    found.get_or_insert(address);
                }
            }
            at = interface.ifa_next;
        }
        libc::freeifaddrs(list);
    }
    found.unwrap_or(Ipv4Addr::LOCALHOST)
}
