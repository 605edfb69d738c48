//! The transport of a backend over [`Streams`]: what is the same for all of them.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::{Home, OwnPart, Requests, Streams};
use crate::atomic::ElementLocks;
use crate::bell::Bell;
use crate::bundle::Tag;
use crate::circuit::Gates;
use crate::region::{Memory, Rights};
use crate::schedule::Shapes;
use crate::transport::{Capabilities, Channel, Limits, Peer, Transport};
use crate::{Deadline, Result};

/// Nobody waits longer for peers who take nothing.
const FAREWELL: Duration = Duration::from_secs(1);
/// A turn takes less.
const TURN: Duration = Duration::from_millis(100);

/// A [`Transport`] that hands its calls to [`Streams`], and what it says beyond that.
pub trait OverStreams: Send + Sync {
    /// See [`Transport::name`].
    const NAME: &'static str;
    /// See [`Transport::tag`].
    const TAG: Tag;
    /// What its calls go to.
    fn streams(&self) -> &Streams;
    /// What the operations of its channels are confined to.
    fn limits(&self) -> Limits {
        *self.streams().home().limits()
    }
    /// See [`Capabilities::alone`].
    fn is_alone(&self) -> bool {
        false
    }
    /// See [`Transport::is_common`].
    fn is_common(&self, address: &[u8]) -> bool;
    /// What the network adds to a registration. `peers`: what they may do, if any reaches it; `write`: operations of this process may write there.
    /// Errors: those of [`Transport::register`].
    ///
    /// # Safety
    /// `len` bytes at `base` are valid until what this gives is dropped.
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
    /// A channel, which does by these requests what the network does not.
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
    fn gates(&self) -> Option<&dyn Gates> {
        None
    }
    /// Whether something has not left that this process has said: it may end when all has.
    fn is_under_way(&self) -> bool {
        false
    }
}

impl<T: OverStreams> Transport for T {
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
            alone: self.is_alone(),
            limits: self.limits(),
        }
    }

    fn address(&self) -> Vec<u8> {
        self.streams().home().network().address().to_vec()
    }

    fn is_common(&self, address: &[u8]) -> bool {
        OverStreams::is_common(self, address)
    }

    fn connect_within(&self, address: &[u8], deadline: Deadline) -> Result<Arc<dyn Peer>> {
        self.streams().connect(address, deadline)
    }

    fn allocate(&self, len: usize, rights: Rights) -> Result<Box<dyn Memory>> {
        // SAFETY:
        // - stays mapped longer than the registration.
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
        // - the caller's word.
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
        // - the caller's word.
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
        OverStreams::progress(self)
    }

    fn bell(&self) -> &Bell {
        self.streams().bell()
    }

    fn locks(&self) -> &ElementLocks {
        self.streams().locks()
    }

    fn shapes(&self, members: u32, each: u32) -> Option<Shapes> {
        OverStreams::shapes(self, members, each)
    }

    fn gates(&self) -> Option<&dyn Gates> {
        OverStreams::gates(self)
    }

    fn hurry(&self, deadline: Deadline) {
        self.streams().hurry(deadline);
    }

    fn leave(&self) {
        self.streams().leave();
        // The process may end right after this, and what has not left by then never does.
        let soon = Deadline::after(FAREWELL);
        while self.streams().home().is_here() && self.is_under_way() && !soon.expired() {
            OverStreams::progress(self);
            std::thread::yield_now();
        }
    }
}

/// Drops the streams, which say farewell by the network, and then closes that. `is_used`: whether anybody has a part of it yet.
pub fn close<N>(
    streams: &mut Option<Streams>,
    net: &Arc<N>,
    close: impl FnOnce(&N, Deadline),
    is_used: impl Fn(&Arc<N>) -> bool,
) {
    let here = streams.as_ref().is_some_and(|one| one.home().is_here());
    if !here {
        // Nothing of it is the child's of a fork, whose locks others may have held; what the network has is the parent's.
        std::mem::forget(net.clone());
    }
    *streams = None;
    if here {
        close(net, Deadline::after(FAREWELL));
        // Whoever takes a turn just now lets go of it; what the network has is given back by this thread.
        let soon = Deadline::after(TURN);
        while is_used(net) && !soon.expired() {
            std::thread::yield_now();
        }
    }
}

/// Whom a network tells: the process, once its streams are there.
#[derive(Default)]
pub struct Owner {
    home: OnceLock<Weak<Home>>,
}

impl Owner {
    /// From now on these are told, also that something has come before.
    pub fn is(&self, streams: &Streams) {
        let _ = self.home.set(Arc::downgrade(streams.home()));
        streams.home().wake();
    }

    fn home(&self) -> Option<Arc<Home>> {
        self.home.get()?.upgrade()
    }

    /// A peer has written to memory of this process.
    pub fn written(&self) {
        if let Some(home) = self.home() {
            home.registered().bell().ring_if_heard();
        }
    }

    /// A turn is to begin.
    pub fn wake(&self) {
        if let Some(home) = self.home() {
            home.wake();
        }
    }

    /// The silence of a peer is to be watched.
    pub fn watch_silence(&self) {
        if let Some(home) = self.home() {
            home.watch_silence();
        }
    }
}
