//! Requests to the agent.

use std::sync::atomic::Ordering;

use unipgas_core::transport::LONGEST_MESSAGE;
use unipgas_core::{AtomicOp, AtomicType, Rights};

use super::{By, free_orphans, serve_all};
use crate::control::{MESSAGE, POSTED, RegionKind, SlotEntry};
use crate::pool::MemoryPool;
use crate::registration::RegistrationState;

/// Bytes of a record: slot and generation, offset, kind, operand, comparand.
const RECORD: usize = 88;

/// Requests, one behind the other, to an agent with three regions.
pub(crate) fn asked(bytes: &[u8]) {
    let mut memory = [7u64; 48];
    let home = RegistrationState::new(MemoryPool::create(1).expect("a pool"), false);
    let control = home.pool.view().control();
    let base = memory.as_mut_ptr().wrapping_add(16);
    for (slot, (rights, len)) in [
        (Rights::FULL, 128),
        (Rights::READ, 100),
        (Rights::FULL | Rights::EXCLUSIVE, 128),
    ]
    .into_iter()
    .enumerate()
    {
        control.slots[slot].open(SlotEntry {
            kind: RegionKind::Private,
            rights,
            offset: 0,
            len,
            address: base.expose_provenance() as u64,
        });
    }
    control.slots_used.store(3, Ordering::Relaxed);
    let records = bytes.chunks_exact(RECORD);
    for (request, record) in control.requests.iter().zip(records) {
        let words: [u64; RECORD / 8] = bytemuck::pod_read_unaligned(record);
        request.slot.store(words[0] as u32, Ordering::Relaxed);
        let generation = (words[0] >> 32) as u32;
        request.generation.store(generation, Ordering::Relaxed);
        request.offset.store(words[1], Ordering::Relaxed);
        request.what.store(words[2], Ordering::Relaxed);
        let operands = request.operand.iter().chain(&request.compare);
        for (place, word) in operands.zip(&words[3..]) {
            place.store(*word, Ordering::Relaxed);
        }
        request.requester.store(words[10] as u32, Ordering::Relaxed);
        request.state.store(POSTED, Ordering::Relaxed);
    }
    let _ = serve_all(&home, By::Waiter);
    let _ = serve_all(&home, By::Driver);
    free_orphans(control);
    drop(home);
    let beside = memory[..16].iter().chain(&memory[32..]);
    assert!(beside.copied().all(|word| word == 7));
}

pub(crate) fn all_requests() -> Vec<Vec<u8>> {
    let record = |slot: u64, what: u64| {
        let words = [slot | 1 << 32, 16, what, 1, 2, 3, 4, 5, 6, 7, 8];
        bytemuck::cast_slice::<u64, u8>(&words).to_vec()
    };
    let atomic = |op: AtomicOp, ty: AtomicType| op as u64 | (ty as u64) << 8;
    let each = [
        record(0, atomic(AtomicOp::Sum, AtomicType::U64)),
        record(1, atomic(AtomicOp::Cswap, AtomicType::U32)),
        record(2, atomic(AtomicOp::Prod, AtomicType::ComplexF64)),
        record(0, MESSAGE + 40),
        record(2, MESSAGE + LONGEST_MESSAGE as u64),
    ];
    let all = each.concat();
    each.into_iter().chain([all]).collect()
}
