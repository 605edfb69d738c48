//! Flags, plain and tagged; §4.4, §9.9.

use super::kit::*;

laws! {
    ping_pong: "flag.ping-pong", "RCCE RCCE_flag_write", 2,
        [RCCE_flag_alloc, RCCE_flag_write, RCCE_wait_until, RCCE_flag_read, RCCE_flag_free],
        "a flag that one UE writes at another is what that one waits for and reads";
    gory: "flag.gory", "RCCE GORY", 2, [RCCE_flag_write_gory, RCCE_wait_until_gory, RCCE_flag_read],
        "gory flags are set or unset; other values give ERROR_FLAG_STATUS_UNDEFINED";
    any_value: "flag.any-value", "RCCE RCCE_flag_write", 2, [iRCCE_flag_alloc, iRCCE_flag_write, iRCCE_flag_read, iRCCE_wait_until],
        "a flag of the simple interface holds any int";
    every_ue: "flag.every-ue", "RCCE RCCE_flag_write", 4, [RCCE_flag_write, RCCE_flag_read],
        "a flag is a word at every UE: writing it at one leaves the others as they are, and reading tells them apart";
    as_many: "flag.as-many", "RCCE RCCE_flag_alloc", 1, [RCCE_flag_alloc, iRCCE_flag_alloc, iRCCE_flag_alloc_tagged, RCCE_flag_free],
        "there are flags as long as the MPB has lines; freed ones are given again";
    after_put: "flag.after-put", "RCCE RCCE_flag_write", 2, [RCCE_put, RCCE_flag_write, RCCE_wait_until] + ordering,
        "data put before a flag is there when the flag is seen";
    test: "flag.test", "RCCE RCCE_wait_until", 2, [RCCE_test_flag, iRCCE_test_flag, RCCE_probe, RCCE_wait_until, RCCE_flag_write],
        "RCCE_test_flag says 1 exactly where RCCE_wait_until would not wait; wrong flags and null results are errors";
    tag_comes_along: "tagged.comes-along", "iRCCE 2.0 §4.4", 2,
        [iRCCE_flag_alloc_tagged, iRCCE_flag_write_tagged, iRCCE_wait_tagged, iRCCE_flag_write] + ordering,
        "the tag is there when the flag is seen: never an older one, never half of one";
    tag_length: "tagged.length", "iRCCE 2.0 §4.4", 2,
        [iRCCE_flag_write_tagged, iRCCE_wait_tagged, iRCCE_flag_read_tagged, iRCCE_test_tagged, iRCCE_get_max_tagged_len],
        "a tag has up to 28 bytes; a longer one is cut, on either side, and nothing beyond is written";
    tag_test: "tagged.test", "iRCCE 2.0 §9.9", 2, [iRCCE_test_tagged, iRCCE_wait_tagged, iRCCE_flag_write_tagged],
        "iRCCE_test_tagged says 1 exactly where iRCCE_wait_tagged would not wait, and only then copies the tag";
    tag_read: "tagged.read", "iRCCE 2.0 §9.9", 2, [iRCCE_flag_read_tagged, iRCCE_flag_write_tagged],
        "value and tag of any UE's flag can be read; a null tag is left out";
    plain_write: "tagged.plain-flags", "iRCCE 2.0 §4.4", 2, [iRCCE_flag_write, iRCCE_flag_write_tagged, RCCE_flag_alloc, RCCE_flag_read],
        "plain and tagged flags are the same: either can be used with the calls for the other";
}

fn set(flag: *mut i32, value: i32, id: i32) -> Verdict {
    done!(RCCE_flag_write(&mut { flag }, value, id))
}

