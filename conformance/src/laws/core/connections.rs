//! A rank connects only to the ranks that it communicates with.

use std::time::Duration;

use unipgas_core::transport::Life;
use unipgas_core::{Deadline, Error};

use super::rank::{Rank, Says, late, on_ranks, refused, remote, write};
use crate::law::{Ctx, Verdict};
use crate::stall::Looks;
use crate::{ensure, ensure_eq};

const CLAUSE: &str = "unipgas core: World::connections";

laws! {
    "core.connections.of-48", CLAUSE, 48,
        "a start makes no connection; collectives of n ranks connect each rank to about log n others, an operation to its target" => few;
    "core.connections.first-by-threads", CLAUSE, 2 + ordering,
        "threads that make the first connection to a rank at the same time share it" => first_by_threads;
    "core.connections.to-one-that-left", "unipgas core: World::connect, Error::RankDead", 3,
        "the first operation to a rank that has left fails; the other ranks go on" => to_one_that_left;
}

fn few(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 64, |rank| {
        let connections = || rank.world.connections();
        ensure_eq!(connections(), 0, "connections after the start");
        let log = ctx.size.next_power_of_two().trailing_zeros();
        let group = rank.group_of_all()?;
        for round in 0..3 {
            group.barrier(late()).says(&format!("barrier {round}"))?;
        }
        let of_barriers = connections();
        // Circuits of gates have their own neighbours. Networks suggest shapes with more neighbours, for fewer rounds.
        let most = match rank.world.engine().gates() {
            Some(_) => 3 * log.max(1),
            None => log + 1,
        };
        ensure!(
            of_barriers <= most,
            "{of_barriers} connections for barriers of {} ranks",
            ctx.size
        );
        let mut sum = [0; 8];
        let mine = u64::from(ctx.rank + 1).to_ne_bytes();
        let mut add = |held: &mut [u8], other: &[u8]| {
            let both = [&*held, other].map(|v| u64::from_ne_bytes(v.try_into().expect("8 bytes")));
            held.copy_from_slice(&(both[0] + both[1]).to_ne_bytes());
            Ok(())
        };
        group
            .all_reduce(&mine, &mut sum, &mut add, late())
            .says("reduction")?;
        let n = u64::from(ctx.size);
        ensure_eq!(u64::from_ne_bytes(sum), n * (n + 1) / 2, "sum");
        let mut text = if ctx.rank == 0 { *b"tell all" } else { [0; 8] };
        group.broadcast(&mut text, 0, late()).says("broadcast")?;
        ensure_eq!(&text, b"tell all", "broadcast");
        let of_collectives = connections();
        ensure!(
            of_collectives <= most + log + 1,
            "{of_collectives} connections for collectives of {} ranks",
            ctx.size
        );
        let target = (ctx.rank + ctx.size / 2 + 5) % ctx.size;
        put_to(rank, target)?;
        ensure!(
            connections() <= of_collectives + 1,
            "a put has connected {} ranks",
            connections() - of_collectives
        );
        Ok(())
    })
}

fn put_to(rank: &Rank<'_>, target: u32) -> Verdict {
    let region = rank.data_of(target)?;
    let at = remote(&region, 0);
    rank.put(b"here I am", at).says("put")
}

fn first_by_threads(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 64, |rank| {
        ensure_eq!(rank.world.connections(), 0, "connections after the start");
        write(&rank.scratch, 0, &[7; 64]);
        let ready = std::sync::Barrier::new(4);
        let found: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        ready.wait();
                        let region = rank.data_of(rank.other())?;
                        rank.world.connect(rank.other()).says("connect")?;
                        Ok::<_, String>(region.len())
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .collect()
        });
        for len in found {
            ensure_eq!(len?, 64, "bytes of the region that a thread has found");
        }
        ensure_eq!(rank.world.connections(), 1, "connections");
        put_to(rank, rank.other())
    })
}

/// Repeats the request while it times out.
fn at_last(ask: impl Fn() -> unipgas_core::Result<()>) -> unipgas_core::Result<()> {
    let mut looks = Looks::for_the("answer");
    loop {
        match ask() {
            Err(Error::Timeout) => looks.pause(Duration::from_millis(1)),
            answer => return answer,
        }
    }
}

fn to_one_that_left(ctx: &Ctx) -> Verdict {
    if ctx.rank == 2 {
        on_ranks(ctx, 64, |_| Ok(()))?;
        // The process remains, the rank has left.
        ctx.sync();
        ctx.sync();
        return Ok(());
    }
    on_ranks(ctx, 64, |rank| {
        ctx.sync();
        ctx.sync();
        ensure_eq!(rank.world.connections(), 0, "connections so far");
        let gone = |error: &Error| *error == Error::RankDead(2);
        for _ in 0..3 {
            refused(rank.world.connect(2), gone, "a connection")?;
            let call = rank.world.call();
            let import = || rank.world.import(2, 1, &call, Deadline::Now).map(drop);
            refused(at_last(import), gone, "an import")?;
            let group = || rank.world.find_group(2, [1, 1], Deadline::Now).map(drop);
            refused(at_last(group), gone, "a look for a group")?;
        }
        ensure!(
            rank.world.lives_now(2) == Life::Left,
            "rank 2 is {:?} and has not left",
            rank.world.lives_now(2)
        );
        ensure_eq!(rank.world.connections(), 0, "connections afterwards");
        put_to(rank, 1 - ctx.rank)
    })
}
