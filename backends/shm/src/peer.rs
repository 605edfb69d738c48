//! Another process of this node: its pool, mapped here, and its life.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytemuck::{Pod, Zeroable};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use unipgas_core::alarm::{Alarm, Connected};
use unipgas_core::job::board::process_is_ending;
use unipgas_core::kernel_copy::Direction;
use unipgas_core::region::RemoteParts;
use unipgas_core::transport::{Life, Peer};
use unipgas_core::{Deadline, Error, RemoteRegion, Result, Rights, descriptor, process};

use crate::control::{ALIVE, Control, MAGIC, RegionKind, SLOTS, is_running, start_time};
use crate::pool::{Mapping, PAGE, PoolView};

/// The shm part of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct ShmAddress {
    /// Number of the [host](unipgas_core::host). The other members are valid on that host only.
    pub host: u64,
    /// Start time of the process, in clock ticks after boot.
    pub start_time: u64,
    /// Process id.
    pub pid: u32,
    /// The pool's descriptor in that process.
    pub fd: u32,
    /// The pool's inode. It tells the pool from a later one under the same descriptor, after the process has left and joined again.
    pub inode: u64,
}

/// The shm part of a region key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct ShmKey {
    /// Index into the owner's slots.
    pub slot: u32,
    /// Generation of the slot while the region lives.
    pub generation: u32,
}

/// A peer process: the state that all imports from it share.
pub(crate) struct PeerProcess {
    /// Its pool.
    pub view: Arc<PoolView>,
    pid: u32,
    index: u32,
    start_time: u64,
    watch: Arc<Watch>,
    /// Connections of its bells to its progress thread.
    _alarms: Vec<Connected>,
    /// Its memory as a file, for systems that forbid `process_vm_readv` and `process_vm_writev`.
    memory: OnceCell<OwnedFd>,
    dead: AtomicBool,
    mirror: Mutex<Mirror>,
}

/// Wakes the progress thread of a peer by the pipe that its control block names.
struct PeerAlarm {
    view: Arc<PoolView>,
    watch: Arc<Watch>,
    pid: u32,
    start_time: u64,
    /// The open pipe, and its inode.
    pipe: Mutex<Option<(u64, OwnedFd)>>,
}

impl Alarm for PeerAlarm {
    fn sound(&self) {
        let control = self.view.control();
        let inode = control.alarm_inode.load(Ordering::Acquire);
        if inode == 0 {
            return;
        }
        let mut pipe = self.pipe.lock();
        if pipe.as_ref().is_none_or(|(known, _)| *known != inode) {
            *pipe = self.open(inode, control.alarm_fd.load(Ordering::Relaxed));
        }
        if let Some((_, pipe)) = &*pipe {
            // A full pipe is readable already, so a failed write is no error.
            let _ = rustix::io::write(pipe, &[1]);
        }
    }
}

impl PeerAlarm {
    /// Opens the pipe for reading, too. Else a write after the peer has closed its end would raise SIGPIPE.
    fn open(&self, inode: u64, fd: u32) -> Option<(u64, OwnedFd)> {
        let name = format!("/proc/{}/fd/{fd}", self.pid);
        if rustix::fs::stat(&name).ok()?.st_ino != inode {
            return None;
        }
        let flags = OFlags::RDWR | OFlags::NONBLOCK;
        let pipe = descriptor::open(&name, flags, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&pipe).ok()?;
        let is_pipe = FileType::from_raw_mode(stat.st_mode) == FileType::Fifo;
        // The process still lives, so the pid was not reused, and the descriptor belongs to it.
        let is_its = !self.watch.has_ended(self.pid, self.start_time);
        (is_pipe && stat.st_ino == inode && is_its).then_some((inode, pipe))
    }
}

/// How this process detects the end of a peer.
enum Watch {
    /// The peer is this process.
    Own,
    /// A pidfd: it becomes readable when the process ends.
    Pidfd(OwnedFd),
    /// A look at /proc, if pidfds are forbidden.
    Look,
}

