//! Adaptive waiting: a waiter spins, then yields its core, then sleeps.

use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::bell::{Bell, slice_of};
use crate::issue_totals;
use crate::sync::counters;
use crate::waits::{Telling, polled};
use crate::{Deadline, Error, Result, driver, on_line};

/// Polls between two reads of the clock during the spin.
pub const BURST: u32 = 128;
/// As [`BURST`], for waits that also need progress of networks.
pub const SHORT_BURST: u32 = 4;
/// Time for which a waiter keeps its core, if each process has a core.
const SPIN: Duration = Duration::from_micros(20);
/// Time for which it then yields its core, before it sleeps. Longer than the round trip of a barrier between processes that share a core: such a barrier
/// never sleeps.
const YIELD: Duration = Duration::from_micros(300);

/// Weighted count of recent waits that outlasted [`SPIN`]. If most do, other processes may need the core, as in containers that share cores.
static OUTLASTED: AtomicU32 = AtomicU32::new(0);
const MOST_OUTLASTED: u32 = 8;

/// Counts a wait of this length.
fn note_wait(took: Duration) {
    let before = OUTLASTED.load(Ordering::Relaxed);
    let now = match took < SPIN {
        true => before.saturating_sub(1),
        false => (before + 2).min(MOST_OUTLASTED),
    };
    if now != before {
        OUTLASTED.store(now, Ordering::Relaxed);
    }
}

/// Whether a waiter keeps its core for [`SPIN`].
fn spins() -> bool {
    OUTLASTED.load(Ordering::Relaxed) <= MOST_OUTLASTED / 2
}

on_line! {
    /// Progress of a process, in memory that the launcher reads.
    #[repr(C)]
    #[derive(Debug, Default)]
    pub struct Watch {
        /// Sum of the intended sleeps that ended without a ring, in microseconds. Not measured: a process without a core adds nothing.
        pub in_vain: AtomicU64,
        /// Waits that ended after a sleep, and other progress of long waits.
        pub ended: AtomicU64,
    }
}

static WATCH: AtomicPtr<Watch> = AtomicPtr::new(std::ptr::null_mut());

impl Watch {
    /// Starts to count long waits of this process in `watch`.
    pub fn begin(watch: &'static Watch) {
        WATCH.store(std::ptr::from_ref(watch).cast_mut(), Ordering::Release);
    }

