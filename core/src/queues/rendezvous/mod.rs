//! How processes of one machine find each other, whoever started them: places in a file of the job.
//!
//! A process [joins](Rendezvous::join) the job that its environment [names](JobName::from_env), [takes](Rendezvous::take_place) a
//! place (its rank, or the first that is free) and [publishes](Rendezvous::publish) what others need to reach it; they
//! [find](Rendezvous::find) it by the number of its place, without its help. Places come in groups, and each group has resource
//! words, which processes [claim](Rendezvous::claim).
//!
//! The file is `unipgas-<uid>-<hash of the job's name>` in /dev/shm (or XDG_RUNTIME_DIR, or /tmp), readable for its user alone. The
//! last process that leaves in order removes it. Processes may die at any instruction: their places and resources are free again for
//! whoever wants them, what others read stays whole, and the next process that joins any job removes the files that nobody
//! is attached to.
//!
//! # Fork
//! Place and claims are the parent's. In a child made by `fork`, a handler closes the file, whose locks parent and child would
//! share: the child does not keep the job alive, every change through the inherited [`Rendezvous`] is an error there, and its drop
//! changes nothing. The child may join by itself. Children that come about without fork handlers (`vfork`, `posix_spawn`, a bare
//! `clone`) keep the file open until they exec or end. Should the parent die meanwhile, its place is free at once all the same; the
//! file and its properties stay until the child is gone; and if the parent died in the middle of a change, others wait
//! for the child before their next change.

mod file;
#[cfg(all(any(test, fuzzing), not(loom)))]
pub(crate) mod fuzz;
mod name;
mod process;
mod table;

pub(crate) use name::hash;
pub(crate) use name::launcher_above;
pub use name::{JobName, Launcher, NETWORK};
pub use table::{Layout, MAX_PLACES, PROPERTIES_LEN};

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use parking_lot::{Mutex, MutexGuard};

use crate::bundle::{Address, RegionKey};
use crate::held::Held;
use crate::{Error, Result};
use file::Change;
use process::Process;
use table::{Entry, Table};

/// A process that has published, as found by the number of its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Its pid.
    pub pid: u32,
    /// Leads to its process.
    pub address: Address,
    /// The region in which it lists things.
    pub key: RegionKey,
    /// Grows each time that a process takes the place: another generation is another process.
    pub generation: u32,
}

/// A place that this process holds.
#[derive(Debug, Clone, Copy)]
struct Mine {
    place: u32,
    generation: u32,
}

/// One attachment to a job's file. Its methods may be called by any thread.
#[derive(Debug)]
pub struct Rendezvous {
    table: Table,
    held: Held,
    path: PathBuf,
    job: JobName,
    me: Process,
    /// The place, if taken; changed, like everything in the file, under this lock and the file's.
    mine: Mutex<Option<Mine>>,
}

/// Removes the files of this user's jobs that nobody is attached to: for launchers, whose processes may all have been killed.
pub fn sweep() {
    // Where there is no directory, there is no file.
    if let Ok(directory) = file::directory() {
        file::sweep(&directory);
    }
}

/// Where the processes of the job meet that UNIPGAS_JOB names so; a file as long as some of them are there.
///
/// # Errors
/// [`Error::Os`] where no directory can be written.
pub fn place_of(job: &str) -> Result<PathBuf> {
    let name = file::file_name(JobName::by_launcher(job).hash());
    Ok(file::directory()?.join(name))
}

/// Times that the file may vanish under a process that joins.
const ATTEMPTS: usize = 10_000;

impl Rendezvous {
    /// Joins the job's rendezvous, or begins it. Removes the files of this user that dead processes have left, of any job. Waits
    /// only for others that are in the middle of a change.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a layout out of range, or where processes of the same job are attached with another one;
    /// [`Error::Os`] where the file's name is taken by something else, or the system refuses.
    pub fn join(job: &JobName, layout: &Layout) -> Result<Self> {
        Self::join_in(&file::directory()?, job, layout)
    }

