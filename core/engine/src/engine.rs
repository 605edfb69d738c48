//! The engine of a process: its transports, and the route from an address or a key to a backend.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use crate::Region;
use crate::agent::Serving;
use crate::bell::Bell;
use crate::bundle::{Address, RegionKey};
use crate::circuit::GateNetwork;
use crate::driver::{AtBell, Driven, Driver, Waits};
use crate::endpoint::Endpoint;
use crate::executor::{AtomicsRoute, Executor};
use crate::limited::LimitAdapter;
use crate::operands::Operands;
use crate::region::{Memory, RemoteRegion};
use crate::registration::Registrations;
use crate::schedule::Shapes;
use crate::transport::{Capabilities, Channel, Life, Limits, Peer, Transport};
use crate::wait::{BURST, SHORT_BURST, WaitStrategy};
use crate::{Deadline, Error, Result, Rights, log, user_memory};

/// See [`Engine::patience`].
const PATIENCE: u32 = 1021;
const PATIENCE_SHORT: u32 = 7;

/// The engine of one process (or, over the loopback, of one thread that plays a process).
pub struct Engine {
    transports: Box<[Arc<dyn Transport>]>,
    /// The bell of the first transport, which lives as long as the engine.
    bell: *const Bell,
    operands: Arc<Operands>,
    /// Registrations of local memory that no peer reaches, for each transport that needs them.
    registrations: Box<[Option<Arc<Registrations>>]>,
    crowded: AtomicBool,
    /// Number of processes in the job.
    company: AtomicU32,
    driven: bool,
    /// Waits end with [`Error::Ended`].
    ended: AtomicBool,
    /// Only devices carry out atomic operations on regions with [`Rights::WORDS`].
    by_device: bool,
}

/// A process that this one has connected to.
#[derive(Clone)]
pub struct Connection {
    route: u8,
    peer: Arc<dyn Peer>,
    tag: crate::bundle::Tag,
    capabilities: Capabilities,
    atomics_route: Option<Arc<AtomicsRoute>>,
}

// SAFETY:
// - the bell consists of atomics, and stays in place while the transports live. The rest is Send and Sync.
unsafe impl Send for Engine {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Engine {}

impl Engine {
    /// `transports` in order of preference. The first one allocates memory and owns the bell. Errors: [`Error::InvalidArgument`] for an empty list.
    pub fn new(transports: Vec<Arc<dyn Transport>>) -> Result<Self> {
        if transports.is_empty() {
            return Err(Error::InvalidArgument("an engine needs a transport".into()));
        }
        let private = |transport: &Arc<dyn Transport>| {
            let needed = transport.capabilities().limits.registered;
            needed.then(|| Arc::new(Registrations::new(transport.clone())))
        };
        Ok(Engine {
            bell: transports[0].bell(),
            driven: transports.iter().any(|t| t.capabilities().asynchronous),
            // The first of several transports is for this host.
            by_device: transports[usize::from(transports.len() > 1)..]
                .iter()
                .all(|t| t.capabilities().device_atomics_only),
            registrations: transports.iter().map(private).collect(),
            transports: transports.into(),
            operands: Arc::default(),
            ended: AtomicBool::new(false),
            crowded: AtomicBool::new(false),
            company: AtomicU32::new(1),
        })
    }

    /// The bell at which waiters of this process sleep.
    #[inline(always)]
    pub fn bell(&self) -> &Bell {
        // SAFETY:
        // - the bell belongs to the first transport, which `self` keeps.
        unsafe { &*self.bell }
    }

    /// The preferred transport.
    pub fn transport(&self) -> &dyn Transport {
        &*self.transports[0]
    }

    /// The address by which other processes connect to this one.
    pub fn address(&self) -> Result<Address> {
        let parts: Vec<_> = self
            .transports
            .iter()
            .map(|t| (t.tag(), t.address()))
            .collect();
        Address::pack(parts.iter().map(|(tag, part)| (*tag, part.as_slice())))
    }

    /// Sets whether the job has more processes than cores, so that waiters yield at once.
    pub fn set_crowded(&self, crowded: bool) {
        self.crowded.store(crowded, Ordering::Relaxed);
    }

    /// Sets the number of processes. With more processes, each checks the liveness of its peers more rarely.
    pub fn set_company(&self, processes: u32) {
        self.company.store(processes, Ordering::Relaxed);
    }

    /// Number of unsuccessful polls after which a program that polls by calls yields its core. A poll of a network takes longer than a poll of memory.
    #[inline(always)]
    pub fn patience(&self) -> u32 {
        match self.crowded() || self.driven {
            true => PATIENCE_SHORT,
            false => PATIENCE,
        }
    }

