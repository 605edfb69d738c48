//! The contract between the engine and a backend.
//!
//! A backend moves bytes between registered memory of processes. It provides a [`Transport`] (this process's place in the network), [`Peer`]s (other
//! processes) and [`Channel`]s (issue contexts). The operations of a channel can be ordered and waited for. [`loopback`](crate::loopback) is the smallest
//! backend.

use std::os::fd::RawFd;
use std::sync::Arc;

use crate::atomic::ElementLocks;
use crate::bell::Bell;
use crate::bundle::Tag;
use crate::circuit::GateNetwork;
use crate::inbox::Record;
use crate::op::{
    AtomicRequest, Completion, Flags, GetRequest, Inbox, Notice, Outcome, PutRequest, Remote,
    ReplyBuffer, UnsignaledPut,
};
use crate::region::{Memory, RemoteRegion};
use crate::schedule::Shapes;
use crate::{Deadline, Error, Result, Rights};

/// Features of a backend. The conformance matrix checks them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// Operations may be [`Outcome::Pending`], so a thread must poll.
    pub asynchronous: bool,
    /// User memory can be registered.
    pub registers_user_memory: bool,
    /// Peers map the memory that this process allocates, and can load and store it.
    pub maps: bool,
    /// The engine itself carries out operations on regions that are mapped here ([`RemoteParts::base`](crate::region::RemoteParts::base)), in the call. An
    /// indirect call to the backend would cost more than an 8-byte put.
    pub direct: bool,
    /// Its devices carry out the atomic operations that [`Rights::WORDS`] allows. These are atomic among themselves, but not with operations of processors.
    /// So all processes use the owner's device for a region with [`Rights::DEVICE`].
    pub device_atomics_only: bool,
    /// Limits of its operations.
    pub limits: Limits,
}

/// Limits of a network. The engine provides the missing functions. A [channel](Channel) refuses an operation beyond a limit, and then has done nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The network keeps [`Flags::LINES`]. Otherwise it refuses the flag: [`Error::Unsupported`].
    pub lines: bool,
    /// The network carries out atomic operations. Otherwise it refuses them: [`Error::Unsupported`].
    pub atomics: bool,
    /// Operations need registered local memory: the source of a put without [`Flags::INLINE`], the destination of a get, the result of an atomic operation.
    /// The network refuses other memory: [`Error::NotRegistered`].
    pub registered: bool,
    /// Most bytes of an operation with [`Flags::INLINE`]. The network refuses more: [`Error::Unsupported`].
    pub inline: usize,
    /// Most bytes of a put, a get, and an array of an atomic operation; at least [`Limits::SHORTEST`]. The network refuses more: [`Error::Unsupported`].
    pub largest: usize,
    /// Most operations of a channel to a peer that [`Channel::poll`] has not reported; at least 1. The network refuses another one: [`Error::NotNow`].
    pub depth: usize,
}

