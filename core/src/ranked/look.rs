//! Looks into peers' directories, which a deadline may end before all has been read: the next call goes on with what the peer has been asked for.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::world::World;
use crate::awaited::Awaited;
use crate::op::Remote;
use crate::{Deadline, Error, Result};

/// What is looked for in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Sought {
    /// What is listed under a number.
    Region(usize),
    /// A member's arena.
    Group([u64; 2]),
    /// Which process of a rank the owner knows.
    Welcome,
}

/// Of which process's directory, and what.
type Key = (u32, u32, Sought);

/// A look: what it reads, one after the other. Who goes on with it begins anew, and is given again what has been read.
#[derive(Default)]
pub(super) struct Look {
    read: Vec<Box<[u8]>>,
    at: usize,
    open: Option<Awaited>,
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

/// Looks that have run into their deadlines.
#[derive(Default)]
pub(super) struct Looks(Mutex<HashMap<Key, Look>>);

impl World {
    /// Looks for something in the directory of `rank`, by `run`, which reads the same where it is given the same. `None`, and
    /// [`Error::StaleRegion`]: there is nothing. Errors: [`Error::Timeout`]: call again.
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
                // That it was not there some time ago says nothing. A rank that has just answered gets the time to do so again.
                Ok(None) | Err(Error::StaleRegion) if old => {
                    (look, old) = (Look::default(), false);
                    deadline = deadline.not_before(super::world::ANSWER);
                }
                found => return found,
            }
        }
    }

    /// Reads at `offset` of the directory of `rank`, for a look.
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

    /// What was looked for at the process that `rank` was is of no use any more.
    pub(super) fn forget_looks(&self, rank: u32) {
        self.looks.0.lock().retain(|(of, ..), _| *of != rank);
    }
}
