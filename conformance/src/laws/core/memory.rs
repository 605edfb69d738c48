//! Memory of the user, registered in place: on the heap, on the stack and in a static.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use unipgas_core::{Deadline, Error, Region, RemoteRegion, Rights};

use super::rank::{
    EXTRA, Rank, Says, bytes_of, invalid, is, late, on_ranks, out_of_bounds, read, refused, remote,
    write,
};
use crate::law::{Ctx, Verdict};
use crate::laws::no_memory;
use crate::{ensure, ensure_eq};

laws! {
    "core.memory.heap", "unipgas core: Engine::register", 2,
        "memory of the heap is reached where it is" => heap;
    "core.memory.stack", "unipgas core: Engine::register", 2,
        "memory of the stack is reached where it is" => stack;
    "core.memory.static", "unipgas core: Engine::register", 2,
        "a static is reached where it is" => in_a_static;
    "core.memory.shared-page", "unipgas core: Engine::register", 2,
        "several regions on one page come and go, and disturb neither each other nor what lies between" => shared_page;
    "core.memory.refused", "unipgas core: Engine::register", 1,
        "memory without an address or a length is refused, and what no process has or this one has not mapped; other memory is registered as before" => nothing;
    "core.memory.wakes", "unipgas core: Channel::notify", 2,
        "a notice in memory of the user wakes who sleeps" => wakes;
}

const LEN: usize = 3 * 4096 + 264;

fn heap(ctx: &Ctx) -> Verdict {
    let mut own = vec![0u64; LEN / 8 + 4];
    let memory: *mut u8 = own.as_mut_ptr().cast();
    reached(ctx, memory.wrapping_add(8), LEN)
}

fn stack(ctx: &Ctx) -> Verdict {
    #[repr(align(64))]
    struct Place([u8; LEN]);
    let mut own = Place([0; LEN]);
    reached(ctx, std::hint::black_box(&mut own).0.as_mut_ptr(), LEN)?;
    std::hint::black_box(&own);
    Ok(())
}

fn in_a_static(ctx: &Ctx) -> Verdict {
    // One for each rank, since ranks may be threads.
    static PLACES: [[AtomicU64; LEN / 8]; 2] =
        [const { [const { AtomicU64::new(0) }; LEN / 8] }; 2];
    reached(
        ctx,
        PLACES[ctx.rank as usize].as_ptr().cast_mut().cast(),
        LEN,
    )
}

/// All kinds of operations on the other rank's memory, registered three times. The last 64 bytes are a guard behind the region.
fn reached(ctx: &Ctx, memory: *mut u8, len: usize) -> Verdict {
    let (neighbour, len) = (memory.wrapping_add(len - 64), len - 64);
    let guard = [0x5au8; 64];
    // SAFETY:
    // - the callers own the memory, and it is not registered now.
    unsafe { neighbour.copy_from_nonoverlapping(guard.as_ptr(), 64) };
    on_ranks(ctx, 16384, |rank| {
        for round in 0..3 {
            // SAFETY:
            // - the memory outlives the region, which is dropped in `one_round`.
            let region = unsafe { rank.engine().register(memory, len, Rights::FULL) };
            one_round(rank, region.says("registering memory of the user")?, round)?;
            // SAFETY:
            // - as above; the registration has ended, and with it all writes.
            let seen = unsafe { std::slice::from_raw_parts(memory, 64) };
            let expected = bytes_of(rank.ctx, 100 + round * 2 + u64::from(rank.other()), 64);
            ensure!(
                seen[..32] == expected[..32],
                "after the region is gone its memory holds something else"
            );
            // SAFETY:
            // - as above.
            let seen = unsafe { std::slice::from_raw_parts(neighbour, 64) };
            ensure!(seen == guard, "the bytes behind the region were changed");
        }
        Ok(())
    })
}

