//! State of a measured process: its rank, the shared arena, and the duration of measurements.

use std::cell::{Cell, OnceCell};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::time::Instant;

use unipgas_launcher::library::InstalledLibrary;

use crate::arena::{Arena, STARTS};
use crate::network::BenchNetwork;
use crate::ours::Ours;

/// Ends this process with an error message if the other processes are unreachable.
fn done<T>(outcome: Result<T, String>) -> T {
    outcome.unwrap_or_else(|why| {
        unipgas_core::tell(&why);
        std::process::exit(1)
    })
}

/// Median of `values`, NaN if there are none.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// CLOCK_MONOTONIC in ns: the same clock in all processes of the machine.
pub fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Private memory of this process plus its proportional part of shared memory, in KiB. Mapped files do not count.
pub fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let of = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let word = line.and_then(|rest| rest.split_whitespace().next());
        word.and_then(|word| word.parse().ok()).unwrap_or(0)
    };
    of("Pss_Anon:") + of("Pss_Shmem:")
}

/// The medium that the processes share.
pub(crate) enum Ground {
    /// Memory.
    Memory(Arena),
    /// A network, with its meeting point.
    Network(Box<BenchNetwork>),
}

impl Ground {
    /// Records that this process is in main.
    pub fn in_main(&self) {
        self.note_time(STARTS + 8);
    }

    fn note_time(&self, at: usize) {
        // Clocks of different hosts differ.
        if let Ground::Memory(arena) = self {
            arena.control(at).fetch_max(now_ns(), AcqRel);
        }
    }
}

/// Exchanges of `bytes` in a batch.
pub fn exchanges(bytes: u64) -> usize {
    if bytes > 32 << 10 { 50 } else { 500 }
}

/// Fails unless the last word of a payload is that of this round.
#[inline(always)]
pub fn arrived(last: u64, round: u64) -> Result<(), String> {
    match last == round {
        true => Ok(()),
        false => Err("the payload came after its notice".into()),
    }
}

/// Operations in a batch of [`BenchContext::rate_of_pairs`]. The batch takes much longer than a `sync`.
pub const BATCH_OF_PAIRS: usize = 512 * 512;

/// Offset in each area of the data of [`BenchContext::share`]: a length, then the bytes.
const SHARED: usize = 9 << 20;
const SHARED_MOST: usize = 4096;

/// One process of a measurement.
pub(crate) struct BenchContext {
    /// Rank in the job.
    pub rank: usize,
    /// Number of processes of the job.
    pub size: usize,
    /// Cores that the processes of this host share.
    pub cores: usize,
    /// There are more processes than cores, so a waiting process must yield its core.
    pub crowded: bool,
    /// Measure for a shorter time.
    pub quick: bool,
    /// The medium that the processes share.
    pub ground: Ground,
    /// Number of the visit. Successive visits use other pages, because the cost of a line depends on its address.
    pub visit: Cell<usize>,
    /// The measured column.
    pub column: Cell<&'static str>,
    /// The library under test.
    pub library: InstalledLibrary,
    /// The engine under test, or the reason why it is missing.
    pub ours: OnceCell<Result<Ours, String>>,
}

impl BenchContext {
    /// The shared memory. Only measurements on one host use it.
    pub fn arena(&self) -> &Arena {
        match &self.ground {
            Ground::Memory(arena) => arena,
            Ground::Network(_) => panic!("processes on a network share no memory"),
        }
    }

    /// The measured network.
    pub fn network(&self) -> Result<&BenchNetwork, String> {
        match &self.ground {
            Ground::Network(network) => Ok(network),
            Ground::Memory(_) => Err("the processes share memory".into()),
        }
    }

    /// Waits until all processes have arrived.
    pub fn sync(&self) {
        match &self.ground {
            Ground::Memory(arena) => arena.sync(|| {
                if self.crowded {
                    std::thread::yield_now()
                } else {
                    std::hint::spin_loop()
                }
            }),
            Ground::Network(_) => drop(self.share(&[])),
        }
    }

