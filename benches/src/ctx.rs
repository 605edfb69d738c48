//! What a measured process knows: who it is, the shared arena, and how long to measure.

use std::cell::{Cell, OnceCell};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::time::Instant;

use unipgas_launcher::library::Library;

use crate::arena::{Arena, STARTS};
use crate::network::Network;
use crate::ours::Ours;

/// What the others say, without whom this process has nothing to do.
fn done<T>(outcome: Result<T, String>) -> T {
    outcome.unwrap_or_else(|why| {
        unipgas_core::tell(&why);
        std::process::exit(1)
    })
}

/// Median of `values`, NaN when there is none.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// CLOCK_MONOTONIC in ns, the same clock in every process of the machine.
pub fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// KiB of memory that this process has to itself, with its part of what it shares: files that it has mapped are not in it.
pub fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let of = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let word = line.and_then(|rest| rest.split_whitespace().next());
        word.and_then(|word| word.parse().ok()).unwrap_or(0)
    };
    of("Pss_Anon:") + of("Pss_Shmem:")
}

/// What the processes have in common.
pub enum Ground {
    /// Memory.
    Memory(Arena),
    /// A network, and where they meet.
    Network(Box<Network>),
}

impl Ground {
    /// Notes that this process is in main.
    pub fn in_main(&self) {
        self.note_time(STARTS + 8);
    }

    fn note_time(&self, at: usize) {
        // Hosts have clocks of their own.
        if let Ground::Memory(arena) = self {
            arena.control(at).fetch_max(now_ns(), AcqRel);
        }
    }
}

/// Operations in a batch of [`Ctx::rate_of_pairs`]: much longer than it takes all processes to meet.
pub const BATCH_OF_PAIRS: usize = 512 * 512;

/// What the processes share by [`Ctx::share`] in the arena: so many bytes each, with their number before them.
const SHARED: usize = 9 << 20;
const SHARED_MOST: usize = 4096;

/// One process of a measurement.
pub struct Ctx {
    /// Rank in the job.
    pub rank: usize,
    /// Number of processes of the job.
    pub size: usize,
    /// Cores that the processes of this host share.
    pub cores: usize,
    /// Whether there are more processes than cores, so that a wait must give up its core.
    pub crowded: bool,
    /// Whether to measure for a shorter time.
    pub quick: bool,
    /// What the processes of the measurement have in common.
    pub ground: Ground,
    /// Number of the visit: successive ones use other pages, since the cost of a line depends on its address.
    pub visit: Cell<usize>,
    /// The column that is measured.
    pub column: Cell<&'static str>,
    /// The library whose interfaces are measured.
    pub library: Library,
    /// The engine under test, or why there is none.
    pub ours: OnceCell<Result<Ours, String>>,
}

impl Ctx {
    /// The memory that all share. Bodies that need it are of one host.
    pub fn arena(&self) -> &Arena {
        match &self.ground {
            Ground::Memory(arena) => arena,
            Ground::Network(_) => panic!("processes on a network share no memory"),
        }
    }

    /// The network that is measured.
    pub fn network(&self) -> Result<&Network, String> {
        match &self.ground {
            Ground::Network(network) => Ok(network),
            Ground::Memory(_) => Err("the processes share memory".into()),
        }
    }

    /// Waits until all processes are here.
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

    /// What each process has brought, by rank, when all are here.
    pub fn share(&self, mine: &[u8]) -> Vec<Vec<u8>> {
        match &self.ground {
            Ground::Network(network) => {
                // Who waits in a library serves peers by it; so does who waits here.
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
                // - `area` checked the length; the others read after `sync`
                unsafe { to.copy_from_nonoverlapping(mine.as_ptr(), mine.len()) };
                self.sync();
                let all = (0..self.size).map(|rank| {
                    let len = len(rank).load(Acquire) as usize;
                    // SAFETY:
                    // - `area` checks the length; written before `sync`, and not again before the next one
                    unsafe { std::slice::from_raw_parts(arena.area(rank, SHARED + 8, len), len) }
                        .to_vec()
                });
                let all = all.collect();
                self.sync();
                all
            }
        }
    }

    /// Tells the command a line of results. Rank 0 alone calls it.
    pub fn say(&self, line: &str) {
        match &self.ground {
            Ground::Memory(arena) => arena.say(line),
            Ground::Network(network) => done(network.wire.say(line)),
        }
    }

    /// Whether all processes say that it is so.
    pub fn all(&self, is_so: bool) -> bool {
        let all = self.share(&[is_so.into()]);
        all.iter().all(|one| one.as_slice() == [1])
    }

    /// Called between two looks at a word that another process will change: nothing when each has its own core.
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

    /// Notes that this process has initialised its communication.
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

    /// The other one of a pair of processes.
    pub fn other(&self) -> usize {
        self.rank ^ 1
    }

    /// Whether each process has another one to itself, with memory for it.
    pub fn is_of_pairs(&self) -> bool {
        self.size.is_multiple_of(2) && self.size <= 16
    }

    /// M/s of what the first of each pair does, `each` operations of it in a batch: from when all begin until the last one is done. `batch` runs that many.
    pub fn rate_of_pairs(&self, each: usize, mut batch: impl FnMut(usize)) -> f64 {
        let all = (self.size / 2 * each) as f64;
        let mut rates: Vec<f64> = (0..=self.batches())
            .map(|_| {
                self.sync();
                let start = Instant::now();
                if self.rank.is_multiple_of(2) {
                    batch(each);
                }
                self.sync();
                all * 1e3 / start.elapsed().as_nanos() as f64
            })
            .skip(1)
            .collect();
        median(&mut rates)
    }

    /// Which of 16 places to use in this visit.
    pub fn place(&self) -> usize {
        self.visit.get() % 16
    }

    /// Operations of a batch: as many as that where they are the fastest, fewer on a network.
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

    /// Median over batches of the ns that one of `each` operations takes; `batch` runs that many. One more
    /// batch goes ahead as warm-up.
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
