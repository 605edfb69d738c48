//! This process in the network: its VCQs, its streams, and its targets.

mod greetings;
mod reading;
mod targets;

use std::collections::HashMap;
use std::ffi::c_ulong;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, RwLock};
use slab::Slab;
use unipgas_core::random::random;
use unipgas_core::rendezvous::JobName;
use unipgas_core::streams::greeting::{SECRET, foreign_address};
use unipgas_core::streams::{Departed, EventReceiver, Stream};
use unipgas_core::{Deadline, Error, Result, process};
use unipgas_utofu_sys::*;

use crate::address::{self, PROTOCOL, TofuAddress};
use crate::blocks::{Block, Blocks};
use crate::clock::Clock;
use crate::conversation::{StreamParts, TofuStream};
use crate::edata::NoticeType;
use crate::gates::TofuGates;
use crate::greeting::{CARD, CARDS, GreetingSlots, StreamEnd, TAG, places};
use crate::lanes::{Findings, Lanes, PendingWork};
use crate::library::UtofuLibrary;
use crate::mail::{self, BEHIND, MESSAGE};
use crate::memory::Memories;
use crate::vcq::{self, RawVcq};

use greetings::Mute;
use targets::Targets;
pub(crate) use targets::{PeerVcq, data_of};

/// Maximum operations of a channel to a peer in flight.
pub const DEPTH: usize = 128;
/// Maximum streams of a process.
const STREAMS: u32 = 1 << 16;
/// Maximum messages of this process in flight.
const SENT: u32 = 1024;
/// The rings of a process start at one of this many random places. So late messages to an earlier process with the VCQ miss them.
const SKIPPED: usize = 64;
/// Maximum unread messages from all peers: half of the default MRQ of a VCQ (UTOFU_NUM_MRQ_ENTRIES, guide §4.3.2.3).
const PROMISED_TO_ALL: u32 = 1 << 16;

/// Flag for a descriptor with a notice at the peer.
const NOTICE: c_ulong = UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;

#[derive(Default)]
struct Conversations {
    /// Keyed by number. Numbers are never reused.
    all: HashMap<u32, Arc<TofuStream>>,
    next: u32,
    /// Keyed by ring.
    rings: HashMap<u32, u32>,
}

/// A message that the TNI has not read yet.
struct Sending {
    target: u32,
    _block: Block,
}

/// The network state of this process.
pub(crate) struct TofuNet {
    conversations: RwLock<Conversations>,
    targets: RwLock<Targets>,
    /// Streams that have ended here, but not at the peer.
    closing: Mutex<Vec<u32>>,
    /// Streams that begin, by their cards.
    cards: Mutex<[Option<u32>; CARDS]>,
    mute: Mutex<Vec<Mute>>,
    owed: Mutex<Vec<u32>>,
    /// Entries of `mute`, `owed`, or `closing` need a retry.
    waits: AtomicBool,
    /// Streams that wait for room.
    waiting: Mutex<Vec<u32>>,
    are_waiting: AtomicUsize,
    sending: Mutex<Slab<Sending>>,
    reader: Mutex<Findings>,
    rings: Arc<Blocks>,
    sends: Arc<Blocks>,
    fetches: Arc<Blocks>,
    /// Memory for operations.
    pub memories: Arc<Memories>,
    desk: GreetingSlots,
    desk_stadd: u64,
    /// Bytes of a ring.
    ring: usize,
    promised: u32,
    /// The VCQs.
    pub lanes: Arc<Lanes>,
    /// Barrier gates of the TNIs.
    pub gates: TofuGates,
    /// Capabilities of the TNIs.
    pub caps: utofu_onesided_caps,
    clock: Clock,
    /// Dead and departed peers.
    pub departed: Departed,
    /// The network is closed.
    closed: AtomicBool,
    /// Why the VCQs of this process are unusable.
    broken: OnceLock<Error>,
    /// Reference to itself.
    me: Weak<TofuNet>,
    /// Peers that know it may begin a stream.
    pub secret: [u8; SECRET],
    /// Address for peers.
    pub address: TofuAddress,
    pub owner: Arc<EventReceiver>,
    process: u32,
}

