//! The parts of an operation: its two ends, its flags, its outcome.

use crate::atomic::{AtomicOp, AtomicType};
use crate::{RemoteRegion, Result};

bitflags::bitflags! {
    /// Modifiers of an operation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Flags: u32 {
        /// It takes effect after all earlier operations of this endpoint to the same peer are visible there. GASPI 17.1 §8.3.2: a notification does not
        /// overtake earlier writes of its queue.
        const ORDERED = 1;
        /// The source bytes are read before the call returns, and the caller may change them at once.
        const INLINE = 2;
        /// Wakes sleepers of the target, although the operation carries no notice.
        const WAKE = 4;
        /// In each line of the destination ([`LINE`](crate::lines::LINE) bytes), and in the partial lines at both ends, the last aligned word becomes visible
        /// after the other bytes (uTofu guide §2.2.10). For puts and gets.
        const LINES = 8;
        /// The completion may be reported late: at a [poll](crate::transport::Channel::poll), together with other operations to the same peer with the same
        /// context. For puts and notices with [`INLINE`](Flags::INLINE) bytes and a context below 2^63.
        const GATHERED = 16;
        /// Completion of a notice means that each reader of its word, in any process, finds it set (FI_DELIVERY_COMPLETE). Without the flag it means that the
        /// notice has reached the target, and that the word's owner will find it.
        const DELIVERED = 32;
        /// A record is delivered only if the previous record of this channel to that inbox was. After a refusal for lack of room, all records with this flag
        /// are refused until a record without it is delivered. So several can be in flight, and the caller can deliver the refused ones again in order. Valid
        /// if the network [keeps chains](crate::transport::Channel::chains).
        const CHAINED = 64;
        /// The caller polls for the completion, and has a timeout. The operation may then be pending, even on a route that otherwise completes all operations
        /// in their calls. For messages and atomic operations that a peer carries out.
        const AWAITED = 128;
    }
}

/// Memory of this process: the source or destination of an operation.
///
/// The bytes stay valid, and a destination unused, until the operation is complete.
#[derive(Debug, Clone, Copy)]
pub struct Local {
    /// First byte.
    pub ptr: *mut u8,
    /// Names the registration ([`Region::local`](crate::Region::local)); 0 if no backend needs one. Backends get their own descriptor here
    /// ([`Memory::desc`](crate::region::Memory::desc)).
    pub desc: u64,
}

impl Local {
    /// Memory that no backend has registered.
    #[inline(always)]
    pub const fn unregistered(ptr: *const u8) -> Self {
        Local {
            ptr: ptr.cast_mut(),
            desc: 0,
        }
    }
}

/// A place in a peer's region.
#[derive(Debug, Clone, Copy)]
pub struct Remote<'a> {
    /// The region.
    pub region: &'a RemoteRegion,
    /// Bytes from its beginning.
    pub offset: usize,
}

impl Remote<'_> {
    /// Whether the place is aligned, as far as this process knows. It uses the address of a mapped region, else the offset.
    pub fn offset_is_multiple_of(&self, size: usize) -> bool {
        (self.region.parts().base as usize)
            .wrapping_add(self.offset)
            .is_multiple_of(size)
    }
}

/// The target of records.
#[derive(Debug, Clone, Copy)]
pub struct Inbox<'a> {
    /// The ring that is filled first.
    pub first: &'a RemoteRegion,
    /// The ring for records that do not fit in the first ring. Its records are never overtaken: until it is empty, all records go there.
    pub second: Option<&'a RemoteRegion>,
    /// A word of 4 bytes that becomes 1 when no ring has room for a record. The owner reads it.
    pub overflow: Option<Remote<'a>>,
}

impl<'a> From<&'a RemoteRegion> for Inbox<'a> {
    /// One ring. Its owner does not learn when it is full.
    fn from(first: &'a RemoteRegion) -> Self {
        Inbox {
            first,
            second: None,
            overflow: None,
        }
    }
}

/// A notification: the u32 at `slot` becomes `value`, and threads that wait there wake up.
#[derive(Debug, Clone, Copy)]
pub struct Notice<'a> {
    /// A word of 4 bytes, aligned.
    pub slot: Remote<'a>,
    /// Its new value.
    pub value: u32,
}

