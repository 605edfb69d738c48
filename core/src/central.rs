//! A barrier in one place: two counters in memory of one rank, at which everybody counts and looks.
//!
//! Barriers use the counters in turn. Who makes one full sets it back to 0, and that is what the others wait for: none can come back to
//! a counter before all have left it, since the barrier between needs them all. A notice follows, for those who sleep, those who cannot
//! look without asking a network, and those who look when the counters have gone with their process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::exclusive::Exclusive;
use crate::op::{Flags, Notice, Remote};
use crate::region::RemoteRegion;
use crate::world::World;
use crate::{Deadline, Endpoint, Error, Result};

/// Where a barrier finds what it needs in the ranks' regions, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Places {
    /// The rank that has the counters.
    pub home: u32,
    /// 8 bytes each, of which the lower four count; 0 at first, and nobody else's.
    pub counters: [usize; 2],
    /// At every rank, a word for the notices; 0 at first.
    pub notice: usize,
}

/// A barrier of all ranks of a world.
pub struct CentralBarrier {
    world: Arc<World>,
    endpoint: Endpoint,
    regions: Arc<[RemoteRegion]>,
    ranks: Box<[u32]>,
    places: Places,
    turn: Exclusive<Turn>,
}

/// How far this process is.
#[derive(Default)]
struct Turn {
    /// Barriers that it has left.
    left: u32,
    /// It has been counted for the next one.
    counted: bool,
}

impl CentralBarrier {
    /// `regions` are of all ranks, by rank. Errors: [`Error::InvalidArgument`] for too few or too many.
    pub fn new(world: &Arc<World>, regions: Arc<[RemoteRegion]>, places: Places) -> Result<Self> {
        if regions.len() != world.size() as usize || places.home >= world.size() {
            return Err(Error::InvalidArgument(
                "a barrier needs a region of every rank".into(),
            ));
        }
        Ok(CentralBarrier {
            endpoint: world.engine().endpoint(u32::MAX)?,
            ranks: (0..world.size()).collect(),
            world: world.clone(),
            regions,
            places,
            turn: Exclusive::new(Turn::default()),
        })
    }

    /// Ends when every rank has called it. `word` is this rank's own, for the notices. Errors: [`Error::Timeout`] (call again to go
    /// on), [`Error::RankDead`], [`Error::Busy`] while another thread is in it.
    #[inline]
    pub fn meet(&self, word: &AtomicU32, deadline: Deadline) -> Result<()> {
        self.turn.with(|turn| {
            let number = turn.left.wrapping_add(1);
            let counter = Remote {
                region: &self.regions[self.places.home as usize],
                offset: self.places.counters[(turn.left % 2) as usize],
            };
            if turn.counted || !self.count(turn, counter, number)? {
                self.wait(counter, word, number, deadline)?;
            }
            *turn = Turn {
                left: number,
                counted: false,
            };
            Ok(())
        })
    }

    /// True: this rank was the last one, and the others may go.
    #[inline]
    fn count(&self, turn: &mut Turn, counter: Remote<'_>, number: u32) -> Result<bool> {
        let before = self.add(counter, 1)?;
        turn.counted = true;
        let n = self.world.size();
        if before as u32 != n - 1 {
            return Ok(false);
        }
        self.add(counter, u64::from(n).wrapping_neg())?;
        for (rank, region) in self.regions.iter().enumerate() {
            if rank as u32 != self.world.rank() {
                let slot = Remote {
                    region,
                    offset: self.places.notice,
                };
                let notice = Notice {
                    slot,
                    value: number,
                };
                // Who has gone has seen the counter, and needs no notice.
                let _ = self.endpoint.notify(notice, Flags::empty(), 0);
            }
        }
        if self.world.engine().asynchronous() {
            self.settle();
        }
        Ok(true)
    }

    #[inline]
    fn add(&self, counter: Remote<'_>, value: u64) -> Result<u64> {
        self.endpoint
            .fetch_add(self.world.engine(), counter, value, Deadline::Never)
            .map_err(|error| match error {
                // The counters go only with their process.
                Error::StaleRegion | Error::PeerDead => Error::RankDead(self.places.home),
                other => other,
            })
    }

    #[inline]
    fn wait(
        &self,
        counter: Remote<'_>,
        word: &AtomicU32,
        number: u32,
        deadline: Deadline,
    ) -> Result<()> {
        let engine = self.world.engine();
        let mapped = self.endpoint.is_direct(counter.region);
        let mut since = None;
        engine.wait_for(
            deadline,
            &mut || self.world.check_ranks(&self.ranks, &mut since),
            || {
                let empty = mapped
                    && self
                        .endpoint
                        .load(engine, counter, Deadline::Never)
                        .is_ok_and(|value| value as u32 == 0);
                (empty || word.load(Ordering::Acquire) == number).then_some(())
            },
        )
    }

    /// Nobody else moves the notices on.
    #[cold]
    fn settle(&self) {
        let drained = self
            .endpoint
            .drain(self.world.engine(), Deadline::Never, &mut || Ok(()));
        if drained.is_err() {
            self.endpoint.purge();
        }
    }
}
