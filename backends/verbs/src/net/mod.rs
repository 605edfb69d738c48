//! This process's part of the network: its connections, and what comes of what they have posted.

mod reading;

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use slab::Slab;
use unipgas_core::rendezvous::JobName;
use unipgas_core::streams::greeting::{SECRET, random};
use unipgas_core::streams::{Accepted, Departed, Operands, Owner, Stream};
use unipgas_core::{Deadline, Error, Result, host, process};
use unipgas_verbs_sys::*;

use crate::address::{self, Address};
use crate::buffers::Sends;
use crate::choice::Port;
use crate::connection::{Connection, INLINE, New, RESERVE};
use crate::counts::Counts;
use crate::desk::Desk;
use crate::device::{Context, Device};
use crate::native::Nowhere;
use crate::posting::Ends;
use crate::queues::{Channel, Cq, Pair, Parts};
use crate::receive::{Receives, SharedQueue};
use crate::staged::Staging;
use crate::wire::{self, PROTOCOL};

/// Work requests of a connection that may be under way.
pub const DEPTH: u32 = 128;
/// Messages that a peer may send before it is told that they have been read: so many, or fewer where there are many peers, or the device has few places.
const PROMISED: std::ops::RangeInclusive<u32> = 2..=128;
/// Of all peers together, roughly.
const PROMISED_TO_ALL: u32 = 2048;
/// What is promised to each of many peers.
const PROMISED_OF_MANY: u32 = 8;
/// Of a process that does not know how many there are.
const PEERS: u32 = 8;
/// The most places in the shared receive queue.
const RECEIVES: u32 = 1 << 15;
/// Processes for which there is room at least.
const PROCESSES: u32 = 64;
/// Connections whose work requests end in the first completion queue; each further one has room for twice as many.
const FIRST_QUEUE: u32 = 16;
/// A number of a connection is a place, and above it how often that was used.
const PLACES: u32 = 20;

/// What completion queues tell is taken by one thread at a time.
struct Reader {
    receives: Receives,
    sends: Vec<Arc<Cq>>,
    /// The channel tells of what comes next.
    armed: bool,
    completions: u64,
    found: Vec<ibv_wc>,
    ends: Vec<Ends>,
}

#[derive(Default)]
struct Place {
    used: u32,
    connection: Option<Arc<Connection>>,
}

#[derive(Default)]
struct Table {
    places: Vec<Place>,
    free: Vec<u32>,
    /// Numbers of connections, by those of their queue pairs.
    pairs: HashMap<u32, u32>,
    /// What those that have gone have done.
    gone: Counts,
}

/// The part.
pub struct Net {
    // Queue pairs go before what they use.
    table: RwLock<Table>,
    /// Those that have ended, and say so.
    closing: Mutex<Vec<Arc<Connection>>>,
    /// Those that have done so.
    gone: Mutex<Vec<Arc<Connection>>>,
    /// Where others connect.
    pub desk: Desk,
    reader: Mutex<Reader>,
    receive: Arc<Cq>,
    shared: Arc<SharedQueue>,
    pub sends: Arc<Sends>,
    channel: Arc<Channel>,
    /// Where the device carries out atomic operations.
    pub native: Option<Nowhere>,
    /// Memory that operations may be at.
    pub operands: Arc<Operands>,
    pub device: Arc<Device>,
    pub port: Port,
    /// Itself.
    pub me: Weak<Net>,
    /// Every connection has it until its queue pair has gone.
    pub lives: Arc<()>,
    /// Peers that are no more there.
    pub departed: Departed,
    guests: Mutex<VecDeque<Accepted>>,
    promised: u32,
    depth: u32,
    /// Bytes that a work request takes along.
    pub inline: u32,
    /// Something has come by a connection, or one has ended.
    streams: AtomicBool,
    /// Something has come by one that a peer has begun.
    guests_call: AtomicBool,
    /// A turn is to begin.
    turn_calls: AtomicBool,
    /// Accesses have ended.
    ended: AtomicBool,
    /// The device works no more.
    dead: AtomicBool,
    looks: AtomicU32,
    /// Connections on which something waits for more.
    pub staging: Staging,
    /// Numbers of channels.
    pub lanes: Mutex<Slab<()>>,
    /// Who says it may connect.
    pub secret: [u8; SECRET],
    /// How peers reach this process.
    pub address: Vec<u8>,
    owner: Arc<Owner>,
    process: u32,
}

