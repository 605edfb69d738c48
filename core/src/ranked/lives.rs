//! What a process knows of the lives of the others.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use serde_json::json;

use super::world::{NEWS_OF_DEATH, World};
use crate::engine::Connection;
use crate::job::RankState;
use crate::transport::Life;
use crate::{Deadline, Error, Result, trace, waits};

/// How often, at most, the lives of peers are looked at by system calls; more rarely where many look at many.
const LOOK: Duration = Duration::from_millis(20);
const LOOK_EACH: Duration = Duration::from_micros(100);
const LOOK_LATEST: Duration = Duration::from_millis(500);
/// How long a wait for somebody who has left properly goes on: what it did before it left may still be on its way.
const GRACE: Duration = Duration::from_secs(1);
/// Added for each rank of the job: where many ranks share few cores, a barrier still passes on notices after the first ranks have left.
const GRACE_EACH: Duration = Duration::from_millis(50);

/// See [`World::some_rank_is_dead`].
const SOME_RANK: u32 = u32::MAX;

pub(super) const HEALTHY: u8 = 0;
const LEFT: u8 = 1;
const DEAD: u8 = 2;

impl World {
    /// Looks at the lives of the ranks: at what the launcher has seen, and (now and then, or if `thoroughly`) at the processes.
    pub(super) fn look(&self, thoroughly: bool) {
        let deaths = self.job.deaths();
        // The states that are read next are not older than the count.
        fence(Ordering::Acquire);
        let news = self.deaths_seen.swap(deaths, Ordering::AcqRel) != deaths;
        if !news && !thoroughly {
            let Some(mut last) = self.last_look.try_lock() else {
                return;
            };
            let pause = LOOK.max(LOOK_EACH * self.size()).min(LOOK_LATEST);
            if last.elapsed() < pause {
                return;
            }
            *last = Instant::now();
        }
        let bootstrap = self.job.bootstrap();
        bootstrap.look();
        if !bootstrap.launcher_lives() {
            // Without its launcher a job has nobody who ends it: as under mpirun, its processes go too.
            tracing::error!("the launcher has ended: so does this process");
            let _ = rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::TERM,
            );
        }
        // Counted before the states are read: what changes meanwhile is seen the next time.
        let changes = bootstrap.changes();
        let changed = self.changes_seen.load(Ordering::Acquire) != changes;
        for rank in (0..self.size()).filter(|rank| *rank != self.rank()) {
            let connection = self.connection(rank);
            if changed || connection.is_some() {
                self.look_at(rank, connection.as_ref());
            }
        }
        self.changes_seen.store(changes, Ordering::Release);
    }

    fn look_at(&self, rank: u32, connection: Option<&Connection>) {
        let place = &self.lives[rank as usize];
        if place.load(Ordering::Acquire) == DEAD {
            return;
        }
        let seen = connection.map_or(Life::Alive, Connection::life);
        // The state is that of the process that is there now.
        let told = match self.check_incarnation(rank) {
            Ok(()) => self.job.bootstrap().state(rank).ok(),
            Err(_) => Some(RankState::Dead),
        };
        let life = match (seen, told) {
            (Life::Dead, _) | (_, Some(RankState::Dead)) => DEAD,
            (Life::Left, _) | (_, Some(RankState::Finalized)) => LEFT,
            _ => HEALTHY,
        };
        if place.swap(life, Ordering::AcqRel) != DEAD && life == DEAD {
            self.deaths.fetch_add(1, Ordering::AcqRel);
            tracing::warn!(rank, "a rank has died");
            trace::happened("a rank has died", json!({ "rank": rank }));
            if let Some(connection) = connection {
                connection.declare_dead();
            }
        }
    }

    /// What is known of a rank's life.
    pub fn life(&self, rank: u32) -> Life {
        match self
            .lives
            .get(rank as usize)
            .map(|life| life.load(Ordering::Acquire))
        {
            Some(HEALTHY) => Life::Alive,
            Some(LEFT) => Life::Left,
            _ => Life::Dead,
        }
    }

    /// Looks at the life of one rank now.
    pub fn lives_now(&self, rank: u32) -> Life {
        self.look(true);
        self.life(rank)
    }

    /// The error for a rank that the network reports as dead. The next [`World::lives`] shows the death.
    #[cold]
    pub fn dead(&self, rank: u32) -> Error {
        self.suspect.store(rank + 1, Ordering::Release);
        Error::RankDead(rank)
    }

    /// As [`World::dead`], for an error that does not name its rank.
    #[cold]
    pub fn some_rank_is_dead(&self) {
        self.suspect.store(SOME_RANK, Ordering::Release);
    }

    /// Waits, for at most a second, until a look shows the death that an operation has met. A network may report it before the launcher does.
    fn await_suspect(&self) {
        let suspect = self.suspect.swap(0, Ordering::AcqRel);
        if suspect == 0 {
            return;
        }
        let seen = || {
            self.look(true);
            let seen = match suspect {
                SOME_RANK => {
                    let known = self.acknowledged.load(Ordering::Acquire);
                    self.deaths.load(Ordering::Acquire) != known
                }
                next => self.life(next - 1) != Life::Alive,
            };
            seen.then_some(())
        };
        let soon = Deadline::after(NEWS_OF_DEATH);
        // A timeout: the program knows the death already.
        let _ = self.engine.wait_for(soon, &mut || Ok(()), seen);
    }

    /// The lives of all ranks, by rank, with each death that an operation has met. From now on the deaths among them end no wait for "anyone" any more: the
    /// program knows.
    pub fn lives(&self) -> Vec<Life> {
        self.await_suspect();
        self.look(true);
        let known = self.deaths.load(Ordering::Acquire);
        self.acknowledged.store(known, Ordering::Release);
        let told = |rank| {
            let life = self.life(rank);
            if life == Life::Dead {
                self.shown[rank as usize].store(true, Ordering::Release);
            }
            life
        };
        (0..self.size()).map(told).collect()
    }

    /// Looks at the lives of the ranks if the launcher has seen another one die. Asks only what costs nothing.
    #[inline]
    pub fn look_at_news(&self) {
        if self.job.deaths() != self.deaths_seen.load(Ordering::Relaxed) {
            self.look(false);
        }
    }

    /// Repeats `attempt`, which waits for `rank` and goes on where it has timed out, until the deadline, and looks at lives between: not every network tells
    /// of deaths. Errors: those of `attempt`; [`Error::RankDead`] once that has died.
    pub(super) fn while_they_live<T>(
        &self,
        rank: u32,
        deadline: Deadline,
        mut attempt: impl FnMut(Deadline) -> Result<T>,
    ) -> Result<T> {
        let _slices = waits::in_slices(rank);
        loop {
            self.engine.check_ended()?;
            match attempt(deadline.not_after(LOOK_LATEST)) {
                Err(Error::Timeout) if !deadline.expired() => self.look(false),
                end => return end,
            }
            if self.life(rank) == Life::Dead {
                return Err(Error::RankDead(rank));
            }
        }
    }

    /// For waits that the network ends once a death has been [declared](Connection::declare_dead): not every one tells of deaths. Looks, and gives no errors.
    pub fn watch_lives(&self) -> impl FnMut() -> Result<()> {
        || {
            self.look(false);
            Ok(())
        }
    }

    /// For waits that anyone could end: errors if a rank has died and the program has not been told by [`World::lives`].
    pub fn check_anyone(&self) -> Result<()> {
        self.look(false);
        if self.deaths.load(Ordering::Acquire) == self.acknowledged.load(Ordering::Acquire) {
            return Ok(());
        }
        let dead = self
            .lives
            .iter()
            .position(|life| life.load(Ordering::Acquire) == DEAD);
        Err(Error::RankDead(dead.unwrap_or_default() as u32))
    }

    /// For waits that anyone else could end: errors as [`World::check_anyone`], and if all others have left a while ago; another process may take the place
    /// of one that has died. `since`: as for [`World::check_ranks`].
    pub fn check_company(&self, since: &mut Option<Instant>) -> Result<()> {
        self.check_anyone()?;
        let mut others = (0..self.size()).filter(|rank| *rank != self.rank());
        let Some(first) = others.clone().next() else {
            return Ok(());
        };
        if others.any(|rank| self.life(rank) != Life::Left) {
            return Ok(());
        }
        self.check_ranks(&[first], since)
    }

    /// For waits that need each of `ranks`: errors if one has died, or has left a while ago. `since`: when the wait began to
    /// notice (start with `None`).
    pub fn check_ranks(&self, ranks: &[u32], since: &mut Option<Instant>) -> Result<()> {
        waits::needs(ranks);
        self.look(false);
        for rank in ranks {
            match self.life(*rank) {
                Life::Alive => {}
                Life::Dead => return Err(Error::RankDead(*rank)),
                Life::Left => {
                    let grace = GRACE + GRACE_EACH * self.size();
                    if since.get_or_insert_with(Instant::now).elapsed() > grace {
                        return Err(Error::RankDead(*rank));
                    }
                }
            }
        }
        Ok(())
    }
}
