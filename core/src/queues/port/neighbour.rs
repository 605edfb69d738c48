//! Other processes by their place, and their ports by index: found once each, without their help.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::directory::{GATES, PORTS, entry};
use super::keys::Reach;
use super::notice::{Fault, PortNotice};
use super::places::Places;
use super::remote::{RemotePort, WEIGHTS, is_table};
use super::service::Service;
use super::trigger::{Header, advance};
use crate::bundle::{BUNDLE_LEN, RegionKey};
use crate::directory::{RegionEntry, read_listed};
use crate::engine::{Connection, Engine};
use crate::gate::{self, Gate};
use crate::limbo::{Limbo, Turns};
use crate::op::{Flags, Remote};
use crate::region::{RemoteRegion, Rights};
use crate::rendezvous::Found;
use crate::transport::Life;
use crate::{Error, Result, driver, tell_refusal, waits};

/// How often the lives of known processes are looked at while something is waited for.
const LOOK: Duration = Duration::from_millis(100);
/// A look takes at most this part of the time, however many processes there are to look at and however few cores.
pub const LOOK_PART: u32 = 64;
/// How many processes that may be unknown are looked at together.
const SOME: u32 = 32;

/// A process that has been found at a place.
struct Neighbour {
    /// Tells it from others that had the place before.
    generation: u32,
    connection: Connection,
    directory: RemoteRegion,
    /// Those that have been found: pointers that own, as [`Arc::into_raw`] makes them.
    ports: Box<[AtomicPtr<RemotePort>; PORTS]>,
    /// Its death has been noticed here.
    mourned: AtomicBool,
}

/// Who is at a place, as far as that has been looked for.
#[derive(Default)]
struct Place {
    neighbour: AtomicPtr<Neighbour>,
    /// Its barrier gates.
    gates: AtomicPtr<RemoteGates>,
}

/// The barrier gates of a process.
pub(super) struct RemoteGates {
    pub region: RemoteRegion,
    /// Where they are mapped here, and executed by whoever brings an input; null where they get messages.
    base: *mut u8,
}

// SAFETY:
// - the pointer is the region's, which is Send, or null.
unsafe impl Send for RemoteGates {}

/// The processes of a job that have taken a place. Ports are found and used in [calls](crate::calls::Call), and by the progress
/// thread while it holds the queues of a port of this process: they stay as long, whatever becomes of them.
pub struct Network {
    engine: Engine,
    job: Places,
    service: Service,
    places: Box<[Place]>,
    /// For each place: held by who finds it, its gates or its ports.
    finding: Box<[Mutex<()>]>,
    /// Processes, ports and keys found before.
    limbo: Limbo,
    pid: u32,
    next_look: Mutex<Instant>,
    /// Where peers do not map them.
    own_gates: OnceLock<&'static [Gate]>,
}

/// Why a process or its port cannot be found.
#[cold]
fn not_found(error: Error) -> Fault {
    tell_refusal(&error);
    match error {
        Error::Os(_) | Error::Unreachable(_) => Fault::Other,
        _ => Fault::Peer,
    }
}