fn at_most(wanted: u32, limit: i32) -> u32 {
    wanted.min(limit.max(1) as u32)
}

impl Net {
    /// Opens what was chosen, and is ready to be connected to. Errors: [`Error::Unreachable`], [`Error::Os`].
    pub fn open((context, port): (Context, Port), owner: Arc<Owner>) -> Result<Arc<Self>> {
        let device = Device::open(context)?;
        let limits = &device.limits;
        let job = JobName::from_env().ok().and_then(|job| job.size());
        let processes = job.unwrap_or(0).max(PROCESSES);
        let peers = job.unwrap_or(PEERS).max(1);
        let wanted = (PROMISED_TO_ALL / peers).clamp(PROMISED_OF_MANY, *PROMISED.end());
        let depth = at_most(DEPTH, limits.max_qp_wr);
        let needed = 2 * processes.saturating_mul(wanted + RESERVE);
        let places = at_most(
            at_most(needed.min(RECEIVES), limits.max_srq_wr),
            limits.max_cqe,
        );
        // Each begins a connection, and this process begins one to each.
        let for_each = (places / (2 * peers)).saturating_sub(RESERVE);
        let promised = for_each.clamp(*PROMISED.start(), wanted);
        let channel = Channel::open(&device)?;
        let shared = SharedQueue::open(&device, places)?;
        let receive = Cq::open(&channel, places)?;
        let ip = port.ip().unwrap_or_else(|| host::own_address().into());
        let secret = random()?;
        // In a container the port's address may be the host's.
        let desk = Desk::open(ip).or_else(|_| Desk::open(host::own_address().into()))?;
        let native = match limits.atomic_cap {
            IBV_ATOMIC_GLOB | IBV_ATOMIC_HCA => Some(Nowhere::new(&device)?),
            _ => None,
        };
        let address = Address {
            secret,
            door: desk.address,
        };
        let reader = Reader {
            receives: Receives::new(shared.clone(), places),
            sends: Vec::new(),
            armed: false,
            completions: 0,
            found: Vec::new(),
            ends: Vec::new(),
        };
        let mut net = Net {
            table: RwLock::default(),
            closing: Mutex::default(),
            gone: Mutex::default(),
            desk,
            reader: Mutex::new(reader),
            receive,
            shared,
            sends: Arc::new(Sends::new(&device)),
            channel,
            native,
            operands: Arc::default(),
            port,
            me: Weak::new(),
            lives: Arc::default(),
            departed: Departed::default(),
            guests: Mutex::default(),
            promised,
            depth,
            inline: 0,
            streams: AtomicBool::new(false),
            guests_call: AtomicBool::new(false),
            turn_calls: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            looks: AtomicU32::new(0),
            staging: Staging::default(),
            lanes: Mutex::default(),
            secret,
            address: address.encode(),
            owner,
            device,
            process: process::id(),
        };
        net.inline = net.find_inline()?;
        Ok(Arc::new_cyclic(|me| {
            net.me = me.clone();
            crate::counts::count(me);
            net
        }))
    }

    /// No device says how much its queue pairs take along; so one is made. Errors: none takes a word.
    fn find_inline(&self) -> Result<u32> {
        let mut wanted = INLINE as u32;
        loop {
            match self.pair(wanted) {
                Ok(_) => return Ok(wanted),
                Err(error) if wanted < 2 * size_of::<u32>() as u32 => return Err(error),
                Err(error) => {
                    tracing::debug!("verbs: no queue pair takes {wanted} bytes along: {error}");
                    wanted /= 2;
                }
            }
        }
    }

    fn pair(&self, inline: u32) -> Result<Pair> {
        Pair::open(Parts {
            device: &self.device,
            port: &self.port,
            sends: self.claim()?,
            receives: &self.receive,
            shared: &self.shared,
            depth: self.depth,
            inline,
        })
    }

