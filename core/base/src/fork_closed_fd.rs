//! Descriptors that a fork does not pass to the child. File locks and ports signal that this process lives; a copy would outlive it.

use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

/// A descriptor that the child of a fork closes.
#[derive(Debug)]
pub struct ForkClosedFd(&'static Node);

#[derive(Debug)]
struct Node {
    /// The descriptor, or one of the two values below.
    fd: AtomicI32,
    next: AtomicPtr<Node>,
}

/// Without an owner: available.
const FREE: RawFd = -2;
/// In the child of a fork: owned, but closed.
const CLOSED: RawFd = -1;

/// All nodes ever made. They are never freed: a fork may come at any time, and the child may not take a lock.
static NODES: AtomicPtr<Node> = AtomicPtr::new(std::ptr::null_mut());

fn nodes() -> impl Iterator<Item = &'static Node> {
    let mut next = NODES.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY:
        // - the pointer is null or a leaked node, published by a release store.
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
            // - the descriptor is the child's copy; its `ForkClosedFd` in the child finds `CLOSED`;
            // - close is async-signal-safe: allowed in the child of a multithreaded process.
            unsafe { libc::close(fd) };
        }
    }
}

impl ForkClosedFd {
    /// Takes ownership of `fd`. Forks after this call close it in the child.
    pub fn new(fd: OwnedFd) -> Self {
        static REGISTERED: AtomicBool = AtomicBool::new(false);
        // Not a `Once`: a fork in another thread could leave it locked in the child. A second registration does no harm.
        if !REGISTERED.load(Ordering::Relaxed) {
            // SAFETY:
            // - the handler only walks a list of atomics and closes descriptors, as the child of a multithreaded process may.
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
        ForkClosedFd(free.unwrap_or_else(|| {
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

    /// The descriptor, or `None` in the child of a fork.
    pub fn get(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.0.fd.load(Ordering::Relaxed);
        // SAFETY:
        // - `self` owns the descriptor and keeps it open; a fork closes it only in the child, where the calling thread does not run.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

impl Drop for ForkClosedFd {
    fn drop(&mut self) {
        let fd = self.0.fd.swap(FREE, Ordering::Relaxed);
        if fd >= 0 {
            // SAFETY:
            // - `new` stored the descriptor that it owned, and this call has just taken it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::descriptor::pipe;

    #[test]
    #[cfg_attr(miri, ignore = "forks")]
    fn a_child_does_not_have_it_and_closes_nothing_else_in_its_place() {
        let (out, into) = pipe().unwrap();
        let held = ForkClosedFd::new(into);
        let number = held.get().unwrap().as_raw_fd();
        // SAFETY:
        // - the child makes system calls and ends; it allocates nothing and takes no lock.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let gone = held.get().is_none();
            // SAFETY:
            // - the call only queries a number; then another descriptor gets that number, and the drop must leave it open.
            let right = unsafe {
                let closed = libc::fcntl(number, libc::F_GETFD) == -1;
                let other = libc::dup2(out.as_raw_fd(), number);
                drop(held);
                gone && closed && other == number && libc::fcntl(number, libc::F_GETFD) != -1
            };
            // SAFETY:
            // - the call ends the child.
            unsafe { libc::_exit(i32::from(!right)) };
        }
        let mut status = 0;
        // SAFETY:
        // - the call waits for the child above.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0);
        assert!(held.get().is_some());
    }
}
