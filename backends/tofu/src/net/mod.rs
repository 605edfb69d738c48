//! This process's part of the network: its VCQs, its streams, and who it knows.

mod greetings;
mod reading;
mod targets;

use std::collections::{HashMap, VecDeque};
use std::ffi::c_ulong;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, RwLock};
use slab::Slab;
use unipgas_core::rendezvous::JobName;
use unipgas_core::streams::greeting::{SECRET, random};
use unipgas_core::streams::{Accepted, Departed, Owner, Stream};
use unipgas_core::{Deadline, Error, Result, process};
use unipgas_utofu_sys::*;

use crate::address::{self, Address, PROTOCOL};
use crate::blocks::{Block, Blocks};
use crate::clock::Clock;
use crate::conversation::{Conversation, New};
use crate::edata::About;
use crate::gates::Vbgs;
use crate::greeting::{CARD, CARDS, Desk, End, TAG, places};
use crate::lanes::{Ends, Findings, Lanes};
use crate::library::Library;
use crate::mail::{self, BEHIND, MESSAGE};
use crate::memory::Memories;
use crate::vcq::{self, Vcq};

use greetings::Mute;
use targets::Targets;
pub use targets::{Target, data_of};

/// Operations of a channel to a peer that may be under way.
pub const DEPTH: usize = 128;
/// Streams that a process may have.
const STREAMS: u32 = 1 << 16;
/// Messages that may be on their way from this process.
const SENT: u32 = 1024;
/// Rings are at one of so many places: what goes late to a process that had the VCQ before is not to be where this one's are.
const SKIPPED: usize = 64;
/// Notices of messages that may come; half of the MRQ that a VCQ has unless UTOFU_NUM_MRQ_ENTRIES says otherwise (guide §4.3.2.3).
const PROMISED_TO_ALL: u32 = 1 << 16;

/// Of a descriptor that the peer is told of.
const NOTICE: c_ulong = UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;

#[derive(Default)]
struct Conversations {
    /// By their numbers, which none has after another one.
    all: HashMap<u32, Arc<Conversation>>,
    next: u32,
    /// By their rings.
    rings: HashMap<u32, u32>,
}

/// A message whose bytes have not been read by the TNI yet.
struct Sending {
    target: u32,
    _block: Block,
}

/// The part.
pub struct Net {
    conversations: RwLock<Conversations>,
    targets: RwLock<Targets>,
    /// Those that are over here, but not there.
    closing: Mutex<Vec<u32>>,
    /// Whose stream begins by which card of this process.
    cards: Mutex<[Option<u32>; CARDS]>,
    mute: Mutex<Vec<Mute>>,
    owed: Mutex<Vec<u32>>,
    /// Something is mute, owed, or closing.
    waits: AtomicBool,
    /// Those that wait for room.
    waiting: Mutex<Vec<u32>>,
    are_waiting: AtomicUsize,
    sending: Mutex<Slab<Sending>>,
    reader: Mutex<Findings>,
    rings: Arc<Blocks>,
    sends: Arc<Blocks>,
    fetches: Arc<Blocks>,
    /// Memory that operations may be at.
    pub memories: Arc<Memories>,
    desk: Desk,
    desk_stadd: u64,
    /// Bytes of a ring.
    ring: usize,
    promised: u32,
    /// The VCQs.
    pub lanes: Arc<Lanes>,
    /// Barrier gates of the TNIs.
    pub gates: Vbgs,
    /// What TNIs can do.
    pub caps: utofu_onesided_caps,
    clock: Clock,
    guests: Mutex<VecDeque<Accepted>>,
    /// Peers that are no more there.
    pub departed: Departed,
    /// Something has come by a stream, or one has ended.
    streams: AtomicBool,
    /// Something has come by one that a peer has begun.
    guests_call: AtomicBool,
    /// A turn is to begin.
    turn_calls: AtomicBool,
    /// Accesses have ended.
    ended: AtomicBool,
    /// It is closed.
    closed: AtomicBool,
    /// Why this process can use its VCQs no more.
    broken: OnceLock<Error>,
    /// Itself.
    me: Weak<Net>,
    /// Who says it may begin a stream.
    pub secret: [u8; SECRET],
    /// How peers reach this process.
    pub address: Address,
    owner: Arc<Owner>,
    process: u32,
}

