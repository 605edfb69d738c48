//! Long waits of this process, in memory that other processes read: for each thread the call of an interface, the needed ranks, and the begin of the wait.
//! Waits shorter than [`LONG`] publish nothing and cost nothing.

use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::interface::is_call;
use crate::sync::caller::calling;
use crate::sync::counters::{self, ProcessCounters};
use crate::sync::label::Label;
use crate::sync::polls;
use crate::{descriptor, issue_totals, trace};

pub use crate::sync::polls::polled;

/// A wait is published after this time.
pub const LONG: Duration = Duration::from_millis(200);
/// The most threads of a process that publish at a time.
pub(crate) const SEATS: usize = 4;
/// The most ranks that a wait names.
pub const NAMED: usize = 48;
/// Bytes of a call's name.
const NAME: usize = 40;
/// A polling thread that has slept for longer since its last poll no longer waits.
const ASLEEP: Duration = Duration::from_secs(2);

/// The published wait of one thread.
#[repr(C)]
#[derive(Debug)]
pub struct WaitSlot {
    /// The thread's ID. 0: the seat is free.
    thread: AtomicU32,
    /// Number of needed ranks. The first [`NAMED`] are named.
    needed: AtomicU32,
    /// Begin of the wait, in nanoseconds of the host's monotonic clock.
    since: AtomicU64,
    /// Operations that the wait needs to end.
    pending: AtomicU32,
    /// Number of the thread's sleeps.
    sleeps: AtomicU32,
    /// For a thread that polls: time of its last poll, on the same clock, and its processor time then (`used`). 0: it waits inside a call.
    polled: AtomicU64,
    used: AtomicU64,
    name: Label<{ NAME / 8 }>,
    ranks: [AtomicU32; NAMED],
}

/// Published state of a process: its long waits and its counters.
#[repr(C)]
#[derive(Debug)]
pub struct StatusPage {
    /// Seats of waiting threads.
    pub seats: [WaitSlot; SEATS],
    /// Counters.
    pub counters: ProcessCounters,
}

/// The wait of a thread, as a reader gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// The thread's ID.
    pub thread: u32,
    /// The call of an interface. Empty: unknown.
    pub call: String,
    /// Duration of the wait so far. As JSON, in seconds.
    #[serde(with = "seconds")]
    pub lasted: Duration,
    /// The known ranks that the wait needs. The first [`NAMED`] of them.
    pub ranks: Vec<u32>,
    /// Number of these ranks.
    pub needed: u32,
    /// Operations that the wait needs to end.
    pub pending: u32,
    /// Number of the thread's sleeps.
    pub sleeps: u32,
}

mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(span.as_secs_f64())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let span = f64::deserialize(from)?;
        Duration::try_from_secs_f64(span).map_err(serde::de::Error::custom)
    }
}

static MINE: AtomicPtr<[WaitSlot; SEATS]> = AtomicPtr::new(std::ptr::null_mut());

/// The process that owns the seats. A child of a fork does not.
static OWNER: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The seat of this thread during a check of its wait.
    static ASKED: Cell<Option<&'static WaitSlot>> = const { Cell::new(None) };
    /// The call of this thread, if the call has no symbol.
    static INSIDE: Cell<&'static str> = const { Cell::new("") };
    /// Begin of a wait in slices, and the needed rank.
    static SLICES: Cell<Option<(Instant, u32)>> = const { Cell::new(None) };
}

/// A thread is in a call without a symbol.
pub struct NamedCall(());

/// Names the call of this thread until the drop of the result. For calls that the stack does not show.
pub fn inside(name: &'static str) -> NamedCall {
    INSIDE.set(name);
    NamedCall(())
}

impl Drop for NamedCall {
    fn drop(&mut self) {
        INSIDE.set("");
    }
}

/// Waits of this thread are slices of one wait.
pub struct Slices(Option<(Instant, u32)>);

/// The thread waits for `rank` in slices until the drop of the result. The slices are published as one wait.
pub fn in_slices(rank: u32) -> Slices {
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

/// Starts to publish in `told`. `place`: rank and number of ranks.
pub fn tell_at(told: &'static StatusPage, place: (u32, u32)) {
    // A process that has died may have used them.
    for seat in &told.seats {
        seat.since.store(0, Ordering::Relaxed);
        seat.thread.store(0, Ordering::Relaxed);
    }
    OWNER.store(std::process::id(), Ordering::Relaxed);
    MINE.store(
        std::ptr::from_ref(&told.seats).cast_mut(),
        Ordering::Release,
    );
    counters::tell_at(&told.counters, place);
}

/// For checks of waits: names the call. For calls without a symbol, such as functions in a table.
#[inline]
pub fn call(name: &str) {
    if let Some(seat) = ASKED.get() {
        // C programs do not know the name of a Rust function on the stack.
        match seat.polled.load(Ordering::Relaxed) != 0 && is_call(&seat.name.get()) {
            true => seat.also_in(name),
            false => seat.name.set(name),
        }
    }
}

/// For checks of waits: sets the needed ranks.
#[inline]
pub fn needs(ranks: &[u32]) {
    if let Some(seat) = ASKED.get() {
        seat.need(ranks);
    }
}

/// For checks of waits: sets the number of operations that the wait needs to end.
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
    slot: Option<&'static WaitSlot>,
    tried: bool,
    traced: Option<trace::Wait>,
    /// Begin of a wait that has yielded its core.
    yields: Option<Instant>,
}

