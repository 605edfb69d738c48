//! VBGs (guide §2.3, §3.4, §3.8): allocation, circuits, barrier communication.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use unipgas_core::calls::{self, Call};
use unipgas_core::gate::{
    self, Error, Gate, Operation, Packet, Payload, Resolve, Role, Sender, Settings,
};
use unipgas_core::port::{GateNames, Gates, LOOK_PART};
use unipgas_core::waits::{self, polled};
use unipgas_core::{Region, Rights};
use unipgas_utofu_sys::*;

use crate::asynchronous::asynchronous_error;
use crate::caps::{MAX_DOUBLE, MAX_UINT64, START_VBGS, TNIS, VBGS};
use crate::ids::VbgId;
use crate::process::{UtofuProcess, current, is_child};
use crate::status::{Result, ReturnCode, from_engine};

pub use unipgas_utofu_sys::UTOFU_VBG_ID_NULL as NULL;
/// §3.4.4.1.
pub use unipgas_utofu_sys::utofu_vbg_setting as VbgSetting;

/// Interval of liveness checks in unsuccessful polls.
const LOOK: Duration = Duration::from_millis(200);

/// Kind of barrier communication. Each kind has its own start and poll functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateKind {
    /// `utofu_barrier`.
    Barrier,
    /// `utofu_reduce_uint64`.
    Uint64,
    /// `utofu_reduce_double`.
    Double,
}

impl GateKind {
    #[inline]
    fn of(operation: Operation) -> GateKind {
        match operation {
            Operation::Barrier => GateKind::Barrier,
            Operation::Bfpsum => GateKind::Double,
            _ => GateKind::Uint64,
        }
    }
}

/// The VBGs of one call of `utofu_alloc_vbg`.
struct Set {
    ids: Vec<VbgId>,
    /// Unsuccessful polls since the last yield of the core.
    idle: AtomicU32,
    /// Whether a poll has been successful since the last yield.
    came: AtomicBool,
    looks: Mutex<Looks>,
}

/// A set in a call of this thread. It is not freed before the call ends.
struct InCall<'a> {
    set: &'a Set,
    id: VbgId,
    _call: Call,
}

/// State of the liveness checks.
struct Looks {
    /// Time of the next check.
    next: Instant,
    /// Place of the next process to check.
    place: u32,
    /// Number of known deaths at the last walk along the circuit.
    deaths: u64,
}

/// The VBGs of this process.
#[derive(Default)]
pub struct VbgTable {
    /// The gates, made at the first allocation.
    region: OnceLock<Region>,
    /// Set if peers do not map the gates.
    unmapped: OnceLock<Arc<Gates<Nodes>>>,
    /// Sets by their start/end VBG.
    sets: OnceLock<Box<[AtomicPtr<Set>]>>,
    changes: Mutex<()>,
}

/// Index of a VBG on its node.
fn word(id: VbgId) -> u32 {
    u32::from(id.tni() * VBGS + id.bg())
}

/// The owner of a VBG among the `number` processes of a node, in a job with several hosts. Claims on other hosts are not visible, so the index decides.
/// Up to 16 processes have VBGs on each TNI. Up to 48 have them on the TNIs of both usual choices: cyclic (process % TNIs) and in blocks of processes.
fn dealt(word: u32, number: u32) -> u32 {
    let starts = u32::from(START_VBGS);
    let (tni, bg) = (word / u32::from(VBGS), word % u32::from(VBGS));
    if number <= starts {
        return bg % starts % number;
    }
    // A process needs relay VBGs on the TNI of its start/end VBG.
    let start = bg % starts;
    let (tnis, nth) = (u32::from(TNIS), start / 2);
    let owner = match start % 2 {
        _ if number > tnis * starts / 2 => tni * starts + start,
        0 => nth * tnis + tni,
        _ => tni * number.div_ceil(tnis) + nth,
    };
    owner % number
}

impl VbgTable {
    /// In the child of a fork: makes all VBGs invalid.
    pub(crate) fn disinherit(&self) {
        for set in self.sets.get().into_iter().flatten() {
            set.store(std::ptr::null_mut(), Ordering::Relaxed);
        }
    }

    fn sets(&self) -> &[AtomicPtr<Set>] {
        self.sets.get_or_init(|| {
            (0..TNIS * START_VBGS)
                .map(|_| AtomicPtr::default())
                .collect()
        })
    }

