//! This process's place in the network of streams.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rustix::event::{EventfdFlags, eventfd};
use unipgas_core::agent::{Registered, wire};
use unipgas_core::atomic::ElementLocks;
use unipgas_core::bell::Bell;
use unipgas_core::bundle::Tag;
use unipgas_core::descriptor::above;
use unipgas_core::driver::{Driven, Driver, Waits};
use unipgas_core::region::{Memory, RemoteRegion, Rights};
use unipgas_core::registry::Opening;
use unipgas_core::transport::{Capabilities, Channel, Life, Peer, Transport};
use unipgas_core::wait::Patience;
use unipgas_core::{Deadline, Error, Result, process, user_memory};

use crate::agent::{Agent, Events};
use crate::endpoint::{Endpoint, Issue};
use crate::link::{Link, Waiting};
use crate::options::Options;
use crate::pulse::Timer;
use crate::region::{Heap, Registration, import};
use crate::release::Releases;
use crate::stream::{self, ADDRESS, Listener};

/// For who does not take what is sent to him: nobody waits longer for him, who leaves or gives memory back.
pub const PARTING: Duration = Duration::from_secs(5);

/// A frame has room for the operands and the comparands of an atomic operation.
const LARGEST: usize = wire::LONGEST / 2;

/// What everything of one process shares.
pub struct Home {
    pub options: Options,
    pub registered: Registered,
    pub heap: Heap,
    pub listener: Listener,
    pub events: Events,
    /// Calls for a turn.
    pub alarm: OwnedFd,
    pub timer: Timer,
    agent: Mutex<Agent>,
    process: u32,
    pub leaving: AtomicBool,
    pub releases: Releases,
    /// Streams that the agent does not know yet.
    pub new_links: Mutex<Vec<Arc<Link>>>,
    /// One for each peer, by the index that its regions have.
    links: RwLock<Vec<Arc<Link>>>,
    /// Those whose late operations the agent sends.
    issues: Mutex<Vec<Weak<Issue>>>,
    channels: AtomicU32,
    operations: AtomicU64,
    /// Peers whose streams have been lost.
    lost: Mutex<HashSet<[u8; ADDRESS]>>,
}

impl Home {
    /// Begins to listen; somebody has to take the turns.
    pub fn open(mut options: Options, beside: Option<Arc<dyn Transport>>) -> Result<Self> {
        options.limits.largest = options.limits.largest.min(LARGEST);
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let home = Home {
            options,
            registered: Registered::new(beside),
            heap: Heap::default(),
            listener: Listener::open(options.tcp)?,
            alarm: above(|| eventfd(0, flags)).map_err(|e| Error::os("eventfd", e))?,
            agent: Mutex::default(),
            process: process::id(),
            events: Events::new()?,
            timer: Timer::new()?,
            leaving: AtomicBool::new(false),
            releases: Releases::default(),
            new_links: Mutex::default(),
            links: RwLock::default(),
            issues: Mutex::default(),
            channels: AtomicU32::new(0),
            operations: AtomicU64::new(0),
            lost: Mutex::default(),
        };
        home.events.watch(&home.alarm)?;
        home.events.watch(&home.timer)?;
        home.events.watch(&home.listener.socket)?;
        Ok(home)
    }

    /// The stream to the process behind `address`, and its index: the one that there is, or a new one. Errors: as [`stream::reach`];
    /// [`Error::PeerDead`] where nobody answers.
    fn connect(&self, address: &[u8]) -> Result<(u32, Arc<Link>)> {
        if self.is_lost(&stream::padded(address)) {
            return Err(Error::PeerDead);
        }
        let (index, link) = self.find_or_begin(address)?;
        // It ends: there is an answer, or there has been none for too long.
        self.wait_until(Deadline::Never, || link.is_reached() || link.is_gone())?;
        match link.is_reached() {
            true => Ok((index, link)),
            false => Err(Error::PeerDead),
        }
    }

