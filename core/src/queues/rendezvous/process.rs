//! Who a process is, whether it lives, and what a fork does to what it holds.

use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;

use crate::job::board::process_start_time;
use crate::{Error, Result, descriptor};

/// A process, for good: pids are used again, the pair with the start time is not. `image` tells a program from the one that
/// the same process ran before an exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub pid: u32,
    pub start: u64,
    pub image: u64,
}

impl Process {
    /// This one.
    pub fn this() -> Result<Self> {
        static IMAGE: AtomicU64 = AtomicU64::new(0);
        if IMAGE.load(Ordering::Relaxed) == 0 {
            let mut random = [0u8; 8];
            rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
                .map_err(|e| Error::os("cannot draw a number (getrandom)", e))?;
            let drawn = u64::from_ne_bytes(random) | 1;
            // Threads that draw at once agree on the first one's number.
            let _ = IMAGE.compare_exchange(0, drawn, Ordering::Relaxed, Ordering::Relaxed);
        }
        let pid = std::process::id();
        Ok(Process {
            pid,
            start: process_start_time(pid)?,
            image: IMAGE.load(Ordering::Relaxed),
        })
    }

    /// Whether it still runs the same program; of the program before an exec only the process itself can tell.
    pub fn lives(&self, me: &Process) -> bool {
        if (self.pid, self.start) == (me.pid, me.start) {
            return self.image == me.image;
        }
        match process_start_time(self.pid) {
            Ok(start) => start == self.start,
            // There is none, or its first thread has ended, or /proc does not tell: the others may go on.
            Err(_) => has_threads(self.pid),
        }
    }
}

/// Whether there is such a process, with threads that run: its descriptor polls readable once all have ended.
fn has_threads(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return false;
    };
    let Ok(fd) = descriptor::process(pid) else {
        return false;
    };
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)) == Ok(0)
}

/// A descriptor that children made by fork do not keep: its locks belong to what both would share, and would outlive us.
#[derive(Debug)]
pub(super) struct Held(&'static Node);

#[derive(Debug)]
struct Node {
    /// The descriptor, or one of the two below.
    fd: AtomicI32,
    next: AtomicPtr<Node>,
}

/// Nobody's: may be taken.
const FREE: RawFd = -2;
/// Somebody's, in the child of a fork.
const CLOSED: RawFd = -1;

/// All nodes that there ever were. None is freed: a fork may come at any time, and its child may take no lock.
static NODES: AtomicPtr<Node> = AtomicPtr::new(std::ptr::null_mut());

fn nodes() -> impl Iterator<Item = &'static Node> {
    let mut next = NODES.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY:
        // - null or a leaked node, published by a release store.
        let node: &'static Node = unsafe { next.as_ref() }?;
        next = node.next.load(Ordering::Acquire);
        Some(node)
    })
}

extern "C" fn close_all() {
    for node in nodes() {
        let fd = node.fd.load(Ordering::Relaxed);
        if fd >= 0 {
            node.fd.store(CLOSED, Ordering::Relaxed);
            // SAFETY:
            // - the child's copy of a descriptor that its `Held` owns, which finds it closed from now on;
            // - close is allowed in the child of a process with threads.
            unsafe { libc::close(fd) };
        }
    }
}

impl Held {
    pub fn new(fd: OwnedFd) -> Self {
        static REGISTERED: AtomicBool = AtomicBool::new(false);
        // Not a `Once`, which a fork in another thread would leave locked; to register twice does no harm.
        if !REGISTERED.load(Ordering::Relaxed) {
            // SAFETY:
            // - the handler walks a list of atomics and closes descriptors, which the child of a process with threads may.
            let failed = unsafe { libc::pthread_atfork(None, None, Some(close_all)) };
            assert_eq!(failed, 0, "no memory for a fork handler");
            REGISTERED.store(true, Ordering::Relaxed);
        }
        let fd = fd.into_raw_fd();
        let free = nodes().find(|node| {
            node.fd
                .compare_exchange(FREE, fd, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        });
        Held(free.unwrap_or_else(|| {
            let node = Box::leak(Box::new(Node {
                fd: AtomicI32::new(fd),
                next: AtomicPtr::new(NODES.load(Ordering::Relaxed)),
            }));
            while let Err(first) = NODES.compare_exchange_weak(
                node.next.load(Ordering::Relaxed),
                node,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                node.next.store(first, Ordering::Relaxed);
            }
            node
        }))
    }

    /// The descriptor, or nothing in the child of a fork.
    pub fn get(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.0.fd.load(Ordering::Relaxed);
        // SAFETY:
        // - open as long as `self`, whose it is; a fork closes it only where the thread that has called this is not.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let fd = self.0.fd.swap(FREE, Ordering::Relaxed);
        if fd >= 0 {
            // SAFETY:
            // - put there by `new`, which owned it, and taken out just now.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "starts a process")]
    fn a_process_lives_until_all_its_threads_have_ended() {
        let me = Process::this().unwrap();
        assert!(me.lives(&me));
        let before_exec = Process {
            image: me.image ^ 2,
            ..me
        };
        assert!(!before_exec.lives(&me));
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let other = Process {
            pid: child.id(),
            start: process_start_time(child.id()).unwrap(),
            image: 1,
        };
        assert!(other.lives(&me));
        assert!(
            !Process {
                start: other.start + 1,
                ..other
            }
            .lives(&me)
        );
        child.kill().unwrap();
        let pidfd = descriptor::process(Pid::from_child(&child)).unwrap();
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).unwrap();
        assert!(!other.lives(&me), "a zombie does not live");
        child.wait().unwrap();
        assert!(!other.lives(&me));
    }
}
