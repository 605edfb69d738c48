//! What a network provides: streams of bytes, how they begin, and when there is something to do.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::envelope::Envelope;
use super::greeting::{SECRET, Who};
use super::link::Link;
use crate::agent::{Place, Registered, Request};
use crate::op::Local;
use crate::transport::Limits;
use crate::{Error, Result};

/// A stream has ended; nothing comes from it or goes there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended;

/// What a [look](Stream::look) finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Nothing is on its way.
    Nothing,
    /// Something is, and there is hope: it is to be looked at again.
    Waits,
    /// The other end has gone.
    Silence,
}

/// One end of a stream of bytes to another process: in order, without loss, until it ends. None of the calls waits.
pub trait Stream: Send + Sync {
    /// Sends what there is room for; gives how many bytes. Errors: it has ended.
    fn push(&self, bytes: &[u8]) -> std::result::Result<usize, Ended>;
    /// As [`push`](Stream::push), for what nobody is known to wait for: it may be held back for a moment, to leave together with what goes to the same
    /// process next.
    fn push_along(&self, bytes: &[u8]) -> std::result::Result<usize, Ended> {
        self.push(bytes)
    }
    /// Appends what has come, but not so much that others wait long for their turn: then another one begins by itself. Errors: it has
    /// ended; what came before has been appended nevertheless.
    fn pull(&self, into: &mut Vec<u8>) -> std::result::Result<(), Ended>;
    /// Whether a turn is to begin when there is room again.
    fn want_room(&self, wanted: bool);
    /// Whether somebody is at the other end, where that is known without a greeting ([`Begun::secret`]).
    fn is_open(&self) -> bool {
        true
    }
    /// Why the other end does not want it, if it has said so.
    fn refusal(&self) -> Option<Error> {
        None
    }
    /// Another look, some time after the one before, whether somebody is at the other end.
    fn look(&self) -> Found {
        Found::Nothing
    }
    /// Somebody wants to know whether the peer lives ([`Peer::life`](crate::transport::Peer::life)). True: it is to be looked at from now on. Streams that
    /// tell of their end by themselves have nothing to do.
    fn watch(&self) -> bool {
        false
    }
    /// The process at the other end has died, as others have seen: it is not told of the end.
    fn declare_dead(&self) {
        self.end();
    }
    /// Ends it in both directions, also for children of a fork that hold it; no turn begins because of it any more. Perhaps not for the first time.
    fn end(&self);
}

/// A stream that this process has begun.
pub struct Begun {
    /// It need not have reached anybody yet.
    pub stream: Arc<dyn Stream>,
    /// What the other process wants to hear first. `None`: the network itself shows that it may be talked to.
    pub secret: Option<[u8; SECRET]>,
}

/// A stream that another process has begun.
pub struct Accepted {
    /// Its end here.
    pub stream: Arc<dyn Stream>,
    /// Where the other process listens, if the network knows, and has looked that it may be served. Else it has to greet.
    pub known: Option<Who>,
}

/// What has moved on in a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct News {
    /// Something may have come by one of the streams that this process has begun, or one may have ended.
    pub streams: bool,
    /// Something has come by a stream that others have begun, and is served by who has called; nothing else begins a turn.
    pub guests: bool,
    /// Operations of the network's own have [ended](super::Ticket::end).
    pub ended: bool,
}