    fn place(&self, id: VbgId) -> Option<&AtomicPtr<Set>> {
        (id.bg() < START_VBGS).then(|| &self.sets()[usize::from(id.tni() * START_VBGS + id.bg())])
    }
}

impl UtofuProcess {
    /// The set with this start/end VBG. Errors: [`ReturnCode::InvalidVbgId`]; [`ReturnCode::NotAvailable`] in the child of a fork.
    #[inline(always)]
    fn set(&self, bits: u64) -> Result<InCall<'_>> {
        let id = VbgId::from_bits(bits).ok_or(ReturnCode::InvalidVbgId)?;
        let place = self.vbgs().place(id).ok_or(ReturnCode::InvalidVbgId)?;
        let call = Call::begin(|| {});
        // SAFETY:
        // - null, or made by Box::into_raw in `alloc_vbg`. `free_vbg` waits for the end of this call before it frees the set.
        match unsafe { place.load(Ordering::Acquire).as_ref() } {
            Some(set) if set.ids[0] == id => Ok(InCall {
                set,
                id,
                _call: call,
            }),
            _ if is_child() => Err(ReturnCode::NotAvailable),
            _ => Err(ReturnCode::InvalidVbgId),
        }
    }

    fn own_gate(&self, id: VbgId) -> Result<&Gate> {
        let region = self.vbgs().region.get().ok_or(ReturnCode::InvalidVbgId)?;
        // SAFETY:
        // - the region has a gate for every VBG of a node, is page-aligned and lives as long as the process.
        Ok(unsafe { Gate::at(region.base(), word(id) as usize) })
    }

    fn serve_gates(&'static self, region: Region) -> unipgas_core::Result<()> {
        let vbgs = self.vbgs();
        let key = region.key();
        let region = vbgs.region.get_or_init(|| region);
        if !self.network().engine().is_mapped() {
            let nodes = Nodes(self);
            let _ = vbgs
                .unmapped
                .set(Gates::open(self.network(), nodes, region)?);
        }
        self.directory().list_gates(&key)
    }

    /// Waits until all packets of the VBGs have arrived or are lost. Returns at once if peers map the gates.
    pub(crate) fn drain_gates(&self) {
        if let Some(gates) = self.vbgs().unmapped.get() {
            gates.drain();
        }
    }

    /// Allocates `number` VBGs. The first of them starts and ends a circuit (§3.4.1.1). Errors: [`ReturnCode::InvalidTniId`],
    /// [`ReturnCode::InvalidNumber`], [`ReturnCode::Full`].
    pub fn alloc_vbg(&self, tni: u16, number: usize) -> Result<Vec<u64>> {
        if tni >= TNIS {
            return Err(ReturnCode::InvalidTniId);
        }
        if number == 0 {
            return Err(ReturnCode::InvalidNumber);
        }
        if number > usize::from(VBGS) {
            return Err(ReturnCode::Full);
        }
        let vbgs = self.vbgs();
        let _changing = vbgs.changes.lock();
        if vbgs.region.get().is_none() {
            let gates = usize::from(TNIS * VBGS) * size_of::<Gate>();
            let region = self.network().engine().allocate(gates, Rights::FULL);
            let region = region.map_err(from_engine)?;
            current()?.serve_gates(region).map_err(from_engine)?;
        }
        let node = self.own_node();
        let rendezvous = self.network().job().here();
        let first = u32::from(tni * VBGS);
        let may_have = |word: &u32| {
            let me = self.place() % self.processes_per_node();
            self.dealt_vbg(*word).is_none_or(|sharer| sharer == me)
        };
        let relays = first + u32::from(START_VBGS)..first + u32::from(VBGS);
        let start = rendezvous
            .claim(node, (first..relays.start).filter(may_have))
            .map_err(from_engine)?
            .ok_or(ReturnCode::Full)?;
        let relays = rendezvous
            .claim_many(node, number - 1, relays.filter(may_have))
            .map_err(from_engine)?;
        let Some(relays) = relays else {
            rendezvous.release(node, start).map_err(from_engine)?;
            return Err(ReturnCode::Full);
        };
        let ids: Vec<VbgId> = std::iter::once(start)
            .chain(relays)
            .map(|word| VbgId::new(&self.coords(), tni, (word - first) as u16))
            .collect();
        for id in &ids {
            gate::clear(self.own_gate(*id)?);
        }
        let bits = ids.iter().map(|id| id.bits()).collect();
        let place = vbgs.place(ids[0]).ok_or(ReturnCode::Fatal)?;
        let set = Box::new(Set {
            ids,
            idle: AtomicU32::new(0),
            came: AtomicBool::new(false),
            looks: Mutex::new(Looks {
                next: Instant::now() + LOOK,
                // Each process begins its checks with a different place.
                place: self.place(),
                deaths: 0,
            }),
        });
        place.store(Box::into_raw(set), Ordering::Release);
        Ok(bits)
    }

    /// Frees the VBGs of one allocation (§3.4.1.2). Errors: [`ReturnCode::InvalidVbgId`]; [`ReturnCode::InvalidNumber`] if there are fewer or more of them than the
    /// allocation has; [`ReturnCode::Busy`] in a signal handler that has interrupted a call.
    pub fn free_vbg(&self, ids: &[u64]) -> Result<()> {
        if Call::is_under_way() {
            return Err(ReturnCode::Busy);
        }
        let vbgs = self.vbgs();
        let _changing = vbgs.changes.lock();
        let first = self.check_ids(ids)?;
        let place = vbgs.place(first).ok_or(ReturnCode::InvalidVbgId)?;
        let set = place.swap(std::ptr::null_mut(), Ordering::AcqRel);
        let alone = calls::wait_for_others(|| true);
        self.drain_gates();
        let here = self.network().job().here();
        let released = ids.iter().try_for_each(|bits| {
            let id = VbgId::from_bits(*bits).ok_or(ReturnCode::InvalidVbgId)?;
            gate::clear(self.own_gate(id)?);
            here.release(self.own_node(), word(id)).map_err(from_engine)
        });
        // Otherwise the set leaks, because a call may still use it.
        if alone {
            // SAFETY:
            // - made by Box::into_raw in `alloc_vbg`. The swap under the lock gave it to this thread alone.
            // - calls that had found it before the swap have ended.
            drop(unsafe { Box::from_raw(set) });
        }
        released
    }

    /// Checks that these are the VBGs of one allocation, and returns the first. Errors: as [`free_vbg`](Self::free_vbg).
    fn check_ids(&self, ids: &[u64]) -> Result<VbgId> {
        let InCall { set, id, .. } = &self.set(*ids.first().ok_or(ReturnCode::InvalidNumber)?)?;
        if ids.len() != set.ids.len() {
            return Err(ReturnCode::InvalidNumber);
        }
        if set.ids.iter().zip(ids).any(|(id, bits)| id.bits() != *bits) {
            return Err(ReturnCode::InvalidVbgId);
        }
        Ok(*id)
    }

    /// Builds this process's part of a circuit (§3.4.2.1). Errors: [`ReturnCode::InvalidNumber`], [`ReturnCode::InvalidVbgId`],
    /// [`ReturnCode::InvalidPath`]. After an error, no setting has changed.
    pub fn set_vbg(&self, settings: &[VbgSetting]) -> Result<()> {
        // A signal handler may have interrupted a call that holds locks.
        let renews = !Call::is_under_way();
        let InCall { set, .. } =
            &self.set(settings.first().ok_or(ReturnCode::InvalidNumber)?.vbg_id)?;
        if settings.len() > set.ids.len() {
            return Err(ReturnCode::InvalidNumber);
        }
        let mut gates = Vec::new();
        for (i, setting) in settings.iter().enumerate() {
            let id = VbgId::from_bits(setting.vbg_id)
                .filter(|id| set.ids.contains(id))
                .ok_or(ReturnCode::InvalidVbgId)?;
            if settings[..i]
                .iter()
                .any(|other| other.vbg_id == setting.vbg_id)
            {
                return Err(ReturnCode::InvalidVbgId);
            }
            let role = if id == set.ids[0] {
                Role::StartEnd
            } else {
                Role::Relay
            };
            let here = |bits: u64| self.neighbour_gate(bits, Some(id));
            let anywhere = |bits: u64| self.neighbour_gate(bits, None);
            let path = setting.dst_path_coords;
            if setting.dst_rmt_vbg_id != NULL
                && path[0] != UTOFU_PATH_COORD_NULL
                && !self.shape().has_path(&path)
            {
                return Err(ReturnCode::InvalidPath);
            }
            let remote = [setting.src_rmt_vbg_id, setting.dst_rmt_vbg_id];
            let owners = remote.map(|bits| self.place_of_gate(VbgId::from_bits(bits)?));
            for owner in owners.into_iter().flatten().filter(|_| renews) {
                self.network().renew(owner);
            }
            let settings = Settings {
                role,
                src_signal: here(setting.src_lcl_vbg_id)?,
                src_packet: anywhere(setting.src_rmt_vbg_id)?,
                dst_signal: here(setting.dst_lcl_vbg_id)?,
                dst_packet: anywhere(setting.dst_rmt_vbg_id)?,
            };
            gates.push((self.own_gate(id)?, settings));
        }
        self.drain_gates();
        for (gate, settings) in gates {
            gate::configure(gate, &settings);
        }
        // The circuit may have other processes now, so the next check walks along it.
        set.looks.lock().deaths = 0;
        Ok(())
    }

    /// The VBG of a setting, which `NULL` leaves out. With `beside`, it must be on the same node and TNI. Errors: [`ReturnCode::InvalidVbgId`].
    fn neighbour_gate(&self, bits: u64, beside: Option<VbgId>) -> Result<Option<u64>> {
        if bits == NULL {
            return Ok(None);
        }
        let id = VbgId::from_bits(bits).ok_or(ReturnCode::InvalidVbgId)?;
        self.node(&id.coords())
            .map_err(|_| ReturnCode::InvalidVbgId)?;
        if beside.is_some_and(|own| own.tni() != id.tni() || own.coords() != id.coords()) {
            return Err(ReturnCode::InvalidVbgId);
        }
        Ok(Some(bits))
    }

    /// Starts barrier communication (§3.8.1). Errors: [`ReturnCode::InvalidVbgId`], [`ReturnCode::Busy`], [`ReturnCode::BarrierOther`].
    pub fn start_barrier(&self, vbg: u64, payload: &Payload) -> Result<()> {
        let InCall { set, id, .. } = &self.set(vbg)?;
        if let Err(error) = gate::start(self.own_gate(*id)?, vbg, payload, &Circuit(self)) {
            self.end_if_input_lost(set)?;
            return Err(from_gate(error));
        }
        set.idle.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Takes the result of a barrier communication that has ended (§3.8.2). Errors: [`ReturnCode::NotCompleted`]; [`ReturnCode::Busy`] if none of this kind was started;
    /// [`ReturnCode::InvalidVbgId`], [`ReturnCode::BarrierMismatch`], [`ReturnCode::BarrierOther`].
    pub fn poll_barrier(&self, vbg: u64, kind: GateKind, result: &mut Payload) -> Result<()> {
        let InCall { set, id, .. } = &self.set(vbg)?;
        match gate::poll_for(self.own_gate(*id)?, |op| GateKind::of(op) == kind, result) {
            Ok(true) => {
                set.came.store(true, Ordering::Relaxed);
                Ok(())
            }
            Ok(false) => self.not_yet(set),
            Err(error) => {
                self.end_if_input_lost(set)?;
                Err(from_gate(error))
            }
        }
    }

    /// Ends the program if a gate has dropped an input (guide, chapter 7).
    #[cold]
    fn end_if_input_lost(&self, set: &Set) -> Result<()> {
        for id in &set.ids {
            if gate::has_lost_input(self.own_gate(*id)?) {
                let (tni, bg) = (id.tni(), id.bg());
                asynchronous_error(format_args!("Barrier Input Lost on TNI {tni} BG {bg}"));
            }
        }
        Ok(())
    }

    #[inline]
    fn not_yet(&self, set: &Set) -> Result<()> {
        if let Some(gates) = self.vbgs().unmapped.get() {
            gates.progress();
        }
        let idle = set.idle.load(Ordering::Relaxed) + 1;
        set.idle.store(idle, Ordering::Relaxed);
        if idle >= self.network().engine().patience() {
            self.wait_for_gates(set)?;
        }
        Err(ReturnCode::NotCompleted)
    }

    /// Yields the core. At intervals, checks that the circuit is intact and its processes are alive. Errors: [`ReturnCode::BarrierOther`] if not.
    #[cold]
    fn wait_for_gates(&self, set: &Set) -> Result<()> {
        set.idle.store(0, Ordering::Relaxed);
        polled(set.came.swap(false, Ordering::Relaxed), || {
            waits::needs(&self.awaited(set));
        });
        std::thread::yield_now();
        let Some(mut looks) = set.looks.try_lock() else {
            return Ok(());
        };
        let start = Instant::now();
        if start < looks.next {
            return Ok(());
        }
        self.end_if_input_lost(set)?;
        for id in &set.ids {
            if gate::is_broken(self.own_gate(*id)?) {
                return Err(ReturnCode::BarrierOther);
            }
        }
        looks.place = self.network().look_at_some(looks.place);
        let deaths = self.network().job().deaths();
        // A walk along the circuit needs a connection to each of its processes, so only a new death causes one.
        if deaths != looks.deaths {
            if self.a_participant_died(set) {
                return Err(ReturnCode::BarrierOther);
            }
            looks.deaths = deaths;
        }
        looks.next = start + LOOK.max(start.elapsed() * LOOK_PART);
        Ok(())
    }

    /// Places of the processes from which the set's gates still lack inputs.
    fn awaited(&self, set: &Set) -> Vec<u32> {
        let gates = set.ids.iter().filter_map(|id| self.own_gate(*id).ok());
        let sources = gates.flat_map(gate::awaited).filter_map(VbgId::from_bits);
        let places = sources.filter_map(|id| self.place_of_gate(id));
        let mut places: Vec<u32> = places.filter(|place| *place != self.place()).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// Whether a process of the circuit has died, which stops the whole circuit. Walks from gate to gate. The caller is in a call, and holds
    /// the lock of `looks`.
    fn a_participant_died(&self, set: &Set) -> bool {
        let mut names: Vec<u64> = set.ids.iter().map(|id| id.bits()).collect();
        let mut seen: HashSet<u64> = names.iter().copied().collect();
        let mut places = HashSet::new();
        while let Some(name) = names.pop() {
            let place = VbgId::from_bits(name).and_then(|id| self.place_of_gate(id));
            if let Some(place) = place
                && places.insert(place)
                && self.network().has_died(place)
            {
                return true;
            }
            // SAFETY:
            // - this thread is in the call that found the set.
            let neighbours = unsafe { self.gate_neighbours(name) };
            let neighbours = neighbours.unwrap_or_default().into_iter();
            names.extend(neighbours.filter(|other| seen.insert(*other)));
        }
        false
    }

    fn place_of_gate(&self, id: VbgId) -> Option<u32> {
        let node = self.shape().node(&id.coords())?;
        if self.processes_per_node() == 1 {
            return Some(node);
        }
        let word = word(id);
        let dealt = self
            .dealt_vbg(word)
            .map(|sharer| node * self.processes_per_node() + sharer);
        dealt.or_else(|| self.network().job().here().owner(node, word))
    }

    /// The process of a node that owns one of its VBGs, in a job with several hosts. `None`: all processes are on this host.
    fn dealt_vbg(&self, word: u32) -> Option<u32> {
        let job = self.network().job();
        (!job.are_all_here()).then(|| dealt(word, self.processes_per_node()))
    }

    /// The configured sources and destinations of a VBG.
    ///
    /// # Safety
    /// As for [`gate`](Self::gate).
    unsafe fn gate_neighbours(&self, name: u64) -> unipgas_core::Result<Vec<u64>> {
        let unknown = unipgas_core::Error::StaleRegion;
        // SAFETY:
        // - contract of this call: see `gate`.
        match unsafe { self.gate(name) } {
            Err(unipgas_core::Error::Unsupported) => {
                let (place, index) = self.find_gate(name).ok_or(unknown)?;
                // SAFETY:
                // - contract of this call: see `gate`.
                unsafe { self.network().gate_neighbours(place, index) }
            }
            gate => gate.map(|gate| gate::neighbours(gate).collect()),
        }
    }

    fn find_gate(&self, name: u64) -> Option<(u16, usize)> {
        let id = VbgId::from_bits(name)?;
        let place = u16::try_from(self.place_of_gate(id)?).ok()?;
        Some((place, word(id) as usize))
    }

    /// # Safety
    /// As for [`Network::gate`](unipgas_core::port::Network::gate).
    #[inline]
    unsafe fn gate(&self, name: u64) -> unipgas_core::Result<&Gate> {
        let id = VbgId::from_bits(name);
        let place = id.and_then(|id| Some((self.place_of_gate(id)?, word(id))));
        let Some((place, word)) = place else {
            return Err(unipgas_core::Error::StaleRegion);
        };
        let place = u16::try_from(place).map_err(|_| unipgas_core::Error::StaleRegion)?;
        // SAFETY:
        // - contract of this call: see `Network::gate`.
        unsafe { self.network().gate(place, word as usize) }
    }
}

/// Looks up gates by VBG id.
struct Nodes(&'static UtofuProcess);

impl GateNames for Nodes {
    fn find(&self, name: u64) -> Option<(u16, usize)> {
        self.0.find_gate(name)
    }
}

/// Looks up the gates of a round, in the call that starts the round.
struct Circuit<'a>(&'a UtofuProcess);

impl Resolve for Circuit<'_> {
    #[inline]
    fn gate(&self, name: u64) -> unipgas_core::Result<&Gate> {
        // SAFETY:
        // - this thread is in the call that starts the round.
        unsafe { self.0.gate(name) }
    }

    #[cold]
    fn send(&self, packet: &Packet, sender: Sender) -> unipgas_core::Result<()> {
        let gates = self.0.vbgs().unmapped.get();
        let gates = gates.ok_or(unipgas_core::Error::Unsupported)?;
        gates.settle(sender.name);
        // SAFETY:
        // - as for `gate`.
        unsafe { gates.send(packet, sender) }
    }

    /// Does nothing: uTofu has no function that waits, so no thread sleeps.
    fn wake(&self, _name: u64) {}
}

