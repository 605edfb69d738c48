//! The messages and completions of this process.

mod messages;
mod progress;

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytemuck::Zeroable;
use parking_lot::{Mutex, RwLock};
use slab::Slab;
use unipgas_core::driver::Driver;
use unipgas_core::random::random;
use unipgas_core::streams::greeting::{ADDRESS, SECRET, foreign_address};
use unipgas_core::streams::{Departed, EventReceiver, Operands, Stream};
use unipgas_core::{Deadline, Error, Result};

use crate::address::{self, OfiAddress};
use crate::buffers::Buffers;
use crate::choice::ProviderInfo;
use crate::confirm_target::ConfirmTarget;
use crate::contact::Here;
use crate::conversation::{Conversation, First, Theirs, Whom};
use crate::fabric::{Fabric, RemoteLocation};
use crate::liveness_listener::LivenessListener;
use crate::names::{AvEntry, AvTable};
use crate::operations::Operations;
use crate::wire::{OpenRequest, PROTOCOL};
use crate::word::WordNumbers;

/// Receives that are posted at once, for all peers.
const RECEIVED: usize = 256;
/// Maximum number of messages in flight. The kernel provides their memory on first use.
const SENT: usize = 512;

/// The network of this process.
pub(crate) struct OfiNet {
    // Fields are dropped in this order: registrations before `fabric`. `drop` closes the endpoint first, so the provider no longer uses memory of
    // operations.
    receive: Buffers,
    send: Buffers,
    /// Target of the signaled writes by which peers confirm unsignaled ones.
    pub landing: ConfirmTarget,
    /// Words that peers notify.
    pub words: Arc<WordNumbers>,
    /// Registered local memory, if the provider needs registered operands.
    pub operands: Arc<Operands>,
    /// The libfabric objects.
    pub fabric: Fabric,
    _give_back: GiveBack,
    /// Operations in flight.
    pub operations: Operations,
    /// This object.
    pub me: Weak<OfiNet>,
    conversations: RwLock<Slab<Arc<Conversation>>>,
    /// Landings of peers, by tag.
    pub landings: RwLock<HashMap<u32, RemoteLocation>>,
    /// Endpoints in the address vector.
    pub names: AvTable,
    /// Peers that have departed.
    pub departed: Departed,
    /// Conversations that wait for room for their first message.
    mute: Mutex<Vec<Arc<Conversation>>>,
    /// Receive buffers that the provider has refused.
    unposted: Mutex<Vec<usize>>,
    /// `unposted` or `mute` may have entries.
    waits: AtomicBool,
    reading: Mutex<()>,
    /// Number of conversations that wait for room.
    blocked: AtomicUsize,
    /// The last access found no room.
    full: AtomicBool,
    driver: Arc<Driver>,
    liveness: Option<LivenessListener>,
    /// Secret that a peer needs to begin a conversation.
    pub secret: [u8; SECRET],
    pub provider: u32,
    /// Address of this process, for peers.
    pub address: Vec<u8>,
    /// Description of the network, for error texts.
    pub here: Here,
    /// The user has been warned that a lifeline does not answer.
    pub deaf_told: AtomicBool,
    /// Conversations with [held-back pieces](crate::piggyback::Piggyback), one per endpoint.
    held: Mutex<Vec<Held>>,
    holds: AtomicBool,
    /// Rounds of progress.
    turns: AtomicU32,
    pub owner: Arc<EventReceiver>,
}

/// The conversation that sends the held-back pieces of an endpoint.
struct Held {
    number: u32,
    under_way: Arc<AtomicUsize>,
    to: Arc<AvEntry>,
}

/// Returns freed memory of the provider to the system: tens of megabytes in small pieces. The allocator keeps it while memory above it is in use.
struct GiveBack;

