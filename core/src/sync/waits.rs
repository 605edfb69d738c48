//! What long waits of this process tell: in which call of an interface a thread is, for whom and since when, in memory that others can read. Waits that
//! are shorter than [`LONG`] tell nothing, and cost nothing.

use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::sync::caller::{calling, is_call};
use crate::sync::label::Label;
use crate::sync::polls;
use crate::sync::tally::{self, Ledger};
use crate::{descriptor, issued, trace};

pub use crate::sync::polls::polled;

/// A wait is told of when it has lasted so long.
pub const LONG: Duration = Duration::from_millis(200);
/// Threads of a process that can tell at a time.
pub const SEATS: usize = 4;
/// Ranks that a wait names at most.
pub const NAMED: usize = 48;
/// Bytes of a call's name.
const NAME: usize = 40;
/// A thread that has slept for longer since it polled does something else.
const ASLEEP: Duration = Duration::from_secs(2);

/// What one thread tells.
#[repr(C)]
#[derive(Debug)]
pub struct Seat {
    /// The thread's ID; 0: the seat is free.
    thread: AtomicU32,
    /// How many ranks are needed; the first [`NAMED`] are named.
    needed: AtomicU32,
    /// When the wait began, in nanoseconds of the host's monotonic clock.
    since: AtomicU64,
    /// Operations whose end is waited for.
    pending: AtomicU32,
    /// How often the thread has slept.
    sleeps: AtomicU32,
    /// Of a thread that polls: when it did last, on the same clock, and its processor time then. 0: it waits inside a call.
    polled: AtomicU64,
    used: AtomicU64,
    name: Label<{ NAME / 8 }>,
    ranks: [AtomicU32; NAMED],
}

/// What a process tells: its long waits, and what it has done.
#[repr(C)]
#[derive(Debug)]
pub struct Told {
    /// Of threads that wait.
    pub seats: [Seat; SEATS],
    /// Counted.
    pub ledger: Ledger,
}

/// What a thread waits for, as somebody else reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// The thread's ID.
    pub thread: u32,
    /// The call of an interface, where that is known.
    pub call: String,
    /// How long the wait has lasted; as JSON, in seconds.
    #[serde(with = "seconds")]
    pub lasted: Duration,
    /// The ranks without which it does not end, as far as that is known; the first [`NAMED`] of them.
    pub ranks: Vec<u32>,
    /// How many there are.
    pub needed: u32,
    /// Operations whose end is waited for.
    pub pending: u32,
    /// How often the thread has slept.
    pub sleeps: u32,
}

mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(span.as_secs_f64())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let span = f64::deserialize(from)?;
        Duration::try_from_secs_f64(span).map_err(serde::de::Error::custom)
    }
}

static MINE: AtomicPtr<[Seat; SEATS]> = AtomicPtr::new(std::ptr::null_mut());

/// The process that has the seats, and no child of a fork.
static OWNER: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The seat of a thread whose wait is looking at who is needed just now.
    static ASKED: Cell<Option<&'static Seat>> = const { Cell::new(None) };
    /// The call that a thread is in, where that has no symbol.
    static INSIDE: Cell<&'static str> = const { Cell::new("") };
    /// When a thread has begun to wait in slices, and for whom.
    static SLICES: Cell<Option<(Instant, u32)>> = const { Cell::new(None) };
}

/// A thread is in a call that has no symbol of its own.
pub struct Inside(());

/// Until this is dropped the thread is in a call of this name, which its stack does not show.
pub fn inside(name: &'static str) -> Inside {
    INSIDE.set(name);
    Inside(())
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set("");
    }
}

/// Waits of this thread are parts of one.
pub(crate) struct Slices(Option<(Instant, u32)>);

/// Until this is dropped a thread waits for this rank, now and then: those waits are told of as one.
pub(crate) fn in_slices(rank: u32) -> Slices {
    let before = SLICES.get();
    let since = before.map_or_else(Instant::now, |(since, _)| since);
    SLICES.set(Some((since, rank)));
    Slices(before)
}

impl Drop for Slices {
    fn drop(&mut self) {
        SLICES.set(self.0);
    }
}

/// Has this process, which is a rank of so many, tell here from now on.
pub fn tell_at(told: &'static Told, place: (u32, u32)) {
    // Another process may have had them, and has died.
    for seat in &told.seats {
        seat.since.store(0, Ordering::Relaxed);
        seat.thread.store(0, Ordering::Relaxed);
    }
    OWNER.store(std::process::id(), Ordering::Relaxed);
    MINE.store(
        std::ptr::from_ref(&told.seats).cast_mut(),
        Ordering::Release,
    );
    tally::tell_at(&told.ledger, place);
}

