//! The progress thread, one for each process. It makes progress while the program computes. It sleeps on the descriptors of networks. A ring of a bell that
//! it listens at also wakes it ([`alarm`](crate::alarm)). It uses no processor while no operation is in progress.

use std::any::Any;
use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rustix::event::{Timespec, epoll};

use crate::alarm::{Alarm, Connected};
use crate::bell::{Bell, armed_are_seen, slice_of};
use crate::descriptor::{above, pipe};
use crate::{Error, Result, liveness_timer, own_thread};

/// Time between two polls of operations in progress that have no descriptor.
const BEAT: Duration = Duration::from_micros(200);
/// Time between two polls of work that is left to other threads: first, and longest. If these threads stop, peers are served within a millisecond. Each poll
/// is a timer. On a shared core the timer interrupts the program.
const DOZE: (Duration, Duration) = (Duration::from_micros(100), Duration::from_micros(700));

/// Time to poll after an event, before the thread sleeps. Condition: other threads sleep, and their processor is free.
const LINGER: Duration = Duration::from_micros(100);
/// A yield that takes longer shows that another thread wants the processor.
const UNWANTED: Duration = Duration::from_micros(20);

/// An object that makes progress only when it is driven.
pub trait Driven: Send + Sync {
    /// Makes progress. The progress thread calls it while an operation of the process is in progress, and after events.
    fn drive(&self);
    /// Whether other threads made its progress before the last [`drive`](Self::drive). Events then need not wake the progress thread.
    fn is_left_to_others(&self) -> bool {
        false
    }
    /// True: the progress thread drives it from time to time, but not after its events. False: this state ends.
    fn leave_to_others(&self, leaves: bool) {
        let _ = leaves;
    }
    /// Whether threads sleep that it may wake, or that may serve peers themselves.
    fn has_sleepers(&self) -> bool {
        false
    }
}

/// The driver of this process. Its users share it. The last drop ends its thread.
pub struct Driver {
    shared: Arc<Shared>,
    process: u32,
    thread: Option<JoinHandle<()>>,
}

/// Whether [`Driven::drive`] may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// It may wait. It is driven only while no other object waits.
    Maybe,
    /// It never waits. It is driven also while another object waits.
    Never,
}

struct Enrolled {
    what: Weak<dyn Driven>,
    waits: Waits,
}

/// A bell that the thread listens at.
struct Heard(*const Bell);

// SAFETY:
// - contract of `listen_at`: the bell is valid as long as `keeps` exists.
// - bells consist of atomics, and any thread may ring them.
unsafe impl Send for Heard {}

impl Heard {
    fn bell(&self) -> &Bell {
        // SAFETY:
        // - `AtBell` keeps the bell valid, and its drop removes this entry first.
        unsafe { &*self.0 }
    }
}

struct Shared {
    driven: Mutex<Vec<Enrolled>>,
    bells: Mutex<Vec<Heard>>,
    under_way: AtomicUsize,
    /// The thread sleeps without a beat, or is about to.
    sleeps_long: AtomicBool,
    stop: AtomicBool,
    /// A turn within a wait may have consumed an event of an object that it did not drive.
    missed: AtomicBool,
    /// Epoll instance with the descriptors of the networks.
    events: OwnedFd,
    /// Both ends of a pipe. Other processes can open its write end, which an eventfd does not allow.
    alarm: (OwnedFd, OwnedFd),
}

static CURRENT: Mutex<Weak<Driver>> = Mutex::new(Weak::new());
/// An object is left to other threads.
static DOZES: AtomicBool = AtomicBool::new(false);
/// Time at which a waiting thread last began to sleep, in [nanoseconds](pace::now).
static SLEPT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// State of the progress thread. Null in all other threads. It has no destructor: threads still wait while they end.
    static MINE: Cell<*const Shared> = const { Cell::new(std::ptr::null()) };
}