/// The network under the agent.
pub trait Network: Send + Sync {
    /// This process's address, as peers get it: at most [`ADDRESS`](super::greeting::ADDRESS) bytes.
    fn address(&self) -> &[u8];
    /// What whoever begins a stream to this process has to know.
    fn secret(&self) -> [u8; SECRET];
    /// Begins a stream to the process with this address; does not wait for it. Errors: [`Error::Unreachable`], [`Error::PeerDead`], [`Error::Os`].
    fn reach(&self, address: &[u8]) -> Result<Begun>;
    /// The next stream that somebody else has begun, if there is one. Errors: there is no room for it now.
    fn accept(&self) -> Result<Option<Accepted>>;
    /// Whether a turn is to begin when somebody begins a stream.
    fn want_guests(&self, wanted: bool);
    /// Descriptors of which one can be read when a turn is to begin: something has come, there is room that was wanted, somebody begins a stream.
    fn events(&self) -> Vec<BorrowedFd<'_>>;
    /// Moves it on; never waits. Called at the beginning of turns, and by threads that wait, not by two at once. What comes by streams that others
    /// have begun needs a turn, unless it says so ([`News::guests`]): while [`events`](Network::events) tell of it nothing else is to be done, else the [alarm](super::Home::wake) is to be sounded.
    /// `turn`: this is one; `alone`: and nobody waits who moves it on; what [may be held back](Stream::push_along) leaves.
    fn progress(&self, turn: bool, alone: bool) -> News {
        let _ = (turn, alone);
        News {
            streams: true,
            guests: false,
            ended: false,
        }
    }
    /// Whether who waits serves peers by [`progress`](Network::progress): turns are few meanwhile, and no [events](Network::events) begin them.
    fn is_moved_on_by_waiting(&self) -> bool {
        false
    }
    /// Whether turns are to begin though no [event](Network::events) tells of anything, while operations are [under way](crate::driver::Driver::more).
    fn needs_beats(&self) -> bool {
        true
    }
    /// A turn is over. False: another one is to begin at once, since [`events`](Network::events) would not tell of everything that has come.
    fn may_rest(&self) -> bool {
        true
    }
    /// What requests are confined to. Requests end later than the call, and take their bytes in it.
    fn limits(&self) -> Limits {
        Limits::NONE
    }
    /// What an ordered request waits for here, beside earlier reads of its channel to that peer: its bytes leave only then.
    fn requests_wait_for(&self) -> After {
        After::READS
    }
    /// Whether `len` bytes of this process may be used by operations. Errors: [`Error::NotRegistered`].
    fn check_local(&self, registered: &Registered, local: Local, len: usize) -> Result<()> {
        let place = Place {
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
    /// What the owner of a region tells whoever imports it beside what all networks need (`told`: [`OwnPart::told`](super::OwnPart::told)): the last three words of
    /// [`detail`](crate::region::RemoteParts::detail). Errors: [`Error::StaleRegion`], of what no owner says.
    fn imported(&self, link: &Link, told: &[u8]) -> Result<[u64; 3]> {
        let _ = link;
        match told {
            [] => Ok([0; 3]),
            _ => Err(Error::StaleRegion),
        }
    }
    /// Whether what has been posted to this peer, and of whose end nobody is told, is visible there. False: its end has been asked for, and is
    /// [told](News::ended). True where that comes before what is said to the peer next.
    fn has_settled(&self, link: &Link) -> bool {
        let _ = link;
        true
    }
    /// What it does badly, if it is an instrument of tests.
    fn faults(&self) -> Option<Arc<dyn Faults>> {
        None
    }
}

bitflags::bitflags! {
    /// What must have happened to the earlier operations of a channel to a peer before another one leaves.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct After: u8 {
        /// What they read has come.
        const READS = 1;
        /// The bytes of those that are requests, of any channel, have been given to the stream.
        const SENT = 2;
        /// Those that are requests have been answered.
        const ANSWERED = 4;
        /// Those of the network's own have ended.
        const OWN = 8;
    }
}

/// What instruments of tests do, so that the engine is seen to make up for it.
pub trait Faults: Send + Sync {
    /// In which order the requests of a guest are carried out, if not in the one in which they come.
    fn order(&self) -> Option<Box<dyn Order>>;
    /// Whether bytes are written in parts, the last one first.
    fn backwards(&self) -> bool;
    /// An operation goes to a peer; whether the streams between it and this process are lost at that.
    fn loses(&self) -> bool;
}

/// Requests of one peer that have come and are not carried out yet.
pub trait Order: Send {
    /// Keeps one that has come.
    fn hold(&mut self, envelope: Envelope, request: &Request<'_>, message: &[u8]);
    /// One that is to be carried out now, with its message; of those that are there `all`, one after the other.
    fn take(&mut self, all: bool) -> Option<(Envelope, Vec<u8>)>;
    /// A turn of the agent is over.
    fn turn(&mut self);
    /// Whether nothing is held back.
    fn is_empty(&self) -> bool;
}
