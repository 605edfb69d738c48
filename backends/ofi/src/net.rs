//! This process's part of the fabric: its messages, and what comes of its operations.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytemuck::Zeroable;
use parking_lot::{Mutex, RwLock};
use slab::Slab;
use unipgas_core::driver::Driver;
use unipgas_core::streams::greeting::{ADDRESS, SECRET, padded, random};
use unipgas_core::streams::{Accepted, News, Stream, Ticket};
use unipgas_core::{Deadline, Error, Result};

use crate::address::{self, Address};
use crate::buffers::{Buffers, MESSAGE};
use crate::choice::Info;
use crate::contact::Here;
use crate::conversation::{Conversation, First, Theirs, Whom};
use crate::departed::Departed;
use crate::fabric::{Event, Fabric, Far, failure};
use crate::gathered::{self, Landing};
use crate::lifeline::Lifeline;
use crate::names::Name;
use crate::names::Names;
use crate::operands::Operands;
use crate::operations::{Operations, Sender, What};
use crate::riders::{self, Boarding, Rides};
use crate::wire::{self, Head, Opening, PROTOCOL};
use crate::word::Words;

/// Messages that the provider can take at once, from whomever.
const RECEIVED: usize = 256;
/// Messages that may be on their way from here; their memory is touched when it is first needed.
const SENT: usize = 512;
/// Those of one conversation: who does not take what he is sent must not keep others from being heard.
const SENT_TO_ONE: usize = 32;

/// No more are told that they are refused while so many others have something to say to begin.
const REFUSED: usize = 64;
/// Whoever cannot be told in this time is not.
const REFUSAL: Duration = Duration::from_secs(5);

/// Takes what peers write with a word for this process.
pub trait Told: Send + Sync {
    /// That has been done.
    fn written(&self);
    /// Calls for a turn of the agent.
    fn wake(&self);
    /// Calls for looks at the conversations, from time to time.
    fn watch_silence(&self);
}

/// The part.
pub struct Net {
    // In the order in which they are dropped: nobody uses the memory of what comes later once the endpoint is closed.
    receive: Buffers,
    send: Buffers,
    /// Where peers ask for the ends of what they have written.
    pub landing: Landing,
    /// Those that peers notify by.
    pub words: Arc<Words>,
    /// Memory that operations may be at, where the provider has to know it.
    pub operands: Arc<Operands>,
    /// What the provider has.
    pub fabric: Fabric,
    _give_back: GiveBack,
    /// What it does.
    pub operations: Operations,
    /// Itself.
    pub me: Weak<Net>,
    conversations: RwLock<Slab<Arc<Conversation>>>,
    guests: Mutex<VecDeque<Accepted>>,
    /// Where peers are asked for the ends of what was written there, by their tags.
    pub landings: RwLock<HashMap<u32, Far>>,
    /// Endpoints in the address vector.
    pub names: Names,
    /// Peers that are no more there.
    pub departed: Departed,
    /// Those that have something to say to begin, for which there was no room.
    mute: Mutex<Vec<Arc<Conversation>>>,
    /// Receives that the provider has not taken.
    unposted: Mutex<Vec<usize>>,
    /// There are such ones, or mute ones.
    waits: AtomicBool,
    reading: Mutex<()>,
    /// Conversations that wait for room.
    blocked: AtomicUsize,
    /// An access has found no room, and none has since.
    full: AtomicBool,
    driver: Arc<Driver>,
    /// Something has come by a conversation, or one has ended.
    streams: AtomicBool,
    /// Something has come by one that a peer has begun.
    guests_call: AtomicBool,
    /// A turn is to begin.
    turn_calls: AtomicBool,
    /// Accesses have ended.
    ended: AtomicBool,
    lifeline: Option<Lifeline>,
    /// Who says it may begin a conversation.
    pub secret: [u8; SECRET],
    pub provider: u32,
    /// How peers reach this process.
    pub address: Vec<u8>,
    /// Where that is, for people.
    pub here: Here,
    /// Somebody has been told that lifelines do not answer.
    pub deaf_told: AtomicBool,
    /// Conversations whose [riders](crate::riders::Riders) are to leave soon, each with its peer's endpoint.
    held: Mutex<Vec<Held>>,
    holds: AtomicBool,
    /// How often this has been moved on.
    turns: AtomicU32,
    told: Arc<dyn Told>,
}

