//! The job board: a small anonymous file, shared by the launcher and the ranks of one machine.
//!
//! It holds published data (addresses, keys), the fences that ranks have reached, and the states of ranks. It has no name in a file system: ranks open it
//! through `/proc/<launcher>/fd/<fd>`, so no file remains after a crash. Each access is atomic. Each value from the board is checked before its use as an
//! offset or length. A rank with memory errors can corrupt values, but cannot crash the others.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use unipgas_base::{Error, Result, descriptor, random::random, sync::futex};

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod lives;
mod mirror;
mod replacement;
mod slot;
mod watched;

pub use lives::RankState;
pub use mirror::SentRecord;
use slot::Slot;
pub use watched::boards;

/// Largest size of a job, in ranks.
pub const MAX_SIZE: u32 = 65536;
/// Most keys that a rank can publish.
pub(crate) const SLOTS_PER_RANK: usize = 16;
/// Longest key, in bytes.
pub(crate) const MAX_KEY: usize = 31;
/// Longest value, in bytes.
pub(crate) const MAX_VALUE: usize = 448;

const MAGIC: u64 = u64::from_ne_bytes(*b"unipgasB");
const VERSION: u32 = 11;

const HEADER_BYTES: usize = 4096;
const RANK_BYTES: usize = 64;
const SLOT_BYTES: usize = 512;
const SLOT_WORDS: usize = SLOT_BYTES / 4;

// Offsets in the header, in bytes.
const H_MAGIC: usize = 0;
const H_VERSION: usize = 8;
const H_SIZE: usize = 12;
const H_CPUS: usize = 16;
const H_PID: usize = 20;
const H_JOB_ID: usize = 24;
const H_START: usize = 32;
const H_MIRRORED: usize = 40;
const H_HOSTS: usize = 44;
const H_EVERYWHERE: usize = 48;
// Changed while other processes read the rest of the header, so these have separate cache lines.
const H_DEATHS: usize = 128;
const H_CHANGES: usize = 132;
const H_ARRIVALS: usize = 256;
const H_SLEEPERS: usize = 264;
const H_RUNG: usize = 268;
const H_NEWS: usize = 384;

// Offsets in a rank's record, in bytes.
const R_STATE: usize = 0;
const R_PID: usize = 4;
const R_EPOCH: usize = 8;
const R_WANTED: usize = 12;
const R_START: usize = 16;
const R_AFAR: usize = 24;
const R_ENDED: usize = 28;
const R_DEATHS: usize = 32;
const R_PRESENT: usize = 36;
const R_PUBLISHED: usize = 40;

/// An attachment to the board of a job. A process may have several.
#[derive(Debug)]
pub struct Board {
    base: NonNull<u8>,
    len: usize,
    size: u32,
    cpus: u32,
    job_id: u64,
    pid: u32,
    start: u64,
    fd: i32,
}

// SAFETY:
// - the mapping lives until Drop and is not tied to a thread;
// - its memory is accessed through atomics only.
unsafe impl Send for Board {}
// SAFETY:
// - every method takes `&self` and accesses the shared memory through atomics only.
unsafe impl Sync for Board {}

/// Serialises the publishing threads of this process: a slot has one writer at a time.
static PUBLISHING: Mutex<()> = Mutex::new(());

fn board_len(size: u32) -> usize {
    watched::told_offset(size) + size as usize * watched::TOLD_BYTES
}

fn slots_offset(size: u32) -> usize {
    HEADER_BYTES + (size as usize * RANK_BYTES).next_multiple_of(4096)
}

/// The start time of a process in clock ticks since boot (field 22 of `/proc/<pid>/stat`). The pair of pid and start time is unique, since pids are reused.
///
/// # Errors
/// [`Error::PeerDead`] if the process does not exist, or is a zombie. [`Error::Os`] if /proc cannot be read.
pub(crate) fn process_start_time(pid: u32) -> Result<u64> {
    let stat = descriptor::stat_of(pid)?;
    match descriptor::state_in(&stat) {
        None | Some('Z' | 'X' | 'x') => Err(Error::PeerDead),
        Some(_) => descriptor::field_in(&stat, 22).ok_or(Error::PeerDead),
    }
}

/// Whether `pid` has begun to end, or has ended. Its first thread runs no more code of the program. Other threads may, if only the first has exited.
pub fn process_is_ending(pid: u32) -> bool {
    /// PF_EXITING in field 9 of the stat file.
    const EXITING: u64 = 4;
    let stat = descriptor::stat_of(pid).unwrap_or_default();
    descriptor::field_in(&stat, 9).is_none_or(|flags| flags & EXITING != 0)
}

