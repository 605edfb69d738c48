//! The NIC's thread.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use unipgas_verbs_sys::IBV_QPS_RESET;

use crate::device::Device;
use crate::link::{self, NicLink, Socket};
use crate::nic::{Nic, NicTask};
use crate::packet::{ACK, HEADER, Header, NICS, nic_number, split};
use crate::qp::{Qp, QpState};

/// Unsent bytes of a link above which queue pairs wait.
const FULL: usize = 256 << 10;
/// The link between queue pairs of this NIC itself. Other links count from 2.
const OWN: u64 = 1;
const LISTENER: u64 = u64::MAX;
const BELL: u64 = u64::MAX - 1;
/// The link of a queue pair to a peer that does not exist.
const NOWHERE: u64 = 0;
/// Upper limit of the random delay of a read.
const LATEST_US: u64 = 4000;

/// The way to a queue pair's peer.
pub(crate) enum Path {
    Link(u64),
    /// The peer's NIC is busy.
    Later,
    Dead,
}

pub(crate) struct NicEngine {
    pub nic: Arc<Nic>,
    epoll: Socket,
    listener: Socket,
    links: HashMap<u64, NicLink>,
    /// Links that this side has connected, by the number of the peer's NIC.
    reached: HashMap<u32, u64>,
    next_link: u64,
    own: Vec<u8>,
    /// Receives the packets to dead peers, which are discarded.
    void: Vec<u8>,
    own_waiting: Vec<Arc<Qp>>,
    timers: BinaryHeap<Reverse<(Instant, u32)>>,
    random: Option<u64>,
}

impl NicEngine {
    /// Takes a number on the fabric.
    pub fn open(device: &'static Device) -> Result<Self, Errno> {
        let config = device.config;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_nanos() as u32);
        let seed = (now ^ std::process::id().rotate_left(16)).wrapping_mul(0x9e37_79b1);
        let mut tried = 0;
        let (number, listener) = loop {
            // 0 and 1 stay free: they are numbers of special queue pairs.
            let number = 2 + (seed.wrapping_add(tried)) % (NICS - 2);
            match link::occupy(&config.fabric, number) {
                Ok(listener) => break (number, listener),
                Err(Errno::ADDRINUSE) if tried < NICS => tried += 1,
                Err(error) => return Err(error),
            }
        };
        let nic = Arc::new(Nic::new(device, number, seed.rotate_left(16))?);
        let epoll = Socket::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let input = epoll::EventFlags::IN;
        epoll::add(
            &epoll,
            &listener,
            epoll::EventData::new_u64(LISTENER),
            input,
        )?;
        epoll::add(
            &epoll,
            nic.bell_fd(),
            epoll::EventData::new_u64(BELL),
            input,
        )?;
        let random = config.late.map(|seed| {
            let mixed = (seed ^ u64::from(number) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed | 1
        });
        Ok(NicEngine {
            nic,
            epoll,
            listener,
            links: HashMap::new(),
            reached: HashMap::new(),
            next_link: 2,
            own: Vec::new(),
            void: Vec::new(),
            own_waiting: Vec::new(),
            timers: BinaryHeap::new(),
            random,
        })
    }