impl Limits {
    /// Bytes that each network moves at once.
    pub const SHORTEST: usize = 64;
    /// No limits.
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
    /// Its features.
    fn capabilities(&self) -> Capabilities;
    /// Data that peers need to [`connect`](Transport::connect).
    fn address(&self) -> Vec<u8>;
    /// Whether the process behind `address` is in the same network, and knows that. If so, a failed connection is final. Otherwise the engine tries other
    /// transports.
    fn is_common(&self, _address: &[u8]) -> bool {
        false
    }
    /// Connects to the process behind `address`. Errors: [`Error::Unreachable`], [`Error::PeerDead`].
    fn connect(&self, address: &[u8]) -> Result<Arc<dyn Peer>> {
        self.connect_within(address, Deadline::Never)
    }
    /// As [`connect`](Transport::connect). Errors: also [`Error::Timeout`] if the process must answer, and does not. The next call continues.
    fn connect_within(&self, address: &[u8], deadline: Deadline) -> Result<Arc<dyn Peer>>;
    /// Allocates zeroed registered memory, aligned to a page. It stays mapped until the transport is dropped. The transport may reuse it after the
    /// registration is dropped.
    fn allocate(&self, len: usize, rights: Rights) -> Result<Box<dyn Memory>>;
    /// Registers user memory in place. The engine has checked that all of it is mapped, except with [`Rights::BY_ADDRESS`].
    ///
    /// # Safety
    /// `len` bytes at `base` stay valid until the registration is dropped.
    unsafe fn register(&self, base: *mut u8, len: usize, rights: Rights)
    -> Result<Box<dyn Memory>>;
    /// Registers user memory for operations of this process. No peer reaches it. `write`: operations write there. The engine has checked that all of it is
    /// mapped.
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
        // - contract of this call: the bytes are valid until the registration is dropped.
        unsafe { self.register(base, len, Rights::empty()) }
    }
    /// Lets peers read user memory during one transfer. It costs less than [`register`](Transport::register), but reads may be slower.
    ///
    /// # Safety
    /// As for [`register`](Transport::register).
    unsafe fn expose(&self, base: *mut u8, len: usize) -> Result<Box<dyn Memory>> {
        // SAFETY:
        // - contract of this call: the bytes are valid until the registration is dropped.
        unsafe { self.register(base, len, Rights::READ) }
    }
    /// A new issue context.
    fn open_channel(&self) -> Result<Box<dyn Channel>>;
    /// Makes progress for a waiting thread. Never waits. It runs no code of the program, so the caller may hold any lock. True: this thread, or the progress
    /// thread since the last call, has served peers, which may soon ask for more.
    fn progress(&self) -> bool {
        false
    }
    /// The bell at which waiters of this process sleep. Peers ring it.
    fn bell(&self) -> &Bell;
    /// Makes peers that ring the bell also write a byte to `alarm`, if the progress thread sleeps there. `alarm`: the
    /// [descriptor](crate::driver::Driver::alarm) of the progress thread of this process. Errors: [`Error::Os`].
    fn show_alarm(&self, alarm: RawFd) -> Result<()> {
        // Only this process rings it.
        let _ = alarm;
        Ok(())
    }
    /// The locks of this process for elements that no CPU changes atomically. All operations on its memory share one set, on all routes.
    fn locks(&self) -> &ElementLocks;
    /// Shapes that suit a group of `members` processes with about `each` on a host. All processes give the same answer.
    fn shapes(&self, members: u32, each: u32) -> Option<Shapes> {
        let _ = (members, each);
        None
    }
    /// Barrier gates of the network.
    fn gates(&self) -> Option<&dyn GateNetwork> {
        None
    }
    /// Leaves the network. Peers learn that this process has left and has not died.
    fn leave(&self) {}
    /// Announces that this process leaves soon. The release of memory waits for silent peers until `deadline` at the latest.
    fn hurry(&self, deadline: Deadline) {
        let _ = deadline;
    }
}

/// Another process.
pub trait Peer: Send + Sync {
    /// Resolves the backend's part of a region key. Errors: [`Error::StaleRegion`], [`Error::PeerDead`]; [`Error::Timeout`] if the peer must answer, and does
    /// not.
    fn import(&self, key: &[u8], deadline: Deadline) -> Result<RemoteRegion>;
    /// Whether the process lives. May make a system call. After the process has ended, operations on its imported regions are refused.
    fn life(&self) -> Life;
    /// Declares the process dead, because another process has detected its death. Later operations to it fail.
    fn declare_dead(&self) {}
}

/// Most bytes of an active message, and of its reply.
pub const LONGEST_MESSAGE: usize = 1024;

/// Handles the active messages that peers send to a region ([`Channel::active_message`]).
pub trait Handler: Send + Sync {
    /// Handles a message for the place `offset` of the region. A thread that serves peers calls it, in arrival order for the messages of one peer. The
    /// handler appends its reply to `reply`, at most [`LONGEST_MESSAGE`] bytes. It must not wait, and must not register or release memory: no peer is served
    /// meanwhile. Errors: a number, which the sender gets as [`Error::Refused`].
    fn handle(
        &self,
        offset: usize,
        message: &[u8],
        reply: &mut Vec<u8>,
    ) -> std::result::Result<(), u32>;

