//! The mailbox: lanes, matching, and the protocol of long messages. No call waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slab::Slab;

use super::fast_path::Waited;
use super::layout::{Head, Shape};
use super::outgoing::Outgoing;
use super::pool;
use super::staging::Staging;
use super::state::{
    Arrival, Offer, Precedence, ReceiveStage, ReceiveTicket, Receiving, Role, Sending, no_such_peer,
};
use super::window::Window;
use unipgas_base::{Deadline, Error, Result};
use unipgas_engine::Endpoint;
use unipgas_engine::bundle::{BUNDLE_LEN, RegionKey};
use unipgas_engine::engine::{Connection, Engine};
use unipgas_engine::op::{Completion, Remote};
use unipgas_engine::region::RemoteRegion;
use unipgas_engine::service::Service;
use unipgas_engine::transport::Handler;

/// Bit of the contexts of gets. The context of a put is the peer's number, and above this bit the count of peers that had the number before.
pub(super) const GET: u64 = 1 << 32;
const BEARERS: u32 = 33;
/// Keeps contexts below the limit of [gathered](unipgas_engine::op::Flags::GATHERED) operations.
const MOST_BEARERS: u32 = 1 << 28;

/// Location of a peer's mailbox.
pub struct PeerMailbox {
    /// The way to the peer.
    pub connection: Connection,
    /// Its mailbox.
    pub region: RemoteRegion,
    /// This process's lane there: its number among the peers of the mailbox.
    pub lane: u32,
    /// The first block there, if the lane is in another block.
    pub first: Option<RemoteRegion>,
}

impl PeerMailbox {
    /// The lane with this number in the mailbox with the first block `first`. Errors: [`Error::Timeout`]: the owner has the request to make the lane;
    /// [`Error::Exhausted`] for a number that no lane can have.
    pub fn at(
        connection: Connection,
        first: RemoteRegion,
        shape: Shape,
        number: u32,
        (engine, service): (&Engine, &Service),
    ) -> Result<Self> {
        let (block, lane) = (number as usize / shape.peers, number % shape.peers as u32);
        if block == 0 {
            return Ok(PeerMailbox {
                connection,
                region: first,
                lane,
                first: None,
            });
        }
        if block > shape.more {
            return Err(shape.no_lane());
        }
        let at = |offset| Remote {
            region: &first,
            offset,
        };
        let (mut made, mut key) = ([0; 8], [0; BUNDLE_LEN]);
        service.read(engine, at(shape.made()), &mut made)?;
        if u64::from_ne_bytes(made) < block as u64 {
            service.write(engine, &1u32.to_ne_bytes(), at(shape.news()))?;
            return Err(Error::Timeout);
        }
        // The owner writes the word last, so it is read first.
        service.read(engine, at(shape.key_of(block)), &mut key)?;
        Ok(PeerMailbox {
            region: connection.import(&RegionKey::from_bytes(&key)?)?,
            connection,
            lane,
            first: Some(first),
        })
    }
}

/// Finds peers at the first contact.
pub trait Peers: Send + Sync {
    /// The mailbox of `peer`. Errors: [`Error::Timeout`]: it has not answered yet, and the caller asks again. Each other error ends the operation that needs the
    /// peer.
    fn find(&self, peer: u32) -> Result<PeerMailbox>;

    /// The longest wait of a call for the answer of a peer, before a send or a fetch.
    fn patience(&self) -> Deadline {
        Deadline::Never
    }

    /// The name of `peer` at all mailboxes that share receives. `None`: it has no such name.
    fn identity(&self, peer: u32) -> Option<u64> {
        let _ = peer;
        None
    }
}

