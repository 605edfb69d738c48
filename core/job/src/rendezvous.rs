//! Rendezvous of the processes of one machine, for any launcher: places in a file of the job.
//!
//! A process [joins](Rendezvous::join) the job that its environment [names](JobName::from_env). It [takes](Rendezvous::take_place) a place (its rank, or the
//! first free place), and [publishes](Rendezvous::publish) the data that peers need to reach it. Peers [find](Rendezvous::find) it by its place number, without
//! its help. Places form groups. Each group has resource words, which processes [claim](Rendezvous::claim).
//!
//! The file is `unipgas-<uid>-<hash of the job's name>` in /dev/shm (or XDG_RUNTIME_DIR, or /tmp), readable for its user only. The last process that leaves
//! removes it. If a process dies at any instruction, its place and resources become free, and readers still see consistent data. The next process that joins
//! any job removes files without attached processes.
//!
//! # Fork
//! Place and claims belong to the parent. In a child made by `fork`, a handler closes the file, because parent and child would share its locks. So the child
//! does not keep the job alive. In the child, each change through the inherited [`Rendezvous`] is an error, and its drop has no effect. The child may join by
//! itself. Children made without fork handlers (`vfork`, `posix_spawn`, a bare `clone`) keep the file open until they exec or end. If the parent dies
//! meanwhile, its place is free at once. The file and its properties stay until the child ends. If the parent died during a change, other processes wait for
//! the child before their next change.

mod file;
#[cfg(any(test, fuzzing))]
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

use file::Change;
use process::Process;
use table::{Entry, Published, Table};
use unipgas_base::fork_closed_fd::ForkClosedFd;
use unipgas_base::{Error, Result};
use unipgas_engine::bundle::{Address, RegionKey};

/// A process with published data, found by the number of its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishedProcess {
    /// Its pid.
    pub pid: u32,
    /// Its address.
    pub address: Address,
    /// Key of its directory region.
    pub key: RegionKey,
    /// Increases each time that a process takes the place, so each process has another generation.
    pub generation: u32,
}

/// A place that this process holds.
#[derive(Debug, Clone, Copy)]
struct Mine {
    place: u32,
    generation: u32,
}

/// An attachment to a job's file. Any thread may call its methods.
#[derive(Debug)]
pub struct Rendezvous {
    table: Table,
    fd: ForkClosedFd,
    path: PathBuf,
    job: JobName,
    me: Process,
    /// The place, if taken. Changes of it and of the file need this lock and the file's lock.
    mine: Mutex<Option<Mine>>,
}

/// Removes the files of this user's jobs without attached processes. For launchers: all processes of a job may have been killed.
pub fn sweep() {
    // Without a directory there is no file.
    if let Ok(directory) = file::directory() {
        file::sweep(&directory);
    }
}

/// Path of the rendezvous file of the job with this UNIPGAS_JOB. The file exists while processes of the job are attached.
///
/// # Errors
/// [`Error::Os`] if no directory is writable.
pub fn place_of(job: &str) -> Result<PathBuf> {
    let name = file::file_name(JobName::by_launcher(job).hash());
    Ok(file::directory()?.join(name))
}

/// Limit of retries: the file may be removed while a process joins.
const ATTEMPTS: usize = 10_000;

impl Rendezvous {
    /// Joins the rendezvous of the job, or creates it. Removes the files that dead processes of this user have left, of any job. Waits only for processes that
    /// are changing a file.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the layout is out of range, or attached processes of the job have a different layout; [`Error::Os`] if the file's name is
    /// in use for something else, or the system returns an error.
    pub fn join(job: &JobName, layout: &Layout) -> Result<Self> {
        Self::join_in(&file::directory()?, job, layout)
    }

