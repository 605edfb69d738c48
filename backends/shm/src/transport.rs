//! The transport between the processes of a node.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bytemuck::bytes_of;
use dashmap::DashMap;
use once_cell::sync::OnceCell;
use unipgas_core::atomic::ElementLocks;
use unipgas_core::bell::{Bell, barriers_available, register_for_barriers};
use unipgas_core::bundle::Tag;
use unipgas_core::region::Memory;
use unipgas_core::transport::{Capabilities, Channel, Limits, Peer, Transport};
use unipgas_core::{
    Deadline, Error, Result, Rights, descriptor, host, log, user_memory, variables,
};

use crate::adopt;
use crate::agent::{self, Agent};
use crate::backend::TAG;
use crate::channel::ShmChannel;
use crate::control::{ALIVE, LEFT, MAGIC, start_time};
use crate::peer::{NOT_DUMPABLE, PeerProcess, ShmAddress, ShmPeer};
use crate::pool::MemoryPool;
use crate::registration::{Backing, RegistrationState, ShmRegistration};

/// Connected peers, by the index in remote regions. Connections and regions own a peer. A peer without an owner has no memory and no descriptors.
#[derive(Default)]
pub(crate) struct PeerTable {
    by_address: DashMap<ShmAddress, Weak<PeerProcess>>,
    by_index: DashMap<u32, Weak<PeerProcess>>,
    next: AtomicU32,
    /// Number of entries at which peers without an owner are removed.
    many: AtomicUsize,
}

/// Least number of entries for such a removal.
const FEW: usize = 16;

impl PeerTable {
    /// The peer of a remote region.
    pub fn get(&self, index: u32) -> Result<Arc<PeerProcess>> {
        self.by_index
            .get(&index)
            .and_then(|peer| peer.upgrade())
            .ok_or(Error::PeerDead)
    }

    /// Enters a connected peer. If another thread has entered it, that entry stays: both views are valid.
    fn enter(&self, address: ShmAddress, process: Arc<PeerProcess>) -> Arc<PeerProcess> {
        // At twice the number of used entries, so the cost for each connection is constant.
        if self.by_index.len() >= self.many.load(Ordering::Relaxed).max(FEW) {
            let is_used = |peer: &Weak<PeerProcess>| peer.strong_count() > 0;
            self.by_address.retain(|_, peer| is_used(peer));
            self.by_index.retain(|_, peer| is_used(peer));
            self.many.store(2 * self.by_index.len(), Ordering::Relaxed);
        }
        let mut known = self.by_address.entry(address).or_default();
        if let Some(first) = known.upgrade() {
            return first;
        }
        *known = Arc::downgrade(&process);
        self.by_index
            .insert(process.index(), Arc::downgrade(&process));
        process
    }
}

/// This process, with its pool.
pub struct Shm {
    home: Arc<RegistrationState>,
    peers: Arc<PeerTable>,
    me: ShmAddress,
    agent: Arc<OnceCell<Agent>>,
}

impl Shm {
    /// Creates the pool of this process. `peers`: expected number of connected processes.
    pub fn open(peers: usize) -> Result<Self> {
        if peers > 1 {
            look_dumpable()?;
        }
        register_for_barriers();
        let may_adopt = variables::switch("UNIPGAS_SHM_ADOPT", true)?;
        if may_adopt {
            // SAFETY:
            // - the program's own data stays where it is; a process with several threads is refused.
            let settled = unsafe { crate::adopt::settle_static_data() };
            if let Err(refusal) = settled {
                tracing::debug!(target: log::MEMORY, "initialised data of the program cannot be adopted: {refusal}");
            }
        }
        let pool = MemoryPool::create(peers)?;
        let pid = std::process::id();
        let stat = rustix::fs::fstat(pool.file()).map_err(|e| Error::os("fstat of the pool", e))?;
        let me = ShmAddress {
            host: host::id()?,
            start_time: start_time(pid)?,
            pid,
            fd: pool.file().as_raw_fd() as u32,
            inode: stat.st_ino,
        };
        let control = pool.view().control();
        control.pid.store(pid, Ordering::Relaxed);
        control.start_time.store(me.start_time, Ordering::Relaxed);
        control.window.store(stat.st_size as u64, Ordering::Relaxed);
        control.state.store(ALIVE, Ordering::Relaxed);
        control.magic.store(MAGIC, Ordering::Release);
        Ok(Shm {
            home: Arc::new(RegistrationState::new(pool, may_adopt)),
            peers: Arc::default(),
            me,
            agent: Arc::default(),
        })
    }

    fn open_memory(
        &self,
        base: *mut u8,
        len: usize,
        rights: Rights,
        backing: Backing,
    ) -> Result<Box<dyn Memory>> {
        let memory = ShmRegistration::open(&self.home, &self.agent, base, len, rights, backing)?;
        Ok(Box::new(memory))
    }
}

/// Errors: peers cannot open the files of this process in /proc.
fn look_dumpable() -> Result<()> {
    use rustix::process::{DumpableBehavior, dumpable_behavior};
    use rustix::thread::{CapabilitySet, capabilities};
    if matches!(dumpable_behavior(), Ok(DumpableBehavior::Dumpable) | Err(_)) {
        return Ok(());
    }
    // Peers most probably have the same rights.
    match capabilities(None) {
        Ok(own) if own.effective.contains(CapabilitySet::SYS_PTRACE) => Ok(()),
        _ => Err(Error::Os(format!("this process is {NOT_DUMPABLE}"))),
    }
}