    /// A completion queue with room for the work requests of another connection.
    fn claim(&self) -> Result<Arc<Cq>> {
        let reader = &mut *self.reader.lock();
        let all = &mut reader.sends;
        if let Some(cq) = all.iter().find(|cq| cq.claim(self.depth)) {
            return Ok(cq.clone());
        }
        let wanted = (self.depth * FIRST_QUEUE) << all.len().min(8);
        let room = at_most(wanted, self.device.limits.max_cqe).max(self.depth);
        let new = Cq::open(&self.channel, room)?;
        new.claim(self.depth);
        all.push(new.clone());
        // The channel does not tell of this one yet.
        reader.armed = false;
        self.owner.wake();
        Ok(new)
    }

    /// This process's end of a connection.
    pub fn own_end(&self, connection: &Connection) -> wire::Ends {
        let limits = &self.device.limits;
        let few = |count: i32| count.clamp(1, 128) as u8;
        wire::Ends {
            pair: connection.pair.number,
            first: connection.number & 0xff_ffff,
            credits: self.promised,
            // The subnet's manager may have given it another one.
            lid: self
                .device
                .context
                .port(self.port.number)
                .map_or(0, |port| port.lid),
            mtu: self.port.mtu as u8,
            ethernet: self.port.ethernet.into(),
            reads: few(limits.max_qp_init_rd_atom),
            serves: few(limits.max_qp_rd_atom),
            pad: [0; 2],
            gid: self.port.gid,
        }
    }

    /// Begins a connection. Errors: [`Error::Unreachable`], [`Error::PeerDead`], [`Error::Os`].
    pub fn reach(&self, address: &[u8]) -> Result<Arc<Connection>> {
        let to = Address::decode(address).ok_or_else(|| {
            let theirs = address::protocol(address).filter(|theirs| *theirs != PROTOCOL);
            Error::Unreachable(match theirs {
                Some(theirs) => format!(
                    "the peer has another release of unipgas, which speaks version {theirs:#x} of the verbs protocol, not {PROTOCOL:#x}: install one release on all hosts"
                ),
                None => "not an address of the verbs backend".into(),
            })
        })?;
        if let Some(why) = self.departed.why(&to.secret) {
            return Err(why);
        }
        let new = self.begin(to, true)?;
        if let Err(error) = self.desk.knock(&new) {
            self.forget(&new);
            return Err(error);
        }
        Ok(new)
    }

    /// A connection with `with`, which neither side can use yet.
    pub fn begin(&self, with: Address, begun_here: bool) -> Result<Arc<Connection>> {
        if self.dead.load(Ordering::Acquire) {
            return Err(Error::Unreachable(format!(
                "the device {} has failed",
                self.device.context.name
            )));
        }
        let pair = self.pair(self.inline)?;
        self.reader.lock().receives.more(self.promised + RESERVE)?;
        let mut table = self.table.write();
        let place = table.free.pop().unwrap_or_else(|| {
            table.places.push(Place::default());
            table.places.len() as u32 - 1
        });
        let at = &mut table.places[place as usize];
        at.used = at.used.wrapping_add(1);
        let number = at.used << PLACES | place;
        let new = Arc::new(Connection::new(New {
            net: self.me.clone(),
            number,
            with,
            begun_here,
            promised: self.promised,
            inline: self.inline,
            depth: self.depth,
            pair,
            lives: self.lives.clone(),
            staging: self.staging.clone(),
        }));
        at.connection = Some(new.clone());
        table.pairs.insert(new.pair.number, number);
        Ok(new)
    }

    /// The connection with this number.
    pub fn find(&self, number: u32) -> Option<Arc<Connection>> {
        let table = self.table.read();
        let place = table.places.get((number & ((1 << PLACES) - 1)) as usize)?;
        let found = place.connection.as_ref()?;
        (found.number == number).then(|| found.clone())
    }

    /// It has ended here: when the peer has been told, it goes.
    pub fn forget(&self, ended: &Connection) {
        let Some(found) = self.find(ended.number) else {
            return;
        };
        if found.queue().has_farewell() {
            // The socket tells the peer, too, and must not be faster.
            let mut closing = self.closing.lock();
            if !closing.iter().any(|one| one.number == found.number) {
                closing.push(found);
            }
            return;
        }
        self.desk.forget(ended.number);
        self.remove(&found);
    }

