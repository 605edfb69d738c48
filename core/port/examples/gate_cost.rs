//! What a barrier of two threads costs, beside an exchange of bare flags:
//! `cargo run --release -p unipgas-core --example gate_cost`.
//!
//! Prints the least time for one round in several tries; the two threads should have a core each to themselves.

use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

use unipgas_port::gate::{self, Gate, Operation, Payload, Resolve, Role, Settings};

const ROUNDS: u32 = 20_000;
const TRIES: u32 = 10;

/// One gate each: it tells itself by signal and the other by packet.
struct Pair([Gate; 2]);

impl Resolve for Pair {
    #[inline(always)]
    fn gate(&self, name: u64) -> unipgas_base::Result<&Gate> {
        let gate = self.0.get(name as usize);
        gate.ok_or(unipgas_base::Error::StaleRegion)
    }

    fn wake(&self, _name: u64) {}
}

/// Spins, and lets others run when it takes long.
fn wait(mut condition: impl FnMut() -> bool) {
    for turn in 1u32.. {
        if condition() {
            return;
        }
        if turn.is_multiple_of(4096) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

fn measure(what: &str, round: impl Fn(usize, u32) + Sync) {
    let tries = (0..TRIES).map(|attempt| {
        std::thread::scope(|scope| {
            let rank = |me| {
                let begin = Instant::now();
                for n in 0..ROUNDS {
                    round(me, attempt * ROUNDS + n);
                }
                begin.elapsed()
            };
            let other = scope.spawn(move || rank(1));
            rank(0).max(other.join().expect("the other thread ends"))
        })
    });
    let best: Duration = tries.min().unwrap_or_default();
    println!("{what}: {} ns", best.as_nanos() / u128::from(ROUNDS));
}

fn main() -> gate::Result<()> {
    #[repr(align(128))]
    struct Flag(AtomicU32);
    let flags = [0, 1].map(|_| Flag(AtomicU32::new(0)));
    measure("flags", |me, n| {
        flags[me].0.store(n + 1, Release);
        wait(|| flags[1 - me].0.load(Acquire) > n);
    });

    let gates = Pair([Gate::new(), Gate::new()]);
    for (me, peer) in [(0, 1), (1, 0)] {
        let settings = Settings {
            role: Role::StartEnd,
            src_signal: Some(me),
            dst_signal: Some(me),
            src_packet: Some(peer),
            dst_packet: Some(peer),
        };
        gate::configure(&gates.0[me as usize], &settings);
    }
    let sum = |elements: &[u64]| Payload::integers(Operation::Sum, elements, 0);
    let exact = |elements: &[f64]| Payload::doubles(Operation::Bfpsum, elements, 0);
    for (what, one, two) in [
        ("barrier", Payload::barrier(0), Payload::barrier(0)),
        ("sum of 1", sum(&[7])?, sum(&[8])?),
        ("sum of 6", sum(&[7; 6])?, sum(&[8; 6])?),
        ("bfpsum of 1", exact(&[0.1])?, exact(&[-0.7])?),
        (
            "bfpsum of 3",
            exact(&[0.1, -1e9, 1e-3])?,
            exact(&[0.3, 5e9, 7e-4])?,
        ),
        (
            "bfpsum of 3, widest",
            exact(&[1e308; 3])?,
            exact(&[5e-324; 3])?,
        ),
    ] {
        let inputs = [one, two];
        let begin = Instant::now();
        for _ in 0..ROUNDS {
            for (me, input) in inputs.iter().enumerate() {
                gate::start(&gates.0[me], me as u64, input, &gates)?;
            }
            for gate in &gates.0 {
                let mut result = Payload::default();
                assert!(gate::poll(gate, &mut result)?, "all have started");
            }
        }
        let alone = begin.elapsed().as_nanos() / u128::from(ROUNDS);
        println!("{what}, both by one thread: {alone} ns");
        measure(what, |me, _| {
            let mut result = Payload::default();
            let gate = &gates.0[me];
            gate::start(gate, me as u64, &inputs[me], &gates).expect("the last round has ended");
            wait(|| gate::poll(gate, &mut result).expect("all start the same"));
        });
    }
    Ok(())
}
