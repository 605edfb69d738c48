//! Resumable looks into peers' directories. A deadline may end a look; the next call continues the peer's request.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::world::World;
use unipgas_base::{Deadline, Error, Result};
use unipgas_engine::op::Remote;
use unipgas_engine::pending_fetch::PendingFetch;

/// The object of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Sought {
    /// The region entry with this number.
    Region(usize),
    /// A member's arena.
    Group([u64; 2]),
    /// The incarnation that the owner knows.
    Welcome,
}

/// Rank, incarnation, and object of the look.
type Key = (u32, u32, Sought);

/// A look: the results of its reads, in order. A resumed look starts again, and gets the earlier results.
#[derive(Default)]
pub(super) struct Look {
    read: Vec<Box<[u8]>>,
    at: usize,
    open: Option<PendingFetch>,
}

impl Look {
    fn again(&mut self, into: &mut [u8]) -> bool {
        let known = self.read.get(self.at).filter(|it| it.len() == into.len());
        if let Some(known) = known {
            into.copy_from_slice(known);
            self.at += 1;
        }
        known.is_some()
    }

    fn note(&mut self, bytes: &[u8]) {
        self.read.truncate(self.at);
        self.read.push(bytes.into());
        self.at += 1;
    }
}

/// Looks that have timed out.
#[derive(Default)]
pub(super) struct Looks(Mutex<HashMap<Key, Look>>);

impl World {
    /// Looks into the directory of `rank` by `run`. With the same input, `run` must make the same reads. `None` and [`Error::StaleRegion`]: the object is not
    /// listed. Errors: [`Error::Timeout`]: call again.
    pub(super) fn look_for<T>(
        &self,
        rank: u32,
        sought: Sought,
        deadline: Deadline,
        mut run: impl FnMut(&mut Look, Deadline) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let key = (rank, self.incarnation_of(rank), sought);
        let kept = self.looks.0.lock().remove(&key);
        let mut old = kept.is_some();
        let (mut look, mut deadline) = (kept.unwrap_or_default(), deadline);
        loop {
            match run(&mut look, deadline) {
                Err(Error::Timeout) => {
                    look.at = 0;
                    self.looks.0.lock().insert(key, look);
                    return Err(Error::Timeout);
                }
                // An old negative result proves nothing, so the look starts again. The rank has just answered, and gets time for another answer.
                Ok(None) | Err(Error::StaleRegion) if old => {
                    (look, old) = (Look::default(), false);
                    deadline = deadline.not_before(super::world::ANSWER);
                }
                found => return found,
            }
        }
    }

    /// Reads at `offset` of the directory of `rank`.
    pub(super) fn read(
        &self,
        look: &mut Look,
        rank: u32,
        offset: usize,
        into: &mut [u8],
        deadline: Deadline,
    ) -> Result<()> {
        let region = &self.peer_directory(rank, deadline)?;
        let at = Remote { region, offset };
        let kept = !self.service().ends_in_calls(at);
        if kept && look.again(into) {
            return Ok(());
        }
        let (service, engine) = (self.service(), self.engine());
        self.while_they_live(rank, deadline, |until| {
            service.read_on(engine, &mut look.open, at, into, until)
        })
        .map_err(|e| self.gone_or_stale(rank, e))?;
        if kept {
            look.note(into);
        }
        Ok(())
    }

    /// Drops the unfinished looks at an earlier process of `rank`.
    pub(super) fn forget_looks(&self, rank: u32) {
        self.looks.0.lock().retain(|(of, ..), _| *of != rank);
    }
}
