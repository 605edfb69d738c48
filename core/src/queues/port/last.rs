//! What a program sees that waits for a put by polling its memory (uTofu guide §2.2.10, §6.1.3.1): of data within one cache line, and
//! of a strongly ordered put of any length, the end becomes visible after everything before it; of other data the end of each line
//! after that line.
//!
//! Transports that complete in the call do all of it by [`Flags::LINES`], since they go through the lines in ascending order. Others may
//! write lines in any order: an end that must come last is an operation of its own.

use crate::Flags;
use crate::lines::{LINE, last_word, rest_of_line};

/// How a transfer of `len` bytes to `address` is cut on a transport that reorders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// Bytes of the first operation.
    pub first: usize,
    /// What it asks for in addition.
    pub lines: Flags,
    /// Bytes at the end that come after the first operation; 0 where that is enough by itself.
    pub last: usize,
}

impl Cut {
    pub fn of(address: usize, len: usize, ordered: bool) -> Self {
        let word = last_word(address, len);
        // A word that is all there is goes as one anyway.
        let apart = (len > word) & (ordered | (len <= LINE));
        let last = if apart { word } else { 0 };
        let first = len - last;
        let lines = if first > rest_of_line(address) {
            Flags::LINES
        } else {
            Flags::empty()
        };
        Cut { first, lines, last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_an_aligned_word_and_lines_are_asked_for_where_there_are_several() {
        for address in 0..300 {
            for len in 0..600 {
                for ordered in [false, true] {
                    let cut = Cut::of(address, len, ordered);
                    assert_eq!(cut.first + cut.last, len);
                    if cut.last == 0 {
                        let word = matches!(len, 0 | 1 | 2 | 4 | 8) && address % len.max(1) == 0;
                        assert!(word || len > LINE && !ordered, "{address} {len}");
                    } else {
                        assert!(matches!(cut.last, 1 | 2 | 4 | 8) && cut.first > 0);
                        assert!((address + len).is_multiple_of(cut.last));
                    }
                    let several =
                        cut.first > 0 && address / LINE < (address + cut.first - 1) / LINE;
                    assert_eq!(cut.lines == Flags::LINES, several, "{address} {len}");
                }
            }
        }
        let cut = |address, len, ordered| Cut::of(address, len, ordered).last;
        assert_eq!((cut(0, 256, false), cut(0, 257, true)), (8, 1));
        assert_eq!(
            (cut(0, 300, true), cut(0, 300, false), cut(1, 8, false)),
            (4, 0, 1)
        );
    }
}
