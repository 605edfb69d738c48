//! Lookup of other processes by place, and of their ports by index. Each is found once, without help of its process.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::directory::{GATES, PORTS, entry};
use super::keys::Reach;
use super::notice::{Fault, PortNotice};
use super::places::JobPlaces;
use super::remote::{RemotePort, WEIGHTS, is_table};
use super::trigger::{Header, advance};
use crate::gate::{self, Gate};
use unipgas_base::reclaimer::{ReaderEpoch, Reclaimer};
use unipgas_base::{Error, Result, Rights, driver, tell_refusal, waits};
use unipgas_engine::Service;
use unipgas_engine::bundle::{BUNDLE_LEN, RegionKey};
use unipgas_engine::directory::{RegionEntry, read_listed};
use unipgas_engine::engine::{Connection, Engine};
use unipgas_engine::op::{Flags, Remote};
use unipgas_engine::region::RemoteRegion;
use unipgas_engine::transport::Life;
use unipgas_job::rendezvous::PublishedProcess;

/// Shortest interval between liveness checks of known processes.
const LOOK: Duration = Duration::from_millis(100);
/// Liveness checks take at most this fraction (1/64) of the time, for any number of processes and cores.
pub const LOOK_PART: u32 = 64;
/// Number of processes that [`PortNetwork::look_at_some`] checks in a call.
const SOME: u32 = 32;

/// A process that was found at a place.
struct Neighbour {
    /// Distinguishes the processes that had the place.
    generation: u32,
    connection: Connection,
    directory: RemoteRegion,
    /// Ports that were found: owning pointers, made by [`Arc::into_raw`].
    ports: Box<[AtomicPtr<RemotePort>; PORTS]>,
    /// This process has noticed its end.
    mourned: AtomicBool,
}

/// The process at a place, if it was looked up.
#[derive(Default)]
struct Place {
    neighbour: AtomicPtr<Neighbour>,
    /// Barrier gates of the process.
    gates: AtomicPtr<RemoteGates>,
}

/// The barrier gates of a process.
pub(super) struct RemoteGates {
    pub region: RemoteRegion,
    /// Mapped base, if a process that delivers an input executes the gates. Null: gates get messages.
    base: *mut u8,
}

// SAFETY:
// - the pointer is null, or the base of the region, which is Send.
unsafe impl Send for RemoteGates {}

/// The processes of a job with a place. [Calls](unipgas_base::calls::Call) find and use ports, and so does the progress thread while it holds the queues of a port of
/// this process. Ports stay valid until the call ends or the queues are released.
pub struct PortNetwork {
    engine: Engine,
    job: JobPlaces,
    service: Service,
    places: Box<[Place]>,
    /// Indexed by place. Held during a lookup of the process, its gates or its ports.
    finding: Box<[Mutex<()>]>,
    /// Retired processes, ports and keys.
    reclaimer: Reclaimer,
    pid: u32,
    next_look: Mutex<Instant>,
    /// Set if peers do not map gates.
    own_gates: OnceLock<&'static [Gate]>,
}

/// The fault for a process or port that is not found.
#[cold]
fn not_found(error: Error) -> Fault {
    tell_refusal(&error);
    match error {
        Error::Os(_) | Error::Unreachable(_) => Fault::Other,
        _ => Fault::Peer,
    }
}

impl PortNetwork {
    /// The network of the processes at the places of `job`. Errors: as [`Engine::endpoint`].
    pub fn new(engine: Engine, job: impl Into<JobPlaces>) -> Result<Self> {
        let job = job.into();
        let places = job.here().layout().places;
        Ok(PortNetwork {
            service: Service::new(&engine)?,
            places: (0..places).map(|_| Place::default()).collect(),
            finding: (0..places).map(|_| Mutex::default()).collect(),
            engine,
            job,
            reclaimer: Reclaimer::of_threads(),
            pid: std::process::id(),
            next_look: Mutex::new(Instant::now() + LOOK),
            own_gates: OnceLock::new(),
        })
    }

    /// The engine.
    #[inline(always)]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The places of the job.
    pub fn job(&self) -> &JobPlaces {
        &self.job
    }

    /// A counter of turns for a user of ports or gates that makes no [calls](unipgas_base::calls::Call). One thread at a time may use it.
    pub fn turns(&self) -> Arc<ReaderEpoch> {
        self.reclaimer.turns()
    }