/// Registered memory that peers send messages to, and the state of messages in progress. One thread at a time may call.
/// [`Mailbox::progress`] makes the progress.
pub struct Mailbox {
    pub(super) shape: Shape,
    pub(super) window: Arc<Window>,
    pub(super) precedence: Precedence,
    pub(super) peers: Arc<dyn Peers>,
    /// Indexed by peer, for existing lanes.
    pub(super) outgoing: Vec<Option<Box<Outgoing>>>,
    pub(super) debts: Vec<Debt>,
    /// For each number, the count of peers that had it before.
    bearers: Vec<u32>,
    /// Receives without a message, in the order of posting.
    pub(super) posted: VecDeque<u32>,
    /// Messages without a receive, in the order of arrival.
    pub(super) arrivals: VecDeque<Arrival>,
    pub(super) waited: Waited,
    pub(super) sends: Slab<Sending>,
    pub(super) receives: Slab<Receiving>,
    /// Receives that have ended, for [`Mailbox::take_ended`].
    pub(super) ended: VecDeque<u32>,
    pub(super) tells_ends: bool,
    /// Peers with messages that wait for room.
    pub(super) busy: Vec<u32>,
    /// Sends that stream.
    pub(super) streams: Vec<u32>,
    /// Receives that wait for their sender's answer before the fetch.
    pub(super) sought: Vec<(u32, Head, Offer)>,
    pub(super) staging: Option<Staging>,
    /// The pool of receives that it shares with other mailboxes.
    pub(super) share: Option<pool::Share>,
    /// Dropped last: registrations end before their network.
    pub(super) endpoint: Arc<Endpoint>,
}

/// Credit that a peer does not have yet.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Debt {
    /// Lines in the last credit.
    pub told: u64,
    /// Bytes taken from the data ring since then.
    pub bytes: usize,
}

impl Mailbox {
    /// A mailbox for `shape.peers` peers, found by `peers`.
    pub fn new(
        engine: &Engine,
        shape: Shape,
        precedence: Precedence,
        peers: Arc<dyn Peers>,
    ) -> Result<Self> {
        let shape = shape.check()?;
        let mut mailbox = Mailbox {
            shape,
            window: Arc::new(Window::new(engine, shape)?),
            endpoint: engine.endpoint(u32::MAX)?.named("messages"),
            precedence,
            peers,
            outgoing: Vec::new(),
            debts: Vec::new(),
            bearers: Vec::new(),
            posted: VecDeque::new(),
            arrivals: VecDeque::new(),
            waited: Waited::default(),
            sends: Slab::new(),
            receives: Slab::new(),
            ended: VecDeque::new(),
            tells_ends: false,
            busy: Vec::new(),
            streams: Vec::new(),
            sought: Vec::new(),
            staging: None,
            share: None,
        };
        mailbox.open_lanes();
        Ok(mailbox)
    }

    /// Makes one more block of lanes. Errors: [`Error::Exhausted`], also if all blocks exist.
    pub fn grow(&mut self, engine: &Engine) -> Result<()> {
        self.window.grow(engine)?;
        self.open_lanes();
        Ok(())
    }

    fn open_lanes(&mut self) {
        let lanes = self.lanes();
        self.outgoing.resize_with(lanes, || None);
        self.debts.resize(lanes, Debt::default());
        self.bearers.resize(lanes, 0);
    }

    /// Number of peers that can send here now.
    pub fn lanes(&self) -> usize {
        self.window.lanes()
    }

    fn has_lane(&self, peer: u32) -> bool {
        (peer as usize) < self.lanes()
    }

    /// The key of the registered memory, which peers need.
    pub fn key(&self) -> RegionKey {
        self.window.key()
    }

    /// Passes active messages to the mailbox's memory to `handler`. Errors: as [`Region::handle_by`](unipgas_engine::Region::handle_by).
    pub fn handle_by(&self, handler: Arc<dyn Handler>) -> Result<()> {
        self.window.handle_by(handler)
    }

    /// Records the ends of receives. The caller must take them by [`Mailbox::take_ended`].
    pub fn tell_ends(&mut self) {
        self.tells_ends = true;
    }

    /// The next receive that has ended, in the order of the ends. Its result may have been taken before.
    #[inline]
    pub fn take_ended(&mut self) -> Option<ReceiveTicket> {
        self.ended.pop_front().map(ReceiveTicket)
    }

    /// Whether [`Mailbox::progress`] would find anything to do.
    #[inline(always)]
    pub fn has_news(&self, engine: &Engine) -> bool {
        engine.is_driven() || self.window.has_news()
    }

