//! The contract between the engine and a backend: one screen.
//!
//! A backend moves bytes between registered memory of processes. It provides a [`Transport`] (this process's place in the
//! network), [`Peer`]s (other processes, as seen from here) and [`Channel`]s (issue contexts whose operations can be ordered
//! and waited for). [`loopback`](crate::loopback) is the smallest one.

use std::os::fd::RawFd;
use std::sync::Arc;

use crate::atomic::ElementLocks;
use crate::bell::Bell;
use crate::bundle::Tag;
use crate::circuit::Gates;
use crate::inbox::Record;
use crate::op::{
    AtomicRequest, Completion, Flags, Inbox, Local, Notice, Outcome, QuickPut, Remote, Reply,
};
use crate::region::{Memory, RemoteRegion, Rights};
use crate::schedule::Shapes;
use crate::{Deadline, Error, Result};

/// What a backend can do; the conformance matrix checks that it tells the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// Operations may be [`Outcome::Pending`], so that somebody must poll.
    pub asynchronous: bool,
    /// Memory of the user can be registered.
    pub registers_user_memory: bool,
    /// What this process allocates is mapped by its peers, which can load and store it.
    pub maps: bool,
    /// Operations on regions that are mapped here ([`RemoteParts::base`](crate::region::RemoteParts::base)) need nothing of the
    /// backend: the engine carries them out itself, in the call. An indirect call would cost more than an 8-byte put.
    pub direct: bool,
    /// Its devices carry out what [`Rights::WORDS`] allows, and are atomic with themselves alone, not with processors: where a region
    /// has [`Rights::DEVICE`], all who reach it go by its owner's device.
    pub alone: bool,
    /// What its operations are confined to.
    pub limits: Limits,
}

/// What a network does not do by itself. The engine does it instead; [channels](Channel) refuse what goes beyond, and nothing has been
/// done then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// [`Flags::LINES`] is kept. Otherwise refused: [`Error::Unsupported`].
    pub lines: bool,
    /// Atomic operations are carried out. Otherwise refused: [`Error::Unsupported`].
    pub atomics: bool,
    /// The operations of this process need memory that is registered here: the source of a put that is not [`Flags::INLINE`], the destination
    /// of a get, the result of an atomic operation. Otherwise refused: [`Error::NotRegistered`].
    pub registered: bool,
    /// The most bytes that [`Flags::INLINE`] takes. More are refused: [`Error::Unsupported`].
    pub inline: usize,
    /// The longest put, get and array of an atomic operation, in bytes; at least [`Limits::SHORTEST`]. Longer ones are refused:
    /// [`Error::Unsupported`].
    pub largest: usize,
    /// Operations of one channel to one peer that have not been reported by [`Channel::poll`]; at least 1. One more is refused:
    /// [`Error::NotNow`].
    pub depth: usize,
}

impl Limits {
    /// What every network moves at once, in bytes.
    pub const SHORTEST: usize = 64;
    /// There are none.
    pub const NONE: Limits = Limits {
        lines: true,
        atomics: true,
        registered: false,
        inline: usize::MAX,
        largest: usize::MAX,
        depth: usize::MAX,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Limits::NONE
    }
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
    /// Whether the process behind `address` is in the same network, and knows that too. Where it is, a connection that fails is the last word; else other
    /// transports are tried.
    fn is_common(&self, _address: &[u8]) -> bool {
        false
    }
    /// Finds the process behind `address`. Errors: [`Error::Unreachable`], [`Error::PeerDead`].
    fn connect(&self, address: &[u8]) -> Result<Arc<dyn Peer>> {
        self.connect_within(address, Deadline::Never)
    }
    /// As [`connect`](Transport::connect). [`Error::Timeout`] where the process has to answer, and does not: the next call goes on with it.
    fn connect_within(&self, address: &[u8], deadline: Deadline) -> Result<Arc<dyn Peer>>;
    /// Allocates zeroed registered memory, aligned to a page. It stays mapped until the transport is dropped, though nobody's
    /// any more once the registration is.
    fn allocate(&self, len: usize, rights: Rights) -> Result<Box<dyn Memory>>;
    /// Registers memory of the user in place. The engine has looked that it is mapped throughout.
    ///
    /// # Safety
    /// `len` bytes at `base` stay valid until the registration is dropped.
    unsafe fn register(&self, base: *mut u8, len: usize, rights: Rights)
    -> Result<Box<dyn Memory>>;
    /// Registers memory of the user for operations of this process; no peer reaches it. `write`: they write there. The engine has looked that it
    /// is mapped throughout.
    ///
    /// # Safety
    /// As for [`register`](Transport::register).
    unsafe fn register_local(
        &self,
        base: *mut u8,
        len: usize,
        write: bool,
    ) -> Result<Box<dyn Memory>> {
        let _ = write;
        // SAFETY:
        // - the caller's word.
        unsafe { self.register(base, len, Rights::empty()) }
    }
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
    /// Moves on what has come, for a thread that waits, and runs nobody's code: so it may be called whatever the caller holds. Never waits. Whether this thread, or the
    /// progress thread since the last call, has carried out what peers ask for: then they may soon ask for more.
    fn progress(&self) -> bool {
        false
    }
    /// The bell that this process's waiters sleep at and that peers ring.
    fn bell(&self) -> &Bell;
    /// Whoever rings the bell from now on also writes a byte to this descriptor of this process, the [alarm](crate::driver::Driver::alarm) of its
    /// progress thread, if that sleeps there. Errors: [`Error::Os`].
    fn show_alarm(&self, alarm: RawFd) -> Result<()> {
        // Only this process rings it.
        let _ = alarm;
        Ok(())
    }
    /// The locks of this process for elements that no CPU changes atomically: one set for all that operate on its memory, by whatever way.
    fn locks(&self) -> &ElementLocks;
    /// The shapes that suit a group of so many members, of which about `each` are on a host. All processes say the same.
    fn shapes(&self, members: u32, each: u32) -> Option<Shapes> {
        let _ = (members, each);
        None
    }
    /// Barrier gates of the network's own.
    fn gates(&self) -> Option<&dyn Gates> {
        None
    }
    /// Leaves properly: peers learn that this process has gone and has not died.
    fn leave(&self) {}
    /// This process is about to leave, within a time: who does not answer until then is not waited for when memory is given back.
    fn hurry(&self, deadline: Deadline) {
        let _ = deadline;
    }
}