/// By whom riders leave, if no message does.
struct Held {
    number: u32,
    under_way: Arc<AtomicUsize>,
    to: Arc<Name>,
}

/// What providers had, tens of megabytes in small pieces, goes back to the system: the allocator keeps it if something above it is in use.
struct GiveBack;

impl Drop for GiveBack {
    fn drop(&mut self) {
        #[cfg(target_env = "gnu")]
        // SAFETY:
        // - any thread may call it at any time; it gives back what nobody has.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

/// Whether it was set; it is not any more. Most are not, and are looked at often.
fn taken(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Acquire) && flag.swap(false, Ordering::AcqRel)
}

/// A number that nobody guesses.
pub fn key() -> Result<u64> {
    Ok(u64::from_ne_bytes(random()?))
}

impl Net {
    /// Opens what `info` describes, and is ready to be spoken to. Errors: [`Error::Unreachable`], [`Error::Os`].
    pub fn open(info: Info, told: Arc<dyn Told>) -> Result<Arc<Self>> {
        let ip = info.address().filter(|ip| !ip.is_unspecified());
        let here = Here {
            provider: info.provider(),
            interface: info.place(),
            others: info.others.clone(),
        };
        let fabric = Fabric::open(info)?;
        let lifeline = match ip.or_else(|| crate::choice::ip(&fabric.name)) {
            Some(ip) if !ip.is_unspecified() => Some(Lifeline::open(ip)?),
            _ => None,
        };
        let provider = address::number(&fabric.traits.provider);
        let secret = random()?;
        let address = Address {
            secret,
            provider,
            lifeline: lifeline.as_ref().map(|lifeline| lifeline.address),
            name: fabric.name.clone(),
        };
        let address = address.encode();
        if address.len() > ADDRESS {
            return Err(Error::Unreachable(format!(
                "the names of libfabric's provider {} have {} bytes",
                fabric.traits.provider,
                fabric.name.len()
            )));
        }
        let (receive, send) = (
            Buffers::new(RECEIVED, &fabric, key()?)?,
            Buffers::new(SENT, &fabric, key()?)?,
        );
        let landing = Landing::new(&fabric, key()?)?;
        let driver = Driver::of_this_process()?;
        let net = Arc::new_cyclic(|me| Net {
            receive,
            send,
            landing,
            words: Arc::default(),
            operands: Arc::default(),
            landings: RwLock::default(),
            fabric,
            _give_back: GiveBack,
            operations: Operations::default(),
            me: me.clone(),
            conversations: RwLock::default(),
            guests: Mutex::default(),
            names: Names::default(),
            departed: Departed::default(),
            mute: Mutex::default(),
            unposted: Mutex::default(),
            waits: AtomicBool::new(false),
            reading: Mutex::new(()),
            blocked: AtomicUsize::new(0),
            full: AtomicBool::new(false),
            driver,
            streams: AtomicBool::new(false),
            guests_call: AtomicBool::new(false),
            turn_calls: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            lifeline,
            secret,
            provider,
            address,
            here,
            deaf_told: AtomicBool::new(false),
            held: Mutex::default(),
            holds: AtomicBool::new(false),
            turns: AtomicU32::new(1),
            told,
        });
        while let Some(buffer) = net.receive.take() {
            net.post(buffer);
        }
        Ok(net)
    }

    /// What the provider calls some memory of this process, where it has to be told.
    pub fn registered(&self) -> *mut c_void {
        self.send.desc()
    }

    /// Where peers see whether this process is there.
    pub fn lifeline(&self) -> Option<&Lifeline> {
        self.lifeline.as_ref()
    }

    /// A conversation waits for room, or no longer. No event tells of that; so the progress thread looks from time to time.
    pub fn blocked(&self, more: bool) {
        match more {
            true => {
                self.blocked.fetch_add(1, Ordering::AcqRel);
                self.driver.more();
            }
            false => {
                self.blocked.fetch_sub(1, Ordering::AcqRel);
                self.driver.fewer(1);
            }
        }
    }

