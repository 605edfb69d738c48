//! Descriptors that children of a fork do not keep: locks of files, and ports, which tell others that this process lives, would outlive it.

use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

/// A descriptor that children made by fork do not keep.
#[derive(Debug)]
pub struct Held(&'static Node);

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
    /// From now on.
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
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::descriptor::pipe;

    #[test]
    #[cfg_attr(miri, ignore = "forks")]
    fn a_child_does_not_have_it_and_closes_nothing_else_in_its_place() {
        let (out, into) = pipe().unwrap();
        let held = Held::new(into);
        let number = held.get().unwrap().as_raw_fd();
        // SAFETY:
        // - the child makes system calls and ends; it allocates nothing and takes no lock.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let gone = held.get().is_none();
            // SAFETY:
            // - asks about a number; then another descriptor gets it, which dropping must leave open.
            let right = unsafe {
                let closed = libc::fcntl(number, libc::F_GETFD) == -1;
                let other = libc::dup2(out.as_raw_fd(), number);
                drop(held);
                gone && closed && other == number && libc::fcntl(number, libc::F_GETFD) != -1
            };
            // SAFETY:
            // - ends the child.
            unsafe { libc::_exit(i32::from(!right)) };
        }
        let mut status = 0;
        // SAFETY:
        // - waits for the child that was just made.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0);
        assert!(held.get().is_some());
    }
}
