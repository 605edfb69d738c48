//! Bytes that a process serves on a TCP port to all clients. Processes of several hosts without a common launcher find each other this way, through a host's
//! name or address. The bytes are public.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, accept_with, bind, connect, listen, recv, send, sockopt};

use unipgas_base::descriptor::{SOCKET, above, tcp_socket};
use unipgas_base::driver::{Driven, Driver, Waits};
use unipgas_base::fork_closed_fd::ForkClosedFd;
use unipgas_base::{Deadline, Error, Result, driver};

/// Sent first; then the length (1 byte) and the bytes.
const MAGIC: [u8; 8] = *b"unipgas1";
/// The kernel may reduce it.
const BACKLOG: i32 = 1024;
/// Timeout of a client for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

fn listen_at(address: &SocketAddr) -> rustix::io::Result<OwnedFd> {
    let socket = tcp_socket(address)?;
    // Old connections do not keep the port in use.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    bind(&socket, address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

struct Desk {
    /// Children of a fork do not inherit it: otherwise they would keep the port in use.
    socket: ForkClosedFd,
    says: Vec<u8>,
    driver: Weak<Driver>,
    /// Accepting fails at present, so the driver does not poll the socket: it would not sleep at all.
    closed: AtomicBool,
}

impl Desk {
    fn serve(&self) -> rustix::io::Result<()> {
        while let Some(socket) = self.socket.get() {
            match above(|| accept_with(socket, SOCKET)) {
                // The bytes fit in the empty buffer of a new socket. An error is ignored: the client has gone.
                Ok(guest) => drop(send(&guest, &self.says, SendFlags::NOSIGNAL)),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Driven for Desk {
    fn drive(&self) {
        let closed = self.serve().is_err();
        if self.closed.swap(closed, Ordering::Relaxed) != closed
            && let Some((driver, socket)) = self.driver.upgrade().zip(self.socket.get())
        {
            match closed {
                true => driver.forget_events(socket),
                false => drop(driver.watch_events(socket)),
            }
        }
    }
}

/// A service that runs until it is dropped. The progress thread serves the clients.
pub struct Reception {
    desk: Arc<Desk>,
    driver: Arc<Driver>,
}

impl Reception {
    /// Serves `bytes`, at most 255, on this port of all addresses of this host. Errors: [`Error::InvalidArgument`] for more bytes; [`Error::Taken`] if the port
    /// is in use; [`Error::Os`].
    pub fn open(port: u16, bytes: &[u8]) -> Result<Self> {
        let len = u8::try_from(bytes.len())
            .map_err(|_| Error::InvalidArgument("more bytes than are handed out".into()))?;
        let any = |v6| match v6 {
            true => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
            false => SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
        };
        let socket = match listen_at(&any(true)) {
            Err(Errno::ADDRINUSE) => Err(Errno::ADDRINUSE),
            // A host without IPv6.
            other => other.or_else(|_| listen_at(&any(false))),
        };
        let socket = socket.map_err(|error| match error {
            Errno::ADDRINUSE => Error::Taken(format!("port {port} of TCP")),
            error => Error::os(&format!("listening at port {port}"), error),
        })?;
        let driver = Driver::of_this_process()?;
        let desk = Arc::new(Desk {
            socket: ForkClosedFd::new(socket),
            says: [&MAGIC[..], &[len], bytes].concat(),
            driver: Arc::downgrade(&driver),
            closed: AtomicBool::new(false),
        });
        let driven: Weak<dyn Driven> = Arc::<Desk>::downgrade(&desk);
        driver.enrol(driven, Waits::Never);
        if let Some(socket) = desk.socket.get() {
            driver.watch_events(socket)?;
        }
        Ok(Reception { desk, driver })
    }
}

impl Drop for Reception {
    fn drop(&mut self) {
        let Some(socket) = self.desk.socket.get() else {
            return;
        };
        self.driver.forget_events(socket);
        // The port is free after the drop. The progress thread may hold a reference until its turn ends.
        while Arc::strong_count(&self.desk) > 1 && !driver::is_this_thread() {
            std::thread::yield_now();
        }
    }
}

/// Result of an inquiry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InquiryResult {
    /// No answer yet.
    Waits,
    /// No process serves bytes there at present.
    Nobody,
    /// The bytes served.
    Said(Vec<u8>),
}

/// A request to a service. No call waits.
pub struct Inquiry {
    at: SocketAddr,
    socket: OwnedFd,
    refused: bool,
    heard: Vec<u8>,
    late: Deadline,
}

impl Inquiry {
    /// Starts a request to this address. Errors: [`Error::Unreachable`], [`Error::Os`].
    pub fn begin(at: SocketAddr) -> Result<Self> {
        let socket = tcp_socket(&at).map_err(|error| Error::os("socket", error))?;
        let refused = match connect(&socket, &at) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => false,
            Err(Errno::CONNREFUSED) => true,
            Err(error) => return Err(no_way(&at, error)),
        };
        Ok(Inquiry {
            at,
            socket,
            refused,
            heard: Vec::new(),
            late: Deadline::after(PATIENCE),
        })
    }

    /// Polls the request. Errors: [`Error::Unreachable`]: no answer within the timeout, a network error, or an answer of another program.
    pub fn look(&mut self) -> Result<InquiryResult> {
        if self.refused {
            return Ok(InquiryResult::Nobody);
        }
        let mut part = [0; MAGIC.len() + 1 + u8::MAX as usize];
        let ended = match recv(&self.socket, &mut part, RecvFlags::DONTWAIT) {
            Ok((len, _)) => {
                self.heard.extend_from_slice(&part[..len]);
                len == 0
            }
            Err(Errno::CONNREFUSED | Errno::CONNRESET) => return Ok(InquiryResult::Nobody),
            Err(Errno::AGAIN | Errno::INTR) => false,
            Err(error) => return Err(no_way(&self.at, error)),
        };
        let said = said(&self.heard).ok_or_else(|| {
            let at = self.at;
            Error::Unreachable(format!(
                "another program listens at {at}: the service is at another port, or on another host"
            ))
        })?;
        if let Some(said) = said {
            return Ok(InquiryResult::Said(said.to_vec()));
        }
        match (ended, self.late.expired()) {
            (true, _) => Ok(InquiryResult::Nobody),
            (false, false) => Ok(InquiryResult::Waits),
            (false, true) => Err(Error::Unreachable(format!(
                "no answer from {}: the host is down, a firewall is between, or another program listens there",
                self.at
            ))),
        }
    }
}

/// The bytes, once they are complete. `None`: the answer is not from this library.
fn said(heard: &[u8]) -> Option<Option<&[u8]>> {
    let known = heard.len().min(MAGIC.len());
    if heard[..known] != MAGIC[..known] {
        return None;
    }
    let rest = heard.get(MAGIC.len()..).and_then(<[u8]>::split_first);
    Some(rest.and_then(|(len, said)| said.get(..usize::from(*len))))
}

fn no_way(at: &SocketAddr, error: Errno) -> Error {
    Error::Unreachable(format!("{at} is not reached: {error}"))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    fn end(at: SocketAddr) -> Result<InquiryResult> {
        let mut inquiry = Inquiry::begin(at)?;
        loop {
            match inquiry.look() {
                Ok(InquiryResult::Waits) => std::thread::yield_now(),
                found => return found,
            }
        }
    }

    /// A port that is free at present.
    fn free_port() -> u16 {
        let listener = TcpListener::bind("[::]:0").unwrap();
        listener.local_addr().unwrap().port()
    }

    #[test]
    fn who_asks_is_told_as_long_as_anything_is_handed_out() {
        let port = free_port();
        let local = |ip: &str| SocketAddr::new(ip.parse().unwrap(), port);
        let at = local("127.0.0.1");
        assert_eq!(end(at), Ok(InquiryResult::Nobody));
        let longest = [7; 255];
        for bytes in [&b"one"[..], b"", &longest] {
            let reception = Reception::open(port, bytes).unwrap();
            for _ in 0..20 {
                assert_eq!(end(at), Ok(InquiryResult::Said(bytes.to_vec())));
            }
            // A client that leaves early does not disturb others.
            drop(Inquiry::begin(at).unwrap());
            assert!(matches!(
                Reception::open(port, b"two"),
                Err(Error::Taken(_))
            ));
            drop(reception);
            assert_eq!(end(at), Ok(InquiryResult::Nobody));
        }
        assert!(Reception::open(port, &[0; 256]).is_err());
    }

    #[test]
    fn who_is_no_process_of_ours_is_an_error_and_nobody_waits_for_ever() {
        let foreign = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = foreign.local_addr().unwrap();
        let mut inquiry = Inquiry::begin(at).unwrap();
        let (mut guest, _) = foreign.accept().unwrap();
        assert_eq!(inquiry.look(), Ok(InquiryResult::Waits));
        guest.write_all(b"220 ready").unwrap();
        let error = loop {
            match inquiry.look() {
                Ok(InquiryResult::Waits) => std::thread::yield_now(),
                other => break other,
            }
        };
        assert!(matches!(&error, Err(Error::Unreachable(text)) if text.contains(&at.to_string())));
        let mut silent = Inquiry::begin(at).unwrap();
        assert_eq!(silent.look(), Ok(InquiryResult::Waits));
        silent.late = Deadline::Now;
        assert!(
            matches!(silent.look(), Err(Error::Unreachable(text)) if text.contains("firewall"))
        );
    }
}
