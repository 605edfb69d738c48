//! Waits by calls that poll and return at once. Such calls note their polls from time to time, outside of their fast paths. These waits are then shown like
//! waits inside a call.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use parking_lot::Once;
use rustix::time::{ClockId, clock_gettime};

use crate::sync::caller::calling;
use crate::sync::counters;
use crate::sync::waits::Telling;
use crate::{exit, issue_totals, trace};

/// A thread that uses its processor for longer between two notes computes, and does not wait.
pub(super) const WORK: Duration = Duration::from_millis(100);
/// The least time between two notes.
const NOTE: Duration = Duration::from_millis(10);
/// Number of notes that look up the name of the call: a program may poll several queues in turn.
const NAMES: u32 = 16;

/// A sequence of polls without a result.
pub(crate) struct Polls {
    told: Telling,
    traced: Option<trace::Wait>,
    call: String,
    began: Instant,
    /// The last time that the thread polled.
    last: Instant,
    noted: Instant,
    /// Processor time of the thread at the last note.
    used: Duration,
    /// Operations that the process had posted at the last note.
    posted: Option<u64>,
    names: u32,
}

thread_local! {
    /// No destructor: open polls are reported at exit, after the end of the thread.
    static POLLS: RefCell<Option<ManuallyDrop<Polls>>> = const { RefCell::new(None) };
}

/// Notes that this thread has polled without a result for a while. Such polls form one wait. It ends when a result `came` before this note, when the process
/// posts an operation, or when the thread computes. `check` names the needed ranks, as checks of waits do.
#[inline]
pub fn polled(came: bool, check: impl FnOnce()) {
    if trace::is_on() || counters::is_told() {
        note(came, check);
    }
}

/// Ends the polls of this thread.
pub(crate) fn end() {
    drop(take());
}

/// Takes the polls of this thread. They end with the drop of the result. `None` also if a signal has come during a change of the polls.
pub(super) fn take() -> Option<Polls> {
    let polls = POLLS.with(|polls| polls.try_borrow_mut().ok()?.take());
    polls.map(ManuallyDrop::into_inner)
}

/// Writes the exiting thread's polls to the trace. Handlers of `atexit` run in reverse order, so this one runs before the trace's, which is older.
fn end_at_exit() {
    extern "C" fn at_exit() {
        let polls = take();
        exit::run(|| drop(polls));
    }
    static ONCE: Once = Once::new();
    // SAFETY:
    // - contract of atexit(3): the handler takes no argument. It uses thread-local data without a destructor.
    ONCE.call_once(|| unsafe {
        libc::atexit(at_exit);
    });
}

#[cold]
fn note(came: bool, check: impl FnOnce()) {
    let now = Instant::now();
    let earlier = POLLS.take().map(ManuallyDrop::into_inner);
    let mut polls = match earlier.filter(|_| !came) {
        Some(mut polls) if now - polls.noted < NOTE => {
            polls.last = now;
            POLLS.set(Some(ManuallyDrop::new(polls)));
            return;
        }
        earlier => {
            let (used, posted) = (used(), issue_totals::look());
            let goes_on = |polls: &Polls| {
                let same = posted.is_none() || polls.posted.is_none() || polls.posted == posted;
                same && used.saturating_sub(polls.used) < WORK
            };
            let mut polls = (earlier.filter(goes_on)).unwrap_or_else(|| Polls::begin(now));
            (polls.used, polls.posted) = (used, posted.or(polls.posted));
            polls
        }
    };
    (polls.last, polls.noted) = (now, now);
    polls.tell(check);
    POLLS.set(Some(ManuallyDrop::new(polls)));
}

impl Polls {
    fn begin(now: Instant) -> Self {
        let traced = trace::Wait::begins();
        if traced.is_some() {
            end_at_exit();
        }
        Polls {
            told: Telling::default(),
            call: traced.as_ref().map_or_else(String::new, |_| calling()),
            traced,
            began: now,
            last: now,
            noted: now,
            used: Duration::ZERO,
            posted: None,
            names: 0,
        }
    }

    fn tell(&mut self, check: impl FnOnce()) {
        let lasted = self.last - self.began;
        if self.told.polls(lasted, self.used, check) && self.names < NAMES {
            self.names += 1;
            self.told.also_in(&calling());
        }
        if let Some(traced) = &mut self.traced {
            traced.polls_on(lasted, &self.call);
        }
    }
}

impl Drop for Polls {
    fn drop(&mut self) {
        if let Some(traced) = self.traced.take() {
            traced.ends_at(self.last, &self.call, serde_json::Value::Null);
        }
        counters::waited(self.last - self.began);
    }
}

/// Processor time of this thread.
fn used() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}