    /// What has come of posting an access.
    pub fn posted(&self, context: usize, result: Result<()>) -> Result<()> {
        self.note_room(result != Err(Error::NotNow));
        if result.is_err()
            && let What::Access(ticket) = self.operations.end(context)
            && ticket.link().stream().watch()
        {
            // Perhaps there will never be room, since nobody is there any more.
            self.told.watch_silence();
        }
        result
    }

    /// What has come of an access of whose end nobody is told.
    pub fn written_untold(&self, result: Result<()>) -> Result<()> {
        self.note_room(result != Err(Error::NotNow));
        result
    }

    fn note_room(&self, room: bool) {
        let full = !room;
        let change = self.full.load(Ordering::Relaxed) != full
            && self.full.swap(full, Ordering::AcqRel) != full;
        match (change, full) {
            (true, true) => self.driver.more(),
            (true, false) => self.driver.fewer(1),
            (false, _) => {}
        }
    }

    /// Whether anything waits that no event tells of.
    pub fn needs_beats(&self) -> bool {
        let waits = [&self.waits, &self.full, &self.holds];
        self.fabric.events().is_none()
            || self.is_blocked()
            || waits.iter().any(|waits| waits.load(Ordering::Acquire))
    }

    /// Whether any conversation waits for room.
    pub fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Acquire) > 0
    }

    /// Begins a conversation. Errors: [`Error::Unreachable`], [`Error::PeerDead`].
    pub fn reach(&self, address: &[u8]) -> Result<Arc<Conversation>> {
        let to = Address::decode(address).ok_or_else(|| {
            let theirs = address::protocol(address).filter(|theirs| *theirs != PROTOCOL);
            Error::Unreachable(match theirs {
                Some(theirs) => format!(
                    "the peer has another release of unipgas, which speaks version {theirs:#x} of the ofi protocol, not {PROTOCOL:#x}: install one release on all hosts"
                ),
                None => "not an address of the ofi backend".into(),
            })
        })?;
        if to.provider != self.provider {
            let (major, minor) = self.fabric.release();
            return Err(Error::Unreachable(format!(
                "the peer uses another provider of libfabric than {}, which libfabric {major}.{minor} has chosen: set UNIPGAS_OFI_PROVIDER for all (tcp;ofi_rxm where releases differ: tcp is not the same in 1.x and 2.x)",
                self.fabric.traits.provider
            )));
        }
        if let Some(why) = self.departed.why(&to.secret) {
            return Err(why);
        }
        let with = Whom::of(self, &to)?;
        let mut opening = Opening::zeroed();
        opening.secret = to.secret;
        opening.len = self.address.len() as u32;
        opening.address[..self.address.len()].copy_from_slice(&self.address);
        let new = self.begin(with, First::Open(Box::new(opening)), None)?;
        self.introduce(new.clone());
        Ok(new)
    }

    fn introduce(&self, new: Arc<Conversation>) {
        if !new.introduce(self) {
            // As when the provider connects first.
            self.blocked(true);
            self.mute.lock().push(new);
            self.waits.store(true, Ordering::Release);
        }
    }

    fn begin(
        &self,
        with: Whom,
        mut first: First,
        theirs: Option<Theirs>,
    ) -> Result<Arc<Conversation>> {
        let cookie = key()?;
        let mut conversations = self.conversations.write();
        let entry = conversations.vacant_entry();
        let number = entry.key() as u32;
        if let First::Open(opening) = &mut first {
            (opening.conversation, opening.cookie) = (number, cookie);
        }
        let identity = (number, cookie);
        let new = Conversation::new(self.me.clone(), identity, with, first, theirs);
        let new = Arc::new(new);
        entry.insert(new.clone());
        Ok(new)
    }

    /// Nothing comes for it any more.
    pub fn forget(&self, ended: &Conversation) {
        // Perhaps it was this one that took nothing. Others say so again.
        self.note_room(true);
        let mut conversations = self.conversations.write();
        let number = ended.number as usize;
        if conversations
            .get(number)
            .is_some_and(|one| one.cookie == ended.cookie)
        {
            conversations.remove(number);
        }
    }

    /// The next one that a peer has begun.
    pub fn accept(&self) -> Option<Accepted> {
        self.guests.lock().pop_front()
    }

    /// Whoever has this tag is lost.
    pub fn lose(&self, tag: u32) {
        for (_, one) in &*self.conversations.read() {
            if one.with.name.tag == tag {
                one.is_given_up();
            }
        }
        self.streams.store(true, Ordering::Release);
        self.guests_call.store(true, Ordering::Release);
    }

    /// The most bytes of a stream in a message.
    pub fn body(&self) -> usize {
        MESSAGE.min(self.fabric.traits.longest) - size_of::<Head>()
    }

    /// Sends a message of conversation `of`. Errors: [`Error::NotNow`], and those of the provider.
    pub fn send(&self, of: &Conversation, head: &Head, body: &[u8]) -> Result<()> {
        let (number, to) = (of.number, &of.with.name);
        let by = (number, &of.under_way, to);
        let head = bytemuck::bytes_of(head);
        let Some(riders) = to.riders.board(self.turn()) else {
            return self.send_parts(by, [head, body, &[]]);
        };
        if riders.bytes().len() + head.len() + body.len() > self.body() {
            // They go ahead by themselves; none come before the message has left, too.
            self.send_parts(by, [riders.bytes(), &[], &[]])?;
            riders.gone();
            return self.send_parts(by, [head, body, &[]]);
        }
        self.send_parts(by, [riders.bytes(), head, body])?;
        riders.gone();
        Ok(())
    }

    fn send_parts(
        &self,
        (number, under_way, to): (u32, &Arc<AtomicUsize>, &Arc<Name>),
        parts: [&[u8]; 3],
    ) -> Result<()> {
        if under_way.load(Ordering::Acquire) >= SENT_TO_ONE {
            return Err(Error::NotNow);
        }
        let buffer = self.send.take().ok_or(Error::NotNow)?;
        let at = self.send.at(buffer);
        let sender = Sender {
            number,
            under_way: under_way.clone(),
            _to: to.clone(),
        };
        under_way.fetch_add(1, Ordering::AcqRel);
        let context = self.operations.begin(What::Send(buffer, sender));
        let mut len = 0;
        for part in parts {
            debug_assert!(len + part.len() <= MESSAGE);
            // SAFETY:
            // - the buffer is this call's, and holds that much.
            unsafe {
                at.wrapping_add(len)
                    .copy_from_nonoverlapping(part.as_ptr(), part.len());
            }
            len += part.len();
        }
        // SAFETY:
        // - the buffer is the provider's until the end of the operation.
        let sent = unsafe {
            self.fabric
                .send(at, len, self.send.desc(), to.number, context)
        };
        if sent.is_err() {
            self.operations.end(context);
            self.send.give_back(buffer);
            under_way.fetch_sub(1, Ordering::AcqRel);
        }
        sent
    }

    /// A piece of a stream may leave with the next message to that process. False: it does not wait.
    pub fn hold(&self, of: &Conversation, head: Head, body: &[u8]) -> bool {
        if self.body() < riders::MOST {
            return false;
        }
        let to = &of.with.name;
        let rides = to.riders.wait(self.turn(), head, body);
        if rides == Rides::First {
            let mut held = self.held.lock();
            held.push(Held {
                number: of.number,
                under_way: of.under_way.clone(),
                to: to.clone(),
            });
            if !self.holds.swap(true, Ordering::AcqRel) {
                // Somebody looks within a beat, also where the program does not.
                self.driver.more_in_time();
            }
        }
        rides != Rides::No
    }

    /// A piece that was not held has left.
    pub fn has_left(&self, of: &Conversation) {
        of.with.name.riders.passed(self.turn());
    }

    /// Which one it is; never 0.
    fn turn(&self) -> u32 {
        self.turns.load(Ordering::Relaxed) | 1
    }

    /// Those who have waited long enough leave. `late`: all.
    fn let_leave(&self, late: bool) {
        // Two threads at once may count as one.
        let turns = self.turns.load(Ordering::Relaxed).wrapping_add(1);
        self.turns.store(turns, Ordering::Relaxed);
        if !self.holds.load(Ordering::Acquire) {
            return;
        }
        let turn = self.turn();
        let Some(mut held) = self.held.try_lock() else {
            return;
        };
        held.retain(|one| {
            let Some(riders) = one.to.riders.leave(turn, late) else {
                return one.to.riders.any();
            };
            self.leaves(one, riders) == Err(Error::NotNow)
        });
        if held.is_empty() && self.holds.swap(false, Ordering::AcqRel) {
            self.driver.fewer(1);
        }
    }

    fn leaves(&self, one: &Held, riders: Boarding<'_>) -> Result<()> {
        let by = (one.number, &one.under_way, &one.to);
        let sent = self.send_parts(by, [riders.bytes(), &[], &[]]);
        if sent != Err(Error::NotNow) {
            riders.gone();
        }
        if let Err(error) = &sent
            && *error != Error::NotNow
        {
            tracing::debug!("ofi: answers cannot be sent: {error}");
            self.lose(one.to.tag);
        }
        sent
    }

    /// All conversations end, and peers learn of it, unless they take nothing for so long.
    pub fn close(&self, deadline: Deadline) {
        let all: Vec<_> = {
            let conversations = self.conversations.read();
            conversations.iter().map(|(_, one)| one.clone()).collect()
        };
        all.iter().for_each(|one| one.end());
        while !self.send.is_whole() && !deadline.expired() {
            self.progress(true, true);
            std::thread::yield_now();
        }
    }

    fn post(&self, buffer: usize) {
        let context = self.operations.begin(What::Receive(buffer));
        // SAFETY:
        // - the buffer is the provider's until the end of the operation.
        let posted = unsafe {
            self.fabric.receive(
                self.receive.at(buffer),
                MESSAGE,
                self.receive.desc(),
                context,
            )
        };
        if posted.is_err() {
            self.operations.end(context);
            self.is_unposted(buffer);
        }
    }

    fn is_unposted(&self, buffer: usize) {
        self.unposted.lock().push(buffer);
        self.waits.store(true, Ordering::Release);
    }

    /// Takes what has happened, unless another thread does. `turn`: the agent looks at all conversations afterwards; `alone`: the program does not look at the
    /// network, so that what is held back leaves.
    pub fn progress(&self, turn: bool, alone: bool) -> News {
        self.let_leave(alone);
        if let Some(_reading) = self.reading.try_lock() {
            while self.fabric.read(|event| self.take(event)) {}
            self.try_again();
        }
        if taken(&self.turn_calls) && !turn {
            self.told.wake();
        }
        News {
            guests: taken(&self.guests_call),
            streams: taken(&self.streams),
            // Where there was no room there may be now.
            ended: taken(&self.ended) || self.full.load(Ordering::Relaxed),
        }
    }

    /// What there was no room for.
    fn try_again(&self) {
        if !taken(&self.waits) {
            return;
        }
        let unposted = std::mem::take(&mut *self.unposted.lock());
        unposted.into_iter().for_each(|buffer| self.post(buffer));
        let mute = std::mem::take(&mut *self.mute.lock());
        for one in mute {
            match one.introduce(self) {
                true => self.blocked(false),
                false => {
                    self.mute.lock().push(one);
                    self.waits.store(true, Ordering::Release);
                }
            }
        }
    }

    fn take(&self, event: Event) {
        match event {
            Event::Written { data, context } => {
                if context != 0
                    && let What::Receive(buffer) = self.operations.end(context)
                {
                    self.post(buffer);
                }
                self.words.take(data);
                self.told.written();
            }
            Event::Ended { context: 0, .. } | Event::Failed { context: 0, .. } => {}
            Event::Failed { context, .. } if let Some(tag) = gathered::owner(context) => {
                self.lose(tag);
            }
            Event::Ended { context, len } => match self.operations.end(context) {
                What::Receive(buffer) => {
                    self.hear(buffer, len);
                    self.post(buffer);
                }
                What::Send(buffer, sender) => {
                    self.send.give_back(buffer);
                    sender.under_way.fetch_sub(1, Ordering::AcqRel);
                    if self.is_blocked() {
                        self.streams.store(true, Ordering::Release);
                        self.guests_call.store(true, Ordering::Release);
                    }
                }
                What::Access(ticket) => {
                    ticket.end(Ok(()));
                    self.ended.store(true, Ordering::Release);
                }
                What::Free => {}
            },
            Event::Failed { context, error } => match self.operations.end(context) {
                // As when the endpoint closes.
                What::Receive(buffer) => self.is_unposted(buffer),
                What::Send(buffer, sender) => {
                    self.send.give_back(buffer);
                    sender.under_way.fetch_sub(1, Ordering::AcqRel);
                    let conversations = self.conversations.read();
                    let of = conversations.get(sender.number as usize);
                    let of = of.filter(|of| Arc::ptr_eq(&of.under_way, &sender.under_way));
                    let with = of.map(|of| of.with.name.tag);
                    drop(conversations);
                    if let Some(with) = with {
                        self.lose(with);
                    }
                }
                What::Access(ticket) => self.fail(ticket, failure(error)),
                What::Free => {}
            },
        }
    }

    fn fail(&self, ticket: Ticket, error: Error) {
        if error == Error::PeerDead {
            // The agent learns that the stream has ended, and then all that is under way there ends.
            ticket.link().stream().end();
            self.streams.store(true, Ordering::Release);
            self.guests_call.store(true, Ordering::Release);
        } else {
            ticket.end(Err(error));
            self.ended.store(true, Ordering::Release);
        }
    }

    fn hear(&self, buffer: usize, len: usize) {
        // SAFETY:
        // - the provider has given the buffer back, with so many bytes in it.
        let message =
            unsafe { std::slice::from_raw_parts(self.receive.at(buffer), len.min(MESSAGE)) };
        if self.understand(message).is_none() {
            tracing::debug!("ofi: a message that no peer sends is ignored");
        }
    }

    fn understand(&self, message: &[u8]) -> Option<()> {
        let (head, body) = wire::split::<Head>(message)?;
        if head.kind == wire::OPEN {
            return self.greet(body);
        }
        let one = {
            let conversations = self.conversations.read();
            conversations.get(head.conversation as usize)?.clone()
        };
        if one.cookie != head.cookie {
            return None;
        }
        one.hear();
        let mut next = &[][..];
        match head.kind {
            wire::ACCEPT => {
                let (accepted, _) = wire::split::<wire::Accepted>(body)?;
                one.accept(Theirs {
                    conversation: accepted.conversation,
                    cookie: accepted.cookie,
                });
            }
            wire::BYTES => one.take(body),
            wire::ALONG => {
                let (piece, rest) = wire::ride(body)?;
                one.take(piece);
                next = rest;
            }
            wire::CLOSE => one.fail(),
            wire::ASK => return one.answer(self),
            wire::HERE => return Some(()),
            wire::REFUSE if one.is_begun_here() => one.is_refused(),
            _ => return None,
        }
        let call = if one.is_begun_here() {
            &self.streams
        } else {
            &self.guests_call
        };
        call.store(true, Ordering::Release);
        match next.is_empty() {
            true => Some(()),
            false => self.understand(next),
        }
    }

    /// Who does not know the secret is told so, unless many others are.
    fn refuse(&self, with: Whom, theirs: Theirs) -> Option<()> {
        if self.mute.lock().len() >= REFUSED {
            return None;
        }
        tracing::warn!("ofi: a process that does not know this one's secret is refused");
        let until = Deadline::after(REFUSAL);
        let nobody = (u32::MAX, key().ok()?);
        let me = self.me.clone();
        let new = Conversation::new(me, nobody, with, First::Refuse(until), Some(theirs));
        self.introduce(Arc::new(new));
        Some(())
    }

    /// Somebody begins a conversation.
    fn greet(&self, body: &[u8]) -> Option<()> {
        let (opening, _) = wire::split::<Opening>(body)?;
        let address = opening.address.get(..opening.len as usize)?;
        let from = Address::decode(address)?;
        let with = Whom::of(self, &from).ok()?;
        let theirs = Theirs {
            conversation: opening.conversation,
            cookie: opening.cookie,
        };
        if opening.secret != self.secret {
            return self.refuse(with, theirs);
        }
        let new = self.begin(with, First::Accept, Some(theirs)).ok()?;
        self.introduce(new.clone());
        self.guests.lock().push_back(Accepted {
            stream: new,
            known: Some(padded(address)),
        });
        self.turn_calls.store(true, Ordering::Release);
        Some(())
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for _ in std::mem::take(self.mute.get_mut()) {
            self.blocked(false);
        }
        self.note_room(true);
        if *self.holds.get_mut() {
            self.driver.fewer(1);
        }
        // What comes while it closes its connections crashes ofi_rxm of 1.17: it puts the buffers back for a connection that is gone.
        while self.fabric.read(drop) {}
        self.fabric.stop();
    }
}
