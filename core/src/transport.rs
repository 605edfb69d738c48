//! The contract between the engine and a backend: one screen.
//!
//! A backend moves bytes between registered memory of processes. It provides a [`Transport`] (this process's place in the
//! network), [`Peer`]s (other processes, as seen from here) and [`Channel`]s (issue contexts whose operations can be ordered
//! and waited for). [`loopback`](crate::loopback) is the smallest one.

use std::sync::Arc;

use crate::bell::Bell;
use crate::bundle::Tag;
use crate::inbox::Record;
use crate::op::{AtomicRequest, Completion, Flags, Inbox, Local, Notice, Outcome, Remote};
use crate::region::{Memory, RemoteRegion, Rights};
use crate::{Error, Result};

/// What a backend can do; the conformance matrix checks that it tells the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// Operations may be [`Outcome::Pending`], so that somebody must poll.
    pub asynchronous: bool,
    /// Memory of the user can be registered.
    pub registers_user_memory: bool,
    /// Operations on regions that are mapped here ([`RemoteParts::base`](crate::region::RemoteParts::base)) need nothing of the
    /// backend: the engine carries them out itself, in the call. An indirect call would cost more than an 8-byte put.
    pub direct: bool,
}

/// This process's place in a network.
pub trait Transport: Send + Sync {
    /// Its name, as in `--backend`.
    fn name(&self) -> &'static str;
    /// The tag of its parts of addresses and keys.
    fn tag(&self) -> Tag;
    /// What it can do.
    fn capabilities(&self) -> Capabilities;
    /// What peers need in order to [`connect`](Transport::connect).
    fn address(&self) -> Vec<u8>;
    /// Finds the process behind `address`. Errors: [`Error::Unreachable`], [`Error::PeerDead`].
    fn connect(&self, address: &[u8]) -> Result<Arc<dyn Peer>>;
    /// Allocates zeroed registered memory, aligned to a page. It stays mapped until the transport is dropped, though nobody's
    /// any more once the registration is.
    fn allocate(&self, len: usize, rights: Rights) -> Result<Box<dyn Memory>>;
    /// Registers memory of the user in place. The engine has looked that it is mapped throughout.
    ///
    /// # Safety
    /// `len` bytes at `base` stay valid until the registration is dropped.
    unsafe fn register(&self, base: *mut u8, len: usize, rights: Rights)
    -> Result<Box<dyn Memory>>;
    /// Lets peers read memory of the user for the time of one transfer: as [`register`](Transport::register), but cheap, and slower
    /// to read where that is the price.
    ///
    /// # Safety
    /// As for [`register`](Transport::register).
    unsafe fn expose(&self, base: *mut u8, len: usize) -> Result<Box<dyn Memory>> {
        // SAFETY:
        // - the caller's word.
        unsafe { self.register(base, len, Rights::READ) }
    }
    /// A new issue context.
    fn open_channel(&self) -> Result<Box<dyn Channel>>;
    /// The bell that this process's waiters sleep at and that peers ring.
    fn bell(&self) -> &Bell;
    /// Leaves properly: peers learn that this process has gone and has not died.
    fn leave(&self) {}
}

/// Another process.
pub trait Peer: Send + Sync {
    /// Resolves the backend's part of a region key. Errors: [`Error::StaleRegion`], [`Error::PeerDead`].
    fn import(&self, key: &[u8]) -> Result<RemoteRegion>;
    /// Whether the process lives. May make a system call. Once it has ended, what was imported from it is refused.
    fn life(&self) -> Life;
}

/// What is known of another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It runs.
    Alive,
    /// It has left properly ([`Transport::leave`]).
    Left,
    /// It has ended without leaving.
    Dead,
}

/// An issue context. Operations of one channel to one peer may overtake each other unless [`Flags::ORDERED`] says otherwise;
/// a notice never overtakes the data of its own operation. All calls may come from any thread.
pub trait Channel: Send + Sync {
    /// Writes `len` bytes from `src` to `dst`.
    ///
    /// # Safety
    /// `len` bytes at `src` are valid until the operation is complete.
    unsafe fn put(
        &self,
        src: Local,
        dst: Remote<'_>,
        len: usize,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome>;

    /// Reads `len` bytes from `src` into `dst`.
    ///
    /// # Safety
    /// `len` bytes at `dst` are valid for writes until the operation is complete.
    unsafe fn get(
        &self,
        dst: Local,
        src: Remote<'_>,
        len: usize,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome>;

    /// Sets a notification word.
    fn notify(&self, notice: Notice<'_>, flags: Flags, context: u64) -> Result<Outcome>;

    /// Writes, then sets a notification word once the data is visible. Ordered against nothing else unless flagged.
    ///
    /// # Safety
    /// As for [`put`](Channel::put).
    unsafe fn put_notify(
        &self,
        src: Local,
        dst: Remote<'_>,
        len: usize,
        notice: Notice<'_>,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome>;

    /// Carries out an atomic operation on the elements at `dst`.
    ///
    /// # Safety
    /// The request's pointers are valid as [`AtomicRequest`] says.
    unsafe fn atomic(
        &self,
        dst: Remote<'_>,
        request: &AtomicRequest,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome>;

    /// Delivers `record`. All of the inbox belongs to one peer, where it is decided which ring takes the record. Errors:
    /// [`Error::InboxFull`]; then the word of the inbox that says so has been set.
    fn deliver(
        &self,
        inbox: Inbox<'_>,
        record: Record,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome>;

    /// Moves pending operations on and reports those that have ended.
    fn poll(&self, sink: &mut dyn FnMut(Completion));

    /// Operations that have been [`Outcome::Pending`] and have not been reported yet.
    fn pending(&self) -> usize;
}

/// A backend that user memory cannot be registered with says so.
pub fn no_user_memory(name: &str) -> Error {
    Error::InvalidArgument(format!(
        "the {name} backend cannot register memory of the user; allocate it through the library"
    ))
}
