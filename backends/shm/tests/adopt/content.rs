//! The content of pages before, during and after adoption.

use rustix::mm::{self, MapFlags};

use crate::memory::{PAGE, adopt, map, map_file, memfd, pages_of, release, unmap};

fn pattern(len: usize) -> impl Iterator<Item = u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
}

#[test]
fn content_is_kept_from_one_byte_to_64_mebibytes() {
    for size in [
        1,
        2,
        PAGE - 1,
        PAGE,
        PAGE + 1,
        3 * PAGE + 5,
        1 << 20,
        (2 << 20) + 17,
        64 << 20,
    ] {
        // An own mapping, with an unaligned start: blocks of other tests must not share its pages.
        let span = size + 2 * PAGE;
        let whole = map(span, MapFlags::PRIVATE);
        // SAFETY:
        // - this test's own mapping, longer than that
        let mine = unsafe { std::slice::from_raw_parts_mut(whole.add(PAGE - 1), size) };
        mine.iter_mut()
            .zip(pattern(size))
            .for_each(|(byte, value)| *byte = value);
        let (first, len) = pages_of(mine.as_ptr(), size);
        let fd = memfd(len + PAGE);
        adopt(&fd, PAGE, first, len).unwrap_or_else(|e| panic!("{size} bytes: {e}"));
        assert!(
            mine.iter().copied().eq(pattern(size)),
            "{size} bytes after adoption"
        );
        let peer = map_file(&fd, PAGE, len);
        // SAFETY:
        // - the file holds the whole pages of the block
        let theirs = unsafe { std::slice::from_raw_parts_mut(peer.add(PAGE - 1), size) };
        assert!(
            theirs.iter().copied().eq(pattern(size)),
            "{size} bytes as the peer sees them"
        );
        theirs[size - 1] ^= 0x55;
        assert_eq!(std::hint::black_box(&*mine)[size - 1], theirs[size - 1]);
        mine[0] ^= 0xAA;
        assert_eq!(mine[0], std::hint::black_box(&*theirs)[0]);
        release(&fd, PAGE, first, len).unwrap_or_else(|e| panic!("{size} bytes: {e}"));
        assert!(mine == theirs, "{size} bytes after release");
        mine[0] ^= 0x0F;
        assert_ne!(
            mine[0],
            std::hint::black_box(&*theirs)[0],
            "the file must not see changes after release"
        );
        theirs[size - 1] ^= 0x33;
        assert_ne!(
            std::hint::black_box(&*mine)[size - 1],
            theirs[size - 1],
            "nor the memory the file's bytes"
        );
        unmap(peer, len);
        unmap(whole, span);
    }
}

/// Untouched pages, several mappings in one range, and stale pages in the file.
#[test]
fn untouched_pages_several_mappings_and_stale_file_pages() {
    let len = 64 * PAGE;
    let at = map(len, MapFlags::PRIVATE);
    // SAFETY:
    // - this test's own mapping: the advice splits it in three
    unsafe { mm::madvise(at.add(8 * PAGE).cast(), 8 * PAGE, mm::Advice::LinuxDontDump) }
        .expect("madvise");
    // SAFETY:
    // - inside the mapping
    unsafe { at.add(9 * PAGE).write(9) };
    let fd = memfd(len);
    let stale = map_file(&fd, 0, len);
    for page in (0..64).step_by(3) {
        // SAFETY:
        // - inside the mapping
        unsafe { stale.add(page * PAGE).write(0xEE) };
    }
    for _ in 0..3 {
        adopt(&fd, 0, at, len).expect("adopt");
        for page in 0..64 {
            // SAFETY:
            // - inside both mappings
            let (mine, theirs) = unsafe {
                (
                    at.add(page * PAGE).read_volatile(),
                    stale.add(page * PAGE).read_volatile(),
                )
            };
            assert_eq!(
                (mine, theirs),
                if page == 9 { (9, 9) } else { (0, 0) },
                "page {page}"
            );
        }
        release(&fd, 0, at, len).expect("release");
    }
    unmap(stale, len);
    unmap(at, len);
}