    /// Whether the job has more processes than cores.
    #[inline(always)]
    pub fn crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed)
    }

    /// Connects to the process behind `address` over the first transport that both have. Errors: as [`Transport::connect`], from the first network that both
    /// are in, else from the last transport that both have.
    pub fn connect(&self, address: &Address) -> Result<Connection> {
        let connection = self.connect_within(address, Deadline::Never)?;
        tracing::debug!(target: log::ROUTE, "a process is reached by {}", self.describe(&connection));
        Ok(connection)
    }

    /// As [`Engine::connect`]. Errors: also [`Error::Timeout`] if the process must answer, and does not. Call again.
    pub fn connect_within(&self, address: &Address, deadline: Deadline) -> Result<Connection> {
        let mut why = Error::Unreachable(
            "the two processes have no network in common: `unipgas info` on both hosts says what they have".into(),
        );
        let mut passed = None;
        for (route, transport) in self.transports.iter().enumerate() {
            let Some(part) = address.part(transport.tag()) else {
                continue;
            };
            match transport.connect_within(part, deadline) {
                Ok(peer) => {
                    if let Some(why) = passed {
                        tell_instead(&why, transport.name());
                    }
                    return Ok(Connection {
                        route: route as u8,
                        peer,
                        tag: transport.tag(),
                        capabilities: transport.capabilities(),
                        atomics_route: self.detour(route, address).map(Arc::new),
                    });
                }
                Err(error) if transport.is_common(part) => return Err(error),
                Err(error) => {
                    // The first transport is for one host: its failure needs no message.
                    passed = (route > 0).then(|| error.clone());
                    why = error;
                }
            }
        }
        Err(why)
    }

    /// The route of a connection, for people.
    pub fn describe(&self, connection: &Connection) -> String {
        let name = self.transports[usize::from(connection.route)].name();
        match &connection.atomics_route {
            None => name.to_owned(),
            Some(detour) => format!("{name}, and its atomic operations by {}", detour.by()),
        }
    }

    /// The route to a peer's device, if another transport leads to the peer.
    fn detour(&self, route: usize, address: &Address) -> Option<AtomicsRoute> {
        let alone = |transport: &Arc<dyn Transport>| transport.capabilities().device_atomics_only;
        let found = self.transports.iter().position(alone)?;
        let device = &self.transports[found];
        let part = address.part(device.tag())?;
        (found != route).then(|| AtomicsRoute::new(device.clone(), found as u8, part))
    }

    /// Sets [`Rights::DEVICE`] if a device carries out the atomic operations on the region, else clears it.
    fn decided(&self, rights: Rights) -> Rights {
        let both = Rights::WORDS | Rights::ATOMIC;
        let by_device = self.by_device && rights.contains(both);
        let mut rights = rights.difference(Rights::DEVICE);
        rights.set(Rights::DEVICE, by_device);
        rights
    }

    /// Allocates `len` zeroed bytes that peers may use. Errors: [`Error::InvalidArgument`] for 0 bytes, [`Error::Exhausted`].
    pub fn allocate(&self, len: usize, rights: Rights) -> Result<Region> {
        if len == 0 {
            return Err(Error::InvalidArgument(
                "a region needs at least 1 byte".into(),
            ));
        }
        let rights = self.decided(rights);
        let memory = self.transports[0].allocate(len, rights)?;
        // SAFETY:
        // - the memory has just been allocated, and is freed after its other registrations have ended.
        self.name(memory, rights, |other, base, len| unsafe {
            other.register(base, len, rights)
        })
    }

    /// Registers user memory, in place. Errors: [`Error::InvalidArgument`] for a range that this process has not mapped completely, or not with such rights;
    /// [`Error::Exhausted`]; [`Error::Os`].
    ///
    /// # Safety
    /// `len` bytes at `base` stay valid until the region is dropped. With [`Rights::BY_ADDRESS`] instead: peers may access any memory at these addresses.
    pub unsafe fn register(&self, base: *mut u8, len: usize, rights: Rights) -> Result<Region> {
        let rights = self.decided(rights);
        if rights.contains(Rights::BY_ADDRESS) {
            user_memory::check_addresses(base, len)?;
        } else {
            user_memory::check(base, len, "to register")?;
            for private in self.registrations.iter().flatten() {
                private.forget(base, len);
            }
        }
        // SAFETY:
        // - contract of this call: the bytes are valid until the region is dropped.
        let register =
            |transport: &dyn Transport, base, len| unsafe { transport.register(base, len, rights) };
        self.name(register(&*self.transports[0], base, len)?, rights, register)
    }

    /// Lets peers read user memory during one transfer. Errors: as [`register`](Engine::register).
    ///
    /// # Safety
    /// `len` bytes at `base` stay valid until the region is dropped.
    pub unsafe fn expose(&self, base: *const u8, len: usize) -> Result<Region> {
        user_memory::check(base, len, "to send from")?;
        // SAFETY:
        // - contract of this call: the bytes are valid until the region is dropped. Peers only read them.
        let expose = |transport: &dyn Transport, base, len| unsafe { transport.expose(base, len) };
        let first = expose(&*self.transports[0], base.cast_mut(), len)?;
        self.name(first, Rights::READ, expose)
    }

    /// Registers the memory of `first`, by `register`, with the other transports as well. So its key has a part for each transport.
    fn name(
        &self,
        first: Box<dyn Memory>,
        rights: Rights,
        register: impl Fn(&dyn Transport, *mut u8, usize) -> Result<Box<dyn Memory>>,
    ) -> Result<Region> {
        let others = self.transports[1..].iter();
        let others: Result<Box<[_]>> = others
            .map(|other| register(&**other, first.base(), first.len()))
            .collect();
        let others = others?;
        let memories = std::iter::once(&first).chain(&others);
        let parts: Vec<_> = self
            .transports
            .iter()
            .zip(memories)
            .map(|(transport, memory)| (transport.tag(), memory.key()))
            .collect();
        let key = RegionKey::pack(parts.iter().map(|(tag, part)| (*tag, part.as_slice())))?;
        let serving = self.serve(&*first, &others, rights)?;
        Ok(Region::new(first, others, key, serving, &self.operands))
    }

    /// Makes this process carry out atomic operations on the memory for networks that have none.
    fn serve(
        &self,
        first: &dyn Memory,
        others: &[Box<dyn Memory>],
        rights: Rights,
    ) -> Result<Box<[Option<Arc<Serving>>]>> {
        let memories = std::iter::once(first).chain(others.iter().map(|other| &**other));
        let each = self.transports.iter().zip(memories);
        each.map(|(transport, memory)| {
            if transport.capabilities().limits.atomics {
                return Ok(None);
            }
            let (base, len) = (memory.base(), memory.len());
            // SAFETY:
            // - the memory is registered, and no message comes after the end of the registration.
            let serving = unsafe { Serving::new(base, len, rights, &self.transports[0]) };
            let serving = Arc::new(serving);
            if rights.contains(Rights::ATOMIC) {
                memory.handle_by(serving.clone())?;
            }
            Ok(Some(serving))
        })
        .collect()
    }

    /// A new endpoint with a queue of `depth` requests.
    pub fn endpoint(&self, depth: u32) -> Result<Endpoint> {
        let open = |(transport, private): (&Arc<dyn Transport>, &Option<Arc<Registrations>>)| {
            let channel = transport.open_channel()?;
            match transport.capabilities().limits {
                Limits::NONE => Ok(channel),
                limits => {
                    let limited = LimitAdapter::over(channel, limits, private.clone())?;
                    Ok(Box::new(limited) as Box<dyn Channel>)
                }
            }
        };
        let each = self.transports.iter().zip(&self.registrations);
        let channels: Result<Vec<_>> = each.map(open).collect();
        let operands = match self.transports.len() {
            1 => None,
            _ => Some(self.operands.clone()),
        };
        Ok(Endpoint::new(
            channels?.into(),
            operands,
            self.driven,
            depth,
            Some(self.transports[0].clone()),
        ))
    }

    /// Whether operations on any route may be pending after their calls, so that waiters must make progress. For one route see
    /// [`RemoteRegion::is_asynchronous`].
    #[inline(always)]
    pub fn is_driven(&self) -> bool {
        self.driven
    }

    /// Barrier gates of the network that reaches other processes, if it has any.
    pub fn gates(&self) -> Option<&dyn GateNetwork> {
        self.transports
            .last()
            .and_then(|transport| transport.gates())
    }

    /// Shapes that the network suggests for groups: [`Transport::shapes`].
    pub fn shapes(&self, members: u32, each: u32) -> Option<Shapes> {
        self.transports
            .last()
            .and_then(|transport| transport.shapes(members, each))
    }

    /// Whether peers on all routes map the memory that this process allocates.
    pub fn is_mapped(&self) -> bool {
        self.transports.iter().all(|t| t.capabilities().maps)
    }

    /// Waits at this engine's bell, as [`WaitStrategy::wait`] does. An error of `poll` ends the wait.
    #[inline]
    pub fn wait<T>(
        &self,
        deadline: Deadline,
        check: &mut dyn FnMut() -> Result<()>,
        mut poll: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        self.wait_for(deadline, check, || poll().transpose())?
    }

    /// Waits for a poll that cannot fail.
    #[inline]
    pub fn wait_for<T>(
        &self,
        deadline: Deadline,
        check: &mut dyn FnMut() -> Result<()>,
        poll: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        self.wait_in_steps(deadline, check, || false, poll)
    }

    /// As [`wait_for`](Self::wait_for), for a value that comes in several steps. `moved`: a step has come since its last call. While steps come, the thread
    /// does not sleep: two threads that wait for each other's steps would wake each other for each step.
    #[inline]
    pub fn wait_in_steps<T>(
        &self,
        deadline: Deadline,
        check: &mut dyn FnMut() -> Result<()>,
        moved: impl Fn() -> bool,
        poll: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        let check = &mut || self.check_ended().and_then(|()| check());
        WaitStrategy {
            bell: self.bell(),
            crowded: self.crowded.load(Ordering::Relaxed),
            company: &self.company,
        }
        .wait(
            deadline,
            check,
            || self.burst(),
            || self.progress(),
            moved,
            poll,
        )
    }

    /// Makes progress in all networks; never waits. See [`Transport::progress`].
    #[inline(always)]
    pub fn progress(&self) -> bool {
        self.driven && self.progress_networks()
    }

    /// Polls of memory between two calls of `progress`.
    #[inline(always)]
    fn burst(&self) -> u32 {
        match self.driven {
            false => BURST,
            true => SHORT_BURST,
        }
    }

    #[cold]
    fn progress_networks(&self) -> bool {
        let all = self.transports.iter();
        all.fold(false, |serves, one| one.progress() | serves)
    }

    /// Wakes the waiters of this process.
    pub fn ring(&self) {
        self.bell().ring_if_heard();
    }

    /// Makes the progress thread drive `driven` at each ring of this engine's bell, and at least once in each `SLICE`. It listens at
    /// the bell until the result is dropped, and drives `driven` while that exists. Errors: [`Error::Os`].
    pub fn drive_at_bell(
        self: &Arc<Self>,
        driven: Weak<dyn Driven>,
        waits: Waits,
    ) -> Result<AtBell> {
        let driver = Driver::of_this_process()?;
        self.transports[0].show_alarm(driver.alarm())?;
        driver.enrol(driven, waits);
        // SAFETY:
        // - the bell belongs to the first transport, which the engine keeps.
        Ok(unsafe { driver.listen_at(self.bell, self.clone()) })
    }

    /// Ends the waits of all threads with [`Error::Ended`], and all later waits; `false` allows waits again. For the thread that destroys objects in use by
    /// others.
    pub fn end_waits(&self, ended: bool) {
        self.ended.store(ended, Ordering::SeqCst);
        self.bell().ring();
    }

    /// Errors: [`Error::Ended`] after [`end_waits`](Engine::end_waits).
    pub fn check_ended(&self) -> Result<()> {
        match self.ended.load(Ordering::Acquire) {
            true => Err(Error::Ended),
            false => Ok(()),
        }
    }

    /// See [`Transport::hurry`].
    pub fn hurry(&self, deadline: Deadline) {
        for transport in &self.transports {
            transport.hurry(deadline);
        }
    }

    /// Leaves the network.
    pub fn leave(&self) {
        for transport in &self.transports {
            transport.leave();
        }
    }
}

