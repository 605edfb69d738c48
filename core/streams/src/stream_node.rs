//! The state that all streams of a process share.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rustix::event::{EventfdFlags, epoll, eventfd};

use super::agent::Agent;
use super::greeting::{ADDRESS, PaddedAddress, greeting, padded};
use super::heap::Heap;
use super::issue::Issue;
use super::link::{Link, Waiting};
use super::network::{After, Faults, Network};
use super::polls::Polls;
use super::release::Releases;
use super::timer::Timer;
use unipgas_base::descriptor::{above, ready};
use unipgas_base::driver::Driven;
use unipgas_base::wait::{BURST, WaitStrategy};
use unipgas_base::{Deadline, Error, Result, driver, liveness_timer, process};
use unipgas_engine::agent::{Registered, wire};
use unipgas_engine::op::Local;
use unipgas_engine::transport::{Limits, Transport};

/// The longest wait for a peer that reads nothing, when this process leaves or releases memory.
const PARTING: Duration = Duration::from_secs(5);
/// The wait for each further peer after [`PARTING`] has passed once, or if this process has no time.
pub(super) const BRIEFLY: Duration = Duration::from_millis(20);

/// Time between two turns while waiting threads drive the network, in nanoseconds. A turn greets new peers.
const TURNS: u64 = Duration::from_millis(10).as_nanos() as u64;

/// Marks of descriptors.
const NETWORK: u64 = 1;
const ALARM: u64 = 2;
const TIMER: u64 = 4;

/// A frame has room for the operands and the comparands of an atomic operation.
const LARGEST: usize = wire::LONGEST / 2;

/// The agent and the streams of this process. The [driver](Driven) takes a turn when the [descriptor](AsFd) can be read.
pub struct StreamNode {
    network: Arc<dyn Network>,
    faults: Option<Arc<dyn Faults>>,
    limits: Limits,
    requests_wait_for: After,
    registered: Registered,
    pub(super) heap: Heap,
    /// Watches the network, the alarm and the timer.
    events: OwnedFd,
    alarm: OwnedFd,
    pub(super) timer: Timer,
    agent: Mutex<Agent>,
    process: u32,
    leaving: AtomicBool,
    pub(super) releases: Releases,
    hurry: Mutex<Deadline>,
    /// Streams that the agent does not know yet.
    pub(super) new_links: Mutex<Vec<Arc<Link>>>,
    pub(super) has_new_links: AtomicBool,
    /// A frame waits for room, and the agent has not looked at the streams since.
    pub(super) has_unsent: AtomicBool,
    /// One for each peer, by the index in its regions.
    links: RwLock<Vec<Arc<Link>>>,
    /// Channels. The agent sends their late operations.
    issues: Mutex<Vec<Weak<Issue>>>,
    /// Number of channels with late operations.
    with_late: Arc<AtomicUsize>,
    channels: AtomicU32,
    /// Peers have released memory that operations may still use.
    forgets: AtomicBool,
    /// Peers with lost streams.
    lost: Mutex<HashSet<PaddedAddress>>,
    /// A request of a peer was carried out, and no waiting thread knows.
    served: AtomicBool,
    /// Polls by waiting threads, if those serve peers.
    polls: Option<Polls>,
    /// Waiting threads drove the network at the last [`Driven::drive`].
    left: AtomicBool,
    /// The last turn, in [nanoseconds](pace::now).
    turned: AtomicU64,
    /// Waiting threads have driven the network since the last turn.
    stirred: AtomicBool,
    /// A waiting thread has just taken answers, and looks for completions next.
    fresh: AtomicBool,
}

