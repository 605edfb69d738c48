//! One process's engine: its transports, and the way from an address or a key to the backend that serves it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use crate::agent::Serving;
use crate::bell::Bell;
use crate::bundle::{Address, RegionKey};
use crate::circuit::Gates;
use crate::driver::{AtBell, Driven, Driver, Waits};
use crate::endpoint::Endpoint;
use crate::executor::{Detour, Executor};
use crate::limited::Limited;
use crate::operands::Operands;
use crate::region::{Memory, Region, RemoteRegion, Rights};
use crate::registration::Registrations;
use crate::schedule::Shapes;
use crate::transport::{Capabilities, Channel, Life, Limits, Peer, Transport};
use crate::wait::{BURST, Patience, SHORT_BURST};
use crate::{Deadline, Error, Result, log, user_memory};

/// See [`Engine::patience`].
const PATIENCE: u32 = 1021;
const PATIENCE_SHORT: u32 = 7;

/// The engine of one process (or, over the loopback, of one thread that plays a process).
pub struct Engine {
    transports: Box<[Arc<dyn Transport>]>,
    /// Of the first transport, which lives as long as the engine.
    bell: *const Bell,
    operands: Arc<Operands>,
    /// With those transports that need it, of memory that no peer reaches.
    registrations: Box<[Option<Arc<Registrations>>]>,
    crowded: AtomicBool,
    /// Processes that take part.
    company: AtomicU32,
    driven: bool,
    /// Waits end with [`Error::Ended`].
    ended: AtomicBool,
    /// Devices are alone in carrying out atomic operations, where that is allowed.
    by_device: bool,
}

/// A process that this one has connected to.
#[derive(Clone)]
pub struct Connection {
    route: u8,
    peer: Arc<dyn Peer>,
    tag: crate::bundle::Tag,
    capabilities: Capabilities,
    detour: Option<Arc<Detour>>,
}

