//! This process's part of the network: its VCQs, its streams, and who it knows.

mod reading;

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::c_ulong;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use slab::Slab;
use unipgas_core::rendezvous::JobName;
use unipgas_core::streams::greeting::{SECRET, random};
use unipgas_core::streams::{Accepted, Departed, Stream};
use unipgas_core::{Deadline, Error, Result, process};
use unipgas_utofu_sys::*;

use crate::address::{self, Address, PROTOCOL};
use crate::blocks::{Block, Blocks};
use crate::clock::Clock;
use crate::conversation::{Conversation, New};
use crate::gates::Vbgs;
use crate::greeting::{About, CARD, CARDS, Desk, End, Fetched, TAG, places};
use crate::lanes::{Ends, Findings, Lanes};
use crate::library::Library;
use crate::mail::{self, BEHIND, MESSAGE};
use crate::memory::Memories;
use crate::vcq::{self, Vcq};

/// Operations of a channel to a peer that may be under way.
pub const DEPTH: usize = 128;
/// Streams that a process may have.
const STREAMS: u32 = 1 << 16;
/// Messages that may be on their way from this process.
const SENT: u32 = 1024;
/// Notices of messages that may come; half of the MRQ that a VCQ has unless UTOFU_NUM_MRQ_ENTRIES says otherwise (guide §4.3.2.3).
const PROMISED_TO_ALL: u32 = 1 << 16;

/// Errors about a process may come so late that another one has its VCQ.
const LATE: Duration = Duration::from_secs(5);
/// Not an error of the network's: another process is there.
const LAST_WORD: i32 = 0;
/// Of a descriptor that the peer is told of.
const NOTICE: c_ulong = UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;

/// Takes what peers write with a word for this process.
pub trait Told: Send + Sync {
    /// Somebody may have done that.
    fn written(&self);
    /// Calls for a turn of the agent.
    fn wake(&self);
}

/// A VCQ of a peer's.
pub struct Target {
    /// As this process numbers it.
    pub number: u32,
    /// Its ID.
    pub vcq: u64,
    /// The STADD of its desk.
    desk: u64,
    /// Of its process, once that is known: another one may get a VCQ whose process has died.
    secret: OnceLock<[u8; SECRET]>,
    /// Another process had it before, until when errors may be about that one.
    follows: Option<Instant>,
    lost: AtomicBool,
}

impl Target {
    /// Nothing reaches it any more.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Something to write to, where nobody reads.
    fn sink(&self) -> u64 {
        self.desk + places::sink()
    }
}

#[derive(Default)]
struct Targets {
    numbers: HashMap<u64, u32>,
    /// VCQs whose processes have died.
    lost: HashSet<u64>,
    all: Slab<Arc<Target>>,
}

#[derive(Default)]
struct Conversations {
    /// By their numbers, which none has after another one.
    all: HashMap<u32, Arc<Conversation>>,
    next: u32,
    /// By their rings.
    rings: HashMap<u32, u32>,
}

/// What a stranger waits for, for which there was no room.
enum Mute {
    /// A card, or a place in the TOQ, to be greeted by.
    Greet(u32),
    /// His card is to be fetched: his VCQ, and which it is.
    Fetch(u64, u32),
    /// His answer.
    Answer(Fetched, Option<Arc<Conversation>>),
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
    told: Arc<dyn Told>,
    process: u32,
}

