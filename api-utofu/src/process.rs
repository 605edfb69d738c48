//! This process in the virtual network: its node, its share of the node's resources, its VCQs. The first call that needs it sets it
//! up, because uTofu has no initialisation.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use unipgas_core::calls::Call;
use unipgas_core::job::{cores_of_a_job, tell_waits};
use unipgas_core::port::{JobPlaces, Port, PortDirectory, PortNetwork, PortOptions};
use unipgas_core::registry::{Opening, open_from_env};
use unipgas_core::rendezvous::{JobName, Layout, PROPERTIES_LEN, Rendezvous};
use unipgas_core::{Engine, bootstrap, exit};

use crate::asynchronous::tell;
use crate::caps::{CMP_IDS, CQS, TNIS, VBGS};
use crate::environment::UtofuSettings;
use crate::ids::VcqId;
use crate::shape::{Coords, MAX_NODES, NetworkShape};
use crate::status::{Result, ReturnCode, from_engine};
use crate::vbg::VbgTable;
use crate::vcq::{InCall, Vcq, VcqFlags, vcq, vcqs_of};

/// Nodes of the network if the number of the job's processes is unknown.
const BY_HAND: u32 = 6144;

/// The shape that the environment sets, or a shape with room for `size` processes.
fn shape_of(wishes: &UtofuSettings, size: Option<u32>) -> NetworkShape {
    let nodes = || size.map_or(BY_HAND, |size| size.div_ceil(wishes.processes_per_node));
    wishes
        .shape
        .unwrap_or_else(|| NetworkShape::for_nodes(nodes()))
}

/// The network's shape and the number of processes on a node, from the environment alone, for a job on this host. Errors: a line with the wrong variable.
pub fn wished() -> std::result::Result<(NetworkShape, u32), String> {
    let wishes = UtofuSettings::from_env()?;
    let job = JobName::from_env().map_err(|error| error.to_string())?;
    Ok((shape_of(&wishes, job.size()), wishes.processes_per_node))
}

/// A process of the network.
pub struct UtofuProcess {
    pid: u32,
    network: Arc<PortNetwork>,
    directory: Arc<PortDirectory>,
    shape: NetworkShape,
    per_node: u32,
    place: u32,
    coords: Coords,
    wishes: UtofuSettings,
    cqs: Mutex<Vec<Cq>>,
    vbgs: VbgTable,
}

/// A CQ of this process.
pub(crate) struct Cq {
    tni: u16,
    cq: u16,
    kind: CqKind,
    /// Components in use, one bit each.
    used: u8,
    /// In use by an exclusive VCQ.
    exclusive: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CqKind {
    Free,
    ForExclusive,
    Session,
}

/// Index of the property that is 1 if the job's processes map each other's memory. All must agree: gates and session mode depend on it.
const MAPPED: usize = 12;

static PROCESS: OnceLock<Result<UtofuProcess>> = OnceLock::new();

/// The process. Errors: [`ReturnCode::Fatal`] if it could not join its network. The first call then writes the reason to standard error. In the child of a fork
/// it returns the parent's process: see [`UtofuProcess::for_changes`].
#[inline]
pub fn current() -> Result<&'static UtofuProcess> {
    let process = PROCESS.get_or_init(|| {
        UtofuProcess::join().map_err(|why| {
            tell(format_args!("{why}"));
            ReturnCode::Fatal
        })
    });
    process.as_ref().map_err(|code| *code)
}