    /// Whether any waiting thread may handle `message`, whatever locks it holds. Then the handler runs no code of the program, and waits for no lock.
    fn is_plain(&self, message: &[u8]) -> bool {
        let _ = message;
        false
    }
}

/// State of another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It runs.
    Alive,
    /// It has left properly ([`Transport::leave`]).
    Left,
    /// It has ended without leaving.
    Dead,
}

/// An issue context. Operations of a channel to one peer may overtake each other, unless [`Flags::ORDERED`] is set. A notice never overtakes the data of the
/// same operation. Records of a channel to one inbox stay in order. All calls may come from any thread. A channel refuses operations beyond the network's
/// [`Limits`].
pub trait Channel: Send + Sync {
    /// The channel that carries out the operations which this channel does not define. Errors: [`Error::Unsupported`]: there is none, and this channel refuses
    /// them.
    fn below(&self) -> Result<&dyn Channel> {
        Err(Error::Unsupported)
    }

    /// Writes. Then sets the notification word of the notice, once the data is visible. Without flags a put has no order with other operations.
    ///
    /// # Safety
    /// `put.len` bytes at `put.src` are valid until the operation is complete.
    unsafe fn put(&self, put: &PutRequest<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        // SAFETY:
        // - contract of this call.
        unsafe { self.below()?.put(put, flags, context) }
    }

    /// Reads.
    ///
    /// # Safety
    /// `get.len` bytes at `get.dst` are valid for writes until the operation is complete.
    unsafe fn get(&self, get: &GetRequest<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        // SAFETY:
        // - contract of this call.
        unsafe { self.below()?.get(get, flags, context) }
    }

    /// Sets a notification word.
    fn notify(&self, notice: Notice<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        self.below()?.notify(notice, flags, context)
    }

    /// Whether [`put`](Channel::put) takes such a notice. If not, it gives [`Error::Unsupported`], and the engine posts the notice after the data.
    fn notifies(&self, notice: &Notice<'_>) -> bool {
        let _ = notice;
        true
    }

    /// Posts an unsignaled put, then its notice if it has one, after all earlier operations of the channel to that peer. It has no completion: see
    /// [`quick_pending`](Channel::quick_pending) and [`quick_failure`](Channel::quick_failure). False: nothing has been done, and the signaled call gives the
    /// reason.
    ///
    /// # Safety
    /// `put.len` bytes at `put.src` are valid.
    unsafe fn put_unsignaled(&self, put: &UnsignaledPut<'_>) -> bool {
        let _ = put;
        false
    }

    /// Begins a batch to the owner of `to`. Until the batch [ends](Channel::end_batch), the network may hold back posted operations, and send them with one
    /// call.
    fn begin_batch(&self, to: &RemoteRegion) {
        if let Ok(below) = self.below() {
            below.begin_batch(to);
        }
    }

    /// Ends a batch. `more`: another batch follows soon. Held-back operations may then stay until another operation to the peer is posted, or until a thread
    /// waits.
    fn end_batch(&self, to: &RemoteRegion, more: bool) {
        if let Ok(below) = self.below() {
            below.end_batch(to, more);
        }
    }

    /// Number of peers with unsignaled operations that may be in flight. A [`poll`](Channel::poll) may lower it.
    fn quick_pending(&self) -> usize {
        self.below().map_or(0, Channel::quick_pending)
    }

    /// Takes a failure of the unsignaled operations to a peer that has not been reported yet.
    fn quick_failure(&self) -> Option<Error> {
        self.below().ok()?.quick_failure()
    }

    /// Carries out an atomic operation on the elements at `dst`. `desc` names the registration of the result, as in [`Local`](crate::op::Local). Operand and
    /// comparand are read in the call.
    ///
    /// # Safety
    /// The request's pointers are valid as [`AtomicRequest`] requires.
    unsafe fn atomic(
        &self,
        dst: Remote<'_>,
        request: &AtomicRequest,
        desc: u64,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        // SAFETY:
        // - contract of this call.
        unsafe { self.below()?.atomic(dst, request, desc, flags, context) }
    }

