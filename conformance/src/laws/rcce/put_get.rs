//! MPBs: RCCE_put and RCCE_get, plain and gory; §5.1, §9.5.

use super::kit::*;

laws! {
    every_size: "mpb.every-size", "iRCCE 2.0 §9.5", 2, [iRCCE_put, iRCCE_get, RCCE_put, RCCE_get, iRCCE_malloc],
        "a get returns the bytes of the put, for every size and offset, and nothing beside them changes";
    gory_checks: "mpb.gory", "RCCE GORY", 2, [RCCE_put_gory, RCCE_get_gory, RCCE_malloc_gory],
        "gory put and get demand whole lines, addresses in the MPB, alignment, a UE, and ranges that do not overlap, each with its code";
    to_itself: "mpb.itself", "iRCCE 2.0 §9.5", 1, [iRCCE_put, iRCCE_get, RCCE_put, RCCE_get],
        "the own MPB is written and read like another's, also where source and target overlap";
    memcpy: "mpb.memcpy", "iRCCE 2.0 §9.5", 1, [iRCCE_memcpy_put, iRCCE_memcpy_get],
        "the copy functions copy as memcpy does and return the destination";
    gory_malloc: "mpb.malloc.gory", "RCCE RCCE_malloc", 1,
        [RCCE_malloc_gory, RCCE_malloc_request_gory, RCCE_free],
        "gory programs get any multiple of 32 while there is room, and what is freed is given again, joined with its neighbours";
    simple_malloc: "mpb.malloc.simple", "RCCE RCCE_malloc", 1, [RCCE_malloc, RCCE_malloc_request, RCCE_free],
        "programs of the simple interface get lines of 32 bytes, and nothing else";
    ircce_malloc: "mpb.malloc.ircce", "iRCCE 2.0 §9.5", 1, [iRCCE_malloc],
        "iRCCE_malloc gives null unless the size is a multiple of 32 and there is room";
    same_place: "mpb.same-place", "RCCE RCCE_malloc", 3, [iRCCE_malloc, iRCCE_put, RCCE_fence] + ordering,
        "equal allocations are at the same places on all UEs, for puts of each UE; a flag after the bytes announces them";
}

fn every_size(ctx: &Ctx) -> Verdict {
    let other = 1 - ctx.rank as i32;
    let area = c!(iRCCE_malloc(4096));
    ensure!(!area.is_null(), "iRCCE_malloc(4096) gave nothing");
    let back = Bytes::filled(4096, 0);
    let sizes = [1, 2, 7, 8, 31, 32, 33, 63, 64, 100, 1000, 2048, 3000];
    for (nth, size) in sizes.into_iter().enumerate() {
        for offset in [0usize, 1, 31, 32, 500] {
            let bytes = Bytes::of(&content(ctx, nth as u64 ^ u64::from(ctx.rank) << 32, size));
            let blank = Bytes::filled(4096, 0x99);
            let at = area.wrapping_add(offset);
            if nth % 2 == 0 {
                ok!(iRCCE_put(area, blank.raw(), 4096, other));
                ok!(iRCCE_put(at, bytes.raw(), size as i32, other));
                ok!(RCCE_get(back.raw(), area, 4096, other));
            } else {
                ok!(RCCE_put(area, blank.raw(), 4096, other));
                ok!(RCCE_put(at, bytes.raw(), size as i32, other));
                ok!(iRCCE_get(back.raw(), area, 4096, other));
            }
            let mut expected = vec![0x99; 4096];
            expected[offset..offset + size].copy_from_slice(&bytes.get());
            back.holds(&expected, 0, &format!("{size} bytes at {offset}"))?;
            back.fill(0x11);
            ok!(iRCCE_get(back.raw(), at, size as i32, other));
            back.holds(&bytes.get(), 0x11, "those bytes alone")?;
            blank.free();
            bytes.free();
        }
    }
    ok!(iRCCE_put(area, back.raw(), 0, other));
    ok!(iRCCE_get(back.raw(), area, 0, other));
    barrier()
}

