//! The loops between two threads that act as processes.

use std::cell::{Cell, OnceCell};

use unipgas_launcher::library::{self, InstalledLibrary as Installed};

use super::*;
use crate::ctx::Ground;
use hub::Hub;

/// Runs `body` in two threads that act as processes of this host.
fn two(body: impl Fn(&BenchContext) + Sync) {
    let hub = Hub::open([127, 0, 0, 1].into()).expect("a hub");
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (token, body) = (hub.token(), &body);
            scope.spawn(move || {
                let network = BenchNetwork::join(&token, rank).expect("a place");
                body(&BenchContext {
                    rank,
                    size: 2,
                    cores: 1,
                    crowded: true,
                    quick: true,
                    library: library::find(None)
                        .and_then(|path| Installed::open(&path))
                        .expect("cargo has built the library"),
                    ground: Ground::Network(Box::new(network)),
                    visit: Cell::new(0),
                    column: Cell::new(""),
                    ours: OnceCell::new(),
                });
            });
        }
        hub.serve(2, &|| false, &|_| {});
    });
}

/// The same, if libfabric is installed.
fn two_with_a_provider(body: impl Fn(&BenchContext) + Sync) {
    match LibfabricLibrary::get() {
        Ok(_) => two(body),
        Err(why) => eprintln!("left out: {why} (Debian: libfabric1)"),
    }
}

fn case(metric: Metric, bytes: u64) -> Case {
    Case::new(metric, 2, bytes)
}

fn measured(value: Result<f64, String>) {
    let value = value.expect("a value");
    assert!(value.is_finite() && value >= 0.0, "{value}");
}

#[test]
fn loops_over_tcp_end_with_a_value() {
    two(|ctx| {
        for (metric, bytes) in [
            (Metric::PutNotice, 8),
            (Metric::FetchAdd, 8),
            (Metric::Read, 2),
            (Metric::PutRate, 8),
            (Metric::Bandwidth, 1 << 20),
            (Metric::Barrier, 0),
            (Metric::Message, 8),
        ] {
            let bodies = bodies(&case(metric, bytes));
            for body in bodies.iter().filter(|body| body.api.starts_with("bare/")) {
                measured((body.run)(ctx, &case(metric, bytes)));
            }
        }
    });
}

#[test]
fn loops_over_a_provider_do_what_they_say() {
    two_with_a_provider(|ctx| {
        let provider = ctx.provider().expect("a provider");
        let bytes = |len: usize| {
            // SAFETY:
            // - they are inside the buffer; the loop has ended, so no process writes into it now
            unsafe { std::slice::from_raw_parts(provider.memory.base, len) }
        };
        let here = ctx.rank == 1;
        assert!(bytes(provider::WINDOW).iter().all(|byte| *byte == 0));
        measured(loops::write_data(ctx, &case(Metric::PutNotice, 8)));
        assert_eq!(bytes(16), [[1; 8], [0; 8]].concat());
        measured(loops::rate(ctx, &case(Metric::PutRate, 8)));
        let written = bytes(8192).iter().filter(|byte| **byte == 1).count();
        assert_eq!(written, if here { 4096 } else { 8 });
        measured(loops::barrier(ctx, &case(Metric::Barrier, 0)));
        measured(loops::tagged(ctx, &case(Metric::Message, 64)));
        assert!(bytes(64).iter().all(|byte| *byte == 1));
        measured(loops::fetch_add(ctx, &case(Metric::FetchAdd, 8)));
        if here {
            let word = bytes(8200)
                .last_chunk()
                .map(|word| u64::from_ne_bytes(*word));
            // The warm-up batch adds, too.
            assert_eq!(word, Some((ctx.batches() as u64 + 1) * 500));
        }
        let source = provider.source.base;
        // SAFETY:
        // - it is inside the buffer, and no operation on it is in flight
        unsafe { source.write_bytes(9, 4) };
        let far_byte = if here { 9 } else { 1 };
        measured(loops::read(ctx, &case(Metric::Read, 2)));
        // SAFETY:
        // - as above
        let read = unsafe { source.cast::<[u8; 4]>().read() };
        assert_eq!(read, [far_byte, far_byte, 9, 9]);
        // SAFETY:
        // - as above
        unsafe { source.write_bytes(1, 4) };
        measured(loops::bandwidth(ctx, &case(Metric::Bandwidth, 1 << 20)));
        ctx.sync();
        // Offset beyond the words of the atomic operations.
        let written = bytes(1 << 20)[16 << 10..].iter().all(|byte| *byte == 1);
        assert_eq!(written, here);
    });
}

/// If the provider lacks a function, the peer must not wait forever, and the next measurement must work.
#[test]
fn a_batch_that_fails_ends_for_both_processes() {
    two_with_a_provider(|ctx| {
        let pair = loops::Pair::of(ctx).expect("a provider");
        let outcome = pair.alone(2, |_| Err("it has none".into()));
        match ctx.rank {
            0 => assert_eq!(outcome, Err("it has none".into())),
            _ => measured(outcome),
        }
        measured(loops::write_data(ctx, &case(Metric::PutNotice, 8)));
    });
}