    /// Holds retired processes, ports and keys until no call can read them.
    pub(super) fn reclaimer(&self) -> &Reclaimer {
        &self.reclaimer
    }

    /// Pid of this process.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether a process has ended with all its threads.
    #[cold]
    pub(super) fn has_ended(&self, pid: u32) -> bool {
        unipgas_base::process::has_no_threads(pid)
    }

    /// Port `index` of the process at `place`. A few loads, except at the first time. Errors: [`Fault::Peer`]; [`Fault::Other`] if the system refuses access,
    /// with a message.
    #[inline(always)]
    pub(super) fn port(&self, place: u16, index: u16) -> Result<&RemotePort, Fault> {
        match self.port_fast(place, index) {
            Some(port) => Ok(port),
            None => self.find(place, index).map_err(not_found),
        }
    }

    /// [`port`](Self::port), if it was found before and is current.
    #[inline(always)]
    pub(super) fn port_fast(&self, place: u16, index: u16) -> Option<&RemotePort> {
        let neighbour = self.places.get(usize::from(place))?.neighbour()?;
        let known = neighbour.ports.get(usize::from(index))?;
        // SAFETY:
        // - null, or made by Arc::into_raw; kept until this call is over.
        let port = unsafe { known.load(Ordering::Acquire).as_ref() }?;
        port.is_current().then_some(port)
    }

    /// [`port`](Self::port), for callers that keep it longer than this call.
    ///
    /// # Safety
    /// This thread is in a call, or holds the queues of a port of this process in a turn.
    #[cold]
    pub(super) unsafe fn share(&self, place: u16, index: u16) -> Option<Arc<RemotePort>> {
        self.port(place, index).ok()?;
        let neighbour = self.places.get(usize::from(place))?.neighbour()?;
        let known = neighbour.ports.get(usize::from(index))?;
        let port = known.load(Ordering::Acquire);
        if port.is_null() {
            return None;
        }
        // SAFETY:
        // - made by Arc::into_raw; the network's reference is not dropped before this call is over.
        unsafe {
            Arc::increment_strong_count(port);
            Some(Arc::from_raw(port))
        }
    }

    /// Barrier gate `index` of the process at `place`. A few loads, except at the first time. Errors: [`Error::PeerDead`]; [`Error::StaleRegion`] if the
    /// process has no gates; [`Error::Unsupported`] if the gate is not mapped, and belongs to another process; as [`RemoteRegion::check`] for the index.
    ///
    /// # Safety
    /// This thread is in a [call](unipgas_base::calls::Call), or in a turn that [`turns`](Self::turns) counts. It uses the gate only until the call or turn ends.
    #[inline]
    pub unsafe fn gate(&self, place: u16, index: usize) -> Result<&Gate> {
        // SAFETY:
        // - contract of this call: this thread is in a call or turn.
        let gates = unsafe { self.gates(place) }?;
        let base = gates.base;
        if base.is_null() {
            return self.own_gate(place, index);
        }
        gates
            .region
            .check(index * size_of::<Gate>(), size_of::<Gate>(), Rights::FULL)?;
        // SAFETY:
        // - in bounds, as just checked. Mapped while the region is kept: until the call or turn ends. `find_gates` has checked the alignment.
        Ok(unsafe { Gate::at(base, index) })
    }

    /// The memory of the barrier gates of the process at `place`. Errors: as for [`gate`](Self::gate).
    ///
    /// # Safety
    /// As for [`gate`](Self::gate).
    #[inline(always)]
    pub(super) unsafe fn gates(&self, place: u16) -> Result<&RemoteGates> {
        let known = self.places.get(usize::from(place));
        match known.and_then(Place::gates) {
            Some(gates) if gates.region.is_current() => Ok(gates),
            _ => self.find_gates(place),
        }
    }

    /// The configured sources and destinations of barrier gate `index` of the process at `place`, mapped or not. Errors: as for [`gate`](Self::gate); errors of
    /// the read.
    ///
    /// # Safety
    /// As for [`gate`](Self::gate).
    #[cold]
    pub unsafe fn gate_neighbours(&self, place: u16, index: usize) -> Result<Vec<u64>> {
        // SAFETY:
        // - contract of this call, as for `gate`.
        let gates = unsafe { self.gates(place) }?;
        let mut bytes = [0; gate::SETTINGS];
        self.read(&gates.region, index * size_of::<Gate>(), &mut bytes)?;
        Ok(gate::neighbours_in(&bytes))
    }