    fn current() -> Option<&'static Watch> {
        // SAFETY:
        // - null, or from a reference that lives as long as the process. It consists of atomics.
        unsafe { WATCH.load(Ordering::Acquire).as_ref() }
    }

    /// Adds a sleep that ended without a ring.
    pub fn waited(span: Duration) {
        if let Some(watch) = Watch::current() {
            let span = span.as_micros() as u64;
            watch.in_vain.fetch_add(span, Ordering::Relaxed);
        }
    }

    /// The sum of sleeps without a ring. 0 without a watch.
    pub fn in_vain_so_far() -> Duration {
        let watch = Watch::current();
        let span = watch.map_or(0, |watch| watch.in_vain.load(Ordering::Relaxed));
        Duration::from_micros(span)
    }

    /// Counts a wait that ended after a sleep, or a step of a long wait.
    pub fn moved() {
        if let Some(watch) = Watch::current() {
            watch.ended.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The progress of a wait that many events end together: messages, completions, counts.
#[derive(Debug, Default)]
pub struct WaitProgress(Option<u64>);

impl WaitProgress {
    /// For checks of waits. `now`: a number that each event changes. A change counts as an ended wait: the process makes progress.
    pub fn note(&mut self, now: u64) {
        if self.0.replace(now).is_some_and(|before| before != now) {
            Watch::moved();
        }
    }
}

// Instructions that sleep until a line changes (x86's `umwait`, Arm's `wfe`) are not used. They watch one word, and `poll` may read many. The event stream of
// `wfe` would show another change after 100 µs, which is longer than a barrier.

/// Waits a few nanoseconds between two polls. Polls without a pause take the line from its writer more often, and leave more loads in flight to discard.
#[inline(always)]
fn pace() {
    let mut turn = 0u64;
    for _ in 0..4 {
        turn = std::hint::black_box(turn + 1);
    }
}

/// Waits without a timeout between two notes for [`polled`].
const TESTS: u32 = 64;

/// Ends a poll without a value. A program that repeats such polls is shown as waiting.
fn tested(check: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    thread_local! {
        static TESTED: Cell<u32> = const { Cell::new(0) };
    }
    let tests = TESTED.get().wrapping_add(1);
    TESTED.set(tests);
    if !tests.is_multiple_of(TESTS) {
        return check();
    }
    let mut checked = None;
    polled(false, || checked = Some(check()));
    checked.unwrap_or_else(check)
}

/// The wait strategy of this process.
#[derive(Debug, Clone, Copy)]
pub struct WaitStrategy<'a> {
    /// The bell at which it sleeps.
    pub bell: &'a Bell,
    /// More processes than cores: a spin would keep the awaited peer from its core.
    pub crowded: bool,
    /// Number of processes that take part. The longest sleep between two checks depends on it.
    pub company: &'a AtomicU32,
}

impl WaitStrategy<'_> {
    /// Polls until `poll` returns a value, or until the deadline ([`Error::Timeout`]).
    ///
    /// - `check` runs from time to time, at the latest after the longest sleep. Its error ends the wait. It watches the liveness of peers.
    /// - `burst`: polls between two calls of `progress`.
    /// - `progress` drives networks, and may take longer than a poll. True: it serves peers, which may soon send more.
    /// - `moved`: a part of the awaited message has come since the last call. The next part is nanoseconds away.
    #[inline]
    pub fn wait<T>(
        &self,
        deadline: Deadline,
        check: &mut dyn FnMut() -> Result<()>,
        burst: impl Fn() -> u32,
        progress: impl Fn() -> bool,
        moved: impl Fn() -> bool,
        mut poll: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        if let Some(value) = poll() {
            return Ok(value);
        }
        if deadline != Deadline::Now && !self.crowded {
            // A value within the first burst needs no read of the clock.
            for _ in 0..burst() {
                if let Some(value) = poll() {
                    return Ok(value);
                }
                pace();
            }
        }
        self.wait_long(deadline, check, burst, progress, moved, poll)
    }

    /// The rest of a wait. It takes the closures by value, so that the first polls keep what they capture in registers.
    #[inline(never)]
    fn wait_long<T>(
        &self,
        deadline: Deadline,
        check: &mut dyn FnMut() -> Result<()>,
        burst: impl Fn() -> u32,
        progress: impl Fn() -> bool,
        moved: impl Fn() -> bool,
        mut poll: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        let mut found = None;
        let wait = LongWait {
            patience: *self,
            deadline,
            check,
            burst: &burst,
            progress: &progress,
            moved: &moved,
            poll: &mut || {
                found = found.take().or_else(&mut poll);
                found.is_some()
            },
        };
        wait.run()?;
        found.ok_or(Error::Timeout)
    }
}

enum Phase {
    Spin,
    Yield,
    Sleep,
    Done,
}

/// A wait that outlasted the first burst of polls. It calls the closures of [`WaitStrategy::wait`] through pointers, so its code exists once. `poll` keeps the
/// value, and returns whether there is one.
struct LongWait<'a> {
    patience: WaitStrategy<'a>,
    deadline: Deadline,
    check: &'a mut dyn FnMut() -> Result<()>,
    burst: &'a dyn Fn() -> u32,
    progress: &'a dyn Fn() -> bool,
    moved: &'a dyn Fn() -> bool,
    poll: &'a mut dyn FnMut() -> bool,
}

/// Times of a long wait.
struct Times {
    began: Instant,
    /// Start of the wait, or arrival of the last part.
    since: Instant,
    /// The longest sleep.
    slice: Duration,
    told: Telling,
}

