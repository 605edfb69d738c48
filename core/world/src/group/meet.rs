//! A barrier of more members than cores. All members count at member 0. The last one releases the others: each directly if they are few, else through member 0
//! and down a tree. So a member of a large group knows at most log n others.

use std::sync::atomic::Ordering;

use super::arena::{COUNTER, RELEASE};
use super::{RankGroup, Walk, is_reached};
use unipgas_base::{AtomicOp, Deadline, Error, Result};
use unipgas_schedule::{FEW, children};

impl RankGroup {
    pub(super) fn meet(&self, walk: &mut Walk, flag: usize, deadline: Deadline) -> Result<()> {
        let (n, number) = (self.size(), walk.number);
        if !walk.met {
            walk.tells = self.count_in(walk, deadline)?.then_some(0);
            walk.met = true;
        }
        // The search for a member may exceed the deadline. The next call continues here.
        if let Some(told) = &mut walk.tells {
            let (all, place) = if n <= FEW { (n, flag) } else { (1, RELEASE) };
            while *told < all {
                // Not its own flag: the notice could arrive after a notice of the next barrier's last member.
                if n > FEW || *told != self.index() {
                    self.signal(*told, place, number, deadline)?;
                }
                *told += 1;
            }
            if n <= FEW {
                return Ok(());
            }
        }
        if n <= FEW {
            return self.await_flag(flag, number, deadline);
        }
        self.await_release(flag, number, deadline)?;
        for child in children(self.index(), n).skip(walk.passed) {
            // A member that has gone has seen the number at member 0.
            if let Err(Error::Timeout) = self.signal(child, flag, number, deadline) {
                return Err(Error::Timeout);
            }
            walk.passed += 1;
        }
        Ok(())
    }

    /// True: this member was the last one.
    fn count_in(&self, walk: &mut Walk, deadline: Deadline) -> Result<bool> {
        let n = u64::from(self.size());
        let counter = self.peer(0, deadline)?.at(COUNTER);
        let engine = self.world.engine();
        if let Some(at) = self.endpoint.fast_path().value(counter) {
            return Ok(at.fetch_add(1, Ordering::AcqRel) % n == n - 1);
        }
        // Each member counts once, also after a timeout.
        let counting = match walk.counting.take() {
            Some(counting) => counting,
            None => self
                .endpoint
                .change(counter, AtomicOp::Sum, 1, 0)
                .map_err(|e| self.blame(0, e))?,
        };
        let mut watch = self.world.watch_lives();
        match counting.value(&self.endpoint, engine, deadline, &mut watch) {
            Ok(before) => Ok(before % n == n - 1),
            Err(Error::Timeout) => {
                walk.counting = Some(counting);
                Err(Error::Timeout)
            }
            Err(error) => Err(self.blame(0, error)),
        }
    }

    /// The own flag wakes sleepers. An awake member that can load the number at member 0 need not wait for the tree.
    fn await_release(&self, flag: usize, number: u32, deadline: Deadline) -> Result<()> {
        let engine = self.world.engine();
        let own = match self.index() {
            0 => self.arena.word(RELEASE)?,
            _ => self.arena.word(flag)?,
        };
        let release = self.peer(0, deadline)?.at(RELEASE);
        let mapped = release.region.is_direct();
        let mut since = None;
        engine.wait_for(deadline, &mut || self.check(&mut since), || {
            let told = is_reached(own.load(Ordering::Acquire), number)
                || mapped
                    && self
                        .endpoint
                        .load(engine, release)
                        .is_ok_and(|seen| is_reached(seen as u32, number));
            if !told {
                self.endpoint.report();
            }
            told.then_some(())
        })
    }
}
