//! Messages (fi_msg(3), fi_tagged(3)).

mod ends;
pub(crate) mod operate;
mod post;
mod shared;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use unipgas_core::bundle::BUNDLE_LEN;
use unipgas_core::driver::Driver;
use unipgas_core::message::{
    Collectives, GroupCalls, Mailbox, Pattern, PeerMailbox, Peers, Precedence, ReceiveTicket,
    SendTicket,
};
use unipgas_core::peer_numbers::{PeerNumbers, number_there};
use unipgas_core::transport::Life;
use unipgas_core::watcher::{Beats, Watched};
use unipgas_core::{Deadline, Error, RegionKey, Remote, RemoteRegion};

use ends::scatter;
pub use operate::MOST_BYTES as MOST_TAGGED_BYTES;
/// Maximum peers with which an endpoint exchanges messages at a time.
pub(crate) const MOST_PEERS: usize = SHAPE.peers * (1 + SHAPE.more);
pub(crate) use post::RECEIVE_OP_FLAGS;
pub use shared::SharedReceives;

use crate::av::AddressVector;
use crate::collectives::{CONTEXT, EndpointGroups};
use crate::completion::CqEntry;
use crate::domain::Domain;
use crate::endpoint::Endpoint;
use crate::name::EndpointName;
use crate::operation::{Report, Reports};
use crate::rma::LocalRange;
use crate::status::{Errno, Result};
use crate::sys::{FI_MSG, FI_TAGGED};
use crate::target::{SHAPE, SHAPE_WORDS, read_directory};

/// The numbers of known peers, and their directories.
struct Acquaintances {
    domain: Arc<Domain>,
    numbers: PeerNumbers,
    name: EndpointName,
    /// Imported directories, by number of the peer. Over a network an import waits for the peer.
    directories: Mutex<HashMap<u32, RemoteRegion>>,
}

impl Acquaintances {
    fn name_of(&self, number: u32) -> std::result::Result<EndpointName, Error> {
        let bytes = self.numbers.name(number)?;
        EndpointName::from_bytes(&bytes).map_err(|_| Error::PeerDead)
    }
}

impl Peers for Acquaintances {
    fn find(&self, number: u32) -> std::result::Result<PeerMailbox, Error> {
        let name = self.name_of(number)?;
        let (connection, _, directory) = read_directory(&self.domain, &name)?;
        if directory.shape != SHAPE_WORDS || directory.mailbox == [0; BUNDLE_LEN] {
            return Err(Error::Unreachable(
                "the peer takes no messages of this kind".into(),
            ));
        }
        let numbers = connection.import(&RegionKey::from_bytes(&directory.numbers)?)?;
        let region = connection.import(&RegionKey::from_bytes(&directory.mailbox)?)?;
        let (engine, service) = (self.domain.engine(), self.domain.service());
        let ask = || {
            let news = Remote {
                region: &region,
                offset: SHAPE.news(),
            };
            service.write(engine, &1u32.to_ne_bytes(), news)
        };
        let (id, name) = (self.name.id(), self.name.as_bytes());
        let number = number_there(engine, service, &numbers, id, name, ask)?;
        PeerMailbox::at(connection, region, SHAPE, number, (engine, service))
    }

    fn identity(&self, number: u32) -> Option<u64> {
        Some(self.name_of(number).ok()?.id())
    }
}

impl Acquaintances {
    /// Whether the peer with this number is known to have ended, or to be closed. A peer that does not answer before `deadline` has not.
    fn has_gone(&self, number: u32, deadline: Deadline) -> bool {
        let Ok(name) = self.name_of(number) else {
            return false;
        };
        let reached = self.domain.engine().connect(&name.address());
        let open = reached.and_then(|connection| match connection.life() {
            Life::Alive => self.is_open(number, || {
                connection.import_within(&name.directory(), deadline)
            }),
            _ => Err(Error::PeerDead),
        });
        matches!(open, Ok(false) | Err(Error::PeerDead | Error::StaleRegion))
    }

