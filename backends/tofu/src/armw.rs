//! Atomic operations that the target's TNI carries out: on one element of 4 or 8 bytes, by addition, bitwise operations, exchange, and
//! compare-and-swap. They are atomic with processors (guide §2.2.5), so the owner's agent carries out other operations by its processor.

use unipgas_core::op::AtomicRequest;
use unipgas_core::streams::{NetworkOp, Ticket};
use unipgas_core::{AtomicOp, AtomicType, Result};
use unipgas_utofu_sys::*;

use crate::conversation::TofuStream;
use crate::lanes::{PendingWork, ResultSlot, VcqLane};
use crate::net::data_of;
use crate::vcq::Armw;

/// The TNI operation for `request`. `None`: the TNI lacks it. `caps`: capabilities of the TNI.
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
    // - contract of this call: an operation with operands has one of its type.
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

/// An operation on an element of a peer.
pub(crate) struct ArmwRequest {
    /// The lane that posts it.
    pub lane: std::sync::Arc<VcqLane>,
    /// The operation.
    pub what: Armw,
    /// STADD of the element.
    pub at: u64,
    /// Place for its old value.
    pub into: Option<ResultSlot>,
}

impl NetworkOp for ArmwRequest {
    fn post(&mut self, ticket: Ticket) -> Result<()> {
        let link = ticket.link().clone();
        let to = &*TofuStream::of(&link).target;
        let ArmwRequest {
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
                None => PendingWork::Access(ticket),
                Some(landing) => PendingWork::Value(ticket, landing),
            },
        )
    }
}