impl UtofuProcess {
    fn join() -> std::result::Result<UtofuProcess, String> {
        let wishes = UtofuSettings::from_env()?;
        let told = |e: unipgas_core::Error| e.to_string();
        let job = JobName::from_env().map_err(told)?;
        let per_node = wishes.processes_per_node;
        let beyond = bootstrap::beyond_this_host(&job).map_err(told)?;
        let size = beyond.as_ref().map(|told| told.size()).or(job.size());
        let shape = shape_of(&wishes, size);
        let here = beyond.as_ref().map(|told| told.neighbours()).or(size);
        let here = here.unwrap_or(2) as usize;
        let opening = Opening {
            other_hosts: beyond.is_some(),
            ..Opening::on_one_host(here)
        };
        let engine = Engine::new(open_from_env(&opening).map_err(told)?).map_err(told)?;
        tell_waits();
        engine.set_crowded(here > cores_of_a_job());
        let mut properties = [0; PROPERTIES_LEN];
        properties[..12].copy_from_slice(&shape.to_bytes());
        properties[MAPPED] = engine.is_mapped().into();
        let layout = Layout {
            places: MAX_NODES,
            places_per_group: per_node,
            words_per_group: u32::from(TNIS) * u32::from(VBGS),
            properties,
        };
        let rendezvous = Rendezvous::join(&job, &layout).map_err(told)?;
        if rendezvous.properties()[MAPPED] != properties[MAPPED] {
            return Err(format!(
                "processes of job {job} are at work already with another backend, which {}: start all with the same UNIPGAS_BACKEND",
                match engine.is_mapped() {
                    true => "does not map their memory",
                    false => "maps their memory",
                }
            ));
        }
        let common = rendezvous.properties()[..12].try_into().expect("12 bytes");
        let common = NetworkShape::from_bytes(common)?;
        if common != shape && wishes.shape.is_some() {
            return Err(format!(
                "UNIPGAS_TOFU_SHAPE is {shape}, but the job's processes have agreed on {common}"
            ));
        }
        let shape = common;
        let most = shape.nodes() * per_node;
        if let Some(size) = size.filter(|size| *size > most) {
            return Err(format!(
                "the network {shape} has room for {most} processes ({per_node} a node), and the job has {size}: set UNIPGAS_TOFU_SHAPE"
            ));
        }
        let place = rendezvous.take_place(job.rank()).map_err(told)?;
        if place >= most {
            return Err(format!("all nodes of the network {shape} are taken"));
        }
        let directory = Arc::new(PortDirectory::new(&engine).map_err(told)?);
        let address = engine.address().map_err(told)?;
        let places = match beyond {
            Some(bootstrap) => JobPlaces::beyond(rendezvous, bootstrap),
            None => rendezvous.into(),
        };
        places.publish(&address, &directory.key()).map_err(told)?;
        let network = Arc::new(PortNetwork::new(engine, places).map_err(told)?);
        leave_at_exit(&network);
        Ok(UtofuProcess {
            pid: std::process::id(),
            cqs: Mutex::new(dealt(place % per_node, per_node, &wishes)),
            coords: shape.coords(place / per_node),
            network,
            directory,
            shape,
            per_node,
            place,
            wishes,
            vbgs: VbgTable::default(),
        })
    }