    /// [`join`](Self::join) with a directory of the caller's choice; all processes must choose the same.
    ///
    /// # Errors
    /// As for [`join`](Self::join).
    pub fn join_in(directory: &Path, job: &JobName, layout: &Layout) -> Result<Self> {
        layout.len()?;
        let me = Process::this()?;
        file::sweep(directory);
        let path = directory.join(file::file_name(job.hash()));
        for _ in 0..ATTEMPTS {
            let held = Held::new(file::open_or_make(&path)?);
            let file = held
                .get()
                .ok_or_else(|| Error::Os("forked in the middle of a join".into()))?;
            let change = Change::wait(file)?;
            if !file::is_at(file, &path) {
                // Removed by the last one that left, or a sweep.
                continue;
            }
            let table = if change.alone()? {
                let stat = rustix::fs::fstat(file)
                    .map_err(|e| Error::os("cannot measure the rendezvous file", e))?;
                if stat.st_size != 0 {
                    // Of the dead, or nothing of ours.
                    rustix::fs::unlink(&path).map_err(|e| {
                        Error::os(&format!("cannot remove the old {}", path.display()), e)
                    })?;
                    continue;
                }
                Table::make(file, layout).inspect_err(|_| {
                    // The error at hand tells more than this one's.
                    let _ = rustix::fs::unlink(&path);
                })?
            } else {
                Table::find(file, layout).map_err(|error| match error {
                    Error::InvalidArgument(why) => Error::InvalidArgument(format!(
                        "processes of job {job} are at work already, and {why}"
                    )),
                    other => other,
                })?
            };
            if !change.attach()? {
                return Err(Error::Os(format!(
                    "{} is locked by a foreign program",
                    path.display()
                )));
            }
            drop(change);
            return Ok(Rendezvous {
                table,
                held,
                path,
                job: job.clone(),
                me,
                mine: Mutex::new(None),
            });
        }
        Err(Error::Os(format!(
            "{} is removed again and again by another program",
            path.display()
        )))
    }

    /// The job.
    pub fn job(&self) -> &JobName {
        &self.job
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The layout that holds, with the [`properties`](Self::properties) of the first process.
    pub fn layout(&self) -> &Layout {
        &self.table.layout
    }

    /// What the first process of the job has brought in its layout.
    pub fn properties(&self) -> &[u8; PROPERTIES_LEN] {
        &self.table.layout.properties
    }

    /// The descriptor, unless this is the child of a fork.
    fn own(&self) -> Result<BorrowedFd<'_>> {
        self.held
            .get()
            .filter(|_| std::process::id() == self.me.pid)
            .ok_or_else(|| {
                Error::InvalidArgument(format!(
                    "this process was forked after its parent (pid {}) had joined job {}: join again",
                    self.me.pid, self.job
                ))
            })
    }

    /// Keeps out the other threads, then the other processes. The threads' lock is looked at only where no fork can have left
    /// it locked.
    fn change(&self) -> Result<(Change<'_>, MutexGuard<'_, Option<Mine>>, BorrowedFd<'_>)> {
        let fd = self.own()?;
        let mine = self.mine.lock();
        Ok((Change::wait(fd)?, mine, fd))
    }

    fn lives(&self, entry: &Entry) -> Option<Process> {
        entry.holder.filter(|holder| holder.lives(&self.me))
    }

    fn check_place(&self, place: u32) -> Result<()> {
        let places = self.table.layout.places;
        if place >= places {
            return Err(Error::InvalidArgument(format!(
                "job {} has {places} places, no place {place}",
                self.job
            )));
        }
        Ok(())
    }

    /// Takes the wished place, or the first that is free; places of the dead are free. A process has one place for each time that
    /// it has joined: who has one already gets it again.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a place that the job does not have, or that a living process has (its pid is named);
    /// [`Error::Exhausted`] where all are taken, or the file system is full.
    pub fn take_place(&self, wish: Option<u32>) -> Result<u32> {
        if let Some(place) = wish {
            self.check_place(place)?;
        }
        let (_change, mut mine, fd) = self.change()?;
        if let Some(Mine { place, .. }) = *mine {
            return match wish {
                Some(other) if other != place => Err(Error::InvalidArgument(format!(
                    "this process has place {place} of job {} and cannot take {other} too",
                    self.job
                ))),
                _ => Ok(place),
            };
        }
        let place = match wish {
            Some(place) => place,
            None => (0..self.table.layout.places)
                .find(|&place| !self.alive(place))
                .ok_or_else(|| {
                    Error::Exhausted(format!(
                        "places: all {} of job {} are taken",
                        self.table.layout.places, self.job
                    ))
                })?,
        };
        let before = self.table.entry(place);
        if let Some(Process { pid, .. }) = before.and_then(|entry| self.lives(&entry)) {
            return Err(Error::InvalidArgument(format!(
                "place {place} of job {} is taken by process {pid}, which is alive",
                self.job
            )));
        }
        self.table.use_place(fd, place)?;
        let generation = before.map_or(0, |entry| entry.generation).wrapping_add(1);
        self.table.show(
            place,
            &Entry {
                generation,
                holder: Some(self.me),
                published: None,
            },
        );
        *mine = Some(Mine { place, generation });
        Ok(place)
    }

