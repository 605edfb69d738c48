//! Other processes by their place, and their ports by index: found once each, without their help.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;

use super::directory::{GATES, PORTS, entry};
use super::keys::Reach;
use super::limbo::Limbo;
use super::notice::{Fault, PortNotice};
use super::remote::{RemotePort, WEIGHTS};
use super::service::Service;
use super::trigger::{Header, advance};
use crate::bundle::{BUNDLE_LEN, RegionKey};
use crate::directory::{RegionEntry, read_listed};
use crate::engine::{Connection, Engine};
use crate::gate::Gate;
use crate::op::{Flags, Remote};
use crate::region::{RemoteRegion, Rights};
use crate::rendezvous::{Found, Rendezvous};
use crate::transport::Life;
use crate::{Error, Result};

/// How often the lives of known processes are looked at while something is waited for.
const LOOK: Duration = Duration::from_millis(100);

/// A process that has been found at a place.
struct Neighbour {
    /// Tells it from others that had the place before.
    generation: u32,
    connection: Connection,
    directory: RemoteRegion,
    /// Null when another process has its place.
    ports: AtomicPtr<Ports>,
    /// Where its barrier gates are, once they have been looked for.
    gates: OnceCell<RemoteRegion>,
    /// Its death has been noticed here.
    mourned: AtomicBool,
}

/// Processes found before, whose gates may still be in use in another thread.
#[allow(clippy::vec_box, reason = "their addresses must stay")]
type Former = Vec<Box<Neighbour>>;

/// The ports that have been found of a process: pointers that own, as [`Arc::into_raw`] makes them.
struct Ports([AtomicPtr<RemotePort>; PORTS]);

/// The processes of a job that have taken a place. Ports are found and used by calls that hold the queues of a port of this process:
/// they stay as long as the call, whatever becomes of them.
pub struct Network {
    engine: Engine,
    rendezvous: Rendezvous,
    service: Service,
    places: Box<[AtomicPtr<Neighbour>]>,
    /// Guards finding.
    former: Mutex<Former>,
    /// Ports found before, and keys.
    limbo: Limbo,
    pid: u32,
    last_look: Mutex<Instant>,
}

impl Network {
    /// The network of the job that `rendezvous` belongs to.
    pub fn new(engine: Engine, rendezvous: Rendezvous) -> Result<Self> {
        Ok(Network {
            service: Service::new(&engine)?,
            places: (0..rendezvous.layout().places)
                .map(|_| AtomicPtr::new(null_mut()))
                .collect(),
            engine,
            rendezvous,
            former: Mutex::default(),
            limbo: Limbo::new(),
            pid: std::process::id(),
            last_look: Mutex::new(Instant::now()),
        })
    }

    /// The engine.
    #[inline(always)]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Where processes meet.
    pub fn rendezvous(&self) -> &Rendezvous {
        &self.rendezvous
    }

    /// Where ports and keys wait that are not found any more.
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

    /// Port `index` of the process at `place`. After the first time: a few loads. Errors: [`Fault::Peer`].
    #[inline(always)]
    pub(super) fn port(&self, place: u16, index: u16) -> Result<&RemotePort, Fault> {
        match self.port_at_hand(place, index) {
            Some(port) => Ok(port),
            None => self.find(place, index).map_err(|_| Fault::Peer),
        }
    }

    /// The same, if it has been found before and is still there.
    #[inline(always)]
    pub(super) fn port_at_hand(&self, place: u16, index: u16) -> Option<&RemotePort> {
        let known = self.places.get(usize::from(place))?;
        // SAFETY:
        // - null, or made by Box::into_raw and kept until self is dropped.
        let neighbour = unsafe { known.load(Ordering::Acquire).as_ref() }?;
        let known = neighbour.ports()?.0.get(usize::from(index))?;
        // SAFETY:
        // - null, or made by Arc::into_raw and kept until this call is over.
        let port = unsafe { known.load(Ordering::Acquire).as_ref() }?;
        port.is_current().then_some(port)
    }