/// For checks of waits: they are in a call of this name, which has no symbol of its own, as those behind tables of functions.
#[inline]
pub fn call(name: &str) {
    if let Some(seat) = ASKED.get() {
        // A function of Rust on the stack is no name that C programs know.
        match seat.polled.load(Ordering::Relaxed) != 0 && is_call(&seat.name.get()) {
            true => seat.also_in(name),
            false => seat.name.set(name),
        }
    }
}

/// For checks of waits: these ranks are needed.
#[inline]
pub fn needs(ranks: &[u32]) {
    if let Some(seat) = ASKED.get() {
        seat.need(ranks);
    }
}

/// For checks of waits: the end of so many operations is waited for.
#[inline]
pub fn pending(operations: usize) {
    if let Some(seat) = ASKED.get() {
        let many = operations.try_into().unwrap_or(u32::MAX);
        seat.pending.store(many, Ordering::Relaxed);
    }
}

/// A wait that may become long.
#[derive(Default)]
pub(crate) struct Telling {
    seat: Option<&'static Seat>,
    tried: bool,
    traced: Option<trace::Wait>,
    /// Since when the wait leaves its core to others.
    yields: Option<Instant>,
}

impl Telling {
    #[inline(always)]
    pub fn begins() -> Self {
        Telling {
            traced: trace::Wait::begins(),
            ..Telling::default()
        }
    }

    /// The wait has begun then, and leaves its core to others from now on: it is counted.
    pub fn yields(&mut self, began: Instant) {
        self.yields = Some(began);
    }

    /// The same as [`check`](Self::check) for a thread that polls, with its processor time; whether others learn of it.
    pub fn polls(&mut self, lasted: Duration, used: Duration, check: impl FnOnce()) -> bool {
        if lasted < LONG {
            return false;
        }
        if self.seat.is_none_or(|seat| !seat.is_of_this_thread()) {
            self.seat = take(lasted);
        }
        let Some(seat) = self.seat else {
            return false;
        };
        seat.used.store(used.as_nanos() as u64, Ordering::Relaxed);
        let now = now().as_nanos() as u64;
        seat.polled.store(now.max(1), Ordering::Release);
        issued::look_closely();
        let before = ASKED.replace(Some(seat));
        check();
        ASKED.set(before);
        true
    }

    /// The thread polls by this call, too.
    pub fn also_in(&self, name: &str) {
        if let Some(seat) = self.seat {
            seat.also_in(name);
        }
    }

    /// Does `check`. Of a wait that has lasted `lasted`, others learn who is needed.
    pub fn check<T>(&mut self, lasted: Duration, check: impl FnOnce() -> T) -> T {
        let slices = SLICES.get();
        let lasted = slices.map_or(lasted, |(since, _)| lasted.max(since.elapsed()));
        if lasted >= LONG && !self.tried {
            self.tried = true;
            polls::end();
            self.seat = take(lasted);
        }
        let own = || self.traced.is_some().then(Seat::of_this_thread);
        let Some(seat) = self.seat.or_else(own) else {
            return check();
        };
        seat.sleeps.fetch_add(1, Ordering::Relaxed);
        if self.seat.is_some() {
            issued::look_closely();
        }
        let before = ASKED.replace(Some(seat));
        if let Some((_, rank)) = slices {
            seat.need(&[rank]);
        }
        let found = check();
        ASKED.set(before);
        if let (Some(traced), Some(seat)) = (&mut self.traced, self.seat) {
            traced.stays(&seat.name.get(), || seat.for_whom());
        }
        found
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        if let Some(traced) = self.traced.take() {
            traced.ends(|| match self.seat {
                Some(seat) => seat.for_whom(),
                None => Seat::of_this_thread().for_whom(),
            });
            Seat::of_this_thread().empty();
        }
        if let Some(seat) = self.seat.filter(|seat| seat.is_of_this_thread()) {
            seat.give_up();
        }
        if let Some(began) = self.yields {
            tally::waited(began.elapsed());
        }
    }
}

