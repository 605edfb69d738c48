//! Detection of laws that hang. A law hangs if each rank has waited for the limit since a rank has last moved.
//!
//! The loops of the laws and the library add up the time that they intend to wait, in one place ([`Watch`]). So a slow or loaded machine causes no hang,
//! and a rank that computes prevents one. A long silence ends jobs that do not even wait: see [`SILENCE`]. Silence is CPU time of the ranks, or looks at
//! ranks that all sleep, and not time of a clock.

use std::fs::File;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use unipgas_core::wait::Watch;

/// A job without any move ends after this number of limits.
pub(crate) const SILENCE: u32 = 10;

/// A law with moves but without an end ends after this number of limits. A loaded machine may need long for a law that holds.
pub(crate) const CLOCK: u32 = 100;

/// The reason that ended a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hang {
    /// Each rank has waited for the limit.
    Standstill,
    /// No rank has moved for [`SILENCE`] limits, though not every rank waits.
    Silence,
}

/// Time between two polls of the ranks' seats.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Polls between two that read the CPU time of the ranks.
const READS: u32 = 20;

/// Timeout of a call that a law expects to succeed: longer than any machine needs.
pub(crate) const LONG: Duration = Duration::from_secs(1000);

/// A poll loop of a law for an event that others cause. If the event never comes, the law ends as a standstill.
#[derive(Debug, Default)]
pub(crate) struct Looks<'a> {
    what: &'a str,
    waited: Duration,
    yields: u32,
    told: bool,
}

/// Looks that only yield. Later ones sleep: a rank that waits for seconds takes no processor time from the others.
const YIELDS: u32 = 1000;
/// Sleep between later looks. It is short, because some loops take one of thousands of events with each look.
const NAP: Duration = Duration::from_micros(200);
/// After this time the loop writes its name to standard error: the last line there is part of a failure's text.
const TELLS: Duration = Duration::from_secs(10);

impl<'a> Looks<'a> {
    pub fn new() -> Self {
        Looks::default()
    }

    /// A loop with the name of its event.
    pub fn for_the(what: &'a str) -> Self {
        Looks {
            what,
            ..Looks::default()
        }
    }

    /// No event yet: lets other processes run.
    pub fn again(&mut self) {
        if self.yields == YIELDS {
            return self.pause(NAP);
        }
        self.yields += 1;
        std::thread::yield_now();
        self.waited(Duration::from_micros(1));
    }

    /// No event yet: sleeps for `span`.
    pub fn pause(&mut self, span: Duration) {
        std::thread::sleep(span);
        self.waited(span);
    }

    fn waited(&mut self, span: Duration) {
        Watch::waited(span);
        self.waited += span;
        if !self.told && !self.what.is_empty() && self.waited >= TELLS {
            self.told = true;
            eprintln!("waits for {}", self.what);
        }
    }
}

impl Drop for Looks<'_> {
    fn drop(&mut self) {
        if !self.waited.is_zero() {
            Watch::moved();
        }
    }
}

/// The parent's view of a rank, on separate cache lines like a watch. Zeros: not started.
#[repr(C)]
struct Seat {
    watch: Watch,
    pid: AtomicU32,
}

/// A seat in the form for a parent on another host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sitting {
    pub rank: u32,
    /// Replaces the pid.
    pub mark: u32,
    pub in_vain: u64,
    pub ended: u64,
}

impl Sitting {
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.rank.to_le_bytes());
        to.extend_from_slice(&self.mark.to_le_bytes());
        to.extend_from_slice(&self.in_vain.to_le_bytes());
        to.extend_from_slice(&self.ended.to_le_bytes());
    }

    /// Reads all seats of consecutive [`write`](Sitting::write) calls.
    pub fn read_all(bytes: &[u8]) -> impl Iterator<Item = Sitting> {
        let (all, _) = bytes.as_chunks::<24>();
        all.iter().map(|bytes| {
            let word = |at| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
            Sitting {
                rank: word(0) as u32,
                mark: (word(0) >> 32) as u32,
                in_vain: word(8),
                ended: word(16),
            }
        })
    }
}

/// The seats of a job's ranks, in memory shared by the parent and the ranks.
pub(crate) struct Seats {
    seats: *mut Seat,
    count: usize,
}

// SAFETY:
// - the seats consist of atomics, and are mapped as long as the value lives.
unsafe impl Send for Seats {}
// SAFETY:
// - as above.
unsafe impl Sync for Seats {}

impl Seats {
    /// Maps the seats of `file`, and extends it to their size.
    pub fn map(file: &File, count: u32) -> Result<Seats, String> {
        let text = |e: rustix::io::Errno| format!("memory for the ranks' seats: {e}");
        let count = count as usize;
        let len = count * size_of::<Seat>();
        rustix::fs::ftruncate(file, len as u64).map_err(text)?;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY:
        // - a new mapping of a file that is long enough and never shrinks.
        let seats =
            unsafe { mmap(null_mut(), len, rights, MapFlags::SHARED, file, 0) }.map_err(text)?;
        Ok(Seats {
            seats: seats.cast(),
            count,
        })
    }

    fn all(&self) -> &[Seat] {
        // SAFETY:
        // - `count` seats are mapped as long as `self` lives, page-aligned; all bits are valid in atomics.
        unsafe { std::slice::from_raw_parts(self.seats, self.count) }
    }

    /// Reads the seat of `rank`.
    pub fn get(&self, rank: u32) -> Sitting {
        let seat = &self.all()[rank as usize];
        Sitting {
            rank,
            mark: seat.pid.load(Ordering::Acquire),
            in_vain: seat.watch.in_vain.load(Ordering::Relaxed),
            ended: seat.watch.ended.load(Ordering::Relaxed),
        }
    }

