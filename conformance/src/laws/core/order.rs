//! Order of operations.

use std::sync::atomic::Ordering;
use std::time::Duration;

use unipgas_core::{AtomicOp, AtomicType, Flags};

use super::law;
use super::rank::{
    NOTES, Rank, Says, bytes_of, dawdle, late, on_ranks, other_than, read, remote, update, write,
};
use crate::law::{Ctx, Law, Verdict};
use crate::stall::Looks;
use crate::{ensure, ensure_eq};

laws! {
    "core.notice.after-data", "unipgas core: Channel::put_notify", 2 + ordering,
        "a notice never overtakes the data of its own operation" => after_own_data;
    "core.notice.not-overtaking", "GASPI 17.1 §8.3.2; unipgas core: Flags::ORDERED", 2 + ordering,
        "an ordered notice is visible after all earlier puts of its endpoint" => not_overtaking;
    "core.put.ordered", "unipgas core: Flags::ORDERED", 2 + ordering,
        "ordered puts to one word are seen in their order, and the last one stays" => ordered_puts;
    "core.atomic.ordered", "unipgas core: Flags::ORDERED", 2 + ordering,
        "an ordered atomic is visible after all earlier puts of its endpoint" => ordered_atomic;
    "core.put.inline", "unipgas core: Flags::INLINE", 2 + ordering,
        "the source of an inline put may be changed at once" => inline;
    "core.drain.complete", "GASPI 17.1 §8.2.3; unipgas core: Endpoint::drain", 2 + ordering,
        "after a drain nothing is pending, all is visible, and sources may be reused" => drained;
    "core.get-notify.after-data", "GASPI 17.1 §8.4.4; unipgas core: Endpoint::get_notify", 2 + ordering,
        "the notice of a get comes after the data of all its parts" => get_notify;
}

const SLOT: usize = 8192;
const PUTS: usize = 12;
const LEN: usize = SLOT * (PUTS + 4);
const ROUNDS: u32 = 6;

fn len_of(ctx: &Ctx, salt: u64) -> usize {
    const LENS: [u64; 4] = [9, 65, 1025, SLOT as u64 + 1];
    let mut random = ctx.random(salt);
    let most = LENS[random.below(4) as usize];
    random.below(most) as usize
}

/// The ranks send to each other in rounds. `send` posts; `receive` waits and checks.
fn rounds(
    rank: &Rank<'_>,
    send: impl Fn(u32) -> Verdict,
    receive: impl Fn(u32) -> Verdict,
) -> Verdict {
    for round in 0..ROUNDS {
        write(&rank.data, 0, &[0; LEN]);
        rank.ctx.sync();
        send(round)?;
        receive(round)?;
        rank.drain().says("drain")?;
        rank.ctx.sync();
    }
    Ok(())
}

fn salt(round: u32, nth: usize, sender: u32) -> u64 {
    (u64::from(round) * 64 + nth as u64) * 2 + u64::from(sender) + 1
}

fn after_own_data(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, LEN, |rank| {
        let (there, notes) = (rank.data_of(rank.other())?, rank.notes_of(rank.other())?);
        let send = |round| {
            for nth in 0..PUTS {
                let salt = salt(round, nth, ctx.rank);
                let bytes = bytes_of(ctx, salt, len_of(ctx, salt));
                write(&rank.scratch, nth * SLOT, &bytes);
                let local = rank.scratch.local(nth * SLOT, bytes.len()).says("source")?;
                let dst = remote(&there, nth * SLOT);
                let slot = remote(&notes, (nth * 3 % NOTES) * 4);
                // The scratch region does not change before the drain at the end of the round.
                rank.post_put_notify(local, dst, bytes.len(), (slot, nth as u32 + 1))
                    .says("put with notice")?;
            }
            Ok(())
        };
        let receive = |round| {
            for _ in 0..PUTS {
                let (index, value) = rank
                    .await_note(0, 3 * PUTS, late())
                    .says("waiting for a notice")?;
                let nth = value as usize - 1;
                ensure_eq!(index, nth * 3, "place of notice {value}");
                let salt = salt(round, nth, rank.other());
                let expected = bytes_of(ctx, salt, len_of(ctx, salt));
                ensure!(
                    read(&rank.data, nth * SLOT, expected.len()) == expected,
                    "notice {value} of round {round} came before its {} bytes",
                    expected.len()
                );
            }
            Ok(())
        };
        rounds(rank, send, receive)
    })
}