fn ping_pong(ctx: &Ctx) -> Verdict {
    let (me, other) = (ctx.rank as i32, 1 - ctx.rank as i32);
    let flag = new_flag()?;
    ensure_eq!(flag_at(flag, me)?, 0, "a new flag");
    barrier()?;
    for _ in 0..200 {
        if me == 0 {
            set(flag, 1, other)?;
        }
        ok!(RCCE_wait_until(flag, 1));
        ensure_eq!(flag_at(flag, me)?, 1, "the flag after the wait");
        set(flag, 0, me)?;
        if me == 1 {
            set(flag, 1, other)?;
        }
    }
    barrier()?;
    done!(RCCE_flag_free(&mut { flag }))
}

fn test(ctx: &Ctx) -> Verdict {
    let (me, other) = (ctx.rank as i32, 1 - ctx.rank as i32);
    let flag = new_flag()?;
    let mut found = -7;
    ok!(RCCE_test_flag(flag, 0, &mut found));
    ensure_eq!(found, 1, "a new flag is unset");
    ok!(iRCCE_test_flag(flag, 1, &mut found));
    ensure_eq!(found, 0, "a new flag is set");
    barrier()?;
    if me == 0 {
        set(flag, 1, other)?;
        ok!(RCCE_wait_until(flag, 2));
        ok!(iRCCE_test_flag(flag, 2, &mut found));
        ensure_eq!(found, 1, "the flag after the wait");
    } else {
        while found != 1 {
            ok!(RCCE_test_flag(flag, 1, &mut found));
        }
        ok!(RCCE_wait_until(flag, 1));
        ensure_eq!(c!(RCCE_probe(flag)), 1, "RCCE_probe of a flag that is set");
        set(flag, 2, other)?;
    }
    gives! {
        RCCE_test_flag(null_mut(), 1, &mut found) => RCCE_ERROR_FLAG_NOT_ALLOCATED;
        RCCE_test_flag(flag, 1, null_mut()) => RCCE_ERROR_VAL_UNDEFINED;
        iRCCE_test_flag(&mut 0, 1, &mut found) => RCCE_ERROR_FLAG_NOT_IN_COMM_BUFFER;
    }
    barrier()
}

fn gory(ctx: &Ctx) -> Verdict {
    let (me, other) = (ctx.rank as i32, 1 - ctx.rank as i32);
    let flag = new_flag()?;
    for wrong in [2, -1, i32::MAX, i32::MIN] {
        gives! { RCCE_ERROR_FLAG_STATUS_UNDEFINED:
            RCCE_flag_write_gory(&mut { flag }, wrong, other);
            RCCE_wait_until_gory(flag, wrong);
        }
    }
    ensure_eq!(flag_at(flag, me)?, 0, "the flag after calls that failed");
    ok!(RCCE_wait_until_gory(flag, 0));
    barrier()?;
    ok!(RCCE_flag_write_gory(&mut { flag }, 1, other));
    ok!(RCCE_wait_until_gory(flag, 1));
    barrier()?;
    ok!(RCCE_flag_write_gory(&mut { flag }, 0, other));
    ok!(RCCE_wait_until_gory(flag, 0));
    barrier()
}

fn any_value(ctx: &Ctx) -> Verdict {
    let (me, other) = (ctx.rank as i32, 1 - ctx.rank as i32);
    let mut flag = null_mut();
    ok!(iRCCE_flag_alloc(&mut flag));
    barrier()?;
    for wanted in [1, 2, -1, 1 << 20, i32::MIN, i32::MAX, 0] {
        ok!(iRCCE_flag_write(&mut flag, wanted, other));
        ok!(iRCCE_wait_until(flag, wanted));
        let mut seen = -7;
        ok!(iRCCE_flag_read(flag, &mut seen, me));
        ensure_eq!(seen, wanted, "the flag's value");
        barrier()?;
    }
    Ok(())
}

fn every_ue(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    let (first, second) = (new_flag()?, new_flag()?);
    barrier()?;
    set(first, me + 10, (me + 1) % n)?;
    barrier()?;
    for id in 0..n {
        ensure_eq!(flag_at(first, id)?, (id + n - 1) % n + 10, "UE {id}'s flag");
        ensure_eq!(flag_at(second, id)?, 0, "UE {id}'s other flag");
    }
    barrier()
}

