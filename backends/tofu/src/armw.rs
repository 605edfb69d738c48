//! Atomic operations that the TNI at the target carries out: on one element of 4 or 8 bytes, by additions, bitwise operations, exchanges and compare-and-swap.
//! Processors are atomic with it (guide §2.2.5), so the owner's agent carries out the others by its processor.

use unipgas_core::op::AtomicRequest;
use unipgas_core::streams::{Own, Ticket};
use unipgas_core::{AtomicOp, AtomicType, Result};
use unipgas_utofu_sys::*;

use crate::conversation::Conversation;
use crate::lanes::{Ends, Landing, Lane};
use crate::net::data_of;
use crate::vcq::Armw;

/// What a TNI is to do, unless it cannot. `caps`: what it can.
///
/// # Safety
/// The request's pointers are valid as [`AtomicRequest`] says.
pub unsafe fn command(request: &AtomicRequest, caps: &utofu_onesided_caps) -> Option<Armw> {
    if request.count != 1 || caps.flags & UTOFU_ONESIDED_CAP_FLAG_ARMW == 0 {
        return None;
    }
    let (op, cap) = match request.op {
        AtomicOp::Sum => (UTOFU_ARMW_OP_ADD, UTOFU_ONESIDED_CAP_ARMW_OP_ADD),
        AtomicOp::Read => (UTOFU_ARMW_OP_ADD, UTOFU_ONESIDED_CAP_ARMW_OP_ADD),
        AtomicOp::Bxor => (UTOFU_ARMW_OP_XOR, UTOFU_ONESIDED_CAP_ARMW_OP_XOR),
        AtomicOp::Band => (UTOFU_ARMW_OP_AND, UTOFU_ONESIDED_CAP_ARMW_OP_AND),
        AtomicOp::Bor => (UTOFU_ARMW_OP_OR, UTOFU_ONESIDED_CAP_ARMW_OP_OR),
        AtomicOp::Write => (UTOFU_ARMW_OP_SWAP, UTOFU_ONESIDED_CAP_ARMW_OP_SWAP),
        AtomicOp::Cswap => (0, UTOFU_ONESIDED_CAP_ARMW_OP_CSWAP),
        _ => return None,
    };
    if caps.armw_ops & cap == 0 {
        return None;
    }
    let reads = request.op == AtomicOp::Read;
    // SAFETY:
    // - where an operation has operands there is one of the type (the caller's word).
    let four = |from: *const u8| unsafe { from.cast::<u32>().read_unaligned() };
    // SAFETY:
    // - as above.
    let eight = |from: *const u8| unsafe { from.cast::<u64>().read_unaligned() };
    Some(match request.ty {
        AtomicType::I32 | AtomicType::U32 => match request.op {
            AtomicOp::Cswap => Armw::Swap4(four(request.compare), four(request.operand)),
            _ if reads => Armw::Change4(op, 0),
            _ => Armw::Change4(op, four(request.operand)),
        },
        AtomicType::I64 | AtomicType::U64 => match request.op {
            AtomicOp::Cswap => Armw::Swap8(eight(request.compare), eight(request.operand)),
            _ if reads => Armw::Change8(op, 0),
            _ => Armw::Change8(op, eight(request.operand)),
        },
        _ => return None,
    })
}

/// An operation on an element of a peer's.
pub struct Atomic {
    /// By which it goes.
    pub lane: std::sync::Arc<Lane>,
    /// What is done.
    pub what: Armw,
    /// The element.
    pub at: u64,
    /// Where its old value goes.
    pub into: Option<Landing>,
}

impl Own for Atomic {
    fn post(&mut self, ticket: Ticket) -> Result<()> {
        let link = ticket.link().clone();
        let to = &*Conversation::of(&link).target;
        let Atomic {
            lane,
            what,
            at,
            into,
        } = self;
        let flags = UTOFU_ONESIDED_FLAG_STRONG_ORDER;
        lane.post(
            &mut lane.queue(),
            to,
            |vcq, notice| vcq.armw(to.route, *at, what, flags | notice, data_of(to)),
            || match *into {
                None => Ends::Access(ticket),
                Some(landing) => Ends::Value(ticket, landing),
            },
        )
    }
}