    /// Waits for all processes. Returns the data that each process has passed, by rank.
    pub fn share(&self, mine: &[u8]) -> Vec<Vec<u8>> {
        match &self.ground {
            Ground::Network(network) => {
                // Waits inside the library make progress for peers; this wait does it, too.
                done(network.wire.meet(mine, || {
                    if let Some(Ok(ours)) = self.ours.get() {
                        ours.attend(self.column.get());
                    }
                    self.relax();
                }))
            }
            Ground::Memory(arena) => {
                assert!(mine.len() < SHARED_MOST, "too much is shared");
                let to = arena.area(self.rank, SHARED + 8, mine.len());
                let len = |rank| arena.word(rank, SHARED);
                len(self.rank).store(mine.len() as u64, Release);
                // SAFETY:
                // - `area` checked the length
                // - the others read after `sync`
                unsafe { to.copy_from_nonoverlapping(mine.as_ptr(), mine.len()) };
                self.sync();
                let all = (0..self.size).map(|rank| {
                    let len = len(rank).load(Acquire) as usize;
                    // SAFETY:
                    // - `area` checks the length
                    // - the owner writes the bytes before this `sync`, and again only after the next one
                    unsafe { std::slice::from_raw_parts(arena.area(rank, SHARED + 8, len), len) }
                        .to_vec()
                });
                let all = all.collect();
                self.sync();
                all
            }
        }
    }

    /// Sends a line of results to the command. Only rank 0 calls it.
    pub fn say(&self, line: &str) {
        match &self.ground {
            Ground::Memory(arena) => arena.say(line),
            Ground::Network(network) => done(network.wire.say(line)),
        }
    }

    /// Whether `is_so` holds in all processes.
    pub fn all(&self, is_so: bool) -> bool {
        let all = self.share(&[is_so.into()]);
        all.iter().all(|one| one.as_slice() == [1])
    }

    /// Called between two polls of a word that another process changes. It does nothing if each process has a core.
    #[inline(always)]
    pub fn relax(&self) {
        if self.crowded {
            std::thread::yield_now();
        }
    }

    /// The engine under test.
    pub fn ours(&self) -> Result<&Ours, String> {
        self.ours
            .get()
            .ok_or("not initialised")?
            .as_ref()
            .map_err(String::clone)
    }

    /// Records that this process has initialised its communication.
    pub fn started(&self) {
        self.ground.note_time(STARTS + 16);
    }

    /// ms from the launch until all processes were in main.
    pub fn all_in_main_ms(&self) -> f64 {
        self.since_launch_ms(STARTS + 8)
    }

    /// ms from the launch until all processes had initialised their communication.
    pub fn all_started_ms(&self) -> f64 {
        self.since_launch_ms(STARTS + 16)
    }

    fn since_launch_ms(&self, at: usize) -> f64 {
        let time = |at| self.arena().control(at).load(Acquire);
        time(at).saturating_sub(time(STARTS)) as f64 / 1e6
    }

    /// The partner of this process in its pair.
    pub fn other(&self) -> usize {
        self.rank ^ 1
    }

    /// Whether each process has a partner, and a window of memory.
    pub fn is_of_pairs(&self) -> bool {
        self.size.is_multiple_of(2) && self.size <= 16
    }

    /// Rate of operations over all pairs, in M/s. The first process of each pair runs `batch(each)`, which does `each` operations. The time is from
    /// the common start until the last process ends.
    pub fn rate_of_pairs(
        &self,
        each: usize,
        mut batch: impl FnMut(usize) -> Result<(), String>,
    ) -> Result<f64, String> {
        let all = (self.size / 2 * each) as f64;
        let mut outcome = Ok(());
        let mut rates: Vec<f64> = (0..=self.batches())
            .map(|_| {
                self.sync();
                let start = Instant::now();
                if self.rank.is_multiple_of(2) && outcome.is_ok() {
                    outcome = batch(each);
                }
                self.sync();
                all * 1e3 / start.elapsed().as_nanos() as f64
            })
            .skip(1)
            .collect();
        outcome.map(|()| median(&mut rates))
    }

