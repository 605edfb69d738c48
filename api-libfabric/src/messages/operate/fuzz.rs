//! Requests of peers to operate on a buffer.

use bytemuck::bytes_of;
use unipgas_core::AtomicOp::{Cswap, Read, Sum};

use super::{FAMILIES, Request, carry_out, read};

/// Numbers of `enum fi_datatype`.
const UINT32: i32 = 5;
const UINT64: i32 = 7;
const DOUBLE: i32 = 9;

/// Words before and behind the buffer.
const FENCE: usize = 16;
const WORDS: usize = 16;

/// A request, and its operands.
pub(crate) fn request(bytes: &[u8]) {
    let Some((request, data)) = read(bytes) else {
        return;
    };
    let mut memory = [7u64; 2 * FENCE + WORDS];
    let buffer = &mut memory[FENCE..FENCE + WORDS];
    if let Ok((results, len)) = carry_out(&request, data, bytemuck::cast_slice_mut(buffer)) {
        assert!(len <= 8 * WORDS);
        assert!(results.is_empty() || results.len() == len);
    }
    let (before, rest) = memory.split_at(FENCE);
    let beside = before.iter().chain(&rest[WORDS..]);
    assert!(beside.copied().all(|word| word == 7));
}

pub(crate) fn requests() -> Vec<Vec<u8>> {
    let kinds = [
        (0, UINT64, Sum, 2, 2),
        (1, DOUBLE, Sum, 1, 1),
        (1, UINT32, Read, 4, 0),
        (2, UINT64, Cswap, 1, 2),
    ];
    let of = |(family, datatype, op, count, words)| {
        assert!((family as usize) < FAMILIES.len());
        let request = Request {
            serial: 9,
            offset: 16,
            count,
            datatype,
            op: op as i32,
            family,
        };
        let operands = vec![3u64; words];
        [bytes_of(&request), bytemuck::cast_slice(&operands)].concat()
    };
    kinds.map(of).to_vec()
}
