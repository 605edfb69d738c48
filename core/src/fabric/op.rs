//! What an operation is made of: its two ends, its flags, its outcome.

use crate::atomic::{AtomicOp, AtomicType};
use crate::{RemoteRegion, Result};

bitflags::bitflags! {
    /// How an operation is to be carried out.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Flags: u32 {
        /// After all earlier operations of this endpoint to the same peer are visible there
        /// (GASPI 17.1 §8.3.2: a notification does not overtake earlier writes of its queue).
        const ORDERED = 1;
        /// The source bytes are taken before the call returns; the caller may change them at once.
        const INLINE = 2;
        /// Sleepers of the target are woken even though the operation carries no notice.
        const WAKE = 4;
        /// Of every line of the destination ([`LINE`](crate::lines::LINE) bytes), and of its parts at both ends, the last aligned word
        /// becomes visible after the other bytes (uTofu guide §2.2.10). Of puts and gets.
        const LINES = 8;
        /// Its end may be reported together with those of others to that peer that have the same context, when somebody
        /// [polls](crate::transport::Channel::poll). Of puts and notices whose bytes are [`INLINE`](Flags::INLINE), and whose context is below 2^63.
        const GATHERED = 16;
        /// The end of a notice says that whoever reads its word, from wherever, finds it set (FI_DELIVERY_COMPLETE). Without, that it has reached the
        /// target, whose owner will find it.
        const DELIVERED = 32;
        /// A record is delivered only if the one before it was, of those from this channel to that inbox: once one has been refused for want of room, all with this
        /// flag are, until one without it is delivered. So many can be under way, and those that are refused can be delivered again in their order. Where the
        /// network [keeps chains](crate::transport::Channel::chains).
        const CHAINED = 64;
        /// Who waits for its end, within a time, polls for it, also where a route ends all operations in their calls. Of messages and atomic operations that a
        /// peer has to carry out.
        const AWAITED = 128;
    }
}

/// Memory of this process, as the source or destination of an operation.
///
/// The bytes must stay valid, and a destination unused, until the operation is complete.
#[derive(Debug, Clone, Copy)]
pub struct Local {
    /// First byte.
    pub ptr: *mut u8,
    /// Names the registration ([`Region::local`](crate::Region::local)); 0 where no backend needs that. Backends get their own
    /// descriptor here ([`Memory::desc`](crate::region::Memory::desc)).
    pub desc: u64,
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
    /// Whether the place is aligned, as far as this process knows: by its address where it is mapped, else by its offset.
    pub fn offset_is_multiple_of(&self, size: usize) -> bool {
        (self.region.parts().base as usize)
            .wrapping_add(self.offset)
            .is_multiple_of(size)
    }
}

/// Where records go.
#[derive(Debug, Clone, Copy)]
pub struct Inbox<'a> {
    /// The ring that is filled first.
    pub first: &'a RemoteRegion,
    /// The ring for what the first one has no room for. What is in it is never overtaken: until it has been emptied, all goes there.
    pub second: Option<&'a RemoteRegion>,
    /// A word of 4 bytes that becomes 1 when a record finds no room at all: so its owner learns of that.
    pub overflow: Option<Remote<'a>>,
}

impl<'a> From<&'a RemoteRegion> for Inbox<'a> {
    /// One ring, and nobody is told when it is full.
    fn from(first: &'a RemoteRegion) -> Self {
        Inbox {
            first,
            second: None,
            overflow: None,
        }
    }
}

/// A notification: the u32 at `slot` becomes `value`, and whoever waits there is woken.
#[derive(Debug, Clone, Copy)]
pub struct Notice<'a> {
    /// A word of 4 bytes, aligned.
    pub slot: Remote<'a>,
    /// Its new value.
    pub value: u32,
}

/// A put for [`Channel::put_quick`](crate::transport::Channel::put_quick).
#[derive(Debug, Clone, Copy)]
pub struct QuickPut<'a> {
    /// So many bytes, taken in the call.
    pub src: *const u8,
    /// How many; with none the notice is all.
    pub len: usize,
    /// Where they go.
    pub dst: Remote<'a>,
    /// What follows them.
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
    /// Where the previous values go (`count` elements, valid until completion), or null.
    pub result: *mut u8,
}

impl AtomicRequest {
    /// Whether a region whose atomic operations are confined to words takes it. Errors: [`Error::Unsupported`](crate::Error::Unsupported).
    pub(crate) fn check_word(&self) -> Result<()> {
        let of_word = self.count == 1 && matches!(self.ty, AtomicType::U64 | AtomicType::I64);
        match self.op {
            AtomicOp::Sum | AtomicOp::Read | AtomicOp::Cswap if of_word => Ok(()),
            _ => Err(crate::Error::Unsupported),
        }
    }
}

/// Where the answer to an active message goes.
#[derive(Debug, Clone, Copy)]
pub struct Reply {
    into: *mut u8,
    room: usize,
}

// SAFETY:
// - valid on any thread by the word of `new`'s caller.
unsafe impl Send for Reply {}

impl Reply {
    /// Nobody wants one.
    pub const NONE: Reply = Reply {
        into: std::ptr::null_mut(),
        room: 0,
    };

    /// # Safety
    /// `room` bytes at `into` are valid for writes until the operation is complete.
    pub unsafe fn new(into: *mut u8, room: usize) -> Self {
        Reply { into, room }
    }

    /// The most bytes that are taken.
    pub fn room(&self) -> usize {
        self.room
    }

    /// For backends, before the operation is complete: this is the answer.
    pub fn take(self, answer: &[u8]) {
        let len = answer.len().min(self.room);
        // SAFETY:
        // - valid by the word of `new`'s caller; the answer is somebody else's.
        unsafe { crate::copy(answer.as_ptr(), self.into, len) };
    }
}

/// How far an operation has come when its call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Done: the source may be reused, results are there. No completion will follow.
    Complete,
    /// Under way: a [`Completion`] with the call's context will follow.
    Pending,
}

/// The end of an operation that was [`Outcome::Pending`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// The context given with the operation.
    pub context: u64,
    /// Success, or why nothing (more) was written.
    pub result: Result<()>,
}
