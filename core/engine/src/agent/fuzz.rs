//! Active messages to memory of this process, as from networks that execute all other operations themselves.

use std::sync::Arc;

use super::{Serving, atomic, programs};
use crate::fenced::Fenced;
use crate::loopback::{Loopback, LoopbackNet};
use crate::op::{AtomicRequest, Flags};
use crate::transport::{Handler, Transport};
use crate::{AtomicOp, AtomicType, Rights};

/// `bytes`: an offset of 8 bytes, then a message.
pub(crate) fn active(bytes: &[u8]) {
    let Some((offset, message)) = bytes.split_first_chunk() else {
        return;
    };
    let transport: Arc<dyn Transport> = Arc::new(Loopback::join(&Arc::new(LoopbackNet::default())));
    for rights in [Rights::FULL, Rights::FULL | Rights::EXCLUSIVE, Rights::READ] {
        let mut memory = Fenced::new(100);
        // SAFETY:
        // - the memory outlives `serving`.
        let serving = unsafe { Serving::new(memory.base(), memory.len(), rights, &transport) };
        let mut reply = Vec::new();
        let _ = serving.is_plain(message);
        let _ = serving.handle(u64::from_le_bytes(*offset) as usize, message, &mut reply);
        drop(serving);
        memory.check();
    }
}

pub(crate) fn messages() -> Vec<Vec<u8>> {
    static WORDS: [u64; 4] = [3; 4];
    let kinds = [
        (AtomicOp::Sum, AtomicType::U64, 4),
        (AtomicOp::Cswap, AtomicType::U32, 2),
        (AtomicOp::Read, AtomicType::F64, 3),
        (AtomicOp::Prod, AtomicType::ComplexF32, 1),
    ];
    let atomics = kinds.map(|(op, ty, count)| {
        let operands = WORDS.as_ptr().cast();
        let request = AtomicRequest {
            op,
            ty,
            count,
            operand: operands,
            compare: operands,
            result: std::ptr::dangling_mut(),
        };
        // SAFETY:
        // - each operand array has 32 bytes, and no request needs more. The call does not use the result.
        unsafe { atomic(&request, Flags::WAKE) }
    });
    let all = atomics.into_iter().chain([programs(b"text")]);
    all.map(|message| [&8u64.to_le_bytes()[..], &message].concat())
        .collect()
}