fn as_many(_: &Ctx) -> Verdict {
    let mut flags = Vec::new();
    for nth in 0..MPB / LINE {
        let mut flag = null_mut();
        match nth % 3 {
            0 => ok!(RCCE_flag_alloc(&mut flag)),
            1 => ok!(iRCCE_flag_alloc(&mut flag)),
            _ => ok!(iRCCE_flag_alloc_tagged(&mut flag)),
        }
        ensure!(!flags.contains(&flag), "flag {nth} was given before");
        flags.push(flag);
    }
    let mut none = flags[0];
    gives!(RCCE_ERROR_FLAG_UNDEFINED, RCCE_flag_alloc(&mut none));
    ensure!(none.is_null(), "a flag that does not exist");
    gives! {
        iRCCE_flag_alloc_tagged(&mut none) => RCCE_ERROR_FLAG_UNDEFINED;
        RCCE_flag_free(&mut flags[100]) => SUCCESS;
        RCCE_flag_free(&mut flags[100].clone()) => RCCE_ERROR_FLAG_UNDEFINED;
    }
    ok!(RCCE_flag_alloc(&mut none));
    equal!(none, flags[100], "the flag that was freed")
}

fn after_put(ctx: &Ctx) -> Verdict {
    let (me, other) = (ctx.rank as i32, 1 - ctx.rank as i32);
    let len = 1024 + ctx.random(2).below(4000) as usize;
    let area = c!(iRCCE_malloc(len.next_multiple_of(LINE)));
    let flag = new_flag()?;
    barrier()?;
    for round in 0..40u64 {
        if (round + u64::from(ctx.rank)).is_multiple_of(2) {
            let bytes = Bytes::of(&content(ctx, round, len));
            ok!(RCCE_put(area, bytes.raw(), len as i32, other));
            set(flag, 1, other)?;
            bytes.free();
        } else {
            ok!(RCCE_wait_until(flag, 1));
            let back = Bytes::filled(len, 0);
            ok!(RCCE_get(back.raw(), area, len as i32, me));
            back.ends_as(&content(ctx, round, len), 0, &format!("round {round}"))?;
            set(flag, 0, me)?;
        }
    }
    barrier()
}

fn new_tagged() -> Result<*mut i32, String> {
    let flag = got!(iRCCE_flag_alloc_tagged());
    ensure!(!flag.is_null(), "iRCCE_flag_alloc_tagged gave no flag");
    Ok(flag)
}

fn tag_comes_along(ctx: &Ctx) -> Verdict {
    let (me, other) = (ctx.rank as i32, 1 - ctx.rank as i32);
    let flag = new_tagged()?;
    barrier()?;
    let got = Bytes::filled(28, 0);
    for round in 0..100u64 {
        if (round + u64::from(ctx.rank)).is_multiple_of(2) {
            let sent = Bytes::of(&content(ctx, round, 28));
            write_tagged(flag, 1, other, &sent, 28)?;
            sent.free();
        } else {
            ok!(iRCCE_wait_tagged(flag, 1, tag(&got), 28));
            let what = format!("the tag of round {round}");
            got.holds(&content(ctx, round, 28), 0, &what)?;
            ok!(iRCCE_flag_write(&mut { flag }, 0, me));
        }
    }
    barrier()
}