    /// A gate of this process, if peers do not map gates. Errors: [`Error::Unsupported`] for gates of other processes.
    #[cold]
    fn own_gate(&self, place: u16, index: usize) -> Result<&Gate> {
        let own = self
            .own_gates
            .get()
            .filter(|_| self.own_place() == Ok(place));
        own.and_then(|own| own.get(index)).ok_or(Error::Unsupported)
    }

    pub(super) fn set_own_gates(&self, gates: &'static [Gate]) {
        let _ = self.own_gates.set(gates);
    }

    /// The place of this process. Errors: [`Error::InvalidArgument`] if it has none.
    pub(super) fn own_place(&self) -> Result<u16> {
        let place = self.job.here().place();
        let place = place.ok_or_else(|| Error::InvalidArgument("a port needs a place".into()))?;
        Ok(place as u16)
    }

    #[cold]
    fn find_gates(&self, place: u16) -> Result<&RemoteGates> {
        let (place, number) = self.place(place)?;
        let _slices = waits::in_slices(number);
        let _finding = driver::lock(&self.finding[number as usize]);
        let neighbour = self.neighbour(place, number)?;
        if let Some(gates) = place.gates() {
            return Ok(gates);
        }
        let listed: RegionEntry = read_listed(entry(GATES), |at, into| {
            self.read(&neighbour.directory, at, into)
        })?
        .ok_or(Error::StaleRegion)?;
        let region = neighbour
            .connection
            .import(&RegionKey::from_bytes(&listed.data)?)?;
        // If one route is not mapped, each owner executes all its gates. Otherwise several processes would forward outputs, in no fixed order.
        let base = match self.engine.is_mapped() {
            true => region.parts().base,
            false => null_mut(),
        };
        // The owner may list any region.
        if !base.addr().is_multiple_of(align_of::<Gate>()) {
            return Err(Error::StaleRegion);
        }
        let gates = Box::into_raw(Box::new(RemoteGates { region, base }));
        place.gates.store(gates, Ordering::Release);
        // SAFETY:
        // - just made; kept until this call is over.
        Ok(unsafe { &*gates })
    }

    #[cold]
    fn find(&self, place: u16, index: u16) -> Result<&RemotePort> {
        let (place, number) = self.place(place)?;
        let _slices = waits::in_slices(number);
        let _finding = driver::lock(&self.finding[number as usize]);
        let neighbour = self.neighbour(place, number)?;
        let slot = neighbour
            .ports
            .get(usize::from(index))
            .ok_or(Error::StaleRegion)?;
        // SAFETY:
        // - null, or made by Arc::into_raw; kept until this call is over.
        if let Some(port) = unsafe { slot.load(Ordering::Acquire).as_ref() }
            && port.is_current()
        {
            return Ok(port);
        }
        let listed: RegionEntry = read_listed(entry(usize::from(index)), |at, into| {
            self.read(&neighbour.directory, at, into)
        })?
        .ok_or(Error::StaleRegion)?;
        let import = |key: &[u8]| neighbour.connection.import(&RegionKey::from_bytes(key)?);
        let table = Some(import(&listed.data)?)
            .filter(is_table)
            .ok_or(Error::StaleRegion)?;
        let mut spill = [0; BUNDLE_LEN];
        self.read(&table, Header::SPILL, &mut spill)?;
        let mut kind = [0; 4];
        self.read(&table, Header::KIND, &mut kind)?;
        let port = RemotePort::new(
            number,
            neighbour.connection.clone(),
            u32::from_ne_bytes(kind),
            table,
            import(&listed.notices)?,
            import(&spill)?,
        );
        let fresh = Arc::into_raw(Arc::new(port)).cast_mut();
        let old = slot.swap(fresh, Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY:
            // - made by Arc::into_raw above, in an earlier call; the swap passed its reference to this thread alone.
            let old = unsafe { Arc::from_raw(old) };
            self.reclaimer.retire(Box::new(old), WEIGHTS.0);
        }
        // SAFETY:
        // - just made; kept until this call is over.
        Ok(unsafe { &*fresh })
    }