    /// Whether [`Mailbox::progress_a_little`] has left a line. A thread takes all lines before it sleeps.
    pub fn has_lines(&self) -> bool {
        self.window.has_lines()
    }

    /// Takes all lines, and sends messages that waited for room.
    #[inline]
    pub fn progress(&mut self, engine: &Engine) {
        if engine.is_driven() {
            self.poll_endpoint();
        }
        self.window.notice();
        // SAFETY:
        // - the mailbox owns a reference of the window and never replaces it.
        let window = unsafe { &*Arc::as_ptr(&self.window) };
        for peer in window.active() {
            while let Some(line) = window.next_line(peer) {
                self.take(window, peer, &line);
            }
        }
        if window.restless.load(Ordering::Relaxed) {
            self.push_on();
        }
    }

    /// [`Mailbox::progress`] by one line of each peer, for callers that poll again. A look for a second line would wait for its cache miss, and the caller may
    /// need only the first line.
    #[inline]
    pub fn progress_a_little(&mut self, engine: &Engine) {
        if engine.is_driven() {
            self.poll_endpoint();
        }
        self.window.notice();
        // SAFETY:
        // - as in `progress`.
        let window = unsafe { &*Arc::as_ptr(&self.window) };
        for peer in window.active() {
            if let Some(line) = window.next_line(peer) {
                window.prefetch_second(peer);
                self.take(window, peer, &line);
            }
        }
        if window.restless.load(Ordering::Relaxed) {
            self.push_on();
        }
    }

    /// Ends all sends to `peer`, and the receives from it that have no message.
    fn forget(&mut self, peer: u32, why: &Error) {
        for (_, sending) in &mut self.sends {
            if sending.to == peer {
                sending.end(Err(why.clone()));
            }
        }
        let (mut ended, mut over) = (Vec::new(), Vec::new());
        for (key, receiving) in &mut self.receives {
            let waits = match &receiving.stage {
                // The parts in progress end the whole.
                ReceiveStage::Posted
                    if matches!(receiving.role, Role::Several { open: 1.., .. }) =>
                {
                    if receiving.pattern.source == Some(peer) {
                        over.push(key as u32);
                    }
                    false
                }
                ReceiveStage::Posted => receiving.pattern.source == Some(peer),
                ReceiveStage::Coming(coming) => coming.streams_from(peer),
                ReceiveStage::Ended(_) => false,
            };
            if waits {
                ended.push(key as u32);
                receiving.stage = ReceiveStage::Ended(Err(why.clone()));
            }
        }
        self.posted
            .retain(|known| !ended.contains(known) && !over.contains(known));
        if self.tells_ends {
            self.ended.extend(ended);
        }
        if let Some(Some(outgoing)) = self.outgoing.get_mut(peer as usize) {
            outgoing.waiting.clear();
        }
        self.busy.retain(|known| *known != peer);
        self.reap();
    }

    /// Number of greetings: a peer begins to send, or asks for a number.
    #[inline(always)]
    pub fn greetings(&self) -> u64 {
        self.window.greetings()
    }

    /// Takes the last lines of a peer that has gone. Then ends all sends to it, and the receives from it that have no message.
    pub fn bury(&mut self, peer: u32) {
        self.lose(peer, &Error::PeerDead);
    }

    /// As [`bury`](Self::bury), with the error of these sends and receives.
    #[cold]
    pub(super) fn lose(&mut self, peer: u32, why: &Error) {
        // SAFETY:
        // - as in `progress`.
        let window = unsafe { &*Arc::as_ptr(&self.window) };
        while self.has_lane(peer)
            && let Some(line) = window.next_line(peer)
        {
            self.take(window, peer, &line);
        }
        self.forget(peer, why);
    }