    /// The process, for a call that makes or changes something. Errors: [`ReturnCode::NotAvailable`] in a child process (guide §4.1.2), even if no fork handler ran.
    pub fn for_changes(&'static self) -> Result<&'static UtofuProcess> {
        if std::process::id() == self.pid {
            Ok(self)
        } else {
            Err(ReturnCode::NotAvailable)
        }
    }

    /// Coordinates of its node (§3.9.2.1).
    pub fn coords(&self) -> Coords {
        self.coords
    }

    /// The network's shape.
    pub fn shape(&self) -> &NetworkShape {
        &self.shape
    }

    /// Its place in the rendezvous: its node's number times the processes on a node, plus its index on the node.
    pub fn place(&self) -> u32 {
        self.place
    }

    pub(crate) fn vbgs(&self) -> &VbgTable {
        &self.vbgs
    }

    /// Processes that share a node.
    pub fn processes_per_node(&self) -> u32 {
        self.per_node
    }

    /// The number of its node.
    pub fn own_node(&self) -> u32 {
        self.place / self.per_node
    }

    pub(crate) fn network(&self) -> &Arc<PortNetwork> {
        &self.network
    }

    pub(crate) fn directory(&self) -> &PortDirectory {
        &self.directory
    }

    /// TNIs on which this process has CQs (§3.2.1.1).
    pub fn onesided_tnis(&self) -> Vec<u16> {
        let cqs = self.cqs.lock();
        (0..TNIS)
            .filter(|tni| cqs.iter().any(|cq| cq.tni == *tni))
            .collect()
    }

    /// The node with these coordinates. Errors: [`ReturnCode::InvalidCoords`].
    pub fn node(&self, coords: &Coords) -> Result<u32> {
        self.shape.node(coords).ok_or(ReturnCode::InvalidCoords)
    }

    /// The place of the process that owns the VCQ's CQ. `None`: no such node.
    #[inline]
    pub fn place_of(&self, id: VcqId) -> Option<u16> {
        let node = self.shape.node(&id.coords())?;
        if self.per_node == 1 {
            return Some(node as u16);
        }
        let sharer = dealt_to(id.tni(), id.cq(), self.per_node);
        u16::try_from(node * self.per_node + sharer).ok()
    }

    /// Creates a VCQ, and returns its handle (§3.3.1.1, §3.3.1.2). Errors: [`ReturnCode::InvalidTniId`], [`ReturnCode::InvalidFlags`],
    /// [`ReturnCode::InvalidCmpId`], [`ReturnCode::Full`], [`ReturnCode::NotAvailable`], [`ReturnCode::Used`], [`ReturnCode::OutOfMemory`].
    pub fn create_vcq(&'static self, tni: u16, cmp: Option<u16>, flags: VcqFlags) -> Result<usize> {
        if tni >= TNIS {
            return Err(ReturnCode::InvalidTniId);
        }
        let special = VcqFlags::EXCLUSIVE | VcqFlags::SESSION_MODE;
        if flags.contains(special) || cmp.is_some() && flags.intersects(special) {
            return Err(ReturnCode::InvalidFlags);
        }
        if cmp.is_some_and(|cmp| cmp >= CMP_IDS) {
            return Err(ReturnCode::InvalidCmpId);
        }
        let mut cqs = self.cqs.lock();
        let (index, cmp) = choose(&cqs, tni, cmp, flags)?;
        check_memory()?;
        let cq = &mut cqs[index];
        let id = VcqId::new(&self.coords, tni, cq.cq, cmp);
        let session = flags.contains(VcqFlags::SESSION_MODE);
        let options = PortOptions {
            id: id.bits(),
            index: id.port(),
            session,
            shared: flags.contains(VcqFlags::THREAD_SAFE),
            inbox: if session {
                self.wishes.mrq_entries_session
            } else {
                self.wishes.mrq_entries
            },
        };
        let port = Port::open(&self.network, &self.directory, options).map_err(from_engine)?;
        cq.used |= 1 << cmp;
        cq.exclusive = flags.contains(VcqFlags::EXCLUSIVE);
        let vcq = Vcq::new(self, id, port, self.wishes.swap_protect);
        let handle = vcq.handle();
        vcq.enter();
        Ok(handle)
    }

    /// Frees a VCQ (§3.3.1.3). Errors: [`ReturnCode::InvalidVcqHdl`]; [`ReturnCode::Busy`] in a signal handler that has interrupted a call.
    pub fn free_vcq(&self, handle: usize) -> Result<()> {
        if Call::is_under_way() {
            return Err(ReturnCode::Busy);
        }
        let mut cqs = self.cqs.lock();
        let id = vcq(handle)?.id();
        Vcq::remove(id)?;
        if let Some(cq) = cqs
            .iter_mut()
            .find(|cq| cq.tni == id.tni() && cq.cq == id.cq())
        {
            cq.used &= !(1 << id.cmp());
            cq.exclusive = false;
        }
        Ok(())
    }

    /// Number of commands with unread completions, in all VCQs of the VCQ's CQ (§3.7.5.1).
    pub fn unread(&self, vcq: &InCall) -> usize {
        let id = vcq.id();
        let all = (0..CMP_IDS).map(|cmp| VcqId::new(&self.coords, id.tni(), id.cq(), cmp));
        vcqs_of(vcq, all).map(|vcq| vcq.port().unread()).sum()
    }
}

/// The owner of a CQ among the `sharers` of a node. Up to 9 sharers (the CQs of a TNI), each one has CQs of every TNI. More sharers have CQs of some TNIs.
pub(crate) fn dealt_to(tni: u16, cq: u16, sharers: u32) -> u32 {
    if sharers <= u32::from(CQS) {
        u32::from(cq) % sharers
    } else {
        (u32::from(cq) * u32::from(TNIS) + u32::from(tni)) % sharers
    }
}

/// The CQs of sharer `me` of a node. The order in each TNI: free mode, session mode, exclusive VCQs. Free mode has at least one CQ. Exclusive VCQs have
/// priority over session mode (§4.3.2.2).
pub(crate) fn dealt(me: u32, sharers: u32, wishes: &UtofuSettings) -> Vec<Cq> {
    let mut all = Vec::new();
    for tni in 0..TNIS {
        let mine: Vec<u16> = (0..CQS)
            .filter(|cq| dealt_to(tni, *cq, sharers) == me)
            .collect();
        let spare = mine.len().saturating_sub(1);
        let exclusive = wishes.exclusive_cqs.min(spare);
        let session = wishes.session_cqs.min(spare - exclusive);
        for (i, cq) in mine.iter().enumerate() {
            let kind = if i >= mine.len() - exclusive {
                CqKind::ForExclusive
            } else if i >= mine.len() - exclusive - session {
                CqKind::Session
            } else {
                CqKind::Free
            };
            all.push(Cq {
                tni,
                cq: *cq,
                kind,
                used: 0,
                exclusive: false,
            });
        }
    }
    all
}

/// The CQ (its index) and the component of a new VCQ.
fn choose(cqs: &[Cq], tni: u16, cmp: Option<u16>, flags: VcqFlags) -> Result<(usize, u16)> {
    let of = |kind: CqKind| {
        cqs.iter()
            .enumerate()
            .filter(move |(_, cq)| cq.tni == tni && cq.kind == kind)
    };
    if let Some(cmp) = cmp {
        let (index, cq) = of(CqKind::Free).next().ok_or(ReturnCode::Full)?;
        return if cq.used & 1 << cmp == 0 {
            Ok((index, cmp))
        } else {
            Err(ReturnCode::Used)
        };
    }
    // Programs often name low components themselves, so this takes high ones.
    let component = |cq: &Cq| (0..CMP_IDS).rev().find(|cmp| cq.used & 1 << cmp == 0);
    if flags.contains(VcqFlags::EXCLUSIVE) {
        return of(CqKind::ForExclusive)
            .find(|(_, cq)| cq.used == 0)
            // The first one is for VCQs with components that the program names.
            .or_else(|| {
                of(CqKind::Free)
                    .skip(1)
                    .filter(|(_, cq)| cq.used == 0)
                    .last()
            })
            .map(|(index, _)| (index, CMP_IDS - 1))
            .ok_or(ReturnCode::NotAvailable);
    }
    let (kind, none) = if flags.contains(VcqFlags::SESSION_MODE) {
        (CqKind::Session, ReturnCode::NotAvailable)
    } else {
        (CqKind::Free, ReturnCode::Full)
    };
    of(kind)
        .filter(|(_, cq)| !cq.exclusive)
        .find_map(|(index, cq)| Some((index, component(cq)?)))
        .ok_or(none)
}

/// Several times the heap memory of a VCQ, in bytes.
const VCQ_MEMORY: usize = 4 << 20;

/// Checks for memory before the creation of a VCQ, because a failed allocation ends the program. Errors: [`ReturnCode::OutOfMemory`].
fn check_memory() -> Result<()> {
    let (rights, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY:
    // - a new mapping, which no other code uses. It is unmapped at once.
    let mapped = unsafe {
        let place = libc::mmap(std::ptr::null_mut(), VCQ_MEMORY, rights, flags, -1, 0);
        place != libc::MAP_FAILED && libc::munmap(place, VCQ_MEMORY) == 0
    };
    if mapped {
        Ok(())
    } else {
        Err(ReturnCode::OutOfMemory)
    }
}

/// Registers the exit handler, which gives up the place, and the fork handler. The last process to leave removes the job's file.
fn leave_at_exit(network: &Arc<PortNetwork>) {
    static LEAVING: OnceLock<Arc<PortNetwork>> = OnceLock::new();
    extern "C" fn leave() {
        // A child that ends must not give up its parent's place.
        if let Some(network) = LEAVING.get()
            && !is_child()
        {
            if let Some(Ok(process)) = PROCESS.get() {
                exit::run(|| process.drain_gates());
            }
            exit::run(|| network.leave());
        }
    }
    if LEAVING.set(network.clone()).is_ok() {
        // SAFETY:
        // - the handlers take no argument, and use objects that are never freed. The fork handler only stores to atomics.
        unsafe {
            libc::atexit(leave);
            libc::pthread_atfork(None, None, Some(disinherit));
        }
    }
}

static CHILD: AtomicBool = AtomicBool::new(false);

/// Whether a process that used uTofu has forked this one, which cannot use uTofu (guide §4.1.2).
pub(crate) fn is_child() -> bool {
    CHILD.load(Ordering::Relaxed)
}

/// In the child of a fork: invalidates handles and VBGs. They belong to the parent, and the child would take entries from its queues.
extern "C" fn disinherit() {
    CHILD.store(true, Ordering::Relaxed);
    crate::vcq::disinherit();
    if let Some(Ok(process)) = PROCESS.get() {
        process.vbgs.disinherit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(exclusive_cqs: usize, session_cqs: usize) -> UtofuSettings {
        UtofuSettings {
            exclusive_cqs,
            session_cqs,
            mrq_entries: 2048,
            mrq_entries_session: 2048,
            swap_protect: false,
            shape: None,
            processes_per_node: 1,
        }
    }

    #[test]
    fn every_cq_is_dealt_to_one_sharer() {
        for sharers in 1..=48 {
            let mut owners = vec![0; usize::from(TNIS * CQS)];
            for me in 0..sharers {
                for cq in dealt(me, sharers, &wishes(2, 3)) {
                    assert_eq!(dealt_to(cq.tni, cq.cq, sharers), me);
                    owners[usize::from(cq.tni * CQS + cq.cq)] += 1;
                }
            }
            assert!(owners.iter().all(|owners| *owners == 1), "{sharers}");
        }
    }

    #[test]
    fn kinds_follow_the_environment() {
        let count = |wishes: &UtofuSettings, kind: CqKind| {
            dealt(0, 1, wishes)
                .iter()
                .filter(|cq| cq.tni == 0 && cq.kind == kind)
                .count()
        };
        let default = wishes(0, 3);
        assert_eq!(count(&default, CqKind::Free), 6);
        assert_eq!(count(&default, CqKind::Session), 3);
        let greedy = wishes(7, 7);
        assert_eq!(count(&greedy, CqKind::Free), 1);
        assert_eq!(count(&greedy, CqKind::ForExclusive), 7);
        assert_eq!(count(&greedy, CqKind::Session), 1);
    }

    #[test]
    fn the_first_component_sits_on_the_first_cq_and_resources_end() {
        let mut cqs = dealt(0, 1, &wishes(0, 3));
        assert_eq!(choose(&cqs, 0, Some(0), VcqFlags::empty()), Ok((0, 0)));
        let mut created = 0;
        while let Ok((index, cmp)) = choose(&cqs, 0, None, VcqFlags::empty()) {
            cqs[index].used |= 1 << cmp;
            created += 1;
        }
        assert_eq!(created, 6 * 8);
        assert_eq!(
            choose(&cqs, 0, None, VcqFlags::empty()),
            Err(ReturnCode::Full)
        );
        assert_eq!(
            choose(&cqs, 0, Some(3), VcqFlags::empty()),
            Err(ReturnCode::Used)
        );
        assert_eq!(
            choose(&cqs, 0, None, VcqFlags::EXCLUSIVE),
            Err(ReturnCode::NotAvailable)
        );
        assert!(choose(&cqs, 0, None, VcqFlags::SESSION_MODE).is_ok());
        assert!(choose(&cqs, 1, None, VcqFlags::EXCLUSIVE).is_ok());
    }
}