    fn place(&self, number: u16) -> Result<(&Place, u32)> {
        let place = self.places.get(usize::from(number));
        Ok((place.ok_or(Error::PeerDead)?, number.into()))
    }

    /// The live process at place `number`. The caller holds the lock for lookups.
    fn neighbour<'a>(&'a self, place: &'a Place, number: u32) -> Result<&'a Neighbour> {
        let found = self.job.find(number)?.ok_or(Error::PeerDead)?;
        let known = place.neighbour();
        let neighbour = match known.filter(|known| known.generation == found.generation) {
            Some(known) => known,
            None => {
                let fresh = Box::into_raw(Box::new(self.meet(&found)?));
                let old = place.neighbour.swap(fresh, Ordering::AcqRel);
                if let Some(gates) = place.take_gates() {
                    self.reclaimer.retire(gates, WEIGHTS.0);
                }
                if !old.is_null() {
                    // SAFETY:
                    // - made by Box::into_raw above, in an earlier call; the swap passed it to this thread alone.
                    let old = unsafe { Box::from_raw(old) };
                    // VCQs may still refer to the ports.
                    let ports = old
                        .known_ports()
                        .inspect(|port| port.mark_departed())
                        .count();
                    self.reclaimer.retire(old, (1 + ports) * WEIGHTS.0);
                }
                // SAFETY:
                // - just made; it lives at least until the lock is released, or until this call releases its queues.
                unsafe { &*fresh }
            }
        };
        if neighbour.connection.life() == Life::Alive {
            Ok(neighbour)
        } else {
            Err(Error::PeerDead)
        }
    }

    fn meet(&self, found: &PublishedProcess) -> Result<Neighbour> {
        let connection = self.engine.connect(&found.address)?;
        Ok(Neighbour {
            generation: found.generation,
            directory: connection.import(&found.key)?,
            connection,
            ports: Box::new([const { AtomicPtr::new(null_mut()) }; PORTS]),
            mourned: AtomicBool::new(false),
        })
    }

    /// The fault for memory that was not reached: its process may have ended.
    #[cold]
    pub(super) fn blame(&self, port: &RemotePort, reach: Reach) -> Fault {
        if reach == Reach::Key && (!port.is_current() || port.owner_has_gone()) {
            Fault::Peer
        } else {
            reach.at_target()
        }
    }

    /// Forgets the process known at `place` of this host if another one has taken the place. Its memory stays mapped after its end, so writes to it succeed and
    /// reach no process. A caller that gets an address from another process calls this before it uses the address: both processes may have had it.
    #[cold]
    pub fn renew(&self, place: u32) {
        if !self.job.is_here(place) {
            return;
        }
        if let Some(at) = self.places.get(place as usize) {
            let _finding = driver::lock(&self.finding[place as usize]);
            if at.neighbour().is_some() {
                // A dead or missing process is found by the operation that uses the address.
                let _ = self.neighbour(at, place);
            }
        }
    }

    /// Reads from another process's region. Blocks.
    pub(super) fn read(&self, region: &RemoteRegion, offset: usize, into: &mut [u8]) -> Result<()> {
        self.service
            .read(&self.engine, Remote { region, offset }, into)
    }

    /// Writes a few bytes to another process's region. Blocks.
    pub(super) fn write(&self, from: &[u8], region: &RemoteRegion, offset: usize) -> Result<()> {
        self.service
            .write(&self.engine, from, Remote { region, offset })
    }

    /// Copies between the memory of two processes. Blocks.
    pub(super) fn relay(
        &self,
        from: Remote<'_>,
        to: Remote<'_>,
        len: usize,
        flags: Flags,
    ) -> Result<()> {
        self.service.relay(&self.engine, from, to, len, flags)
    }

    /// Delivers a notice. Blocks. Errors are ignored: a full inbox is an error of its owner.
    pub(super) fn tell(&self, port: &RemotePort, notice: PortNotice) {
        let record = notice.to_record();
        let _ = self.service.deliver(&self.engine, port.inbox(), record);
    }

    /// Leaves the job: peers find nothing here any more.
    pub fn leave(&self) {
        self.engine.leave();
        self.job.leave();
    }