impl Board {
    /// Makes the board of a job of `size` ranks (1 to [`MAX_SIZE`]). The caller keeps the descriptor open as long as ranks may attach.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another size. [`Error::Os`] if the system refuses the memory.
    pub fn create(size: u32) -> Result<(Board, OwnedFd)> {
        Board::create_for(size, online_cpus())
    }

    /// [`create`](Board::create) for ranks that share `cpus` CPUs.
    ///
    /// # Errors
    /// As [`create`](Board::create).
    pub fn create_for(size: u32, cpus: u32) -> Result<(Board, OwnedFd)> {
        check_size(size)?;
        let len = board_len(size);
        let fd = descriptor::memory("unipgas-job", MemfdFlags::ALLOW_SEALING)
            .map_err(|e| Error::os("cannot create the job board (memfd_create)", e))?;
        descriptor::set_len(&fd, len as u64, "the job board")?;
        // The sealed size prevents faults: no process can shrink the memory under the mappings of others.
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(|e| Error::os("cannot seal the job board", e))?;
        let pid = std::process::id();
        let board = Board {
            base: map(fd.as_fd(), len)?,
            len,
            size,
            cpus,
            job_id: u64::from_ne_bytes(random()?),
            pid,
            start: process_start_time(pid)?,
            fd: fd.as_raw_fd(),
        };
        board.word(H_VERSION).store(VERSION, Ordering::Relaxed);
        board.word(H_SIZE).store(size, Ordering::Relaxed);
        board.word(H_CPUS).store(board.cpus, Ordering::Relaxed);
        board.word(H_PID).store(pid, Ordering::Relaxed);
        board.long(H_JOB_ID).store(board.job_id, Ordering::Relaxed);
        board
            .long(H_EVERYWHERE)
            .store(board.job_id, Ordering::Relaxed);
        board.long(H_START).store(board.start, Ordering::Relaxed);
        board.long(H_MAGIC).store(MAGIC, Ordering::Release);
        Ok((board, fd))
    }

    /// The address of the board, for a rank to attach: `<launcher's pid>:<its start time>:<descriptor>`.
    pub fn token(&self) -> String {
        format!("{}:{}:{}", self.pid, self.start, self.fd)
    }