fn from_gate(error: Error) -> ReturnCode {
    match error {
        Error::Busy | Error::NotStarted => ReturnCode::Busy,
        Error::Mismatch => ReturnCode::BarrierMismatch,
        Error::NotConfigured | Error::NotAStart => ReturnCode::InvalidVbgId,
        Error::Invalid(_) => ReturnCode::InvalidNumber,
        _ => ReturnCode::BarrierOther,
    }
}

/// `enum utofu_reduce_op` for integers (§3.8.3.1). Errors: [`ReturnCode::InvalidOp`], [`ReturnCode::InvalidNumber`].
pub fn integers(op: u32, data: &[u64]) -> Result<Payload> {
    let operation = match op {
        UTOFU_REDUCE_OP_BAND => Operation::Band,
        UTOFU_REDUCE_OP_BOR => Operation::Bor,
        UTOFU_REDUCE_OP_BXOR => Operation::Bxor,
        UTOFU_REDUCE_OP_MAX => Operation::Max,
        UTOFU_REDUCE_OP_MAXLOC => Operation::Maxloc,
        UTOFU_REDUCE_OP_SUM => Operation::Sum,
        _ => return Err(ReturnCode::InvalidOp),
    };
    if data.is_empty() || data.len() > MAX_UINT64 {
        return Err(ReturnCode::InvalidNumber);
    }
    Payload::integers(operation, data, 0).map_err(from_gate)
}