impl TofuNet {
    /// Loads the machine's library, and accepts greetings. `incarnation`: number of earlier processes of this rank. Errors: [`Error::Unreachable`],
    /// [`Error::Exhausted`], [`Error::Os`].
    pub fn open(owner: Arc<EventReceiver>, incarnation: u32) -> Result<Arc<Self>> {
        let library = UtofuLibrary::get().map_err(Error::Unreachable)?;
        let tnis = vcq::tnis(library)?;
        let job = JobName::from_env().ok();
        let (rank, size) = job.map_or((None, None), |job| (job.rank(), job.size()));
        let nth = rank.unwrap_or(0) as usize;
        let lanes = Arc::new(Lanes::open(library, tnis, (nth, incarnation))?);
        let first = lanes.first().clone();
        let caps = vcq::caps(library, first.vcq.tni)?;
        let peers = size.unwrap_or(2).max(2);
        let (ring, promised) = match peers {
            ..=64 => (16 << 10, 64),
            65..=1024 => (8 << 10, 32),
            _ => (4 << 10, (PROMISED_TO_ALL / (2 * peers)).clamp(4, 16)),
        };
        let (secret, clock) = (random()?, Clock::new()?);
        let desk = GreetingSlots::new(&secret)?;
        let (base, len) = desk.place();
        // SAFETY:
        // - the desk lives as long as `TofuNet`. `TofuNet::drop` deregisters it first.
        let desk_stadd = unsafe { first.register(base, len, false, Some(TAG)) }?;
        let blocks = |size, together, most, skipped| {
            let blocks = Arc::new(Blocks::new(&first, size, together, most, skipped));
            blocks.begin().map(|()| blocks)
        };
        let skipped = usize::from(u8::from_ne_bytes(random()?)) % SKIPPED;
        let rings = blocks(ring + BEHIND, 16, STREAMS, skipped)?;
        let sends = blocks(MESSAGE, 32, SENT, 0)?;
        let fetches = blocks(CARD, 16, STREAMS, 0)?;
        let address = TofuAddress::new(secret, first.vcq.id);
        Ok(Arc::new_cyclic(|me| TofuNet {
            conversations: RwLock::default(),
            targets: RwLock::default(),
            closing: Mutex::default(),
            cards: Mutex::new([None; CARDS]),
            mute: Mutex::default(),
            owed: Mutex::default(),
            waits: AtomicBool::new(false),
            waiting: Mutex::default(),
            are_waiting: AtomicUsize::new(0),
            sending: Mutex::default(),
            reader: Mutex::default(),
            rings,
            sends,
            fetches,
            memories: Arc::new(Memories::new(&lanes)),
            desk,
            desk_stadd,
            ring,
            promised,
            gates: TofuGates::find(library, nth),
            caps,
            clock,
            departed: Departed::default(),
            closed: AtomicBool::new(false),
            broken: OnceLock::new(),
            me: me.clone(),
            secret,
            address,
            owner,
            lanes,
            process: process::id(),
        }))
    }

    /// Begins a stream. Errors: [`Error::Unreachable`], [`Error::PeerDead`], [`Error::Exhausted`], [`Error::Os`].
    pub fn reach(&self, bytes: &[u8]) -> Result<Arc<TofuStream>> {
        let to =
            TofuAddress::decode(bytes).ok_or_else(|| foreign_address(bytes, PROTOCOL, "tofu"))?;
        if let Some(why) = self.departed.why(&to.secret) {
            return Err(why);
        }
        let new = self.begin(to, self.target_of(&to)?, true)?;
        self.try_again(Mute::Greet(new.number));
        Ok(new)
    }