impl StreamNode {
    /// The caller enrols it at a driver. `beside`: the first transport of the process, if it is another one. Errors: [`Error::Os`].
    pub fn open(network: Arc<dyn Network>, beside: Option<Arc<dyn Transport>>) -> Result<Self> {
        let mut limits = network.limits();
        limits.largest = limits.largest.min(LARGEST);
        let events = above(|| epoll::create(epoll::CreateFlags::CLOEXEC));
        let events = events.map_err(|e| Error::os("epoll_create", e))?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let alarm = above(|| eventfd(0, flags)).map_err(|e| Error::os("eventfd", e))?;
        let timer = Timer::new()?;
        let own = [(alarm.as_fd(), ALARM), (timer.as_fd(), TIMER)];
        let of_network = network.events().into_iter().map(|fd| (fd, NETWORK));
        for (what, mark) in own.into_iter().chain(of_network) {
            watch(&events, what, mark).map_err(|e| Error::os("epoll_ctl", e))?;
        }
        Ok(StreamNode {
            faults: network.faults(),
            limits,
            requests_wait_for: network.requests_wait_for(),
            polls: network.is_moved_on_by_waiting().then(Polls::default),
            left: AtomicBool::new(false),
            turned: AtomicU64::new(0),
            stirred: AtomicBool::new(true),
            fresh: AtomicBool::new(false),
            network,
            registered: Registered::new(beside),
            heap: Heap::default(),
            events,
            alarm,
            timer,
            agent: Mutex::default(),
            process: process::id(),
            leaving: AtomicBool::new(false),
            releases: Releases::default(),
            hurry: Mutex::new(Deadline::Never),
            new_links: Mutex::default(),
            has_new_links: AtomicBool::new(false),
            has_unsent: AtomicBool::new(false),
            links: RwLock::default(),
            issues: Mutex::default(),
            with_late: Arc::default(),
            channels: AtomicU32::new(0),
            forgets: AtomicBool::new(false),
            lost: Mutex::default(),
            served: AtomicBool::new(false),
        })
    }

    /// The network below.
    pub fn network(&self) -> &dyn Network {
        &*self.network
    }

    /// The limits of requests.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The memory that requests of peers can reach.
    pub(crate) fn registered(&self) -> &Registered {
        &self.registered
    }

    pub(super) fn requests_wait_for(&self) -> After {
        self.requests_wait_for
    }

    pub(super) fn faults(&self) -> Option<&dyn Faults> {
        self.faults.as_deref()
    }

    pub(super) fn writes_backwards(&self) -> bool {
        self.faults().is_some_and(Faults::backwards)
    }

    /// See [`Network::check_local`].
    pub(crate) fn check_local(&self, local: Local, len: usize) -> Result<()> {
        match self.limits.registered {
            true => self.network.check_local(&self.registered, local, len),
            false => Ok(()),
        }
    }

    /// The stream to the process behind `address`, and its index. Begins the stream if there is none. Errors: as [`Network::reach`];
    /// [`Error::PeerDead`] if the address is not in use; [`Error::Timeout`]; [`Stream::refusal`](super::Stream::refusal).
    pub(crate) fn connect(&self, address: &[u8], deadline: Deadline) -> Result<(u32, Arc<Link>)> {
        if address.len() > ADDRESS {
            return Err(Error::Unreachable("the address is too long".into()));
        }
        if self.is_lost(&padded(address)) {
            return Err(Error::PeerDead);
        }
        let (index, link) = self.find_or_begin(address)?;
        // The wait ends by an answer, or because the address is not in use. A stopped process does not answer.
        self.wait_until(deadline, || link.is_reached() || link.is_gone())?;
        match link.is_reached() {
            true => Ok((index, link)),
            false => Err(link.stream().refusal().unwrap_or(Error::PeerDead)),
        }
    }

    fn find_or_begin(&self, address: &[u8]) -> Result<(u32, Arc<Link>)> {
        if let Some(known) = known(&self.links.read(), address) {
            return Ok(known);
        }
        // Outside of the lock, since this may take long.
        let begun = self.network.reach(address)?;
        let mut links = self.links.write();
        if let Some(known) = known(&links, address) {
            // Another thread was faster; the peer sees a stream begin and end.
            begun.stream.end();
            return Ok(known);
        }
        let own = self.network.address();
        let greeting = begun.secret.map(|secret| greeting(&secret, own));
        let greeting: &[u8] = greeting.as_ref().map_or(&[], |said| said);
        let link = Arc::new(Link::new(begun.stream, address, greeting));
        // Reuses the index of a stream that has ended and has no user.
        let unused = links
            .iter()
            .position(|link| link.is_gone() && Arc::strong_count(link) == 1);
        let index = unused.unwrap_or(links.len());
        match unused {
            Some(index) => links[index] = link.clone(),
            None => links.push(link.clone()),
        }
        drop(links);
        // Most streams are already connected. The others send the greeting later, under a timer.
        link.push();
        self.new_links.lock().push(link.clone());
        self.has_new_links.store(true, Ordering::Release);
        self.wake();
        self.watch_silence();
        Ok((index as u32, link))
    }

    /// Sends the request that `encode` appends. Errors: as [`Link::ask`].
    pub(super) fn ask(
        &self,
        link: &Link,
        order: (u32, bool),
        encode: impl FnOnce(&mut Vec<u8>) -> Result<()>,
        waiting: Waiting,
    ) -> Result<()> {
        if link.ask(order, encode, waiting)? {
            // The next thread that takes answers sends the rest, or the progress thread does.
            self.has_unsent.store(true, Ordering::Release);
            self.wake();
        }
        self.watch_silence();
        Ok(())
    }

