//! Functions of RCCE_lib.h.

use super::kit::*;

laws! {
    malloc_init: "library.malloc-init", "RCCE 1.0.13 RCCE_lib.h", 2, [RCCE_malloc_init, RCCE_malloc_gory, RC_COMM_BUFFER_START],
        "after RCCE_malloc_init allocations lie in the given lines of the MPB; bytes that are not in the MPB give none";
    windows: "library.windows", "RCCE 1.0.13 RCCE_lib.h", 3, [RC_COMM_BUFFER_START, RCCE_put, RC_cache_invalidate],
        "a put is visible at RC_COMM_BUFFER_START in a loop that only invalidates the cache";
    tools: "library.tools", "RCCE 1.0.13 RCCE_lib.h", 3, [RCCE_error_return, RCCE_global_color, RCCE_comm_split, RCCE_comm_size],
        "RCCE_error_return gives the error, RCCE_global_color one colour for all UEs";
    across_hosts: "shared.across-hosts", "RCCE.h RCCE_shmalloc", 3, [RCCE_shmalloc, RCCE_shmalloc_request],
        "UEs on several hosts all get null, those on one host memory";
}

fn own_window() -> *mut u8 {
    let me = c!(RCCE_ue());
    c!(RC_COMM_BUFFER_START(me))
}

fn malloc_init(_: &Ctx) -> Verdict {
    let base = own_window();
    for (from, size) in [(0, MPB), (256, 128), (MPB - 96, 96)] {
        let whole = from.next_multiple_of(LINE)..(from + size) / LINE * LINE;
        c!(RCCE_malloc_init(base.wrapping_add(from), size));
        let all = c!(RCCE_malloc_gory(whole.len()));
        ensure_eq!(all.addr() - base.addr(), whole.start, "the place");
        ensure!(c!(RCCE_malloc_gory(LINE)).is_null(), "more than there is");
        c!(RCCE_free(all));
    }
    c!(RCCE_malloc_init(base.wrapping_add(250), 90));
    let line = || c!(RCCE_malloc_gory(LINE)).addr();
    let lines = [line(), line(), line()].map(|at| at.saturating_sub(base.addr()));
    ensure_eq!(lines, [256, 288, 0], "the whole lines of bytes 250 to 340");
    let elsewhere = 0u64;
    for (wrong, size) in [
        (null_mut(), MPB),
        ((&raw const elsewhere).cast_mut().cast(), 64),
        (base, MPB + 1),
        (base.wrapping_add(LINE), usize::MAX),
    ] {
        c!(RCCE_malloc_init(wrong, size));
        let line = c!(RCCE_malloc_gory(LINE));
        ensure!(line.is_null(), "a line of {size} bytes outside of the MPB");
    }
    Ok(())
}

fn windows(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    let word = own_window().cast::<i32>();
    ensure!(!word.is_null(), "the own MPB is not mapped");
    for wrong in [-1, n, i32::MAX] {
        ensure!(c!(RC_COMM_BUFFER_START(wrong)).is_null(), "UE {wrong}");
    }
    barrier()?;
    let value = 100 + me;
    let from = (&raw const value).cast_mut().cast();
    ok!(RCCE_put(word.cast(), from, 4, (me + 1) % n));
    until("the word of the left UE", || {
        c!(RC_cache_invalidate());
        // SAFETY:
        // - a word of this UE's MPB.
        Ok(unsafe { word.read_volatile() } == 100 + (me + n - 1) % n)
    })?;
    barrier()
}

fn tools(ctx: &Ctx) -> Verdict {
    for error in [0, RCCE_ERROR_ID, -7] {
        ensure_eq!(c!(RCCE_error_return(0, error)), error, "the error");
    }
    let colour = library().rcce.RCCE_global_color;
    let all = got!(RCCE_comm_split(colour, null_mut()));
    let size = got!(RCCE_comm_size(all));
    equal!(size, ctx.size as i32, "UEs of one colour")
}

fn across_hosts(ctx: &Ctx) -> Verdict {
    let played = std::env::var("UNIPGAS_TEST_HOSTS").unwrap_or_default();
    let several = ctx.backend == "hosts" || played.parse().is_ok_and(|hosts: u32| hosts > 1);
    let mut chunk = 7;
    for _ in 0..2 {
        let memory = c!(RCCE_shmalloc(64));
        ensure_eq!(memory.is_null(), several, "no memory");
        let requested = c!(RCCE_shmalloc_request(4096, &mut chunk));
        ensure_eq!(requested.is_null(), several, "no memory");
        ensure_eq!(chunk, if several { 0 } else { 4096 }, "the size");
    }
    Ok(())
}
