//! A process for each rank, in memory that they share; and processes that are killed at any moment.

use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};
use unipgas_port::gate::{self, Gate, Payload, Resolve};

use crate::input::{InputKind, mix};
use crate::shape::{self, TestCircuit, name, place};

/// Gates in a mapping that forked processes share, and a page before them with a counter for each rank.
struct Shared {
    at: *mut u8,
    gates: usize,
}

const COUNTERS: usize = 4096;

impl Shared {
    fn new(gates: usize) -> Self {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let len = COUNTERS + gates * size_of::<Gate>();
        // SAFETY:
        // - a new mapping at an address of the kernel's choice replaces nothing.
        let at = unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, MapFlags::SHARED) };
        Self {
            at: at.unwrap().cast(),
            gates,
        }
    }

    /// Rounds that the process has ended.
    fn counter(&self, process: usize) -> &AtomicU64 {
        assert!(process < COUNTERS / 8);
        // SAFETY:
        // - the mapping begins with a page of counters, aligned, zero at first, and accessed as atomics only.
        unsafe { &*self.at.cast::<AtomicU64>().add(process) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY:
        // - mapped with this length; all references borrow `self`.
        unsafe { munmap(self.at.cast(), COUNTERS + self.gates * size_of::<Gate>()).unwrap() }
    }
}

impl Resolve for Shared {
    fn gate(&self, name: u64) -> unipgas_base::Result<&Gate> {
        let place = place(name).filter(|&place| place < self.gates);
        let place = place.ok_or(unipgas_base::Error::StaleRegion)?;
        // SAFETY:
        // - the array of gates follows the page of counters, and has this many;
        // - it stays mapped as long as `self` lives, which the reference borrows;
        // - only gates are made of this memory.
        Ok(unsafe { Gate::at(self.at.add(COUNTERS), place) })
    }

    fn wake(&self, _name: u64) {}
}

/// A forked process, killed when it is dropped.
struct Forked(Option<Pid>);

impl Forked {
    fn new(body: impl FnOnce()) -> Self {
        // SAFETY:
        // - the child calls `body`, which uses memory, and `_exit`; the C library makes its allocator usable after a fork.
        match unsafe { libc::fork() } {
            -1 => panic!("fork: {}", std::io::Error::last_os_error()),
            0 => {
                let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_ok();
                // SAFETY:
                // - ends this process without the parent's exit handlers.
                unsafe { libc::_exit(if good { 0 } else { 1 }) }
            }
            pid => Self(Pid::from_raw(pid)),
        }
    }

    fn ended(&mut self) -> Option<WaitStatus> {
        let (_, status) = waitpid(self.0, WaitOptions::NOHANG).unwrap()?;
        self.0 = None;
        Some(status)
    }

    fn finish(mut self) {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                assert_eq!(status.exit_status(), Some(0), "a process has failed");
                return;
            }
            assert!(
                begin.elapsed() < Duration::from_secs(600),
                "a process never ends"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Kills the process, which must not have ended before.
    fn kill(mut self) {
        let pid = self.0.take().unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        let (_, status) = waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap();
        assert!(
            status.signaled(),
            "a process has failed: {:?}",
            status.exit_status()
        );
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        if let Some(pid) = self.0.take() {
            let _ = kill_process(pid, Signal::KILL);
            let _ = waitpid(Some(pid), WaitOptions::empty());
        }
    }
}

/// Rounds of one rank of the circuit at the gates from `first` on; each checks its result.
fn rank(
    shared: &Shared,
    circuit: &TestCircuit,
    first: usize,
    rank: usize,
    rounds: std::ops::Range<u64>,
) {
    let me = first + circuit.start(rank);
    let start = shared.gate(name(me)).unwrap();
    let mut result = Payload::default();
    for round in rounds {
        let kind = InputKind::of(round);
        gate::start(start, name(me), &kind.input(rank as u64, round), shared).unwrap();
        while !gate::poll(start, &mut result).unwrap() {
            std::thread::yield_now();
        }
        kind.check(circuit.ranks as u64, round, &result);
        shared.counter(me).fetch_add(1, Relaxed);
    }
}

fn fork_all<'a>(
    shared: &'a Shared,
    circuit: &'a TestCircuit,
    first: usize,
    rounds: std::ops::Range<u64>,
) -> impl Iterator<Item = Forked> + 'a {
    (0..circuit.ranks).map(move |me| {
        let rounds = rounds.clone();
        Forked::new(|| rank(shared, circuit, first, me, rounds))
    })
}

#[test]
fn processes_reduce_through_shared_memory() {
    for (circuit, rounds) in [
        (shape::guide(2), 20_000),
        (shape::guide(8), 1_000),
        (shape::folded(10), 500),
    ] {
        let shared = Shared::new(circuit.gates());
        circuit.configure(0, &shared);
        let processes: Vec<_> = fork_all(&shared, &circuit, 0, 0..rounds).collect();
        processes.into_iter().for_each(Forked::finish);
        for rank in 0..circuit.ranks {
            assert_eq!(shared.counter(circuit.start(rank)).load(Relaxed), rounds);
        }
    }
}

#[test]
fn killed_processes_cost_only_their_own_circuit() {
    let (spared, struck) = (shape::guide(2), shape::folded(3));
    let first = spared.gates();
    let shared = Shared::new(first + struck.gates());
    spared.configure(0, &shared);
    let survivors: Vec<_> = fork_all(&shared, &spared, 0, 0..30_000).collect();
    let counter = |rank| shared.counter(first + struck.start(rank));
    let ended = |rank| counter(rank).load(Relaxed);
    for kill in 0..40u64 {
        struck.configure(first, &shared);
        (0..3).for_each(|rank| counter(rank).store(0, Relaxed));
        let mut processes: Vec<_> =
            fork_all(&shared, &struck, first, kill << 32..u64::MAX).collect();
        let begin = Instant::now();
        while ended(0) < 20 {
            assert!(
                begin.elapsed() < Duration::from_secs(600),
                "a new circuit in old gates is stuck"
            );
            std::thread::sleep(Duration::from_micros(50));
        }
        std::thread::sleep(Duration::from_micros(mix(kill) % 500));
        processes.swap_remove(mix(kill) as usize % 3).kill();
        // The others end at most the round that the dead process had started, and then wait for it.
        let mut last = [u64::MAX; 3];
        while last != std::array::from_fn(ended) {
            last = std::array::from_fn(ended);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(last.iter().max().unwrap() - last.iter().min().unwrap() <= 1);
        // No process has found a wrong result.
        assert!(
            processes
                .iter_mut()
                .all(|process| process.ended().is_none())
        );
        processes.into_iter().for_each(Forked::kill);
    }
    survivors.into_iter().for_each(Forked::finish);
}