    /// The place that this process has taken.
    pub fn place(&self) -> Option<u32> {
        self.own().ok()?;
        let mine = self.mine.lock();
        mine.map(|mine| mine.place)
    }

    /// Shows others the way to this process: its address, and the key of the region in which it lists things. Again to replace
    /// them.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] without a place.
    pub fn publish(&self, address: &Address, key: &RegionKey) -> Result<()> {
        let (_change, mine, _) = self.change()?;
        let mine = self.placed(*mine)?;
        self.table.show(
            mine.place,
            &Entry {
                generation: mine.generation,
                holder: Some(self.me),
                published: Some((*address.as_bytes(), *key.as_bytes())),
            },
        );
        Ok(())
    }

    fn placed(&self, mine: Option<Mine>) -> Result<Mine> {
        mine.ok_or_else(|| {
            Error::InvalidArgument(format!(
                "this process has no place in job {}: take one first",
                self.job
            ))
        })
    }

    /// What the process at `place` has published; `None` while there is nobody, or nothing published. The process may have died
    /// since: see [`alive`](Self::alive). Some dozen loads; no lock, no system call, no wait for anybody.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a place that the job does not have.
    pub fn find(&self, place: u32) -> Result<Option<Found>> {
        self.check_place(place)?;
        let Some(Entry {
            generation,
            holder: Some(holder),
            published: Some((address, key)),
        }) = self.table.entry(place)
        else {
            return Ok(None);
        };
        Ok(Some(Found {
            pid: holder.pid,
            address: Address::from_bytes(&address)?,
            key: RegionKey::from_bytes(&key)?,
            generation,
        }))
    }

    /// Whether a process that lives has `place`. Reads /proc: not for fast paths.
    pub fn alive(&self, place: u32) -> bool {
        place < self.table.layout.places
            && self
                .table
                .entry(place)
                .is_some_and(|entry| self.lives(&entry).is_some())
    }

    /// Whether the process that has `place` has ended without leaving; then it is counted in [`deaths`](Self::deaths). Reads /proc.
    pub fn has_died(&self, place: u32) -> bool {
        let Some(entry) = self.table.entry(place) else {
            return false;
        };
        let gone =
            entry.published.is_some() && entry.holder.is_some() && self.lives(&entry).is_none();
        if gone {
            self.table.mourn(place, entry.generation);
        }
        gone
    }

    /// How many processes of the job have been found dead, by anybody. One load: who finds it unchanged need not look again at those
    /// that lived when it was last read.
    pub fn deaths(&self) -> u64 {
        self.table.deaths()
    }

    /// Places below this one have been taken at some time; no other ever was.
    pub fn places_used(&self) -> u32 {
        self.table.places_used()
    }

    /// Gives up the place, what was published there, and all resources. The process stays attached and may take another place.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] in the child of a fork.
    pub fn leave(&self) -> Result<()> {
        let (_change, mut mine, _) = self.change()?;
        self.vacate(&mut mine);
        Ok(())
    }

    /// [`leave`](Self::leave)s, and removes the file if nobody else is attached to the job: for programs that end without dropping
    /// what they have.
    pub fn end(&self) {
        // In the child of a fork nothing is ours but the mapping.
        let Ok((change, mut mine, file)) = self.change() else {
            return;
        };
        self.vacate(&mut mine);
        // A file that cannot be removed is left to the next sweep.
        if change.alone() == Ok(true) && file::is_at(file, &self.path) {
            let _ = rustix::fs::unlink(&self.path);
        }
        // Or else whoever ends next, before this process is gone, would not be alone, and the file would stay.
        change.detach();
    }

    /// Under the lock. Resources need no visit: they are of a generation of the place that has ended.
    fn vacate(&self, mine: &mut Option<Mine>) {
        if let Some(Mine { place, generation }) = mine.take() {
            self.table.show(
                place,
                &Entry {
                    generation,
                    holder: None,
                    published: None,
                },
            );
        }
    }