    /// Copies a seat of another host. Ignores an invalid rank.
    pub fn put(&self, sitting: Sitting) {
        if let Some(seat) = self.all().get(sitting.rank as usize) {
            seat.watch.in_vain.store(sitting.in_vain, Ordering::Relaxed);
            seat.watch.ended.store(sitting.ended, Ordering::Relaxed);
            seat.pid.store(sitting.mark, Ordering::Release);
        }
    }

    /// Takes the seat of `rank` for the rest of this process's life.
    pub fn take(self, rank: u32) -> &'static Watch {
        let seats: &'static Seats = Box::leak(Box::new(self));
        let seat = &seats.all()[rank as usize];
        seat.pid.store(std::process::id(), Ordering::Release);
        Watch::begin(&seat.watch);
        &seat.watch
    }
}

impl Drop for Seats {
    fn drop(&mut self) {
        // SAFETY:
        // - `map` mapped it, and no borrow of it is left.
        let _ = unsafe { munmap(self.seats.cast(), self.count * size_of::<Seat>()) };
    }
}

/// The parent's view: the number of moves, and the time that ranks have waited since the last move.
pub(crate) struct Stall {
    seats: Seats,
    limit: Duration,
    moves: u64,
    looks: u32,
    /// CPU time of the ranks at the last reading.
    used: Duration,
    silence: Duration,
    since: Vec<u64>,
    replaces: bool,
}

/// CPU time of the process's threads, and whether a thread is runnable.
fn usage(pid: u32) -> Option<(Duration, bool)> {
    let (mut ticks, mut runnable) = (0, false);
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let Ok(text) = std::fs::read_to_string(task.ok()?.path().join("stat")) else {
            continue;
        };
        // The name before the parenthesis can contain spaces. The state is field 3 of proc_pid_stat(5), user and system time are 14 and 15.
        let (_, rest) = text.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        runnable |= fields.next()? == "R";
        ticks += fields
            .skip(10)
            .take(2)
            .filter_map(|n| n.parse::<u64>().ok())
            .sum::<u64>();
    }
    let millis = ticks * 1000 / rustix::param::clock_ticks_per_second();
    Some((Duration::from_millis(millis), runnable))
}

impl Stall {
    /// A job stands still when every rank has waited for `limit`. If a launcher `replaces` ranks, a replacement may still start, which takes long on a busy
    /// machine. Then only silence ends the job.
    pub fn new(seats: Seats, limit: Duration, replaces: bool) -> Stall {
        Stall {
            replaces,
            since: vec![0; seats.count],
            moves: 0,
            looks: 0,
            used: Duration::ZERO,
            silence: Duration::ZERO,
            seats,
            limit,
        }
    }

    /// Whether the job hangs now, after `told` lines of the ranks. `lives` returns whether a process lives.
    pub fn found(&mut self, told: u64, lives: impl Fn(u32) -> bool) -> Option<Hang> {
        let seats = self.seats.all();
        let ended = |seat: &Seat| seat.watch.ended.load(Ordering::Relaxed);
        let in_vain = |seat: &Seat| seat.watch.in_vain.load(Ordering::Relaxed);
        let moves = told + seats.iter().map(ended).sum::<u64>();
        if moves != self.moves {
            self.moves = moves;
            self.moved();
            return None;
        }
        self.looks += 1;
        if self.looks.is_multiple_of(READS) {
            let (used, runnable) = self.usage();
            // A starved rank is runnable, and adds little.
            let idle = if runnable {
                Duration::ZERO
            } else {
                LOOK * READS
            };
            self.silence += idle.max(used.saturating_sub(self.used));
            self.used = used;
            if self.silence >= self.limit.max(Duration::from_secs(1)) * SILENCE {
                return Some(Hang::Silence);
            }
        }
        let seats = self.seats.all();
        let limit = self.limit.as_micros() as u64;
        let mut waiting = 0;
        for (seat, since) in seats.iter().zip(&self.since) {
            let pid = seat.pid.load(Ordering::Acquire);
            if pid == 0 {
                return None;
            }
            if lives(pid) {
                if in_vain(seat) - since < limit {
                    return None;
                }
                waiting += 1;
            } else if self.replaces {
                return None;
            }
        }
        (waiting > 0).then_some(Hang::Standstill)
    }

    /// Counts the waits of all ranks from now on.
    pub fn moved(&mut self) {
        let in_vain = |seat: &Seat| seat.watch.in_vain.load(Ordering::Relaxed);
        self.silence = Duration::ZERO;
        self.since = self.seats.all().iter().map(in_vain).collect();
    }

    /// CPU time of all ranks of this host, and whether one is runnable.
    fn usage(&self) -> (Duration, bool) {
        let pids = self.seats.all().iter();
        let pids = pids.map(|seat| seat.pid.load(Ordering::Acquire));
        pids.filter_map(usage)
            .fold((Duration::ZERO, false), |all, one| {
                (all.0 + one.0, all.1 | one.1)
            })
    }

    /// Ends the live processes with SIGALRM, like the clock.
    pub fn end(&self, lives: impl Fn(u32) -> bool) {
        for seat in self.seats.all() {
            let pid = seat.pid.load(Ordering::Acquire);
            if lives(pid)
                && let Some(pid) = rustix::process::Pid::from_raw(pid as i32)
            {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::ALARM);
            }
        }
    }
}
