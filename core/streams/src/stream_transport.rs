//! The transport of a backend over streams: the part that all backends share.

use std::collections::VecDeque;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::issue::Requests;
use super::link::Link;
use super::network::{Accepted, Network, ProgressEvents};
use super::registration::{OwnPart, Registration, import};
use super::stream_node::StreamNode;
use unipgas_base::atomic::ElementLocks;
use unipgas_base::bell::Bell;
use unipgas_base::driver::{Driven, Driver, Waits};
use unipgas_base::{Deadline, Result, Rights, user_memory};
use unipgas_engine::bundle::Tag;
use unipgas_engine::circuit::GateNetwork;
use unipgas_engine::region::{Memory, RemoteRegion};
use unipgas_engine::transport::{Capabilities, Channel, Life, Limits, Peer, Transport};
use unipgas_schedule::Shapes;

/// Longest wait for peers that take no bytes.
const FAREWELL: Duration = Duration::from_secs(1);
/// Longest wait for another thread's turn.
const TURN: Duration = Duration::from_millis(100);

/// A [`Network`] with the other parts of a backend. [`StreamTransport`] makes it a [`Transport`].
pub trait StreamBackend: Network + 'static {
    /// See [`Transport::name`].
    const NAME: &'static str;
    /// See [`Transport::tag`].
    const TAG: Tag;
    /// Limits of operations on its channels. `requests`: the limits of requests.
    fn channel_limits(&self, requests: &Limits) -> Limits {
        *requests
    }
    /// See [`Capabilities::device_atomics_only`].
    fn is_alone(&self) -> bool {
        false
    }
    /// See [`Transport::is_common`].
    fn is_common(&self, address: &[u8]) -> bool;
    /// The network's part of a registration. `peers`: their rights, `None` if no peer can reach it. `write`: operations of this process may write there.
    /// Errors: as [`Transport::register`].
    ///
    /// # Safety
    /// `len` bytes at `base` are valid until the result is dropped.
    unsafe fn register_own(
        &self,
        base: *mut u8,
        len: usize,
        peers: Option<Rights>,
        write: bool,
    ) -> Result<OwnPart> {
        let _ = (base, len, peers, write);
        Ok(OwnPart::default())
    }
    /// A channel. It uses `requests` for operations that the network does not execute.
    fn channel(&self, requests: Requests) -> Box<dyn Channel> {
        Box::new(requests)
    }
    /// See [`Transport::shapes`].
    fn shapes(&self, members: u32, each: u32) -> Option<Shapes> {
        let _ = (members, each);
        None
    }
    /// See [`Transport::gates`].
    fn gates(&self) -> Option<&dyn GateNetwork> {
        None
    }
    /// Whether bytes of this process have not left. The process may end when all have.
    fn is_under_way(&self) -> bool {
        false
    }
    /// Closes the network, after the streams have left through it. Waits until the deadline at the latest.
    fn close(&self, deadline: Deadline) {
        let _ = deadline;
    }
    /// Whether another thread may still use the closed network.
    fn is_used(&self) -> bool {
        false
    }
}

/// The [`Transport`] of a [`StreamBackend`]. The progress thread takes its turns. Its drop leaves.
pub struct StreamTransport<N: StreamBackend> {
    /// `None` only during the drop.
    node: Option<Arc<StreamNode>>,
    driver: Arc<Driver>,
    network: Arc<N>,
}

impl<N: StreamBackend> StreamTransport<N> {
    /// Opens the streams over `network`. Its events go to `receiver`. `beside`: the first transport of the process, if it is another one.
    /// Errors: [`Error::Os`](unipgas_base::Error::Os).
    pub fn open(
        network: Arc<N>,
        receiver: &EventReceiver,
        beside: Option<Arc<dyn Transport>>,
    ) -> Result<Self> {
        let node = Arc::new(StreamNode::open(network.clone(), beside)?);
        let driver = Driver::of_this_process()?;
        let driven: Weak<dyn Driven> = Arc::<StreamNode>::downgrade(&node);
        driver.enrol(driven, Waits::Never);
        driver.watch_events(node.as_fd())?;
        receiver.set(&node);
        Ok(StreamTransport {
            node: Some(node),
            driver,
            network,
        })
    }

    pub(crate) fn node(&self) -> &Arc<StreamNode> {
        self.node.as_ref().expect("there until it is dropped")
    }

