//! Another process of this node: its pool, mapped here, and its life.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytemuck::{Pod, Zeroable};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use unipgas_core::job::board::process_is_ending;
use unipgas_core::region::RemoteParts;
use unipgas_core::transport::{Life, Peer};
use unipgas_core::{Error, RemoteRegion, Result, descriptor};

use crate::control::{ALIVE, Control, Kind, MAGIC, SLOTS, start_time};
use crate::pool::{Mapping, PAGE, PoolView};

/// The shm part of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(C)]
pub struct ShmAddress {
    /// First half of the machine's boot id: processes of another machine (or boot) are not reachable.
    pub node: u64,
    /// Start time of the process, in clock ticks after boot.
    pub start_time: u64,
    /// Process id.
    pub pid: u32,
    /// The pool's descriptor in that process.
    pub fd: u32,
    /// The pool's inode: the process may have left, and joined again with another pool under the same descriptor.
    pub inode: u64,
}

/// The shm part of a region key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ShmKey {
    /// Index into the owner's slots.
    pub slot: u32,
    /// Generation of the slot while the region lives.
    pub generation: u32,
}

/// What all imports from one peer share.
pub struct PeerProcess {
    /// Its pool.
    pub view: Arc<PoolView>,
    pid: u32,
    index: u32,
    /// None for this process itself.
    life: Option<OwnedFd>,
    dead: AtomicBool,
    mirror: Mutex<Mirror>,
}

/// Views of the peer's adopted memory, by address.
#[derive(Default)]
struct Mirror {
    file: Option<OwnedFd>,
    views: BTreeMap<u64, Arc<Mapping>>,
}

impl PeerProcess {
    /// This process, as a peer of its own.
    pub fn myself(view: Arc<PoolView>, index: u32) -> Self {
        PeerProcess {
            view,
            pid: std::process::id(),
            index,
            life: None,
            dead: AtomicBool::new(false),
            mirror: Mutex::default(),
        }
    }

    /// Opens the pool of the process that `address` names.
    pub fn open(address: &ShmAddress, index: u32) -> Result<Self> {
        let pid = Pid::from_raw(address.pid as i32)
            .ok_or_else(|| Error::Unreachable("the address names no process".into()))?;
        // First hold on to the process, then make sure that it is the one meant: its pid cannot be reused in between.
        let life = descriptor::process(pid).map_err(cannot_watch)?;
        if start_time(address.pid)? != address.start_time {
            return Err(Error::PeerDead);
        }
        // It may have left, and use the descriptor for something else, which is none of our business: look before opening it.
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
        let peer = PeerProcess {
            view: Arc::new(view),
            pid: address.pid,
            index,
            life: Some(life),
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

    /// Refuses everything that was ever imported from it, here and in all other survivors: closes its slots.
    fn bury(&self) {
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
        let last = (address + len).next_multiple_of(PAGE as u64);
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
        // Views that nobody uses any more make room.
        mirror.views.retain(|_, view| Arc::strong_count(view) > 1);
        mirror.views.insert(first, view.clone());
        Ok((view, at))
    }
}

fn cannot_watch(error: Errno) -> Error {
    match error {
        Errno::SRCH => Error::PeerDead,
        Errno::MFILE | Errno::NFILE => out_of_descriptors(),
        _ => Error::os("watching a peer (pidfd_open)", error),
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
        // The descriptors of a process that is ending belong to root as soon as its memory has gone.
        Errno::ACCESS | Errno::PERM if process_is_ending(pid) => Error::PeerDead,
        _ => Error::Unreachable(format!(
            "{path}: {e} (processes of one job must run as the same user)"
        )),
    })
}

/// Handle on a peer, as the engine sees it.
pub struct ShmPeer {
    /// The process.
    pub process: Arc<PeerProcess>,
}

impl Peer for ShmPeer {
    fn import(&self, key: &[u8]) -> Result<RemoteRegion> {
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
            Kind::Pool => process
                .view
                .at(entry.offset, entry.len)
                .ok_or(Error::StaleRegion)?,
            Kind::Mirror | Kind::Private if process.life.is_none() => entry.address as *mut u8,
            Kind::Mirror => {
                let (view, at) = process.mirror_view(entry.address, entry.len)?;
                keep = Some(view);
                at
            }
            Kind::Private => std::ptr::null_mut(),
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
            detail: [entry.address, u64::from(key.slot)],
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
            || process.life.as_ref().is_some_and(|life| {
                let mut fds = [PollFd::new(life, PollFlags::IN)];
                let at_once = Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                };
                matches!(poll(&mut fds, Some(&at_once)), Ok(n) if n > 0)
            });
        if !ended {
            return Life::Alive;
        }
        process.bury();
        // It may have left properly just before it ended.
        if left() { Life::Left } else { Life::Dead }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// To an ordinary user, the descriptors of such a process are root's.
    #[test]
    fn a_process_that_has_ended_and_was_not_reaped_is_dead_whoever_asks() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let life = descriptor::process(Pid::from_child(&child)).unwrap();
        poll(&mut [PollFd::new(&life, PollFlags::IN)], None).unwrap();
        let opened = open_fd(child.id(), 3);
        assert!(matches!(opened, Err(Error::PeerDead)), "{opened:?}");
        child.wait().unwrap();
        let opened = open_fd(child.id(), 3);
        assert!(matches!(opened, Err(Error::PeerDead)), "{opened:?}");
    }
}
