//! A rank is killed during an operation. The others learn of it within two seconds, and none hangs.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use unipgas_core::transport::Life;
use unipgas_core::{Deadline, Error, Flags, Result};

use super::rank::{NOTES, Rank, Says, late, on_ranks, refused, remote, write};
use crate::kit::pause;
use crate::law::{Ctx, Verdict};
use crate::{ensure, ensure_eq};

const CLAUSE: &str = "GASPI 17.1 §3.9, §5.5; unipgas core: Error::RankDead";

laws! {
    "core.death.at-start", CLAUSE, 5 + needs_kill,
        "a start ends when a rank dies before it has joined" => at_start;
    "core.death.in-barrier", CLAUSE, 3 + needs_kill,
        "a barrier ends when a member dies" => in_barrier;
    "core.death.in-all-reduce", CLAUSE, 4 + needs_kill,
        "a reduction ends when a member dies" => in_all_reduce;
    "core.death.in-wait", CLAUSE, 3 + needs_kill,
        "a wait for a notice ends when a rank dies, and later waits once the death has been noted go on" => in_wait;
    "core.death.in-storm", CLAUSE, 3 + needs_kill,
        "notices, puts and atomics to a rank that dies end in errors, and those among the others go on" => in_storm;
    "core.death.in-forming", CLAUSE, 2 + needs_kill,
        "forming a group ends when a member dies" => in_forming;
    "core.death.with-lock", CLAUSE, 2 + needs_kill,
        "a rank can take over a dead rank's lock in a peer's memory" => with_lock;
}

/// The rank that dies.
fn victim(ctx: &Ctx) -> u32 {
    ctx.size - 1
}

fn named(error: &Error, rank: u32) -> bool {
    *error == Error::RankDead(rank)
}

/// The victim dies after some milliseconds.
fn victim_dies_after(ctx: &Ctx, ms: u64) {
    if ctx.rank == victim(ctx) {
        pause(ms);
        ctx.dies();
    }
}

/// `work` ends with the error of the victim's death.
fn ends<T>(ctx: &Ctx, what: &str, work: impl FnOnce() -> Result<T>) -> Verdict {
    refused(work(), |e| named(e, victim(ctx)), what)
}

fn at_start(ctx: &Ctx) -> Verdict {
    if ctx.rank == victim(ctx) {
        ctx.dies();
    }
    ends(ctx, "a start", || Rank::join(ctx, 64))
}

fn in_barrier(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 4096, |rank| {
        let group = rank.group_of_all()?;
        for _ in 0..20 {
            group.barrier(late()).says("barrier")?;
        }
        ctx.sync();
        victim_dies_after(ctx, 50);
        ends(ctx, "barrier", || group.barrier(Deadline::Never))?;
        ends(ctx, "barrier after the death", || {
            group.barrier(Deadline::Never)
        })?;
        let seen = rank.world.lives_now(victim(ctx));
        ensure_eq!(seen, Life::Dead, "life of the dead rank");
        ctx.sync();
        Ok(())
    })
}

fn in_all_reduce(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 4096, |rank| {
        let group = rank.group_of_all()?;
        let mut number = 0u32;
        loop {
            number += 1;
            if ctx.rank == victim(ctx) && number == 50 {
                ctx.dies();
            }
            let mut result = [0; 8];
            match group.all_reduce(&[1; 8], &mut result, &mut |_, _| Ok(()), Deadline::Never) {
                Ok(()) => ensure!(
                    number <= 50,
                    "reduction {number} ended without the dead rank"
                ),
                Err(error) => {
                    ensure!(named(&error, victim(ctx)), "reduction: {error}");
                    ensure!(
                        number >= 49,
                        "reduction {number} ended by {error} before the death"
                    );
                    break;
                }
            }
        }
        // A member that drops the group frees its arena. Other members need the arena until they have noticed the death.
        ctx.sync();
        Ok(())
    })
}