/// A put.
#[derive(Debug, Clone, Copy)]
pub struct PutRequest<'a> {
    /// First of `len` bytes of this process.
    pub src: Local,
    /// The destination.
    pub dst: Remote<'a>,
    /// Length in bytes.
    pub len: usize,
    /// The notice that is visible after the bytes.
    pub notice: Option<Notice<'a>>,
}

impl<'a> PutRequest<'a> {
    /// A put without a notice.
    #[inline(always)]
    pub fn new(src: Local, dst: Remote<'a>, len: usize) -> Self {
        PutRequest {
            src,
            dst,
            len,
            notice: None,
        }
    }

    /// The same put with a notice.
    #[inline(always)]
    pub fn with(self, notice: Notice<'a>) -> Self {
        PutRequest {
            notice: Some(notice),
            ..self
        }
    }
}

/// A get.
#[derive(Debug, Clone, Copy)]
pub struct GetRequest<'a> {
    /// Destination of `len` bytes in this process.
    pub dst: Local,
    /// The source.
    pub src: Remote<'a>,
    /// Length in bytes.
    pub len: usize,
}

impl<'a> GetRequest<'a> {
    /// A get of `len` bytes.
    #[inline(always)]
    pub fn new(dst: Local, src: Remote<'a>, len: usize) -> Self {
        GetRequest { dst, src, len }
    }
}

/// A put for [`Channel::put_unsignaled`](crate::transport::Channel::put_unsignaled).
#[derive(Debug, Clone, Copy)]
pub struct UnsignaledPut<'a> {
    /// First of `len` bytes, read in the call.
    pub src: *const u8,
    /// Length in bytes; 0: only the notice is posted.
    pub len: usize,
    /// The destination.
    pub dst: Remote<'a>,
    /// The notice after the bytes.
    pub notice: Option<Notice<'a>>,
}

/// One atomic operation on `count` consecutive elements.
#[derive(Debug, Clone, Copy)]
pub struct AtomicRequest {
    /// The operation.
    pub op: AtomicOp,
    /// The element type.
    pub ty: AtomicType,
    /// Number of elements; each is atomic on its own.
    pub count: usize,
    /// `count` operands; read before the call returns.
    pub operand: *const u8,
    /// `count` comparands for the compare-and-swap family; read before the call returns; else unused.
    pub compare: *const u8,
    /// Destination of the previous values (`count` elements, valid until completion), or null.
    pub result: *mut u8,
}

impl AtomicRequest {
    /// Checks that a region with [`Rights::WORDS`](crate::Rights::WORDS) takes it. Errors: [`Error::Unsupported`](crate::Error::Unsupported).
    pub(crate) fn check_word(&self) -> Result<()> {
        let of_word = self.count == 1 && matches!(self.ty, AtomicType::U64 | AtomicType::I64);
        match self.op {
            AtomicOp::Sum | AtomicOp::Read | AtomicOp::Cswap if of_word => Ok(()),
            _ => Err(crate::Error::Unsupported),
        }
    }
}

/// Destination of the reply to an active message.
#[derive(Debug, Clone, Copy)]
pub struct ReplyBuffer {
    into: *mut u8,
    room: usize,
}

// SAFETY:
// - contract of `new`: `into` is valid until the operation is complete, on each thread.
unsafe impl Send for ReplyBuffer {}

impl ReplyBuffer {
    /// The caller wants no reply.
    pub const NONE: ReplyBuffer = ReplyBuffer {
        into: std::ptr::null_mut(),
        room: 0,
    };

    /// # Safety
    /// `room` bytes at `into` are valid for writes until the operation is complete.
    pub unsafe fn new(into: *mut u8, room: usize) -> Self {
        ReplyBuffer { into, room }
    }

    /// Room for the reply in bytes.
    pub fn room(&self) -> usize {
        self.room
    }

    /// For backends: writes the reply, as much as fits. Called before the operation is complete.
    pub fn take(self, answer: &[u8]) {
        let len = answer.len().min(self.room);
        // SAFETY:
        // - contract of `new`: `room` bytes at `into` are valid. `answer` is separate memory.
        unsafe { crate::copy(answer.as_ptr(), self.into, len) };
    }
}

/// State of an operation when its call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Done: the source may be reused, results are valid. No completion follows.
    Complete,
    /// In progress: a [`Completion`] with the call's context follows.
    Pending,
}

/// The end of an operation that was [`Outcome::Pending`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// The context given with the operation.
    pub context: u64,
    /// Success, or the reason that nothing (more) was written.
    pub result: Result<()>,
}