/// A seat for this thread, if one is free.
#[cold]
fn take(lasted: Duration) -> Option<&'static Seat> {
    // SAFETY:
    // - null, or from a reference that lives as long as the process.
    let seats = unsafe { MINE.load(Ordering::Acquire).as_ref() }?;
    if OWNER.load(Ordering::Relaxed) != std::process::id() {
        return None;
    }
    let mut name = calling();
    if name.is_empty() {
        name = INSIDE.get().to_owned();
    }
    let thread = this_thread();
    let free = |seat: &&Seat| {
        let taken = seat
            .thread
            .compare_exchange(0, thread, Ordering::AcqRel, Ordering::Relaxed);
        taken.is_ok()
    };
    let seat = seats.iter().find(free).or_else(|| {
        // Threads that polled give their seats up when they poll again.
        let pid = std::process::id();
        let stale = |seat: &&Seat| !seat.is_held(pid);
        seats.iter().filter(stale).for_each(Seat::give_up);
        seats.iter().find(free)
    })?;
    seat.empty();
    let began = now().saturating_sub(lasted);
    seat.name.set(&name);
    seat.since.store(began.as_nanos() as u64, Ordering::Release);
    Some(seat)
}

fn this_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// Of the host: the same for all processes on it.
fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

thread_local! {
    /// What nobody else reads.
    static OWN: &'static Seat = Box::leak(Box::new(Seat::free()));
}

impl Seat {
    const fn free() -> Self {
        Seat {
            thread: AtomicU32::new(0),
            needed: AtomicU32::new(0),
            since: AtomicU64::new(0),
            pending: AtomicU32::new(0),
            sleeps: AtomicU32::new(0),
            polled: AtomicU64::new(0),
            used: AtomicU64::new(0),
            name: Label::empty(),
            ranks: [const { AtomicU32::new(0) }; NAMED],
        }
    }