    /// Whose a resource is by the last words: of a process that may have died since.
    fn holder(&self, group: u32, index: u32) -> Option<(u32, Entry)> {
        let (place, generation) = self.table.claimed(group, index)?;
        let entry = self.table.entry(place)?;
        (entry.generation == generation && entry.holder.is_some()).then_some((place, entry))
    }

    fn check_resource(&self, group: u32, index: u32) -> Result<()> {
        let layout = &self.table.layout;
        if group >= layout.groups() || index >= layout.words_per_group {
            return Err(Error::InvalidArgument(format!(
                "job {} has {} groups of {} resource words, no word {index} of group {group}",
                self.job,
                layout.groups(),
                layout.words_per_group
            )));
        }
        Ok(())
    }

    /// Claims the first of the candidates, words of `group`, that is free; resources of the dead are free. `None` where none is.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] without a place, or for a word that the job does not have; [`Error::Exhausted`] where the file
    /// system is full.
    pub fn claim(
        &self,
        group: u32,
        candidates: impl IntoIterator<Item = u32>,
    ) -> Result<Option<u32>> {
        Ok(self
            .claim_many(group, 1, candidates)?
            .and_then(|claimed| claimed.first().copied()))
    }

    /// Claims the first `count` of the candidates that are free, or none if fewer are. A candidate counts once.
    ///
    /// # Errors
    /// As for [`claim`](Self::claim).
    pub fn claim_many(
        &self,
        group: u32,
        count: usize,
        candidates: impl IntoIterator<Item = u32>,
    ) -> Result<Option<Vec<u32>>> {
        // The caller's iterator may do anything: not under the locks.
        let candidates: Vec<u32> = candidates.into_iter().collect();
        for &index in &candidates {
            self.check_resource(group, index)?;
        }
        let (_change, mine, fd) = self.change()?;
        let mine = self.placed(*mine)?;
        // Whose life has been looked into, as that takes a system call.
        let mut known: Vec<(u32, bool)> = vec![(mine.place, true)];
        let mut free = |index: u32| {
            let Some((place, entry)) = self.holder(group, index) else {
                return true;
            };
            let lives = known.iter().find(|(other, _)| *other == place);
            !lives.map(|(_, lives)| *lives).unwrap_or_else(|| {
                let lives = self.lives(&entry).is_some();
                known.push((place, lives));
                lives
            })
        };
        let mut chosen: Vec<u32> = Vec::new();
        for index in candidates {
            if chosen.len() == count {
                break;
            }
            if !chosen.contains(&index) && free(index) {
                chosen.push(index);
            }
        }
        if chosen.len() < count {
            return Ok(None);
        }
        if count > 0 {
            self.table.use_group(fd, group)?;
        }
        for &index in &chosen {
            self.table
                .claim(group, index, Some((mine.place, mine.generation)));
        }
        Ok(Some(chosen))
    }

    /// Gives a resource back.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where this process has not claimed it.
    pub fn release(&self, group: u32, index: u32) -> Result<()> {
        self.check_resource(group, index)?;
        let (_change, mine, _) = self.change()?;
        let mine = mine.map(|mine| (mine.place, mine.generation));
        if mine.is_none() || self.table.claimed(group, index) != mine {
            return Err(Error::InvalidArgument(format!(
                "resource word {index} of group {group} of job {} is not this process's",
                self.job
            )));
        }
        self.table.claim(group, index, None);
        Ok(())
    }

    /// The place that has claimed a resource; `None` for one that is free, or that the job does not have. Its process may have died
    /// since: see [`alive`](Self::alive). Loads only.
    pub fn owner(&self, group: u32, index: u32) -> Option<u32> {
        self.check_resource(group, index).ok()?;
        self.holder(group, index).map(|(place, _)| place)
    }

    /// How many of the words of `group` the process at `place` has claimed. Loads only.
    pub fn count_owned(&self, group: u32, place: u32) -> usize {
        (0..self.table.layout.words_per_group)
            .filter(|&index| self.owner(group, index) == Some(place))
            .count()
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        // In the child of a fork nothing is ours but the mapping.
        let Ok((change, mut mine, file)) = self.change() else {
            return;
        };
        self.vacate(&mut mine);
        // A file that cannot be removed is left to the next sweep.
        if change.alone() == Ok(true) && file::is_at(file, &self.path) {
            let _ = rustix::fs::unlink(&self.path);
        }
        change.detach();
    }
}
