//! The known states of the other ranks.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use serde_json::json;

use super::world::{NEWS_OF_DEATH, World};
use unipgas_base::{Deadline, Error, Result, trace, waits};
use unipgas_engine::engine::Connection;
use unipgas_engine::transport::Life;
use unipgas_job::job::RankState;

/// Minimum time between two looks at peers by system calls. It grows with the number of ranks.
const LOOK: Duration = Duration::from_millis(20);
const LOOK_EACH: Duration = Duration::from_micros(100);
const LOOK_LATEST: Duration = Duration::from_millis(500);
/// Time that a wait for a rank continues after the rank has left. Operations from before its leave may be in flight.
const GRACE: Duration = Duration::from_secs(1);
/// Added for each rank of the job. If many ranks share few cores, a barrier passes on notices after the first ranks have left.
const GRACE_EACH: Duration = Duration::from_millis(50);

/// See [`World::some_rank_is_dead`].
const SOME_RANK: u32 = u32::MAX;

pub(super) const HEALTHY: u8 = 0;
const LEFT: u8 = 1;
const DEAD: u8 = 2;

impl World {
    /// Looks at the launcher's reports and at the connected processes. Does nothing if there is no new death and the last look is recent, unless `thoroughly`.
    pub(super) fn look(&self, thoroughly: bool) {
        let deaths = self.job.deaths();
        // The states that are read below are not older than this count.
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
            // Without its launcher no process ends the job. So this process ends, as under mpirun.
            tracing::error!("the launcher has ended: so does this process");
            let _ = rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::TERM,
            );
        }
        // Read before the states: the next look sees later changes.
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
        // The launcher's state is of the current process of the rank.
        let told = match self.check_incarnation(rank) {
            Ok(()) => self.job.bootstrap().state(rank).ok(),
            Err(_) => Some(RankState::Dead),
        };
        let life = match (seen, told) {
            (Life::Dead, _) | (_, Some(RankState::Dead)) => DEAD,
            (Life::Left, _) | (_, Some(RankState::Finalized)) => LEFT,
            _ => HEALTHY,
        };
        // Another thread may have seen the death meanwhile. It is counted once, and stays.
        let alive = |before| (before != DEAD).then_some(life);
        let changed = place.fetch_update(Ordering::AcqRel, Ordering::Acquire, alive);
        if changed.is_ok() && life == DEAD {
            self.deaths.fetch_add(1, Ordering::AcqRel);
            tracing::warn!(rank, "a rank has died");
            trace::happened("a rank has died", json!({ "rank": rank }));
            if let Some(connection) = connection {
                connection.declare_dead();
            }
        }
    }

    /// The known state of a rank.
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

    /// Looks at all ranks now, and returns the state of `rank`.
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
        // A timeout means that the program already knows the death.
        let _ = self.engine.wait_for(soon, &mut || Ok(()), seen);
    }

    /// The states of all ranks, by rank. They include each death that an operation has met. The program knows these deaths now, so they end no further wait for
    /// any rank.
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

    /// Looks at the ranks if the launcher has reported another death. It makes no system call without a report.
    #[inline]
    pub fn look_at_news(&self) {
        if self.job.deaths() != self.deaths_seen.load(Ordering::Relaxed) {
            self.look(false);
        }
    }

    /// Repeats `attempt` until the deadline, and looks at the ranks between. Not each network reports deaths. `attempt` waits for `rank`, and continues after a
    /// timeout. Errors: as `attempt`; [`Error::RankDead`] if the rank has died.
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

    /// For waits that the network ends after a death is [declared](Connection::declare_dead). Not each network reports deaths, so this looks at the ranks. It
    /// returns no error.
    pub fn watch_lives(&self) -> impl FnMut() -> Result<()> {
        || {
            self.look(false);
            Ok(())
        }
    }

    /// For waits that any rank could end. Errors: a rank has died, and [`World::lives`] has not shown it to the program.
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

    /// For waits that any other rank could end. Errors: as [`World::check_anyone`]; all others have left, some time ago. Another process may replace a dead
    /// one, so dead ranks count as company. `since`: as for [`World::check_ranks`].
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

    /// For waits that need each of `ranks`. Errors: a rank has died, or has left some time ago. `since`: time of the first look that found a leave; start with
    /// `None`.
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