fn one_round(rank: &Rank<'_>, region: Region, round: u64) -> Verdict {
    let ctx = rank.ctx;
    let len = region.len();
    rank.list(EXTRA, &region).says("list")?;
    write(&region, 0, &vec![0; len]);
    // The peer gets the bytes that the owner stores.
    let mine = bytes_of(ctx, round * 2 + u64::from(ctx.rank), len);
    write(&region, 0, &mine);
    ctx.sync();
    let there = rank.listed(rank.other(), EXTRA)?;
    let at = |offset| remote(&there, offset);
    ensure_eq!(there.len(), len, "length of the region, seen from the peer");
    let theirs = bytes_of(ctx, round * 2 + u64::from(rank.other()), len);
    ensure!(
        rank.get(at(0), len).says("get")? == theirs,
        "a get of everything brought other bytes"
    );
    ensure!(
        rank.get(at(4093), 4099).says("get")? == theirs[4093..8192],
        "a get across pages brought other bytes"
    );
    refused(
        rank.try_put(at(len - 7), 8),
        out_of_bounds,
        "put past the end",
    )?;
    ctx.sync();
    // The owner loads the bytes that a peer puts.
    let sent = bytes_of(ctx, 100 + round * 2 + u64::from(ctx.rank), len);
    for (from, to) in [(0, 64), (4001, 8222), (len - 1, len)] {
        rank.put(&sent[from..to], at(from)).says("put")?;
    }
    ctx.sync();
    let expected = bytes_of(ctx, 100 + round * 2 + u64::from(rank.other()), len);
    for (from, to) in [(0, 64), (4001, 8222), (len - 1, len)] {
        ensure!(
            read(&region, from, to - from) == expected[from..to],
            "put of bytes {from}..{to}: the owner sees others"
        );
    }
    ensure!(
        read(&region, 8222, len - 1 - 8222) == mine[8222..len - 1],
        "a put changed bytes beside it"
    );
    words(rank, &region, &there)?;
    ctx.sync();
    drop(region);
    ctx.sync();
    refused(
        rank.try_get(at(0), 8),
        is(Error::StaleRegion),
        "get after the owner has ended the registration",
    )?;
    ctx.sync();
    Ok(())
}

/// Atomics and notices, while the owner uses the CPU's atomics on the same words.
fn words(rank: &Rank<'_>, region: &Region, there: &RemoteRegion) -> Verdict {
    const ADDS: u64 = 200;
    // With a base aligned to 8 only, these words are aligned to 8 only.
    let (counter, note) = (256, 1024);
    let own = region.word(counter).says("own counter")?;
    own.store(0, Ordering::SeqCst);
    region
        .word(counter + 4)
        .says("upper half")?
        .store(0, Ordering::SeqCst);
    region
        .word(note)
        .says("own notice")?
        .store(0, Ordering::SeqCst);
    rank.ctx.sync();
    let at = remote(there, counter);
    for _ in 0..ADDS {
        rank.fetch_add(at, 1).says("fetch-add")?;
        let local = region.local(counter, 8).says("own counter")?;
        // SAFETY:
        // - in bounds, and aligned to 8 like the bases; the peer uses atomics of the same width.
        unsafe { AtomicU64::from_ptr(local.ptr.cast()) }.fetch_add(1, Ordering::SeqCst);
    }
    rank.ctx.sync();
    let seen = u64::from(own.load(Ordering::SeqCst));
    ensure_eq!(seen, 2 * ADDS, "sum of both sides' additions");
    let at = remote(there, note);
    rank.notify(at, 77 + rank.ctx.rank).says("notice")?;
    let seen = rank.await_word(region, note, late());
    let seen = seen.says("waiting for the notice")?;
    ensure_eq!(seen, 77 + rank.other(), "value of the notice");
    Ok(())
}