    /// Creates a stream that is not open yet.
    fn begin(
        &self,
        with: TofuAddress,
        target: Arc<PeerVcq>,
        begun_here: bool,
    ) -> Result<Arc<TofuStream>> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Unreachable("the process leaves the network".into()));
        }
        if let Some(why) = self.broken.get() {
            return Err(why.clone());
        }
        let block = self.rings.take();
        let block = block.ok_or_else(|| Error::Exhausted("rings for streams".into()))?;
        let own = StreamEnd {
            ring: block.stadd,
            len: self.ring as u32,
            promised: self.promised,
            first: u64::from_ne_bytes(random()?),
        };
        let mut conversations = self.conversations.write();
        let number = conversations.next;
        conversations.next += 1;
        let new = Arc::new(TofuStream::new(StreamParts {
            net: self.me.clone(),
            number,
            with,
            begun_here,
            target,
            block,
            own,
        }));
        conversations.all.insert(number, new.clone());
        conversations.rings.insert(new.block(), number);
        Ok(new)
    }

    fn find(&self, number: u32) -> Option<Arc<TofuStream>> {
        self.conversations.read().all.get(&number).cloned()
    }

    fn all(&self) -> Vec<Arc<TofuStream>> {
        let conversations = self.conversations.read();
        conversations.all.values().cloned().collect()
    }

    /// Schedules a retry. No event reports room.
    fn wait(&self) {
        self.waits.store(true, Ordering::Release);
        self.clock.hurry();
    }

    /// Posts to a target on the first lane.
    fn post(
        &self,
        to: &PeerVcq,
        post: impl FnOnce(&RawVcq, c_ulong) -> Result<()>,
        ends: impl FnOnce() -> PendingWork,
    ) -> Result<()> {
        let lane = self.lanes.first();
        lane.post(&mut lane.queue(), to, post, ends)
    }

    /// Reports an event of a stream to the agent.
    fn call(&self, one: &TofuStream) {
        self.owner.on_stream(one.begun_here);
    }

    /// Notes whether a stream waits for room.
    pub fn blocked(&self, number: u32, more: bool) {
        let mut waiting = self.waiting.lock();
        waiting.retain(|one| *one != number);
        if more {
            waiting.push(number);
            self.clock.hurry();
        }
        self.are_waiting.store(waiting.len(), Ordering::Release);
    }

    /// Notes that the peer of this stream is due a report of the read position.
    pub fn owes(&self, number: u32) {
        self.owed.lock().push(number);
        self.wait();
    }

    /// Writes a word to a peer's memory, after all earlier writes there. Errors: [`Error::NotNow`], [`Error::PeerDead`], [`Error::Os`].
    pub fn write_word(&self, to: &PeerVcq, word: [u8; 8], at: u64) -> Result<()> {
        self.lanes.first().post_untold(to, |vcq| {
            let (flags, bytes) = (
                (0, UTOFU_ONESIDED_FLAG_STRONG_ORDER),
                (word.as_ptr(), word.len()),
            );
            // SAFETY:
            // - `word` has `word.len()` bytes.
            unsafe { vcq.put_piggyback(to.route, bytes, at, flags, data_of(to)) }
        })
    }

    /// Probes whether the same process still owns the peer's VCQ. Errors: [`Error::NotNow`], [`Error::PeerDead`], [`Error::Os`].
    pub fn probe(&self, of: &TofuStream) -> Result<()> {
        let to = &of.target;
        let block = self.fetches.take().ok_or(Error::NotNow)?;
        let ends = (block.stadd, to.desk + places::who());
        let ask = |vcq: &RawVcq, flags| {
            // SAFETY:
            // - the block lives until completion.
            unsafe { vcq.get(to.route, ends, size_of::<u64>(), flags, data_of(to)) }
        };
        self.post(to, ask, || PendingWork::Probe(of.number, block))
    }

    /// Handles the result of a probe: the identity of the desk's owner.
    fn on_probed(&self, one: &TofuStream, found: &Block) {
        // SAFETY:
        // - the block belongs to this process and is aligned to a line. The network no longer writes it.
        let who = unsafe { found.base.cast::<u64>().read_volatile() };
        if who == address::identity(&one.with.secret) {
            return one.state.hear();
        }
        tracing::debug!(
            "tofu: another process has the VCQ at {}",
            self.place(one.with.vcq)
        );
        self.declare_dead(&one.target);
    }

    /// Whether all unsignaled writes to a peer have completed. Requests notices that are not due.
    pub fn has_settled(&self, of: &TofuStream) -> bool {
        // `count` asks each lane; `all` would stop early.
        self.lanes
            .iter()
            .filter(|lane| !lane.has_settled(&of.target))
            .count()
            == 0
    }

    /// Sends a message: `bytes`, and `trailer` as its last word. Errors: [`Error::NotNow`], [`Error::PeerDead`], [`Error::Os`].
    pub fn send(&self, to: &PeerVcq, bytes: &[u8], trailer: u64, at: u64) -> Result<()> {
        let size = mail::size(bytes.len());
        let about = NoticeType::Mail.to(to.number);
        let write = |into: *mut u8| {
            // SAFETY:
            // - both callers have room for `size` bytes: the array by the check below, the block by its size.
            unsafe {
                into.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                let end = into.wrapping_add(size - size_of::<u64>());
                end.cast::<u64>().write_unaligned(trailer);
            }
        };
        let lane = self.lanes.first();
        if size <= self.caps.max_piggyback_size.min(32) {
            let mut whole = [0u8; 32];
            write(whole.as_mut_ptr());
            return lane.post_untold(to, |vcq| {
                let bytes = (whole.as_ptr(), size);
                // SAFETY:
                // - `whole` has `size` bytes (checked above).
                unsafe { vcq.put_piggyback(to.route, bytes, at, (about, NOTICE), data_of(to)) }
            });
        }
        let block = self.sends.take().ok_or(Error::NotNow)?;
        write(block.base);
        let from = block.stadd;
        let mut sending = self.sending.lock();
        let entry = sending.vacant_entry();
        let data = (entry.key() + 1) << 2;
        let flags = NOTICE | UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
        lane.post_untold(to, |vcq| {
            // SAFETY:
            // - the block lives until the TNI has read it.
            unsafe { vcq.put(to.route, (from, at), size, (about, flags), data) }
        })?;
        entry.insert(Sending {
            target: to.number,
            _block: block,
        });
        Ok(())
    }

    /// Ends a stream after an error on this side.
    pub fn stream_fails(&self, one: &TofuStream, error: &Error) {
        self.tell_of(error);
        one.fail();
        self.call(one);
        self.owner.wake();
    }

    /// Forgets an ended stream, once the peer no longer writes to its ring.
    pub fn forget(&self, ended: &TofuStream) {
        self.closing.lock().push(ended.number);
        self.wait();
        self.owner.wake();
    }

    /// Forgets streams that have ended on both sides. An entry leaves `closing` only then, so that `close` waits for it.
    fn part(&self) {
        let closing = self.closing.lock().clone();
        for number in closing {
            if let Some(one) = self.find(number) {
                one.close();
                if !one.is_quiet() {
                    self.waits.store(true, Ordering::Release);
                    continue;
                }
                let mut conversations = self.conversations.write();
                conversations.rings.remove(&one.block());
                conversations.all.remove(&number);
            }
            self.closing.lock().retain(|other| *other != number);
        }
    }

    /// Descriptors with events for the progress thread.
    pub fn events(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.clock.as_fd()]
    }

    /// False in the child of a fork, which must not use the network.
    pub fn is_here(&self) -> bool {
        self.process == process::id()
    }

    /// Whether operations or messages may still be in flight.
    pub fn is_under_way(&self) -> bool {
        let open = |one: &Arc<TofuStream>| one.is_open() && !one.state.has_ended();
        let all: Vec<_> = self.all().into_iter().filter(open).collect();
        !self.sending.lock().is_empty()
            || all.iter().any(|one| {
                let number = one.target.number;
                self.lanes.iter().any(|lane| lane.is_under_way(number))
            })
    }

    /// Ends all streams, and informs the peers before the deadline.
    pub fn close(&self, deadline: Deadline) {
        self.all().iter().for_each(|one| one.end());
        let busy = || !self.closing.lock().is_empty() || !self.sending.lock().is_empty();
        while busy() && !deadline.expired() {
            self.progress(true);
            std::thread::yield_now();
        }
        self.closed.store(true, Ordering::Release);
        let late = std::mem::take(&mut *self.sending.lock());
        if !late.is_empty() {
            // The network may still read these blocks, so they stay mapped until the process exits.
            std::mem::forget(late);
        }
        self.all().iter().for_each(|one| one.fail());
        let mut conversations = self.conversations.write();
        *conversations = Conversations::default();
    }
}

/// Posts a write that completes after all earlier writes are visible at the peer. Errors: [`Error::NotNow`], [`Error::Os`].
pub fn acknowledge(vcq: &RawVcq, to: &PeerVcq, flags: c_ulong) -> Result<()> {
    let nothing = [0u8; 8];
    let flags = flags | UTOFU_ONESIDED_FLAG_STRONG_ORDER;
    // SAFETY:
    // - `nothing` has `nothing.len()` bytes.
    unsafe {
        vcq.put_piggyback(
            to.route,
            (nothing.as_ptr(), nothing.len()),
            to.sink(),
            (0, flags),
            data_of(to),
        )
    }
}

impl Drop for TofuNet {
    fn drop(&mut self) {
        self.lanes.first().deregister(self.desk_stadd);
    }
}
