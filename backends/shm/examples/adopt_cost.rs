//! Prints the time of adoption in place, of release, and of one memcpy of the same size.

use std::os::fd::AsFd;
use std::time::Instant;

use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::mm::{self, MapFlags, ProtFlags};
use unipgas_shm::adopt;

fn microseconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e6
}

fn memory(len: usize) -> &'static mut [u8] {
    // SAFETY:
    // - a new mapping, never unmapped, all of it readable and writable
    unsafe {
        let at = mm::mmap_anonymous(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
        .expect("memory");
        std::slice::from_raw_parts_mut(at.cast(), len)
    }
}

fn main() {
    if let Err(why) = adopt::available() {
        println!("adoption with several threads: no ({why})");
    }
    println!(
        "least of several runs, in microseconds; ratio: adopt to memcpy into fresh memory, and into used memory"
    );
    println!(
        "{:>11} {:>11} {:>11} {:>13} {:>13} {:>13}",
        "bytes", "adopt", "release", "memcpy fresh", "memcpy used", "ratio"
    );
    for len in [
        4 << 10,
        16 << 10,
        64 << 10,
        1 << 20,
        16 << 20,
        64 << 20,
        256 << 20,
        1 << 30_usize,
    ] {
        let file = rustix::fs::memfd_create("adopt_cost", MemfdFlags::CLOEXEC).expect("memfd");
        rustix::fs::ftruncate(&file, len as u64).expect("size");
        let data = memory(len);
        data.fill(7);
        let runs = if len < 1 << 20 {
            300
        } else if len < 1 << 30 {
            10
        } else {
            3
        };
        let (mut adopt_us, mut release_us, mut fresh_us, mut used_us) =
            (f64::MAX, f64::MAX, f64::MAX, f64::MAX);
        for _ in 0..runs {
            let start = data.as_mut_ptr();
            adopt_us = adopt_us.min(microseconds(|| {
                // SAFETY:
                // - the range is this example's own, and the file's only use
                unsafe { adopt::adopt(file.as_fd(), 0, start, len) }.expect("adopt");
            }));
            release_us = release_us.min(microseconds(|| {
                // SAFETY:
                // - adopted just before
                unsafe { adopt::release(file.as_fd(), 0, start, len) }.expect("release");
            }));
            rustix::fs::fallocate(
                &file,
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                0,
                len as u64,
            )
            .expect("drop the file's pages");
            let other = memory(len);
            fresh_us = fresh_us.min(microseconds(|| other.copy_from_slice(data)));
            used_us = used_us.min(microseconds(|| other.copy_from_slice(data)));
            assert_eq!((other[0], other[len - 1]), (7, 7));
            // SAFETY:
            // - this loop's own mapping, not used any more
            unsafe { mm::munmap(other.as_mut_ptr().cast(), len) }.expect("munmap");
        }
        let ratio = format!("{:.2} / {:.2}", adopt_us / fresh_us, adopt_us / used_us);
        println!(
            "{len:>11} {adopt_us:>11.1} {release_us:>11.1} {fresh_us:>13.1} {used_us:>13.1} {ratio:>13}"
        );
        // SAFETY:
        // - this loop's own mapping, not used any more
        unsafe { mm::munmap(data.as_mut_ptr().cast(), len) }.expect("munmap");
    }
}
