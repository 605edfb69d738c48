//! No store of any thread is lost.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::mm::MapFlags;
use unipgas_shm::adopt::Refusal;

use crate::memory::{PAGE, adopt, bump, map, map_file, memfd, pages_of, read, release, unmap};
use crate::rounds_of;

/// Threads increment their words, `words[thread]`, while `rounds` times the pages are adopted and released.
/// Between adoption and release, each word of the file has at least the value stored before the adoption.
fn hammer(words: &[Vec<usize>], first: *mut u8, len: usize, rounds: usize) {
    let offset = 3 * PAGE;
    let fd = memfd(offset + len);
    let peer = map_file(&fd, offset, len) as usize;
    let first = first as usize;
    let stop = AtomicBool::new(false);
    let start = Barrier::new(words.len() + 1);
    let (stop, start) = (&stop, &start);
    std::thread::scope(|scope| {
        let counters: Vec<_> = words
            .iter()
            .map(|mine| {
                scope.spawn(move || {
                    start.wait();
                    let mut expected = 0_u64;
                    loop {
                        for word in mine {
                            bump(*word as *mut u64);
                        }
                        expected += 1;
                        for word in mine {
                            assert_eq!(read(*word as *const u64), expected, "an increment is lost");
                        }
                        if stop.load(Ordering::Relaxed) {
                            return expected;
                        }
                    }
                })
            })
            .collect();
        start.wait();
        let outcome = (0..rounds_of(rounds)).try_for_each(|_| {
            let before: Vec<_> = words
                .iter()
                .flatten()
                .map(|word| read(*word as *const u64))
                .collect();
            adopt(&fd, offset, first as *mut u8, len)?;
            for (word, before) in words.iter().flatten().zip(before) {
                let seen = read((peer + (word - first)) as *const u64);
                if seen < before {
                    return Err(Refusal::Os(format!(
                        "the file shows {seen}, {before} were stored before"
                    )));
                }
            }
            release(&fd, offset, first as *mut u8, len)
        });
        stop.store(true, Ordering::Relaxed);
        let reached: Vec<_> = counters.into_iter().map(|counter| counter.join()).collect();
        outcome.expect("adopt and release");
        for (mine, reached) in words.iter().zip(reached) {
            let reached = reached.expect("no increment is lost");
            assert!(reached > 0);
            for word in mine {
                assert_eq!(read(*word as *const u64), reached);
            }
        }
    });
    unmap(peer as *mut u8, len);
}

/// Words of three threads, interleaved in every page of the range.
fn interleaved(first: *mut u8, len: usize) -> Vec<Vec<usize>> {
    (0..3)
        .map(|t| {
            (0..len / PAGE)
                .map(|page| first as usize + page * PAGE + 128 + 8 * t)
                .collect()
        })
        .collect()
}

#[test]
fn no_store_is_lost_on_the_heap() {
    let mut heap = vec![0_u8; 6 * PAGE];
    let (first, len) = pages_of(&raw const heap[PAGE], 3 * PAGE);
    hammer(&interleaved(first, len), first, len, 2000);
    heap.fill(1);
}

#[test]
fn no_store_is_lost_in_one_page() {
    let at = map(PAGE, MapFlags::PRIVATE);
    hammer(&interleaved(at, PAGE), at, PAGE, 3000);
    unmap(at, PAGE);
}

#[test]
fn no_store_is_lost_when_threads_share_the_copy() {
    let len = 34 << 20;
    let at = map(len, MapFlags::PRIVATE);
    let words = (0..2)
        .map(|t| {
            (0..64)
                .map(|i| at as usize + i * (len / 64) + 8 * t)
                .collect()
        })
        .collect::<Vec<_>>();
    hammer(&words, at, len, 20);
    unmap(at, len);
}

#[test]
fn no_store_is_lost_in_static_memory() {
    static mut ZEROED: [u8; 8 * PAGE] = [0; 8 * PAGE];
    let (first, len) = pages_of(
        (&raw const ZEROED).cast::<u8>().wrapping_add(2 * PAGE),
        2 * PAGE,
    );
    hammer(&interleaved(first, len), first, len, 2000);
}

#[test]
fn no_store_is_lost_on_stacks_of_living_threads() {
    let at = AtomicUsize::new(0);
    let done = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut frame = [0_u8; 6 * PAGE];
            at.store(
                std::hint::black_box(frame.as_mut_ptr()) as usize,
                Ordering::Release,
            );
            done.wait();
            std::hint::black_box(&mut frame);
        });
        let frame = loop {
            match at.load(Ordering::Acquire) {
                0 => std::thread::yield_now(),
                frame => break frame,
            }
        };
        let (first, len) = pages_of((frame + PAGE) as *const u8, 3 * PAGE);
        hammer(&interleaved(first, len), first, len, 2000);
        done.wait();
    });
}
