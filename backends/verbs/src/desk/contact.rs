//! The begin of a connection, step by step: messages over the TCP socket.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable, bytes_of, pod_read_unaligned};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SendFlags, send, sockopt};
use unipgas_core::fork_closed_fd::ForkClosedFd;
use unipgas_core::streams::Accepted;
use unipgas_core::streams::greeting::{SECRET, padded};
use unipgas_core::{Error, Result};

use super::is_one_of_many;
use crate::address::VerbsAddress;
use crate::connection::Connection;
use crate::net::VerbsNet;
use crate::wire::{self, ConnectReply, ConnectRequest, MAGIC, PROTOCOL, QpParameters};

/// Bytes of a read.
const READ: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// This process connects, and the peer's kernel has not answered.
    Knocking,
    /// This process has sent its opening.
    Asking,
    /// A peer has connected, and its opening is missing.
    Hearing,
    /// This process has answered the peer's opening.
    Answered,
    /// The connection is open.
    Open,
}

/// A TCP socket to a peer.
pub(super) struct Contact {
    pub(super) socket: ForkClosedFd,
    pub(super) connection: Option<Arc<Connection>>,
    pub(super) state: State,
    pub(super) said: Vec<u8>,
    pub(super) own: u32,
}

/// Why a contact ends.
pub(super) enum Over {
    /// The peer has closed the socket, or has died.
    Gone,
    /// The connection fails before it opens.
    Refused(Error),
    /// The connection no longer needs the socket.
    Stays,
}

/// Error for a failed connect(2).
pub(super) fn no_way(to: &Connection, error: Errno) -> Error {
    match error {
        Errno::CONNREFUSED | Errno::CONNRESET => Error::PeerDead,
        error => Error::Unreachable(format!("no way leads to {}: {error}", to.with.door)),
    }
}

/// Address of the peer that sent `opening`, checked against this process's secret and link type. Errors: the verdict to answer; `None`: malformed, no
/// answer.
pub(crate) fn caller(
    opening: &ConnectRequest,
    secret: &[u8; SECRET],
    ethernet: bool,
) -> Result<VerbsAddress, Option<u16>> {
    if opening.magic != MAGIC {
        return Err(None);
    }
    if opening.protocol != PROTOCOL {
        return Err(Some(wire::OTHER_VERSION));
    }
    if opening.secret != *secret {
        return Err(Some(wire::STRANGER));
    }
    if opening.ends.ethernet != u8::from(ethernet) {
        return Err(Some(wire::OTHER_LINK));
    }
    let address = opening.address.get(..usize::from(opening.len));
    let with = address.and_then(VerbsAddress::decode);
    with.filter(|_| opening.ends.are_possible())
        .ok_or(Some(wire::OTHER_VERSION))
}

/// The peer's end, if the process at `door` accepts. Errors: [`Error::Unreachable`] with the reason.
pub(crate) fn accepted(answer: &ConnectReply, door: SocketAddr) -> Result<QpParameters> {
    if answer.magic != MAGIC {
        let why = format!("the listener at {door} is not unipgas");
        return Err(Error::Unreachable(why));
    }
    let why = match answer.verdict {
        wire::ACCEPTED if answer.ends.are_possible() => return Ok(answer.ends),
        wire::STRANGER => "does not know the peer's secret: it is of another job",
        wire::OTHER_LINK => {
            "uses a port of another kind (InfiniBand or Ethernet): set UNIPGAS_VERBS_DEVICE"
        }
        wire::FULL => {
            "has no room for another connection: a limit of its device is reached, or of memory that may be locked (ulimit -l)"
        }
        _ => "has another release of unipgas: install one release on all hosts",
    };
    Err(Error::Unreachable(format!("the process at {door} {why}")))
}

impl Contact {
    pub(super) fn go_on(
        &mut self,
        net: &VerbsNet,
        events: &OwnedFd,
        data: u64,
    ) -> Result<(), Over> {
        if self.state == State::Knocking {
            return self.begin(net, events, data);
        }
        let over = self.read();
        let before = self.state;
        match self.state {
            State::Asking => self.hear_answer(net)?,
            State::Hearing => self.hear_opening(net)?,
            State::Answered if self.said.first() == Some(&wire::READY) => {
                self.said.remove(0);
                self.opens(net);
            }
            State::Answered => self.said.clear(),
            State::Knocking | State::Open => {}
        }
        if self.state == State::Open {
            if self.said.contains(&wire::STAYS) {
                return Err(Over::Stays);
            }
            self.said.clear();
            if before != State::Open && over.is_ok() && is_one_of_many(&self.socket) {
                self.say(&[wire::STAYS])?;
                return Err(Over::Stays);
            }
        }
        over
    }

