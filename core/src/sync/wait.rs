//! Adaptive waiting: spin while an answer is nanoseconds away, yield while somebody else needs the core, then sleep.

use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::bell::{Bell, slice_of};
use crate::issued;
use crate::sync::tally;
use crate::waits::{Telling, polled};
use crate::{Deadline, Error, Result, driver, on_line};

/// Polls between two looks at the clock while spinning.
pub const BURST: u32 = 128;
/// Where what is waited for may come by a network, which is asked in between.
pub const SHORT_BURST: u32 = 4;
/// How long a waiter keeps its core when every process has one.
const SPIN: Duration = Duration::from_micros(20);
/// How long it then offers its core to others before it sleeps. Beyond the round trip of a barrier of processes that share a
/// core, so that such a barrier never sleeps.
const YIELD: Duration = Duration::from_micros(300);

/// How often waits lately outlasted [`SPIN`], weighed: where most do, others may need the core, whatever is known of them, as in containers that share cores.
static OUTLASTED: AtomicU32 = AtomicU32::new(0);
const MOST_OUTLASTED: u32 = 8;

/// A wait has taken so long.
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

/// Whether a waiter keeps its core for the time of [`SPIN`].
fn spins() -> bool {
    OUTLASTED.load(Ordering::Relaxed) <= MOST_OUTLASTED / 2
}

on_line! {
    /// What a process tells somebody who wants to know whether a job still moves: kept in memory that both see.
    #[repr(C)]
    #[derive(Debug, Default)]
    pub struct Watch {
        /// Microseconds that this process has meant to sleep, or to leave its core to others, while it waited in vain and nobody rang. No clock
        /// runs here: a process that gets no core waits no longer for that.
        pub in_vain: AtomicU64,
        /// Waits that have ended after that.
        pub ended: AtomicU64,
    }
}

static WATCH: AtomicPtr<Watch> = AtomicPtr::new(std::ptr::null_mut());

impl Watch {
    /// Has this process's long waits counted here from now on.
    pub fn begin(watch: &'static Watch) {
        WATCH.store(std::ptr::from_ref(watch).cast_mut(), Ordering::Release);
    }

    fn current() -> Option<&'static Watch> {
        // SAFETY:
        // - null, or from a reference that lives as long as the process; it is only read through, and made of atomics.
        unsafe { WATCH.load(Ordering::Acquire).as_ref() }
    }

    /// This process has waited so long and seen nothing.
    pub fn waited(span: Duration) {
        if let Some(watch) = Watch::current() {
            let span = span.as_micros() as u64;
            watch.in_vain.fetch_add(span, Ordering::Relaxed);
        }
    }

    /// How long it has so far, if that is counted.
    pub fn in_vain_so_far() -> Duration {
        let watch = Watch::current();
        let span = watch.map_or(0, |watch| watch.in_vain.load(Ordering::Relaxed));
        Duration::from_micros(span)
    }

    /// A wait that has been in vain for a while has ended.
    pub fn moved() {
        if let Some(watch) = Watch::current() {
            watch.ended.fetch_add(1, Ordering::Relaxed);
        }
    }
}

// Where a processor can sleep until a line changes (x86's `umwait`, Arm's `wfe` behind an exclusive load), that is not done: `poll` may look
// at many words, of which one could be watched. A change of another one would be seen when `wfe`'s event stream comes round, every 100 µs,
// which is more than all of a barrier; and whoever waits longer than `SPIN` sleeps in the kernel.

/// A few nanoseconds between two looks: a core that looks without a pause takes the line away from the writer more often, and
/// has more loads in flight that the write then throws away.
#[inline(always)]
fn pace() {
    let mut turn = 0u64;
    for _ in 0..4 {
        turn = std::hint::black_box(turn + 1);
    }
}

/// Waits that end at once, between two notes of them.
const TESTS: u32 = 64;

/// A wait ends at once, and in vain. A program that waits by many of them is shown as one that waits.
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

/// How this process waits.
#[derive(Debug, Clone, Copy)]
pub struct Patience<'a> {
    /// Where it sleeps.
    pub bell: &'a Bell,
    /// More processes than cores: spinning would keep the awaited peer from running.
    pub crowded: bool,
    /// Processes that take part: the longest sleep between two looks at the world is [theirs](slice_of).
    pub company: &'a AtomicU32,
}