/// Puts of many lengths, then the operation that `announce` posts.
fn puts_then(rank: &Rank<'_>, round: u32, announce: impl Fn() -> Verdict) -> Verdict {
    let there = rank.data_of(rank.other())?;
    let mut random = rank.ctx.random(u64::from(round) + 7777);
    for nth in 0..PUTS {
        let salt = salt(round, nth, rank.ctx.rank);
        let bytes = bytes_of(rank.ctx, salt, len_of(rank.ctx, salt));
        write(&rank.scratch, nth * SLOT, &bytes);
        let dst = remote(&there, nth * SLOT);
        rank.post_put(nth * SLOT, dst, bytes.len(), Flags::empty())
            .says("put")?;
        dawdle(&mut random);
    }
    announce()
}

fn all_is_there(rank: &Rank<'_>, round: u32, what: &str) -> Verdict {
    for nth in 0..PUTS {
        let salt = salt(round, nth, rank.other());
        let expected = bytes_of(rank.ctx, salt, len_of(rank.ctx, salt));
        ensure!(
            read(&rank.data, nth * SLOT, expected.len()) == expected,
            "{what} of round {round} overtook put {nth} of {} bytes",
            expected.len()
        );
    }
    Ok(())
}

fn not_overtaking(ctx: &Ctx) -> Verdict {
    notice_after_puts(ctx, Flags::ORDERED)
}

fn notice_after_puts(ctx: &Ctx, flags: Flags) -> Verdict {
    on_ranks(ctx, LEN, |rank| {
        let notes = rank.notes_of(rank.other())?;
        let slot = remote(&notes, 40);
        let send = |round| {
            puts_then(rank, round, || {
                rank.post_notify(slot, round + 1, flags).says("notice")?;
                // The pause lets the other rank see half-done operations, even on one processor.
                let mut looks = Looks::for_the("the end of what was posted");
                while rank.endpoint.pending() > 0 {
                    rank.endpoint.progress();
                    looks.pause(Duration::from_micros(20));
                }
                Ok(())
            })
        };
        let receive = |round| {
            let (_, value) = rank
                .await_note(10, 1, late())
                .says("waiting for the notice")?;
            ensure_eq!(value, round + 1, "value of the notice");
            all_is_there(rank, round, "the notice")
        };
        rounds(rank, send, receive)
    })
}

/// A law that chaos must break. Tests of the framework check that it does.
pub const BREAKABLE: &[Law] = &[Law {
    ordering: true,
    ..law(
        "selftest.notice-without-order",
        "unipgas core: Flags::ORDERED",
        "does not hold: a notice without order comes after all earlier puts",
        2,
        |ctx| notice_after_puts(ctx, Flags::empty()),
    )
}];

fn ordered_atomic(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, LEN, |rank| {
        let there = rank.data_of(rank.other())?;
        let counter = SLOT * PUTS;
        let send = |round| {
            let operand = 1u64;
            puts_then(rank, round, || {
                let request = update(AtomicOp::Sum, AtomicType::U64, 1, &raw const operand);
                rank.post_atomic(remote(&there, counter), &request, Flags::ORDERED)
                    .says("ordered atomic")
                    .map(drop)
            })
        };
        let receive = |round| {
            let word = rank.data.word(counter).says("counter")?;
            rank.await_some(|| (word.load(Ordering::Acquire) == 1).then_some(()))
                .says("waiting for the atomic")?;
            all_is_there(rank, round, "the ordered atomic")
        };
        rounds(rank, send, receive)
    })
}

