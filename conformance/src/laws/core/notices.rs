//! Notification words, and waiting.

use std::time::{Duration, Instant};

use unipgas_core::{Deadline, Error, Flags};

use super::rank::{NOTES, Says, is, late, on_ranks, out_of_bounds, refused, remote, timed};
use crate::law::{Ctx, Verdict};
use crate::{ensure, ensure_eq};

laws! {
    "core.notice.taken-once", "GASPI 17.1 §8.3.4; unipgas core: Notifications::take", 3,
        "a notice arrives with its value and is taken once" => taken_once;
    "core.notice.range", "GASPI 17.1 §8.3.3; unipgas core: Notifications::wait_some", 2,
        "a wait ends only by a notice of its range, and returns its index" => range;
    "core.notice.delivered", "unipgas core: Flags::DELIVERED", 3,
        "each reader of its word sees a delivered notice" => delivered;
    "core.notice.wakes", "unipgas core: Bell", 2,
        "a notice wakes a sleeping process" => wakes;
    "core.notice.many-wakes", "unipgas core: Bell", 2,
        "no notice to a process that sleeps repeatedly is lost" => many_wakes;
    "core.wait.deadlines", "GASPI 17.1 §3.9; unipgas core: Deadline", 1,
        "a wait ends at its deadline, not before, and looks at least once" => deadlines;
}

fn taken_once(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 64, |rank| {
        let rounds = 50;
        // Each other rank sends one notice to rank 0 in each round, at changing words.
        if ctx.rank == 0 {
            for round in 0..rounds * (ctx.size - 1) {
                let (index, value) = rank
                    .await_note(0, NOTES, late())
                    .says("waiting for a notice")?;
                let sender = index as u32 % (ctx.size - 1) + 1;
                let expected = 1000 * sender + index as u32;
                ensure_eq!(value, expected, "value of notice {index} (the {round}th)");
            }
            for index in 0..NOTES {
                let seen = rank.notes.take(index).says("take")?;
                ensure_eq!(seen, 0, "notice {index}, taken before");
            }
            return Ok(());
        }
        let notes = rank.notes_of(0)?;
        for round in 0..rounds {
            let index = round * (ctx.size - 1) + ctx.rank - 1;
            let slot = remote(&notes, index as usize * 4);
            rank.notify(slot, 1000 * ctx.rank + index).says("notice")?;
        }
        Ok(())
    })
}

/// All ranks but 0 set and read their own word at rank 0, which calls nothing meanwhile.
fn delivered(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 64, |rank| {
        if ctx.rank == 0 {
            return Ok(());
        }
        let notes = rank.notes_of(0)?;
        let slot = remote(&notes, ctx.rank as usize * 4);
        for round in 1..=500u32 {
            let flags = Flags::ORDERED | Flags::DELIVERED;
            let posted = rank.post_notify(slot, round, flags);
            rank.end(posted).says("notice")?;
            let seen = rank.get(slot, 4).says("get")?;
            ensure_eq!(seen, round.to_ne_bytes(), "the word after notice {round}");
        }
        Ok(())
    })
}

fn range(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 64, |rank| {
        let notes = rank.notes_of(rank.other())?;
        for index in [9usize, 20] {
            rank.notify(remote(&notes, index * 4), 5).says("notice")?;
        }
        ctx.sync();
        for deadline in [Deadline::Now, Deadline::after(Duration::from_millis(20))] {
            let outside = rank.await_note(10, 10, deadline);
            refused(outside, is(Error::Timeout), "wait beside the notices")?;
        }
        for (begin, num, expected) in [(9, 1, 9), (0, NOTES, 20)] {
            let (index, value) = rank
                .await_note(begin, num, Deadline::Now)
                .says("wait for what is there")?;
            let seen = (index, value);
            ensure_eq!(seen, (expected, 5), "notice in {begin}..{}", begin + num);
        }
        for (begin, num) in [(NOTES, 1), (0, NOTES + 1), (usize::MAX, 2), (1, usize::MAX)] {
            let result = rank.await_note(begin, num, Deadline::Now).map(drop);
            refused(
                result,
                out_of_bounds,
                &format!("wait for {num} words from {begin} on"),
            )?;
        }
        Ok(())
    })
}

fn wakes(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 64, |rank| {
        ctx.sync();
        if ctx.rank == 0 {
            std::thread::sleep(Duration::from_millis(200));
            let notes = rank.notes_of(1)?;
            rank.notify(remote(&notes, 12), 5).says("notice")?;
        } else {
            let (index, value) = rank.await_note(0, NOTES, Deadline::Never).says("waiting")?;
            ensure_eq!((index, value), (3, 5), "notice");
        }
        Ok(())
    })
}

fn many_wakes(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 64, |rank| {
        let notes = rank.notes_of(rank.other())?;
        let slot = remote(&notes, 0);
        let mut random = ctx.random(u64::from(ctx.rank));
        for round in 1..=200 {
            let turn = round % 2 == ctx.rank;
            if turn {
                // Around the time after which a waiter goes to sleep.
                std::thread::sleep(Duration::from_micros(random.below(600)));
                rank.notify(slot, round).says("notice")?;
            } else {
                let (_, value) = rank
                    .await_note(0, 1, late())
                    .says(&format!("waiting for notice {round}"))?;
                ensure_eq!(value, round, "notice");
            }
        }
        Ok(())
    })
}

fn deadlines(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 64, |rank| {
        let is_timeout = |error: &Error| *error == Error::Timeout;
        let span = Duration::from_millis(120);
        let (result, took) = timed(|| rank.await_note(0, 4, Deadline::after(span)));
        refused(result, is_timeout, "wait for nothing")?;
        ensure!(took >= span, "a wait of {span:?} ended after {took:?}");
        let (result, took) = timed(|| rank.await_note(0, 4, Deadline::Now));
        refused(result, is_timeout, "look at nothing")?;
        ensure!(took < span, "a look took {took:?}");
        let past = Deadline::At(Instant::now());
        refused(rank.await_note(0, 4, past), is_timeout, "wait until now")?;
        for deadline in [Deadline::Now, Deadline::At(Instant::now()), Deadline::Never] {
            rank.notes.set(rank.engine(), 2, 9).says("set")?;
            let seen = rank
                .await_note(0, 4, deadline)
                .says("wait for what is there")?;
            ensure_eq!(seen, (2, 9), "notice, with {deadline:?}");
        }
        let calls = std::cell::Cell::new(0);
        let stopped = rank.engine().wait(
            Deadline::Never,
            &mut || {
                calls.set(calls.get() + 1);
                if calls.get() == 3 {
                    Err(Error::RankDead(7))
                } else {
                    Ok(())
                }
            },
            || Ok(None::<()>),
        );
        refused(stopped, is(Error::RankDead(7)), "wait whose check fails")
    })
}
