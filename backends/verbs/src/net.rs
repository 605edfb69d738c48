//! This process in the network: its connections, and their completions.

mod reading;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use slab::Slab;
use unipgas_core::random::random;
use unipgas_core::rendezvous::JobName;
use unipgas_core::streams::greeting::{SECRET, foreign_address};
use unipgas_core::streams::{Accepted, Departed, EventReceiver, Operands, Stream};
use unipgas_core::{Deadline, Error, Result, host, process};
use unipgas_verbs_sys::*;

use crate::address::VerbsAddress;
use crate::buffers::Sends;
use crate::choice::DevicePort;
use crate::connection::{Connection, ConnectionParts, INLINE, RESERVE};
use crate::counts::ConnectionCounters;
use crate::desk::Acceptor;
use crate::device::{Context, Device};
use crate::native::Nowhere;
use crate::posting::PostedWork;
use crate::queues::{Channel, Cq, Pair, QueuePairParts};
use crate::receive::{Receives, SharedQueue};
use crate::staged::Staging;
use crate::wire::{self, PROTOCOL};

/// Maximum work requests of a connection in flight.
pub const DEPTH: u32 = 128;
/// Range of a peer's credits: fewer with many peers, or with few places in the device.
const PROMISED: std::ops::RangeInclusive<u32> = 2..=128;
/// Approximate sum of the credits of all peers.
const PROMISED_TO_ALL: u32 = 2048;
/// Credits of each of many peers.
const PROMISED_OF_MANY: u32 = 8;
/// Number of peers if it is unknown.
const PEERS: u32 = 8;
/// Maximum places in the shared receive queue.
const RECEIVES: u32 = 1 << 15;
/// Minimum number of processes that there is room for.
const PROCESSES: u32 = 64;
/// Connections that share the first completion queue. Each further queue has twice the room of the previous one.
const FIRST_QUEUE: u32 = 16;
/// Bits of a connection number for its place. Above them is the use count of the place.
const PLACES: u32 = 20;

/// State of the polls of completion queues, for one thread at a time.
struct Reader {
    receives: Receives,
    sends: Vec<Arc<Cq>>,
    /// The channel reports the next completion.
    armed: bool,
    completions: u64,
    found: Vec<ibv_wc>,
    ends: Vec<PostedWork>,
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
    /// Numbers of connections, keyed by queue pair number.
    pairs: HashMap<u32, u32>,
    /// Counters of removed connections.
    gone: ConnectionCounters,
}

/// The network state of this process.
pub(crate) struct VerbsNet {
    // First, because queue pairs use the fields below.
    table: RwLock<Table>,
    /// Ended connections with a close message in flight.
    closing: Mutex<Vec<Arc<Connection>>>,
    /// Ended connections after their close message has completed.
    gone: Mutex<Vec<Arc<Connection>>>,
    /// TCP port for peers.
    pub acceptor: Acceptor,
    reader: Mutex<Reader>,
    receive: Arc<Cq>,
    shared: Arc<SharedQueue>,
    pub sends: Arc<Sends>,
    channel: Arc<Channel>,
    /// Set if the device supports atomic operations.
    pub native: Option<Nowhere>,
    /// Memory for operations.
    pub operands: Arc<Operands>,
    pub device: Arc<Device>,
    pub port: DevicePort,
    /// Reference to itself.
    pub me: Weak<VerbsNet>,
    /// Connections keep it until their queue pair is destroyed.
    pub lives: Arc<()>,
    /// Dead and departed peers.
    pub departed: Departed,
    promised: u32,
    depth: u32,
    /// Maximum inline bytes of a work request.
    pub inline: u32,
    /// The device has failed, or the network is closed.
    dead: AtomicBool,
    looks: AtomicU32,
    /// Number of connections with staged work requests.
    pub staging: Staging,
    /// Numbers of channels.
    pub lanes: Mutex<Slab<()>>,
    /// Peers that know it may connect.
    pub secret: [u8; SECRET],
    /// Address for peers.
    pub address: Vec<u8>,
    pub owner: Arc<EventReceiver>,
    process: u32,
}

