//! §8.3: notifications.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::kit::*;

laws! {
    values_arrive: "notify.values", "§8.3.2", 2, [gaspi_notify, gaspi_notify_waitsome, gaspi_notify_reset, gaspi_notification_num],
        "a notification of any id carries its value to that rank, segment and id, and to no other";
    range_is_what_counts: "notify.range", "§8.3.3", 2, [gaspi_notify_waitsome],
        "gaspi_notify_waitsome looks at its range alone, and gives an id of it that is set";
    empty_range: "notify.range-empty", "§8.3.3", 1, [gaspi_notify_waitsome],
        "with notification_num 0 gaspi_notify_waitsome returns at once with success";
    whole_range: "notify.range-whole", "§8.3.3", 2, [gaspi_notify_waitsome, gaspi_notification_num],
        "the range may be all notifications of the segment";
    timeouts: "notify.timeout", "§8.3.3", 1, [gaspi_notify_waitsome],
        "without a notification the result is GASPI_TIMEOUT: after the time given, and at once with GASPI_TEST";
    waiting_leaves_it: "notify.wait-keeps", "§8.3.4", 2, [gaspi_notify_waitsome, gaspi_notify_reset],
        "gaspi_notify_waitsome leaves the value; gaspi_notify_reset gives it once and sets it to zero";
    wakes_a_sleeper with_segment(8): "notify.wakes", "§8.3.3", 2, [gaspi_notify_waitsome, gaspi_notify],
        "a process that has waited long is woken";
    wakes_by_each_form with_segment(64): "notify.wakes.forms", "§8.3.3", 2,
        [gaspi_notify_waitsome, gaspi_write_notify, gaspi_write_list_notify, gaspi_read_notify],
        "notifications of writes and reads wake a process that has waited long, too";
    all_threads_are_told with_segment(8): "notify.threads", "§8.3.3", 2, [gaspi_notify_waitsome],
        "all threads that wait for a notification are notified";
    one_thread_wins with_segment(8): "notify.reset-atomic", "§8.3.4", 2, [gaspi_notify_reset, gaspi_notify_waitsome] + ordering,
        "of several threads that reset a notification one alone gets its value";
    threads_share_the_work with_segment(8): "notify.threads.share", "§8.3.3", 2, [gaspi_notify_waitsome, gaspi_notify_reset] + ordering,
        "threads that wait for one range and reset what they find take every notification exactly once";
    none_is_lost: "notify.none-lost", "§8.3.2", 4, [gaspi_notify, gaspi_notify_waitsome, gaspi_notify_reset] + ordering,
        "of many notifications of all ranks over all queues none is lost, doubled or changed";
    ping_pong: "notify.ping-pong", "§8.3.2", 2, [gaspi_notify, gaspi_notify_waitsome, gaspi_notify_reset] + ordering,
        "two ranks notify each other in turn, many times, with one id";
    by_segment: "notify.segments", "§8.3.2", 2, [gaspi_notify],
        "notifications belong to a segment: the same id of another one is another notification";
}

fn values_arrive(ctx: &Ctx) -> Verdict {
    let num = got!(gaspi_notification_num());
    segment(0, 8)?;
    let cases = [
        (0, 1),
        (num - 1, u32::MAX),
        (1, 0x8000_0000),
        (num / 2, 0x0102_0304),
        (15, 7),
        (16, 8),
    ];
    for (id, value) in cases {
        ok!(gaspi_notify(0, right(ctx), id, value, (id % 8) as u8, LONG));
        ensure_eq!(notified(0, id)?, value, "the value of notification {id}");
    }
    barrier()?;
    none_notified(0, 0, num)?;
    for id in [0, 2, 14, 17, num - 2, num - 1] {
        let mut value = 9;
        ok!(gaspi_notify_reset(0, id, &mut value));
        ensure_eq!(value, 0, "notification {id}, which nobody set");
    }
    barrier()
}