    /// The same, for whoever keeps it longer than this call.
    ///
    /// # Safety
    /// The queues of a port of this process are held.
    #[cold]
    pub(super) unsafe fn share(&self, place: u16, index: u16) -> Option<Arc<RemotePort>> {
        self.port(place, index).ok()?;
        let known = self.places.get(usize::from(place))?;
        // SAFETY:
        // - null, or made by Box::into_raw and kept until self is dropped.
        let neighbour = unsafe { known.load(Ordering::Acquire).as_ref() }?;
        let known = neighbour.ports()?.0.get(usize::from(index))?;
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
    /// [`Error::StaleRegion`] if it has no gates, [`Error::Unsupported`] where they are not mapped here.
    #[inline]
    pub fn gate(&self, place: u16, index: usize) -> Result<&Gate> {
        let known = self.places.get(usize::from(place));
        let known = known.map_or(null_mut(), |known| known.load(Ordering::Acquire));
        // SAFETY:
        // - null, or made by Box::into_raw and kept until self is dropped.
        let gates = match unsafe { known.as_ref() }.and_then(|known| known.gates.get()) {
            Some(gates) if gates.is_current() => gates,
            _ => self.find_gates(place)?,
        };
        let base = gates.parts().base;
        if base.is_null() {
            return Err(Error::Unsupported);
        }
        gates.check(index * size_of::<Gate>(), size_of::<Gate>(), Rights::FULL)?;
        // SAFETY:
        // - in bounds, as just checked, and mapped as long as the region is kept, which self does; regions are page-aligned.
        Ok(unsafe { Gate::at(base, index) })
    }

    #[cold]
    fn find_gates(&self, place: u16) -> Result<&RemoteRegion> {
        let mut former = self.former.lock().expect("no panic under this lock");
        let neighbour = self.neighbour(place, &mut former)?;
        neighbour.gates.get_or_try_init(|| {
            let listed: RegionEntry = read_listed(entry(GATES), |at, into| {
                self.read(&neighbour.directory, at, into)
            })?
            .ok_or(Error::StaleRegion)?;
            neighbour
                .connection
                .import(&RegionKey::from_bytes(&listed.data)?)
        })
    }

    #[cold]
    fn find(&self, place: u16, index: u16) -> Result<&RemotePort> {
        let mut former = self.former.lock().expect("no panic under this lock");
        let neighbour = self.neighbour(place, &mut former)?;
        let slot = neighbour
            .ports()
            .and_then(|ports| ports.0.get(usize::from(index)))
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
        let table = import(&listed.data)?;
        let mut spill = [0; BUNDLE_LEN];
        self.read(&table, Header::SPILL, &mut spill)?;
        let port = RemotePort::new(
            neighbour.connection.clone(),
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

    /// The process at `place`, which lives.
    fn neighbour(&self, place: u16, former: &mut Former) -> Result<&Neighbour> {
        let place = u32::from(place);
        let slot = self
            .places
            .get(place as usize)
            .ok_or_else(|| Error::Unreachable("no such place".into()))?;
        let found = self.rendezvous.find(place)?.ok_or(Error::PeerDead)?;
        // SAFETY:
        // - null, or made by Box::into_raw and kept until self is dropped.
        let mut known = unsafe { slot.load(Ordering::Acquire).as_ref() };
        if known.is_none_or(|known| known.generation != found.generation) {
            let fresh = Box::into_raw(Box::new(self.meet(&found)?));
            let old = slot.swap(fresh, Ordering::AcqRel);
            if !old.is_null() {
                // SAFETY:
                // - made by Box::into_raw above; the swap gave it to this thread alone.
                let old = unsafe { Box::from_raw(old) };
                if let Some((ports, weight)) = old.give_up_ports() {
                    self.limbo.retire(ports, weight);
                }
                former.push(old);
            }
            // SAFETY:
            // - just made; kept until self is dropped.
            known = unsafe { fresh.as_ref() };
        }
        let neighbour = known.expect("just found");
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
            ports: AtomicPtr::new(Box::into_raw(Box::new(Ports(
                [const { AtomicPtr::new(null_mut()) }; PORTS],
            )))),
            gates: OnceCell::new(),
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
        let mut told = Err(Error::InboxFull);
        for full in [false, true] {
            if told == Err(Error::InboxFull) {
                told = self
                    .service
                    .deliver(&self.engine, port.inbox(full), notice.to_record());
            }
        }
        if told == Err(Error::InboxFull) {
            port.overflowed();
        }
    }

    /// Leaves the job: others find nothing here any more.
    pub fn leave(&self) {
        self.engine.leave();
        self.rendezvous.end();
    }

    /// Whether the process at `place` has ended without leaving. Reads /proc.
    pub fn has_died(&self, place: u32) -> bool {
        matches!(self.rendezvous.find(place), Ok(Some(_))) && !self.rendezvous.alive(place)
    }

    /// Looks at the lives of known processes, now and then: whoever has died takes nothing more, here and elsewhere; what it was
    /// carrying out for others is gone on with.
    #[cold]
    pub fn look(&self) {
        let Ok(mut last) = self.last_look.try_lock() else {
            return;
        };
        if last.elapsed() < LOOK {
            return;
        }
        *last = Instant::now();
        let mut deaths = false;
        for neighbour in self.known() {
            // Buries the dead.
            if neighbour.connection.life() == Life::Alive {
                continue;
            }
            deaths |= !neighbour.mourned.swap(true, Ordering::Relaxed);
            neighbour.known_ports().for_each(RemotePort::has_left);
        }
        drop(last);
        if deaths {
            self.go_on_for_the_dead();
        }
    }

    fn known(&self) -> impl Iterator<Item = &Neighbour> {
        self.places.iter().filter_map(|known| {
            // SAFETY:
            // - null, or made by Box::into_raw and kept until self is dropped.
            unsafe { known.load(Ordering::Acquire).as_ref() }
        })
    }

    #[cold]
    fn go_on_for_the_dead(&self) {
        for port in self.known().flat_map(Neighbour::known_ports) {
            if port.is_current() && port.trigger().is_some_and(|trigger| trigger.is_ready()) {
                advance(self, port);
            }
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for known in &self.places {
            let neighbour = known.swap(null_mut(), Ordering::AcqRel);
            if !neighbour.is_null() {
                // SAFETY:
                // - made by Box::into_raw, and nobody else has a reference to self any more.
                drop(unsafe { Box::from_raw(neighbour) });
            }
        }
    }
}

impl Neighbour {
    #[inline(always)]
    fn ports(&self) -> Option<&Ports> {
        // SAFETY:
        // - null, or made by Box::into_raw and kept until the call in which it was read is over.
        unsafe { self.ports.load(Ordering::Acquire).as_ref() }
    }

    fn known_ports(&self) -> impl Iterator<Item = &RemotePort> {
        self.ports().into_iter().flat_map(Ports::known)
    }

    /// Its ports, and their share of what is worth freeing: its process has lost its place.
    fn give_up_ports(&self) -> Option<(Box<Ports>, usize)> {
        let ports = self.ports.swap(null_mut(), Ordering::AcqRel);
        if ports.is_null() {
            return None;
        }
        // SAFETY:
        // - made by Box::into_raw; the swap gave it to this thread alone.
        let ports = unsafe { Box::from_raw(ports) };
        let found = ports.known().inspect(|port| port.has_left()).count();
        Some((ports, (found + 1) * WEIGHTS.0))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        drop(self.give_up_ports());
    }
}

impl Ports {
    fn known(&self) -> impl Iterator<Item = &RemotePort> {
        self.0.iter().filter_map(|known| {
            // SAFETY:
            // - null, or made by Arc::into_raw and kept until the call in which it was read is over.
            unsafe { known.load(Ordering::Acquire).as_ref() }
        })
    }
}

impl Drop for Ports {
    fn drop(&mut self) {
        for known in &self.0 {
            let port = known.load(Ordering::Acquire);
            if !port.is_null() {
                // SAFETY:
                // - made by Arc::into_raw; nobody finds it here any more.
                drop(unsafe { Arc::from_raw(port) });
            }
        }
    }
}