    fn is_open(
        &self,
        number: u32,
        import: impl FnOnce() -> std::result::Result<RemoteRegion, Error>,
    ) -> std::result::Result<bool, Error> {
        if let Some(directory) = self.directories.lock().get(&number) {
            return Ok(directory.is_current());
        }
        let directory = import()?;
        self.directories.lock().insert(number, directory);
        Ok(true)
    }

    /// Frees the number of a peer that has ended.
    fn free(&self, number: u32) {
        self.directories.lock().remove(&number);
        self.numbers.free(number);
    }
}

/// Longest wait for a peer that may be stopped.
const ANSWER: Duration = Duration::from_millis(2);

/// A send that has not ended.
pub(crate) struct Sent {
    pub to: u32,
    pub ticket: SendTicket,
    pub after: After,
    /// The payload, if it was gathered or copied from the caller.
    pub _held: Option<Box<[u8]>>,
}

/// The effect of the end of a send.
pub(crate) enum After {
    /// A completion.
    Report(Report),
    /// The end of the receive that this send answers. The program may make no further call.
    Receive(Report, CqEntry, Option<Errno>),
    Nothing,
}

impl After {
    /// Whether the program posted the send.
    fn is_own(&self) -> bool {
        matches!(self, After::Report(_))
    }
}

/// Destination of a message.
pub(crate) struct Destination {
    parts: Parts,
    /// A buffer for the whole message, unless it goes directly to one part.
    bounce: Option<Box<[u8]>>,
}

/// Mostly one part.
enum Parts {
    One(LocalRange),
    Many(Box<[LocalRange]>),
}

impl Destination {
    /// For a message of at most `len` bytes, all that the parts hold.
    fn of(parts: &[LocalRange], len: usize) -> Destination {
        let bounce = (parts.len() > 1).then(|| vec![0u8; len].into_boxed_slice());
        Destination::with(parts, bounce)
    }

    fn with(parts: &[LocalRange], bounce: Option<Box<[u8]>>) -> Destination {
        let parts = match parts {
            [part] => Parts::One(*part),
            parts => Parts::Many(parts.into()),
        };
        Destination { parts, bounce }
    }

    fn list(&self) -> &[LocalRange] {
        match &self.parts {
            Parts::One(part) => std::slice::from_ref(part),
            Parts::Many(parts) => parts,
        }
    }

    /// The memory for the message. A move of the destination does not move it.
    fn buffer(&mut self) -> *mut u8 {
        match (&mut self.bounce, &self.parts) {
            (Some(bounce), _) => bounce.as_mut_ptr(),
            (None, Parts::One(part)) if !part.ptr.is_null() => part.ptr,
            _ => std::ptr::NonNull::<u8>::dangling().as_ptr(),
        }
    }

    /// Moves the first `len` bytes of the message from the buffer to the parts.
    fn fill(&self, len: usize) {
        if let Some(bounce) = &self.bounce {
            scatter(&bounce[..len.min(bounce.len())], self.list());
        }
    }

    /// Whether the message is discarded.
    fn is_nowhere(&self) -> bool {
        self.list().is_empty() && self.bounce.is_some()
    }
}

