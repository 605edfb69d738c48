//! The child of a process with open connections owns nothing: whatever it does, its parent goes on.

use std::sync::atomic::{AtomicBool, Ordering};

use unipgas_core::op::{PutRequest, UnsignaledPut};
use unipgas_core::transport::{Channel, Transport};
use unipgas_core::{Error, Flags, Notice};

use crate::node::{Node, PeerLink, remote};
use crate::process::{ProcessPipe, test_of, with_others_as};

/// What a process has open.
struct Mine {
    node: Node,
    link: PeerLink,
}

impl Mine {
    /// In the midst of something all the time.
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
        // - the bytes are taken in the call, or are memory that stays.
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

/// In a child of this process; its status.
fn in_child(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY:
    // - the child waits for no other thread, as is to be seen, and ends.
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

/// Children do `body` with what their parent has, while another thread of that is in the midst of something.
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
                        // - a copy of the child's own, whose original nobody looks at again there.
                        body(unsafe { std::ptr::read(&raw const all) })
                    });
                    stops.store(true, Ordering::Relaxed);
                    assert_eq!(status, 0);
                });
                all.node.works(&all.link);
                other.wire.say(b"again");
                assert_eq!(other.wire.hear(), b"works");
            }
            // And one that begins now.
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
        // - C strings, and the null that ends them.
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