fn range_is_what_counts(ctx: &Ctx) -> Verdict {
    segment(0, 8)?;
    if ctx.rank == 0 {
        for id in [9, 20, 31, 40] {
            ok!(gaspi_notify(0, 1, id, id + 1, 0, LONG));
        }
        ok!(gaspi_notify(0, 1, 100, 1, 0, LONG));
        return barrier();
    }
    for id in [9, 20, 31, 40, 100] {
        let mut first = 0;
        ok!(gaspi_notify_waitsome(0, id, 1, &mut first, LONG));
    }
    let mut first = 77;
    for (begin, end) in [
        (0, 9),
        (10, 20),
        (21, 31),
        (32, 40),
        (41, 100),
        (101, 65_536),
    ] {
        none_notified(0, begin, end - begin)?;
    }
    for (begin, num, possible) in [
        (0, 10, &[9u32] as &[u32]),
        (9, 1, &[9]),
        (9, 11, &[9]),
        (10, 11, &[20]),
        (20, 12, &[20, 31]),
        (21, 20, &[31, 40]),
        (0, 65_536, &[9, 20, 31, 40, 100]),
    ] {
        ok!(gaspi_notify_waitsome(0, begin, num, &mut first, TEST));
        ensure!(
            possible.contains(&first),
            "range {begin}+{num} gave {first}, expected one of {possible:?}"
        );
    }
    let value = got!(gaspi_notify_reset(0, 20));
    ensure_eq!(value, 21, "the value of 20");
    ok!(gaspi_notify_waitsome(0, 10, 30, &mut first, TEST));
    ensure_eq!(first, 31, "the range 10+30 after 20 was reset");
    barrier()
}

fn empty_range(_: &Ctx) -> Verdict {
    segment(0, 8)?;
    let mut first = 0;
    for timeout in [TEST, 1, BLOCK] {
        ok!(gaspi_notify_waitsome(0, 5, 0, &mut first, timeout));
    }
    Ok(())
}

fn whole_range(ctx: &Ctx) -> Verdict {
    let num = got!(gaspi_notification_num());
    segment(0, 8)?;
    for id in [num - 1, 0, num / 3] {
        ok!(gaspi_notify(0, right(ctx), id, 5, 0, LONG));
        let (mut first, mut value) = (0, 0);
        ok!(gaspi_notify_waitsome(0, 0, num, &mut first, BLOCK));
        ensure_eq!(first, id, "the notification that came");
        ok!(gaspi_notify_reset(0, first, &mut value));
        barrier()?;
    }
    flush(0)
}

fn timeouts(_: &Ctx) -> Verdict {
    segment(0, 8)?;
    let mut first = 0;
    for _ in 0..100 {
        none_notified(0, 0, 100)?;
    }
    for timeout in [1, 30, 120] {
        let start = Instant::now();
        gives!(
            GASPI_TIMEOUT,
            gaspi_notify_waitsome(0, 0, 100, &mut first, timeout)
        );
        let took = ms(start);
        // A timeout may be late (§2.3), but not early.
        ensure!(
            took >= timeout.saturating_sub(1),
            "a timeout of {timeout} ms after {took} ms"
        );
    }
    Ok(())
}

fn waiting_leaves_it(ctx: &Ctx) -> Verdict {
    segment(0, 8)?;
    ok!(gaspi_notify(0, right(ctx), 3, 42, 0, LONG));
    let (mut first, mut value) = (0, 0);
    for _ in 0..3 {
        ok!(gaspi_notify_waitsome(0, 0, 10, &mut first, LONG));
        ensure_eq!(first, 3, "the notification that came");
    }
    ok!(gaspi_notify_reset(0, 3, &mut value));
    ensure_eq!(value, 42, "the first reset");
    ok!(gaspi_notify_reset(0, 3, &mut value));
    ensure_eq!(value, 0, "the second reset");
    gives!(
        GASPI_TIMEOUT,
        gaspi_notify_waitsome(0, 0, 10, &mut first, 1)
    );
    barrier()
}