/// A receive that has not ended.
struct Awaited {
    ticket: ReceiveTicket,
    report: Report,
    source: Option<u32>,
    to: Destination,
    kind: AwaitedKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AwaitedKind {
    One,
    /// The buffer is for several messages (FI_MULTI_RECV).
    Several,
    /// As `Several`, but it is cancelled, and waits for messages that still arrive in its buffer.
    Cancelled,
    /// The message is the answer to an atomic operation. The parts get its results.
    Answer,
}

/// A message that FI_PEEK | FI_CLAIM has found. It waits for a receive with that context.
struct Claimed {
    context: usize,
    ticket: ReceiveTicket,
    bytes: Box<[u8]>,
}

/// The messages of one endpoint.
pub(crate) struct Messages {
    pub(crate) mailbox: Mailbox,
    acquaintances: Arc<Acquaintances>,
    pub(crate) sent: Vec<Sent>,
    /// The endpoint and its address vector, from its enabling on.
    pub(crate) endpoint: Weak<dyn Watched>,
    pub(crate) av: Option<Arc<AddressVector>>,
    /// Completions name the sender.
    pub(crate) tells_sources: bool,
    /// Set once the mailbox has owed something.
    driver: Option<Arc<Driver>>,
    /// Present while the mailbox owes something: the program may make no further call.
    beats: Option<Beats>,
    /// Number of sends that the program posted. The other sends answer peers.
    own: usize,
    /// Indexed by the ticket's index.
    awaited: Vec<Option<Awaited>>,
    /// Sends may have ended since the last check.
    pub(crate) stale: bool,
    claimed: Vec<Claimed>,
    /// Receives that discard their message.
    discarded: Vec<ReceiveTicket>,
    /// Caches: addresses of peers by number, and numbers by address. Valid until an address is removed.
    sources: Vec<u64>,
    numbers: Vec<Option<u32>>,
    removals: u64,
    /// Number of greetings at the last check for room.
    greetings: u64,
    /// Number of the last atomic operation on a tagged buffer.
    asked: u64,
    /// Atomic operations on tagged buffers, and collective operations, in progress.
    pub(crate) unanswered: usize,
    pub(crate) collectives: Collectives<EndpointGroups>,
    /// The shared receive context.
    shared: Option<Arc<SharedReceives>>,
}

/// The way a message is addressed: with a tag, or without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatchTag {
    /// `None`: fi_msg(3).
    pub tag: Option<u64>,
    /// For receives: bits that matching ignores.
    pub ignore: u64,
}

impl MatchTag {
    /// A message without a tag.
    pub const NONE: MatchTag = MatchTag {
        tag: None,
        ignore: 0,
    };

    fn context(self) -> u8 {
        u8::from(self.tag.is_some())
    }

    /// The messages that a receive with this tag takes.
    #[inline(always)]
    fn pattern(self, source: Option<u32>) -> Pattern {
        Pattern {
            source,
            context: self.context(),
            tag: self.tag.unwrap_or(0),
            ignore: if self.tag.is_some() {
                self.ignore
            } else {
                u64::MAX
            },
        }
    }

    pub(crate) fn kind(self) -> u64 {
        if self.tag.is_some() {
            FI_TAGGED
        } else {
            FI_MSG
        }
    }
}

impl Messages {
    pub fn new(domain: &Arc<Domain>, name: &EndpointName) -> Result<Messages> {
        let acquaintances = Arc::new(Acquaintances {
            domain: domain.clone(),
            numbers: PeerNumbers::new(domain.engine(), SHAPE.numbers())?,
            name: *name,
            directories: Mutex::default(),
        });
        let mut mailbox = Mailbox::new(
            domain.engine(),
            SHAPE,
            Precedence::Posted,
            acquaintances.clone(),
        )?;
        mailbox.tell_ends();
        Ok(Messages {
            mailbox,
            acquaintances,
            sent: Vec::new(),
            own: 0,
            awaited: Vec::new(),
            stale: false,
            claimed: Vec::new(),
            discarded: Vec::new(),
            sources: Vec::new(),
            numbers: Vec::new(),
            removals: 0,
            greetings: 0,
            asked: 0,
            unanswered: 0,
            collectives: Collectives::new(CONTEXT),
            shared: None,
            endpoint: Weak::<Endpoint>::new(),
            av: None,
            tells_sources: false,
            driver: None,
            beats: None,
        })
    }