fn tag_length(ctx: &Ctx) -> Verdict {
    let other = 1 - ctx.rank as i32;
    ensure_eq!(c!(iRCCE_get_max_tagged_len()), 28, "the longest tag");
    let (before, flag, after) = (new_flag()?, new_tagged()?, new_flag()?);
    set(before, 0x55, ctx.rank as i32)?;
    set(after, 0x66, ctx.rank as i32)?;
    barrier()?;
    for (value, len) in (1..).zip([0, 1, 4, 27, 28, 29, 64, i32::MAX, -1]) {
        let sent = content(ctx, value as u64, 64);
        let bytes = Bytes::of(&sent);
        write_tagged(flag, value, other, &bytes, len)?;
        let there = len.clamp(0, 28) as usize;
        for wanted in [0, 5, 28, 40, -3] {
            let room = Bytes::filled(64, 0x77);
            ok!(iRCCE_wait_tagged(flag, value, tag(&room), wanted));
            let most = wanted.clamp(0, 28) as usize;
            let (seen, both) = (room.get(), there.min(most));
            let what = format!("a tag of {len} read as {wanted}");
            ensure_eq!(seen[..both], sent[..both], "{what}");
            ensure!(seen[most..].iter().all(|b| *b == 0x77), "behind {what}");
        }
        ok!(iRCCE_wait_tagged(flag, value, null_mut(), 28));
        ensure_eq!(flag_at(before, other)?, 0x55, "the flag before it");
        ensure_eq!(flag_at(after, other)?, 0x66, "the flag behind it");
        barrier()?;
    }
    Ok(())
}

fn tag_test(ctx: &Ctx) -> Verdict {
    let (me, other) = (ctx.rank as i32, 1 - ctx.rank as i32);
    let flag = new_tagged()?;
    let room = Bytes::filled(28, 0x31);
    for wrong in [1, 2, -1] {
        let result = test_tag(flag, wrong, tag(&room))?;
        ensure_eq!(result, 0, "a flag that is unset has the value {wrong}");
        room.holds(&[], 0x31, "the tag of a test that says 0")?;
    }
    barrier()?;
    let sent = Bytes::of(&content(ctx, 9, 28));
    write_tagged(flag, 1, other, &sent, 28)?;
    until("a test that says 1", || {
        Ok(test_tag(flag, 1, tag(&room))? == 1)
    })?;
    room.holds(&sent.get(), 0, "the tag")?;
    ok!(iRCCE_wait_tagged(flag, 1, null_mut(), 0));
    ok!(iRCCE_flag_write(&mut { flag }, 0, me));
    let result = test_tag(flag, 1, null_mut())?;
    ensure_eq!(result, 0, "a flag that has been unset");
    barrier()
}

fn tag_read(ctx: &Ctx) -> Verdict {
    let (me, n) = place(ctx);
    let flag = new_tagged()?;
    let of = |id: i32| content(ctx, id as u64, 28);
    barrier()?;
    let mine = Bytes::of(&of(me));
    write_tagged(flag, me + 3, me, &mine, 28)?;
    barrier()?;
    for id in 0..n {
        let room = Bytes::filled(40, 0x12);
        let mut value = -7;
        ok!(iRCCE_flag_read_tagged(flag, &mut value, id, tag(&room), 28));
        ensure_eq!(value, id + 3, "the value at UE {id}");
        room.holds(&of(id), 0x12, "the tag")?;
        ok!(iRCCE_flag_read_tagged(flag, &mut value, id, null_mut(), 28));
        ensure_eq!(value, id + 3, "the value alone");
    }
    barrier()
}

fn plain_write(ctx: &Ctx) -> Verdict {
    let (me, other) = (ctx.rank as i32, 1 - ctx.rank as i32);
    let (plain, tagged) = (new_flag()?, new_tagged()?);
    barrier()?;
    let sent = Bytes::of(&content(ctx, 4, 28));
    write_tagged(plain, 1, other, &sent, 28)?;
    let room = Bytes::filled(28, 0);
    ok!(iRCCE_wait_tagged(plain, 1, tag(&room), 28));
    room.holds(&sent.get(), 0, "the tag of a plain flag")?;
    ok!(iRCCE_flag_write(&mut { tagged }, 1, other));
    ok!(RCCE_wait_until(tagged, 1));
    ensure_eq!(flag_at(tagged, me)?, 1, "a tagged flag");
    barrier()
}
