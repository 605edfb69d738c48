//! Visibility of a put to a program that polls its memory (uTofu guide §2.2.10, §6.1.3.1). Within one cache line, and in a strongly ordered put of any length,
//! the end becomes visible after all earlier bytes. In other puts, the end of each line becomes visible after the rest of that line.
//!
//! Transports that complete in the call write lines in ascending order, so [`Flags::LINES`] is sufficient. Other transports may write lines in any order.
//! There, an end that must be last is a second operation.

use unipgas_base::lines::{LINE, last_word, rest_of_line};
use unipgas_engine::Flags;

/// The two operations of a transfer of `len` bytes to `address`, on a transport that reorders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// Bytes of the first operation.
    pub first: usize,
    /// Additional flags of the first operation.
    pub lines: Flags,
    /// Bytes at the end that follow the first operation. 0: one operation is sufficient.
    pub last: usize,
}

impl Cut {
    pub(crate) fn of(address: usize, len: usize, ordered: bool) -> Self {
        let word = last_word(address, len);
        // A transfer of one word needs no second operation.
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
