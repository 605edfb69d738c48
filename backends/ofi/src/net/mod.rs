//! This process's part of the fabric: its messages, and what comes of its operations.

mod messages;
mod progress;

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytemuck::Zeroable;
use parking_lot::{Mutex, RwLock};
use slab::Slab;
use unipgas_core::driver::Driver;
use unipgas_core::streams::greeting::{ADDRESS, SECRET, random};
use unipgas_core::streams::{Accepted, Departed, Operands, Owner, Stream};
use unipgas_core::{Deadline, Error, Result};

use crate::address::{self, Address};
use crate::buffers::Buffers;
use crate::choice::Info;
use crate::contact::Here;
use crate::conversation::{Conversation, First, Theirs, Whom};
use crate::fabric::{Fabric, Far};
use crate::gathered::Landing;
use crate::lifeline::Lifeline;
use crate::names::{Name, Names};
use crate::operations::Operations;
use crate::wire::{Opening, PROTOCOL};
use crate::word::Words;

/// Messages that the provider can take at once, from whomever.
const RECEIVED: usize = 256;
/// Messages that may be on their way from here; their memory is touched when it is first needed.
const SENT: usize = 512;

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
    owner: Arc<Owner>,
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

/// A number that nobody guesses.
pub fn key() -> Result<u64> {
    Ok(u64::from_ne_bytes(random()?))
}

impl Net {
    /// Opens what `info` describes, and is ready to be spoken to. Errors: [`Error::Unreachable`], [`Error::Os`].
    pub fn open(info: Info, owner: Arc<Owner>) -> Result<Arc<Self>> {
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
            owner,
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