fn gory_checks(ctx: &Ctx) -> Verdict {
    let me = ctx.rank as i32;
    let area = c!(RCCE_malloc_gory(1024));
    ensure!(!area.is_null(), "RCCE_malloc(1024) gave nothing");
    let mine = Bytes::of(&content(ctx, 1, 512));
    let (target, source) = (RCCE_ERROR_TARGET, RCCE_ERROR_SOURCE);
    for size in [1, 31, 33, 100, -32, -1] {
        gives! { RCCE_ERROR_MESSAGE_LENGTH:
            RCCE_put_gory(area, mine.raw(), size, 1);
            RCCE_get_gory(mine.raw(), area, size, 1);
        }
    }
    for wrong in [2, 48, -1, i32::MIN, i32::MAX] {
        gives!(RCCE_ERROR_ID, RCCE_put_gory(area, mine.raw(), 32, wrong));
        gives!(RCCE_ERROR_ID, RCCE_get_gory(mine.raw(), area, 32, wrong));
    }
    let begin = area.wrapping_sub(area as usize % 32);
    let (end, before) = (begin.wrapping_add(MPB), begin.wrapping_sub(64));
    for wrong in [null_mut(), mine.raw(), end, before] {
        gives!(target, RCCE_put_gory(wrong, mine.raw(), 32, 1));
        gives!(source, RCCE_get_gory(mine.raw(), wrong, 32, 1));
    }
    // The last two calls have null instead of memory of the program.
    gives! {
        RCCE_put_gory(end.wrapping_sub(32), mine.raw(), 64, 1) => target;
        RCCE_get_gory(mine.raw(), end.wrapping_sub(32), 64, 1) => source;
        RCCE_put_gory(area.wrapping_add(4), mine.raw(), 32, 1) => RCCE_ERROR_ALIGNMENT;
        RCCE_get_gory(mine.raw(), area.wrapping_add(31), 32, 1) => RCCE_ERROR_ALIGNMENT;
        RCCE_put_gory(area, area.wrapping_add(32), 64, me) => RCCE_ERROR_DATA_OVERLAP;
        RCCE_get_gory(area, area.wrapping_add(32), 64, me) => RCCE_ERROR_DATA_OVERLAP;
        RCCE_put_gory(area, null_mut(), 32, 1) => source;
        RCCE_get_gory(null_mut(), area, 32, 1) => target;
    }
    // Valid calls still work.
    barrier()?;
    let peer = 1 - me;
    ok!(RCCE_put_gory(area, mine.raw(), 512, peer));
    ok!(RCCE_put_gory(area.wrapping_add(512), area, 0, me));
    let back = Bytes::filled(512, 0);
    ok!(RCCE_get_gory(back.raw(), area, 512, peer));
    back.holds(&mine.get(), 0, "what was put")?;
    barrier()
}

fn to_itself(ctx: &Ctx) -> Verdict {
    let area = c!(iRCCE_malloc(2048));
    let pattern = content(ctx, 3, 1024);
    let bytes = Bytes::of(&pattern);
    let back = Bytes::filled(1024, 0);
    ok!(iRCCE_put(area, bytes.raw(), 1024, 0));
    ok!(iRCCE_get(back.raw(), area, 1024, 0));
    back.holds(&pattern, 0, "the own MPB")?;
    for shift in [1usize, 32, 500] {
        ok!(RCCE_put(area, bytes.raw(), 1024, 0));
        ok!(RCCE_put(area.wrapping_add(shift), area, 1024, 0));
        ok!(RCCE_get(back.raw(), area.wrapping_add(shift), 1024, 0));
        back.holds(&pattern, 0, "moved up by a put")?;
        ok!(iRCCE_get(area, area.wrapping_add(shift), 1024, 0));
        ok!(RCCE_get(back.raw(), area, 1024, 0));
        back.holds(&pattern, 0, "moved down by a get")?;
    }
    Ok(())
}

fn memcpy(ctx: &Ctx) -> Verdict {
    for len in LENGTHS {
        let from = Bytes::of(&content(ctx, len as u64, len));
        let to = Bytes::filled(len + 64, 0x44);
        let (dest, src) = (to.raw().cast(), from.raw().cast_const().cast());
        ensure_eq!(c!(iRCCE_memcpy_put(dest, src, len)), dest, "put");
        to.holds(&from.get(), 0x44, "iRCCE_memcpy_put")?;
        to.fill(0x45);
        ensure_eq!(c!(iRCCE_memcpy_get(dest, src, len)), dest, "get");
        to.holds(&from.get(), 0x45, "iRCCE_memcpy_get")?;
        from.free();
        to.free();
    }
    Ok(())
}