    /// Delivers `record`. All parts of the inbox belong to one peer. The ring is chosen when the record arrives. Errors: [`Error::InboxFull`]; the overflow
    /// word of the inbox has then been set.
    fn deliver(
        &self,
        inbox: Inbox<'_>,
        record: Record,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        self.below()?.deliver(inbox, record, flags, context)
    }

    /// Whether the channel keeps [`Flags::CHAINED`].
    fn chains(&self) -> bool {
        self.below().is_ok_and(Channel::chains)
    }

    /// Whether the channel offers [`put_deliver`](Channel::put_deliver).
    fn carries(&self) -> bool {
        self.below().is_ok_and(Channel::carries)
    }

    /// Writes at most [`LONGEST_MESSAGE`] bytes without a notice. They are read in the call. Then delivers `record` to the same peer, once the bytes are
    /// visible. Errors: as for both. [`Error::InboxFull`]: the bytes have been written. [`Error::Unsupported`]: the network does not do both at once, and the
    /// caller delivers the record after the data.
    ///
    /// # Safety
    /// `put.len` bytes at `put.src` are valid.
    unsafe fn put_deliver(
        &self,
        put: &PutRequest<'_>,
        inbox: Inbox<'_>,
        record: Record,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        // SAFETY:
        // - contract of this call.
        unsafe {
            self.below()?
                .put_deliver(put, inbox, record, flags, context)
        }
    }

    /// Sends `message` to the [`Handler`] of the region at `to`. The bytes are read in the call. If flagged, the message follows the data of earlier
    /// operations. Completion: the handler has taken the message, and `reply` has the answer, as much as fits. Errors: [`Error::Refused`];
    /// [`Error::Unsupported`] if the region has no handler; [`Error::InvalidArgument`] for more than [`LONGEST_MESSAGE`] bytes.
    fn active_message(
        &self,
        to: Remote<'_>,
        message: &[u8],
        reply: ReplyBuffer,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        self.below()?
            .active_message(to, message, reply, flags, context)
    }

    /// Makes progress, and reports completions.
    fn poll(&self, sink: &mut dyn FnMut(Completion)) {
        if let Ok(below) = self.below() {
            below.poll(sink);
        }
    }

    /// As [`poll`](Channel::poll), for a caller that waits for none of the completions. The channel need not ask peers now for the completion of
    /// [gathered](Flags::GATHERED) operations.
    fn report(&self, sink: &mut dyn FnMut(Completion)) {
        match self.below() {
            Ok(below) => below.report(sink),
            Err(_) => self.poll(sink),
        }
    }

    /// Number of operations that were [`Outcome::Pending`] and have not been reported.
    fn pending(&self) -> usize {
        self.below().map_or(0, Channel::pending)
    }
}

/// The error of a backend that cannot register user memory.
pub(crate) fn no_user_memory(name: &str) -> Error {
    Error::InvalidArgument(format!(
        "the {name} backend cannot register memory of the user; allocate it through the library"
    ))
}

/// For channels: checks that the word of a notice may be written. Errors: as [`RemoteRegion::check`]; [`Error::Misaligned`].
pub fn check_notice(notice: &Notice<'_>) -> Result<()> {
    let Remote { region, offset } = notice.slot;
    region.check(offset, 4, Rights::WRITE)?;
    match offset.is_multiple_of(4) {
        true => Ok(()),
        false => Err(Error::Misaligned(4)),
    }
}

/// For channels: checks that records may be delivered to `ring`. Errors: as [`RemoteRegion::check`].
pub fn check_inbox(ring: &RemoteRegion) -> Result<()> {
    let for_records = ring.parts().rights & Rights::RECORDS;
    let need = if for_records.is_empty() {
        Rights::WRITE
    } else {
        for_records
    };
    ring.check(0, ring.len(), need)
}

/// For channels: checks that an active message may be sent. The region must be writable in some way. Errors: as [`RemoteRegion::check`];
/// [`Error::AccessDenied`]; [`Error::InvalidArgument`].
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