impl Drop for GiveBack {
    fn drop(&mut self) {
        #[cfg(target_env = "gnu")]
        // SAFETY:
        // - any thread may call it at any time. It returns only free memory.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

/// A random number that peers cannot guess.
pub fn key() -> Result<u64> {
    Ok(u64::from_ne_bytes(random()?))
}

impl OfiNet {
    /// Opens the objects of `info`, and posts receives. Errors: [`Error::Unreachable`], [`Error::Os`], [`Error::Exhausted`].
    pub fn open(info: ProviderInfo, owner: Arc<EventReceiver>) -> Result<Arc<Self>> {
        let ip = info.address().filter(|ip| !ip.is_unspecified());
        let here = Here {
            provider: info.provider(),
            interface: info.place(),
            others: info.others.clone(),
        };
        let fabric = Fabric::open(info)?;
        let lifeline = match ip.or_else(|| crate::choice::ip(&fabric.name)) {
            Some(ip) if !ip.is_unspecified() => Some(LivenessListener::open(ip)?),
            _ => None,
        };
        let provider = address::number(&fabric.traits.provider);
        let secret = random()?;
        let address = OfiAddress {
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
        let landing = ConfirmTarget::new(&fabric, key()?)?;
        let driver = Driver::of_this_process()?;
        let net = Arc::new_cyclic(|me| OfiNet {
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
            names: AvTable::default(),
            departed: Departed::default(),
            mute: Mutex::default(),
            unposted: Mutex::default(),
            waits: AtomicBool::new(false),
            reading: Mutex::new(()),
            blocked: AtomicUsize::new(0),
            full: AtomicBool::new(false),
            driver,
            liveness: lifeline,
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
        if net.fabric.events().is_none() {
            // The progress thread takes turns without events.
            net.driver.more();
        }
        Ok(net)
    }

    /// Descriptor of some registered memory, for operands without bytes.
    pub fn registered(&self) -> *mut c_void {
        self.send.desc()
    }

    /// The port that shows peers whether this process lives.
    pub fn lifeline(&self) -> Option<&LivenessListener> {
        self.liveness.as_ref()
    }

    /// Begins a conversation. Errors: [`Error::Unreachable`], [`Error::PeerDead`], [`Error::Os`].
    pub fn reach(&self, address: &[u8]) -> Result<Arc<Conversation>> {
        let to =
            OfiAddress::decode(address).ok_or_else(|| foreign_address(address, PROTOCOL, "ofi"))?;
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
        let mut opening = OpenRequest::zeroed();
        opening.secret = to.secret;
        opening.len = self.address.len() as u32;
        opening.address[..self.address.len()].copy_from_slice(&self.address);
        let new = self.begin(with, First::Open(Box::new(opening)), None)?;
        self.introduce(new.clone());
        Ok(new)
    }

    fn introduce(&self, new: Arc<Conversation>) {
        if !new.introduce(self) {
            // The provider may connect first, for example.
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

    /// Removes an ended conversation: its messages are ignored.
    pub fn forget(&self, ended: &Conversation) {
        // This peer may have caused the lack of room. Otherwise the next access notes it again.
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

    /// The provider does not reach the endpoint with this tag: its conversations end.
    pub fn lose(&self, tag: u32) {
        for (_, one) in &*self.conversations.read() {
            if one.with.name.tag == tag {
                one.on_unreachable();
            }
        }
        self.owner.on_all_streams();
    }

    /// Ends all conversations. Waits until the messages to peers have left, or until the deadline.
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

impl Drop for OfiNet {
    fn drop(&mut self) {
        for _ in std::mem::take(self.mute.get_mut()) {
            self.blocked(false);
        }
        self.note_room(true);
        if *self.holds.get_mut() {
            self.driver.fewer(1);
        }
        if self.fabric.events().is_none() {
            self.driver.fewer(1);
        }
        // Messages that arrive while ofi_rxm 1.17 closes its connections make it crash: it puts their buffers back for a freed connection.
        while self.fabric.read(drop) {}
        self.fabric.stop();
    }
}