fn gory_malloc(_: &Ctx) -> Verdict {
    for wrong in [0, 1, 31, 33, 8193, 8224, usize::MAX, usize::MAX - 31] {
        ensure!(c!(RCCE_malloc_gory(wrong)).is_null(), "{wrong} bytes");
    }
    let all = c!(RCCE_malloc_gory(MPB));
    ensure!(!all.is_null(), "the whole MPB was not given");
    ensure!(c!(RCCE_malloc_gory(32)).is_null(), "a line of a full MPB");
    c!(RCCE_free(all));
    let places: Vec<_> = (0..4).map(|_| c!(RCCE_malloc_gory(MPB / 4))).collect();
    ensure!(places.iter().all(|place| !place.is_null()), "no quarter");
    for (i, a) in places.iter().enumerate() {
        ensure!((*a as usize).is_multiple_of(LINE), "part {i} of a line");
        for b in &places[..i] {
            ensure!((*a as usize).abs_diff(*b as usize) >= MPB / 4, "overlap");
        }
    }
    for nth in [1, 3, 2, 0] {
        c!(RCCE_free(places[nth]));
        // A second free, and a free of a place that was not allocated.
        c!(RCCE_free(places[nth]));
        c!(RCCE_free(places[nth].wrapping_add(32)));
    }
    c!(RCCE_free(null_mut()));
    let mut chunk = 7;
    let whole = c!(RCCE_malloc_request_gory(3 * MPB, &mut chunk));
    ensure!(!whole.is_null() && chunk == 3 * MPB / 4, "{chunk}");
    let rest = c!(RCCE_malloc_request_gory(MPB, &mut chunk));
    ensure!(!rest.is_null() && chunk == MPB / 4, "the rest: {chunk}");
    let none = c!(RCCE_malloc_request_gory(MPB, &mut chunk));
    ensure!(none.is_null() && chunk == 0, "a full MPB: {chunk}");
    c!(RCCE_free(rest));
    let line = c!(RCCE_malloc_request_gory(1, null_mut()));
    ensure!(!line.is_null(), "without a place for the size");
    Ok(())
}

fn simple_malloc(_: &Ctx) -> Verdict {
    for wrong in [0, 1, 31, 33, 64, 96, MPB, usize::MAX] {
        ensure!(c!(RCCE_malloc(wrong)).is_null(), "{wrong} bytes were given");
    }
    let lines: Vec<_> = (0..MPB / LINE).map(|_| c!(RCCE_malloc(LINE))).collect();
    ensure!(lines.iter().all(|line| !line.is_null()), "under 256 lines");
    ensure!(c!(RCCE_malloc(LINE)).is_null(), "more than 256 lines");
    c!(RCCE_free(lines[17]));
    ensure_eq!(c!(RCCE_malloc(LINE)), lines[17], "the line that was freed");
    c!(RCCE_free(lines[200]));
    let mut chunk = 7;
    let line = c!(RCCE_malloc_request(MPB, &mut chunk));
    ensure_eq!(line, lines[200], "a line by request");
    equal!(chunk, LINE, "its size")
}

fn ircce_malloc(_: &Ctx) -> Verdict {
    for wrong in [0, 1, 31, 33, 1000, 8193, MPB + 32, usize::MAX] {
        ensure!(c!(iRCCE_malloc(wrong)).is_null(), "{wrong} bytes");
    }
    let (a, b) = (c!(iRCCE_malloc(96)), c!(iRCCE_malloc(MPB - 96)));
    ensure!(!a.is_null() && !b.is_null(), "96 bytes, the rest");
    ensure!(c!(iRCCE_malloc(32)).is_null(), "beyond the MPB");
    Ok(())
}

fn same_place(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    let mut random = ctx.random(1);
    // One seed gives the same allocations on all UEs.
    for _ in 0..random.below(8) {
        c!(iRCCE_malloc(LINE * (1 + random.below(4) as usize)));
    }
    let len = 256;
    let areas: Vec<_> = (0..n).map(|_| c!(iRCCE_malloc(len))).collect();
    let flags = (0..n).map(|_| new_flag()).collect::<Result<Vec<_>, _>>()?;
    for round in 0..20u64 {
        let of =
            |from: i32, to: i32| content(ctx, round << 8 | (from as u64) << 4 | to as u64, len);
        for to in (0..n).filter(|to| *to != me) {
            let bytes = Bytes::of(&of(me, to));
            ok!(iRCCE_put(areas[me as usize], bytes.raw(), len as i32, to));
            c!(RCCE_fence());
            ok!(iRCCE_flag_write(&mut { flags[me as usize] }, 1, to));
            bytes.free();
        }
        for from in (0..n).filter(|from| *from != me) {
            let flag = flags[from as usize];
            ok!(iRCCE_wait_until(flag, 1));
            let back = Bytes::filled(len, 0);
            ok!(iRCCE_get(back.raw(), areas[from as usize], len as i32, me));
            back.ends_as(&of(from, me), 0, &format!("round {round}, from UE {from}"))?;
            ok!(iRCCE_flag_write(&mut { flag }, 0, me));
        }
        barrier()?;
    }
    Ok(())
}