    /// It is nobody's any more.
    pub fn remove(&self, gone: &Connection) {
        gone.pair.stop();
        // What has come by it names buffers. Nobody would give them back once the queue pair is gone, and with it what it has completed.
        let mut reader = self.reader.lock();
        while self.read(&mut reader) {}
        drop(reader);
        let mut table = self.table.write();
        let place = gone.number & ((1 << PLACES) - 1);
        let at = &mut table.places[place as usize];
        if at
            .connection
            .as_ref()
            .is_none_or(|one| one.number != gone.number)
        {
            return;
        }
        let connection = at.connection.take();
        table.gone = table.gone + gone.queue().counts();
        table.free.push(place);
        table.pairs.remove(&gone.pair.number);
        drop(table);
        self.reader.lock().receives.fewer(self.promised + RESERVE);
        drop(connection);
    }

    /// The next one that a peer has begun. Errors: [`Error::Exhausted`]: there is no room for who has come.
    pub fn accept(&self) -> Result<Option<Accepted>> {
        let next = self.guests.lock().pop_front();
        match next {
            None => self.desk.has_room().map(|()| None),
            next => Ok(next),
        }
    }

    /// A peer has begun this one.
    pub fn is_accepted(&self, accepted: Accepted) {
        self.guests.lock().push_back(accepted);
        self.turn_calls.store(true, Ordering::Release);
    }

    /// Something has happened to it that the agent looks at.
    pub fn call(&self, connection: &Connection) {
        let call = match connection.begun_here {
            true => &self.streams,
            false => &self.guests_call,
        };
        call.store(true, Ordering::Release);
    }

    /// It waits for room; perhaps there is some.
    pub fn has_room(&self, connection: &Connection) {
        if connection.queue().has_room() {
            self.call(connection);
            self.owner.wake();
        }
    }

    /// The peer is not there any more.
    pub fn lose(&self, connection: &Connection) {
        connection.fail();
        self.call(connection);
    }

    /// Descriptors that tell when something is to be done.
    pub fn events(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.channel.as_fd(), self.desk.as_fd(), self.device.as_fd()]
    }

    fn all(&self) -> Vec<Arc<Connection>> {
        let table = self.table.read();
        let all = table.places.iter().filter_map(|at| at.connection.clone());
        all.collect()
    }

    /// What has been done until now.
    pub fn counts(&self) -> Counts {
        let completions = self.reader.lock().completions;
        let table = self.table.read();
        let there = table.places.iter().filter_map(|at| at.connection.as_ref());
        let of_all: Counts = there.map(|one| one.queue().counts()).sum();
        let read = Counts {
            completions,
            ..Counts::default()
        };
        of_all + table.gone + read
    }

    /// Whether anything that has been posted may not have reached its peer yet. The device tells when it has.
    pub fn is_under_way(&self) -> bool {
        let all = self.all();
        let open = all.iter().filter(|one| one.is_open() && !one.has_ended());
        // Each is asked.
        open.filter(|one| one.is_under_way()).count() > 0
    }

    /// False in the child of a fork, to which nothing of it belongs.
    pub fn is_here(&self) -> bool {
        self.process == process::id()
    }

    /// All connections end, and peers learn of it, unless they take nothing for so long.
    pub fn close(&self, deadline: Deadline) {
        self.all().iter().for_each(|one| one.end());
        while !self.closing.lock().is_empty() && !deadline.expired() {
            self.progress(true);
            std::thread::yield_now();
        }
        // Others may keep this for a while; they get no buffers.
        self.dead.store(true, Ordering::Release);
        let closing = std::mem::take(&mut *self.closing.lock());
        for one in self.all().iter().chain(&closing) {
            one.fail();
            self.remove(one);
        }
        self.reader.lock().receives.give_back();
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // Streams that are kept by others must not use what goes now.
        self.all().iter().for_each(|one| one.fail());
        let closing = std::mem::take(self.closing.get_mut());
        closing.iter().for_each(|one| one.pair.stop());
    }
}
