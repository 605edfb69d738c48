//! §7.2.4: memory of the program as segments.

use std::sync::atomic::AtomicU8;

use super::kit::*;

laws! {
    bind_heap: "segment.bind.heap", "§7.2.4", 2, [gaspi_segment_bind, gaspi_segment_register, gaspi_segment_ptr, gaspi_segment_delete],
        "memory of the heap, of any alignment, becomes a segment where it lies; its neighbours are left alone";
    bind_stack: "segment.bind.stack", "§7.2.4", 2, [gaspi_segment_bind, gaspi_segment_register],
        "memory of the stack becomes a segment while its thread goes on using the stack";
    bind_static: "segment.bind.static", "§7.2.4", 2, [gaspi_segment_bind, gaspi_segment_register],
        "static memory of the program becomes a segment";
    bind_large: "segment.bind.large", "§7.2.4", 2, [gaspi_segment_bind],
        "several pages of user memory, with an odd begin and end";
    bind_in_the_place_of_another: "segment.bind.replaced", "§7.2.4", 2, [gaspi_segment_bind, gaspi_segment_delete],
        "memory that the program has put in the place of bound memory can be bound, and is what peers write to";
    bind_twice_in_a_page: "segment.bind.neighbours", "§7.2.4", 2, [gaspi_segment_bind, gaspi_segment_delete],
        "two segments in one page are apart, and outlive each other";
}

/// Rank 0 owns `len` bytes at `base` with `margin` bytes on each side. Rank 1 reads and writes them.
fn bound(ctx: &Ctx, base: *mut u8, len: usize, margin: usize) -> Verdict {
    let local = segment(1, len)?;
    let mut random = ctx.random(3);
    let before = random_bytes(&mut random, len);
    let after = random_bytes(&mut random, len);
    if ctx.rank == 0 {
        let (below, whole) = (base.wrapping_sub(margin), len + 2 * margin);
        let around = Memory {
            base: below,
            len: whole,
        };
        around.fill(0x11);
        let memory = Memory { base, len };
        memory.store(0, &before);
        ok!(gaspi_segment_bind(0, base, len as u64, 0));
        let pointer = got!(gaspi_segment_ptr(0));
        ensure_eq!(pointer, base, "the pointer of a bound segment");
        memory.holds(0, &before, "bound memory right after gaspi_segment_bind")?;
        ok!(gaspi_segment_register(0, 1, LONG));
        barrier()?;
        notified(0, 3)?;
        memory.holds(0, &after, "what the peer wrote")?;
        around.all(0, margin, 0x11, "the memory before the bound one")?;
        around.all(margin + len, margin, 0x11, "the memory behind it")?;
        // The peer sees stores of the owner.
        memory.store(len - 1, &[0x77]);
        around.store(0, &[0x22]);
        barrier()?;
        barrier()?;
        ok!(gaspi_segment_delete(0));
        memory.holds(0, &after[..len - 1], "after gaspi_segment_delete")?;
        around.fill(0x33);
        around.all(0, around.len, 0x33, "memory that was bound")?;
        barrier()?;
        barrier()
    } else {
        barrier()?;
        ok!(gaspi_read(1, 0, 0, 0, 0, len as u64, 0, LONG));
        flush(0)?;
        local.holds(0, &before, "data read from bound memory")?;
        local.store(0, &after);
        ok!(gaspi_write_notify(1, 0, 0, 0, 0, len as u64, 3, 1, 0, LONG));
        flush(0)?;
        barrier()?;
        ok!(gaspi_read(1, 0, 0, 0, len as u64 - 1, 1, 0, LONG));
        flush(0)?;
        local.all(0, 1, 0x77, "the owner's own store, read by the peer")?;
        barrier()?;
        barrier()?;
        post::write(1, 0, 0, 0, 0, len as u64).gives(GASPI_ERR_INV_SEG, 0, LONG)?;
        barrier()
    }
}

fn bind_heap(ctx: &Ctx) -> Verdict {
    let mut heap = vec![0u8; 1000];
    let base = heap.as_mut_ptr();
    for (offset, len) in [(100, 1), (103, 100), (64, 8), (101, 777)] {
        bound(ctx, base.wrapping_add(offset), len, 64)?;
        ok!(gaspi_segment_delete(1));
        barrier()?;
    }
    Ok(())
}

