//! Parking and waking: a sleeper watches a word, and a notifier rings it.
//!
//! The notifier's fast path is one plain load: the sleeper pays for the order. The sleeper announces itself. It makes each running core of each registered
//! process issue a barrier (`membarrier(GLOBAL_EXPEDITED)`). Then it checks its condition once more, and sleeps. If a notifier could not register for the
//! barrier, a wake-up may come one sleep slice late. It is never lost, since a sleep takes at most [`LONGEST`].

use std::time::Duration;

use crate::alarm;
use crate::cache::OwnLine;
use crate::on_pair;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::fence;
#[cfg(not(loom))]
use crate::sync::futex;

/// The longest sleep without a check of the condition. With more than 256 processes it is longer.
pub(crate) const SLICE: Duration = Duration::from_millis(50);
/// The longest sleep of all.
pub const LONGEST: Duration = Duration::from_millis(500);
/// The most processes that may wake after each [`SLICE`] without a noticeable load on the machine.
const CROWD: u32 = 256;

/// The longest sleep of a process, on a machine with `processes` of them.
pub(crate) fn slice_of(processes: u32) -> Duration {
    match sleeps_until_rung() {
        true => UNTIL_RUNG,
        false => (SLICE * processes.div_ceil(CROWD).max(1)).min(LONGEST),
    }
}

/// Longer than each test.
const UNTIL_RUNG: Duration = Duration::from_secs(24 * 3600);

/// For tests: sleeps have no limit, so that a lost wake-up is a hang, and not a delay.
fn sleeps_until_rung() -> bool {
    static ASKED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *ASKED.get_or_init(|| std::env::var_os("UNIPGAS_TEST_SLEEPS_UNTIL_RUNG").is_some())
}

/// Bit of `sleepers`: the owner's progress thread sleeps on its descriptors. Its [alarm] wakes it.
const ARMED: u32 = 1 << 31;

on_pair! {
    /// Lives in memory that the peers of a process can write. All-zero bytes are a bell without listeners.
    #[repr(C)]
    #[derive(Debug, Default)]
    pub struct Bell {
        sleepers: AtomicU32,
        /// On a separate line, since each ring writes it.
        rung: OwnLine<AtomicU32>,
    }
}

// On x86-64 the layout is fixed: processes with different versions of the library may share a bell.
#[cfg(all(target_arch = "x86_64", not(loom)))]
const _: () = assert!(size_of::<Bell>() == 128 && std::mem::offset_of!(Bell, rung) == 64);

/// State of the bell before the sleeper's last check of its condition.
#[derive(Debug)]
pub struct Listening<'a> {
    bell: &'a Bell,
    seen: u32,
}

impl Bell {
    /// Wakes the sleepers, if there are any. Call it after the release store that they wait for.
    #[inline(always)]
    pub fn ring_if_heard(&self) {
        fence::light();
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.ring();
        }
    }

    /// [`ring_if_heard`](Bell::ring_if_heard) for the shortest paths: it inlines the ring.
    #[inline(always)]
    pub fn ring_in_line(&self) {
        fence::light();
        let heard = self.sleepers.load(Ordering::Relaxed);
        if heard != 0 {
            self.ring_for(heard);
        }
    }

    /// Wakes all sleepers.
    #[cold]
    #[inline(never)]
    pub fn ring(&self) {
        self.ring_for(self.sleepers.load(Ordering::Relaxed));
    }

    #[inline(always)]
    fn ring_for(&self, heard: u32) {
        self.rung.0.fetch_add(1, Ordering::Release);
        wake(&self.rung.0);
        if heard >= ARMED {
            self.wake_progress_thread();
        }
    }

    #[cold]
    #[inline(never)]
    fn wake_progress_thread(&self) {
        if self.sleepers.fetch_and(!ARMED, Ordering::AcqRel) & ARMED != 0 {
            alarm::sound(self);
        }
    }

    /// Announces a sleeper. Check the condition again before [`Listening::sleep`].
    pub fn listen(&self) -> Listening<'_> {
        register_for_barriers();
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let seen = self.rung.0.load(Ordering::SeqCst);
        fence::heavy_globally();
        Listening { bell: self, seen }
    }

    /// For the owner's progress thread, before it sleeps on its descriptors. The next ring sounds its [alarm], once notifiers [see this](armed_are_seen).
    /// Check the condition again afterwards.
    pub(crate) fn arm(&self) {
        register_for_barriers();
        self.sleepers.fetch_or(ARMED, Ordering::SeqCst);
    }

    /// For the progress thread, after it wakes.
    pub(crate) fn disarm(&self) {
        self.sleepers.fetch_and(!ARMED, Ordering::SeqCst);
    }

    /// Number of threads that sleep or are about to.
    pub fn sleepers(&self) -> u32 {
        self.sleepers.load(Ordering::Relaxed) & !ARMED
    }

    /// Whether a ring would sound the [alarm].
    #[cfg(test)]
    pub(crate) fn is_armed(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) & ARMED != 0
    }
}

