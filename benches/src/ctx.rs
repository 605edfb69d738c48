//! What a measured process knows: who it is, the shared arena, and how long to measure.

use std::cell::{Cell, OnceCell};
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::time::Instant;

use crate::arena::{Arena, STARTS};
use crate::ours::Ours;

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

/// One process of a measurement.
pub struct Ctx {
    /// Rank in the job.
    pub rank: usize,
    /// Number of processes of the job.
    pub size: usize,
    /// Whether there are more processes than cores, so that a wait must give up its core.
    pub crowded: bool,
    /// Whether to measure for a shorter time.
    pub quick: bool,
    /// Memory shared with the other processes.
    pub arena: Arena,
    /// Number of the visit: successive ones use other pages, since the cost of a line depends on its address.
    pub visit: Cell<usize>,
    /// The engine under test, or why there is none.
    pub ours: OnceCell<Result<Ours, String>>,
}

impl Ctx {
    /// Waits until all processes are here.
    pub fn sync(&self) {
        self.arena.sync(|| {
            if self.crowded {
                std::thread::yield_now()
            } else {
                std::hint::spin_loop()
            }
        });
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

    /// Notes that this process is in main.
    pub fn in_main(&self) {
        self.arena.control(STARTS + 8).fetch_max(now_ns(), AcqRel);
    }

    /// Notes that this process has initialised its communication.
    pub fn started(&self) {
        self.arena.control(STARTS + 16).fetch_max(now_ns(), AcqRel);
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
        let time = |at| self.arena.control(at).load(Acquire);
        time(at).saturating_sub(time(STARTS)) as f64 / 1e6
    }

    /// The other one of two processes.
    pub fn other(&self) -> usize {
        1 - self.rank
    }

    /// Which of 16 places to use in this visit.
    pub fn place(&self) -> usize {
        self.visit.get() % 16
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