/// [`integers`] for floating-point numbers.
pub fn doubles(op: u32, data: &[f64]) -> Result<Payload> {
    if op != UTOFU_REDUCE_OP_BFPSUM {
        return Err(ReturnCode::InvalidOp);
    }
    if data.is_empty() || data.len() > MAX_DOUBLE {
        return Err(ReturnCode::InvalidNumber);
    }
    Payload::doubles(Operation::Bfpsum, data, 0).map_err(from_gate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_of_a_node_has_start_and_relay_vbgs() {
        let (tnis, vbgs, starts) = (TNIS.into(), VBGS.into(), START_VBGS.into());
        for number in 1..=u32::from(TNIS * START_VBGS) {
            let owned = |process, tni: u32| {
                let all = (0..vbgs).filter(move |bg| dealt(tni * vbgs + bg, number) == process);
                let (start, relays): (Vec<u32>, Vec<u32>) = all.partition(|bg| *bg < starts);
                (start.len(), relays.len())
            };
            for process in 0..number {
                let chosen: Vec<u32> = match number {
                    ..=16 => (0..tnis).collect(),
                    17..=48 => vec![process % tnis, process / number.div_ceil(tnis)],
                    _ => (0..tnis).filter(|tni| owned(process, *tni).0 > 0).collect(),
                };
                assert!(!chosen.is_empty(), "process {process} of {number}");
                for tni in chosen {
                    let (start, relays) = owned(process, tni);
                    assert!(start >= 1 && relays >= 2, "{process} of {number} on {tni}");
                }
            }
        }
    }
}