fn ordered_puts(ctx: &Ctx) -> Verdict {
    const VALUES: u64 = 60;
    on_ranks(ctx, LEN, |rank| {
        let there = rank.data_of(rank.other())?;
        let dst = remote(&there, 64);
        let send = |_| {
            for value in 1..=VALUES {
                let from = value as usize * 8;
                write(&rank.scratch, from, &value.to_ne_bytes());
                rank.post_put(from, dst, 8, Flags::ORDERED)
                    .says("ordered put")?;
            }
            Ok(())
        };
        let receive = |_| {
            let word = rank.data.word(64).says("word")?;
            let mut last = 0;
            while u64::from(last) < VALUES {
                let next = rank
                    .await_some(|| {
                        Some(word.load(Ordering::Acquire)).filter(|value| *value != last)
                    })
                    .says(&format!("waiting after value {last} of {VALUES}"))?;
                ensure!(next > last, "value {next} came after value {last}");
                last = next;
            }
            Ok(())
        };
        rounds(rank, send, receive)
    })
}

fn inline(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, LEN, |rank| {
        let there = rank.data_of(rank.other())?;
        let send = |round| {
            for nth in 0..PUTS {
                let salt = salt(round, nth, ctx.rank);
                let bytes = bytes_of(ctx, salt, 1 + len_of(ctx, salt) % 64);
                write(&rank.scratch, 0, &bytes);
                let dst = remote(&there, nth * SLOT);
                rank.post_put(0, dst, bytes.len(), Flags::INLINE)
                    .says("inline put")?;
                write(&rank.scratch, 0, &[0xee; 64]);
            }
            rank.drain().says("drain")
        };
        let receive = |round| {
            ctx.sync();
            for nth in 0..PUTS {
                let salt = salt(round, nth, rank.other());
                let expected = bytes_of(ctx, salt, 1 + len_of(ctx, salt) % 64);
                ensure!(
                    read(&rank.data, nth * SLOT, expected.len()) == expected,
                    "inline put {nth} took what came later into its source"
                );
            }
            Ok(())
        };
        rounds(rank, send, receive)
    })
}

fn drained(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, LEN, |rank| {
        let send = |round| {
            puts_then(rank, round, || {
                rank.drain().says("drain")?;
                let seen = rank.endpoint.pending();
                ensure_eq!(seen, 0, "pending operations after a drain");
                write(&rank.scratch, 0, &[0xee; LEN]);
                ctx.sync();
                Ok(())
            })
        };
        let receive = |round| all_is_there(rank, round, "the end of the drain");
        rounds(rank, send, receive)
    })
}

fn get_notify(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, LEN, |rank| {
        let there = rank.data_of(rank.other())?;
        for round in 0..ROUNDS {
            write(&rank.data, 0, &bytes_of(ctx, salt(round, 0, ctx.rank), LEN));
            write(&rank.scratch, 0, &[0; LEN]);
            ctx.sync();
            let theirs = bytes_of(ctx, salt(round, 0, rank.other()), LEN);
            let lens: Vec<usize> = (0..PUTS)
                .map(|nth| len_of(ctx, salt(round, nth, 0)))
                .collect();
            let mut parts = Vec::new();
            for (nth, len) in lens.iter().enumerate() {
                let local = rank.scratch.local(nth * SLOT, *len).says("destination")?;
                parts.push((local, remote(&there, nth * SLOT), *len));
            }
            let word = rank.notes.word(5).says("word")?;
            // SAFETY:
            // - in bounds of the scratch region and of the words, which outlive the endpoint's operations.
            unsafe {
                rank.endpoint
                    .get_notify(rank.engine(), parts.into_iter(), word)
            }
            .says("get with notice")?;
            let (_, value) = rank
                .await_note(5, 1, late())
                .says("waiting for the notice")?;
            ensure_eq!(value, 1, "value of the notice");
            for (nth, len) in lens.into_iter().enumerate() {
                let at = nth * SLOT;
                ensure!(
                    read(&rank.scratch, at, len) == theirs[at..at + len],
                    "the notice came before part {nth} of {len} bytes"
                );
                let beyond = other_than(&rank.scratch, at + len, SLOT.saturating_sub(len), 0);
                ensure_eq!(beyond, None, "first byte changed behind part {nth}");
            }
            rank.drain().says("drain")?;
            ctx.sync();
        }
        Ok(())
    })
}
