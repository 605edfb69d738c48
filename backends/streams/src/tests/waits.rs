//! Waiting threads make progress themselves.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use parking_lot::Mutex;
use unipgas_core::driver::{Driven, Driver, Waits};

use super::*;

/// Occupies the progress thread until the test ends it.
struct Keeps {
    kept: SyncSender<()>,
    go: Mutex<Receiver<()>>,
}

impl Driven for Keeps {
    fn drive(&self) {
        let _ = self.kept.send(());
        let _ = self.go.lock().recv();
    }
}

/// Looks of both sides at the network per read. Bytes of a socket are readable when the sending call returns.
const LOOKS: usize = 4;

#[test]
fn a_small_read_wakes_no_thread_where_the_target_waits() {
    let [one, other] = [0; 2].map(|_| Node::open(StreamsOptions::default()));
    let region = one.import(&other);
    one.reaches(&region);
    let driver = Driver::of_this_process().unwrap();
    let (kept, is_kept) = sync_channel(0);
    let (tell, go) = sync_channel(1);
    let go = Mutex::new(go);
    let keeps = Arc::new(Keeps { kept, go });
    let weak: std::sync::Weak<dyn Driven> = Arc::<Keeps>::downgrade(&keeps);
    driver.enrol(weak, Waits::Maybe);
    driver.wake();
    is_kept.recv().unwrap();
    let mut unanswered = 0;
    for context in 0..100 {
        one.get(&region, 2, context);
        let mut ended = false;
        for _ in 0..LOOKS {
            Transport::progress(&other.transport);
            one.channel.poll(&mut |end| {
                assert_eq!((end.context, end.result), (context, Ok(())));
                ended = true;
            });
        }
        unanswered += usize::from(!ended);
    }
    drop(is_kept);
    tell.send(()).unwrap();
    drop(tell);
    drop(keeps);
    assert_eq!(unanswered, 0, "reads that need the progress thread");
}
