//! The contract of a network: byte streams, their beginning, and the events that call for a turn of the agent.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::envelope::RequestHeader;
use super::greeting::{PaddedAddress, SECRET};
use super::link::Link;
use super::stream_state::StreamState;
use unipgas_base::{Error, Result};
use unipgas_engine::agent::{Registered, RegisteredPlace, Request};
use unipgas_engine::op::Local;
use unipgas_engine::transport::Limits;

/// A stream has ended: it carries no more bytes in either direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamEnded;

/// Result of a [look](Stream::look).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransitState {
    /// No bytes are in transit.
    Nothing,
    /// Bytes are in transit, and the peer may be alive: look again later.
    Waits,
    /// The peer does not live any more.
    Silence,
}

impl TransitState {
    /// The state of a stream to a living peer. `waits`: bytes are in transit, or a caller asks for a later look.
    pub fn of_living(waits: bool) -> Self {
        match waits {
            true => TransitState::Waits,
            false => TransitState::Nothing,
        }
    }
}

/// For [`Stream::pull`]: moves the bytes of `incoming` to `into`. `ended`: the stream had ended before the caller locked `incoming`.
pub fn pull_from(
    incoming: &mut Vec<u8>,
    into: &mut Vec<u8>,
    ended: bool,
) -> std::result::Result<(), StreamEnded> {
    match into.is_empty() {
        true => std::mem::swap(into, incoming),
        false => into.append(incoming),
    }
    match ended {
        true => Err(StreamEnded),
        false => Ok(()),
    }
}

/// One end of a byte stream to another process. It keeps the order and loses nothing until it ends. No call waits.
pub trait Stream: Send + Sync {
    /// Sends the bytes that there is room for, and returns their number. Errors: the stream has ended.
    fn push(&self, bytes: &[u8]) -> std::result::Result<usize, StreamEnded>;
    /// As [`push`](Stream::push), for bytes without a known waiter. The stream may hold them back, and send them with the next bytes to the same
    /// process.
    fn push_along(&self, bytes: &[u8]) -> std::result::Result<usize, StreamEnded> {
        self.push(bytes)
    }
    /// Appends a bounded number of received bytes; the rest causes another turn. Errors: the stream has ended; bytes from before its end are
    /// appended in this case too. After [`end`](Stream::end) each call gives this error.
    fn pull(&self, into: &mut Vec<u8>) -> std::result::Result<(), StreamEnded>;
    /// Whether room for more bytes causes a turn.
    fn want_room(&self, wanted: bool);
    /// Its state. `None`: it is open from its beginning, or a greeting opens it ([`Begun::secret`]), and it needs no looks.
    fn state(&self) -> Option<&StreamState> {
        None
    }
    /// Whether the peer has accepted the stream. Only for networks that know it without a greeting ([`Begun::secret`]).
    fn is_open(&self) -> bool {
        self.state().is_none_or(StreamState::is_open)
    }
    /// The peer's reason for a refusal, if it gave one.
    fn refusal(&self) -> Option<Error> {
        self.state().and_then(StreamState::refusal)
    }
    /// Checks again whether the peer lives, some time after the previous check.
    fn look(&self) -> TransitState {
        TransitState::Nothing
    }
    /// A caller asks whether the peer lives ([`Peer::life`](unipgas_engine::transport::Peer::life)). True: the agent looks at the stream from now on. Streams that
    /// report their end need no look.
    fn watch(&self) -> bool {
        self.state().inspect(|state| state.watch()).is_some()
    }
    /// Another source reports the peer's death: the stream ends without a message to it.
    fn declare_dead(&self) {
        self.end();
    }
    /// Ends the stream in both directions, also in children of a fork. It causes no more turns. Repeated calls are allowed.
    fn end(&self);
}

/// A stream that this process has begun.
pub struct Begun {
    /// The peer may not have accepted it yet.
    pub stream: Arc<dyn Stream>,
    /// First bytes that the peer expects. `None`: the network itself authenticates this process.
    pub secret: Option<[u8; SECRET]>,
}

/// A stream that another process has begun.
pub struct Accepted {
    /// The end in this process.
    pub stream: Arc<dyn Stream>,
    /// Address of the peer, if the network knows it and has checked its permission. `None`: the peer must send a greeting.
    pub known: Option<PaddedAddress>,
}

/// Progress of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgressEvents {
    /// A stream that this process began may have received bytes or ended.
    pub streams: bool,
    /// A stream that a peer began has received bytes. The caller serves it: these bytes cause no turn.
    pub guests: bool,
    /// Operations of the network's own have [ended](super::Ticket::end).
    pub ended: bool,
}