    pub fn run(mut self) {
        be_prompt();
        let mut events = Vec::with_capacity(64);
        while self.do_jobs() {
            for qp in self.nic.take_dirty() {
                self.advance(&qp);
            }
            self.ring_timers();
            self.deliver_own();
            self.push_all();
            let busy = !self.own.is_empty() || !self.nic.may_sleep();
            let timeout = if busy {
                Some(Duration::ZERO)
            } else {
                self.next_timer()
            };
            let timeout = timeout.map(|left| Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            });
            events.clear();
            let waited = epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref());
            self.nic.mark_awake();
            if waited.is_err() {
                continue;
            }
            for event in &events {
                match event.data.u64() {
                    BELL => {
                        let _ = rustix::io::read(self.nic.bell_fd(), &mut [0; 8]);
                    }
                    LISTENER => self.accept(),
                    link => self.pull(link),
                }
            }
        }
    }

    /// Returns false if the thread is to end.
    fn do_jobs(&mut self) -> bool {
        for job in self.nic.take_jobs() {
            match job {
                NicTask::Stop => {
                    self.push_all();
                    return false;
                }
                NicTask::Flush(flushed) => {
                    self.push_all();
                    flushed.done();
                }
                NicTask::Overrun(cq) => {
                    for qp in self.nic.all_qps() {
                        if Arc::ptr_eq(&qp.send_cq, &cq) || Arc::ptr_eq(&qp.recv_cq, &cq) {
                            qp.fail();
                        }
                    }
                }
            }
        }
        true
    }

    fn advance(&mut self, qp: &Arc<Qp>) {
        let mut state = qp.state.lock();
        if state.state != IBV_QPS_RESET {
            self.send_answers(qp, &mut state, Instant::now());
            self.send(qp, &mut state);
        }
    }

    pub fn wake_at(&mut self, at: Instant, qp: u32) {
        self.timers.push(Reverse((at, qp)));
    }

    fn ring_timers(&mut self) {
        let now = Instant::now();
        while let Some(Reverse((at, number))) = self.timers.peek().copied() {
            if at > now {
                return;
            }
            self.timers.pop();
            if let Some(qp) = self.nic.qp(number) {
                self.advance(&qp);
            }
        }
    }

    fn next_timer(&self) -> Option<Duration> {
        let Reverse((at, _)) = self.timers.peek()?;
        Some(at.saturating_duration_since(Instant::now()))
    }

    /// The delay of the next read.
    pub fn delay(&mut self) -> Duration {
        let Some(random) = &mut self.random else {
            return Duration::ZERO;
        };
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        Duration::from_micros(*random % LATEST_US)
    }

    /// The path to the peer of a connected queue pair. A queue pair keeps its first link, even if another process takes the NIC's number later.
    pub fn path(&mut self, qp: &Qp, state: &mut QpState) -> Path {
        let link = match state.sender.link {
            Some(link) => link,
            None => match self.link_to(&qp.nic, nic_number(state.attr.dest_qp_num)) {
                Ok(link) => link,
                // The peer is busy, or a limit of open files or of memory is reached.
                Err(Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    return Path::Later;
                }
                Err(_) => NOWHERE,
            },
        };
        state.sender.link = Some(link);
        match link == OWN || self.links.contains_key(&link) {
            true => Path::Link(link),
            false => Path::Dead,
        }
    }

    pub fn link_to(&mut self, nic: &Nic, number: u32) -> Result<u64, Errno> {
        if number == nic.number {
            return Ok(OWN);
        }
        if let Some(link) = self.reached.get(&number) {
            return Ok(*link);
        }
        let socket = link::reach(&nic.device.config.fabric, number)?;
        let link = self.add(NicLink::new(socket, Some(number)))?;
        self.reached.insert(number, link);
        Ok(link)
    }

    fn add(&mut self, link: NicLink) -> Result<u64, Errno> {
        let id = self.next_link;
        let data = epoll::EventData::new_u64(id);
        epoll::add(&self.epoll, link.fd(), data, epoll::EventFlags::IN)?;
        self.next_link += 1;
        self.links.insert(id, link);
        Ok(id)
    }

    fn accept(&mut self) {
        while let Ok(socket) = link::accept(&self.listener) {
            let _ = self.add(NicLink::new(socket, None));
        }
    }

    /// Returns true if the link is full. The queue pair then continues when there is room.
    pub fn wait_if_full(&mut self, link: u64, qp: &Arc<Qp>) -> bool {
        let (left, waiting) = match self.links.get_mut(&link) {
            Some(link) => (link.left(), &mut link.waiting),
            None if link == OWN => (self.own.len(), &mut self.own_waiting),
            None => return false,
        };
        if left > FULL {
            waiting.push(qp.clone());
        }
        left > FULL
    }

    /// Appends the header, and returns the buffer for the packet's data. Packets to dead peers are discarded.
    pub fn begin(&mut self, link: u64, header: &Header) -> &mut Vec<u8> {
        let out = match self.links.get_mut(&link) {
            Some(link) => &mut link.out,
            None if link == OWN => &mut self.own,
            None => {
                self.void.clear();
                &mut self.void
            }
        };
        out.extend_from_slice(bytemuck::bytes_of(header));
        out
    }

    pub fn tell(&mut self, link: u64, header: &Header) {
        self.begin(link, header);
    }

    fn deliver(&mut self, link: u64, header: &Header, data: &[u8]) {
        match header.kind {
            ACK.. => self.response(header, data),
            _ => self.request(link, header, data),
        }
    }

    /// Delivers all complete packets of the stream, and returns their length in bytes.
    fn deliver_all(&mut self, link: u64, stream: &[u8]) -> usize {
        let mut rest = stream;
        while let Some((header, data, later)) = split(rest) {
            self.deliver(link, &header, data);
            rest = later;
        }
        stream.len() - rest.len()
    }

    fn deliver_own(&mut self) {
        let stream = std::mem::take(&mut self.own);
        self.deliver_all(OWN, &stream);
        for qp in std::mem::take(&mut self.own_waiting) {
            self.advance(&qp);
        }
    }

    fn pull(&mut self, id: u64) {
        match self.take_in(id) {
            // Send the answers now: the program may end the process as soon as it sees the effect.
            Some(_) => self.push(id),
            None => self.lose(id),
        }
    }

    /// Receives and delivers. Returns the number of received bytes; `None` at the end of the stream.
    fn take_in(&mut self, id: u64) -> Option<usize> {
        let link = self.links.get_mut(&id)?;
        let pulled = link.pull();
        let mut input = std::mem::take(&mut link.input);
        let used = self.deliver_all(id, &input);
        input.drain(..used);
        if let Some(link) = self.links.get_mut(&id) {
            link.input = input;
        }
        pulled.ok()
    }

    /// The peer's process has ended.
    fn lose(&mut self, id: u64) {
        let Some(link) = self.links.remove(&id) else {
            return;
        };
        if let Some(number) = link.to {
            self.reached.remove(&number);
            self.nic.ring_all();
        }
    }

    fn push_all(&mut self) {
        let ids: Vec<u64> = self
            .links
            .iter()
            .filter(|(_, link)| !link.is_idle() || link.is_watched || !link.waiting.is_empty())
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            self.push(id);
        }
    }

    fn push(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        if link.push().is_err() {
            // Deliver the packets that the peer sent before its end.
            while self.take_in(id).is_some_and(|len| len > 0) {}
            return self.lose(id);
        }
        let watch = link.left() > 0;
        if watch != link.is_watched {
            link.is_watched = watch;
            let flags = match watch {
                true => epoll::EventFlags::IN | epoll::EventFlags::OUT,
                false => epoll::EventFlags::IN,
            };
            let data = epoll::EventData::new_u64(id);
            let _ = epoll::modify(&self.epoll, link.fd(), data, flags);
        }
        if link.left() <= FULL / 2 {
            for qp in std::mem::take(&mut link.waiting) {
                self.nic.ring(&qp);
            }
        }
    }
}

/// Asks for short time slices, so that the scheduler runs this thread promptly. Programs wait in loops without sleep, since a real NIC needs no CPU.
fn be_prompt() {
    const TURN_NS: u64 = 100_000;
    let attr = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: TURN_NS,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY:
    // - the structure states its own size, and the call affects this thread only. Kernels without such slices refuse it.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}

const _: () = assert!(HEADER.is_multiple_of(8));