fn bind_stack(ctx: &Ctx) -> Verdict {
    let mut stack = [0u8; 700];
    let base = stack.as_mut_ptr();
    bound(ctx, base.wrapping_add(99), 500, 50)
}

static STATIC: [AtomicU8; 9000] = [const { AtomicU8::new(0) }; 9000];

fn bind_static(ctx: &Ctx) -> Verdict {
    let base = STATIC.as_ptr().cast_mut().cast::<u8>();
    bound(ctx, base.wrapping_add(333), 8000, 300)
}

fn bind_large(ctx: &Ctx) -> Verdict {
    let mut heap = vec![0u8; 3_000_000];
    let base = heap.as_mut_ptr();
    bound(ctx, base.wrapping_add(12_345), 2_900_001, 1000)
}

fn bind_in_the_place_of_another(ctx: &Ctx) -> Verdict {
    const LEN: usize = 8192;
    let source = segment(9, 64)?;
    let map = |place: *mut u8, flags| {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
        // SAFETY:
        // - a new mapping, or a mapping in the place of an earlier mapping of this law.
        let base = unsafe { libc::mmap(place.cast(), LEN, rights, flags, -1, 0) };
        let (base, len) = (base.cast(), LEN);
        Memory { base, len }
    };
    if ctx.rank == 0 {
        let first = map(null_mut(), 0);
        ok!(gaspi_segment_bind(0, first.base, LEN as u64, 0));
        let memory = map(first.base, libc::MAP_FIXED);
        ensure_eq!(memory.base, first.base, "the place");
        memory.fill(3);
        ok!(gaspi_segment_bind(1, memory.base, LEN as u64, 0));
        ok!(gaspi_segment_register(1, 1, LONG));
        barrier()?;
        notified(1, 0)?;
        memory.all(0, 4096, 3, "what was there")?;
        memory.all(4096, 64, 5, "what was written")?;
        ok!(gaspi_segment_delete(1));
        ok!(gaspi_segment_delete(0));
        memory.all(4096, 64, 5, "what was written, afterwards")?;
        // SAFETY:
        // - the mapping from above: its segments are deleted, and it is not used afterwards.
        unsafe { libc::munmap(memory.base.cast(), LEN) };
    } else {
        source.fill(5);
        barrier()?;
        ok!(gaspi_write_notify(9, 0, 0, 1, 4096, 64, 0, 1, 0, LONG));
    }
    barrier()
}

fn bind_twice_in_a_page(ctx: &Ctx) -> Verdict {
    let source = segment(9, 64)?;
    let memory = Memory::new(512);
    if ctx.rank == 0 {
        ok!(gaspi_segment_bind(0, memory.base, 64, 0));
        ok!(gaspi_segment_bind(1, memory.base.wrapping_add(64), 64, 0));
        ok!(gaspi_segment_register(0, 1, LONG));
        ok!(gaspi_segment_register(1, 1, LONG));
    } else {
        source.fill(5);
    }
    barrier()?;
    if ctx.rank == 1 {
        post::write(9, 0, 0, 0, 60, 8).gives(GASPI_ERR_INV_REM_OFF, 0, LONG)?;
        ok!(gaspi_write_notify(9, 0, 0, 1, 0, 64, 0, 1, 0, LONG));
        barrier()?;
        gives!(GASPI_ERR_INV_SEG, gaspi_write(9, 0, 0, 0, 0, 8, 0, LONG));
        source.fill(6);
        ok!(gaspi_write_notify(9, 0, 0, 1, 0, 8, 0, 1, 0, LONG));
    } else {
        notified(1, 0)?;
        memory.all(0, 64, 0, "the other segment of the page")?;
        memory.all(64, 64, 5, "what was written")?;
        ok!(gaspi_segment_delete(0));
        barrier()?;
        notified(1, 0)?;
        memory.all(64, 8, 6, "data written after the neighbour's deletion")?;
        memory.all(0, 64, 0, "the deleted neighbour")?;
        ok!(gaspi_segment_delete(1));
    }
    barrier()
}
