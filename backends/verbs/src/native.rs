//! Atomic operations that the device carries out: addition, reading and compare-and-swap of 8 bytes. Where it says that processors are atomic with it
//! (IBV_ATOMIC_GLOB), the owner's agent carries out the others by its processor. A device that is atomic with itself alone (IBV_ATOMIC_HCA) is the only
//! executor of regions that have [`Rights::DEVICE`](unipgas_core::region::Rights::DEVICE), and has no part in others. So all operations on a word are
//! atomic with each other, whoever asks.

use std::sync::Arc;

use unipgas_core::op::AtomicRequest;
use unipgas_core::region::Rights;
use unipgas_core::streams::{Own, Ticket};
use unipgas_core::{AtomicOp, AtomicType, Result};
use unipgas_verbs_sys::*;

use crate::connection::Connection;
use crate::device::{Device, Mr};
use crate::posting::{Ends, write};
use unipgas_core::pages::Pages;

/// A word that the device changes.
pub const WORD: usize = size_of::<u64>();

/// Where results go that nobody wants.
pub struct Nowhere {
    // Deregistered before the memory goes.
    mr: Mr,
    word: Pages,
}

impl Nowhere {
    /// Registers a place. Errors: those of [`Device::register`].
    pub fn new(device: &Arc<Device>) -> Result<Self> {
        let word = Pages::new(WORD)?;
        // SAFETY:
        // - the memory goes after the registration, and nobody else looks at it.
        let mr = unsafe { device.register(word.base(), WORD, Rights::empty(), true) }?;
        Ok(Nowhere { mr, word })
    }

    /// Where it is, and what the device calls that.
    pub fn place(&self) -> (u64, u32) {
        (self.word.base().expose_provenance() as u64, self.mr.lkey())
    }
}

/// What a device is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Add(u64),
    CompareSwap(u64, u64),
}

/// An operation on a word of a peer's.
pub struct Atomic {
    what: What,
    /// The word, and the key of its memory.
    at: (u64, u32),
    /// Where its old value goes, and what the device calls that.
    into: (u64, u32),
    /// After what was read before.
    fence: bool,
}

impl Atomic {
    /// `None`: devices do not do that.
    ///
    /// # Safety
    /// The request's pointers are valid as [`AtomicRequest`] says.
    pub unsafe fn of(
        request: &AtomicRequest,
        at: (u64, u32),
        into: (u64, u32),
        fence: bool,
    ) -> Option<Self> {
        let whole = matches!(request.ty, AtomicType::I64 | AtomicType::U64)
            && request.count == 1
            && at.0.is_multiple_of(WORD as u64);
        if !whole {
            return None;
        }
        // SAFETY:
        // - where an operation has operands there is one of 8 bytes (the caller's word).
        let read = |from: *const u8| unsafe { from.cast::<u64>().read_unaligned() };
        let what = match request.op {
            AtomicOp::Sum => What::Add(read(request.operand)),
            AtomicOp::Read => What::Add(0),
            AtomicOp::Cswap => What::CompareSwap(read(request.compare), read(request.operand)),
            _ => return None,
        };
        Some(Atomic {
            what,
            at,
            into,
            fence,
        })
    }
}

impl Own for Atomic {
    fn post(&mut self, ticket: Ticket) -> Result<()> {
        let link = ticket.link().clone();
        let mut place = ibv_sge {
            addr: self.into.0,
            length: WORD as u32,
            lkey: self.into.1,
        };
        let mut request = write(&mut place, self.at);
        let (opcode, first, second) = match self.what {
            What::Add(operand) => (IBV_WR_ATOMIC_FETCH_AND_ADD, operand, 0),
            What::CompareSwap(old, new) => (IBV_WR_ATOMIC_CMP_AND_SWP, old, new),
        };
        request.opcode = opcode;
        request.wr = wr_union {
            remote_addr: self.at.0,
            rkey_or_compare_add: first,
            swap: second,
            atomic_rkey: self.at.1,
        };
        if self.fence {
            request.send_flags = IBV_SEND_FENCE;
        }
        let connection = Connection::of(&link);
        // SAFETY:
        // - the result's place is valid until the operation is complete (contract of the operation).
        unsafe { connection.post(&mut [request], false, Ends::Access(ticket)) }
    }
}
