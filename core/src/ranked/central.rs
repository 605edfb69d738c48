//! A barrier in one place: two counters in memory of one rank, at which everybody counts and looks.
//!
//! Barriers use the counters in turn. Who makes one full sets it back to 0, and that is what the others wait for: none can come back to
//! a counter before all have left it, since the barrier between needs them all. Notices follow, down a tree, for those who sleep, those who
//! cannot look without asking a network, and those who look when the counters have gone with their process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::exclusive::Exclusive;
use crate::op::{Flags, Notice, Remote};
use crate::published::PublishedRegions;
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
    regions: Arc<PublishedRegions>,
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
    /// `regions` are those of the same world. Errors: [`Error::InvalidArgument`] if the counters have no home in it.
    pub fn new(world: &Arc<World>, regions: Arc<PublishedRegions>, places: Places) -> Result<Self> {
        if places.home >= world.size() {
            return Err(Error::InvalidArgument(
                "a barrier's counters are at one of the ranks".into(),
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
                region: self.regions.get(self.places.home)?,
                offset: self.places.counters[(turn.left % 2) as usize],
            };
            if turn.counted || !self.count(turn, counter, number)? {
                self.wait(counter, word, number, deadline)?;
            }
            self.tell_children(number);
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
        if self.places.home != self.world.rank() {
            self.tell(self.places.home, number);
        }
        Ok(true)
    }

    /// The tree's root is the home; whoever leaves the barrier tells those below.
    #[inline]
    fn tell_children(&self, number: u32) {
        let (n, home) = (self.world.size(), self.places.home);
        let below_home = (self.world.rank() + n - home) % n;
        for child in [2 * below_home + 1, 2 * below_home + 2] {
            if child < n {
                self.tell((child + home) % n, number);
            }
        }
        if self.world.engine().is_driven() {
            self.settle();
        }
    }

    #[inline]
    fn tell(&self, rank: u32, number: u32) {
        // Who has gone has seen the counter, and needs no notice.
        if let Ok(region) = self.regions.get(rank) {
            let slot = Remote {
                region,
                offset: self.places.notice,
            };
            let notice = Notice {
                slot,
                value: number,
            };
            let _ = self.endpoint.notify(notice, Flags::empty(), 0);
        }
    }

    #[inline]
    fn add(&self, counter: Remote<'_>, value: u64) -> Result<u64> {
        self.endpoint
            .fetch_add(self.world.engine(), counter, value)
            .map_err(|error| match error {
                // The counters go only with their process.
                Error::StaleRegion | Error::PeerDead => self.world.dead(self.places.home),
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
        let mapped = counter.region.is_direct();
        let mut since = None;
        engine.wait_for(
            deadline,
            &mut || self.world.check_ranks(&self.ranks, &mut since),
            || {
                let empty = mapped
                    && self
                        .endpoint
                        .load(engine, counter)
                        .is_ok_and(|value| value as u32 == 0);
                (empty || word.load(Ordering::Acquire) == number).then_some(())
            },
        )
    }

    /// Nobody else moves the notices on.
    #[cold]
    fn settle(&self) {
        let drained = self.endpoint.drain(
            self.world.engine(),
            Deadline::Never,
            &mut self.world.watch_lives(),
        );
        if drained.is_err() {
            self.endpoint.purge();
        }
    }
}