// SAFETY:
// - the bell is a set of atomics, and stays where it is as long as the transports do; the rest is Send and Sync.
unsafe impl Send for Engine {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Engine {}

impl Engine {
    /// `transports` in order of preference; the first one allocates memory and owns the bell. Errors:
    /// [`Error::InvalidArgument`] without any.
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
            // The first one of several is for this host.
            by_device: transports[usize::from(transports.len() > 1)..]
                .iter()
                .all(|t| t.capabilities().alone),
            registrations: transports.iter().map(private).collect(),
            transports: transports.into(),
            operands: Arc::default(),
            ended: AtomicBool::new(false),
            crowded: AtomicBool::new(false),
            company: AtomicU32::new(1),
        })
    }

    /// Where this process's waiters sleep.
    #[inline(always)]
    pub fn bell(&self) -> &Bell {
        // SAFETY:
        // - belongs to the first transport, which `self` keeps.
        unsafe { &*self.bell }
    }

    /// The preferred transport.
    pub fn transport(&self) -> &dyn Transport {
        &*self.transports[0]
    }

    /// The name by which other processes connect to this one.
    pub fn address(&self) -> Result<Address> {
        let parts: Vec<_> = self
            .transports
            .iter()
            .map(|t| (t.tag(), t.address()))
            .collect();
        Address::pack(parts.iter().map(|(tag, part)| (*tag, part.as_slice())))
    }

    /// Says whether more processes than cores take part, so that waiters yield at once.
    pub fn set_crowded(&self, crowded: bool) {
        self.crowded.store(crowded, Ordering::Relaxed);
    }

    /// Says how many processes take part: the more, the more rarely each looks what has become of the others.
    pub fn set_company(&self, processes: u32) {
        self.company.store(processes, Ordering::Relaxed);
    }

    /// How often a program that waits by calls of its own polls in vain until it offers its core to others. A poll of a network takes longer than one of memory.
    #[inline(always)]
    pub fn patience(&self) -> u32 {
        match self.crowded() || self.driven {
            true => PATIENCE_SHORT,
            false => PATIENCE,
        }
    }

    /// Whether more processes than cores take part.
    #[inline(always)]
    pub fn crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed)
    }

    /// Connects to the process behind `address` over the first transport that both have. Errors: those of [`Transport::connect`], of the first network
    /// that both are in.
    pub fn connect(&self, address: &Address) -> Result<Connection> {
        let connection = self.connect_within(address, Deadline::Never)?;
        tracing::debug!(target: log::ROUTE, "a process is reached by {}", self.describe(&connection));
        Ok(connection)
    }

    /// As [`Engine::connect`]; [`Error::Timeout`] where the process has to answer, and does not: call again.
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
                        detour: self.detour(route, address).map(Arc::new),
                    });
                }
                Err(error) if transport.is_common(part) => return Err(error),
                Err(error) => {
                    // That the first one, which is for one host, does not lead there is nothing to speak of.
                    passed = (route > 0).then(|| error.clone());
                    why = error;
                }
            }
        }
        Err(why)
    }

    /// How a connection goes, for people.
    pub(crate) fn describe(&self, connection: &Connection) -> String {
        let name = self.transports[usize::from(connection.route)].name();
        match &connection.detour {
            None => name.to_owned(),
            Some(detour) => format!("{name}, and its atomic operations by {}", detour.by()),
        }
    }

    /// The way to a peer's device, for one that another transport leads to.
    fn detour(&self, route: usize, address: &Address) -> Option<Detour> {
        let alone = |transport: &Arc<dyn Transport>| transport.capabilities().alone;
        let found = self.transports.iter().position(alone)?;
        let device = &self.transports[found];
        let part = address.part(device.tag())?;
        (found != route).then(|| Detour::new(device.clone(), found as u8, part))
    }

    /// With the choice who carries out the atomic operations on a region.
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
        // - what was just allocated, which ends after its other registrations.
        self.name(memory, rights, |other, base, len| unsafe {
            other.register(base, len, rights)
        })
    }

    /// Registers memory of the user, in place. Errors: [`Error::InvalidArgument`] for a range that this process has not mapped
    /// throughout, or not for such rights; [`Error::Exhausted`]; [`Error::Os`].
    ///
    /// # Safety
    /// `len` bytes at `base` stay valid until the region is dropped. [`Rights::BY_ADDRESS`]: peers may do so to what is at these addresses.
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
        // - the caller's word.
        let register =
            |transport: &dyn Transport, base, len| unsafe { transport.register(base, len, rights) };
        self.name(register(&*self.transports[0], base, len)?, rights, register)
    }

    /// Lets peers read memory of the user for the time of one transfer. Errors: as for [`register`](Engine::register).
    ///
    /// # Safety
    /// `len` bytes at `base` stay valid until the region is dropped.
    pub unsafe fn expose(&self, base: *const u8, len: usize) -> Result<Region> {
        user_memory::check(base, len, "to send from")?;
        // SAFETY:
        // - the caller's word; peers only read.
        let expose = |transport: &dyn Transport, base, len| unsafe { transport.expose(base, len) };
        let first = expose(&*self.transports[0], base.cast_mut(), len)?;
        self.name(first, Rights::READ, expose)
    }

    /// What the first transport has registered, registered by `register` with the others, too: so its key has a part for each.
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

    /// Has atomic operations on the memory carried out here for those networks that have none.
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
            // - registered, and no message comes after that.
            let serving = unsafe { Serving::new(base, len, rights, &self.transports[0]) };
            let serving = Arc::new(serving);
            if rights.contains(Rights::ATOMIC) {
                memory.handle_by(serving.clone())?;
            }
            Ok(Some(serving))
        })
        .collect()
    }

    /// A new endpoint whose queue holds `depth` requests.
    pub fn endpoint(&self, depth: u32) -> Result<Endpoint> {
        let open = |(transport, private): (&Arc<dyn Transport>, &Option<Arc<Registrations>>)| {
            let channel = transport.open_channel()?;
            match transport.capabilities().limits {
                Limits::NONE => Ok(channel),
                limits => {
                    let limited = Limited::over(channel, limits, private.clone())?;
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

    /// Whether operations across any route may be pending after their calls, so that whoever waits has to move them on. Of one route its
    /// regions tell ([`RemoteRegion::is_asynchronous`]).
    #[inline(always)]
    pub fn is_driven(&self) -> bool {
        self.driven
    }

    /// Barrier gates of the network by which this process reaches others, if it has some.
    pub fn gates(&self) -> Option<&dyn Gates> {
        self.transports
            .last()
            .and_then(|transport| transport.gates())
    }

    /// The shapes that the network suggests for groups: [`Transport::shapes`].
    pub fn shapes(&self, members: u32, each: u32) -> Option<Shapes> {
        self.transports
            .last()
            .and_then(|transport| transport.shapes(members, each))
    }

    /// Whether peers, whichever way leads to them, have mapped what this process allocates.
    pub fn is_mapped(&self) -> bool {
        self.transports.iter().all(|t| t.capabilities().maps)
    }

    /// Waits as [`Patience::wait`] does, at this engine's bell; an error of `poll` ends the wait.
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

    /// As [`wait_for`](Self::wait_for), for what comes in several steps: `moved` says whether one has come since it was asked last. As long as they come the
    /// thread does not sleep: each of two that wait for each other's steps would have to be woken for each of them.
    #[inline]
    pub fn wait_in_steps<T>(
        &self,
        deadline: Deadline,
        check: &mut dyn FnMut() -> Result<()>,
        moved: impl Fn() -> bool,
        poll: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        let check = &mut || self.check_ended().and_then(|()| check());
        Patience {
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

    /// Moves on, in all networks, what has come for this process; never waits. See [`Transport::progress`].
    #[inline(always)]
    pub fn progress(&self) -> bool {
        self.driven && self.progress_networks()
    }

    /// How many polls of memory are worth a look at the networks.
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

    /// Wakes this process's own waiters.
    pub fn ring(&self) {
        self.bell().ring_if_heard();
    }

    /// Has the progress thread drive `driven`, as long as that is there, whenever this engine's bell is rung, and at the latest after each
    /// [`SLICE`](crate::bell::SLICE), until what this gives is dropped. Errors: [`Error::Os`].
    pub fn drive_at_bell(
        self: &Arc<Self>,
        driven: Weak<dyn Driven>,
        waits: Waits,
    ) -> Result<AtBell> {
        let driver = Driver::of_this_process()?;
        self.transports[0].show_alarm(driver.alarm())?;
        driver.enrol(driven, waits);
        // SAFETY:
        // - belongs to the first transport, which the engine keeps.
        Ok(unsafe { driver.listen_at(self.bell, self.clone()) })
    }

    /// Ends the waits of all threads with [`Error::Ended`], also later ones, or allows waits again. For the thread that ends what others use.
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

    /// Leaves the network properly.
    pub fn leave(&self) {
        for transport in &self.transports {
            transport.leave();
        }
    }
}

/// Once: of two networks the worse one is taken.
#[cold]
fn tell_instead(why: &Error, network: &str) {
    static TOLD: parking_lot::Once = parking_lot::Once::new();
    TOLD.call_once(|| crate::tell(&format!("{network} is used instead: {why}")));
}

impl Connection {
    /// Resolves a region of that process. Errors: [`Error::StaleRegion`], [`Error::PeerDead`].
    pub fn import(&self, key: &RegionKey) -> Result<RemoteRegion> {
        self.import_within(key, Deadline::Never)
    }

    /// As [`import`](Connection::import), for who cannot wait for ever. Errors: [`Error::Timeout`], too.
    pub fn import_within(&self, key: &RegionKey, deadline: Deadline) -> Result<RemoteRegion> {
        let part = key.part(self.tag).ok_or(Error::StaleRegion)?;
        let region = self.peer.import(part, deadline)?;
        let region = region.by(self.route, self.capabilities);
        match &self.detour {
            Some(detour) if region.parts().rights.contains(Rights::DEVICE) => {
                let part = key.part(detour.tag()).ok_or(Error::StaleRegion)?;
                Ok(region.executed_by(Executor::new(detour.clone(), part)))
            }
            _ => Ok(region),
        }
    }

    /// Whether both go by the same transport.
    pub fn is_as(&self, other: &Connection) -> bool {
        self.route == other.route
    }

    /// Whether the process lives; may make a system call.
    pub fn life(&self) -> Life {
        self.peer.life()
    }

    /// See [`Peer::declare_dead`](crate::transport::Peer::declare_dead).
    pub fn declare_dead(&self) {
        self.peer.declare_dead();
    }
}
