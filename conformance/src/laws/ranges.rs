//! Ranges that are no memory of a process.

use std::ptr::without_provenance_mut;

const PAGE: usize = 4096;

/// Addresses and lengths that every interface refuses to register: what wraps, or does when it is rounded to pages; the kernel's half
/// of the address space and the gap before it; lengths that nobody has; and what is mapped in part.
pub fn no_memory() -> impl Iterator<Item = (*mut u8, usize)> {
    // SAFETY:
    // - a mapping of its own, whose second page is taken away again; the rest stays, so that nothing else comes to lie beside it.
    let own = unsafe {
        let all = libc::mmap(
            std::ptr::null_mut(),
            3 * PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert!(all != libc::MAP_FAILED, "no memory for this");
        libc::munmap(all.wrapping_byte_add(PAGE), PAGE);
        all.cast::<u8>()
    };
    [
        (usize::MAX - 1, 1),
        (usize::MAX, 1),
        (usize::MAX - 0xfff, 1),
        (usize::MAX - 0xfff, 0xfff),
        (usize::MAX - 0xfff, 0x1000),
        (usize::MAX - 0x1fff, 0x1000),
        (0xffff_8000_0000_0000, 256),
        (0xffff_ffff_ff60_0000, 4096),
        (0x0000_8000_0000_0000, 256),
        (0x7fff_ffff_ffff, 2),
        (0x8000_0000_0000_0000, 4096),
        (256, 256),
        (own.addr(), PAGE + 1),
        (own.addr(), 3 * PAGE),
        (own.addr() + PAGE, PAGE),
        (own.addr() + PAGE - 256, 512),
        (own.addr() + 2 * PAGE - 256, 512),
        (own.addr(), 1 << 40),
        (own.addr(), 1 << 47),
        (own.addr(), 1 << 62),
        (own.addr(), 1 << 63),
        (own.addr(), usize::MAX),
        (own.addr(), usize::MAX - own.addr()),
    ]
    .into_iter()
    .map(|(base, len)| (without_provenance_mut(base), len))
}