/// Printed once, since a worse network is used.
#[cold]
fn tell_instead(why: &Error, network: &str) {
    static TOLD: parking_lot::Once = parking_lot::Once::new();
    TOLD.call_once(|| crate::tell(&format!("{network} is used instead: {why}")));
}

impl Connection {
    /// Imports a region of the process. Errors: [`Error::StaleRegion`], [`Error::PeerDead`].
    pub fn import(&self, key: &RegionKey) -> Result<RemoteRegion> {
        self.import_within(key, Deadline::Never)
    }

    /// As [`import`](Connection::import), with a deadline. Errors: also [`Error::Timeout`].
    pub fn import_within(&self, key: &RegionKey, deadline: Deadline) -> Result<RemoteRegion> {
        let part = key.part(self.tag).ok_or(Error::StaleRegion)?;
        let region = self.peer.import(part, deadline)?;
        let region = region.by(self.route, self.capabilities);
        match &self.atomics_route {
            Some(detour) if region.parts().rights.contains(Rights::DEVICE) => {
                let part = key.part(detour.tag()).ok_or(Error::StaleRegion)?;
                Ok(region.executed_by(Executor::new(detour.clone(), part)))
            }
            _ => Ok(region),
        }
    }

    /// Whether both use the same transport.
    pub fn is_as(&self, other: &Connection) -> bool {
        self.route == other.route
    }

    /// Whether the process lives; may make a system call.
    pub fn life(&self) -> Life {
        self.peer.life()
    }

    /// See [`Peer::declare_dead`].
    pub fn declare_dead(&self) {
        self.peer.declare_dead();
    }
}