fn at_most(wanted: u32, limit: i32) -> u32 {
    wanted.min(limit.max(1) as u32)
}

impl VerbsNet {
    /// Opens the device, and accepts connections. Errors: [`Error::Unreachable`], [`Error::Exhausted`], [`Error::Os`].
    pub fn open(
        (context, port): (Context, DevicePort),
        owner: Arc<EventReceiver>,
    ) -> Result<Arc<Self>> {
        let device = Device::open(context)?;
        let limits = &device.limits;
        let job = JobName::from_env().ok().and_then(|job| job.size());
        let processes = job.unwrap_or(0).max(PROCESSES);
        let peers = job.unwrap_or(PEERS).max(1);
        let wanted = (PROMISED_TO_ALL / peers).clamp(PROMISED_OF_MANY, *PROMISED.end());
        // Places of a connection are a power of two.
        let depth = 1 << at_most(DEPTH, limits.max_qp_wr).ilog2();
        let needed = 2 * processes.saturating_mul(wanted + RESERVE);
        let places = at_most(
            at_most(needed.min(RECEIVES), limits.max_srq_wr),
            limits.max_cqe,
        );
        // Two connections for each peer: both sides may begin one.
        let for_each = (places / (2 * peers)).saturating_sub(RESERVE);
        let promised = for_each.clamp(*PROMISED.start(), wanted);
        let channel = Channel::open(&device)?;
        let shared = SharedQueue::open(&device, places)?;
        let receive = Cq::open(&channel, places)?;
        let ip = port.ip().unwrap_or_else(|| host::own_address().into());
        let secret = random()?;
        // In a container, the port's address may belong to the host only.
        let desk = Acceptor::open(ip).or_else(|_| Acceptor::open(host::own_address().into()))?;
        let native = match limits.atomic_cap {
            IBV_ATOMIC_GLOB | IBV_ATOMIC_HCA => Some(Nowhere::new(&device)?),
            _ => None,
        };
        let address = VerbsAddress {
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
        let mut net = VerbsNet {
            table: RwLock::default(),
            closing: Mutex::default(),
            gone: Mutex::default(),
            acceptor: desk,
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
            promised,
            depth,
            inline: 0,
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

    /// Finds the maximum inline size by attempts, because devices do not report it. Errors: not even a word is possible.
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
        Pair::open(QueuePairParts {
            device: &self.device,
            port: &self.port,
            sends: self.claim()?,
            receives: &self.receive,
            shared: &self.shared,
            depth: self.depth,
            inline,
        })
    }

    /// A completion queue with room for another connection.
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
        // The new queue is not armed.
        reader.armed = false;
        self.owner.wake();
        Ok(new)
    }

    /// This side's end of a connection.
    pub fn own_end(&self, connection: &Connection) -> wire::QpParameters {
        let limits = &self.device.limits;
        let few = |count: i32| count.clamp(1, 128) as u8;
        wire::QpParameters {
            pair: connection.pair.number,
            first: connection.number & 0xff_ffff,
            credits: self.promised,
            // Read again, because the subnet manager may have changed it.
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

    /// Begins a connection. Errors: [`Error::Unreachable`], [`Error::PeerDead`], [`Error::Exhausted`], [`Error::Os`].
    pub fn reach(&self, address: &[u8]) -> Result<Arc<Connection>> {
        let to = VerbsAddress::decode(address)
            .ok_or_else(|| foreign_address(address, PROTOCOL, "verbs"))?;
        if let Some(why) = self.departed.why(&to.secret) {
            return Err(why);
        }
        let new = self.begin(to, true)?;
        if let Err(error) = self.acceptor.connect(&new) {
            self.forget(&new);
            return Err(error);
        }
        Ok(new)
    }

    /// Creates a connection with `with`, which is not open yet.
    pub fn begin(&self, with: VerbsAddress, begun_here: bool) -> Result<Arc<Connection>> {
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
        let new = Arc::new(Connection::new(ConnectionParts {
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

    /// Forgets an ended connection, after its close message has completed.
    pub fn forget(&self, ended: &Connection) {
        let Some(found) = self.find(ended.number) else {
            return;
        };
        if found.queue().has_farewell() {
            // The closed socket also reports the end, and must not overtake the close message.
            let mut closing = self.closing.lock();
            if !closing.iter().any(|one| one.number == found.number) {
                closing.push(found);
            }
            return;
        }
        self.acceptor.forget(ended.number);
        self.remove(&found);
    }

    /// Removes a connection from the table.
    pub fn remove(&self, gone: &Connection) {
        gone.pair.stop();
        // Completions of the queue pair name receive buffers, and are lost with it. So they are read first.
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

    /// The next connection that a peer has begun. Errors: [`Error::Exhausted`]: no descriptor is free for a waiting peer.
    pub fn accept(&self) -> Result<Option<Accepted>> {
        match self.owner.accept() {
            None => self.acceptor.has_room().map(|()| None),
            next => Ok(next),
        }
    }

    /// Reports an event of a connection to the agent.
    pub fn call(&self, connection: &Connection) {
        self.owner.on_stream(connection.begun_here);
    }

    /// Causes a turn if the connection has room, because a caller waits for it.
    pub fn call_if_room(&self, connection: &Connection) {
        if connection.queue().has_room() {
            self.call(connection);
            self.owner.wake();
        }
    }

    /// Ends a connection with a lost peer.
    pub fn lose(&self, connection: &Connection) {
        connection.fail();
        self.call(connection);
    }

    /// Descriptors with events for the progress thread.
    pub fn events(&self) -> Vec<BorrowedFd<'_>> {
        vec![
            self.channel.as_fd(),
            self.acceptor.as_fd(),
            self.device.as_fd(),
        ]
    }

    fn all(&self) -> Vec<Arc<Connection>> {
        let table = self.table.read();
        let all = table.places.iter().filter_map(|at| at.connection.clone());
        all.collect()
    }

    /// Counters so far.
    pub fn counts(&self) -> ConnectionCounters {
        let completions = self.reader.lock().completions;
        let table = self.table.read();
        let there = table.places.iter().filter_map(|at| at.connection.as_ref());
        let of_all: ConnectionCounters = there.map(|one| one.queue().counts()).sum();
        let read = ConnectionCounters {
            completions,
            ..ConnectionCounters::default()
        };
        of_all + table.gone + read
    }

    /// Whether operations or messages may still be in flight. A completion is due for them.
    pub fn is_under_way(&self) -> bool {
        let all = self.all();
        let open = all
            .iter()
            .filter(|one| one.is_open() && !one.state.has_ended());
        // `count` asks each connection; `any` would stop early.
        open.filter(|one| one.is_under_way()).count() > 0
    }

    /// False in the child of a fork, which must not use the network.
    pub fn is_here(&self) -> bool {
        self.process == process::id()
    }

    /// Ends all connections, and informs the peers before the deadline.
    pub fn close(&self, deadline: Deadline) {
        self.all().iter().for_each(|one| one.end());
        while !self.closing.lock().is_empty() && !deadline.expired() {
            self.progress(true);
            std::thread::yield_now();
        }
        // Other owners may keep this value for a while, but get no buffers.
        self.dead.store(true, Ordering::Release);
        let closing = std::mem::take(&mut *self.closing.lock());
        for one in self.all().iter().chain(&closing) {
            one.fail();
            self.remove(one);
        }
        self.reader.lock().receives.give_back();
    }
}

impl Drop for VerbsNet {
    fn drop(&mut self) {
        // Streams of other owners must not use the fields that are dropped now.
        self.all().iter().for_each(|one| one.fail());
        let closing = std::mem::take(self.closing.get_mut());
        closing.iter().for_each(|one| one.pair.stop());
    }
}
