//! The child of a fork owns no memory, and waits for no lock: the lock's holder does not exist in the child.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use unipgas_core::op::ReplyBuffer;
use unipgas_core::transport::{Handler, Transport};
use unipgas_core::{Deadline, Flags, Rights};
use unipgas_streams_backend::{SocketStreams, StreamsOptions};

/// A handler that blocks in a message, and blocks the thread that serves it, until the test continues it.
struct Slow {
    begins: Sender<()>,
    goes_on: Mutex<Receiver<()>>,
}

impl Handler for Slow {
    fn handle(&self, _: usize, _: &[u8], _: &mut Vec<u8>) -> Result<(), u32> {
        let _ = self.begins.send(());
        let _ = self.goes_on.lock().recv();
        Ok(())
    }
}

#[test]
fn a_child_that_is_made_in_the_middle_of_a_request_lets_go_of_memory() {
    let [here, there] =
        [(); 2].map(|()| SocketStreams::open(StreamsOptions::default(), None).unwrap());
    let memory = there.allocate(4096, Rights::FULL).unwrap();
    let (begins, begun) = channel();
    let (go_on, goes_on) = channel();
    let goes_on = Mutex::new(goes_on);
    memory
        .handle_by(Arc::new(Slow { begins, goes_on }))
        .unwrap();
    let region = here
        .connect(&there.address())
        .and_then(|peer| peer.import(&memory.key(), Deadline::Never))
        .unwrap();
    let endpoint = here.open_channel().unwrap();
    let to = region.at(0);
    endpoint
        .active_message(to, b"slow", ReplyBuffer::NONE, Flags::empty(), 1)
        .unwrap();
    begun.recv().unwrap();
    // SAFETY:
    // - the child drops its memory and ends; it waits for no other thread (the subject of this test).
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(memory);
        // SAFETY:
        // - ends the child.
        unsafe { libc::_exit(0) };
    }
    go_on.send(()).unwrap();
    // The limit only ends a test that hangs.
    let limit = Deadline::after(Duration::from_secs(60));
    let mut status = -1;
    loop {
        // SAFETY:
        // - the child of above, which is waited for once.
        match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
            0 if !limit.expired() => std::thread::sleep(Duration::from_millis(1)),
            0 => {
                // SAFETY:
                // - as above.
                unsafe { libc::kill(child, libc::SIGKILL) };
                panic!("the child hangs");
            }
            _ => break,
        }
    }
    assert_eq!(status, 0);
    while endpoint.pending() > 0 {
        endpoint.poll(&mut |end| end.result.unwrap());
        std::thread::yield_now();
    }
}
