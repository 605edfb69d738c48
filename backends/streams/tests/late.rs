//! What is ordered after a read leaves when that has landed, whether or not anybody polls.

use std::sync::atomic::{AtomicU64, Ordering};

use unipgas_core::op::{GetRequest, PutRequest};
use unipgas_core::region::Memory;
use unipgas_core::transport::Transport;
use unipgas_core::{Deadline, Flags, Local, Rights};
use unipgas_streams_backend::{SocketStreams, StreamsOptions};

#[test]
fn nobody_has_to_poll_for_what_is_ordered_after_a_read() {
    let [here, there] =
        [(); 2].map(|()| SocketStreams::open(StreamsOptions::default(), None).unwrap());
    let [own, theirs] = [&here, &there].map(|node| node.allocate(4096, Rights::FULL).unwrap());
    let region = here
        .connect(&there.address())
        .and_then(|peer| peer.import(&theirs.key(), Deadline::Never))
        .unwrap();
    let word = |memory: &dyn Memory, at: usize| {
        // SAFETY:
        // - in bounds and aligned, and as long there as the test.
        unsafe { AtomicU64::from_ptr(memory.base().add(at).cast()) }
    };
    word(theirs.as_ref(), 0).store(77, Ordering::Release);
    let channel = here.open_channel().unwrap();
    let local = Local::unregistered(own.base());
    let remote = |offset| region.at(offset);
    // SAFETY:
    // - in bounds of the source, which outlives both.
    unsafe {
        channel
            .get(&GetRequest::new(local, remote(0), 8), Flags::empty(), 1)
            .unwrap();
        // What was read goes on.
        channel
            .put(&PutRequest::new(local, remote(8), 8), Flags::ORDERED, 2)
            .unwrap();
    }
    while word(theirs.as_ref(), 8).load(Ordering::Acquire) != 77 {
        std::thread::yield_now();
    }
    while channel.pending() > 0 {
        channel.poll(&mut |end| end.result.unwrap());
    }
}
