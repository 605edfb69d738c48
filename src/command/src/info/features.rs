//! Kernel features that the library needs, and whether this user may use them.

/// Whether a feature is usable, or the reason why not.
pub type Probe = Result<(), String>;

/// Probes each feature: its name, its purpose, and the result.
pub fn features() -> Vec<(&'static str, &'static str, Probe)> {
    let os = |outcome: rustix::io::Result<()>| outcome.map_err(|e| e.to_string());
    let last = |failed: bool| {
        if failed {
            Err(std::io::Error::last_os_error().to_string())
        } else {
            Ok(())
        }
    };
    let memfd = rustix::fs::memfd_create("unipgas-info", rustix::fs::MemfdFlags::CLOEXEC);
    let reopen = memfd.as_ref().map_err(|e| e.to_string()).and_then(|fd| {
        use std::os::fd::AsRawFd;
        std::fs::File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/self/fd/{}", fd.as_raw_fd()))
            .map(drop)
            .map_err(|e| e.to_string())
    });
    // SAFETY:
    // - the query command only returns a set of bits.
    let barriers = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_QUERY, 0, 0) };
    let barrier = match barriers {
        ..0 => last(true),
        bits if bits & i64::from(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0 => Ok(()),
        _ => Err("the kernel has no GLOBAL_EXPEDITED (Linux 4.16)".into()),
    };
    let word = std::sync::atomic::AtomicU32::new(0);
    let futex = rustix::thread::futex::wake(&word, rustix::thread::futex::Flags::empty(), 1);
    let (from, mut to) = (7u8, 0u8);
    let local = libc::iovec {
        iov_base: (&raw mut to).cast(),
        iov_len: 1,
    };
    let remote = libc::iovec {
        iov_base: (&raw const from).cast_mut().cast(),
        iov_len: 1,
    };
    // SAFETY:
    // - both vectors name one byte of this frame; only `to` is written.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    // SAFETY:
    // - userfaultfd() takes flags only. It fails, or returns a descriptor, which is closed below.
    let fault = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
    let fault_outcome = last(fault < 0);
    if let Ok(fd @ 0..) = i32::try_from(fault) {
        // SAFETY:
        // - the descriptor is new, and no other code has it.
        unsafe { libc::close(fd) };
    }
    vec![
        ("memfd", "shared memory without names", os(memfd.map(drop))),
        ("/proc/self/fd", "opening a peer's memory", reopen),
        (
            "membarrier",
            "parking without a fence on fast paths",
            barrier,
        ),
        ("futex", "parking and waking", os(futex.map(drop))),
        (
            "process_vm_readv",
            "memory that cannot be shared in place",
            last(copied != 1),
        ),
        (
            "userfaultfd",
            "sharing a program's own memory in place; ptrace does it, too",
            fault_outcome,
        ),
    ]
}
