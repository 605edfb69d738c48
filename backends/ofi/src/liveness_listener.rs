//! Detection of dead peers. Fabrics do not report them: operations to a dead process fail late, or never, and a process that only waits sends none.
//! So each process listens on a TCP port, without any data exchange. The kernel of its host accepts connections, also for a stopped process. It
//! refuses them once the process has ended. A dead host does not answer.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{accept_with, connect, sockopt};
use unipgas_core::Result;
use unipgas_core::descriptor::{SOCKET, above, tcp_listener, tcp_socket};
use unipgas_core::fork_closed_fd::ForkClosedFd;

/// The kernel cuts it to its limit.
const BACKLOG: i32 = 1024;

/// The port of this process.
pub(crate) struct LivenessListener {
    /// Closed in children of a fork: otherwise the port would outlive this process.
    socket: ForkClosedFd,
    /// Address for the tries of peers.
    pub address: SocketAddr,
}

impl LivenessListener {
    /// Listens on any port of this address of the host. Errors: [`Error::Os`](unipgas_core::Error::Os).
    pub fn open(ip: IpAddr) -> Result<Self> {
        let (socket, address) = tcp_listener(ip, BACKLOG)?;
        Ok(LivenessListener {
            socket: ForkClosedFd::new(socket),
            address,
        })
    }

    /// Closes the connections of peers that have tried.
    pub fn dismiss(&self) {
        if let Some(socket) = self.events() {
            let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
            if poll(&mut polled, Some(&Timespec::default())) == Ok(0) {
                return;
            }
            while above(|| accept_with(socket, SOCKET)).is_ok() {}
        }
    }

    /// Readable when a peer has tried. `None` in the child of a fork.
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        self.socket.get()
    }
}

/// Result of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeResult {
    /// No answer yet.
    Nothing,
    /// The host has accepted: the process lives.
    There,
    /// The host has refused: the process has ended.
    Gone,
}

/// A try to connect.
pub(crate) struct Try {
    socket: OwnedFd,
    refused: bool,
    /// The kernel has no route to the host.
    pub no_way: Option<Errno>,
}

impl Try {
    /// Begins a try. `None`: this process cannot open a socket.
    pub fn begin(address: &SocketAddr) -> Option<Self> {
        let socket = tcp_socket(address).ok()?;
        let (refused, no_way) = match connect(&socket, address) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => (false, None),
            Err(Errno::CONNREFUSED) => (true, None),
            // Counts as no answer.
            Err(error) => (false, Some(error)),
        };
        Some(Try {
            socket,
            refused,
            no_way,
        })
    }

    /// The result so far.
    pub fn look(&self) -> ProbeResult {
        if self.refused {
            return ProbeResult::Gone;
        }
        let mut polled = [PollFd::new(&self.socket, PollFlags::OUT)];
        if poll(&mut polled, Some(&Timespec::default())) != Ok(1) {
            return ProbeResult::Nothing;
        }
        match sockopt::socket_error(&self.socket) {
            Ok(Ok(())) if polled[0].revents().contains(PollFlags::HUP) => ProbeResult::Nothing,
            Ok(Ok(())) => ProbeResult::There,
            Ok(Err(Errno::CONNREFUSED | Errno::CONNRESET)) => ProbeResult::Gone,
            _ => ProbeResult::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn end(of: &Try) -> ProbeResult {
        loop {
            match of.look() {
                ProbeResult::Nothing => std::thread::yield_now(),
                found => return found,
            }
        }
    }

    /// Waits until no process listens there. A process that another test has just forked holds a copy of all descriptors for a moment.
    fn goes(address: &SocketAddr) -> bool {
        (0..10_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            Try::begin(address).unwrap().look() == ProbeResult::Gone
        })
    }

    #[test]
    fn who_listens_is_there_and_who_has_ended_is_not() {
        let lifeline = LivenessListener::open(Ipv4Addr::LOCALHOST.into()).unwrap();
        let address = lifeline.address;
        for _ in 0..3 {
            assert_eq!(end(&Try::begin(&address).unwrap()), ProbeResult::There);
        }
        lifeline.dismiss();
        assert_eq!(end(&Try::begin(&address).unwrap()), ProbeResult::There);
        drop(lifeline);
        assert!(goes(&address));
    }

    #[test]
    fn children_of_a_fork_do_not_keep_it() {
        let lifeline = LivenessListener::open(Ipv4Addr::LOCALHOST.into()).unwrap();
        let address = lifeline.address;
        let (out, into) = unipgas_core::descriptor::pipe().unwrap();
        // SAFETY:
        // - the child only makes system calls until it is killed.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let _ = rustix::io::write(&into, &[1]);
            loop {
                // SAFETY:
                // - a system call.
                unsafe { libc::pause() };
            }
        }
        // The child has closed the port before it writes.
        while rustix::io::read(&out, &mut [0]).is_err() {
            std::thread::yield_now();
        }
        assert_eq!(end(&Try::begin(&address).unwrap()), ProbeResult::There);
        drop(lifeline);
        let gone = goes(&address);
        // SAFETY:
        // - the child of this test, which has not been waited for.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        assert!(gone);
    }
}