    fn read(&mut self) -> Result<(), Over> {
        let mut bytes = [0; READ];
        loop {
            let socket = self.socket.get().ok_or(Over::Gone)?;
            match rustix::io::read(socket, &mut bytes) {
                Ok(0) => return Err(Over::Gone),
                Ok(count) => self.said.extend_from_slice(&bytes[..count]),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(_) => return Err(Over::Gone),
            }
            if self.said.len() > READ {
                return Err(Over::Gone);
            }
        }
    }

    pub(super) fn say(&self, bytes: &[u8]) -> Result<(), Over> {
        let socket = self.socket.get().ok_or(Over::Gone)?;
        // A few bytes fit in the empty send buffer.
        match send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(count) if count == bytes.len() => Ok(()),
            _ => Err(Over::Gone),
        }
    }

    /// Takes a complete message from the received bytes.
    fn said<T: Pod>(&mut self) -> Option<T> {
        let whole = self.said.get(..size_of::<T>())?;
        let said = pod_read_unaligned(whole);
        self.said.drain(..size_of::<T>());
        Some(said)
    }

    /// Sends the opening, once the peer's kernel has answered.
    fn begin(&mut self, net: &VerbsNet, events: &OwnedFd, data: u64) -> Result<(), Over> {
        let connection = self.connection.clone().ok_or(Over::Gone)?;
        let socket = self.socket.get().ok_or(Over::Gone)?;
        match sockopt::socket_error(socket) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                return Err(match no_way(&connection, error) {
                    Error::PeerDead => Over::Gone,
                    why => Over::Refused(why),
                });
            }
            Err(_) => return Err(Over::Gone),
        }
        connection.state.mark_reachable();
        let mut opening = ConnectRequest {
            magic: MAGIC,
            protocol: PROTOCOL,
            len: net.address.len() as u16,
            ends: net.own_end(&connection),
            secret: connection.with.secret,
            ..ConnectRequest::zeroed()
        };
        opening.address[..net.address.len()].copy_from_slice(&net.address);
        self.say(bytes_of(&opening))?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        let data = epoll::EventData::new_u64(data);
        epoll::modify(events, socket, data, flags).map_err(|_| Over::Gone)?;
        self.state = State::Asking;
        Ok(())
    }

    fn hear_answer(&mut self, net: &VerbsNet) -> Result<(), Over> {
        let Some(answer) = self.said::<ConnectReply>() else {
            return Ok(());
        };
        let connection = self.connection.clone().ok_or(Over::Gone)?;
        let door = connection.with.door;
        let theirs = accepted(&answer, door).map_err(Over::Refused)?;
        let own = net.own_end(&connection);
        (connection.pair)
            .connect(&net.port, &own, &theirs)
            .map_err(Over::Refused)?;
        connection.expects(theirs.credits);
        connection.mark_ready();
        self.say(&[wire::READY])?;
        self.state = State::Open;
        net.call(&connection);
        Ok(())
    }

    fn hear_opening(&mut self, net: &VerbsNet) -> Result<(), Over> {
        let Some(opening) = self.said::<ConnectRequest>() else {
            return Ok(());
        };
        let refuse = |verdict: u16| {
            let answer = ConnectReply {
                magic: MAGIC,
                protocol: PROTOCOL,
                verdict,
                ..ConnectReply::zeroed()
            };
            let _ = self.say(bytes_of(&answer));
            Err(Over::Gone)
        };
        let with = match caller(&opening, &net.secret, net.port.ethernet) {
            Ok(with) => with,
            Err(None) => return Err(Over::Gone),
            Err(Some(verdict)) => {
                if verdict == wire::STRANGER {
                    tracing::warn!(
                        "verbs: a process that does not know this one's secret is refused"
                    );
                }
                return refuse(verdict);
            }
        };
        let begun = net.begin(with, false).and_then(|new| {
            let own = net.own_end(&new);
            match new.pair.connect(&net.port, &own, &opening.ends) {
                Ok(()) => Ok((new, own)),
                Err(error) => {
                    net.remove(&new);
                    Err(error)
                }
            }
        });
        let (new, ends) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                tracing::warn!("verbs: a process that connects is refused: {error}");
                return refuse(wire::FULL);
            }
        };
        let answer = ConnectReply {
            magic: MAGIC,
            protocol: PROTOCOL,
            verdict: wire::ACCEPTED,
            ends,
        };
        self.connection = Some(new.clone());
        new.expects(opening.ends.credits);
        self.say(bytes_of(&answer))?;
        self.state = State::Answered;
        Ok(())
    }

    /// Opens a connection that the peer began: both sides are ready.
    fn opens(&mut self, net: &VerbsNet) {
        self.state = State::Open;
        if let Some(connection) = &self.connection {
            connection.mark_ready();
            // Returns the credits of messages that arrived before.
            connection.on_read(net, 0, 0);
            let address = connection.with.encode();
            net.owner.on_accepted(Accepted {
                stream: connection.clone(),
                known: Some(padded(&address)),
            });
        }
    }
}
