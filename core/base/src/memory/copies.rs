//! Checks that all copy functions must pass, for tests.

/// Copies of these lengths move exactly their bytes, with any alignment of both ends.
pub(crate) fn are_exact(
    copy: unsafe fn(*const u8, *mut u8, usize),
    lengths: impl Iterator<Item = usize>,
) {
    for len in lengths {
        for (from, to) in [
            (0, 0),
            (3, 0),
            (0, 7),
            (13, 61),
            (5, 255),
            (63, 16),
            (31, 33),
        ] {
            let src: Vec<u8> = (0..len + from).map(|i| (i * 7 % 251) as u8).collect();
            let mut dst = vec![0xAA; len + to + 64];
            // SAFETY:
            // - both vectors have `len` bytes after the offsets.
            unsafe { copy(src.as_ptr().add(from), dst.as_mut_ptr().add(to), len) };
            assert!(dst[to..to + len] == src[from..], "{len} {from} {to}");
            let mut around = dst[..to].iter().chain(&dst[to + len..]);
            assert!(around.all(|byte| *byte == 0xAA), "{len} {from} {to}");
        }
    }
}

/// Copies of these lengths between overlapping ranges behave as memmove.
pub(crate) fn may_overlap(
    copy: unsafe fn(*const u8, *mut u8, usize),
    lengths: impl Iterator<Item = usize>,
) {
    for len in lengths {
        for (from, to) in [(0, 5), (5, 0), (100, 0), (0, 100), (0, 0), (1, 0)] {
            let mut bytes: Vec<u8> = (0..len + 100).map(|i| (i % 253) as u8).collect();
            let mut expected = bytes.clone();
            expected.copy_within(from..from + len, to);
            let base = bytes.as_mut_ptr();
            // SAFETY:
            // - both ranges are in the vector.
            unsafe { copy(base.add(from), base.add(to), len) };
            assert!(bytes == expected, "{len} {from} {to}");
        }
    }
}