/// Whether the backend can work here; the text says what is missing.
pub fn probe() -> std::result::Result<(), String> {
    Shm::open(1).map_err(|e| e.to_string())?;
    std::fs::read_dir("/proc/self/fd").map_err(|e| format!("/proc/self/fd: {e}"))?;
    barriers_available()
}

/// Allows peers to copy from and to memory that is not shared, if Yama forbids it (ptrace_scope 1, as on many laptops).
fn allow_kernel_copies() {
    static ASKS: OnceLock<bool> = OnceLock::new();
    let pid = std::process::id();
    if !*ASKS.get_or_init(adopt::yama_asks)
        || adopt::ANYBODY_MAY_TRACE.load(Ordering::Relaxed) == pid
    {
        return;
    }
    // SAFETY:
    // - a number.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
    adopt::ANYBODY_MAY_TRACE.store(pid, Ordering::Relaxed);
}

/// Text for people: the way in which registered memory of a program with several threads is shared in place here.
///
/// # Errors
/// The reason that the kernel copies it instead, which takes 10 to 1,000 times as long, and the remedy. The memory of a program of one thread may be shared
/// nevertheless.
pub fn adoption() -> std::result::Result<&'static str, String> {
    if !variables::switch("UNIPGAS_SHM_ADOPT", true).unwrap_or(true) {
        return Err("UNIPGAS_SHM_ADOPT=0".into());
    }
    if let Some(limit) = descriptor::file_limit() {
        return Err(format!(
            "files are limited to {} KiB: raise ulimit -f",
            limit >> 10
        ));
    }
    adopt::way().map(|way| match way {
        adopt::AdoptionMethod::Userfaultfd => "by userfaultfd",
        adopt::AdoptionMethod::Halt => {
            "ptrace stops other threads during the registration, because userfaultfd is not available"
        }
    })
}

impl Transport for Shm {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn tag(&self) -> Tag {
        TAG
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            asynchronous: false,
            registers_user_memory: true,
            maps: true,
            direct: true,
            device_atomics_only: false,
            limits: Limits::NONE,
        }
    }

    fn address(&self) -> Vec<u8> {
        bytes_of(&self.me).to_vec()
    }

    fn connect_within(&self, address: &[u8], _: Deadline) -> Result<Arc<dyn Peer>> {
        let address: ShmAddress = bytemuck::try_pod_read_unaligned(address)
            .map_err(|_| Error::Unreachable("not an address of the shm backend".into()))?;
        if address.host != self.me.host {
            return Err(Error::Unreachable(
                "the process runs on another host, or in another container".into(),
            ));
        }
        let known = self.peers.by_address.get(&address);
        if let Some(process) = known.and_then(|known| known.upgrade()) {
            return Ok(Arc::new(ShmPeer { process }));
        }
        let index = self.peers.next.fetch_add(1, Ordering::Relaxed);
        let process = Arc::new(if address == self.me {
            PeerProcess::myself(self.home.pool.view_shared(), index)
        } else {
            PeerProcess::open(&address, index)?
        });
        let process = self.peers.enter(address, process);
        Ok(Arc::new(ShmPeer { process }))
    }

    fn allocate(&self, len: usize, rights: Rights) -> Result<Box<dyn Memory>> {
        let pool = &self.home.pool;
        let offset = pool.take(len)?;
        let base = pool
            .view()
            .at(offset, len as u64)
            .expect("extents lie in the window");
        self.open_memory(base, len, rights, Backing::Extent(offset))
    }

    unsafe fn register(
        &self,
        base: *mut u8,
        len: usize,
        rights: Rights,
    ) -> Result<Box<dyn Memory>> {
        let backing = if rights.contains(Rights::BY_ADDRESS) {
            allow_kernel_copies();
            Backing::Private
        // SAFETY:
        // - contract of this call: the memory stays valid until its registration is dropped.
        } else if unsafe { self.home.adopt(base, len) } {
            Backing::Adopted
        } else {
            user_memory::check_access(base, len, rights)?;
            self.agent.get_or_try_init(|| Agent::start(&self.home))?;
            allow_kernel_copies();
            Backing::Private
        };
        self.open_memory(base, len, rights, backing)
    }

    unsafe fn expose(&self, base: *mut u8, len: usize) -> Result<Box<dyn Memory>> {
        allow_kernel_copies();
        self.open_memory(base, len, Rights::READ, Backing::Private)
    }

    fn open_channel(&self) -> Result<Box<dyn Channel>> {
        let channel = ShmChannel::new(self.peers.clone(), self.home.clone());
        Ok(Box::new(channel))
    }

    fn progress(&self) -> bool {
        agent::serve(&self.home)
    }

    fn bell(&self) -> &Bell {
        &self.home.pool.view().control().bell
    }

    fn show_alarm(&self, alarm: RawFd) -> Result<()> {
        self.home.show_alarm(alarm)
    }

    fn locks(&self) -> &ElementLocks {
        &self.home.pool.view().control().locks
    }

    fn leave(&self) {
        if self.home.is_here() {
            let control = self.home.pool.view().control();
            control.state.store(LEFT, Ordering::Release);
        }
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        self.leave();
    }
}