impl LongWait<'_> {
    fn run(mut self) -> Result<()> {
        (self.progress)();
        if (self.poll)() {
            return Ok(());
        }
        if self.deadline == Deadline::Now {
            tested(self.check)?;
            return Err(Error::Timeout);
        }
        if let Some(driver) = driver::of_this_thread() {
            return self.drive(&driver);
        }
        let began = Instant::now();
        let mut times = Times {
            began,
            since: began,
            told: Telling::begins(),
            slice: slice_of(self.patience.company.load(Ordering::Relaxed)),
        };
        let mut phase = Phase::Spin;
        loop {
            phase = match phase {
                Phase::Spin => self.spin(&mut times)?,
                Phase::Yield => self.yield_core(&mut times)?,
                Phase::Sleep => self.sleep(&mut times)?,
                Phase::Done => return Ok(()),
            };
        }
    }

    /// The wait of the progress thread: it drives its objects meanwhile.
    fn drive(self, driver: &driver::Waiting<'_>) -> Result<()> {
        let slice = slice_of(1);
        loop {
            (self.check)()?;
            let longest = self.deadline.remaining().unwrap_or(slice).min(slice);
            driver.turn(longest, self.poll);
            if (self.poll)() {
                return Ok(());
            }
            if self.deadline.expired() {
                return Err(Error::Timeout);
            }
        }
    }

    fn spin(&mut self, times: &mut Times) -> Result<Phase> {
        while !self.patience.crowded && spins() && times.since.elapsed() < SPIN {
            (self.progress)();
            for _ in 0..(self.burst)() {
                if (self.poll)() {
                    note_wait(times.since.elapsed());
                    return Ok(Phase::Done);
                }
                pace();
            }
            self.note_parts(times);
            self.check_deadline()?;
            std::hint::spin_loop();
        }
        Ok(Phase::Yield)
    }

    fn yield_core(&mut self, times: &mut Times) -> Result<Phase> {
        times.told.yields(times.began);
        let mut start = Instant::now();
        while start.elapsed() < YIELD {
            counters::yielded();
            std::thread::yield_now();
            if (self.progress)() {
                start = Instant::now();
            }
            if (self.poll)() {
                if !self.patience.crowded {
                    note_wait(times.since.elapsed());
                }
                return Ok(Phase::Done);
            }
            self.check_deadline()?;
            if self.note_parts(times) {
                return Ok(Phase::Spin);
            }
        }
        if !cfg!(loom) {
            issue_totals::look();
        }
        Ok(Phase::Sleep)
    }

    fn sleep(&mut self, times: &mut Times) -> Result<Phase> {
        // Listens before `check`. Otherwise a ring right after the check is lost.
        let listening = self.patience.bell.listen();
        let checked = times.told.check(times.began.elapsed(), &mut *self.check);
        if checked.is_err() {
            // A peer may have sent the awaited event before its death.
            (self.progress)();
        }
        if (self.poll)() {
            return Ok(Phase::Done);
        }
        checked?;
        let remaining = self.deadline.remaining().unwrap_or(times.slice);
        if remaining.is_zero() {
            return Err(Error::Timeout);
        }
        let span = remaining.min(times.slice);
        counters::slept();
        if !cfg!(loom) {
            driver::waiter_sleeps();
        }
        let rung = listening.sleep(span);
        if (self.poll)() {
            Watch::moved();
            return Ok(Phase::Done);
        }
        if !rung {
            Watch::waited(span);
        } else if (self.progress)() && !self.patience.crowded {
            // A peer that has sent a request may send more. A thread that is awake serves it sooner.
            return Ok(Phase::Spin);
        }
        Ok(match self.note_parts(times) {
            true => Phase::Spin,
            false => Phase::Sleep,
        })
    }

    /// Notes parts that have come. The wait for the next one starts now.
    fn note_parts(&self, times: &mut Times) -> bool {
        let came = (self.moved)();
        if came {
            times.since = Instant::now();
        }
        came
    }

    fn check_deadline(&mut self) -> Result<()> {
        if self.deadline.expired() {
            (self.check)()?;
            return Err(Error::Timeout);
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_came_before_a_death_ends_the_wait() {
        let (bell, company) = (Bell::default(), AtomicU32::new(1));
        let patience = WaitStrategy {
            bell: &bell,
            crowded: false,
            company: &company,
        };
        for (comes, ends) in [(true, Ok(())), (false, Err(Error::RankDead(1)))] {
            let (dead, taken) = (Cell::new(false), Cell::new(false));
            let mut check = || {
                dead.set(true);
                Err(Error::RankDead(1))
            };
            let progress = || {
                taken.set(dead.get() && comes);
                false
            };
            let poll = || taken.get().then_some(());
            let waited = patience.wait(Deadline::Never, &mut check, || 1, progress, || false, poll);
            assert_eq!(waited, ends);
        }
    }

    #[test]
    fn a_ring_for_what_a_check_looks_at_is_heard() {
        let (bell, company) = (Bell::default(), AtomicU32::new(1));
        let patience = WaitStrategy {
            bell: &bell,
            crowded: false,
            company: &company,
        };
        let mut check = || match bell.sleepers() {
            0 => Err(Error::Timeout),
            _ => Err(Error::Ended),
        };
        let deadline = Deadline::Never;
        let never = || None::<()>;
        let waited = patience.wait(deadline, &mut check, || 1, || false, || false, never);
        assert_eq!(waited, Err(Error::Ended));
    }
}