    /// Attaches to the board with this [`token`](Board::token).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a malformed token. [`Error::Unreachable`] if the launcher has ended, or if the descriptor is not a board of this
    /// version.
    pub fn attach(token: &str) -> Result<Board> {
        let (pid, start, fd) = parse_token(token).ok_or_else(|| {
            Error::InvalidArgument(format!(
                "{token:?} is not a job (want <pid>:<start time>:<descriptor> from unipgas run)"
            ))
        })?;
        let gone = || Error::Unreachable(format!("the launcher of this job (pid {pid}) has ended"));
        match process_start_time(pid) {
            Ok(found) if found == start => {}
            Ok(_) | Err(Error::PeerDead) => return Err(gone()),
            Err(error) => return Err(error),
        }
        let file = descriptor::open(format!("/proc/{pid}/fd/{fd}"), OFlags::RDWR, Mode::empty())
            .map_err(|e| match e {
                _ if process_is_ending(pid) => gone(),
                _ => Error::Unreachable(format!("cannot open the job board of process {pid}: {e}")),
            })?;
        let other = |what: &str| {
            Error::Unreachable(format!(
                "descriptor {fd} of process {pid} is not a job board: {what}"
            ))
        };
        // The seal is checked before the length, which then cannot change.
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(|_| other("not a memfd"))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(other("not sealed"));
        }
        let stat =
            rustix::fs::fstat(&file).map_err(|e| Error::os("cannot measure the job board", e))?;
        let len = usize::try_from(stat.st_size).unwrap_or(0);
        if len < HEADER_BYTES {
            return Err(other("too short"));
        }
        let mut board = Board {
            base: map(file.as_fd(), len)?,
            len,
            size: 0,
            cpus: 0,
            job_id: 0,
            pid,
            start,
            fd,
        };
        if board.long(H_MAGIC).load(Ordering::Acquire) != MAGIC {
            return Err(other("its magic number differs"));
        }
        let version = board.word(H_VERSION).load(Ordering::Relaxed);
        if version != VERSION {
            return Err(other(&format!(
                "its layout is version {version}, this library's is {VERSION}"
            )));
        }
        if (
            board.word(H_PID).load(Ordering::Relaxed),
            board.long(H_START).load(Ordering::Relaxed),
        ) != (pid, start)
        {
            return Err(other("another process made it"));
        }
        let size = board.word(H_SIZE).load(Ordering::Relaxed);
        if size == 0 || size > MAX_SIZE || board_len(size) != len {
            return Err(other("its size is inconsistent"));
        }
        board.size = size;
        board.cpus = board.word(H_CPUS).load(Ordering::Relaxed).max(1);
        board.job_id = board.long(H_JOB_ID).load(Ordering::Relaxed);
        Ok(board)
    }

    /// Number of ranks of the job.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Number of CPUs that the launcher may use. With more ranks, spinning wastes CPU time.
    pub(crate) fn cpus(&self) -> u32 {
        self.cpus
    }

    /// Pid of the process that made the board.
    pub fn launcher_pid(&self) -> u32 {
        self.pid
    }

    /// Whether the process that made the board still runs. It reads `/proc`, so it is not for fast paths.
    pub(crate) fn launcher_alive(&self) -> bool {
        process_start_time(self.pid) == Ok(self.start)
    }

    /// Publishes `value` (at most `MAX_VALUE` bytes) under `key` (1 to `MAX_KEY` bytes). A later value of the same key overwrites it. Only the process
    /// of `rank` may call, from any of its threads.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank, key or value out of range. [`Error::Exhausted`] if the rank has already published `SLOTS_PER_RANK` other
    /// keys.
    pub fn publish(&self, rank: u32, key: &str, value: &[u8]) -> Result<()> {
        self.check_rank(rank)?;
        check_key(key)?;
        if value.len() > MAX_VALUE {
            return Err(Error::InvalidArgument(format!(
                "a published value has at most {MAX_VALUE} bytes, not {}",
                value.len()
            )));
        }
        let _one_writer = PUBLISHING.lock();
        let mut free = None;
        let mut found = None;
        for index in 0..SLOTS_PER_RANK {
            let slot = self.slot(rank, index);
            match slot.read_unguarded() {
                Some((present, _)) if present == key.as_bytes() => {
                    found = Some(slot);
                    break;
                }
                Some(_) => {}
                None => free = free.or(Some(slot)),
            }
        }
        let slot = found.or(free).ok_or_else(|| {
            Error::Exhausted(format!(
                "places on the job board: a rank can publish {SLOTS_PER_RANK} keys"
            ))
        })?;
        let order = self.record(rank, R_PUBLISHED)?;
        let order = order.fetch_add(1, Ordering::AcqRel);
        slot.write(key.as_bytes(), value, order);
        self.tell_mirror();
        Ok(())
    }

    /// The value that `rank` has published under `key`. Never blocks. `None`: not published, or a write is in progress or was cut off by the writer's
    /// death.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank or key out of range.
    pub fn fetch(&self, rank: u32, key: &str) -> Result<Option<Vec<u8>>> {
        self.check_rank(rank)?;
        check_key(key)?;
        for index in 0..SLOTS_PER_RANK {
            match self.slot(rank, index).read() {
                Some((present, value)) if present == key.as_bytes() => return Ok(Some(value)),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The last fence that `rank` has reached, 0 for none. Errors: [`Error::InvalidArgument`] if the job has no such rank.
    pub(crate) fn epoch(&self, rank: u32) -> Result<u32> {
        Ok(self.record(rank, R_EPOCH)?.load(Ordering::Acquire))
    }

    /// Records that `rank` has reached `epoch`. Epochs only grow. A process that sees the rank [`arrived`](Board::arrived) also sees its earlier writes.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank out of range.
    pub fn arrive(&self, rank: u32, epoch: u32) -> Result<()> {
        let before = self
            .record(rank, R_EPOCH)?
            .fetch_max(epoch, Ordering::AcqRel);
        let step = u64::from(epoch.saturating_sub(before));
        if step > 0 {
            // The rank that completes the sum wakes the others. This is only a hint, since a rank may be ahead of another, or die before it counts.
            let sum = self
                .long(H_ARRIVALS)
                .fetch_add(step, Ordering::AcqRel)
                .wrapping_add(step);
            if sum >= u64::from(self.size) * u64::from(epoch) {
                self.ring();
            }
            self.tell_mirror();
        }
        Ok(())
    }

    /// Whether each rank that is neither dead nor finalized has reached `epoch` or a later one.
    pub fn arrived(&self, epoch: u32) -> bool {
        (0..self.size).all(|rank| {
            let offset = HEADER_BYTES + rank as usize * RANK_BYTES;
            self.word(offset + R_EPOCH).load(Ordering::Acquire) >= epoch
                || !RankState::from_word(self.word(offset + R_STATE).load(Ordering::Acquire))
                    .counts()
        })
    }

    /// Wakes the sleepers: all ranks may have [arrived](Board::arrived), or one has ended.
    pub fn ring(&self) {
        self.word(H_RUNG).fetch_add(1, Ordering::SeqCst);
        if self.word(H_SLEEPERS).load(Ordering::SeqCst) != 0 {
            futex::wake_all(self.word(H_RUNG));
        }
    }

    /// Registers this sleeper, calls `done`, and returns its result. If that is `None`, first sleeps until the next [ring](Board::ring), a signal, or
    /// `limit`.
    pub fn sleep<T>(
        &self,
        limit: Duration,
        done: impl FnOnce() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        struct Announced<'a>(&'a AtomicU32);
        impl Drop for Announced<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.word(H_SLEEPERS).fetch_add(1, Ordering::SeqCst);
        let _announced = Announced(self.word(H_SLEEPERS));
        let rung = self.word(H_RUNG).load(Ordering::SeqCst);
        let answer = done()?;
        if answer.is_none() {
            // The caller checks again after each kind of return.
            futex::wait(self.word(H_RUNG), rung, limit);
        }
        Ok(answer)
    }

    fn check_rank(&self, rank: u32) -> Result<()> {
        if rank >= self.size {
            return Err(Error::InvalidArgument(format!(
                "rank {rank} is not in a job of {}",
                self.size
            )));
        }
        Ok(())
    }

    fn record(&self, rank: u32, field: usize) -> Result<&AtomicU32> {
        self.check_rank(rank)?;
        Ok(self.word(HEADER_BYTES + rank as usize * RANK_BYTES + field))
    }

    /// The caller has checked `rank`, and `index < SLOTS_PER_RANK`.
    fn slot(&self, rank: u32, index: usize) -> Slot<'_> {
        let offset =
            slots_offset(self.size) + (rank as usize * SLOTS_PER_RANK + index) * SLOT_BYTES;
        assert!(offset + SLOT_BYTES <= self.len);
        // SAFETY:
        // - the range was just checked against the mapping, which lives as long as `self`.
        // - `offset` is a multiple of `SLOT_BYTES` from a page boundary, so the words are aligned.
        // - other processes share the memory, and access it through atomics too.
        Slot(unsafe {
            &*self
                .base
                .as_ptr()
                .add(offset)
                .cast::<[AtomicU32; SLOT_WORDS]>()
        })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len);
        // SAFETY:
        // - range and alignment were just checked. The mapping starts at a page and lives as long as `self`.
        // - this and other processes access the memory through atomics only.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    fn long(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len);
        // SAFETY:
        // - range and alignment were just checked. The mapping starts at a page and lives as long as `self`.
        // - this and other processes access the memory through atomics only.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY:
        // - this value owns the mapping of `len` bytes at `base`.
        // - no reference into it outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

fn check_key(key: &str) -> Result<()> {
    if key.is_empty() || key.len() > MAX_KEY {
        return Err(Error::InvalidArgument(format!(
            "a key has 1 to {MAX_KEY} bytes, {key:?} has {}",
            key.len()
        )));
    }
    Ok(())
}

/// Checks the size of a job, from any source. Errors: [`Error::InvalidArgument`] unless it is 1 to [`MAX_SIZE`].
pub(crate) fn check_size(size: u32) -> Result<()> {
    if size == 0 || size > MAX_SIZE {
        return Err(Error::InvalidArgument(format!(
            "a job has 1 to {MAX_SIZE} processes, not {size}"
        )));
    }
    Ok(())
}

pub(crate) fn parse_token(token: &str) -> Option<(u32, u64, i32)> {
    let mut parts = token.split(':');
    let parsed = (
        parts.next()?.parse().ok()?,
        parts.next()?.parse().ok()?,
        parts.next()?.parse().ok()?,
    );
    (parts.next().is_none() && parsed.0 != 0 && parsed.2 >= 0).then_some(parsed)
}

fn online_cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}

fn map(fd: BorrowedFd<'_>, len: usize) -> Result<NonNull<u8>> {
    // SAFETY:
    // - a new mapping at an address that the kernel selects touches no existing memory.
    // - other processes change the memory, so it is accessed through atomics only.
    let base = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            fd,
            0,
        )
    }
    .map_err(|e| Error::os("cannot map the job board", e))?;
    NonNull::new(base.cast())
        .ok_or_else(|| Error::Os("cannot map the job board: mapped at 0".into()))
}

#[cfg(test)]
#[path = "board_tests.rs"]
mod tests;