    /// `rights`: none for memory that only this process uses. `needed`: the access that this process itself must have.
    ///
    /// # Safety
    /// `len` bytes at `base` stay valid until the registration is dropped.
    unsafe fn register_user(
        &self,
        base: *mut u8,
        len: usize,
        rights: Option<Rights>,
        needed: Rights,
        write: bool,
    ) -> Result<Box<dyn Memory>> {
        let granted = rights.unwrap_or(Rights::empty());
        if !granted.contains(Rights::BY_ADDRESS) {
            user_memory::check_access(base, len, needed)?;
        }
        // SAFETY:
        // - contract of this call: valid until the registration is dropped.
        unsafe {
            let own = match granted.intersects(Rights::BY_ADDRESS | Rights::RECORDS) {
                true => OwnPart::default(),
                false => self.network.register_own(base, len, rights, write)?,
            };
            let registration = Registration::of_user(self.node(), base, len, granted, own);
            Ok(Box::new(registration))
        }
    }
}

impl<N: StreamBackend> Drop for StreamTransport<N> {
    fn drop(&mut self) {
        let here = self.node().is_here();
        if here {
            self.node().leave();
            self.node().part();
            self.driver.forget_events(self.node().as_fd());
        } else {
            // In the child of a fork: other threads may have held its locks, and the network's resources belong to the parent. So the network is leaked.
            std::mem::forget(self.network.clone());
        }
        self.node = None;
        if here {
            self.network.close(Deadline::after(FAREWELL));
            // Another thread may be in a turn, with a reference to the network. This thread waits for its end, so that it frees the network's resources itself.
            let soon = Deadline::after(TURN);
            let is_used = || Arc::strong_count(&self.network) > 1 || self.network.is_used();
            while is_used() && !soon.expired() {
                std::thread::yield_now();
            }
        }
    }
}

impl<N: StreamBackend> Deref for StreamTransport<N> {
    type Target = N;

    #[inline]
    fn deref(&self) -> &N {
        &self.network
    }
}

impl<N: StreamBackend> Transport for StreamTransport<N> {
    fn name(&self) -> &'static str {
        N::NAME
    }

    fn tag(&self) -> Tag {
        N::TAG
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            asynchronous: true,
            registers_user_memory: true,
            maps: false,
            direct: false,
            device_atomics_only: self.network.is_alone(),
            limits: self.network.channel_limits(self.node().limits()),
        }
    }

    fn address(&self) -> Vec<u8> {
        self.network.address().to_vec()
    }

    fn is_common(&self, address: &[u8]) -> bool {
        self.network.is_common(address)
    }

    fn connect_within(&self, address: &[u8], deadline: Deadline) -> Result<Arc<dyn Peer>> {
        let (index, link) = self.node().connect(address, deadline)?;
        Ok(Arc::new(Neighbour {
            index,
            link,
            node: self.node().clone(),
        }))
    }

    fn allocate(&self, len: usize, rights: Rights) -> Result<Box<dyn Memory>> {
        let own = |base| match rights.contains(Rights::RECORDS) {
            true => Ok(OwnPart::default()),
            // SAFETY:
            // - the block stays mapped longer than the registration.
            false => unsafe { self.network.register_own(base, len, Some(rights), true) },
        };
        let registration = Registration::allocate(self.node(), len, rights, own)?;
        Ok(Box::new(registration))
    }

    unsafe fn register(
        &self,
        base: *mut u8,
        len: usize,
        rights: Rights,
    ) -> Result<Box<dyn Memory>> {
        let write = rights.intersects(Rights::WRITE | Rights::ATOMIC);
        // SAFETY:
        // - contract of `Transport::register`: valid until the registration is dropped.
        unsafe { self.register_user(base, len, Some(rights), rights, write) }
    }

    unsafe fn register_local(
        &self,
        base: *mut u8,
        len: usize,
        write: bool,
    ) -> Result<Box<dyn Memory>> {
        let needed = if write { Rights::WRITE } else { Rights::READ };
        // SAFETY:
        // - contract of `Transport::register_local`: valid until the registration is dropped.
        unsafe { self.register_user(base, len, None, needed, write) }
    }

    fn open_channel(&self) -> Result<Box<dyn Channel>> {
        let requests = Requests::new(self.node(), self.node().limits().depth);
        Ok(self.network.channel(requests))
    }

    fn progress(&self) -> bool {
        self.node().take_answers_first();
        self.node().has_served()
    }

    fn bell(&self) -> &Bell {
        self.node().registered().bell()
    }

    fn locks(&self) -> &ElementLocks {
        self.node().registered().locks()
    }

    fn shapes(&self, members: u32, each: u32) -> Option<Shapes> {
        self.network.shapes(members, each)
    }

    fn gates(&self) -> Option<&dyn GateNetwork> {
        self.network.gates()
    }

    fn hurry(&self, deadline: Deadline) {
        self.node().hurry(deadline);
    }

    fn leave(&self) {
        self.node().leave();
        // The process may end right after this. Bytes that have not left are lost then.
        let soon = Deadline::after(FAREWELL);
        while self.node().is_here() && self.network.is_under_way() && !soon.expired() {
            Transport::progress(self);
            std::thread::yield_now();
        }
    }
}