impl Patience<'_> {
    /// Polls until it gives a value, or the deadline passes ([`Error::Timeout`]). `check` is called now and then while nothing
    /// happens (at the latest after the longest sleep); its error ends the wait: it is where the liveness of peers is watched. `burst` says how many
    /// polls are made without a look at anything else. `progress` moves on what stores of peers are not all of, and says whether peers are
    /// served by that, who may soon ask for more; it may take longer than a poll. `moved` says whether a part of what is waited for has come since it was
    /// asked: the next one is nanoseconds away again.
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
            // The clock is not read at all for answers that come within the first burst.
            for _ in 0..burst() {
                if let Some(value) = poll() {
                    return Ok(value);
                }
                pace();
            }
        }
        self.wait_longer(deadline, check, burst, progress, moved, poll)
    }

    #[inline(never)]
    fn wait_longer<T>(
        &self,
        deadline: Deadline,
        check: &mut dyn FnMut() -> Result<()>,
        burst: impl Fn() -> u32,
        progress: impl Fn() -> bool,
        moved: impl Fn() -> bool,
        mut poll: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        progress();
        if let Some(value) = poll() {
            return Ok(value);
        }
        if deadline == Deadline::Now {
            tested(check)?;
            return Err(Error::Timeout);
        }
        if let Some(progress) = driver::of_this_thread() {
            loop {
                check()?;
                let mut found = None;
                let slice = slice_of(1);
                let longest = deadline.remaining().unwrap_or(slice).min(slice);
                progress.turn(longest, &mut || {
                    found = poll();
                    found.is_some()
                });
                if let Some(value) = found.or_else(&mut poll) {
                    return Ok(value);
                }
                if deadline.expired() {
                    return Err(Error::Timeout);
                }
            }
        }
        let began = Instant::now();
        let mut told = Telling::begins();
        let slice = slice_of(self.company.load(Ordering::Relaxed));
        // When it began, or the last part came.
        let mut since = began;
        'parts: loop {
            while !self.crowded && spins() && since.elapsed() < SPIN {
                progress();
                for _ in 0..burst() {
                    if let Some(value) = poll() {
                        note_wait(since.elapsed());
                        return Ok(value);
                    }
                    pace();
                }
                if moved() {
                    since = Instant::now();
                }
                if deadline.expired() {
                    check()?;
                    return Err(Error::Timeout);
                }
                std::hint::spin_loop();
            }
            told.yields(began);
            let mut start = Instant::now();
            while start.elapsed() < YIELD {
                tally::yielded();
                std::thread::yield_now();
                if progress() {
                    start = Instant::now();
                }
                if let Some(value) = poll() {
                    if !self.crowded {
                        note_wait(since.elapsed());
                    }
                    return Ok(value);
                }
                if deadline.expired() {
                    check()?;
                    return Err(Error::Timeout);
                }
                if moved() {
                    since = Instant::now();
                    continue 'parts;
                }
            }
            if !cfg!(loom) {
                issued::look();
            }
            loop {
                // A ring for what `check` looks at may come just after that.
                let listening = self.bell.listen();
                told.check(began.elapsed(), &mut *check)?;
                if let Some(value) = poll() {
                    return Ok(value);
                }
                let remaining = deadline.remaining().unwrap_or(slice);
                if remaining.is_zero() {
                    return Err(Error::Timeout);
                }
                let span = remaining.min(slice);
                tally::slept();
                if !cfg!(loom) {
                    driver::waiter_sleeps();
                }
                let rung = listening.sleep(span);
                if let Some(value) = poll() {
                    Watch::moved();
                    return Ok(value);
                }
                if !rung {
                    Watch::waited(span);
                } else if progress() && !self.crowded {
                    // Who has asked for something may soon ask for more, which this thread serves sooner than one that has to be woken.
                    break;
                }
                if moved() {
                    since = Instant::now();
                    continue 'parts;
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_ring_for_what_a_check_looks_at_is_heard() {
        let (bell, company) = (Bell::default(), AtomicU32::new(1));
        let patience = Patience {
            bell: &bell,
            crowded: false,
            company: &company,
        };
        let mut check = || match bell.sleepers() {
            0 => Ok(()),
            _ => Err(Error::Ended),
        };
        let deadline = Deadline::after(Duration::from_millis(20));
        let never = || None::<()>;
        let waited = patience.wait(deadline, &mut check, || 1, || false, || false, never);
        assert_eq!(waited, Err(Error::Ended));
    }
}