fn wakes_a_sleeper(ctx: &Ctx, _: Memory) -> Verdict {
    for nap in [3, 60, 250] {
        if ctx.rank == 0 {
            pause(nap);
            ok!(gaspi_notify(0, 1, 0, 1, 0, LONG));
            flush(0)?;
            notified(0, 1)?;
        } else {
            let mut first = 0;
            ok!(gaspi_notify_waitsome(0, 0, 1, &mut first, BLOCK));
            notified(0, 0)?;
            ok!(gaspi_notify(0, 0, 1, 1, 0, LONG));
        }
    }
    barrier()
}

fn wakes_by_each_form(ctx: &Ctx, _: Memory) -> Verdict {
    let (ids, zeros, ats, eights) = ([0u8; 2], [0u64; 2], [16u64, 32], [8u64; 2]);
    let (ids, zeros, ats, eights) = (ids.as_ptr(), zeros.as_ptr(), ats.as_ptr(), eights.as_ptr());
    if ctx.rank == 0 {
        pause(80);
        ok!(gaspi_write_notify(0, 0, 1, 0, 8, 8, 0, 1, 0, LONG));
        pause(80);
        post::write_list_notify(2, ids, zeros, 1, ids, ats, eights, 0, 1, 1).ok(0, LONG)?;
        flush(0)?;
    } else {
        let mut first = 9;
        ok!(gaspi_notify_waitsome(0, 0, 2, &mut first, BLOCK));
        ensure_eq!(first, 0, "the first notification");
        ok!(gaspi_notify_waitsome(0, 1, 1, &mut first, BLOCK));
    }
    barrier()?;
    // One thread waits, another thread reads.
    threads(2, |i| {
        if i == 0 {
            let mut first = 9;
            ok!(gaspi_notify_waitsome(0, 5, 1, &mut first, BLOCK));
            Ok(())
        } else {
            pause(80);
            ok!(gaspi_read_notify(0, 40, right(ctx), 0, 0, 8, 5, 1, LONG));
            flush(1)
        }
    })?;
    barrier()
}

fn all_threads_are_told(ctx: &Ctx, _: Memory) -> Verdict {
    for round in 0..3 {
        if ctx.rank == 0 {
            pause([0, 20, 100][round]);
            ok!(gaspi_notify(0, 1, 7, 1, 0, LONG));
            flush(0)?;
        } else {
            threads(5, |i| {
                let mut first = 0;
                let begin = [7, 0, 5, 7, 0][i];
                ok!(gaspi_notify_waitsome(0, begin, 10, &mut first, LONG));
                ensure_eq!(first, 7, "what thread {i} was told");
                Ok(())
            })?;
            notified(0, 7)?;
        }
        barrier()?;
    }
    Ok(())
}

fn one_thread_wins(ctx: &Ctx, _: Memory) -> Verdict {
    let rounds = 60u32;
    if ctx.rank == 0 {
        for round in 1..=rounds {
            ok!(gaspi_notify(0, 1, 0, round, 0, LONG));
            notified(0, 1)?;
        }
        flush(0)?;
    } else {
        let meeting = std::sync::Barrier::new(4);
        let (winners, sum) = (AtomicU32::new(0), AtomicU32::new(0));
        threads(4, |i| {
            for round in 1..=rounds {
                let (mut first, mut value) = (0, 0);
                let waited = c!(gaspi_notify_waitsome(0, 0, 1, &mut first, LONG));
                // All threads have seen the notification before one of them resets it.
                meeting.wait();
                let reset = c!(gaspi_notify_reset(0, 0, &mut value));
                if value != 0 {
                    winners.fetch_add(1, Ordering::Relaxed);
                    sum.fetch_add(value, Ordering::Relaxed);
                }
                meeting.wait();
                ensure!(waited == 0 && reset == 0, "{i}: codes {waited}, {reset}");
                let (winners, sum) = (winners.load(Ordering::Relaxed), sum.load(Ordering::Relaxed));
                ensure_eq!(winners, round, "threads with a value, {round} rounds");
                ensure_eq!(sum, round * (round + 1) / 2, "the sum of the values");
                meeting.wait();
                if i == 0 {
                    ok!(gaspi_notify(0, 0, 1, 1, 0, LONG));
                }
            }
            Ok(())
        })?;
        flush(0)?;
    }
    barrier()
}