/// Wait method of the progress thread: it drives the other objects meanwhile. `None` in all other threads.
pub(crate) fn of_this_thread<'a>() -> Option<Waiting<'a>> {
    // SAFETY:
    // - null, or the state that `run` borrows. `run` sets null before it returns.
    unsafe { MINE.get().as_ref() }.map(Waiting)
}

/// Whether this thread is the progress thread.
pub fn is_this_thread() -> bool {
    !MINE.get().is_null()
}

/// A waiting thread that made progress begins to sleep. The progress thread takes over.
pub(crate) fn waiter_sleeps() {
    // Either the progress thread sees this store before it dozes, or this thread sees it doze.
    SLEPT.store(liveness_timer::now(), Ordering::SeqCst);
    if DOZES.load(Ordering::SeqCst)
        && let Some(driver) = CURRENT.lock().upgrade()
    {
        driver.wake();
    }
}

/// Whether a waiting thread has begun to sleep after `time`.
pub fn slept_since(time: u64) -> bool {
    SLEPT.load(Ordering::SeqCst) > time
}

/// Locks a mutex. Its holder may wait for the progress thread, or for a peer that this thread serves. The progress thread therefore makes progress while it
/// waits for the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    if let Some(guard) = mutex.try_lock() {
        return guard;
    }
    let mut guard = None;
    serve_until(|| {
        guard = mutex.try_lock();
        guard.is_some()
    });
    guard.unwrap_or_else(|| mutex.lock())
}

/// On the progress thread: serves peers until `done`. False: this is another thread, and the call has no effect.
pub(crate) fn serve_until(mut done: impl FnMut() -> bool) -> bool {
    let Some(progress) = of_this_thread() else {
        return false;
    };
    while !done() && !progress.turn(BEAT, &mut done) {}
    true
}

/// See [`of_this_thread`].
pub(crate) struct Waiting<'a>(&'a Shared);

impl Waiting<'_> {
    /// Drives the objects that never wait, then sleeps until an event, for at most `longest`. It returns the result of `done`, and does not sleep if that is
    /// true: the ring for it may have come before.
    pub fn turn(&self, longest: Duration, done: &mut dyn FnMut() -> bool) -> bool {
        if longest > BEAT && self.0.arm() {
            armed_are_seen();
        }
        self.0.drive(Waits::Never);
        let done = done();
        if !done {
            self.0.sleep(Some(longest), true);
        }
        self.0.missed.store(true, Ordering::Relaxed);
        done
    }
}

/// Yields the processor once. The progress thread serves peers first, since the awaited thread may need this.
pub fn give_way() {
    if let Some(progress) = of_this_thread() {
        progress.turn(Duration::ZERO, &mut || false);
    }
    crate::sync::yield_now();
}

/// The progress thread listens at a bell as long as this exists.
pub struct AtBell {
    driver: Arc<Driver>,
    bell: *const Bell,
    _connected: Connected,
    /// The bell.
    _keeps: Arc<dyn Any + Send + Sync>,
}

// SAFETY:
// - `Heard` allows any thread to use the bell. This type only compares the address.
unsafe impl Send for AtBell {}
// SAFETY:
// - as for Send. Nothing in it changes.
unsafe impl Sync for AtBell {}

impl Drop for AtBell {
    fn drop(&mut self) {
        if !self.driver.is_here() {
            return;
        }
        let mut bells = self.driver.shared.bells.lock();
        if let Some(this) = bells.iter().position(|heard| heard.0 == self.bell) {
            bells.swap_remove(this).bell().disarm();
            // Another `AtBell` may listen at the same bell.
            self.driver.shared.wake();
        }
    }
}

