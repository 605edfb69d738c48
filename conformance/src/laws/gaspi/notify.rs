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
        "exactly one of several threads that reset a notification gets its value";
    threads_share_the_work with_segment(8): "notify.threads.share", "§8.3.3", 2, [gaspi_notify_waitsome, gaspi_notify_reset] + ordering,
        "threads that wait for one range and reset what they find take every notification exactly once";
    none_is_lost: "notify.none-lost", "§8.3.2", 4, [gaspi_notify, gaspi_notify_waitsome, gaspi_notify_reset] + ordering,
        "no notification of all ranks over all queues is lost, doubled or changed";
    ping_pong: "notify.ping-pong", "§8.3.2", 2, [gaspi_notify, gaspi_notify_waitsome, gaspi_notify_reset] + ordering,
        "two ranks notify each other in turn, many times, with one id";
    by_segment: "notify.segments", "§8.3.2", 2, [gaspi_notify],
        "notifications belong to a segment: the same id of another one is another notification";
}

fn values_arrive(ctx: &Ctx) -> Verdict {
    let num = got!(gaspi_notification_num());
    segment(0, 8)?;
    let ids = [0, num - 1, 1, num / 2, 15, 16];
    let values = [1, u32::MAX, 0x8000_0000, 0x0102_0304, 7, 8];
    for (id, value) in ids.into_iter().zip(values) {
        ok!(gaspi_notify(0, right(ctx), id, value, (id % 8) as u8, LONG));
        ensure_eq!(notified(0, id)?, value, "the value of notification {id}");
    }
    barrier()?;
    none_notified(0, 0, num)?;
    for id in [0, 2, 14, 17, num - 2, num - 1] {
        let value = got!(gaspi_notify_reset(0, id));
        ensure_eq!(value, 0, "notification {id}, which no rank set");
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
    let set = [9, 20, 31, 40, 100];
    for_all(set, |id| waited(0, id, 1, LONG))?;
    let (begins, ends) = ([0, 10, 21, 32, 41, 101], [9, 20, 31, 40, 100, 65_536]);
    for (begin, end) in begins.into_iter().zip(ends) {
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
        let first = waited(0, begin, num, TEST)?;
        let right = possible.contains(&first);
        ensure!(right, "{begin}+{num} gave {first}, not one of {possible:?}");
    }
    let value = got!(gaspi_notify_reset(0, 20));
    ensure_eq!(value, 21, "the value of 20");
    let first = waited(0, 10, 30, TEST)?;
    ensure_eq!(first, 31, "the range 10+30 after 20 was reset");
    barrier()
}

fn empty_range(_: &Ctx) -> Verdict {
    segment(0, 8)?;
    for_all([TEST, 1, BLOCK], |timeout| waited(0, 5, 0, timeout))
}

fn whole_range(ctx: &Ctx) -> Verdict {
    let num = got!(gaspi_notification_num());
    segment(0, 8)?;
    for id in [num - 1, 0, num / 3] {
        ok!(gaspi_notify(0, right(ctx), id, 5, 0, LONG));
        ensure_eq!(waited(0, 0, num, BLOCK)?, id, "the notification that came");
        got!(gaspi_notify_reset(0, id));
        barrier()?;
    }
    flush(0)
}

fn timeouts(_: &Ctx) -> Verdict {
    segment(0, 8)?;
    for_all(0..100, |_| none_notified(0, 0, 100))?;
    for timeout in [1, 30, 120] {
        let start = Instant::now();
        let code = waitsome(0, 0, 100, timeout);
        ensure_eq!(code, TIMEOUT, "a wait of {timeout} ms");
        let took = ms(start);
        // A timeout may be late (§2.3), but not early.
        ensure!(
            took + 1 >= timeout,
            "a timeout of {timeout} ms after {took} ms"
        );
    }
    Ok(())
}

fn waiting_leaves_it(ctx: &Ctx) -> Verdict {
    segment(0, 8)?;
    ok!(gaspi_notify(0, right(ctx), 3, 42, 0, LONG));
    for _ in 0..3 {
        ensure_eq!(waited(0, 0, 10, LONG)?, 3, "the notification that came");
    }
    ensure_eq!(got!(gaspi_notify_reset(0, 3)), 42, "the first reset");
    ensure_eq!(got!(gaspi_notify_reset(0, 3)), 0, "the second reset");
    ensure_eq!(waitsome(0, 0, 10, 1), TIMEOUT, "a wait after the resets");
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
            waited(0, 0, 1, BLOCK)?;
            notified(0, 0)?;
            ok!(gaspi_notify(0, 0, 1, 1, 0, LONG));
        }
    }
    barrier()
}

fn wakes_by_each_form(ctx: &Ctx, _: Memory) -> Verdict {
    let list = post::Parts::new(0, 0, &[(0, 16, 8), (0, 32, 8)]);
    if ctx.rank == 0 {
        pause(80);
        ok!(gaspi_write_notify(0, 0, 1, 0, 8, 8, 0, 1, 0, LONG));
        pause(80);
        list.write_notify(1, 0, 1, 1).ok(0, LONG)?;
        flush(0)?;
    } else {
        ensure_eq!(waited(0, 0, 2, BLOCK)?, 0, "the first notification");
        waited(0, 1, 1, BLOCK)?;
    }
    barrier()?;
    // One thread waits, another thread reads.
    threads(2, |i| {
        if i == 0 {
            waited(0, 5, 1, BLOCK).map(drop)
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
                let first = waited(0, [7, 0, 5, 7, 0][i], 10, LONG)?;
                equal!(first, 7, "the result of thread {i}")
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
                let mut value = 0;
                let waited = waitsome(0, 0, 1, LONG);
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
                    let before = taken[id as usize].fetch_add(1, Ordering::AcqRel);
                    ensure_eq!(before, 0, "how often {id} was taken before");
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
        let (id, value) = taken(0, 0, count)?;
        ensure_eq!(value, 1000 + id, "the value of notification {id}");
        let again = std::mem::replace(&mut seen[id as usize], true);
        ensure!(!again, "notification {id} came twice");
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
    for_all(0..3, |id| segment(id, 8))?;
    ok!(gaspi_notify(1, right(ctx), 4, 11, 0, LONG));
    ensure_eq!(notified(1, 4)?, 11, "the notification of segment 1");
    barrier()?;
    for_all(0..3, |id| none_notified(id, 0, 100))?;
    barrier()
}