/// The network under the agent.
pub trait Network: Send + Sync {
    /// This process's address, as peers get it: at most [`ADDRESS`](super::greeting::ADDRESS) bytes.
    fn address(&self) -> &[u8];
    /// Secret that a peer needs to begin a stream to this process.
    fn secret(&self) -> [u8; SECRET];
    /// Begins a stream to the process with this address, without a wait. Errors: [`Error::Unreachable`], [`Error::PeerDead`], [`Error::Os`].
    fn reach(&self, address: &[u8]) -> Result<Begun>;
    /// The next stream that a peer has begun, if any. Errors: no room for it now.
    fn accept(&self) -> Result<Option<Accepted>>;
    /// Whether a new stream of a peer causes a turn.
    fn want_guests(&self, wanted: bool) {
        let _ = wanted;
    }
    /// Descriptors for epoll. One is readable when a turn is due: received bytes, requested room, or a new stream of a peer.
    fn events(&self) -> Vec<BorrowedFd<'_>>;
    /// Makes progress without a wait. Turns call it first, waiting threads call it too; one thread at a time. Bytes of streams that peers began need a
    /// turn, except with [`ProgressEvents::guests`]. If no [event](Network::events) reports them, this call sounds the [alarm](super::StreamNode::wake).
    /// `turn`: a turn begins. `alone`: no waiting thread makes progress, so [held back](Stream::push_along) bytes leave.
    fn progress(&self, turn: bool, alone: bool) -> ProgressEvents;
    /// Whether waiting threads serve peers by [`progress`](Network::progress). Meanwhile turns are rare, and [events](Network::events) cause none.
    fn is_moved_on_by_waiting(&self) -> bool {
        true
    }
    /// Whether turns are due without an [event](Network::events) while operations are [under way](unipgas_base::driver::Driver::more).
    fn needs_beats(&self) -> bool {
        false
    }
    /// A turn is over. False: the next one begins at once, because [`events`](Network::events) do not report all received bytes.
    fn may_rest(&self) -> bool {
        true
    }
    /// Limits of requests. A request copies its bytes in the call, and completes later.
    fn limits(&self) -> Limits {
        Limits::NONE
    }
    /// Earlier operations of a channel to a peer that an ordered request waits for before its bytes leave.
    fn requests_wait_for(&self) -> After {
        After::READS
    }
    /// Whether `len` bytes of this process may be used by operations. Errors: [`Error::NotRegistered`].
    fn check_local(&self, registered: &Registered, local: Local, len: usize) -> Result<()> {
        let place = RegisteredPlace {
            slot: local.desc as u32,
            generation: (local.desc >> 32) as u32,
            offset: 0,
        };
        let needed = self.limits().registered && len > 0;
        match needed && !registered.covers(place, local.ptr, len) {
            true => Err(Error::NotRegistered),
            false => Ok(()),
        }
    }
    /// The last three words of [`detail`](unipgas_engine::region::RemoteParts::detail) of an imported region. `told`: this network's bytes from the owner
    /// ([`OwnPart::told`](super::OwnPart::told)). Errors: [`Error::StaleRegion`] for bytes that no owner sends.
    fn imported(&self, link: &Link, told: &[u8]) -> Result<[u64; 3]> {
        let _ = link;
        match told {
            [] => Ok([0; 3]),
            _ => Err(Error::StaleRegion),
        }
    }
    /// Whether unsignaled operations to this peer are visible there, or become visible before the next bytes of the stream. False: their completion is
    /// requested, and [`ProgressEvents::ended`] reports it.
    fn has_settled(&self, link: &Link) -> bool {
        let _ = link;
        true
    }
    /// Faults that a test network injects.
    fn faults(&self) -> Option<Arc<dyn Faults>> {
        None
    }
}

bitflags::bitflags! {
    /// Conditions on earlier operations of a channel to a peer, before the next one leaves.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct After: u8 {
        /// The data of reads is here.
        const READS = 1;
        /// The stream has taken the bytes of all requests, of any channel.
        const SENT = 2;
        /// Requests are answered.
        const ANSWERED = 4;
        /// The network's own operations have ended.
        const OWN = 8;
    }
}

/// Injected faults. Tests show that the engine compensates for them.
pub trait Faults: Send + Sync {
    /// Order of execution for the requests of a guest. `None`: order of arrival.
    fn order(&self) -> Option<Box<dyn Order>>;
    /// Whether bytes are written in parts, in reverse order.
    fn backwards(&self) -> bool;
    /// An operation goes to a peer. True: the streams between both processes are lost now.
    fn loses(&self) -> bool;
}

/// Received requests of one peer before their execution.
pub trait Order: Send {
    /// Keeps a received request.
    fn hold(&mut self, envelope: RequestHeader, request: &Request<'_>, message: &[u8]);
    /// The next request to execute, with its message. `all`: repeated calls give all requests.
    fn take(&mut self, all: bool) -> Option<(RequestHeader, Vec<u8>)>;
    /// A turn of the agent is over.
    fn turn(&mut self);
    /// Whether no request is kept.
    fn is_empty(&self) -> bool;
}