    /// Whether the process at `place` has ended without leaving. May read /proc.
    pub fn has_died(&self, place: u32) -> bool {
        if let Some(at) = self.places.get(place as usize)
            && let Some(_finding) = self.finding[place as usize].try_lock()
            && let Some(neighbour) = at.neighbour()
            && neighbour.connection.life() == Life::Dead
        {
            self.job.take_notice(place, Life::Dead);
        }
        self.job.has_died(place)
    }

    /// Checks the liveness of some processes, known or not, from place `from` on. Returns the place of the next check. If all waiting processes call it, one of
    /// them soon counts each death ([`JobPlaces::deaths`]), though each checks few.
    #[cold]
    pub fn look_at_some(&self, from: u32) -> u32 {
        let places = self.job.places_used().max(1);
        let some = places.min(SOME);
        for place in from..from + some {
            self.has_died(place % places);
        }
        (from + some) % places
    }

    /// Checks the liveness of known processes, at intervals. Marks the ports of an ended process here, notes its death for all processes, and continues the
    /// triggered commands that it was carrying out.
    #[cold]
    pub(super) fn look(&self) {
        let Some(mut next) = self.next_look.try_lock() else {
            return;
        };
        let start = Instant::now();
        if start < *next {
            return;
        }
        let mut deaths = false;
        for (place, neighbour) in self.known() {
            // Once a process has ended, `life` also refuses further operations on its regions.
            let life = neighbour.connection.life();
            if life == Life::Alive {
                continue;
            }
            if !neighbour.mourned.swap(true, Ordering::Relaxed) {
                deaths = true;
                self.job.take_notice(place, life);
            }
            neighbour.known_ports().for_each(RemotePort::mark_departed);
        }
        *next = start + LOOK.max(start.elapsed() * LOOK_PART);
        drop(next);
        if deaths {
            self.go_on_for_the_dead();
        }
    }

    fn known(&self) -> impl Iterator<Item = (u32, &Neighbour)> {
        // No process ever had a place from there on.
        (0..self.job.places_used())
            .zip(&self.places)
            .filter_map(|(number, place)| Some((number, place.neighbour()?)))
    }

    #[cold]
    fn go_on_for_the_dead(&self) {
        for port in self
            .known()
            .flat_map(|(_, neighbour)| neighbour.known_ports())
        {
            if port.is_current() && port.trigger().is_some_and(|trigger| trigger.is_ready()) {
                advance(self, port);
            }
        }
    }
}

impl Drop for PortNetwork {
    fn drop(&mut self) {
        for place in &self.places {
            let neighbour = place.neighbour.load(Ordering::Acquire);
            if !neighbour.is_null() {
                // SAFETY:
                // - made by Box::into_raw; `&mut self` excludes other references.
                drop(unsafe { Box::from_raw(neighbour) });
            }
            drop(place.take_gates());
        }
    }
}

impl Place {
    /// For calls that hold the queues of a port of this process, and for holders of the lock for lookups.
    #[inline(always)]
    fn neighbour(&self) -> Option<&Neighbour> {
        // SAFETY:
        // - null, or made by Box::into_raw; kept until the call that read it is over. It is retired under that lock.
        unsafe { self.neighbour.load(Ordering::Acquire).as_ref() }
    }

    #[inline(always)]
    fn gates(&self) -> Option<&RemoteGates> {
        // SAFETY:
        // - null, or made by Box::into_raw; kept until the call that read it is over.
        unsafe { self.gates.load(Ordering::Acquire).as_ref() }
    }

    fn take_gates(&self) -> Option<Box<RemoteGates>> {
        let gates = self.gates.swap(null_mut(), Ordering::AcqRel);
        // SAFETY:
        // - made by Box::into_raw; the swap passed it to this thread alone.
        (!gates.is_null()).then(|| unsafe { Box::from_raw(gates) })
    }
}

impl Neighbour {
    fn known_ports(&self) -> impl Iterator<Item = &RemotePort> {
        self.ports.iter().filter_map(|known| {
            // SAFETY:
            // - null, or made by Arc::into_raw; kept until the call that read it is over.
            unsafe { known.load(Ordering::Acquire).as_ref() }
        })
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        for known in &*self.ports {
            let port = known.load(Ordering::Acquire);
            if !port.is_null() {
                // SAFETY:
                // - made by Arc::into_raw; no thread can find it here any more.
                drop(unsafe { Arc::from_raw(port) });
            }
        }
    }
}