impl Telling {
    #[inline(always)]
    pub(crate) fn begins() -> Self {
        Telling {
            traced: trace::Wait::begins(),
            ..Telling::default()
        }
    }

    /// Counts the wait, which began at `began`, since it starts to yield its core.
    pub(crate) fn yields(&mut self, began: Instant) {
        self.yields = Some(began);
    }

    /// As [`check`](Self::check), for a thread that polls. `used`: its processor time. Returns whether the wait is published.
    pub(crate) fn polls(&mut self, lasted: Duration, used: Duration, check: impl FnOnce()) -> bool {
        if lasted < LONG {
            return false;
        }
        if self.slot.is_none_or(|seat| !seat.is_of_this_thread()) {
            self.slot = take(lasted);
        }
        let Some(seat) = self.slot else {
            return false;
        };
        seat.used.store(used.as_nanos() as u64, Ordering::Relaxed);
        let now = now().as_nanos() as u64;
        seat.polled.store(now.max(1), Ordering::Release);
        issue_totals::look_closely();
        let before = ASKED.replace(Some(seat));
        check();
        ASKED.set(before);
        true
    }

    /// Adds a call by which the thread polls.
    pub(crate) fn also_in(&self, name: &str) {
        if let Some(seat) = self.slot {
            seat.also_in(name);
        }
    }

    /// Calls `check`. Publishes a wait that has lasted long, with the ranks that `check` names.
    pub fn check<T>(&mut self, lasted: Duration, check: impl FnOnce() -> T) -> T {
        let slices = SLICES.get();
        let lasted = slices.map_or(lasted, |(since, _)| lasted.max(since.elapsed()));
        if lasted >= LONG && !self.tried {
            self.tried = true;
            polls::end();
            self.slot = take(lasted);
        }
        let own = || self.traced.is_some().then(WaitSlot::of_this_thread);
        let Some(seat) = self.slot.or_else(own) else {
            return check();
        };
        seat.sleeps.fetch_add(1, Ordering::Relaxed);
        if self.slot.is_some() {
            issue_totals::look_closely();
        }
        let before = ASKED.replace(Some(seat));
        if let Some((_, rank)) = slices {
            seat.need(&[rank]);
        }
        let found = check();
        ASKED.set(before);
        if let (Some(traced), Some(seat)) = (&mut self.traced, self.slot) {
            traced.stays(&seat.name.get(), || seat.for_whom());
        }
        found
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        if let Some(traced) = self.traced.take() {
            traced.ends(|| match self.slot {
                Some(seat) => seat.for_whom(),
                None => WaitSlot::of_this_thread().for_whom(),
            });
            WaitSlot::of_this_thread().empty();
        }
        if let Some(seat) = self.slot.filter(|seat| seat.is_of_this_thread()) {
            seat.give_up();
        }
        if let Some(began) = self.yields {
            counters::waited(began.elapsed());
        }
    }
}

/// Takes a seat for this thread, if one is free.
#[cold]
fn take(lasted: Duration) -> Option<&'static WaitSlot> {
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
    let free = |seat: &&WaitSlot| {
        let taken = seat
            .thread
            .compare_exchange(0, thread, Ordering::AcqRel, Ordering::Relaxed);
        taken.is_ok()
    };
    let seat = seats.iter().find(free).or_else(|| {
        // A thread that has polled frees its seat only at its next poll.
        let pid = std::process::id();
        let stale = |seat: &&WaitSlot| !seat.is_held(pid);
        seats.iter().filter(stale).for_each(WaitSlot::give_up);
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

/// Time of the host's monotonic clock, which all its processes share.
fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

thread_local! {
    /// A seat that other processes do not read.
    static OWN: &'static WaitSlot = Box::leak(Box::new(WaitSlot::free()));
}

impl WaitSlot {
    const fn free() -> Self {
        WaitSlot {
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

    /// The seat in which a traced wait notes the needed ranks.
    fn of_this_thread() -> &'static WaitSlot {
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

    /// Adds a name to the known calls, if there is room.
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

    /// Whether the thread of process `pid` still waits. A killed thread does not free its seat, nor does a polling thread that has found a result.
    pub fn is_held(&self, pid: u32) -> bool {
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

    /// The needed ranks, for a timeline.
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

    /// The published wait, if there is one.
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
        // Another thread may have taken the seat meanwhile.
        let same = thread != 0
            && !since.is_zero()
            && self.thread.load(Ordering::Acquire) == thread
            && Duration::from_nanos(self.since.load(Ordering::Acquire)) == since;
        same.then_some(waiting)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The test starts itself again: waits of other tests would be published in the same seats.
    #[test]
    #[cfg_attr(miri, ignore = "starts a process")]
    fn only_long_waits_are_told() {
        const ALONE: &str = "UNIPGAS_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let alone = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "sync::waits::tests::only_long_waits_are_told"])
                .env(ALONE, "1")
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&alone.stdout);
            return assert!(said.contains("1 passed"), "{said}");
        }
        let all = Box::leak(Box::new(StatusPage {
            seats: [const { WaitSlot::free() }; SEATS],
            counters: ProcessCounters::new(),
        }));
        tell_at(all, (0, 1));
        let told = || all.seats.iter().find_map(WaitSlot::read);
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
            assert_eq!(seen.ranks, [6], "ranks that the check names");
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

    fn polls_in_vain_are_told(seats: &[WaitSlot]) {
        let pid = std::process::id();
        let told = || {
            let held = seats.iter().filter(|seat| seat.is_held(pid));
            held.filter_map(WaitSlot::read).next()
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