    /// Where a traced wait notes whom it needs.
    fn of_this_thread() -> &'static Seat {
        OWN.with(|seat| *seat)
    }

    fn empty(&self) {
        self.needed.store(0, Ordering::Relaxed);
        self.pending.store(0, Ordering::Relaxed);
        self.sleeps.store(0, Ordering::Relaxed);
        self.polled.store(0, Ordering::Relaxed);
    }

    fn give_up(&self) {
        self.since.store(0, Ordering::Release);
        self.thread.store(0, Ordering::Release);
    }

    fn is_of_this_thread(&self) -> bool {
        self.thread.load(Ordering::Relaxed) == this_thread()
    }

    /// With the calls that are known so far, as long as there is room.
    fn also_in(&self, name: &str) {
        let known = self.name.get();
        let is_known = known.split(", ").any(|call| call == name);
        if is_known || !known.is_empty() && !is_call(name) {
            return;
        }
        let all = match known.is_empty() {
            true => name.to_owned(),
            false => format!("{known}, {name}"),
        };
        if all.len() <= NAME {
            self.name.set(&all);
        }
    }

    /// Whether the thread of this process still waits. One that was killed has not given its seat up; one that polls tells nothing when it has found something.
    pub(crate) fn is_held(&self, pid: u32) -> bool {
        let thread = self.thread.load(Ordering::Acquire);
        let read = |name| {
            let text = descriptor::proc_text(&format!("/proc/{pid}/task/{thread}/{name}"));
            text.ok().flatten()
        };
        let Some(stat) = read("stat") else {
            return false;
        };
        let polled = Duration::from_nanos(self.polled.load(Ordering::Acquire));
        if polled.is_zero() {
            return true;
        }
        let times = read("schedstat").unwrap_or_default();
        let used = times.split(' ').next().and_then(|used| used.parse().ok());
        let before = self.used.load(Ordering::Relaxed);
        let since = used.unwrap_or(before).saturating_sub(before);
        let works = since > polls::WORK.as_nanos() as u64;
        let sleeps = descriptor::state_in(&stat) == Some('S');
        !(works || sleeps && now().saturating_sub(polled) > ASLEEP)
    }

    /// For a timeline.
    fn for_whom(&self) -> serde_json::Value {
        let needed = self.needed.load(Ordering::Relaxed);
        let ranks = self.ranks.iter().take(needed as usize);
        let ranks: Vec<_> = ranks.map(|rank| rank.load(Ordering::Relaxed)).collect();
        let mut known = serde_json::Map::new();
        if !ranks.is_empty() {
            known.insert("waits for".into(), ranks.into());
        }
        let counted = [
            ("operations pending", &self.pending),
            ("sleeps", &self.sleeps),
        ];
        for (name, count) in counted {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                known.insert(name.into(), count.into());
            }
        }
        known.into()
    }

    fn need(&self, ranks: &[u32]) {
        for (place, rank) in self.ranks.iter().zip(ranks) {
            place.store(*rank, Ordering::Relaxed);
        }
        self.needed.store(ranks.len() as u32, Ordering::Release);
    }

    /// What it tells, if it tells anything.
    pub fn read(&self) -> Option<Waiting> {
        let thread = self.thread.load(Ordering::Acquire);
        let since = Duration::from_nanos(self.since.load(Ordering::Acquire));
        let needed = self.needed.load(Ordering::Acquire);
        let ranks = self.ranks.iter().take(needed as usize);
        let waiting = Waiting {
            thread,
            call: self.name.get(),
            lasted: now().saturating_sub(since),
            ranks: ranks.map(|rank| rank.load(Ordering::Relaxed)).collect(),
            needed,
            pending: self.pending.load(Ordering::Relaxed),
            sleeps: self.sleeps.load(Ordering::Relaxed),
        };
        // It may have been given up, and taken by another thread, meanwhile.
        let same = thread != 0
            && !since.is_zero()
            && self.thread.load(Ordering::Acquire) == thread
            && Duration::from_nanos(self.since.load(Ordering::Acquire)) == since;
        same.then_some(waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_waits_are_told() {
        let all = Box::leak(Box::new(Told {
            seats: [const { Seat::free() }; SEATS],
            ledger: Ledger::new(),
        }));
        tell_at(all, (0, 1));
        let told = || all.seats.iter().find_map(Seat::read);
        {
            let mut wait = Telling::default();
            wait.check(LONG / 2, || needs(&[7]));
            assert_eq!(told(), None);
            wait.check(LONG, || {
                call("fi_cq_sread");
                needs(&[3, 1]);
                pending(2);
            });
            let seen = told().unwrap();
            assert_eq!(
                (seen.call.as_str(), seen.ranks),
                ("fi_cq_sread", vec![3, 1])
            );
            assert_eq!((seen.needed, seen.pending, seen.sleeps), (2, 2, 1));
            assert!(seen.lasted >= LONG);
        }
        assert_eq!(told(), None);
        polls_in_vain_are_told(&all.seats);
        {
            let _slices = in_slices(5);
            std::thread::sleep(LONG);
            Telling::default().check(Duration::ZERO, || assert_eq!(told().unwrap().ranks, [5]));
            let mut wait = Telling::default();
            wait.check(Duration::ZERO, || needs(&[6]));
            let seen = told().unwrap();
            assert_eq!(seen.ranks, [6], "who knows better");
            assert!(seen.lasted >= LONG);
        }
        let mut wait = Telling::default();
        wait.check(Duration::ZERO, || {});
        assert_eq!(told(), None);
        let many: Vec<u32> = (0..100).collect();
        let mut wait = Telling::default();
        wait.check(LONG, || needs(&many));
        let seen = told().unwrap();
        assert_eq!((seen.needed, seen.ranks.len()), (100, NAMED));
    }

    fn polls_in_vain_are_told(seats: &[Seat]) {
        let pid = std::process::id();
        let told = || {
            let held = seats.iter().filter(|seat| seat.is_held(pid));
            // Tests beside this one may wait long, too.
            held.filter_map(Seat::read)
                .find(|seen| seen.call.ends_with("fi_cq_read") || seen.ranks == [5])
        };
        let poll = |came| {
            polled(came, || {
                call("fi_cq_read");
                needs(&[2]);
            });
        };
        let poll_long = || {
            poll(false);
            assert_eq!(told(), None, "a wait begins");
            std::thread::sleep(LONG);
            poll(false);
            let seen = told().expect("a long wait");
            assert!(seen.call.ends_with("fi_cq_read"), "{}", seen.call);
            assert_eq!((seen.needed, seen.ranks), (1, vec![2]));
            assert!(seen.lasted >= LONG);
        };
        poll_long();
        poll(true);
        assert_eq!(told(), None, "something has come");
        polls::end();
        poll_long();
        Telling::default().check(LONG, || {
            needs(&[5]);
            assert_eq!(told().expect("another wait").ranks, [5]);
        });
        assert_eq!(told(), None, "the other wait has ended it");
        poll_long();
        let used = || clock_gettime(ClockId::ThreadCPUTime).tv_nsec;
        let began = Instant::now();
        let mut turn = 0u64;
        while told().is_some() {
            turn = std::hint::black_box(turn + u64::from(used() > 0));
            assert!(began.elapsed() < Duration::from_secs(600), "it computes");
        }
        poll_long();
        polls::end();
        std::thread::scope(|scope| {
            for _ in 0..2 * SEATS {
                scope
                    .spawn(poll_long)
                    .join()
                    .expect("a seat of a thread that has ended");
            }
        });
    }
}
