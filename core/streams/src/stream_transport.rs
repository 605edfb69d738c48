//! The transport of a backend over [`Streams`]: the part that all backends share.

use std::ops::Deref;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::{OwnPart, Requests, StreamNode, Streams};
use unipgas_base::atomic::ElementLocks;
use unipgas_base::bell::Bell;
use unipgas_base::{Deadline, Result, Rights};
use unipgas_engine::bundle::Tag;
use unipgas_engine::circuit::GateNetwork;
use unipgas_engine::region::Memory;
use unipgas_engine::transport::{Capabilities, Channel, Limits, Peer, Transport};
use unipgas_schedule::Shapes;

/// Longest wait for peers that take no bytes.
const FAREWELL: Duration = Duration::from_secs(1);
/// Longest wait for another thread's turn.
const TURN: Duration = Duration::from_millis(100);

/// A backend over [`Streams`]; [`StreamTransport`] makes it a [`Transport`].
pub trait StreamBackend: Send + Sync {
    /// See [`Transport::name`].
    const NAME: &'static str;
    /// See [`Transport::tag`].
    const TAG: Tag;
    /// The streams of the backend.
    fn streams(&self) -> &Streams;
    /// Limits of operations on its channels.
    fn limits(&self) -> Limits {
        *self.streams().node().limits()
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
    /// See [`Transport::progress`].
    fn progress(&self) -> bool {
        self.streams().progress()
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
}

/// The [`Transport`] of a [`StreamBackend`]: it forwards calls to the streams.
#[derive(Debug)]
pub struct StreamTransport<T>(pub T);

impl<T> Deref for StreamTransport<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: StreamBackend> Transport for StreamTransport<T> {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn tag(&self) -> Tag {
        T::TAG
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            asynchronous: true,
            registers_user_memory: true,
            maps: false,
            direct: false,
            device_atomics_only: self.is_alone(),
            limits: self.0.limits(),
        }
    }

    fn address(&self) -> Vec<u8> {
        self.streams().node().network().address().to_vec()
    }

    fn is_common(&self, address: &[u8]) -> bool {
        self.0.is_common(address)
    }

    fn connect_within(&self, address: &[u8], deadline: Deadline) -> Result<Arc<dyn Peer>> {
        self.streams().connect(address, deadline)
    }

    fn allocate(&self, len: usize, rights: Rights) -> Result<Box<dyn Memory>> {
        // SAFETY:
        // - the block stays mapped longer than the registration.
        let own = |base| unsafe { self.register_own(base, len, Some(rights), true) };
        Ok(Box::new(self.streams().allocate(len, rights, own)?))
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
        unsafe {
            let own = || self.register_own(base, len, Some(rights), write);
            let registration = self.streams().register(base, len, rights, rights, own)?;
            Ok(Box::new(registration))
        }
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
        unsafe {
            let own = || self.register_own(base, len, None, write);
            let none = Rights::empty();
            let registration = self.streams().register(base, len, none, needed, own)?;
            Ok(Box::new(registration))
        }
    }

    fn open_channel(&self) -> Result<Box<dyn Channel>> {
        Ok(self.channel(self.streams().open_channel()))
    }

    fn progress(&self) -> bool {
        self.0.progress()
    }

    fn bell(&self) -> &Bell {
        self.streams().bell()
    }

    fn locks(&self) -> &ElementLocks {
        self.streams().locks()
    }

    fn shapes(&self, members: u32, each: u32) -> Option<Shapes> {
        self.0.shapes(members, each)
    }

    fn gates(&self) -> Option<&dyn GateNetwork> {
        self.0.gates()
    }

    fn hurry(&self, deadline: Deadline) {
        self.streams().hurry(deadline);
    }

    fn leave(&self) {
        self.streams().leave();
        // The process may end right after this. Bytes that have not left are lost then.
        let soon = Deadline::after(FAREWELL);
        while self.streams().node().is_here() && self.is_under_way() && !soon.expired() {
            self.0.progress();
            std::thread::yield_now();
        }
    }
}

/// Drops the streams, which leave through the network, and then closes the network. `is_used`: whether another thread still uses it.
pub fn close<N>(
    streams: &mut Option<Streams>,
    net: &Arc<N>,
    close: impl FnOnce(&N, Deadline),
    is_used: impl Fn(&Arc<N>) -> bool,
) {
    let here = streams.as_ref().is_some_and(|one| one.node().is_here());
    if !here {
        // In the child of a fork: other threads may have held its locks, and the network's resources belong to the parent. So the network is leaked.
        std::mem::forget(net.clone());
    }
    *streams = None;
    if here {
        close(net, Deadline::after(FAREWELL));
        // Another thread may be in a turn, with a reference to the network. This thread waits for its end, so that it frees the network's resources itself.
        let soon = Deadline::after(TURN);
        while is_used(net) && !soon.expired() {
            std::thread::yield_now();
        }
    }
}

/// Receives the events of a network, once the streams of the process exist.
#[derive(Default)]
pub struct EventReceiver {
    node: OnceLock<Weak<StreamNode>>,
}

impl EventReceiver {
    /// Sets the receiver. It takes a turn at once, because events may have come before.
    pub fn is(&self, streams: &Streams) {
        let _ = self.node.set(Arc::downgrade(streams.node()));
        streams.node().wake();
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
}