/// Another process.
pub trait Peer: Send + Sync {
    /// Resolves the backend's part of a region key. Errors: [`Error::StaleRegion`], [`Error::PeerDead`]; [`Error::Timeout`] where the peer
    /// has to answer, and does not.
    fn import(&self, key: &[u8], deadline: Deadline) -> Result<RemoteRegion>;
    /// Whether the process lives. May make a system call. Once it has ended, what was imported from it is refused.
    fn life(&self) -> Life;
    /// Others have seen that the process died: operations to it fail from now on.
    fn declare_dead(&self) {}
}

/// The most bytes of an active message, and of its answer.
pub const LONGEST_MESSAGE: usize = 1024;

/// Takes the active messages that peers send to a region ([`Channel::active_message`]).
pub trait Handler: Send + Sync {
    /// Called by whoever serves peers in this process, for messages of one peer in the order in which they arrive; `offset` says where in
    /// the region. What it appends to `reply`, at most [`LONGEST_MESSAGE`] bytes, is the answer. It must not wait for anything, nor register
    /// or release memory: nobody is served meanwhile. Errors: a number, which the sender gets as [`Error::Refused`].
    fn handle(
        &self,
        offset: usize,
        message: &[u8],
        reply: &mut Vec<u8>,
    ) -> std::result::Result<(), u32>;

    /// Whether `message` may be handled by any thread that waits for something, whatever that holds: nobody's code runs, and no lock is waited for.
    fn is_plain(&self, message: &[u8]) -> bool {
        let _ = message;
        false
    }
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
/// a notice never overtakes the data of its own operation; records of one channel to one inbox stay in order. All calls may come from any
/// thread. What goes beyond the network's [`Limits`] is refused.
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

    /// Whether [`put_notify`](Channel::put_notify) takes such a notice. Otherwise it refuses ([`Error::Unsupported`]), and the engine lets a notice follow the
    /// data.
    fn notifies(&self, notice: &Notice<'_>) -> bool {
        let _ = notice;
        true
    }

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

    /// Posts a put, and a notice that follows it where there is one, after all earlier operations of the channel to that peer, with the least that is
    /// needed: nobody is told of its end. [`quick_pending`](Channel::quick_pending) counts those to a peer as one, and of failures
    /// [`quick_failure`](Channel::quick_failure) tells. False, for whatever reason: nothing has been done, and the other calls say why.
    ///
    /// # Safety
    /// The bytes are valid.
    unsafe fn put_quick(&self, put: &QuickPut<'_>) -> bool {
        let _ = put;
        false
    }

    /// More is posted to the owner of this region, and then [let go](Channel::let_go): till then the network may keep what is posted there, so that
    /// all leaves by one call.
    fn hold(&self, to: &RemoteRegion) {
        let _ = to;
    }