impl Net {
    /// Opens the machine's library, and is ready to be greeted. Errors: [`Error::Unreachable`], [`Error::Exhausted`], [`Error::Os`].
    pub fn open(told: Arc<dyn Told>) -> Result<Arc<Self>> {
        let library = Library::get().map_err(Error::Unreachable)?;
        let tnis = vcq::tnis(library)?;
        let job = JobName::from_env().ok();
        let (rank, size) = job.map_or((None, None), |job| (job.rank(), job.size()));
        let nth = rank.unwrap_or(0) as usize;
        let lanes = Arc::new(Lanes::open(library, tnis, nth)?);
        let first = lanes.first().clone();
        let caps = vcq::caps(library, first.vcq.tni)?;
        let peers = size.unwrap_or(2).max(2);
        let (ring, promised) = match peers {
            ..=64 => (16 << 10, 64),
            65..=1024 => (8 << 10, 32),
            _ => (4 << 10, (PROMISED_TO_ALL / (2 * peers)).clamp(4, 16)),
        };
        let desk = Desk::new()?;
        let (base, len) = desk.place();
        // SAFETY:
        // - there until this is dropped, which deregisters it first.
        let desk_stadd = unsafe { first.register(base, len, false, Some(TAG)) }?;
        let blocks = |size, together, most| {
            let blocks = Arc::new(Blocks::new(&first, size, together, most));
            blocks.begin().map(|()| blocks)
        };
        let rings = blocks(ring + BEHIND, 16, STREAMS)?;
        let (sends, fetches) = (blocks(MESSAGE, 32, SENT)?, blocks(CARD, 16, STREAMS)?);
        let (secret, clock) = (random()?, Clock::new()?);
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
            told,
            lanes,
            process: process::id(),
        }))
    }

    /// The peer's VCQ with this ID. Errors: [`Error::Os`].
    fn target(&self, vcq: u64) -> Result<Arc<Target>> {
        if let Some(known) = self.known(vcq) {
            return Ok(known);
        }
        let desk = self.lanes.first().vcq.tagged(vcq, TAG)?;
        let mut targets = self.targets.write();
        if let Some(known) = targets.find(vcq) {
            return Ok(known.clone());
        }
        let again = targets.lost.contains(&vcq);
        let entry = targets.all.vacant_entry();
        let new = Arc::new(Target {
            number: entry.key() as u32,
            vcq,
            desk,
            secret: OnceLock::new(),
            follows: again.then(|| Instant::now() + LATE),
            lost: AtomicBool::new(false),
        });
        entry.insert(new.clone());
        targets.numbers.insert(vcq, new.number);
        Ok(new)
    }

    /// That of the process with this address. What is known of another one with this VCQ is over. Errors: [`Error::Os`].
    fn target_of(&self, address: &Address) -> Result<Arc<Target>> {
        loop {
            let target = self.target(address.vcq)?;
            let secret = address.secret;
            if *target.secret.get_or_init(|| secret) == secret {
                return Ok(target);
            }
            self.lose(&target, LAST_WORD);
        }
    }

    fn known(&self, vcq: u64) -> Option<Arc<Target>> {
        self.targets.read().find(vcq).cloned()
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
        let new = self.begin(to, true)?;
        self.try_again(Mute::Greet(new.number));
        Ok(new)
    }

    /// A stream with this process, which neither side can use yet.
    fn begin(&self, with: Address, begun_here: bool) -> Result<Arc<Conversation>> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Unreachable("the process leaves the network".into()));
        }
        if let Some(why) = self.broken.get() {
            return Err(why.clone());
        }
        let target = self.target_of(&with)?;
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

    /// Something of a stranger's, at once where there is room.
    fn try_again(&self, what: Mute) {
        if let Some(later) = self.speak(what) {
            self.mute.lock().push(later);
            self.wait();
        }
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

    /// Does it; what there is no room for comes back.
    fn speak(&self, what: Mute) -> Option<Mute> {
        match what {
            Mute::Greet(number) => self.greet(number),
            Mute::Fetch(from, card) => self.fetch(from, card),
            Mute::Answer(fetched, begun) => self.answer(fetched, begun),
        }
    }

    fn greet(&self, number: u32) -> Option<Mute> {
        let one = self.find(number)?;
        let mut cards = self.cards.lock();
        let Some(card) = cards.iter().position(Option::is_none) else {
            return Some(Mute::Greet(number));
        };
        self.desk
            .write(card as u32, &one.with, self.address, one.own_end());
        match self.knock(&one, card as u32) {
            Ok(()) => cards[card] = Some(number),
            Err(Error::NotNow) => return Some(Mute::Greet(number)),
            Err(error) => {
                drop(cards);
                one.is_refused(error);
                self.call(&one);
            }
        }
        None
    }

    /// At the peer's door, with this card.
    fn knock(&self, one: &Conversation, card: u32) -> Result<()> {
        let (target, nothing) = (&one.target, [0u8; 8]);
        let door = target.desk + places::door(card);
        let knock = |vcq: &Vcq, flags| {
            let about = (About::Greeting as u8, flags | NOTICE);
            let bytes = (nothing.as_ptr(), nothing.len());
            // SAFETY:
            // - so many bytes are there.
            unsafe { vcq.put_piggyback(target.vcq, bytes, door, about, data_of(target)) }
        };
        self.post(target, knock, || Ends::Greeted(one.number))
    }

    /// The peer has not answered this stream's greeting.
    pub fn greet_again(&self, number: u32) {
        let card = self
            .cards
            .lock()
            .iter()
            .position(|card| *card == Some(number));
        if let (Some(card), Some(one)) = (card, self.find(number)) {
            let _ = self.knock(&one, card as u32);
        }
    }

    fn fetch(&self, from: u64, card: u32) -> Option<Mute> {
        let target = self.target(from).ok()?;
        let Some(block) = self.fetches.take() else {
            return Some(Mute::Fetch(from, card));
        };
        let fetched = Fetched::new(block, from, card);
        let (into, len) = fetched.place();
        let at = target.desk + places::card(card);
        let get = |vcq: &Vcq, flags| {
            // SAFETY:
            // - the block is kept until the end.
            unsafe { vcq.get(from, (into, at), len, flags, data_of(&target)) }
        };
        match self.post(&target, get, || Ends::Fetched(fetched)) {
            Ok(()) => None,
            Err(Error::NotNow) => Some(Mute::Fetch(from, card)),
            Err(error) => {
                // He says it again.
                self.tell_of(&error);
                None
            }
        }
    }

    fn answer(&self, fetched: Fetched, begun: Option<Arc<Conversation>>) -> Option<Mute> {
        let target = self.target(fetched.from).ok()?;
        let (answer, len) = fetched.answered();
        let at = target.desk + places::answer(fetched.card);
        let put = |vcq: &Vcq, flags| {
            let about = (About::Answer as u8, flags | NOTICE);
            // SAFETY:
            // - the block is kept until the end.
            unsafe { vcq.put(target.vcq, (answer, at), len, about, data_of(&target)) }
        };
        let mut kept = Some(fetched);
        let answered = self.post(&target, put, || Ends::Answered(kept.take()));
        match (answered, kept) {
            (Err(Error::NotNow), Some(fetched)) => return Some(Mute::Answer(fetched, begun)),
            (Ok(()), _) => {
                if let Some(one) = begun {
                    self.is_accepted(one);
                }
            }
            (Err(error), _) => {
                self.tell_of(&error);
                if let Some(one) = begun {
                    one.fail();
                    one.end();
                }
            }
        }
        None
    }

    fn is_accepted(&self, one: Arc<Conversation>) {
        self.guests.lock().push_back(Accepted {
            known: Some(unipgas_core::streams::greeting::padded(bytemuck::bytes_of(
                &one.with,
            ))),
            stream: one,
        });
        self.turn_calls.store(true, Ordering::Release);
    }

    /// The next one that a peer has begun.
    pub fn accept(&self) -> Option<Accepted> {
        self.guests.lock().pop_front()
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
            unsafe { vcq.put_piggyback(to.vcq, bytes, at, flags, data_of(to)) }
        })
    }

    /// Asks whether a peer is there. Errors: [`Error::NotNow`], [`Error::PeerDead`], [`Error::Os`].
    pub fn probe(&self, of: &Conversation) -> Result<()> {
        let to = &of.target;
        let lane = self.lanes.first();
        let ask = |vcq: &Vcq, flags| acknowledge(vcq, to, flags);
        lane.post_covering(&mut lane.queue(), to, ask, || Ends::Probe(of.number))
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
        let about = About::Mail as u8;
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
                unsafe { vcq.put_piggyback(to.vcq, bytes, at, (about, NOTICE), data_of(to)) }
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
            unsafe { vcq.put(to.vcq, (from, at), size, (about, flags), data) }
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
        self.told.wake();
    }

    /// It has ended here. When the peer writes nothing more to its ring, it goes.
    pub fn forget(&self, ended: &Conversation) {
        self.closing.lock().push(ended.number);
        self.wait();
        self.told.wake();
    }

    /// Goes through those that are over, and lets go of those that are so there, too.
    fn part(&self) {
        let closing = std::mem::take(&mut *self.closing.lock());
        for number in closing {
            let Some(one) = self.find(number) else {
                continue;
            };
            one.close();
            if !one.is_quiet() {
                self.closing.lock().push(number);
                self.waits.store(true, Ordering::Release);
                continue;
            }
            let mut conversations = self.conversations.write();
            conversations.rings.remove(&one.block());
            conversations.all.remove(&number);
        }
    }

    /// Whether an error that tells of this VCQ may be about the process that had it before.
    fn is_late(&self, target: &Arc<Target>) -> bool {
        let follows = target.follows.is_some_and(|until| Instant::now() < until);
        let all = || self.all().into_iter();
        follows && all().all(|one| !Arc::ptr_eq(&one.target, target) || !one.is_open())
    }

    /// Others have seen that the process which has this VCQ died.
    pub fn declare_dead(&self, target: &Arc<Target>) {
        self.lose(target, LAST_WORD);
    }

    /// Tells of an error that none of this process's operations has.
    fn tell_of(&self, error: &Error) {
        if let Error::Os(why) = error {
            unipgas_core::tell_refusal(&Error::Os(format!("tofu: {why}")));
        }
    }

    /// This process can use its VCQs no more: whatever is under way ends, and nothing more goes.
    fn breaks(&self, why: Error) {
        self.tell_of(&why);
        if self.broken.set(why).is_err() {
            return;
        }
        let all: Vec<_> = (self.targets.read().all.iter())
            .map(|(_, target)| target.clone())
            .collect();
        all.iter().for_each(|target| self.give_up(target));
    }

    /// Something for this VCQ has failed on this side. The peer may live, and wait for it: so it is told that the streams end.
    fn give_up(&self, target: &Arc<Target>) {
        self.say_farewell(target);
        self.lose(target, LAST_WORD);
    }

    fn say_farewell(&self, target: &Arc<Target>) {
        let with_it = |one: &Arc<Conversation>| Arc::ptr_eq(&one.target, target);
        for one in self.all().iter().filter(|one| with_it(one)) {
            one.close();
        }
    }

    /// Nothing reaches this VCQ any more.
    fn lose(&self, target: &Arc<Target>, code: i32) {
        if code != LAST_WORD && self.is_late(target) {
            // Nothing depends on it yet but greetings, which are said again.
            for lane in self.lanes.iter() {
                drop(lane.forget(target));
            }
            return;
        }
        if is_of_this_side(code) && !target.is_lost() {
            self.say_farewell(target);
        }
        if target.lost.swap(true, Ordering::AcqRel) {
            return;
        }
        if code != LAST_WORD {
            let why = format!(
                "what goes to the VCQ {:#x} fails: {}",
                target.vcq,
                vcq::name(code)
            );
            match is_of_this_side(code) {
                true => self.tell_of(&Error::Os(why)),
                false => tracing::debug!("tofu: {why}"),
            }
        }
        let mut targets = self.targets.write();
        targets.numbers.remove(&target.vcq);
        targets.lost.insert(target.vcq);
        drop(targets);
        for one in self.all() {
            if Arc::ptr_eq(&one.target, target) {
                if !one.is_open() {
                    one.is_refused(Error::PeerDead);
                }
                one.fail();
                self.call(&one);
            }
        }
        for card in self.cards.lock().iter_mut() {
            let of_it = |number: u32| {
                let one = self.find(number);
                one.is_none_or(|one| Arc::ptr_eq(&one.target, target))
            };
            if card.is_some_and(of_it) {
                *card = None;
            }
        }
        // Who waits for what is under way there learns it when its stream ends.
        for lane in self.lanes.iter() {
            drop(lane.forget(target));
        }
        self.told.wake();
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
        self.all().iter().for_each(|one| one.fail());
        let mut conversations = self.conversations.write();
        *conversations = Conversations::default();
    }
}

/// Whether the error says nothing of the peer, which may well live.
fn is_of_this_side(code: i32) -> bool {
    let local = [
        UTOFU_ERR_MRQ_LCL_MEMORY,
        UTOFU_ERR_MRQ_LCL_STADD,
        UTOFU_ERR_MRQ_LCL_LENGTH,
    ];
    (UTOFU_ERR_TCQ_LENGTH..=UTOFU_ERR_TCQ_OTHER).contains(&code) || local.contains(&code)
}

impl Targets {
    fn find(&self, vcq: u64) -> Option<&Arc<Target>> {
        let number = *self.numbers.get(&vcq)?;
        self.all.get(number as usize)
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
            to.vcq,
            (nothing.as_ptr(), nothing.len()),
            to.sink(),
            (0, flags),
            data_of(to),
        )
    }
}

/// What descriptors have that names their target where they fail: all but messages, which have a number of their own.
pub fn data_of(to: &Target) -> usize {
    (to.number as usize) << 2 | 1
}

impl Drop for Net {
    fn drop(&mut self) {
        self.lanes.first().deregister(self.desk_stadd);
    }
}