impl Watch {
    fn has_ended(&self, pid: u32, start_time: u64) -> bool {
        match self {
            Watch::Own => false,
            Watch::Look => !is_running(pid, start_time),
            Watch::Pidfd(life) => {
                let mut fds = [PollFd::new(life, PollFlags::IN)];
                let no_wait = Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                };
                matches!(poll(&mut fds, Some(&no_wait)), Ok(n) if n > 0)
            }
        }
    }
}

/// Views of the peer's adopted memory, by address.
#[derive(Default)]
struct Mirror {
    file: Option<OwnedFd>,
    views: BTreeMap<u64, Arc<Mapping>>,
}

impl PeerProcess {
    /// This process as its own peer.
    pub fn myself(view: Arc<PoolView>, index: u32) -> Self {
        PeerProcess {
            view,
            pid: std::process::id(),
            index,
            start_time: 0,
            watch: Arc::new(Watch::Own),
            _alarms: Vec::new(),
            memory: OnceCell::new(),
            dead: AtomicBool::new(false),
            mirror: Mutex::default(),
        }
    }

    /// Opens the pool of the process that `address` names.
    pub fn open(address: &ShmAddress, index: u32) -> Result<Self> {
        let pid = process::named(address.pid)
            .ok_or_else(|| Error::Unreachable("the address names no process".into()))?;
        // The pidfd first, then the check of the start time. A process that takes over the pid in between starts later, so the check refuses it.
        let watch = match descriptor::process(pid) {
            Ok(fd) => Watch::Pidfd(fd),
            Err(Errno::SRCH) => return Err(Error::PeerDead),
            Err(Errno::MFILE | Errno::NFILE) => return Err(out_of_descriptors()),
            // A filter of system calls may forbid pidfds.
            Err(_) => Watch::Look,
        };
        if start_time(address.pid)? != address.start_time {
            return Err(Error::PeerDead);
        }
        // The process may have left the job and reused the descriptor. So the inode is checked before the file is opened.
        let name = format!("/proc/{}/fd/{}", address.pid, address.fd);
        if rustix::fs::stat(name).is_ok_and(|stat| stat.st_ino != address.inode) {
            return Err(Error::PeerDead);
        }
        let file = open_fd(address.pid, address.fd)?;
        let stat = rustix::fs::fstat(&file).map_err(|e| Error::os("fstat of a peer's pool", e))?;
        if stat.st_ino != address.inode {
            return Err(Error::PeerDead);
        }
        let window = stat.st_size as usize;
        let view = PoolView::map(file.as_fd(), window)?;
        let control = view.control();
        if control.magic.load(Ordering::Acquire) != MAGIC
            || control.window.load(Ordering::Relaxed) != window as u64
        {
            return Err(Error::Unreachable(
                "the process has no pool of this version of unipgas".into(),
            ));
        }
        let (view, watch) = (Arc::new(view), Arc::new(watch));
        let alarm = Arc::new(PeerAlarm {
            view: view.clone(),
            watch: watch.clone(),
            pid: address.pid,
            start_time: address.start_time,
            pipe: Mutex::default(),
        });
        let control = view.control();
        let bells = [&raw const control.bell, &raw const control.agent_bell];
        let peer = PeerProcess {
            _alarms: bells.map(|bell| Connected::new(bell, alarm.clone())).into(),
            view,
            pid: address.pid,
            index,
            start_time: address.start_time,
            watch,
            memory: OnceCell::new(),
            dead: AtomicBool::new(false),
            mirror: Mutex::default(),
        };
        Ok(peer)
    }

    /// Its index among this process's peers.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its control block.
    pub fn control(&self) -> &Control {
        self.view.control()
    }

