//! The thread that moves operations on while the program computes: one for a process, asleep while nothing is under way.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::panics::keep_going;
use crate::{Error, Result};

/// Time between two looks at what is under way.
const BEAT: Duration = Duration::from_micros(200);

/// Something with operations that need somebody to move them on.
pub trait Driven: Send + Sync {
    /// Moves them on; called by the driver's thread while anything of the process is under way.
    fn drive(&self);
}

/// The driver of this process. Those who need it share it; the last one to let go of it ends its thread.
pub struct Driver {
    shared: Arc<Shared>,
    process: u32,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    driven: Mutex<Vec<Weak<dyn Driven>>>,
    under_way: AtomicUsize,
    stop: AtomicBool,
    bed: Mutex<()>,
    alarm: Condvar,
}

static CURRENT: Mutex<Weak<Driver>> = Mutex::new(Weak::new());

impl Driver {
    /// The one of this process; started if there is none. The child of a fork gets one of its own.
    pub fn of_this_process() -> Result<Arc<Driver>> {
        let mut current = CURRENT.lock();
        let driver = current.upgrade();
        if let Some(driver) = driver.filter(|driver| driver.process == crate::process::id()) {
            return Ok(driver);
        }
        let driver = Arc::new(Driver::start()?);
        *current = Arc::downgrade(&driver);
        Ok(driver)
    }

    fn start() -> Result<Driver> {
        let shared = Arc::new(Shared::default());
        let driving = shared.clone();
        let thread = std::thread::Builder::new()
            .name("unipgas-driver".into())
            .spawn(move || keep_going(|| driving.run()))
            .map_err(|error| Error::os("starting the thread that moves operations on", error))?;
        Ok(Driver {
            shared,
            process: crate::process::id(),
            thread: Some(thread),
        })
    }

    /// Moves `driven` on from now on, as long as it is there.
    pub fn enrol(&self, driven: Weak<dyn Driven>) {
        let mut all = self.shared.driven.lock();
        all.retain(|one| one.strong_count() > 0);
        all.push(driven);
    }

    /// One more operation is under way.
    pub fn more(&self) {
        if self.shared.under_way.fetch_add(1, Ordering::AcqRel) == 0 {
            drop(self.shared.bed.lock());
            self.shared.alarm.notify_one();
        }
    }

    /// `ended` operations no longer are.
    pub fn fewer(&self, ended: usize) {
        self.shared.under_way.fetch_sub(ended, Ordering::AcqRel);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.process != crate::process::id() {
            // The child of a fork has no such thread, and its locks may be held for ever.
            return;
        }
        self.shared.stop.store(true, Ordering::Release);
        drop(self.shared.bed.lock());
        self.shared.alarm.notify_one();
        // What is driven may have been the last to hold it.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        loop {
            let mut bed = self.bed.lock();
            while self.under_way.load(Ordering::Acquire) == 0 && !self.stopped() {
                self.alarm.wait(&mut bed);
            }
            drop(bed);
            if self.stopped() {
                return;
            }
            std::thread::sleep(BEAT);
            for driven in self.present() {
                driven.drive();
            }
        }
    }

    fn present(&self) -> Vec<Arc<dyn Driven>> {
        let driven = self.driven.lock();
        driven.iter().filter_map(Weak::upgrade).collect()
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::ThreadId;

    use super::*;

    struct Counting {
        turns: AtomicUsize,
        tell: Mutex<mpsc::Sender<ThreadId>>,
    }

    impl Driven for Counting {
        fn drive(&self) {
            self.turns.fetch_add(1, Ordering::Relaxed);
            let _ = self.tell.lock().send(std::thread::current().id());
        }
    }

    fn counting() -> (Arc<Counting>, mpsc::Receiver<ThreadId>) {
        let (tell, told) = mpsc::channel();
        let tell = Mutex::new(tell);
        let turns = AtomicUsize::new(0);
        (Arc::new(Counting { turns, tell }), told)
    }

    #[test]
    fn one_thread_moves_all_on_while_something_is_under_way() {
        let driver = Driver::of_this_process().unwrap();
        assert!(Arc::ptr_eq(&driver, &Driver::of_this_process().unwrap()));
        let ((first, told_first), (second, told_second)) = (counting(), counting());
        let weak = |one: &Arc<Counting>| Arc::downgrade(one) as Weak<dyn Driven>;
        driver.enrol(weak(&first));
        driver.enrol(weak(&second));
        assert_eq!(first.turns.load(Ordering::Relaxed), 0);
        driver.more();
        driver.more();
        let thread = told_first.recv().unwrap();
        assert_eq!(told_second.recv().unwrap(), thread);
        assert_ne!(thread, std::thread::current().id());
        driver.fewer(1);
        drop(first);
        while told_first.recv().is_ok() {}
        // Still one under way.
        while told_second.try_recv().is_ok() {}
        assert_eq!(told_second.recv().unwrap(), thread);
        driver.fewer(1);
        drop(driver);
        while told_second.try_recv().is_ok() {}
    }

    /// As when the last port of an asynchronous engine closes in the course of its own progress.
    #[test]
    fn what_is_driven_may_hold_the_driver() {
        struct Holding(Mutex<Option<Arc<Driver>>>, mpsc::SyncSender<()>);
        impl Driven for Holding {
            fn drive(&self) {
                drop(self.0.lock().take());
                let _ = self.1.send(());
            }
        }
        let driver = Arc::new(Driver::start().unwrap());
        let (tell, told) = mpsc::sync_channel(1);
        let holding = Arc::new(Holding(Mutex::new(Some(driver.clone())), tell));
        driver.enrol(Arc::downgrade(&holding) as Weak<dyn Driven>);
        driver.more();
        drop(driver);
        told.recv().unwrap();
    }
}
