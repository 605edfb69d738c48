//! Private, unregistered memory as source and destination. No peer reaches it.

use std::ptr::null_mut;

use unipgas_core::{AtomicOp, AtomicRequest, AtomicType, Flags, Local, RemoteRegion};

use super::rank::{Rank, Says, bytes_of, late, on_ranks, remote, update};
use crate::ensure;
use crate::law::{Ctx, Verdict};

laws! {
    "core.private.everywhere", "unipgas core: Endpoint::put, Endpoint::get; op::Local", 2,
        "bytes of any length on the heap, on the stack, in statics and in constants are sent; writable ones are also received" => everywhere;
    "core.private.mapped-anew", "unipgas core: Endpoint::put, Endpoint::get; op::Local", 2,
        "memory that was unmapped, and mapped anew at the same address, is sent and received as it is now, by several threads at once" => mapped_anew;
    "core.private.results", "unipgas core: Endpoint::atomic", 2,
        "results of atomic operations get to where the caller wants them, however many, and not a byte beside" => results;
}

const LEN: usize = 200_000;
const LENGTHS: [usize; 9] = [1, 8, 65, 4096, 16384, 16385, 65536, 65537, LEN];

fn everywhere(ctx: &Ctx) -> Verdict {
    static CONSTANTS: [u8; LEN] = {
        let mut all = [3; LEN];
        all[0] = 1;
        all
    };
    // One for each rank, since ranks may be threads.
    static mut STATICS: [[u8; LEN]; 2] = [[5; LEN]; 2];
    on_ranks(ctx, LEN, |rank| {
        let there = rank.data_of(rank.other())?;
        let mut heap = vec![0u8; LEN + 9];
        let mut stack = std::hint::black_box([0u8; LEN + 9]);
        // SAFETY:
        // - within the statics: one array for each rank.
        let own: *mut u8 = unsafe { (&raw mut STATICS).cast::<u8>().add(LEN * ctx.rank as usize) };
        let writable = [
            (heap.as_mut_ptr().wrapping_add(3), "the heap"),
            (
                std::hint::black_box(&mut stack)
                    .as_mut_ptr()
                    .wrapping_add(8),
                "the stack",
            ),
            (own, "a static"),
        ];
        for (nth, len) in LENGTHS.into_iter().enumerate() {
            for (at, what) in writable {
                let bytes = bytes_of(ctx, (nth + len) as u64, len);
                // SAFETY:
                // - each place has `LEN` bytes, and no operation uses them now.
                unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), len) };
                for flags in [Flags::empty(), Flags::INLINE] {
                    there_and_back(rank, &there, at, at, &bytes, flags)
                        .map_err(|text| format!("{len} bytes of {what}: {text}"))?;
                }
            }
            let from = CONSTANTS.as_ptr().cast_mut();
            let to = heap.as_mut_ptr();
            there_and_back(rank, &there, from, to, &CONSTANTS[..len], Flags::empty())
                .map_err(|text| format!("{len} constant bytes: {text}"))?;
        }
        Ok(())
    })
}

/// Puts `bytes`, which are at `from`, and gets them back to `to`.
fn there_and_back(
    rank: &Rank<'_>,
    there: &RemoteRegion,
    from: *mut u8,
    to: *mut u8,
    bytes: &[u8],
    flags: Flags,
) -> Verdict {
    let place = remote(there, 0);
    let local = |ptr| Local { ptr, desc: 0 };
    let len = bytes.len();
    // SAFETY:
    // - `len` bytes each, which outlive the operations. The destination is overwritten before the get and read after its completion.
    unsafe {
        let posted = rank.endpoint.put(local(from), place, len, flags, 0);
        rank.end(posted).says("put")?;
        to.write_bytes(0, len);
        let posted = rank.endpoint.get(local(to), place, len, Flags::empty(), 0);
        rank.end(posted).says("get")?;
        ensure!(
            std::slice::from_raw_parts(to, len) == bytes,
            "other bytes came back"
        );
    }
    Ok(())
}

fn mapped_anew(ctx: &Ctx) -> Verdict {
    const PAGES: usize = 16 * 4096;
    const THREADS: usize = 3;
    on_ranks(ctx, THREADS * PAGES, |rank| {
        let there = rank.data_of(rank.other())?;
        let (engine, world, there) = (rank.engine(), &*rank.world, &there);
        let one = &|thread: usize| -> Verdict {
            let endpoint = engine.endpoint(u32::MAX).says("endpoint")?;
            let place = remote(there, thread * PAGES);
            let end = |posted: unipgas_core::Result<_>| -> Verdict {
                posted.says("an operation")?;
                let drained = endpoint.drain(engine, late(), &mut || world.check_anyone());
                drained.says("drain")
            };
            for round in 0..40u8 {
                let byte = round * 4 + thread as u8 + 1;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                let both = libc::PROT_READ | libc::PROT_WRITE;
                // SAFETY:
                // - a mapping of this round, in use until its `munmap`.
                unsafe {
                    let at: *mut u8 = libc::mmap(null_mut(), PAGES, both, flags, -1, 0).cast();
                    ensure!(at.addr() != usize::MAX, "no memory");
                    let local = Local { ptr: at, desc: 0 };
                    at.write_bytes(byte, PAGES);
                    end(endpoint.put(local, place, PAGES, Flags::empty(), 0))?;
                    // New pages of zeros replace the old ones.
                    libc::madvise(at.cast(), PAGES, libc::MADV_DONTNEED);
                    end(endpoint.get(local, place, PAGES, Flags::empty(), 0))?;
                    let seen = std::slice::from_raw_parts(at, PAGES).iter();
                    let wrong = seen.copied().find(|seen| *seen != byte);
                    ensure!(
                        wrong.is_none(),
                        "round {round} of thread {thread}: {wrong:?} for {byte}"
                    );
                    libc::munmap(at.cast(), PAGES);
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|nth| scope.spawn(move || one(nth)))
                .collect();
            let ends = threads.into_iter().map(|thread| thread.join());
            ends.map(|end| end.unwrap_or_else(|_| Err("a thread panicked".into())))
                .collect::<Vec<_>>()
        })
        .into_iter()
        .collect()
    })
}

fn results(ctx: &Ctx) -> Verdict {
    const MOST: usize = 1000;
    on_ranks(ctx, 8 * MOST, |rank| {
        let there = rank.data_of(rank.other())?;
        let ones = [1u64; MOST];
        let counts = [1, 2, 7, 8, 9, 512, 513, MOST];
        for (before, count) in counts.into_iter().enumerate() {
            let mut places = vec![u64::MAX; MOST + 2];
            let request = AtomicRequest {
                result: places[1..].as_mut_ptr().cast(),
                ..update(AtomicOp::Sum, AtomicType::U64, count, ones.as_ptr())
            };
            rank.atomic(remote(&there, 0), &request).says("a sum")?;
            // SAFETY:
            // - plain words; the operation has written them through a pointer.
            let seen = |nth: usize| unsafe { places.as_ptr().add(nth).read_volatile() };
            ensure!(seen(0) == u64::MAX, "a byte before the results of {count}");
            for nth in 0..MOST + 1 {
                let expected = match nth {
                    // Earlier operations with more elements have changed this one, too.
                    _ if nth < count => {
                        counts[..before].iter().filter(|one| **one > nth).count() as u64
                    }
                    _ => u64::MAX,
                };
                ensure!(
                    seen(nth + 1) == expected,
                    "result {nth} of {count}: {} instead of {expected}",
                    seen(nth + 1)
                );
            }
        }
        Ok(())
    })
}
