//! The barrier with its counters at one rank.

use std::sync::Arc;
use std::time::Duration;

use unipgas_core::central::{BarrierPlaces, CentralBarrier};
use unipgas_core::published::PublishedRegions;
use unipgas_core::{Deadline, Error};

use super::rank::{Rank, Says, dawdle, invalid, late, on_ranks, read, refused};
use crate::kit::until;
use crate::law::{Ctx, Verdict};
use crate::stall::Looks;
use crate::{ensure, ensure_eq};

const CLAUSE: &str = "unipgas core: CentralBarrier::meet";
const NOBODY: &str = "no rank leaves the barrier before all have entered it, for each owner of the counters, which are 0 in between";

laws! {
    "core.central.of-1", CLAUSE, 1, NOBODY => meet;
    "core.central.of-2", CLAUSE, 2 + ordering, NOBODY => meet;
    "core.central.of-3", CLAUSE, 3 + ordering, NOBODY => meet;
    "core.central.of-5", CLAUSE, 5 + ordering, NOBODY => meet;
    "core.central.resumes", CLAUSE, 4 + ordering,
        "a call that runs into its deadline counts once: the next one goes on" => resumes;
    "core.central.busy", CLAUSE, 2,
        "while a thread is in the barrier, another thread gets Busy" => busy;
    "core.central.home", CLAUSE, 2,
        "a barrier with counters at no rank is refused" => home;
}

const ROUNDS: u64 = 12;
/// Offsets in the data of each rank. Ranks announce their progress in the first 512 bytes.
const COUNTERS: [usize; 2] = [1024, 1088];
const NOTICE: usize = 2048;
const NAME: &str = "central";

/// The published data regions of all ranks.
fn regions(rank: &Rank<'_>) -> Result<Arc<PublishedRegions>, String> {
    rank.world
        .publish_region(NAME, &rank.data.key())
        .says("publishing the data")?;
    rank.ctx.sync();
    Ok(Arc::new(PublishedRegions::new(&rank.world, NAME)))
}

fn barrier(rank: &Rank<'_>, home: u32) -> Result<CentralBarrier, String> {
    let places = BarrierPlaces {
        home,
        counters: COUNTERS,
        notice: NOTICE,
    };
    CentralBarrier::new(&rank.world, regions(rank)?, places).says("making the barrier")
}

fn meet(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 4096, |rank| {
        let home = ctx.random(77).below(u64::from(ctx.size)) as u32;
        let barrier = barrier(rank, home)?;
        let word = rank.data.word(NOTICE).says("the word")?;
        let mut random = ctx.random(u64::from(ctx.rank));
        for round in 1..=ROUNDS {
            dawdle(&mut random);
            rank.enter(round)?;
            barrier
                .meet(word, late())
                .says(&format!("barrier {round}"))?;
            rank.all_have_entered(round)?;
            if ctx.rank == home {
                // The next use of this counter needs this rank in the next barrier.
                let counter = COUNTERS[(round as usize - 1) % 2];
                ensure_eq!(read(&rank.data, counter, 8), [0; 8], "the counter");
            }
        }
        Ok(())
    })
}

fn resumes(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 4096, |rank| {
        let barrier = barrier(rank, 0)?;
        let word = rank.data.word(NOTICE).says("the word")?;
        let mut waited = 0;
        let waits = ctx.seed.to_le_bytes();
        let late_one = 1 % ctx.size;
        for round in 1..=ROUNDS {
            // In each round another rank is late.
            if round % u64::from(ctx.size) == u64::from(ctx.rank) {
                std::thread::sleep(Duration::from_millis(3));
            }
            if round == 1 && ctx.rank == late_one {
                let others = (0..ctx.size).filter(|other| *other != ctx.rank);
                until("all others to wait", || {
                    let mut others = others.clone();
                    others.all(|other| ctx.told(other).as_deref() == Some(&waits[..]))
                })?;
            }
            rank.enter(round)?;
            loop {
                let deadline = match waited % 2 {
                    0 => Deadline::Now,
                    _ => Deadline::after(Duration::from_micros(50)),
                };
                match barrier.meet(word, deadline) {
                    Err(Error::Timeout) => {
                        waited += 1;
                        if waited == 1 {
                            ctx.tell(&waits);
                        }
                    }
                    ended => break ended.says(&format!("barrier {round}"))?,
                }
                ensure!(waited < 10_000_000, "barrier {round} never ends");
                std::thread::yield_now();
            }
            rank.all_have_entered(round)?;
        }
        ensure!(
            waited > 0 || ctx.rank == late_one,
            "no call ran into its deadline"
        );
        Ok(())
    })
}

fn busy(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 4096, |rank| {
        let barrier = barrier(rank, 0)?;
        let word = rank.data.word(NOTICE).says("the word")?;
        if ctx.rank == 1 {
            ctx.sync();
            return barrier.meet(word, late()).says("barrier");
        }
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                loop {
                    match barrier.meet(word, late()) {
                        Err(Error::Busy) => std::thread::yield_now(),
                        ended => return ended,
                    }
                }
            });
            // The result is Busy once the other thread is inside. Until then the deadline ends the calls of this thread.
            let mut looks = Looks::new();
            while barrier.meet(word, Deadline::Now) != Err(Error::Busy) {
                looks.again();
            }
            ctx.sync();
            other.join().expect("no panic").says("barrier")
        })
    })
}

fn home(ctx: &Ctx) -> Verdict {
    on_ranks(ctx, 4096, |rank| {
        let regions = regions(rank)?;
        let wrong = invalid;
        for home in [2, u32::MAX] {
            let places = BarrierPlaces {
                home,
                counters: COUNTERS,
                notice: NOTICE,
            };
            let made = CentralBarrier::new(&rank.world, regions.clone(), places);
            refused(made, wrong, "a wrong barrier")?;
        }
        refused(regions.get(2), wrong, "a region of no rank")
    })
}
