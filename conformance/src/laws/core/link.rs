//! The link between hosts fails during an operation, or the launcher of a host is killed together with its ranks. Every wait for the
//! other side ends, and the ranks of one side continue.

use std::process::Command;

use unipgas_core::transport::Life;
use unipgas_core::{Deadline, Error, Result};

use super::rank::{NOTES, Rank, Says, late, on_ranks, refused, remote};
use crate::ensure_eq;
use crate::kit::{Lose, Sides, until};
use crate::law::{Ctx, Verdict};

const CLAUSE: &str = "GASPI 17.1 §3.9, §5.5; unipgas core: Error::RankDead";

laws! {
    "core.link.barrier", CLAUSE, 4 + needs_cut,
        "a barrier ends when the link to some of its members goes down, and notices between ranks of one host arrive as before" => |ctx| in_barrier(ctx, Sides::cut);
    "core.link.wait", CLAUSE, 4 + needs_cut,
        "a wait for a notice of anyone ends when the link between hosts goes down, and notices between ranks of one host arrive as before" => |ctx| in_wait(ctx, Sides::cut);
    "core.link.storm", CLAUSE, 4 + needs_cut,
        "puts and atomics across a link that goes down end in errors, and between ranks of one host go on" => |ctx| in_storm(ctx, Sides::cut);
    "core.link.launcher.barrier", CLAUSE, 4 + kills_launcher + needs_kill,
        "a barrier ends when the launcher of another host is killed; the ranks of this one go on, and nothing is left behind there" => |ctx| in_barrier(ctx, Sides::kill_launcher);
    "core.link.launcher.wait", CLAUSE, 4 + kills_launcher + needs_kill,
        "a wait for a notice of anyone ends when the launcher of another host is killed; the ranks of this one go on, and what those of the other \
         one had started ends" => with_children;
    "core.link.launcher.storm", CLAUSE, 4 + kills_launcher + needs_kill,
        "puts and atomics end in errors when the launcher of their target's host is killed, and between ranks of one host go on" => |ctx| in_storm(ctx, Sides::kill_launcher);
}

/// `work` ends with the death of a rank of the other side.
fn ends<T>(sides: &Sides, what: &str, work: impl FnOnce() -> Result<T>) -> Verdict {
    let named =
        |error: &Error| matches!(error, Error::RankDead(rank) if sides.lost().contains(rank));
    refused(work(), named, what)
}

/// A rank watches the peers that it has communicated with.
fn know_all(rank: &Rank<'_>) -> Verdict {
    (0..rank.ctx.size).try_for_each(|other| rank.data_of(other).map(drop))
}

/// All lost ranks are known to be dead, and the ranks of this side still communicate.
fn go_on(rank: &Rank<'_>, sides: &Sides) -> Verdict {
    until("all that are lost to be known", || {
        let lives = rank.world.lives();
        sides
            .lost()
            .iter()
            .all(|lost| lives[*lost as usize] == Life::Dead)
    })?;
    let lives = rank.world.lives();
    for here in sides.here() {
        ensure_eq!(
            lives[*here as usize],
            Life::Alive,
            "life of rank {here}, which is on this side"
        );
    }
    // Every wait for an arbitrary notice has ended.
    rank.ctx.sync();
    // Notices go around the ranks of this side.
    let (next, _) = sides.around();
    rank.go_on(next, "on this side of the cut")
}

fn in_barrier(ctx: &Ctx, lose: Lose) -> Verdict {
    let sides = Sides::find(ctx)?;
    on_ranks(ctx, 4096, |rank| {
        know_all(rank)?;
        let group = rank.group_of_all()?;
        for _ in 0..20 {
            group.barrier(late()).says("barrier")?;
        }
        ctx.sync();
        lose(&sides, ctx);
        let barriers = || -> Result<()> {
            loop {
                group.barrier(Deadline::Never)?;
            }
        };
        ends(&sides, "barriers", barriers)?;
        go_on(rank, &sides)
    })
}

fn in_wait(ctx: &Ctx, lose: Lose) -> Verdict {
    let sides = Sides::find(ctx)?;
    on_ranks(ctx, 4096, |rank| {
        know_all(rank)?;
        ctx.sync();
        lose(&sides, ctx);
        ends(&sides, "a wait for a notice", || {
            rank.await_note(0, NOTES, Deadline::Never)
        })?;
        go_on(rank, &sides)
    })
}

/// The wait, while each rank has a child process.
fn with_children(ctx: &Ctx) -> Verdict {
    let child = Command::new("sleep").arg("1000").spawn();
    let mut child = child.map_err(|e| format!("a process of a rank: {e}"))?;
    let verdict = in_wait(ctx, Sides::kill_launcher);
    let ended = child.kill().and_then(|()| child.wait());
    ended.map_err(|e| format!("the end of a process of a rank: {e}"))?;
    verdict
}

fn in_storm(ctx: &Ctx, lose: Lose) -> Verdict {
    let sides = Sides::find(ctx)?;
    on_ranks(ctx, 1 << 16, |rank| {
        let others = (0..ctx.size).filter(|other| *other != ctx.rank);
        let mut there = Vec::new();
        for other in others {
            there.push((other, rank.data_of(other)?));
        }
        ctx.sync();
        lose(&sides, ctx);
        let mut told: Vec<u32> = Vec::new();
        while told.len() < sides.lost().len() {
            for (other, region) in &there {
                if told.contains(other) {
                    continue;
                }
                let at = remote(region, 1024 * ctx.rank as usize);
                let put = rank.put(&[7; 512], at);
                let added = rank.fetch_add(at, 1);
                match put.and(added.map(drop)) {
                    Ok(()) => {}
                    Err(Error::PeerDead | Error::StaleRegion | Error::RankDead(_))
                        if sides.lost().contains(other) =>
                    {
                        told.push(*other);
                    }
                    // The error names another lost rank, detected in this call.
                    Err(Error::RankDead(lost)) if sides.lost().contains(&lost) => {}
                    Err(error) => return Err(format!("operations to rank {other}: {error}")),
                }
                rank.world.lives();
            }
        }
        // Other ranks of this side may still be in their storm.
        ctx.sync();
        let _ = rank.drain();
        ctx.sync();
        go_on(rank, &sides)
    })
}