impl Net {
    /// Opens the machine's library, and is ready to be greeted. `incarnation`: how many processes have been there before this one. Errors: [`Error::Unreachable`], [`Error::Exhausted`], [`Error::Os`].
    pub fn open(owner: Arc<Owner>, incarnation: u32) -> Result<Arc<Self>> {
        let library = Library::get().map_err(Error::Unreachable)?;
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
        let desk = Desk::new(&secret)?;
        let (base, len) = desk.place();
        // SAFETY:
        // - there until this is dropped, which deregisters it first.
        let desk_stadd = unsafe { first.register(base, len, false, Some(TAG)) }?;
        let blocks = |size, together, most, skipped| {
            let blocks = Arc::new(Blocks::new(&first, size, together, most, skipped));
            blocks.begin().map(|()| blocks)
        };
        let skipped = usize::from(u8::from_ne_bytes(random()?)) % SKIPPED;
        let rings = blocks(ring + BEHIND, 16, STREAMS, skipped)?;
        let sends = blocks(MESSAGE, 32, SENT, 0)?;
        let fetches = blocks(CARD, 16, STREAMS, 0)?;
        let address = Address::new(secret, first.vcq.id);
        Ok(Arc::new_cyclic(|me| Net {
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
            gates: Vbgs::find(library, nth),
            caps,
            clock,
            guests: Mutex::default(),
            departed: Departed::default(),
            streams: AtomicBool::new(false),
            guests_call: AtomicBool::new(false),
            turn_calls: AtomicBool::new(false),
            ended: AtomicBool::new(false),
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
    pub fn reach(&self, bytes: &[u8]) -> Result<Arc<Conversation>> {
        let to = Address::decode(bytes).ok_or_else(|| {
            let theirs = address::protocol(bytes).filter(|theirs| *theirs != PROTOCOL);
            Error::Unreachable(match theirs {
                Some(theirs) => format!(
                    "the peer has another release of unipgas, which speaks version {theirs:#x} of the tofu protocol, not {PROTOCOL:#x}: install one release on all nodes"
                ),
                None => "not an address of the tofu backend".into(),
            })
        })?;
        if let Some(why) = self.departed.why(&to.secret) {
            return Err(why);
        }
        let new = self.begin(to, self.target_of(&to)?, true)?;
        self.try_again(Mute::Greet(new.number));
        Ok(new)
    }

    /// A stream with this process, which neither side can use yet.
    fn begin(
        &self,
        with: Address,
        target: Arc<Target>,
        begun_here: bool,
    ) -> Result<Arc<Conversation>> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Unreachable("the process leaves the network".into()));
        }
        if let Some(why) = self.broken.get() {
            return Err(why.clone());
        }
        let block = self.rings.take();
        let block = block.ok_or_else(|| Error::Exhausted("rings for streams".into()))?;
        let own = End {
            ring: block.stadd,
            len: self.ring as u32,
            promised: self.promised,
            first: u64::from_ne_bytes(random()?),
        };
        let mut conversations = self.conversations.write();
        let number = conversations.next;
        conversations.next += 1;
        let new = Arc::new(Conversation::new(New {
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

    fn find(&self, number: u32) -> Option<Arc<Conversation>> {
        self.conversations.read().all.get(&number).cloned()
    }

    fn all(&self) -> Vec<Arc<Conversation>> {
        let conversations = self.conversations.read();
        conversations.all.values().cloned().collect()
    }

    /// Something waits for room of which nobody tells.
    fn wait(&self) {
        self.waits.store(true, Ordering::Release);
        self.clock.hurry();
    }

    /// Posts to a target by the first lane.
    fn post(
        &self,
        to: &Target,
        post: impl FnOnce(&Vcq, c_ulong) -> Result<()>,
        ends: impl FnOnce() -> Ends,
    ) -> Result<()> {
        let lane = self.lanes.first();
        lane.post(&mut lane.queue(), to, post, ends)
    }

    /// Something has happened to it that the agent looks at.
    fn call(&self, one: &Conversation) {
        let call = match one.begun_here {
            true => &self.streams,
            false => &self.guests_call,
        };
        call.store(true, Ordering::Release);
    }

    /// It waits for room, or no longer.
    pub fn blocked(&self, number: u32, more: bool) {
        let mut waiting = self.waiting.lock();
        waiting.retain(|one| *one != number);
        if more {
            waiting.push(number);
            self.clock.hurry();
        }
        self.are_waiting.store(waiting.len(), Ordering::Release);
    }

    /// The peer of this stream is to be told how many messages have been read.
    pub fn owes(&self, number: u32) {
        self.owed.lock().push(number);
        self.wait();
    }

    /// Writes a word to a place of a peer's; it comes after those that were written before. Errors: [`Error::NotNow`], [`Error::PeerDead`], [`Error::Os`].
    pub fn write_word(&self, to: &Target, word: [u8; 8], at: u64) -> Result<()> {
        self.lanes.first().post_untold(to, |vcq| {
            let (flags, bytes) = (
                (0, UTOFU_ONESIDED_FLAG_STRONG_ORDER),
                (word.as_ptr(), word.len()),
            );
            // SAFETY:
            // - so many bytes are there.
            unsafe { vcq.put_piggyback(to.route, bytes, at, flags, data_of(to)) }
        })
    }

    /// Asks whether a peer is there, and still the same. Errors: [`Error::NotNow`], [`Error::PeerDead`], [`Error::Os`].
    pub fn probe(&self, of: &Conversation) -> Result<()> {
        let to = &of.target;
        let block = self.fetches.take().ok_or(Error::NotNow)?;
        let ends = (block.stadd, to.desk + places::who());
        let ask = |vcq: &Vcq, flags| {
            // SAFETY:
            // - the block is kept until the end.
            unsafe { vcq.get(to.route, ends, size_of::<u64>(), flags, data_of(to)) }
        };
        self.post(to, ask, || Ends::Probe(of.number, block))
    }

    /// Whose desk is there now.
    fn has_found(&self, one: &Conversation, found: &Block) {
        // SAFETY:
        // - a block of this process's, aligned to a line, to which nothing is written any more.
        let who = unsafe { found.base.cast::<u64>().read_volatile() };
        if who == address::identity(&one.with.secret) {
            return one.hear();
        }
        tracing::debug!(
            "tofu: another process has the VCQ at {}",
            self.place(one.with.vcq)
        );
        self.declare_dead(&one.target);
    }

    /// Whether all that was posted quickly to a peer has ended; asks for that where nobody has.
    pub fn has_settled(&self, of: &Conversation) -> bool {
        // Each is asked.
        self.lanes
            .iter()
            .filter(|lane| !lane.has_settled(&of.target))
            .count()
            == 0
    }

    /// Sends a message: bytes, and the word behind them. Errors: [`Error::NotNow`], [`Error::PeerDead`], [`Error::Os`].
    pub fn send(&self, to: &Target, bytes: &[u8], trailer: u64, at: u64) -> Result<()> {
        let size = mail::size(bytes.len());
        let about = About::Mail.to(to.number);
        let write = |into: *mut u8| {
            // SAFETY:
            // - room for so many bytes, and the word behind them, the caller's or this call's.
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
                // - so many bytes are there.
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
            // - the block is kept until it has been read.
            unsafe { vcq.put(to.route, (from, at), size, (about, flags), data) }
        })?;
        entry.insert(Sending {
            target: to.number,
            _block: block,
        });
        Ok(())
    }

    /// A stream fails on this side.
    pub fn stream_fails(&self, one: &Conversation, error: &Error) {
        self.tell_of(error);
        one.fail();
        self.call(one);
        self.owner.wake();
    }

    /// It has ended here. When the peer writes nothing more to its ring, it goes.
    pub fn forget(&self, ended: &Conversation) {
        self.closing.lock().push(ended.number);
        self.wait();
        self.owner.wake();
    }

    /// Goes through those that are over, and lets go of those that are so there, too. They count as closing until then, whoever goes through them.
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

    /// Descriptors that tell when something is to be done.
    pub fn events(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.clock.as_fd()]
    }

    /// False in the child of a fork, to which nothing of it belongs.
    pub fn is_here(&self) -> bool {
        self.process == process::id()
    }

    /// Whether anything that has been posted may not have reached its peer yet.
    pub fn is_under_way(&self) -> bool {
        let open = |one: &Arc<Conversation>| one.is_open() && !one.has_ended();
        let all: Vec<_> = self.all().into_iter().filter(open).collect();
        !self.sending.lock().is_empty()
            || all.iter().any(|one| {
                let number = one.target.number;
                self.lanes.iter().any(|lane| lane.is_under_way(number))
            })
    }

    /// All streams end, and peers learn of it, unless they take nothing for so long.
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
            // The network may read these yet: so they stay as long as the process.
            std::mem::forget(late);
        }
        self.all().iter().for_each(|one| one.fail());
        let mut conversations = self.conversations.write();
        *conversations = Conversations::default();
    }
}

/// Posts what ends when everything that was posted there before is visible at the peer. Errors: [`Error::NotNow`], [`Error::Os`].
pub fn acknowledge(vcq: &Vcq, to: &Target, flags: c_ulong) -> Result<()> {
    let nothing = [0u8; 8];
    let flags = flags | UTOFU_ONESIDED_FLAG_STRONG_ORDER;
    // SAFETY:
    // - so many bytes are there.
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

impl Drop for Net {
    fn drop(&mut self) {
        self.lanes.first().deregister(self.desk_stadd);
    }
}
