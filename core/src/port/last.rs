//! What a program sees that waits for a put by polling its memory (uTofu guide §2.2.10, §6.1.3.1): of data within one cache line, and
//! of a strongly ordered put of any length, the end becomes visible after everything before it.

/// Bytes of the cache lines that the guide speaks of (its table 6.4).
const LINE: usize = 256;

/// Up to here a copy in line goes from the front to the end.
const ASCENDING: usize = 128;

/// How many bytes at the end of `len` bytes at `address` are to be written by themselves, by a store that cannot be torn, after
/// the others; 0 where one copy is enough. Transports that are not `direct` copy in any order.
#[inline(always)]
pub(super) fn last_bytes(address: usize, len: usize, ordered: bool, direct: bool) -> usize {
    let in_order = direct & (8..=ASCENDING).contains(&len);
    if in_order | (len <= 1) | ((len > LINE) & !ordered) {
        return 0;
    }
    separate(address, len)
}

#[inline(never)]
fn separate(address: usize, len: usize) -> usize {
    let aligned = 1 << (address + len).trailing_zeros().min(3);
    let word = if aligned > len { len } else { aligned };
    // A word that is all there is goes as one anyway.
    if word == len && len.is_power_of_two() {
        return 0;
    }
    1 << word.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_an_aligned_word_that_leaves_something() {
        for address in 0..16 {
            for len in 0..600 {
                for (ordered, direct) in
                    [(false, false), (false, true), (true, false), (true, true)]
                {
                    let last = last_bytes(address, len, ordered, direct);
                    if last == 0 {
                        let word = matches!(len, 0 | 1 | 2 | 4 | 8) && address % len.max(1) == 0;
                        let short = direct && (8..=ASCENDING).contains(&len);
                        assert!(word || short || len > LINE && !ordered, "{address} {len}");
                        continue;
                    }
                    assert!(matches!(last, 1 | 2 | 4 | 8) && last < len);
                    assert!((address + len) % last == 0);
                }
            }
        }
        assert_eq!(last_bytes(0, 256, false, true), 8);
        assert_eq!(last_bytes(0, 257, true, true), 1);
        assert_eq!(last_bytes(0, 300, true, true), 4);
        assert_eq!(last_bytes(0, 300, false, true), 0);
        assert_eq!(last_bytes(1, 8, false, false), 1);
    }
}
