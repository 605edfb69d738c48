//! The progress thread: one for a process, which moves on while the program computes what needs it. It sleeps on the descriptors of networks, and
//! uses no processor while nothing is under way.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

use crate::descriptor::above;
use crate::{Error, Result, own_thread};

/// Time between two looks at what is under way and has no descriptor.
const BEAT: Duration = Duration::from_micros(200);

/// Something that needs somebody to move it on.
pub trait Driven: Send + Sync {
    /// Moves it on; called by the progress thread while anything of the process is under way, and after events.
    fn drive(&self);
}

/// The driver of this process. Those who need it share it; the last one to let go of it ends its thread.
pub struct Driver {
    shared: Arc<Shared>,
    process: u32,
    thread: Option<JoinHandle<()>>,
}

struct Enrolled {
    what: Weak<dyn Driven>,
    /// It has events, and never waits.
    events: bool,
}

struct Shared {
    driven: Mutex<Vec<Enrolled>>,
    under_way: AtomicUsize,
    stop: AtomicBool,
    /// Of the alarm, and of networks.
    events: OwnedFd,
    alarm: OwnedFd,
}

static CURRENT: Mutex<Weak<Driver>> = Mutex::new(Weak::new());

thread_local! {
    /// What the progress thread drives; null in every other thread. Without a destructor: threads still wait while they end.
    static MINE: Cell<*const Shared> = const { Cell::new(std::ptr::null()) };
}

/// How the progress thread itself waits: nobody else would move on what it waits for. `None` in any other thread.
pub(crate) fn of_this_thread<'a>() -> Option<Waiting<'a>> {
    // SAFETY:
    // - null, or what `run` borrows as long as this thread calls anything.
    unsafe { MINE.get().as_ref() }.map(Waiting)
}

/// Locks what others may hold while they wait for something that the progress thread brings, or that a peer brings whom this thread serves:
/// it goes on with that meanwhile.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let Some(progress) = of_this_thread() else {
        return mutex.lock();
    };
    loop {
        if let Some(guard) = mutex.try_lock() {
            return guard;
        }
        progress.turn(BEAT);
    }
}

/// See [`of_this_thread`].
pub(crate) struct Waiting<'a>(&'a Shared);

impl Waiting<'_> {
    /// Moves on what never waits itself, and sleeps until there is something to do, but not longer than `longest`.
    pub fn turn(&self, longest: Duration) {
        self.0.drive(true);
        self.0.sleep(Some(longest));
    }
}

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
        let shared = Arc::new(Shared::new()?);
        let driving = shared.clone();
        let thread = own_thread::start("unipgas-progress", move || driving.run())?;
        Ok(Driver {
            shared,
            process: crate::process::id(),
            thread: Some(thread),
        })
    }

    /// Moves `driven` on from now on, as long as it is there.
    pub fn enrol(&self, driven: Weak<dyn Driven>) {
        self.shared.enrol(driven, false);
    }

    /// Moves `driven`, which never waits, on when `events` can be read, until [`forget_events`](Driver::forget_events). Errors: [`Error::Os`].
    pub fn enrol_events(&self, driven: Weak<dyn Driven>, events: BorrowedFd<'_>) -> Result<()> {
        self.shared.enrol(driven, true);
        self.shared.watch(events)
    }

    /// Before they are closed: the child of a fork may have them, too, and then they would stay.
    pub fn forget_events(&self, events: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.shared.events, events);
    }

    /// One more operation is under way that ends without an event, or for which nobody may wait.
    pub fn more(&self) {
        if self.shared.under_way.fetch_add(1, Ordering::AcqRel) == 0 {
            self.shared.wake();
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
        self.shared.wake();
        // What is driven may have been the last to hold it.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn new() -> Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let events = above(|| epoll::create(epoll::CreateFlags::CLOEXEC));
        let shared = Shared {
            driven: Mutex::default(),
            under_way: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            events: events.map_err(|e| Error::os("epoll_create", e))?,
            alarm: above(|| eventfd(0, flags)).map_err(|e| Error::os("eventfd", e))?,
        };
        shared.watch(shared.alarm.as_fd())?;
        Ok(shared)
    }

    fn watch(&self, what: BorrowedFd<'_>) -> Result<()> {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&self.events, what, data, epoll::EventFlags::IN)
            .map_err(|e| Error::os("epoll_ctl", e))
    }

    fn enrol(&self, what: Weak<dyn Driven>, events: bool) {
        let mut all = self.driven.lock();
        all.retain(|one| one.what.strong_count() > 0);
        all.push(Enrolled { what, events });
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.alarm, &1u64.to_ne_bytes());
    }

    fn run(&self) {
        MINE.set(self);
        while !self.stopped() {
            self.sleep(None);
            if !self.stopped() {
                self.drive(false);
            }
        }
        MINE.set(std::ptr::null());
    }

    /// Until there is something to do, but not longer than `longest`.
    fn sleep(&self, longest: Option<Duration>) {
        let beat = (self.under_way.load(Ordering::Acquire) > 0).then_some(BEAT);
        let longest = match (beat, longest) {
            (Some(beat), Some(longest)) => Some(beat.min(longest)),
            (beat, longest) => beat.or(longest),
        };
        let longest = longest.and_then(|span| Timespec::try_from(span).ok());
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }];
        // Interrupted or not: what there is to do is seen by those who are driven.
        let _ = epoll::wait(&self.events, &mut events, longest.as_ref());
        let _ = rustix::io::read(&self.alarm, &mut [0u8; 8]);
    }

    fn drive(&self, events_only: bool) {
        let present: Vec<_> = {
            let driven = self.driven.lock();
            let wanted = driven.iter().filter(|one| one.events || !events_only);
            wanted.filter_map(|one| one.what.upgrade()).collect()
        };
        for driven in present {
            driven.drive();
        }
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
