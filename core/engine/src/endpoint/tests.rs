use std::thread::{self, ThreadId};

use super::*;
use crate::loopback::{Loopback, LoopbackNet};

/// A channel with one operation, which ends at a poll by any thread but `asleep`.
struct OneOperation {
    asleep: Arc<OnceLock<ThreadId>>,
    ended: AtomicBool,
}

impl Channel for OneOperation {
    fn poll(&self, _: &mut dyn FnMut(Completion)) {
        if self.asleep.get() != Some(&thread::current().id()) {
            self.ended.store(true, Ordering::Release);
        }
    }

    fn pending(&self) -> usize {
        usize::from(!self.ended.load(Ordering::Acquire))
    }
}

/// The first thread may sleep, so the second makes progress.
#[test]
fn a_second_draining_thread_makes_progress() {
    let asleep = Arc::new(OnceLock::new());
    let channel = OneOperation {
        asleep: asleep.clone(),
        ended: AtomicBool::new(false),
    };
    let net = Arc::new(LoopbackNet::default());
    let engine = Engine::new(vec![Arc::new(Loopback::join(&net))]).unwrap();
    let endpoint = Endpoint::new(Box::new([Box::new(channel)]), None, true, 8, None);
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            asleep.set(thread::current().id()).unwrap();
            endpoint.drain(&engine, Deadline::Never, &mut || Ok(()))
        });
        while endpoint.posted.look() & DRAINING == 0 {
            thread::yield_now();
        }
        let mut checks = 0;
        let second = endpoint.drain(&engine, Deadline::Never, &mut || {
            checks += 1;
            match checks {
                10 => Err(Error::Timeout),
                _ => Ok(()),
            }
        });
        endpoint.progress();
        engine.ring();
        assert!(second.is_ok(), "{second:?}");
        first.join().unwrap().unwrap();
    });
}