    fn find_or_begin(&self, address: &[u8]) -> Result<(u32, Arc<Link>)> {
        if let Some(known) = known(&self.links.read(), address) {
            return Ok(known);
        }
        // Nobody waits for a lock meanwhile.
        let (socket, greeting) = stream::reach(address, &self.listener.address)?;
        let mut links = self.links.write();
        if let Some(known) = known(&links, address) {
            // Another thread was faster; the peer sees a stream begin and end.
            return Ok(known);
        }
        let link = Arc::new(Link::new(socket, address, &greeting));
        // In the place of one that has gone, and that nobody asks any more.
        let unused = links
            .iter()
            .position(|link| link.is_gone() && Arc::strong_count(link) == 1);
        let index = unused.unwrap_or(links.len());
        match unused {
            Some(index) => links[index] = link.clone(),
            None => links.push(link.clone()),
        }
        drop(links);
        // Most are connected by now. The others greet when they are, and it is watched whether anybody answers.
        link.push();
        self.new_links.lock().push(link.clone());
        self.wake();
        self.watch_silence();
        Ok((index as u32, link))
    }

    /// Asks the peer what `encode` appends. Errors: as [`Link::ask`].
    pub fn ask(
        &self,
        link: &Link,
        order: (u32, bool),
        encode: impl FnOnce(&mut Vec<u8>) -> Result<()>,
        waiting: Waiting,
    ) -> Result<()> {
        if link.ask(order, encode, waiting)? {
            self.wake();
        }
        self.watch_silence();
        Ok(())
    }

    /// Something has been sent: the agent looks whether it is taken.
    pub fn watch_silence(&self) {
        self.timer.start();
    }

    /// The agent sends this one's late operations from now on.
    pub fn serve_late(&self, issue: &Arc<Issue>) {
        let mut issues = self.issues.lock();
        issues.retain(|issue| issue.strong_count() > 0);
        issues.push(Arc::downgrade(issue));
    }

    /// For the agent: something has been read.
    pub fn send_late(&self) {
        let issues: Vec<_> = self
            .issues
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        issues.iter().for_each(|issue| issue.send_late());
    }

    /// A number for another channel.
    pub fn next_channel(&self) -> u32 {
        self.channels.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// An operation goes to this peer, who may be lost at it.
    pub fn count(&self, link: &Link) {
        let Some(lose_at) = self.options.lose_at else {
            return;
        };
        if self.operations.fetch_add(1, Ordering::Relaxed) + 1 == lose_at {
            tracing::debug!("opaque: the streams between this process and a peer are lost");
            self.lost.lock().insert(stream::padded(link.address()));
            link.cut();
            self.wake();
        }
    }

    /// Whether the streams between this process and the one that listens there have been lost.
    pub fn is_lost(&self, address: &[u8; ADDRESS]) -> bool {
        self.lost.lock().contains(address)
    }

    /// False in the child of a fork, to which none of the streams belong.
    pub fn is_here(&self) -> bool {
        self.process == process::id()
    }

    /// Takes what peers have answered, unless another thread does.
    pub fn take_answers(&self) {
        if self.is_here()
            && let Some(mut agent) = self.agent.try_lock()
        {
            agent.take_answers(self);
        }
    }

    /// Waits until `done`, which answers of peers or the progress thread bring about. Errors: [`Error::Timeout`].
    pub fn wait_until(&self, deadline: Deadline, mut done: impl FnMut() -> bool) -> Result<()> {
        let patience = Patience {
            bell: self.registered.bell(),
            crowded: true,
            company: &AtomicU32::new(1),
        };
        patience.wait(deadline, &mut || Ok(()), || {
            self.take_answers();
            done().then_some(())
        })
    }

    /// Calls for a turn of the progress thread.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.alarm, &1u64.to_ne_bytes());
    }

    /// The stream to the peer with this index.
    pub fn link(&self, peer: u32) -> Result<Arc<Link>> {
        let links = self.links.read();
        links.get(peer as usize).cloned().ok_or(Error::PeerDead)
    }
}

/// The stream to the process behind `address` that there is, and its index.
fn known(links: &[Arc<Link>], address: &[u8]) -> Option<(u32, Arc<Link>)> {
    let index = links
        .iter()
        .position(|link| link.address() == address && !link.is_gone())?;
    Some((index as u32, links[index].clone()))
}

/// This process's place.
pub struct Opaque {
    home: Arc<Home>,
    driver: Arc<Driver>,
}