fn threads_share_the_work(ctx: &Ctx, _: Memory) -> Verdict {
    let n = 400u32;
    if ctx.rank == 0 {
        let mut random = ctx.random(0);
        for id in 0..n {
            ok!(gaspi_notify(0, 1, id, id + 1, random.below(8) as u8, LONG));
        }
        (0..8).try_for_each(flush)?;
    } else {
        let taken: Vec<AtomicU32> = (0..n).map(|_| AtomicU32::new(0)).collect();
        let left = AtomicU32::new(n);
        threads(3, |_| {
            let mut looks = Looks::new();
            while left.load(Ordering::Acquire) > 0 {
                looks.again();
                let (mut id, mut value) = (0, 0);
                match c!(gaspi_notify_waitsome(0, 0, n, &mut id, 5)) {
                    TIMEOUT => continue,
                    code => ensure_eq!(code, SUCCESS, "gaspi_notify_waitsome"),
                }
                ok!(gaspi_notify_reset(0, id, &mut value));
                if value != 0 {
                    ensure_eq!(value, id + 1, "the value of {id}");
                    ensure_eq!(
                        taken[id as usize].fetch_add(1, Ordering::AcqRel),
                        0,
                        "how often {id} was taken before"
                    );
                    left.fetch_sub(1, Ordering::AcqRel);
                }
            }
            Ok(())
        })?;
    }
    barrier()
}

fn none_is_lost(ctx: &Ctx) -> Verdict {
    let per = 150u32;
    let count = per * ctx.size;
    segment(0, 8)?;
    let mut random = ctx.random(u64::from(ctx.rank));
    for i in 0..per {
        for to in 0..ctx.size {
            let id = ctx.rank * per + i;
            post::notify(0, to as u16, id, 1000 + id).ok(random.below(8) as u8, LONG)?;
        }
    }
    let mut seen = vec![false; count as usize];
    for _ in 0..count {
        let (mut id, mut value) = (0, 0);
        ok!(gaspi_notify_waitsome(0, 0, count, &mut id, LONG));
        ok!(gaspi_notify_reset(0, id, &mut value));
        ensure_eq!(value, 1000 + id, "the value of notification {id}");
        ensure!(
            !std::mem::replace(&mut seen[id as usize], true),
            "notification {id} came twice"
        );
    }
    (0..8).try_for_each(flush)?;
    barrier()?;
    none_notified(0, 0, 65_536)?;
    barrier()
}

fn ping_pong(ctx: &Ctx) -> Verdict {
    segment(0, 8)?;
    for turn in 1..=200u32 {
        if turn % 2 == ctx.rank {
            ok!(gaspi_notify(0, right(ctx), 0, turn, 0, LONG));
        } else {
            ensure_eq!(notified(0, 0)?, turn, "the turn");
        }
    }
    flush(0)?;
    barrier()
}

fn by_segment(ctx: &Ctx) -> Verdict {
    for id in 0..3 {
        segment(id, 8)?;
    }
    ok!(gaspi_notify(1, right(ctx), 4, 11, 0, LONG));
    ensure_eq!(notified(1, 4)?, 11, "the notification of segment 1");
    barrier()?;
    for id in 0..3 {
        none_notified(id, 0, 100)?;
    }
    barrier()
}
