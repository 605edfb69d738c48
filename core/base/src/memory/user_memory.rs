//! Checks of the program's memory before its registration with a backend.

pub mod maps;

use rustix::io::Errno;
use rustix::mm::MsyncFlags;

use crate::Rights;
use crate::{Error, Result};

/// Above all user addresses: the lower half of the range of five-level page tables.
const END: usize = 1 << 56;

/// Refuses a range that is empty or null, outside the address space, or not fully mapped. After it, callers may round the range to
/// pages and touch it. `purpose` completes the text "memory …". Errors: [`Error::InvalidArgument`].
pub fn check(base: *const u8, len: usize, purpose: &str) -> Result<()> {
    let start = base.addr();
    if start == 0 || len == 0 {
        return Err(Error::InvalidArgument(format!(
            "memory {purpose} needs an address and at least 1 byte"
        )));
    }
    let refused = |why: &str| Error::InvalidArgument(format!("memory {purpose} {why}"));
    let page = rustix::param::page_size();
    if start.checked_add(len).is_none_or(|end| end > END - page) {
        return Err(refused("is not in the address space of a process"));
    }
    let first = start & !(page - 1);
    let whole = (start + len).next_multiple_of(page) - first;
    // SAFETY:
    // - no effect on memory (`MS_ASYNC` alone starts no transfer): the kernel only checks that the range is mapped.
    match unsafe { rustix::mm::msync(first as *mut _, whole, MsyncFlags::ASYNC) } {
        Err(Errno::NOMEM) => Err(refused("is not mapped in this process")),
        // A system call filter may deny msync. Then the backend detects the error.
        _ => Ok(()),
    }
}

/// Refuses a range that is empty or wraps around. The memory need not be mapped. Errors: [`Error::InvalidArgument`].
pub fn check_addresses(base: *const u8, len: usize) -> Result<()> {
    match len > 0 && base.addr().checked_add(len - 1).is_some() {
        true => Ok(()),
        false => Err(Error::InvalidArgument(format!(
            "memory to register: {len} bytes at {base:?} are no range of addresses"
        ))),
    }
}

/// Refuses memory without the access that `rights` grant to peers: a peer's operation, executed by this process, would crash it.
/// For backends that do not detect this otherwise; it costs system calls. Errors: [`Error::InvalidArgument`], [`Error::Os`].
pub fn check_access(base: *const u8, len: usize, rights: Rights) -> Result<()> {
    let range = base.addr()..base.addr() + len;
    let refused = |why: &str| Error::InvalidArgument(format!("memory cannot be registered: {why}"));
    let mappings = maps::Maps::open()?.within(&range, maps::FileNames::Unread)?;
    if !maps::cover(&mappings, &range) {
        return Err(refused("the range is not mapped throughout"));
    }
    let write = rights.intersects(Rights::WRITE | Rights::ATOMIC);
    let allowed = |write| mappings.iter().all(|mapping| mapping.allows(write));
    match (allowed(false), allowed(write)) {
        (false, _) => Err(refused("the range is not readable throughout")),
        (true, false) => Err(refused("the range is not writable throughout")),
        (true, true) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn what_may_be_read_may_not_be_written() {
        use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};
        let page = rustix::param::page_size();
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY:
        // - the test maps this memory, and protects two of its pages.
        let base = unsafe {
            let base = mmap_anonymous(std::ptr::null_mut(), 4 * page, both, MapFlags::PRIVATE);
            let base = base.unwrap();
            mprotect(base.byte_add(page), page, MprotectFlags::READ).unwrap();
            mprotect(base.byte_add(3 * page), page, MprotectFlags::empty()).unwrap();
            base.cast::<u8>()
        };
        let allowed = |first: usize, pages: usize, rights| {
            let at = base.wrapping_add(first * page + 8);
            check_access(at, pages * page - 16, rights).is_ok()
        };
        assert!(allowed(0, 1, Rights::FULL) && allowed(2, 1, Rights::WRITE));
        assert!(allowed(0, 3, Rights::READ) && allowed(1, 1, Rights::READ));
        for rights in [Rights::WRITE, Rights::ATOMIC, Rights::FULL] {
            assert!(!allowed(1, 1, rights) && !allowed(0, 3, rights));
        }
        for rights in [Rights::READ, Rights::empty(), Rights::FULL] {
            assert!(!allowed(3, 1, rights) && !allowed(0, 4, rights));
        }
        // SAFETY:
        // - the test made this mapping above.
        unsafe { rustix::mm::munmap(base.cast(), 4 * page) }.unwrap();
        assert!(!allowed(0, 1, Rights::READ));
    }

    fn refused(base: usize, len: usize) -> bool {
        let answer = check(std::ptr::without_provenance(base), len, "to look at");
        matches!(answer, Err(Error::InvalidArgument(_)))
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn ranges_that_no_process_has() {
        let here = [0u8; 64];
        let at = here.as_ptr().addr();
        assert!(!refused(at, here.len()));
        assert!(refused(at, 0));
        assert!(refused(0, 1));
        for len in [1, 2, 4096, 1 << 40, 1 << 63, usize::MAX] {
            for base in [
                1,
                1 << 47,
                1 << 55,
                1 << 56,
                0x0000_8000_0000_0000,
                0xffff_8000_0000_0000,
                usize::MAX - 0xfff,
                usize::MAX - 1,
                usize::MAX,
            ] {
                assert!(refused(base, len), "{base:#x} with {len} bytes");
            }
        }
        for len in [
            1 << 46,
            1 << 47,
            1 << 62,
            1 << 63,
            usize::MAX - at,
            usize::MAX,
        ] {
            assert!(refused(at, len), "{len} bytes of this process");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn a_hole_anywhere_in_the_range() {
        let page = rustix::param::page_size();
        // SAFETY:
        // - the test maps this memory, and unmaps one of its pages.
        let base = unsafe {
            let base = rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                5 * page,
                rustix::mm::ProtFlags::READ,
                rustix::mm::MapFlags::PRIVATE,
            )
            .unwrap();
            rustix::mm::munmap(base.byte_add(3 * page), page).unwrap();
            base.addr()
        };
        assert!(!refused(base + 7, 3 * page - 7));
        assert!(refused(base, 3 * page + 1));
        assert!(refused(base + 3 * page, page));
        assert!(refused(base + 4 * page - 1, 2));
        assert!(!refused(base + 4 * page, page));
        assert!(refused(base, 5 * page));
        // SAFETY:
        // - the test made this mapping above.
        unsafe { rustix::mm::munmap(base as *mut _, 5 * page) }.unwrap();
    }
}