/// A peer.
struct Neighbour {
    index: u32,
    link: Arc<Link>,
    node: Arc<StreamNode>,
}

impl Peer for Neighbour {
    fn import(&self, key: &[u8], deadline: Deadline) -> Result<RemoteRegion> {
        import(key, self.index, &self.link, &self.node, deadline)
    }

    fn life(&self) -> Life {
        let life = self.link.life();
        if life == Life::Alive && self.link.stream().watch() {
            self.node.watch_silence();
        }
        life
    }

    fn declare_dead(&self) {
        self.link.declare_dead();
        self.node.wake();
    }
}

/// Clears a flag, and returns its previous value. A load first, because most flags are clear.
pub fn taken(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Acquire) && flag.swap(false, Ordering::AcqRel)
}

/// Receives the events of a network, and keeps them until a thread makes [progress](Network::progress).
#[derive(Default)]
pub struct EventReceiver {
    /// Set once the streams of the process exist.
    node: OnceLock<Weak<StreamNode>>,
    /// A stream that this process began has received bytes or ended.
    streams: AtomicBool,
    /// A stream that a peer began has received bytes or ended.
    guests: AtomicBool,
    /// Operations have ended.
    ended: AtomicBool,
    /// A turn is due.
    turn: AtomicBool,
    accepted: Mutex<VecDeque<Accepted>>,
}

impl EventReceiver {
    /// Sets the receiver. It takes a turn at once, because events may have come before.
    fn set(&self, node: &Arc<StreamNode>) {
        let _ = self.node.set(Arc::downgrade(node));
        node.wake();
    }

    fn node(&self) -> Option<Arc<StreamNode>> {
        self.node.get()?.upgrade()
    }

    /// A peer has written to memory of this process.
    pub fn written(&self) {
        if let Some(node) = self.node() {
            node.registered().bell().ring_if_heard();
        }
    }

    /// Calls for a turn.
    pub fn wake(&self) {
        if let Some(node) = self.node() {
            node.wake();
        }
    }

    /// Watches for silent peers.
    pub fn watch_silence(&self) {
        if let Some(node) = self.node() {
            node.watch_silence();
        }
    }

    /// A stream has received bytes, has room, or has ended.
    pub fn on_stream(&self, begun_here: bool) {
        let call = match begun_here {
            true => &self.streams,
            false => &self.guests,
        };
        call.store(true, Ordering::Release);
    }

    /// Any stream may have room, or may have ended.
    pub fn on_all_streams(&self) {
        self.on_stream(true);
        self.on_stream(false);
    }

    /// An operation of the network's own has [ended](super::Ticket::end), or has room now.
    pub fn on_operation(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// A peer has begun a stream.
    pub fn on_accepted(&self, accepted: Accepted) {
        self.accepted.lock().push_back(accepted);
        self.turn.store(true, Ordering::Release);
    }

    /// For [`Network::accept`]: the next stream that a peer has begun.
    pub fn accept(&self) -> Option<Accepted> {
        self.accepted.lock().pop_front()
    }

    /// For [`Network::progress`]: takes the events. A new stream calls for a turn, unless this is one.
    pub fn take(&self, turn: bool) -> ProgressEvents {
        if taken(&self.turn) && !turn {
            self.wake();
        }
        ProgressEvents {
            guests: taken(&self.guests),
            streams: taken(&self.streams),
            ended: taken(&self.ended),
        }
    }
}