    /// The result of rank 0. The other processes wait, and get 0.
    pub fn by_first(&self, measure: impl FnOnce() -> Result<f64, String>) -> Result<f64, String> {
        let outcome = match self.rank {
            0 => measure(),
            _ => Ok(0.0),
        };
        self.sync();
        outcome
    }

    /// Time of one collective operation, in us. `one` gets the number of the round, from 1.
    pub fn collective(
        &self,
        mut one: impl FnMut(u64) -> Result<(), String>,
    ) -> Result<f64, String> {
        let mut round = 0;
        self.sync();
        let ns = self.per_step(if self.crowded { 100 } else { 500 }, || {
            round += 1;
            one(round)
        });
        ns.map(|ns| ns / 1e3)
    }

    /// The sum over all ranks of rank and round, if it is `sum`.
    pub fn check_sum(&self, round: u64, sum: f64) -> Result<(), String> {
        let expected: f64 = (0..self.size)
            .map(|rank| (rank as u64 + round) as f64)
            .sum();
        match sum == expected {
            true => Ok(()),
            false => Err("a sum was wrong".into()),
        }
    }

    /// Time of an exchange, in ns: rank 0 sends first, and the other process replies. Both get the number of the exchange, which counts on from `rounds`.
    pub fn both_ways(
        &self,
        each: usize,
        rounds: &Cell<u64>,
        mut send: impl FnMut(u64) -> Result<(), String>,
        mut receive: impl FnMut(u64) -> Result<(), String>,
    ) -> Result<f64, String> {
        let mut round = rounds.get();
        let ns = self.per_step(each, || {
            round += 1;
            self.exchange(round, &mut send, &mut receive)
        });
        rounds.set(round);
        ns
    }

    /// One exchange of [`both_ways`](Self::both_ways).
    #[inline(always)]
    pub fn exchange<T: Copy>(
        &self,
        round: T,
        mut send: impl FnMut(T) -> Result<(), String>,
        mut receive: impl FnMut(T) -> Result<(), String>,
    ) -> Result<(), String> {
        if self.rank == 0 {
            send(round)?;
        }
        receive(round)?;
        if self.rank != 0 {
            send(round)?;
        }
        Ok(())
    }

    /// Number of the window in this visit, 0 to 15.
    pub fn place(&self) -> usize {
        self.visit.get() % 16
    }

    /// Operations in a batch: `each` on shared memory, an eighth on a network.
    pub fn fewer(&self, each: usize) -> usize {
        match self.ground {
            Ground::Memory(_) => each,
            Ground::Network(_) => each / 8,
        }
    }

    /// Batches in one visit.
    pub fn batches(&self) -> usize {
        if self.quick { 7 } else { 21 }
    }

    /// As [`per_op`](Self::per_op), for batches that may fail. No batch follows a failure.
    pub fn per_batch(
        &self,
        each: usize,
        mut batch: impl FnMut(usize) -> Result<(), String>,
    ) -> Result<f64, String> {
        let mut outcome = Ok(());
        let ns = self.per_op(each, |n| {
            if outcome.is_ok() {
                outcome = batch(n);
            }
        });
        outcome.map(|()| ns)
    }

    /// As [`per_batch`](Self::per_batch), for batches of one operation, repeated.
    pub fn per_step(
        &self,
        each: usize,
        mut one: impl FnMut() -> Result<(), String>,
    ) -> Result<f64, String> {
        self.per_batch(each, |n| (0..n).try_for_each(|_| one()))
    }

    /// Median over batches of the time of one operation, in ns. `batch(each)` runs `each` operations. The first batch is a warm-up.
    pub fn per_op(&self, each: usize, mut batch: impl FnMut(usize)) -> f64 {
        let mut times: Vec<f64> = (0..=self.batches())
            .map(|_| {
                let start = Instant::now();
                batch(each);
                start.elapsed().as_nanos() as f64 / each as f64
            })
            .skip(1)
            .collect();
        median(&mut times)
    }
}
