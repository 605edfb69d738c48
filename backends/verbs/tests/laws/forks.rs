//! The child of a process with open connections owns none of them. Whatever it does, its parent continues.

use std::sync::atomic::{AtomicBool, Ordering};

use unipgas_core::op::{PutRequest, UnsignaledPut};
use unipgas_core::transport::{Channel, Transport};
use unipgas_core::{Error, Flags, Notice};

use crate::node::{Node, PeerLink, remote};
use crate::process::{ProcessPipe, test_of, with_others_as};

/// The open objects of a process.
struct Mine {
    node: Node,
    link: PeerLink,
}

impl Mine {
    /// Keeps operations outstanding until `stops` is set.
    fn work_until(&self, stops: &AtomicBool) {
        let channel = self.node.transport.open_channel().unwrap();
        let mut nth = 0u32;
        while !stops.load(Ordering::Relaxed) {
            nth += 1;
            self.writes(&*channel, nth);
            channel.poll(&mut |end| end.result.unwrap());
        }
        while channel.pending() > 0 || channel.quick_pending() > 0 {
            channel.poll(&mut |end| end.result.unwrap());
        }
    }

    fn writes(&self, channel: &dyn Channel, nth: u32) {
        let slot = remote(&self.link, 64);
        let notice = Notice { slot, value: nth };
        let bytes = nth.to_ne_bytes();
        let to = remote(&self.link, 72);
        // SAFETY:
        // - the bytes are read within the call, or belong to memory that outlives the operation.
        unsafe {
            if !channel.put_unsignaled(&UnsignaledPut {
                src: bytes.as_ptr(),
                len: 4,
                dst: to,
                notice: Some(notice),
            }) {
                let _ = channel.put(
                    &PutRequest::new(self.node.local(128), to, 4),
                    Flags::empty(),
                    1,
                );
            }
        }
    }
}

/// Runs `body` in a child of this process, and returns its wait status.
fn in_child(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY:
    // - the child must not depend on other threads of its parent, which the test verifies; it ends with `_exit`.
    unsafe {
        match libc::fork() {
            0 => libc::_exit(body()),
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                status
            }
        }
    }
}

fn other(mut wire: ProcessPipe) {
    let (node, to) = Node::join(&mut wire);
    node.works(&to);
    wire.say(b"works");
    while wire.try_hear().is_some() {
        node.works(&to);
        wire.say(b"works");
    }
}

/// Children run `body` with the objects of their parent, while another thread of the parent has operations outstanding.
fn children(body: impl Fn(Mine) -> i32) {
    with_others_as(
        test_of(&body),
        "",
        &[],
        |others| {
            let node = Node::open();
            let (link, mut other) = node.meet(others);
            assert_eq!(other.wire.hear(), b"works");
            let all = Mine { node, link };
            for _ in 0..10 {
                let stops = AtomicBool::new(false);
                std::thread::scope(|scope| {
                    scope.spawn(|| all.work_until(&stops));
                    (0..50).for_each(|_| std::thread::yield_now());
                    let status = in_child(|| {
                        // SAFETY:
                        // - the copy is in the child, which does not use the original again.
                        body(unsafe { std::ptr::read(&raw const all) })
                    });
                    stops.store(true, Ordering::Relaxed);
                    assert_eq!(status, 0);
                });
                all.node.works(&all.link);
                other.wire.say(b"again");
                assert_eq!(other.wire.hear(), b"works");
            }
            // A new transport of the parent works, too.
            let third = Node::open();
            third.works(&third.know(&all.node));
        },
        other,
    );
}

#[test]
fn one_that_ends() {
    children(|mine| {
        std::mem::forget(mine);
        0
    });
}

#[test]
fn one_that_becomes_another_program() {
    children(|mine| {
        std::mem::forget(mine);
        let end = std::ptr::null::<libc::c_char>();
        // SAFETY:
        // - the arguments are C strings, and a null ends the list.
        unsafe { libc::execl(c"/bin/true".as_ptr(), c"true".as_ptr(), end) };
        1
    });
}

#[test]
fn one_that_drops_all() {
    children(|mine| {
        let Mine { node, link } = mine;
        drop(link);
        let Node {
            channel,
            memory,
            transport,
        } = node;
        drop(channel);
        drop(memory);
        transport.leave();
        drop(transport);
        0
    });
}

#[test]
fn one_that_tries_to_use_it() {
    children(|mine| {
        let Mine { node, link } = mine;
        let posted = [
            node.put(&link, 0, 8, 8, Flags::empty()),
            node.put(&link, 0, 8, 8, Flags::INLINE | Flags::GATHERED),
            node.get(&link, 0, 8, 8),
            node.tell(&link, 8, 16, 1, Flags::GATHERED),
        ];
        let refused = posted.iter().all(|one| *one == Err(Error::PeerDead));
        let quick = node.tell_quickly(&link, 8, 16, 1);
        node.channel.poll(&mut |_| {});
        node.transport.progress();
        std::mem::forget((node, link));
        i32::from(quick || !refused)
    });
}