fn shared_page(ctx: &Ctx) -> Verdict {
    const PIECES: usize = 12;
    let mut own = vec![0u64; 2 * 512];
    let memory: *mut u8 = own.as_mut_ptr().cast();
    on_ranks(ctx, 16384, |rank| {
        let mut random = rank.ctx.random(u64::from(rank.ctx.rank));
        for _ in 0..10 {
            let mut regions = Vec::new();
            for piece in 0..PIECES {
                // SAFETY:
                // - 64 bytes of the vector, which outlives the regions.
                let region = unsafe {
                    rank.engine().register(
                        memory.wrapping_add(4000 + piece * 128),
                        64,
                        Rights::FULL,
                    )
                };
                regions.push(region.says("registering a piece of a page")?);
            }
            // The registrations end in a random order.
            for piece in (1..PIECES).rev() {
                regions.swap(piece, random.below(piece as u64 + 1) as usize);
            }
            while let Some(region) = regions.pop() {
                write(&region, 0, &[0x11; 64]);
                rank.list(EXTRA, &region).says("list")?;
                rank.ctx.sync();
                let there = rank.listed(rank.other(), EXTRA)?;
                rank.put(&[0x77; 62], remote(&there, 1)).says("put")?;
                rank.ctx.sync();
                let mut expected = [0x77; 64];
                (expected[0], expected[63]) = (0x11, 0x11);
                let seen = read(&region, 0, 64);
                ensure_eq!(seen, expected, "what was put between two bytes");
                drop(region);
                rank.ctx.sync();
            }
        }
        // SAFETY:
        // - bytes of the vector; nothing is registered any more.
        let all = unsafe { std::slice::from_raw_parts(memory, 8192) };
        let between = (0..PIECES - 1).flat_map(|piece| 4064 + piece * 128..4128 + piece * 128);
        ensure_eq!(
            between.into_iter().find(|at| all[*at] != 0),
            None,
            "first byte between the regions that was changed"
        );
        Ok(())
    })
}

fn nothing(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 64, |rank| {
        let mut own = [0u8; 8];
        for (base, len) in [
            (own.as_mut_ptr(), 0),
            (std::ptr::null_mut(), 8),
            (own.as_mut_ptr(), usize::MAX),
        ]
        .into_iter()
        .chain(no_memory())
        {
            // SAFETY:
            // - the call is refused and accesses no memory.
            let result = unsafe { rank.engine().register(base, len, Rights::FULL) };
            refused(result, invalid, &format!("{len} bytes at {base:p}"))?;
            // SAFETY:
            // - the call is refused and accesses no memory.
            let result = unsafe { rank.engine().expose(base, len) };
            refused(
                result,
                invalid,
                &format!("to send {len} bytes from {base:p}"),
            )?;
        }
        // SAFETY:
        // - the array outlives the region.
        let region = unsafe { rank.engine().register(own.as_mut_ptr(), 8, Rights::FULL) };
        drop(region.says("registering memory after that")?);
        let result = rank.engine().allocate(0, Rights::FULL);
        refused(result, invalid, "allocation of 0 bytes")
    })
}

fn wakes(ctx: &Ctx) -> Verdict {
    let mut own = vec![0u64; 1024];
    let memory: *mut u8 = own.as_mut_ptr().cast();
    on_ranks(ctx, 16384, |rank| {
        // SAFETY:
        // - the vector outlives the region.
        let region = unsafe { rank.engine().register(memory, 8192, Rights::FULL) };
        let region = region.says("registering memory of the user")?;
        rank.list(EXTRA, &region).says("list")?;
        rank.ctx.sync();
        if rank.ctx.rank == 0 {
            let there = rank.listed(1, EXTRA)?;
            std::thread::sleep(Duration::from_millis(200));
            rank.notify(remote(&there, 4096), 5).says("notice")?;
        } else {
            let wait = rank.await_word(&region, 4096, Deadline::Never);
            ensure_eq!(wait.says("waiting")?, 5, "value of the notice");
        }
        rank.ctx.sync();
        Ok(())
    })
}