    /// A frame has been sent. The agent looks from time to time whether the peer lives ([`Stream::look`](super::Stream::look)), until no frame is on its way.
    pub(crate) fn watch_silence(&self) {
        self.timer.start();
    }

    /// The agent looks at once whether the peers that owe answers live.
    pub(super) fn look_at_peers(&self) {
        self.timer.hasten();
    }

    /// The agent sends the late operations of this channel from now on.
    pub(super) fn serve_late(&self, issue: &Arc<Issue>) {
        let mut issues = self.issues.lock();
        issues.retain(|issue| issue.strong_count() > 0);
        issues.push(Arc::downgrade(issue));
    }

    /// See [`Queue::new`](super::late::Queue::new).
    pub(super) fn channels_with_late(&self) -> &Arc<AtomicUsize> {
        &self.with_late
    }

    /// An event has come for which operations and threads may wait.
    pub(super) fn tell_of_news(&self) {
        // The keeper of a late operation counts it first, then looks for events. One of the two threads sees the other.
        fence(Ordering::SeqCst);
        if self.with_late.load(Ordering::SeqCst) > 0 {
            self.send_late();
        }
        self.registered.bell().ring_if_heard();
    }

    #[cold]
    fn send_late(&self) {
        let there = |issues: &Vec<Weak<Issue>>| issues.iter().filter_map(Weak::upgrade).collect();
        let issues: Vec<_> = there(&self.issues.lock());
        issues.iter().for_each(|issue| issue.send_late());
    }

    /// Memory that a peer has released is forgotten when its operations have ended.
    pub(super) fn forget_later(&self) {
        self.forgets.store(true, Ordering::Relaxed);
    }

    /// For the agent: takes the mark of [`forget_later`](StreamNode::forget_later).
    pub(super) fn forgets(&self) -> bool {
        self.forgets.load(Ordering::Relaxed) && self.forgets.swap(false, Ordering::Relaxed)
    }

    /// The number of the next channel.
    pub(super) fn next_channel(&self) -> u32 {
        self.channels.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// An operation goes to this peer. A test may lose the peer here.
    pub(super) fn count(&self, link: &Link) {
        if self.faults().is_some_and(Faults::loses) {
            tracing::debug!("the streams between this process and a peer are lost");
            self.lost.lock().insert(padded(link.address()));
            link.cut();
            self.wake();
        }
    }

    /// Whether the streams to the process at this address have been lost.
    pub(super) fn is_lost(&self, address: &PaddedAddress) -> bool {
        self.faults.is_some() && self.lost.lock().contains(address)
    }

    /// False in the child of a fork: the streams are the parent's.
    pub(crate) fn is_here(&self) -> bool {
        self.process == process::id()
    }

    /// Takes the answers of peers, unless another thread does.
    pub(crate) fn take_answers(&self) {
        if !self.is_here() {
            return;
        }
        if let Some(polls) = &self.polls
            && !driver::is_this_thread()
        {
            polls.note();
        }
        if let Some(mut agent) = self.agent.try_lock() {
            if !self.stirred.load(Ordering::Relaxed) {
                self.stirred.store(true, Ordering::Release);
            }
            agent.take_answers(self);
        }
    }

    /// As [`take_answers`](StreamNode::take_answers), for a thread that polls next.
    pub(super) fn take_answers_first(&self) {
        self.take_answers();
        self.fresh.store(true, Ordering::Relaxed);
    }

    /// As [`take_answers`](StreamNode::take_answers), for a thread that polls, unless that has [just been done](StreamNode::take_answers_first).
    pub(super) fn take_answers_then(&self) {
        if !self.fresh.swap(false, Ordering::Relaxed) {
            self.take_answers();
        }
    }

    /// As [`take_answers`](StreamNode::take_answers), for a thread that posts many operations and polls rarely.
    pub(super) fn take_answers_of_many(&self) {
        if let Some(polls) = &self.polls
            && !driver::is_this_thread()
        {
            polls.note_many();
        }
        self.take_answers();
    }

    /// For the agent: a request of a peer is carried out.
    pub(super) fn serves(&self) {
        self.served.store(true, Ordering::Relaxed);
    }

    /// Whether requests were carried out since [`has_served`](StreamNode::has_served).
    pub(super) fn is_serving(&self) -> bool {
        self.served.load(Ordering::Relaxed)
    }

    /// Whether requests were carried out since the last call.
    pub(super) fn has_served(&self) -> bool {
        self.served.load(Ordering::Relaxed) && self.served.swap(false, Ordering::Relaxed)
    }

    /// Waits until `done`, by answers of peers or by the progress thread. Errors: [`Error::Timeout`].
    pub(crate) fn wait_until(
        &self,
        deadline: Deadline,
        mut done: impl FnMut() -> bool,
    ) -> Result<()> {
        let patience = WaitStrategy {
            bell: self.registered.bell(),
            crowded: true,
            company: &AtomicU32::new(1),
        };
        patience.wait(
            deadline,
            &mut || Ok(()),
            || BURST,
            || false,
            || false,
            || {
                self.take_answers();
                done().then_some(())
            },
        )
    }

    /// Calls for a turn.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.alarm, &1u64.to_ne_bytes());
    }

