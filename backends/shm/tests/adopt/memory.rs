//! Memory and files of the tests, and the calls on them.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr;

use rustix::fs::MemfdFlags;
use rustix::mm::{self, MapFlags, ProtFlags};
use unipgas_shm::adopt::{self, Refusal};

pub const PAGE: usize = 4096;
const RIGHTS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

pub fn memfd(len: usize) -> OwnedFd {
    let fd = rustix::fs::memfd_create("adopt-test", MemfdFlags::CLOEXEC).expect("memfd");
    rustix::fs::ftruncate(&fd, len as u64).expect("size");
    fd
}

/// Unused pages lie around it: the control block of another test's thread, at the end of that thread's stack, might be next to it,
/// and such neighbours are refused.
pub fn map(len: usize, flags: MapFlags) -> *mut u8 {
    let margins = len.next_multiple_of(PAGE) + 2 * PAGE;
    // SAFETY:
    // - new mappings; the second replaces the inside of the first
    unsafe {
        let around = mm::mmap_anonymous(
            ptr::null_mut(),
            margins,
            mm::ProtFlags::empty(),
            MapFlags::PRIVATE,
        )
        .expect("mmap");
        mm::mmap_anonymous(around.byte_add(PAGE), len, RIGHTS, flags | MapFlags::FIXED)
            .expect("mmap")
            .cast()
    }
}

/// A private mapping where no other mapping of the process comes to lie.
pub fn map_at(at: usize, len: usize, flags: i32) -> *mut u8 {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY:
    // - a new mapping, which replaces none
    let place = unsafe {
        libc::mmap(
            at as *mut _,
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        )
    };
    assert_ne!(
        place,
        libc::MAP_FAILED,
        "{}",
        std::io::Error::last_os_error()
    );
    place.cast()
}

pub fn map_file(fd: &OwnedFd, offset: usize, len: usize) -> *mut u8 {
    // SAFETY:
    // - a new mapping, placed by the kernel
    unsafe {
        mm::mmap(
            ptr::null_mut(),
            len,
            RIGHTS,
            MapFlags::SHARED,
            fd,
            offset as u64,
        )
    }
    .expect("mmap")
    .cast()
}

pub fn unmap(at: *mut u8, len: usize) {
    // SAFETY:
    // - a mapping of the test that calls, which does not use it any more
    unsafe { mm::munmap(at.cast(), len) }.expect("munmap");
}

pub fn pages_of(at: *const u8, len: usize) -> (*mut u8, usize) {
    let first = at as usize & !(PAGE - 1);
    let end = (at as usize + len).next_multiple_of(PAGE);
    (first as *mut u8, end - first)
}

pub fn adopt(fd: &OwnedFd, offset: usize, at: *mut u8, len: usize) -> Result<(), Refusal> {
    // SAFETY:
    // - memory and file of the test; no transfer of the kernel is in progress on it
    unsafe { adopt::adopt(fd.as_fd(), offset as u64, at, len) }
}

pub fn release(fd: &OwnedFd, offset: usize, at: *mut u8, len: usize) -> Result<(), Refusal> {
    // SAFETY:
    // - as above
    unsafe { adopt::release(fd.as_fd(), offset as u64, at, len) }
}

/// A word for one thread alone, incremented without an atomic read-modify-write: a lost store shows at once.
pub fn bump(word: *mut u64) {
    // SAFETY:
    // - the word is mapped during the test, and one thread alone writes to it
    unsafe { word.write_volatile(word.read_volatile() + 1) };
}

pub fn read(word: *const u64) -> u64 {
    // SAFETY:
    // - the word is mapped during the test
    unsafe { word.read_volatile() }
}