    /// [`join`](Self::join) with a directory of the caller's choice. All processes must use the same directory.
    ///
    /// # Errors
    /// As for [`join`](Self::join).
    pub fn join_in(directory: &Path, job: &JobName, layout: &Layout) -> Result<Self> {
        layout.len()?;
        let me = Process::this()?;
        file::sweep(directory);
        let path = directory.join(file::file_name(job.hash()));
        for _ in 0..ATTEMPTS {
            let held = ForkClosedFd::new(file::open_or_make(&path)?);
            let file = held
                .get()
                .ok_or_else(|| Error::Os("forked in the middle of a join".into()))?;
            let change = Change::wait(file)?;
            if !file::is_at(file, &path) {
                // The last process that left, or a sweep, has removed it.
                continue;
            }
            let table = if change.alone()? {
                let stat = rustix::fs::fstat(file)
                    .map_err(|e| Error::os("cannot measure the rendezvous file", e))?;
                if stat.st_size != 0 {
                    // Left by dead processes, or not a rendezvous file.
                    rustix::fs::unlink(&path).map_err(|e| {
                        Error::os(&format!("cannot remove the old {}", path.display()), e)
                    })?;
                    continue;
                }
                Table::make(file, layout).inspect_err(|_| {
                    // The error of `make` says more than an error of the removal.
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
                fd: held,
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

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The layout in use, with the [`properties`](Self::properties) of the first process.
    pub fn layout(&self) -> &Layout {
        &self.table.layout
    }

    /// The properties in the layout of the first process of the job.
    pub fn properties(&self) -> &[u8; PROPERTIES_LEN] {
        &self.table.layout.properties
    }

    /// The descriptor. Errors: [`Error::InvalidArgument`] in the child of a fork.
    fn own(&self) -> Result<BorrowedFd<'_>> {
        self.fd
            .get()
            .filter(|_| std::process::id() == self.me.pid)
            .ok_or_else(|| {
                Error::InvalidArgument(format!(
                    "this process was forked after its parent (pid {}) had joined job {}: join again",
                    self.me.pid, self.job
                ))
            })
    }

    /// Locks out other threads, then other processes. The order is safe after a fork: `own` returns first in a child, which may have inherited a locked mutex.
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

    /// Takes the wished place, or the first free place. Places of dead processes are free. A process has one place for each join. If it has a place already, it
    /// gets the same place.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the job has no such place, or a living process has it (the text gives its pid); [`Error::Exhausted`] if all places are
    /// taken, or the file system is full.
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
        let taken = Mine { place, generation };
        self.show(taken, Some(self.me), None);
        *mine = Some(taken);
        Ok(place)
    }

    /// The place of this process.
    pub fn place(&self) -> Option<u32> {
        self.own().ok()?;
        let mine = self.mine.lock();
        mine.map(|mine| mine.place)
    }

    /// Publishes the address of this process and the key of its directory region. A further call replaces them.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the process has no place.
    pub fn publish(&self, address: &Address, key: &RegionKey) -> Result<()> {
        let (_change, mine, _) = self.change()?;
        let mine = self.placed(*mine)?;
        let published = (*address.as_bytes(), *key.as_bytes());
        self.show(mine, Some(self.me), Some(published));
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

    /// The published data of the process at `place`. `None`: no process, or nothing is published. The process may have died since: see [`alive`](Self::alive).
    /// Costs some dozen loads, without locks, system calls or waits.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the job has no such place.
    pub fn find(&self, place: u32) -> Result<Option<PublishedProcess>> {
        self.check_place(place)?;
        let Some(Entry {
            generation,
            holder: Some(holder),
            published: Some((address, key)),
        }) = self.table.entry(place)
        else {
            return Ok(None);
        };
        Ok(Some(PublishedProcess {
            pid: holder.pid,
            address: Address::from_bytes(&address)?,
            key: RegionKey::from_bytes(&key)?,
            generation,
        }))
    }

    /// Whether a living process has `place`. Reads /proc, so it is not for fast paths.
    pub fn alive(&self, place: u32) -> bool {
        place < self.table.layout.places
            && self
                .table
                .entry(place)
                .is_some_and(|entry| self.lives(&entry).is_some())
    }

    /// Whether the process at `place` has published, and has ended without leaving. If so, it is counted in [`deaths`](Self::deaths). Reads /proc.
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

    /// Number of dead processes of the job that any process has detected. Costs one load. While it is unchanged, processes that lived at the last read need no
    /// new check.
    pub fn deaths(&self) -> u64 {
        self.table.deaths()
    }

    /// Places from this number on were never taken.
    pub fn places_used(&self) -> u32 {
        self.table.places_used()
    }

    /// Frees the place, its published data, and all resources. The process stays attached and may take another place.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] in the child of a fork.
    pub fn leave(&self) -> Result<()> {
        let (_change, mut mine, _) = self.change()?;
        self.vacate(&mut mine);
        Ok(())
    }

    /// [`leave`](Self::leave)s, and removes the file if no other process is attached to the job. For programs that end without dropping the rendezvous.
    pub fn end(&self) {
        // The child of a fork owns only the mapping.
        let Ok((change, mut mine, file)) = self.change() else {
            return;
        };
        self.vacate(&mut mine);
        // If the removal fails, the next sweep removes the file.
        if change.alone() == Ok(true) && file::is_at(file, &self.path) {
            let _ = rustix::fs::unlink(&self.path);
        }
        // Otherwise a process that ends next, before this process has ended, would not be alone, and the file would stay.
        change.detach();
    }

    /// The caller holds the lock. Resources become free with the generation of the place.
    fn vacate(&self, mine: &mut Option<Mine>) {
        if let Some(mine) = mine.take() {
            self.show(mine, None, None);
        }
    }

    fn show(&self, mine: Mine, holder: Option<Process>, published: Option<Published>) {
        let entry = Entry {
            generation: mine.generation,
            holder,
            published,
        };
        self.table.show(mine.place, &entry);
    }

    /// Holder of a resource. The process may have died since.
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

    /// Claims the first free one of the candidates, which are words of `group`. Resources of dead processes are free. `None`: no candidate is free.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the process has no place, or the job has no such word; [`Error::Exhausted`] if the file system is full.
    pub fn claim(
        &self,
        group: u32,
        candidates: impl IntoIterator<Item = u32>,
    ) -> Result<Option<u32>> {
        Ok(self
            .claim_many(group, 1, candidates)?
            .and_then(|claimed| claimed.first().copied()))
    }

    /// Claims the first `count` free candidates, or none if fewer are free. A repeated candidate counts once.
    ///
    /// # Errors
    /// As for [`claim`](Self::claim).
    pub fn claim_many(
        &self,
        group: u32,
        count: usize,
        candidates: impl IntoIterator<Item = u32>,
    ) -> Result<Option<Vec<u32>>> {
        // The caller's iterator may run any code, so it runs outside the locks.
        let candidates: Vec<u32> = candidates.into_iter().collect();
        for &index in &candidates {
            self.check_resource(group, index)?;
        }
        let (_change, mine, fd) = self.change()?;
        let mine = self.placed(*mine)?;
        // Places with a known liveness. Each check takes a system call.
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

    /// Releases a resource.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if this process has not claimed it.
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

    /// The place that has claimed a resource. `None`: it is free, or the job has no such resource. The process may have died since: see [`alive`](Self::alive).
    /// Loads only.
    pub fn owner(&self, group: u32, index: u32) -> Option<u32> {
        self.check_resource(group, index).ok()?;
        self.holder(group, index).map(|(place, _)| place)
    }

    /// Number of words of `group` that the process at `place` has claimed. Loads only.
    pub fn count_owned(&self, group: u32, place: u32) -> usize {
        (0..self.table.layout.words_per_group)
            .filter(|&index| self.owner(group, index) == Some(place))
            .count()
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        self.end();
    }
}
