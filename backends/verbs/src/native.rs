//! Atomic operations that the device carries out: addition, read, and compare-and-swap of 8 bytes. If they are atomic with processors (IBV_ATOMIC_GLOB),
//! the owner's agent carries out other operations by its processor. A device with IBV_ATOMIC_HCA is atomic only with itself. It is the only executor for
//! regions with [`Rights::DEVICE`](unipgas_core::Rights::DEVICE), and is not used for other regions. So all operations on a word are atomic with
//! each other, also between peers.

use std::sync::Arc;

use unipgas_core::op::AtomicRequest;
use unipgas_core::streams::{NetworkOp, Ticket};
use unipgas_core::{AtomicOp, AtomicType, Result, Rights};
use unipgas_verbs_sys::*;

use crate::connection::Connection;
use crate::device::{Device, Mr};
use crate::posting::{PostedWork, write};
use unipgas_core::pages::Pages;

/// Bytes of a word that the device can change.
pub const WORD: usize = size_of::<u64>();

/// Memory for results that the caller ignores.
pub(crate) struct Nowhere {
    // First, because it deregisters the memory of the next field.
    mr: Mr,
    word: Pages,
}

impl Nowhere {
    /// Registers the memory. Errors: as [`Device::register`].
    pub fn new(device: &Arc<Device>) -> Result<Self> {
        let word = Pages::new(WORD)?;
        // SAFETY:
        // - the value owns the memory, and drops the registration first. This process never reads it.
        let mr = unsafe { device.register(word.base(), WORD, Rights::empty(), true) }?;
        Ok(Nowhere { mr, word })
    }

    /// Its address and local key.
    pub fn place(&self) -> (u64, u32) {
        (self.word.base().expose_provenance() as u64, self.mr.lkey())
    }
}

/// An operation of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Add(u64),
    CompareSwap(u64, u64),
}

/// An operation on a word of a peer.
pub(crate) struct NativeAtomic {
    what: What,
    /// Address and remote key of the word.
    at: (u64, u32),
    /// Address and local key for its old value.
    into: (u64, u32),
    /// Waits for earlier reads.
    fence: bool,
}

impl NativeAtomic {
    /// Converts a request. `None`: devices lack the operation.
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
        // - contract of this call: an operation with operands has one of 8 bytes.
        let read = |from: *const u8| unsafe { from.cast::<u64>().read_unaligned() };
        let what = match request.op {
            AtomicOp::Sum => What::Add(read(request.operand)),
            AtomicOp::Read => What::Add(0),
            AtomicOp::Cswap => What::CompareSwap(read(request.compare), read(request.operand)),
            _ => return None,
        };
        Some(NativeAtomic {
            what,
            at,
            into,
            fence,
        })
    }
}

impl NetworkOp for NativeAtomic {
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
        // - contract of `Channel::atomic`: the place for the result is valid until completion.
        unsafe { connection.post(&mut [request], false, PostedWork::Access(ticket)) }
    }
}