impl Opaque {
    /// As UNIPGAS_OPAQUE says; with TCP in any case where other hosts are to be reached. Errors: [`Error::InvalidArgument`] for what it
    /// cannot say, [`Error::Os`].
    pub fn from_env(opening: &Opening) -> Result<Self> {
        let mut options = Options::from_env()?;
        options.tcp |= opening.other_hosts;
        Opaque::open(options, opening.beside.clone())
    }

    /// Begins to listen. `beside`: the process's first transport, if that is another one. Errors: [`Error::Os`].
    pub fn open(options: Options, beside: Option<Arc<dyn Transport>>) -> Result<Self> {
        let home = Arc::new(Home::open(options, beside)?);
        let driver = Driver::of_this_process()?;
        let driven = Arc::downgrade(&home);
        driver.enrol(driven, Waits::Never);
        driver.watch_events(home.events.as_fd())?;
        Ok(Opaque { home, driver })
    }
}

impl Transport for Opaque {
    fn name(&self) -> &'static str {
        "opaque"
    }

    fn tag(&self) -> Tag {
        Tag::Opaque
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            asynchronous: true,
            registers_user_memory: true,
            maps: false,
            direct: false,
            limits: self.home.options.limits,
        }
    }

    fn address(&self) -> Vec<u8> {
        self.home.listener.address.clone()
    }

    fn connect(&self, address: &[u8]) -> Result<Arc<dyn Peer>> {
        let (index, link) = self.home.connect(address)?;
        Ok(Arc::new(Neighbour {
            index,
            link,
            home: self.home.clone(),
        }))
    }

    fn allocate(&self, len: usize, rights: Rights) -> Result<Box<dyn Memory>> {
        Ok(Box::new(Registration::allocate(&self.home, len, rights)?))
    }

    unsafe fn register(
        &self,
        base: *mut u8,
        len: usize,
        rights: Rights,
    ) -> Result<Box<dyn Memory>> {
        user_memory::check_access(base, len, rights)?;
        // SAFETY:
        // - the caller's word.
        let registration = unsafe { Registration::of_user(&self.home, base, len, rights) };
        Ok(Box::new(registration))
    }

    unsafe fn register_local(
        &self,
        base: *mut u8,
        len: usize,
        write: bool,
    ) -> Result<Box<dyn Memory>> {
        let needed = if write { Rights::WRITE } else { Rights::READ };
        user_memory::check_access(base, len, needed)?;
        // SAFETY:
        // - the caller's word.
        let registration = unsafe { Registration::of_user(&self.home, base, len, Rights::empty()) };
        Ok(Box::new(registration))
    }

    fn open_channel(&self) -> Result<Box<dyn Channel>> {
        Ok(Box::new(Endpoint::new(&self.home)))
    }

    fn bell(&self) -> &Bell {
        self.home.registered.bell()
    }

    fn locks(&self) -> &ElementLocks {
        self.home.registered.locks()
    }

    fn leave(&self) {
        if self.home.is_here() {
            self.home.leaving.store(true, Ordering::Release);
            self.home.wake();
            // The process may end right after this.
            let _ = self
                .home
                .wait_until(Deadline::Never, || self.home.releases.has_left());
        }
    }
}

impl Driven for Home {
    fn drive(&self) {
        if self.is_here() {
            self.agent.lock().turn(self);
        }
    }
}

impl Drop for Opaque {
    fn drop(&mut self) {
        if !self.home.is_here() {
            return;
        }
        self.leave();
        let _ = self.home.wait_until(Deadline::after(PARTING), || {
            self.home.agent.lock().has_sent_all()
        });
        self.home.releases.close();
        self.driver.forget_events(self.home.events.as_fd());
    }
}

/// Another process.
struct Neighbour {
    index: u32,
    link: Arc<Link>,
    home: Arc<Home>,
}

impl Peer for Neighbour {
    fn import(&self, key: &[u8], deadline: Deadline) -> Result<RemoteRegion> {
        if self.link.is_gone() {
            return Err(Error::PeerDead);
        }
        import(key, self.index, &self.link, &self.home, deadline)
    }

    fn life(&self) -> Life {
        self.link.life()
    }
}

/// It needs nothing but sockets.
pub fn probe() -> std::result::Result<(), String> {
    Listener::open(false)
        .map(drop)
        .map_err(|error| error.to_string())
}
