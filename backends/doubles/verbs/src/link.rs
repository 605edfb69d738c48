//! Sockets between NICs. A NIC connects to the targets of its requests. Answers come back on the same socket.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, connect, listen, recv, send, socket_with, sockopt,
};

use crate::fork;
use crate::qp::Qp;

const BACKLOG: i32 = 4096;
const BUFFER: usize = 1 << 20;
/// Bytes that are read at a time, so that other links get their turn.
const PART: usize = 256 << 10;

/// A descriptor that child processes close.
pub(crate) struct Socket(OwnedFd);

impl Socket {
    pub fn new(fd: OwnedFd) -> Self {
        fork::opened(fd.as_raw_fd());
        Socket(fd)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        fork::closed(self.0.as_raw_fd());
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn name(fabric: &str, nic: u32) -> Result<SocketAddrUnix, Errno> {
    let name = format!("unipgas-verbs-double/{fabric}/{nic}");
    SocketAddrUnix::new_abstract_name(name.as_bytes())
}

fn open() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let _ = sockopt::set_socket_send_buffer_size(&socket, BUFFER);
    Ok(socket)
}

/// Takes this number. Errors: EADDRINUSE if another NIC has it.
pub fn occupy(fabric: &str, nic: u32) -> Result<Socket, Errno> {
    let socket = open()?;
    bind(&socket, &name(fabric, nic)?)?;
    listen(&socket, BACKLOG)?;
    Ok(Socket::new(socket))
}

/// Accepts the connection of a peer.
pub fn accept(listener: &Socket) -> Result<Socket, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = accept_with(listener, flags)?;
    let _ = sockopt::set_socket_send_buffer_size(&socket, BUFFER);
    Ok(Socket::new(socket))
}

/// Connects to a NIC. Errors: EAGAIN if it is busy now; others if no NIC has this number.
pub fn reach(fabric: &str, nic: u32) -> Result<Socket, Errno> {
    let socket = open()?;
    connect(&socket, &name(fabric, nic)?)?;
    Ok(Socket::new(socket))
}

pub(crate) struct NicLink {
    socket: Socket,
    /// The number of the peer's NIC, if this side connected.
    pub to: Option<u32>,
    pub out: Vec<u8>,
    sent: usize,
    pub input: Vec<u8>,
    /// Queue pairs that have more to send.
    pub waiting: Vec<Arc<Qp>>,
    /// The epoll descriptor also watches for room to send.
    pub is_watched: bool,
}

impl NicLink {
    pub fn new(socket: Socket, to: Option<u32>) -> Self {
        NicLink {
            socket,
            to,
            out: Vec::new(),
            sent: 0,
            input: Vec::new(),
            waiting: Vec::new(),
            is_watched: false,
        }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub fn is_idle(&self) -> bool {
        self.out.is_empty()
    }

    pub fn left(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Sends as many bytes as there is room for. Errors: the peer's process has ended.
    pub fn push(&mut self) -> Result<(), Errno> {
        while self.left() > 0 {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match send(&self.socket, &self.out[self.sent..], flags) {
                Ok(len) => self.sent += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error),
            }
        }
        if self.left() == 0 {
            self.out.clear();
            self.sent = 0;
        } else if self.sent > 4 * BUFFER {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }

    /// Appends received bytes to `input`, and returns their number. Errors: the peer's process has ended.
    pub fn pull(&mut self) -> Result<usize, Errno> {
        self.input.reserve(PART);
        let room = spare_capacity(&mut self.input);
        match recv(&self.socket, room, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Err(Errno::CONNRESET),
            Ok((_, len)) => Ok(len),
            Err(Errno::INTR | Errno::AGAIN) => Ok(0),
            Err(error) => Err(error),
        }
    }
}