    /// Calls on groups.
    pub(crate) fn groups(&mut self) -> GroupCalls<'_, EndpointGroups> {
        let engine = self.acquaintances.domain.engine();
        self.collectives.on(engine, &mut self.mailbox)
    }

    /// The program's sends, atomic operations on tagged buffers, and collective operations that have not ended.
    #[inline]
    pub fn under_way(&self) -> usize {
        self.own + self.unanswered
    }

    /// See [`Mailbox::has_lines`](unipgas_core::message::Mailbox::has_lines).
    pub fn has_lines(&self) -> bool {
        self.mailbox.has_lines()
    }

    /// Receives of the program that have not ended.
    #[inline]
    pub fn receives(&self) -> usize {
        self.mailbox.receives() - self.collectives.receives()
    }

    /// Keys of the mailbox and of the table of numbers.
    pub fn keys(&self) -> ([u8; BUNDLE_LEN], [u8; BUNDLE_LEN]) {
        let numbers = self.acquaintances.numbers.region().key();
        (*self.mailbox.key().as_bytes(), *numbers.as_bytes())
    }

    /// The name of a peer.
    fn name_of(&self, number: u32) -> Option<EndpointName> {
        self.acquaintances.name_of(number).ok()
    }

    fn number(&self, name: &EndpointName) -> std::result::Result<u32, Error> {
        self.acquaintances
            .numbers
            .number(name.id(), name.as_bytes())
    }

    /// Whether few lanes are left for new peers, or a new peer has no lane.
    fn is_crowded(&self) -> bool {
        let (taken, end) = self.acquaintances.numbers.taken();
        let lanes = self.mailbox.lanes();
        taken > lanes / 4 * 3 || end > lanes
    }

    /// Clears the caches if an address has been removed.
    #[inline]
    fn check_addresses(&mut self) {
        let removals = self.av.as_ref().map_or(0, |av| av.removals());
        if self.removals != removals {
            self.removals = removals;
            self.sources.clear();
            self.numbers.clear();
        }
    }

    /// Lets the progress thread send answers and injected messages that wait for room. Without a thread, later calls send them.
    fn keep_going(&mut self) {
        if self.mailbox.owes() == self.beats.is_some() {
            return;
        }
        if self.driver.is_none() {
            let watcher = self.acquaintances.domain.watcher();
            self.driver = watcher.watch_in_beats(self.endpoint.clone()).ok();
        }
        self.beats = match self.beats {
            None => self.driver.as_ref().map(Beats::of),
            Some(_) => None,
        };
    }

    /// See [`Mailbox::settle`](unipgas_core::message::Mailbox::settle).
    pub fn settle(&mut self) -> bool {
        self.mailbox.settle(self.acquaintances.domain.engine())
    }

    /// Makes progress. The next poll reports the operations that end here.
    fn move_on(&mut self) {
        self.mailbox.progress(self.acquaintances.domain.engine());
        self.stale = true;
    }

    pub fn forget(&mut self, number: u32) {
        self.mailbox.bury(number);
        self.stale = true;
    }

    /// Forgets peers that have ended, or are closed, to which messages or answers wait for room.
    pub fn forget_busy(&mut self) {
        for number in self.mailbox.busy().to_vec() {
            // A stopped process does not answer.
            if self.acquaintances.has_gone(number, Deadline::after(ANSWER)) {
                self.forget(number);
            }
        }
    }

    /// Forgets dead peers from which receives or collective operations await messages. Such peers may have no lane.
    pub fn forget_the_dead(&mut self, reports: &Reports) {
        let domain = self.acquaintances.domain.clone();
        let awaited = self.awaited.iter().flatten();
        let mut waited_for: Vec<u32> = awaited.filter_map(|awaited| awaited.source).collect();
        waited_for.extend(self.collectives.sources());
        waited_for.sort_unstable();
        waited_for.dedup();
        for number in waited_for {
            let name = self.acquaintances.name_of(number);
            let life = name.and_then(|name| Ok(domain.engine().connect(&name.address())?.life()));
            if life != Ok(Life::Alive) {
                self.forget(number);
            }
        }
        if let Some(shared) = &self.shared {
            shared.forget_the_dead(reports);
        }
    }
}

/// Converts an error of a message. Messages have no keys: a stale mailbox has gone with its owner.
pub(crate) fn errno(error: Error) -> Errno {
    match error {
        Error::StaleRegion => Errno::CONNRESET,
        error => error.into(),
    }
}

impl Messages {
    #[inline]
    fn keep(&mut self, awaited: Awaited) {
        let index = awaited.ticket.index();
        if self.awaited.len() <= index {
            self.awaited.resize_with(index + 1, || None);
        }
        self.awaited[index] = Some(awaited);
    }
}