    /// Copies between this process and the peer's memory by /proc, if `process_vm_readv` and `process_vm_writev` are forbidden. Returns the bytes
    /// copied. The kernel checks `piece`.
    pub fn copy_by_file(
        &self,
        piece: &libc::iovec,
        there: usize,
        direction: Direction,
        forbidden: &std::io::Error,
    ) -> Result<usize> {
        let denied = |e: &dyn std::fmt::Display| {
            let text = "the memory of process";
            let pid = self.pid;
            Error::Unreachable(format!(
                "{text} {pid}: copies by the kernel are not permitted ({forbidden}), nor is /proc/{pid}/mem ({e}): {}; Yama's \
                 ptrace_scope is 1 at most",
                why_denied(pid)
            ))
        };
        let file = self.memory.get_or_try_init(|| {
            let path = format!("/proc/{}/mem", self.pid);
            descriptor::open(&path, OFlags::RDWR, Mode::empty()).map_err(|e| match e {
                Errno::NOENT | Errno::SRCH => Error::PeerDead,
                Errno::MFILE | Errno::NFILE => out_of_descriptors(),
                _ => denied(&e),
            })
        })?;
        // SAFETY:
        // - contract of `Owner`: the local piece is valid for the copy; the kernel checks the remote addresses.
        let moved = unsafe {
            if direction == Direction::Write {
                libc::pwrite(
                    file.as_raw_fd(),
                    piece.iov_base,
                    piece.iov_len,
                    there as i64,
                )
            } else {
                libc::pread(
                    file.as_raw_fd(),
                    piece.iov_base,
                    piece.iov_len,
                    there as i64,
                )
            }
        };
        match moved {
            1.. => Ok(moved as usize),
            // The process has no memory any more.
            0 => Err(Error::PeerDead),
            _ => {
                let error = std::io::Error::last_os_error();
                Err(match error.raw_os_error() {
                    Some(libc::EIO | libc::EFAULT) => Error::AccessDenied,
                    _ => denied(&error),
                })
            }
        }
    }

    /// Closes the slots of a dead peer, so that all survivors refuse its regions.
    fn close_regions(&self) {
        if self.dead.swap(true, Ordering::AcqRel) {
            return;
        }
        tracing::warn!(pid = self.pid, "a peer process has died or left");
        let control = self.control();
        let used = control.slots_used.load(Ordering::Acquire) as usize;
        for slot in &control.slots[..used.min(SLOTS)] {
            let generation = slot.generation.load(Ordering::Acquire);
            if generation & 1 == 1 {
                slot.close(generation);
            }
        }
    }

    fn mirror_view(&self, address: u64, len: u64) -> Result<(Arc<Mapping>, *mut u8)> {
        let first = address & !(PAGE as u64 - 1);
        let end = address.checked_add(len);
        let last = end.and_then(|end| end.checked_next_multiple_of(PAGE as u64));
        let last = last.ok_or(Error::StaleRegion)?;
        let mut mirror = self.mirror.lock();
        if let Some((start, view)) = mirror.views.range(..=first).next_back()
            && last <= start + view.bytes() as u64
        {
            let at = view.base().wrapping_add((address - start) as usize);
            return Ok((view.clone(), at));
        }
        if mirror.file.is_none() {
            mirror.file = Some(open_fd(
                self.pid,
                self.control().mirror_fd.load(Ordering::Acquire),
            )?);
        }
        let file = mirror.file.as_ref().expect("just opened").as_fd();
        let view = Arc::new(Mapping::new(file, first, (last - first) as usize)?);
        let at = view.base().wrapping_add((address - first) as usize);
        // Drops the views without regions.
        mirror.views.retain(|_, view| Arc::strong_count(view) > 1);
        mirror.views.insert(first, view.clone());
        Ok((view, at))
    }
}

fn out_of_descriptors() -> Error {
    Error::Os(
        "no file descriptor is left: each process that this one communicates with takes one (ulimit -n)"
            .into(),
    )
}

fn open_fd(pid: u32, fd: u32) -> Result<OwnedFd> {
    let path = format!("/proc/{pid}/fd/{fd}");
    descriptor::open(&path, OFlags::RDWR, Mode::empty()).map_err(|e| match e {
        Errno::NOENT | Errno::SRCH => Error::PeerDead,
        Errno::MFILE | Errno::NFILE => out_of_descriptors(),
        // The descriptors of an ending process belong to root once its memory is freed.
        Errno::ACCESS | Errno::PERM if process_is_ending(pid) => Error::PeerDead,
        _ => Error::Unreachable(format!("{path}: {e} ({})", why_denied(pid))),
    })
}

/// Error text for a process with inaccessible files, with the remedy.
pub(crate) const NOT_DUMPABLE: &str = "not dumpable: let its user read the program's file, whose mode may be 0711, and do not set \
     PR_SET_DUMPABLE to 0";