fn in_wait(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 4096, |rank| {
        ctx.sync();
        victim_dies_after(ctx, 100);
        ends(ctx, "wait for a notice", || {
            rank.await_note(0, NOTES, Deadline::Never)
        })?;
        ends(ctx, "second wait", || {
            rank.await_note(3, 1, Deadline::Never)
        })?;
        let lives = rank.world.lives();
        ensure_eq!(lives, [Life::Alive, Life::Alive, Life::Dead], "lives");
        ctx.sync();
        rank.go_on(rank.other(), "among survivors")
    })
}

fn in_storm(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 1 << 20, |rank| {
        let peers: Vec<u32> = (0..ctx.size).filter(|peer| *peer != ctx.rank).collect();
        write(&rank.scratch, 0, &vec![3; 1 << 20]);
        let found: std::result::Result<Vec<_>, String> = peers
            .iter()
            .map(|peer| Ok((rank.data_of(*peer)?, rank.notes_of(*peer)?)))
            .collect();
        let found = found?;
        ctx.sync();
        let start = Instant::now();
        let mut died = false;
        let mut told = false;
        for number in 1u32.. {
            for (peer, (there, notes)) in peers.iter().zip(&found) {
                let result = storm(rank, there, notes, number);
                match result {
                    Ok(()) => {}
                    Err(Error::PeerDead | Error::StaleRegion | Error::RankDead(_))
                        if *peer == victim(ctx) =>
                    {
                        told = true
                    }
                    Err(error) => return Err(format!("operations to rank {peer}: {error}")),
                }
            }
            if ctx.rank == victim(ctx) && start.elapsed() > Duration::from_millis(100) {
                ctx.dies();
            }
            if !died && rank.world.check_anyone().is_err() {
                died = true;
                rank.world.lives();
            }
            if told && died {
                break;
            }
        }
        ctx.sync();
        let _ = rank.drain();
        for word in 0..NOTES {
            rank.notes.take(word).says("take")?;
        }
        ctx.sync();
        rank.go_on(rank.other(), "among survivors")
    })
}

fn storm(
    rank: &Rank<'_>,
    there: &unipgas_core::RemoteRegion,
    notes: &unipgas_core::RemoteRegion,
    number: u32,
) -> Result<()> {
    let at = |offset| remote(there, offset);
    let len = if number.is_multiple_of(8) {
        1 << 19
    } else {
        256
    };
    let result = rank
        .post_put(0, at(4096), len, Flags::empty())
        .and_then(|_| {
            rank.post_notify(
                remote(notes, number as usize % NOTES * 4),
                number,
                Flags::ORDERED,
            )
        })
        .and_then(|_| rank.fetch_add(at(64), 1));
    let drained = rank.endpoint.drain(rank.engine(), late(), &mut || Ok(()));
    if drained.is_err() {
        rank.endpoint.purge();
    }
    result?;
    drained
}

fn in_forming(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 4096, |rank| {
        ctx.sync();
        victim_dies_after(ctx, 50);
        let world = rank.world.clone();
        let mut forming =
            unipgas_core::group::Forming::new(&world, &[0, 1], [1, 2]).says("a group")?;
        ends(ctx, "forming a group", || forming.advance(Deadline::Never))
    })
}

fn with_lock(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 4096, |rank| {
        let there = rank.data_of(0)?;
        let lock = remote(&there, 0);
        if ctx.rank == victim(ctx) {
            let before = rank.compare_swap(lock, 0, 9).says("taking the lock")?;
            ensure_eq!(before, 0, "lock");
            ctx.dies();
        }
        let word = rank.data.word(0).says("lock")?;
        rank.engine()
            .wait(late(), &mut || Ok(()), || {
                Ok((word.load(Ordering::Acquire) == 9).then_some(()))
            })
            .says("waiting until the other has the lock")?;
        ends(ctx, "wait for the lock", || {
            rank.engine()
                .wait(Deadline::Never, &mut || rank.world.check_anyone(), || {
                    Ok((word.load(Ordering::Acquire) == 0).then_some(()))
                })
        })?;
        let seen = rank.compare_swap(lock, 9, 1).says("taking over")?;
        ensure_eq!(seen, 9, "holder");
        Ok(())
    })
}