    /// Frees the number of a peer that has been [buried](Mailbox::bury) and never writes here again. False: one of its messages waits for its receive, or is being
    /// fetched.
    pub fn release(&mut self, peer: u32) -> bool {
        if !self.has_lane(peer) {
            return true;
        }
        let arrived = self.arrivals.iter().any(|arrival| arrival.source == peer);
        let coming = self.receives.iter().any(|(_, receiving)| {
            matches!(&receiving.stage, ReceiveStage::Coming(coming) if coming.received.source == peer)
        });
        if arrived || coming || self.window.next_line(peer).is_some() {
            return false;
        }
        let sends = &self.sends;
        self.streams.retain(|ticket| {
            sends
                .get(*ticket as usize)
                .is_some_and(|sending| sending.to != peer)
        });
        let place = peer as usize;
        self.window.reset(peer);
        self.outgoing[place] = None;
        self.debts[place] = Debt::default();
        self.bearers[place] = (self.bearers[place] + 1) % MOST_BEARERS;
        true
    }

    /// Another process has become `peer`. Discards the state of the old process, with its messages that have no receive. False: one of its messages is being
    /// received.
    pub fn renew(&mut self, peer: u32) -> bool {
        self.bury(peer);
        self.arrivals.retain(|arrival| arrival.source != peer);
        self.release(peer)
    }

    /// The context of puts to a peer.
    #[inline(always)]
    pub(super) fn context(&self, peer: u32) -> u64 {
        u64::from(peer) | u64::from(self.bearers[peer as usize]) << BEARERS
    }

    /// Takes completions: ends of fetches, and failures of puts.
    #[cold]
    fn poll_endpoint(&mut self) {
        let mut ends: Vec<Completion> = Vec::new();
        // No call waits for the end of a put. So its failure is reported here.
        self.endpoint.report_to(&mut |completion| {
            if completion.context & GET != 0 || completion.result.is_err() {
                ends.push(completion);
            }
        });
        for Completion { context, result } in ends {
            if context & GET != 0 {
                self.fetched((context & !GET) as usize, result);
            } else if let Err(error) = result
                && context == self.context(context as u32)
            {
                self.lose(context as u32, &error);
            }
        }
    }

    /// Before the end of the mailbox: makes progress, and returns whether all lines that no caller awaits have reached their peers.
    #[cold]
    pub fn settle(&mut self, engine: &Engine) -> bool {
        self.progress(engine);
        if self.owes() {
            return false;
        }
        let mut fetched = Vec::new();
        // Unlike reports, a poll asks for the ends of unsignaled writes. Their failures concern peers that have gone.
        self.endpoint.poll(&mut |Completion { context, result }| {
            if context & GET != 0 {
                fetched.push((context, result));
            }
        });
        for (context, result) in fetched {
            self.fetched((context & !GET) as usize, result);
        }
        self.endpoint.pending() == 0
    }

    /// The window: its counters say without a lock whether messages have come.
    pub fn window(&self) -> &Arc<Window> {
        &self.window
    }

    /// Whether a write to `peer` has arrived when the call returns. False before the first contact.
    #[inline(always)]
    pub fn is_near(&self, peer: u32) -> bool {
        let known = self.outgoing.get(peer as usize).and_then(Option::as_ref);
        known.is_some_and(|known| known.is_near())
    }

    /// The state of `peer`. The first call, or a later one, finds its mailbox.
    #[inline(always)]
    pub(super) fn outgoing(&mut self, peer: u32) -> Result<&mut Outgoing> {
        let known = self.outgoing.get(peer as usize).and_then(Option::as_ref);
        if !known.is_some_and(|known| known.is_found()) {
            self.find(peer)?;
        }
        let lanes = self.outgoing.len();
        match self.outgoing.get_mut(peer as usize) {
            Some(Some(known)) => Ok(known),
            _ => Err(no_such_peer(peer, lanes)),
        }
    }

    #[cold]
    fn find(&mut self, peer: u32) -> Result<()> {
        let lanes = self.lanes();
        let Some(place) = self.outgoing.get_mut(peer as usize) else {
            return Err(no_such_peer(peer, lanes));
        };
        let way = match self.peers.find(peer) {
            Ok(way) => Some(way),
            Err(Error::Timeout) => None,
            Err(error) => return Err(error),
        };
        let outgoing = place.get_or_insert_with(|| Box::new(Outgoing::new(self.shape)));
        if let Some(way) = way {
            outgoing.found(way);
        }
        Ok(())
    }
}