/// The reason that process `pid` denies access to its files and memory, with the remedy.
fn why_denied(pid: u32) -> String {
    let of = |line: &str| {
        line.strip_prefix("Uid:")?
            .split_ascii_whitespace()
            .next()?
            .parse()
            .ok()
    };
    let user: Option<u32> = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .ok()
        .and_then(|status| status.lines().find_map(of));
    let owner = std::fs::metadata(format!("/proc/{pid}/fd")).map(|meta| meta.uid());
    match (user, owner) {
        (Some(user), Ok(owner)) if user == rustix::process::geteuid().as_raw() && owner != user => {
            format!("that process is {NOT_DUMPABLE}")
        }
        (Some(user), _) if user != rustix::process::geteuid().as_raw() => {
            "processes of one job must run as the same user".into()
        }
        _ => {
            "processes of one job must run as the same user, in one container, under no filter of system calls that forbids it".into()
        }
    }
}

/// A peer, as the engine sees it.
pub(crate) struct ShmPeer {
    /// The process.
    pub process: Arc<PeerProcess>,
}

impl Peer for ShmPeer {
    fn import(&self, key: &[u8], _: Deadline) -> Result<RemoteRegion> {
        let key: ShmKey = bytemuck::try_pod_read_unaligned(key).map_err(|_| Error::StaleRegion)?;
        let process = &self.process;
        let slot = process
            .control()
            .slots
            .get(key.slot as usize)
            .ok_or(Error::StaleRegion)?;
        if process.dead.load(Ordering::Acquire) {
            return Err(Error::PeerDead);
        }
        let entry = slot.read(key.generation)?;
        let mut keep: Option<Arc<Mapping>> = None;
        let base = match entry.kind {
            RegionKind::Pool => process
                .view
                .at(entry.offset, entry.len)
                .ok_or(Error::StaleRegion)?,
            _ if entry.rights.contains(Rights::BY_ADDRESS) => std::ptr::null_mut(),
            RegionKind::Mirror | RegionKind::Private if matches!(*process.watch, Watch::Own) => {
                entry.address as *mut u8
            }
            RegionKind::Mirror => {
                let (view, at) = process.mirror_view(entry.address, entry.len)?;
                keep = Some(view);
                at
            }
            RegionKind::Private => std::ptr::null_mut(),
        };
        let parts = RemoteParts {
            base,
            len: entry.len as usize,
            generation: &slot.generation,
            expected: key.generation,
            rights: entry.rights,
            bell: &process.control().bell,
            locks: &process.control().locks,
            peer: process.index,
            detail: [entry.address, u64::from(key.slot), 0, 0],
        };
        let alive: Arc<(Arc<PeerProcess>, Option<Arc<Mapping>>)> =
            Arc::new((process.clone(), keep));
        // SAFETY:
        // - base is null or inside the peer's window or mirror view (or this process's own registered memory, which its registrant
        //   keeps valid); generation, bell and locks lie in the control block; `alive` keeps those mappings.
        Ok(unsafe { RemoteRegion::new(parts, alive) })
    }

    fn life(&self) -> Life {
        let process = &self.process;
        let left = || process.control().state.load(Ordering::Acquire) != ALIVE;
        if left() {
            return Life::Left;
        }
        let ended = process.dead.load(Ordering::Acquire)
            || process.watch.has_ended(process.pid, process.start_time);
        if !ended {
            return Life::Alive;
        }
        process.close_regions();
        // The process may have left the job just before it ended.
        if left() { Life::Left } else { Life::Dead }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For an ordinary user, the descriptors of such a process belong to root.
    #[test]
    fn a_process_that_has_ended_and_was_not_reaped_is_dead_whoever_asks() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let life = descriptor::process(rustix::process::Pid::from_child(&child)).unwrap();
        poll(&mut [PollFd::new(&life, PollFlags::IN)], None).unwrap();
        let opened = open_fd(child.id(), 3);
        assert!(matches!(opened, Err(Error::PeerDead)), "{opened:?}");
        child.wait().unwrap();
        let opened = open_fd(child.id(), 3);
        assert!(matches!(opened, Err(Error::PeerDead)), "{opened:?}");
    }
}