    /// What is held has been posted. `more`: somebody posts more soon; till then it may stay, unless something else is posted there, or anybody waits.
    fn let_go(&self, to: &RemoteRegion, more: bool) {
        let _ = (to, more);
    }

    /// To how many peers [quick](Channel::put_quick) operations may be under way; less after a [`poll`](Channel::poll).
    fn quick_pending(&self) -> usize {
        0
    }

    /// Why the quick operations to a peer have failed, of which nothing has been told.
    fn quick_failure(&self) -> Option<Error> {
        None
    }

    /// Carries out an atomic operation on the elements at `dst`. `desc` names the registration of the result, as in [`Local`]; operand and
    /// comparand are taken in the call.
    ///
    /// # Safety
    /// The request's pointers are valid as [`AtomicRequest`] says.
    unsafe fn atomic(
        &self,
        dst: Remote<'_>,
        request: &AtomicRequest,
        desc: u64,
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

    /// Whether [`Flags::CHAINED`] is kept.
    fn chains(&self) -> bool {
        false
    }

    /// Whether [`put_deliver`](Channel::put_deliver) is offered.
    fn carries(&self) -> bool {
        false
    }

    /// Writes at most [`LONGEST_MESSAGE`] bytes, which are taken before the call returns, then delivers `record` to the same peer once they are visible. Errors: as for
    /// both; [`Error::InboxFull`] says that the bytes have been written. [`Error::Unsupported`] where the network does not do both at once: whoever
    /// calls lets the record follow the data.
    ///
    /// # Safety
    /// `len` bytes at `src` are valid.
    #[allow(clippy::too_many_arguments, reason = "those of both")]
    unsafe fn put_deliver(
        &self,
        src: Local,
        dst: Remote<'_>,
        len: usize,
        inbox: Inbox<'_>,
        record: Record,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let _ = (src, dst, len, inbox, record, flags, context);
        Err(Error::Unsupported)
    }

    /// Hands `message`, which is taken before the call returns, to the [`Handler`] of the region at `to`, after the data of earlier
    /// operations if flagged so. Its end says that the handler has taken it, and that the answer is in `reply`, as much of it as has room
    /// there. Errors: [`Error::Refused`], [`Error::Unsupported`] where nobody handles messages, [`Error::InvalidArgument`] for more than
    /// [`LONGEST_MESSAGE`] bytes.
    fn active_message(
        &self,
        to: Remote<'_>,
        message: &[u8],
        reply: Reply,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome>;

    /// Moves pending operations on and reports those that have ended.
    fn poll(&self, sink: &mut dyn FnMut(Completion));

    /// Reports those that have ended, for who does not wait for any: a peer need not be asked now for the ends of those that are
    /// [gathered](Flags::GATHERED).
    fn report(&self, sink: &mut dyn FnMut(Completion)) {
        self.poll(sink);
    }

    /// Operations that have been [`Outcome::Pending`] and have not been reported yet.
    fn pending(&self) -> usize;
}

/// A backend that user memory cannot be registered with says so.
pub fn no_user_memory(name: &str) -> Error {
    Error::InvalidArgument(format!(
        "the {name} backend cannot register memory of the user; allocate it through the library"
    ))
}

/// For channels: whether the word of a notice may be written. Errors: those of [`RemoteRegion::check`]; [`Error::Misaligned`].
pub fn check_notice(notice: &Notice<'_>) -> Result<()> {
    let Remote { region, offset } = notice.slot;
    region.check(offset, 4, Rights::WRITE)?;
    match offset.is_multiple_of(4) {
        true => Ok(()),
        false => Err(Error::Misaligned(4)),
    }
}

/// For channels: whether records may be delivered there. Errors: those of [`RemoteRegion::check`].
pub fn check_inbox(ring: &RemoteRegion) -> Result<()> {
    let for_records = ring.parts().rights & Rights::RECORDS;
    let need = if for_records.is_empty() {
        Rights::WRITE
    } else {
        for_records
    };
    ring.check(0, ring.len(), need)
}

/// For channels: whether an active message may leave, which takes a region that peers may change. Errors: those of
/// [`RemoteRegion::check`]; [`Error::InvalidArgument`].
pub fn check_message(to: Remote<'_>, message: &[u8]) -> Result<()> {
    to.region.check(to.offset, 0, Rights::empty())?;
    let rights = to.region.parts().rights;
    if !rights.intersects(Rights::WRITE | Rights::ATOMIC | Rights::RECORDS) {
        return Err(Error::AccessDenied);
    }
    if message.len() > LONGEST_MESSAGE {
        return Err(Error::InvalidArgument(format!(
            "an active message has at most {LONGEST_MESSAGE} bytes"
        )));
    }
    Ok(())
}