impl Driver {
    /// The driver of this process. Starts it if necessary. The child of a fork gets a new driver.
    pub fn of_this_process() -> Result<Arc<Driver>> {
        let mut current = CURRENT.lock();
        let driver = current.upgrade();
        if let Some(driver) = driver.filter(|driver| driver.is_here()) {
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

    /// False: this is a child of a fork. It has no progress thread, and locks may stay held for ever.
    pub fn is_here(&self) -> bool {
        self.process == crate::process::id()
    }

    /// Drives `driven` as long as it exists.
    pub fn enrol(&self, driven: Weak<dyn Driven>, waits: Waits) {
        self.shared.enrol(driven, waits);
    }

    /// An event of `events` starts a turn, until [`forget_events`](Driver::forget_events). Errors: [`Error::Os`].
    pub fn watch_events(&self, events: BorrowedFd<'_>) -> Result<()> {
        self.shared.watch(events)
    }

    /// A ring of `bell`, which belongs to this process, starts a turn.
    ///
    /// # Safety
    /// The bell is valid as long as `keeps` exists.
    pub unsafe fn listen_at(
        self: &Arc<Self>,
        bell: *const Bell,
        keeps: Arc<dyn Any + Send + Sync>,
    ) -> AtBell {
        let connected = Connected::new(bell, self.shared.clone());
        self.shared.bells.lock().push(Heard(bell));
        // The next sleep includes the bell.
        self.shared.wake();
        AtBell {
            driver: self.clone(),
            bell,
            _connected: connected,
            _keeps: keeps,
        }
    }

    /// The descriptor, in this process, to which peers write a byte to wake the progress thread.
    pub fn alarm(&self) -> RawFd {
        self.shared.alarm.1.as_raw_fd()
    }

    /// Must precede the close of `events`. A fork's child may hold a copy, and then the close does not remove them.
    pub fn forget_events(&self, events: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.shared.events, events);
    }

    /// Adds an operation in progress that ends without an event, or that may have no waiter.
    pub fn more(&self) {
        if self.shared.under_way.fetch_add(1, Ordering::AcqRel) == 0 {
            self.shared.wake();
        }
    }

    /// As [`more`](Driver::more). The progress thread polls within a beat; this call wakes it only from a longer sleep.
    #[inline]
    pub fn more_in_time(&self) {
        // Either the progress thread sees this before it sleeps, or this thread sees it sleep.
        let before = self.shared.under_way.fetch_add(1, Ordering::SeqCst);
        if before == 0 && self.shared.sleeps_long.load(Ordering::SeqCst) {
            self.shared.wake();
        }
    }

    /// Starts a turn.
    pub fn wake(&self) {
        self.shared.wake();
    }

    /// Subtracts `ended` operations that are no longer in progress.
    pub fn fewer(&self, ended: usize) {
        self.shared.under_way.fetch_sub(ended, Ordering::AcqRel);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.is_here() {
            return;
        }
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake();
        // A driven object may hold the last reference. This is then the progress thread.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Alarm for Shared {
    fn sound(&self) {
        self.wake();
    }
}

impl Shared {
    fn new() -> Result<Self> {
        let events = above(|| epoll::create(epoll::CreateFlags::CLOEXEC));
        let shared = Shared {
            driven: Mutex::default(),
            bells: Mutex::default(),
            under_way: AtomicUsize::new(0),
            sleeps_long: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            missed: AtomicBool::new(false),
            events: events.map_err(|e| Error::os("epoll_create", e))?,
            alarm: pipe().map_err(|e| Error::os("pipe2", e))?,
        };
        if cfg!(miri) {
            shared.watch(shared.alarm.0.as_fd())?;
        }
        Ok(shared)
    }

    fn watch(&self, what: BorrowedFd<'_>) -> Result<()> {
        let data = epoll::EventData::new_u64(0);
        let mut flags = epoll::EventFlags::IN;
        if cfg!(miri) {
            // Miri supports edge-triggered events only. The alarm is the only descriptor there, and each turn reads it.
            flags |= epoll::EventFlags::ET;
        }
        epoll::add(&self.events, what, data, flags).map_err(|e| Error::os("epoll_ctl", e))
    }

    fn enrol(&self, what: Weak<dyn Driven>, waits: Waits) {
        let mut all = self.driven.lock();
        all.retain(|one| one.what.strong_count() > 0);
        all.push(Enrolled { what, waits });
    }

    fn wake(&self) {
        // A full pipe is readable already.
        let _ = rustix::io::write(&self.alarm.1, &[1]);
    }

    fn run(&self) {
        MINE.set(self);
        let (mut woken, mut came) = (false, false);
        let mut doze = DOZE.0;
        while !self.stopped() {
            // A ring before `arm` sounded no alarm.
            let armed = self.arm();
            if woken || armed {
                self.drive(Waits::Maybe);
            }
            if self.missed.swap(false, Ordering::Relaxed) {
                continue;
            }
            let left = self.left_to_others();
            if !left.is_empty() {
                self.doze(&left, &mut doze, armed);
            } else {
                doze = DOZE.0;
                // The barrier interrupts the processors of all processes, so short sleeps do without it.
                let hears = armed && self.under_way.load(Ordering::SeqCst) == 0;
                if hears {
                    armed_are_seen();
                    self.drive(Waits::Maybe);
                }
                let missed = self.missed.swap(false, Ordering::Relaxed);
                // If an object was left to others meanwhile, a sleep on descriptors may be wrong.
                if !missed && self.left_to_others().is_empty() {
                    came = came && self.lingers() || self.sleep(None, hears || !armed);
                }
            }
            self.disarm();
            woken = true;
        }
        MINE.set(std::ptr::null());
    }

    /// Arms the bells. Returns whether there are bells.
    fn arm(&self) -> bool {
        let bells = self.bells.lock();
        bells.iter().for_each(|heard| heard.bell().arm());
        !bells.is_empty()
    }

    fn disarm(&self) {
        let bells = self.bells.lock();
        bells.iter().for_each(|heard| heard.bell().disarm());
    }

    /// Polls for the next event, which saves a wake-up. Returns whether an event has come.
    fn lingers(&self) -> bool {
        let began = Instant::now();
        while began.elapsed() < LINGER
            && self
                .present(Waits::Maybe)
                .iter()
                .any(|one| one.has_sleepers())
        {
            let offered = Instant::now();
            std::thread::yield_now();
            if offered.elapsed() > UNWANTED {
                return false;
            }
            if self.rests(Some(&Timespec::default())) {
                return true;
            }
        }
        false
    }

    /// Sleeps until a descriptor is readable, for at most `longest`. Returns whether a descriptor is readable.
    fn rests(&self, longest: Option<&Timespec>) -> bool {
        let (came, alarm) = readable(&self.events, &self.alarm.0, longest);
        if alarm {
            let _ = rustix::io::read(&self.alarm.0, &mut [0u8; 64]);
        }
        came
    }

    /// Sleeps until an event, for at most `longest`. Without `hears` (all bells are heard) it sleeps for at most a beat. Returns whether an event has come.
    fn sleep(&self, longest: Option<Duration>, hears: bool) -> bool {
        self.sleeps_long.store(true, Ordering::SeqCst);
        let short = !hears || self.under_way.load(Ordering::SeqCst) > 0;
        let beat = short.then_some(BEAT);
        if beat.is_some() {
            self.sleeps_long.store(false, Ordering::SeqCst);
        }
        // A notifier may fail to sound the alarm.
        let slice = (!self.bells.lock().is_empty()).then(|| slice_of(1));
        let longest = [beat, slice, longest].into_iter().flatten().min();
        let longest = longest.and_then(|span| Timespec::try_from(span).ok());
        // An interruption needs no case: driven objects look for their work themselves.
        let came = self.rests(longest.as_ref());
        self.sleeps_long.store(false, Ordering::SeqCst);
        came
    }

    /// Sleeps until another object has events, or until an object of `left` is no longer left to other threads. `armed`: there are bells. The waiting threads
    /// hear them, so this sleep does not. Their listeners are driven after each sleep.
    fn doze(&self, left: &[Arc<dyn Driven>], span: &mut Duration, armed: bool) {
        if armed {
            self.disarm();
        }
        left.iter().for_each(|one| one.leave_to_others(true));
        DOZES.store(true, Ordering::SeqCst);
        loop {
            // A thread may have begun to sleep before it could see that the progress thread dozes.
            left.iter().for_each(|one| one.drive());
            if !left.iter().all(|one| one.is_left_to_others()) {
                break;
            }
            let longest = Timespec::try_from(*span).ok();
            *span = (*span * 2).min(DOZE.1);
            let came = self.rests(longest.as_ref());
            if came || armed || self.under_way.load(Ordering::SeqCst) > 0 {
                break;
            }
        }
        DOZES.store(false, Ordering::SeqCst);
        left.iter().for_each(|one| one.leave_to_others(false));
    }

    /// The objects that are left to other threads.
    fn left_to_others(&self) -> Vec<Arc<dyn Driven>> {
        let mut left = self.present(Waits::Maybe);
        left.retain(|one| one.is_left_to_others());
        left
    }

    /// `who`: all objects, or only objects that never wait.
    fn drive(&self, who: Waits) {
        for driven in self.present(who) {
            driven.drive();
        }
    }

    fn present(&self, who: Waits) -> Vec<Arc<dyn Driven>> {
        let driven = self.driven.lock();
        let wanted = driven
            .iter()
            .filter(|one| who == Waits::Maybe || one.waits == Waits::Never);
        wanted.filter_map(|one| one.what.upgrade()).collect()
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// Waits until `events` or `alarm` is readable. Returns whether one of them is, and whether the alarm is. It does not use epoll_wait: valgrind reports
/// rustix's event buffer as uninitialised.
#[cfg(not(miri))]
fn readable(events: &OwnedFd, alarm: &OwnedFd, longest: Option<&Timespec>) -> (bool, bool) {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut both = [events, alarm].map(|fd| PollFd::new(fd, PollFlags::IN));
    let came = poll(&mut both, longest).is_ok_and(|count| count > 0);
    (came, came && !both[1].revents().is_empty())
}

/// Miri supports epoll only.
#[cfg(miri)]
fn readable(events: &OwnedFd, _: &OwnedFd, longest: Option<&Timespec>) -> (bool, bool) {
    let mut ready = [epoll::Event {
        flags: epoll::EventFlags::empty(),
        data: epoll::EventData::new_u64(0),
    }];
    (epoll::wait(events, &mut ready, longest) == Ok(1), true)
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
        driver.enrol(weak(&first), Waits::Maybe);
        driver.enrol(weak(&second), Waits::Never);
        assert_eq!(first.turns.load(Ordering::Relaxed), 0);
        driver.more();
        driver.more();
        let thread = told_first.recv().unwrap();
        assert_eq!(told_second.recv().unwrap(), thread);
        assert_ne!(thread, std::thread::current().id());
        driver.fewer(1);
        drop(first);
        while told_first.recv().is_ok() {}
        // One operation is still in progress.
        while told_second.try_recv().is_ok() {}
        assert_eq!(told_second.recv().unwrap(), thread);
        driver.fewer(1);
        drop(driver);
        while told_second.try_recv().is_ok() {}
    }

    #[test]
    fn a_ring_begins_a_turn() {
        let driver = Driver::of_this_process().unwrap();
        let bell = Arc::new(Bell::default());
        let (listening, told) = counting();
        driver.enrol(Arc::downgrade(&listening) as Weak<dyn Driven>, Waits::Never);
        // SAFETY:
        // - `listen_at` keeps a reference to the bell.
        let at = unsafe { driver.listen_at(&raw const *bell, bell.clone()) };
        let next = |turns: usize| {
            while listening.turns.load(Ordering::Relaxed) < turns {
                told.recv().unwrap();
            }
        };
        next(1);
        for turns in 2..100 {
            // A turn also begins without a ring, but only after a slice of 50 ms.
            while !bell.is_armed() {
                std::thread::yield_now();
            }
            bell.ring_if_heard();
            next(turns);
        }
        drop(at);
        assert!(!bell.is_armed());
    }

    /// The last port of an asynchronous engine may close during its own progress.
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
        driver.enrol(Arc::downgrade(&holding) as Weak<dyn Driven>, Waits::Maybe);
        driver.more();
        drop(driver);
        told.recv().unwrap();
    }
}
