//! Parking and waking: the word that a sleeper watches and that a notifier rings.
//!
//! The notifier's fast path is one plain load: the sleeper pays for the ordering. It announces itself, makes every
//! running core of every registered process issue a barrier (`membarrier(GLOBAL_EXPEDITED)`), and looks once more before
//! it sleeps. Where a notifier could not register for that barrier a wake may come one sleep slice late; it is never lost,
//! since every sleep is at most [`LONGEST`] long.

use std::time::Duration;

#[cfg(not(loom))]
use rustix::thread::futex;

use crate::alarm;
use crate::cache::OwnLine;
use crate::on_pair;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::fence;

/// The longest sleep without a look at the world, but for processes of a crowd.
pub const SLICE: Duration = Duration::from_millis(50);
/// The longest sleep of all.
pub const LONGEST: Duration = Duration::from_millis(500);
/// Processes that may look at the world after each [`SLICE`], without keeping the machine busy by that.
const CROWD: u32 = 256;

/// The longest sleep of each of so many processes of a machine.
pub fn slice_of(processes: u32) -> Duration {
    match sleeps_until_rung() {
        true => UNTIL_RUNG,
        false => (SLICE * processes.div_ceil(CROWD).max(1)).min(LONGEST),
    }
}

/// Longer than any test.
const UNTIL_RUNG: Duration = Duration::from_secs(24 * 3600);

/// For tests: sleeps have no limit of their own, so that a lost wake-up is a hang, and not a delay.
fn sleeps_until_rung() -> bool {
    static ASKED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *ASKED.get_or_init(|| std::env::var_os("UNIPGAS_TEST_SLEEPS_UNTIL_RUNG").is_some())
}

/// Among the sleepers: the owner's progress thread sleeps at its descriptors, and is to be woken by its [alarm].
const ARMED: u32 = 1 << 31;

on_pair! {
    /// Lives in memory that the peers of a process can write. All-zero bytes are a bell that nobody listens to.
    #[repr(C)]
    #[derive(Debug, Default)]
    pub struct Bell {
        sleepers: AtomicU32,
        /// On a line of its own, since every ring writes it.
        rung: OwnLine<AtomicU32>,
    }
}

// On x86-64 as it always was: processes of several versions of the library may meet.
#[cfg(all(target_arch = "x86_64", not(loom)))]
const _: () = assert!(size_of::<Bell>() == 128 && std::mem::offset_of!(Bell, rung) == 64);

/// What a sleeper has seen of the bell before its last look at the condition it waits for.
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

    /// [`ring_if_heard`](Bell::ring_if_heard) for the shortest of ways, where a call would be a part of it.
    #[inline(always)]
    pub(crate) fn ring_in_line(&self) {
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

    /// Announces a sleeper. Look at the condition again before [`Listening::sleep`].
    pub fn listen(&self) -> Listening<'_> {
        register_for_barriers();
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let seen = self.rung.0.load(Ordering::SeqCst);
        fence::heavy_globally();
        Listening { bell: self, seen }
    }

    /// For the owner's progress thread, before it sleeps at its descriptors: the next ring sounds its [alarm], once notifiers [see this](armed_are_seen). Look at
    /// the condition again afterwards.
    pub(crate) fn arm(&self) {
        register_for_barriers();
        self.sleepers.fetch_or(ARMED, Ordering::SeqCst);
    }

    /// It is awake.
    pub(crate) fn disarm(&self) {
        self.sleepers.fetch_and(!ARMED, Ordering::SeqCst);
    }

    /// Threads that sleep or are about to.
    pub fn sleepers(&self) -> u32 {
        self.sleepers.load(Ordering::Relaxed) & !ARMED
    }

    /// Whether a ring would sound the [alarm].
    #[cfg(test)]
    pub(crate) fn is_armed(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) & ARMED != 0
    }
}

/// Notifiers see that bells have been [armed](Bell::arm): who sleeps without this may miss a ring.
pub(crate) fn armed_are_seen() {
    fence::heavy_globally();
}

impl Listening<'_> {
    /// Sleeps until the bell rings, at most for `limit`. Returns early at a signal. False: the bell has not rung.
    pub fn sleep(self, limit: Duration) -> bool {
        sleep(&self.bell.rung.0, self.seen, limit)
    }
}

#[cfg(not(loom))]
fn wake(rung: &AtomicU32) {
    // A failure to wake can only mean that nobody sleeps there.
    let _ = futex::wake(rung, futex::Flags::empty(), u32::MAX >> 1);
}

#[cfg(not(loom))]
fn sleep(rung: &AtomicU32, seen: u32, limit: Duration) -> bool {
    let limit = futex::Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: limit.subsec_nanos() as _,
    };
    // Woken, timed out, interrupted or too late: the caller looks at its condition in every case.
    let slept = futex::wait(rung, futex::Flags::empty(), seen, Some(&limit));
    slept != Err(rustix::io::Errno::TIMEDOUT)
}

/// For the model, in which nobody sleeps.
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

/// Lets sleepers of other processes reach this one with their barrier. Idempotent; errors only cost wake-up time (see the module).
pub fn register_for_barriers() {
    #[cfg(not(loom))]
    {
        static ONCE: parking_lot::Once = parking_lot::Once::new();
        ONCE.call_once(|| {
            fence::register_globally();
        });
    }
}

/// Whether this kernel lets sleepers spare their notifiers the fence; the text says what is missing.
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