    /// The marks of descriptors that can be read.
    fn calls(&self) -> u64 {
        let mut room = [libc::epoll_event { events: 0, u64: 0 }; 4];
        ready(&self.events, &mut room).fold(0, |calls, mark| calls | mark)
    }

    /// For the agent: a turn begins, with these [calls](StreamNode::calls). Whether a look at the streams is due.
    fn hear(&self, calls: u64) -> bool {
        if calls & ALARM != 0 {
            let _ = rustix::io::read(&self.alarm, &mut [0u8; 8]);
        }
        calls & TIMER != 0 && self.timer.is_due()
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    /// See [`Transport::hurry`].
    pub(super) fn hurry(&self, deadline: Deadline) {
        *self.hurry.lock() = deadline;
    }

    /// The deadline for peers that do not read.
    pub(super) fn patience(&self) -> Deadline {
        let longest = match self.releases.are_given_up() {
            // A silent peer costs the long wait once, not for each registration.
            true => BRIEFLY,
            false => PARTING,
        };
        let left = self.hurry.lock().remaining().unwrap_or(longest);
        Deadline::after(left.clamp(BRIEFLY, longest))
    }

    /// Peers learn that this process leaves. The process may end right after this.
    pub(super) fn leave(&self) {
        if self.is_here() {
            self.leaving.store(true, Ordering::Release);
            self.wake();
            let _ = self.wait_until(Deadline::Never, || self.releases.has_left());
        }
    }

    /// Before it goes: peers that read get all frames; then all streams end.
    pub(super) fn part(&self) {
        let _ = self.wait_until(self.patience(), || self.agent.lock().has_sent_all());
        self.releases.close();
        self.agent.lock().part(self);
    }
}

/// The live stream to the process behind `address`, and its index.
fn known(links: &[Arc<Link>], address: &[u8]) -> Option<(u32, Arc<Link>)> {
    let index = links
        .iter()
        .position(|link| link.address() == address && !link.is_gone())?;
    Some((index as u32, links[index].clone()))
}

fn watch(events: &OwnedFd, what: BorrowedFd<'_>, mark: u64) -> rustix::io::Result<()> {
    let data = epoll::EventData::new_u64(mark);
    epoll::add(events, what, data, epoll::EventFlags::IN)
}

impl Driven for StreamNode {
    fn drive(&self) {
        if !self.is_here() {
            return;
        }
        let left = self.polls.as_ref().is_some_and(Polls::are_many);
        self.left.store(left, Ordering::Relaxed);
        let calls = self.calls();
        let needs_a_turn = match left {
            // A turn would delay the waiting threads, which do the same work.
            true => {
                let since =
                    liveness_timer::now().saturating_sub(self.turned.load(Ordering::Relaxed));
                since > TURNS || calls & !NETWORK != 0
            }
            false => {
                self.stirred.swap(false, Ordering::AcqRel)
                    || self.network.needs_beats()
                    || calls != 0
            }
        };
        if needs_a_turn {
            self.turned.store(liveness_timer::now(), Ordering::Relaxed);
            let mut agent = self.agent.lock();
            let looks = self.hear(calls);
            agent.turn(self, looks);
        }
    }

    fn has_sleepers(&self) -> bool {
        self.registered.bell().sleepers() > 0
    }

    fn is_left_to_others(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    fn leave_to_others(&self, leaves: bool) {
        if !self.is_here() {
            return;
        }
        // At each arrival the kernel visits all descriptors that watch the socket, even without a sleeper.
        for what in self.network.events() {
            let _ = match leaves {
                true => epoll::delete(&self.events, what),
                false => watch(&self.events, what, NETWORK),
            };
        }
    }
}

impl AsFd for StreamNode {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