/// Makes notifiers see [armed](Bell::arm) bells. A thread that sleeps without this call may miss a ring.
pub(crate) fn armed_are_seen() {
    fence::heavy_globally();
}

impl Listening<'_> {
    /// Sleeps until the bell rings, for at most `limit`. Returns early at a signal. False: the bell has not rung.
    pub fn sleep(self, limit: Duration) -> bool {
        sleep(&self.bell.rung.0, self.seen, limit)
    }
}

#[cfg(not(loom))]
use futex::wake_all as wake;

/// The caller checks its condition after each kind of return.
#[cfg(not(loom))]
use futex::wait as sleep;

/// For the model, in which threads never sleep.
#[cfg(loom)]
fn wake(_rung: &AtomicU32) {}

#[cfg(loom)]
fn sleep(rung: &AtomicU32, seen: u32, _limit: Duration) -> bool {
    rung.load(Ordering::Relaxed) != seen
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.bell.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Lets the barriers of sleepers in other processes reach this process. Idempotent. Errors only delay wake-ups (see the module).
pub fn register_for_barriers() {
    #[cfg(not(loom))]
    {
        static ONCE: parking_lot::Once = parking_lot::Once::new();
        ONCE.call_once(|| {
            fence::register_globally();
        });
    }
}

/// Whether this kernel's barrier saves notifiers the fence. Errors: the missing feature, as text.
pub fn barriers_available() -> std::result::Result<(), String> {
    if fence::heavy_globally() {
        Ok(())
    } else {
        Err(format!("membarrier: {}", std::io::Error::last_os_error()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    #[test]
    fn the_more_sleep_the_longer_they_do() {
        assert_eq!([0, 1, 48, 256].map(slice_of), [SLICE; 4]);
        assert_eq!(slice_of(1000), 4 * SLICE);
        assert_eq!(slice_of(u32::MAX), LONGEST);
    }

    #[test]
    fn a_sleep_tells_whether_anybody_has_rung() {
        let bell = Bell::default();
        assert!(!bell.listen().sleep(Duration::from_millis(1)));
        let listening = bell.listen();
        bell.ring_if_heard();
        assert!(listening.sleep(SLICE));
    }

    #[test]
    fn a_ring_ends_a_sleep() {
        let bell = Bell::default();
        let flag = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while bell.sleepers() == 0 {
                    std::thread::yield_now();
                }
                flag.store(true, Ordering::Release);
                bell.ring_if_heard();
            });
            let start = Instant::now();
            while !flag.load(Ordering::Acquire) {
                let listening = bell.listen();
                if !flag.load(Ordering::Acquire) {
                    listening.sleep(SLICE);
                }
                assert!(start.elapsed() < Duration::from_secs(300), "never woken");
            }
        });
        assert_eq!(bell.sleepers(), 0);
    }
}
