//! A barrier with central counters: two counters in the memory of one rank. All ranks count there, and look there.
//!
//! Barriers use the counters in turn. The last rank resets the counter to 0, and the others wait for that. A rank cannot return to a counter before all have
//! left it: the barrier between needs all ranks. Notices down a tree follow the reset. They serve ranks that sleep, ranks that would look through a network,
//! and ranks that look after the counters have gone with their process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::published::PublishedRegions;
use crate::world::World;
use unipgas_base::exclusive::Exclusive;
use unipgas_base::{Deadline, Error, Result};
use unipgas_engine::Endpoint;
use unipgas_engine::op::{Flags, Notice, Remote};

/// Places of the barrier in the ranks' regions, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct BarrierPlaces {
    /// The rank with the counters.
    pub home: u32,
    /// Two counters of 8 bytes, of which the lower four count. They begin with 0, and have no other user.
    pub counters: [usize; 2],
    /// A word at each rank for the notices. It begins with 0.
    pub notice: usize,
}

/// A barrier of all ranks of a world.
pub struct CentralBarrier {
    world: Arc<World>,
    endpoint: Endpoint,
    regions: Arc<PublishedRegions>,
    ranks: Box<[u32]>,
    places: BarrierPlaces,
    turn: Exclusive<Turn>,
}

/// The progress of this process.
#[derive(Default)]
struct Turn {
    /// Number of barriers that it has left.
    left: u32,
    /// The next barrier has counted it.
    counted: bool,
}

impl CentralBarrier {
    /// `regions` belong to the same world. Errors: [`Error::InvalidArgument`] if the counters' rank does not exist.
    pub fn new(
        world: &Arc<World>,
        regions: Arc<PublishedRegions>,
        places: BarrierPlaces,
    ) -> Result<Self> {
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

    /// Waits until each rank has called it. `word`: this rank's word for the notices. Errors: [`Error::Timeout`] (call again to continue), [`Error::RankDead`],
    /// [`Error::Busy`] while another thread is in it.
    #[inline]
    pub fn meet(&self, word: &AtomicU32, deadline: Deadline) -> Result<()> {
        self.turn.with(|turn| {
            let number = turn.left.wrapping_add(1);
            let counter = self
                .regions
                .get(self.places.home)?
                .at(self.places.counters[(turn.left % 2) as usize]);
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

    /// True: this rank was the last one, and has released the others.
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

    /// The rank with the counters is the root of the tree. A rank that leaves the barrier notifies its children.
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
        // A rank that has gone has seen the counter. It needs no notice.
        if let Ok(region) = self.regions.get(rank) {
            let slot = region.at(self.places.notice);
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
                // The counters live as long as their process.
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

    /// No other thread makes progress for the notices.
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
