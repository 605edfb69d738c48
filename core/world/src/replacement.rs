//! Replacement of dead processes, as other ranks see it.
//!
//! The library never hides a death. Operations with the rank fail until the program knows the death ([`World::lives`]) and then [welcomes](World::welcome) the
//! new process. A group keeps the processes that have formed it.

use std::sync::atomic::Ordering;
use std::time::Instant;

use serde_json::json;

use super::lives::HEALTHY;
use super::look::Sought;
use super::world::{PeerPlace, World};
use unipgas_base::{Deadline, Error, Result, trace};
use unipgas_engine::directory::incarnation_word;

impl World {
    /// The incarnation of `rank` that this process knows: the number of earlier processes with this rank. For the own rank: the actual number.
    pub fn incarnation_of(&self, rank: u32) -> u32 {
        if rank == self.rank() {
            return self.job().bootstrap().incarnation();
        }
        let known = self.directory().incarnation(rank);
        known.map_or(0, |known| known.load(Ordering::Acquire))
    }

    /// Errors: [`Error::RankDead`]: the process that this one knows as `rank` has died.
    pub(super) fn check_incarnation(&self, rank: u32) -> Result<()> {
        if rank != self.rank() && self.job().bootstrap().died(rank)? > self.incarnation_of(rank) {
            return Err(Error::RankDead(rank));
        }
        Ok(())
    }

    /// Knows the processes that are present when the ranks meet. Earlier processes of the ranks do not count.
    pub(super) fn know_who_is_there(&self) -> Result<()> {
        let bootstrap = self.job().bootstrap();
        self.directory()
            .incarnation(self.rank())?
            .store(bootstrap.incarnation(), Ordering::Release);
        for rank in (0..self.size()).filter(|rank| *rank != self.rank()) {
            let present = bootstrap.present(rank)?;
            if present > 0 && bootstrap.died(rank)? <= present {
                self.know(rank, present)?;
            }
        }
        Ok(())
    }

    /// The incarnation of the new process, if the program knows that the rank was dead.
    fn replacement(&self, rank: u32) -> Option<u32> {
        let bootstrap = self.job().bootstrap();
        let shown = self.shown.get(rank as usize)?.load(Ordering::Acquire);
        let present = bootstrap.present(rank).ok()?;
        let lives = || bootstrap.died(rank).is_ok_and(|died| died <= present);
        (shown && present > self.incarnation_of(rank) && lives()).then_some(present)
    }

    /// Ranks with a new process, after the program has seen the old one's death. The caller drops its data of the old process, and then
    /// [welcomes](World::welcome) the new one.
    pub fn returned(&self) -> Vec<u32> {
        let others = (0..self.size()).filter(|rank| *rank != self.rank());
        others
            .filter(|rank| self.replacement(*rank).is_some())
            .collect()
    }

    /// Whether `rank` is one of the [returned](World::returned).
    pub fn has_returned(&self, rank: u32) -> bool {
        rank != self.rank() && self.replacement(rank).is_some()
    }

    /// Uses the new process as `rank`. Releases the imports from the old one.
    ///
    /// # Errors
    /// [`Error::RankDead`]: `rank` is not, or no longer, one of the [returned](World::returned).
    pub fn welcome(&self, rank: u32) -> Result<()> {
        let incarnation = self.replacement(rank).ok_or(Error::RankDead(rank))?;
        for one in self.forget(rank) {
            self.retire(one, 1);
        }
        self.know(rank, incarnation)
    }

    fn know(&self, rank: u32, incarnation: u32) -> Result<()> {
        let mut place = self.place(rank)?.lock();
        *place = PeerPlace {
            incarnation,
            ..PeerPlace::default()
        };
        self.forget_looks(rank);
        self.directory()
            .incarnation(rank)?
            .store(incarnation, Ordering::Release);
        self.shown[rank as usize].store(false, Ordering::Release);
        self.lives[rank as usize].store(HEALTHY, Ordering::Release);
        // The death is no longer suspected.
        let (suspect, order) = (rank + 1, Ordering::AcqRel);
        let _ = (self.suspect).compare_exchange(suspect, 0, order, Ordering::Relaxed);
        drop(place);
        trace::happened(
            "a process has taken the place of a dead one",
            json!({ "rank": rank }),
        );
        tracing::info!(
            rank,
            incarnation,
            "a process has taken the place of a dead one"
        );
        Ok(())
    }

    /// Waits until `rank` knows this process, if it replaces another one. `rank` must first drop its data of the old process.
    ///
    /// # Errors
    /// [`Error::Timeout`]; [`Error::RankDead`].
    pub fn await_welcome(&self, rank: u32, deadline: Deadline) -> Result<()> {
        let own = self.incarnation_of(self.rank());
        if own == 0 || rank == self.rank() {
            return Ok(());
        }
        let mut since: Option<Instant> = None;
        let at = incarnation_word(self.rank() as usize, self.size() as usize);
        self.engine().wait(
            deadline,
            &mut || self.check_ranks(&[rank], &mut since),
            || {
                self.look_for(rank, Sought::Welcome, deadline, |look, deadline| {
                    let mut known = 0u32;
                    let word = bytemuck::bytes_of_mut(&mut known);
                    self.read(look, rank, at, word, deadline)?;
                    Ok((known >= own).then_some(()))
                })
            },
        )
    }

    /// [`World::check_ranks`] for the processes that had `ranks` with these `incarnations`.
    pub(crate) fn check_processes(
        &self,
        ranks: &[u32],
        incarnations: &[u32],
        since: &mut Option<Instant>,
    ) -> Result<()> {
        self.check_ranks(ranks, since)?;
        match self.first_replaced(ranks, incarnations) {
            Some(rank) => Err(Error::RankDead(rank)),
            None => Ok(()),
        }
    }

    /// A rank with a new process.
    pub(super) fn first_replaced(&self, ranks: &[u32], incarnations: &[u32]) -> Option<u32> {
        let mut pairs = ranks.iter().zip(incarnations);
        let found = pairs.find(|(rank, incarnation)| self.incarnation_of(**rank) != **incarnation);
        found.map(|(rank, _)| *rank)
    }
}