impl Network {
    /// The network of the processes at the places of `job`.
    pub fn new(engine: Engine, job: impl Into<Places>) -> Result<Self> {
        let job = job.into();
        let places = job.here().layout().places;
        Ok(Network {
            service: Service::new(&engine)?,
            places: (0..places).map(|_| Place::default()).collect(),
            finding: (0..places).map(|_| Mutex::default()).collect(),
            engine,
            job,
            limbo: Limbo::of_threads(),
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

    /// Where processes meet.
    pub fn job(&self) -> &Places {
        &self.job
    }

    /// Counts the turns of a user of ports or gates that makes no [calls](crate::calls::Call), one thread at a time.
    pub fn turns(&self) -> Arc<Turns> {
        self.limbo.turns()
    }

    /// Where processes, ports and keys wait that are not found any more.
    pub(super) fn limbo(&self) -> &Limbo {
        &self.limbo
    }

    /// This process.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether a process has ended, so that no thread of it runs any more.
    #[cold]
    pub(super) fn has_ended(&self, pid: u32) -> bool {
        crate::job::process_ended(pid)
    }

    /// Port `index` of the process at `place`. After the first time: a few loads. Errors: [`Fault::Peer`]; [`Fault::Other`] where the
    /// system does not let this process reach it, which is told.
    #[inline(always)]
    pub(super) fn port(&self, place: u16, index: u16) -> Result<&RemotePort, Fault> {
        match self.port_fast(place, index) {
            Some(port) => Ok(port),
            None => self.find(place, index).map_err(not_found),
        }
    }

    /// The same, if it has been found before and is still there.
    #[inline(always)]
    pub(super) fn port_fast(&self, place: u16, index: u16) -> Option<&RemotePort> {
        let neighbour = self.places.get(usize::from(place))?.neighbour()?;
        let known = neighbour.ports.get(usize::from(index))?;
        // SAFETY:
        // - null, or made by Arc::into_raw and kept until this call is over.
        let port = unsafe { known.load(Ordering::Acquire).as_ref() }?;
        port.is_current().then_some(port)
    }

    /// The same, for callers that keep it longer than this call.
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
        // - made by Arc::into_raw; what it owns is not given back before this call is over.
        unsafe {
            Arc::increment_strong_count(port);
            Some(Arc::from_raw(port))
        }
    }

    /// Barrier gate `index` of the process at `place`. After the first time: a few loads. Errors: [`Error::PeerDead`],
    /// [`Error::StaleRegion`] if it has no gates, [`Error::Unsupported`] where they are not mapped here, and not this process's.
    ///
    /// # Safety
    /// This thread is in a [call](crate::calls::Call), or in a turn that is counted by [`turns`](Self::turns), and is done with the gate before
    /// the end of either.
    #[inline]
    pub unsafe fn gate(&self, place: u16, index: usize) -> Result<&Gate> {
        // SAFETY:
        // - the caller's word.
        let gates = unsafe { self.gates(place) }?;
        let base = gates.base;
        if base.is_null() {
            return self.own_gate(place, index);
        }
        gates
            .region
            .check(index * size_of::<Gate>(), size_of::<Gate>(), Rights::FULL)?;
        // SAFETY:
        // - in bounds, as just checked, and mapped as long as the region is kept: until the caller's call is over; aligned, as
        //   `find_gates` has seen.
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

    /// The gates that barrier gate `index` of the process at `place` is set to get inputs from and to send outputs to, wherever it is.
    /// Errors: as for [`gate`](Self::gate), and what became of reading it.
    ///
    /// # Safety
    /// As for [`gate`](Self::gate).
    #[cold]
    pub unsafe fn gate_neighbours(&self, place: u16, index: usize) -> Result<Vec<u64>> {
        // SAFETY:
        // - the caller's word.
        let gates = unsafe { self.gates(place) }?;
        let mut bytes = [0; gate::SETTINGS];
        self.read(&gates.region, index * size_of::<Gate>(), &mut bytes)?;
        Ok(gate::neighbours_in(&bytes))
    }

    /// Of gates that peers do not map, those of this process are. Errors: [`Error::Unsupported`] for others.
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
        // Where one route is not mapped, owners execute all of theirs: what several processes sent on would come in any order.
        let base = match self.engine.is_mapped() {
            true => region.parts().base,
            false => null_mut(),
        };
        // What it lists may be anything.
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
        // - null, or made by Arc::into_raw and kept until this call is over.
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
            // - made by Arc::into_raw above; the swap gave what it owns to this thread alone.
            let old = unsafe { Arc::from_raw(old) };
            self.limbo.retire(Box::new(old), WEIGHTS.0);
        }
        // SAFETY:
        // - just made; kept until this call is over.
        Ok(unsafe { &*fresh })
    }

    fn place(&self, number: u16) -> Result<(&Place, u32)> {
        let place = self.places.get(usize::from(number));
        Ok((place.ok_or(Error::PeerDead)?, number.into()))
    }

    /// The process at place `number`, which lives. Under the lock for finding it.
    fn neighbour<'a>(&'a self, place: &'a Place, number: u32) -> Result<&'a Neighbour> {
        let found = self.job.find(number)?.ok_or(Error::PeerDead)?;
        let known = place.neighbour();
        let neighbour = match known.filter(|known| known.generation == found.generation) {
            Some(known) => known,
            None => {
                let fresh = Box::into_raw(Box::new(self.meet(&found)?));
                let old = place.neighbour.swap(fresh, Ordering::AcqRel);
                if let Some(gates) = place.take_gates() {
                    self.limbo.retire(gates, WEIGHTS.0);
                }
                if !old.is_null() {
                    // SAFETY:
                    // - made by Box::into_raw above; the swap gave it to this thread alone.
                    let old = unsafe { Box::from_raw(old) };
                    // VCQs may remember them.
                    let ports = old.known_ports().inspect(|port| port.has_left()).count();
                    self.limbo.retire(old, (1 + ports) * WEIGHTS.0);
                }
                // SAFETY:
                // - just made; it stays at least until the lock is let go of, or as long as this call holds queues.
                unsafe { &*fresh }
            }
        };
        if neighbour.connection.life() == Life::Alive {
            Ok(neighbour)
        } else {
            Err(Error::PeerDead)
        }
    }

    fn meet(&self, found: &Found) -> Result<Neighbour> {
        let connection = self.engine.connect(&found.address)?;
        Ok(Neighbour {
            generation: found.generation,
            directory: connection.import(&found.key)?,
            connection,
            ports: Box::new([const { AtomicPtr::new(null_mut()) }; PORTS]),
            mourned: AtomicBool::new(false),
        })
    }

    /// Whether memory could not be reached because its process has gone.
    #[cold]
    pub(super) fn blame(&self, port: &RemotePort, reach: Reach) -> Fault {
        if reach == Reach::Key && (!port.is_current() || port.owner_has_gone()) {
            Fault::Peer
        } else {
            reach.at_target()
        }
    }

    /// Reads from another process's region, waiting for it.
    pub(super) fn read(&self, region: &RemoteRegion, offset: usize, into: &mut [u8]) -> Result<()> {
        self.service
            .read(&self.engine, Remote { region, offset }, into)
    }

    /// Writes a few bytes to another process's region, waiting for it.
    pub(super) fn write(&self, from: &[u8], region: &RemoteRegion, offset: usize) -> Result<()> {
        self.service
            .write(&self.engine, from, Remote { region, offset })
    }

    /// Copies between the memory of two processes, waiting for it.
    pub(super) fn relay(
        &self,
        from: Remote<'_>,
        to: Remote<'_>,
        len: usize,
        flags: Flags,
    ) -> Result<()> {
        self.service.relay(&self.engine, from, to, len, flags)
    }

    /// Delivers a notice, waiting for that. A full inbox is its owner's failure.
    pub(super) fn tell(&self, port: &RemotePort, notice: PortNotice) {
        let record = notice.to_record();
        let _ = self.service.deliver(&self.engine, port.inbox(), record);
    }

    /// Leaves the job: others find nothing here any more.
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

    /// Looks at the lives of some processes, whether they are known here or not, from one place on; gives the place at which to go on
    /// the next time. If all who wait do so, every death is soon counted by somebody ([`Places::deaths`]), though each looks at few.
    #[cold]
    pub fn look_at_some(&self, from: u32) -> u32 {
        let places = self.job.places_used().max(1);
        let some = places.min(SOME);
        for place in from..from + some {
            self.has_died(place % places);
        }
        (from + some) % places
    }

    /// Looks at the lives of known processes, now and then: whoever has died takes nothing more, here and elsewhere; what it was
    /// carrying out for others is gone on with.
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
            // Buries the dead.
            let life = neighbour.connection.life();
            if life == Life::Alive {
                continue;
            }
            if !neighbour.mourned.swap(true, Ordering::Relaxed) {
                deaths = true;
                self.job.take_notice(place, life);
            }
            neighbour.known_ports().for_each(RemotePort::has_left);
        }
        *next = start + LOOK.max(start.elapsed() * LOOK_PART);
        drop(next);
        if deaths {
            self.go_on_for_the_dead();
        }
    }

    fn known(&self) -> impl Iterator<Item = (u32, &Neighbour)> {
        // Beyond them there never was anybody.
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

impl Drop for Network {
    fn drop(&mut self) {
        for place in &self.places {
            let neighbour = place.neighbour.load(Ordering::Acquire);
            if !neighbour.is_null() {
                // SAFETY:
                // - made by Box::into_raw, and nobody else has a reference to self any more.
                drop(unsafe { Box::from_raw(neighbour) });
            }
            drop(place.take_gates());
        }
    }
}

impl Place {
    /// For calls that hold the queues of a port of this process, and whoever holds the lock for finding it.
    #[inline(always)]
    fn neighbour(&self) -> Option<&Neighbour> {
        // SAFETY:
        // - null, or made by Box::into_raw and kept until the call is over in which it was read; it is retired under that lock.
        unsafe { self.neighbour.load(Ordering::Acquire).as_ref() }
    }

    #[inline(always)]
    fn gates(&self) -> Option<&RemoteGates> {
        // SAFETY:
        // - null, or made by Box::into_raw and kept until the call is over in which it was read.
        unsafe { self.gates.load(Ordering::Acquire).as_ref() }
    }

    fn take_gates(&self) -> Option<Box<RemoteGates>> {
        let gates = self.gates.swap(null_mut(), Ordering::AcqRel);
        // SAFETY:
        // - made by Box::into_raw; the swap gave it to this thread alone.
        (!gates.is_null()).then(|| unsafe { Box::from_raw(gates) })
    }
}

impl Neighbour {
    fn known_ports(&self) -> impl Iterator<Item = &RemotePort> {
        self.ports.iter().filter_map(|known| {
            // SAFETY:
            // - null, or made by Arc::into_raw and kept until the call is over in which it was read.
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
                // - made by Arc::into_raw; nobody finds it here any more.
                drop(unsafe { Arc::from_raw(port) });
            }
        }
    }
}
