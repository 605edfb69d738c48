//! Memory that cannot be adopted.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{self, MapFlags};
use unipgas_shm::adopt::Refusal;

use crate::memory::{PAGE, adopt, map, map_at, memfd, pages_of, release, unmap};

#[test]
fn refusals_for_each_kind() {
    let fd = memfd(8 * PAGE);
    let private = map_at(0x1000_0000_0000, 4 * PAGE, 0);
    assert_eq!(
        adopt(&fd, 0, private.wrapping_add(1), PAGE),
        Err(Refusal::Unaligned)
    );
    assert_eq!(adopt(&fd, 1, private, PAGE), Err(Refusal::Unaligned));
    assert_eq!(adopt(&fd, 0, private, PAGE - 1), Err(Refusal::Unaligned));
    assert_eq!(adopt(&fd, 0, private, 0), Err(Refusal::Unaligned));
    assert_eq!(release(&fd, 0, private, PAGE), Err(Refusal::NotAdopted));

    unmap(private.wrapping_add(3 * PAGE), PAGE);
    assert_eq!(adopt(&fd, 0, private, 4 * PAGE), Err(Refusal::Unmapped));
    assert_eq!(
        adopt(&fd, 0, private.wrapping_add(3 * PAGE), PAGE),
        Err(Refusal::Unmapped)
    );

    let middle = private.wrapping_add(PAGE);
    // SAFETY:
    // - this test's own mapping
    unsafe { mm::mprotect(middle.cast(), PAGE, mm::MprotectFlags::READ) }.expect("mprotect");
    assert_eq!(adopt(&fd, 0, private, 3 * PAGE), Err(Refusal::ReadOnly));
    let all = mm::MprotectFlags::READ | mm::MprotectFlags::WRITE | mm::MprotectFlags::EXEC;
    // SAFETY:
    // - this test's own mapping
    unsafe { mm::mprotect(middle.cast(), PAGE, all) }.expect("mprotect");
    assert_eq!(adopt(&fd, 0, private, 3 * PAGE), Err(Refusal::Executable));

    let shared = map(PAGE, MapFlags::SHARED);
    assert_eq!(adopt(&fd, 0, shared, PAGE), Err(Refusal::AlreadyShared));
    let (code, len) = pages_of(refusals_for_each_kind as *const u8, 1);
    assert_eq!(adopt(&fd, 0, code, len), Err(Refusal::ReadOnly));

    static INITIALISED: AtomicU64 = AtomicU64::new(77);
    let (data, len) = pages_of((&raw const INITIALISED).cast(), 8);
    // The other threads are stopped for that.
    assert_eq!(adopt(&fd, 0, data, len), Ok(()));
    assert_eq!(INITIALISED.load(Ordering::Relaxed), 77);
    assert_eq!(release(&fd, 0, data, len), Ok(()));

    assert_eq!(adopt(&fd, 0, private, PAGE), Ok(()));
    assert_eq!(adopt(&fd, PAGE, private, PAGE), Err(Refusal::AlreadyShared));
    assert_eq!(release(&fd, PAGE, private, PAGE), Err(Refusal::NotAdopted));
    assert_eq!(
        release(&memfd(PAGE), 0, private, PAGE),
        Err(Refusal::NotAdopted)
    );
    assert_eq!(release(&fd, 0, private, PAGE), Ok(()));
}

#[test]
fn devices_are_refused() {
    let mut setup = [0_u64; 15];
    // SAFETY:
    // - io_uring_setup reads and writes the 120 bytes of its parameters
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, setup.as_mut_ptr()) };
    assert!(ring >= 0, "io_uring: {}", std::io::Error::last_os_error());
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY:
    // - a new mapping of the ring just made
    let queue = unsafe {
        libc::mmap(
            ptr::null_mut(),
            PAGE,
            rights,
            libc::MAP_SHARED,
            ring as i32,
            0,
        )
    };
    assert_ne!(queue, libc::MAP_FAILED);
    assert_eq!(
        adopt(&memfd(PAGE), 0, queue.cast(), PAGE),
        Err(Refusal::Device)
    );
}

#[test]
fn huge_pages_are_refused() {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_NORESERVE;
    // SAFETY:
    // - a new mapping, placed by the kernel, never touched: no huge page needs to be free
    let huge = unsafe {
        libc::mmap(
            ptr::null_mut(),
            2 << 20,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        )
    };
    assert_ne!(
        huge,
        libc::MAP_FAILED,
        "{}",
        std::io::Error::last_os_error()
    );
    assert_eq!(
        adopt(&memfd(PAGE), 0, huge.cast(), PAGE),
        Err(Refusal::Huge)
    );
}
