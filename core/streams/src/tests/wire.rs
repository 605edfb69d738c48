//! A network between the agents of one process. Queues in memory are its streams. An example of a backend.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use super::OWN;
use crate::greeting::{SECRET, padded};
use crate::{
    Accepted, After, Begun, Link, Network, OwnPart, ProgressEvents, Stream, StreamBackend,
    StreamEnded,
};
use unipgas_base::descriptor::above;
use unipgas_base::random::random;
use unipgas_base::{Error, Result, Rights};
use unipgas_engine::bundle::Tag;
use unipgas_engine::transport::Limits;

/// The bytes in one direction.
struct Pipe {
    state: Mutex<(VecDeque<u8>, bool)>,
    room: usize,
}

impl Pipe {
    fn new(room: usize) -> Arc<Pipe> {
        Arc::new(Pipe {
            state: Mutex::default(),
            room,
        })
    }

    fn end(&self) {
        self.state.lock().1 = true;
    }

    fn has_news(&self) -> bool {
        let state = self.state.lock();
        state.1 || !state.0.is_empty()
    }

    fn has_room(&self) -> bool {
        let state = self.state.lock();
        state.1 || state.0.len() < self.room
    }
}

pub struct End {
    out: Arc<Pipe>,
    come: Arc<Pipe>,
    wants_room: AtomicBool,
    /// The end of the stream is known.
    over: AtomicBool,
    here: Arc<OwnedFd>,
    there: Arc<OwnedFd>,
}

fn ring(alarm: &OwnedFd) {
    let _ = rustix::io::write(alarm, &1u64.to_ne_bytes());
}

fn alarm() -> Arc<OwnedFd> {
    Arc::new(above(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)).unwrap())
}

/// A stream that holds at most `room` bytes in each direction.
pub(crate) fn pair(room: usize) -> (Arc<End>, Arc<End>) {
    between(room, &alarm(), &alarm())
}

fn between(room: usize, one: &Arc<OwnedFd>, other: &Arc<OwnedFd>) -> (Arc<End>, Arc<End>) {
    let (there, back) = (Pipe::new(room), Pipe::new(room));
    let end = |out: &Arc<Pipe>, come: &Arc<Pipe>, here: &Arc<OwnedFd>, there: &Arc<OwnedFd>| {
        Arc::new(End {
            out: out.clone(),
            come: come.clone(),
            wants_room: AtomicBool::new(false),
            over: AtomicBool::new(false),
            here: here.clone(),
            there: there.clone(),
        })
    };
    (
        end(&there, &back, one, other),
        end(&back, &there, other, one),
    )
}

impl Stream for End {
    fn push(&self, bytes: &[u8]) -> std::result::Result<usize, StreamEnded> {
        let mut state = self.out.state.lock();
        if state.1 {
            return Err(StreamEnded);
        }
        let sent = bytes.len().min(self.out.room - state.0.len());
        state.0.extend(&bytes[..sent]);
        drop(state);
        ring(&self.there);
        Ok(sent)
    }

    fn pull(&self, into: &mut Vec<u8>) -> std::result::Result<(), StreamEnded> {
        let mut state = self.come.state.lock();
        into.extend(state.0.drain(..));
        let ended = state.1;
        drop(state);
        ring(&self.there);
        self.over.store(ended, Ordering::Release);
        if ended { Err(StreamEnded) } else { Ok(()) }
    }

    fn want_room(&self, wanted: bool) {
        self.wants_room.store(wanted, Ordering::Release);
    }

    fn end(&self) {
        self.over.store(true, Ordering::Release);
        for pipe in [&self.out, &self.come] {
            pipe.end();
        }
        for alarm in [&self.here, &self.there] {
            ring(alarm);
        }
    }
}

impl End {
    fn has_news(&self) -> bool {
        let room = self.wants_room.load(Ordering::Acquire) && self.out.has_room();
        !self.over.load(Ordering::Acquire) && (room || self.come.has_news())
    }
}

/// Properties of a network.
#[derive(Clone, Copy)]
pub struct WireKind {
    /// Maximum of bytes that a stream holds.
    pub room: usize,
    /// No greeting is needed.
    pub trusts: bool,
    pub waits_for: After,
    pub limits: Limits,
}

impl Default for WireKind {
    fn default() -> Self {
        WireKind {
            room: 1 << 20,
            trusts: false,
            waits_for: After::READS,
            limits: Limits::NONE,
        }
    }
}

/// The network of one agent.
pub(crate) struct Wires {
    address: Vec<u8>,
    secret: [u8; SECRET],
    kind: WireKind,
    alarm: Arc<OwnedFd>,
    guests: Mutex<VecDeque<Accepted>>,
    wants_guests: AtomicBool,
    ends: Mutex<Vec<Weak<End>>>,
    /// Number of ended operations of the network's own that were not reported.
    pub ended: AtomicUsize,
}

static ALL: Mutex<Option<HashMap<Vec<u8>, Weak<Wires>>>> = Mutex::new(None);

impl Wires {
    pub(crate) fn new(kind: WireKind) -> Arc<Wires> {
        let wires = Arc::new(Wires {
            address: random::<8>().unwrap().to_vec(),
            secret: random().unwrap(),
            kind,
            alarm: alarm(),
            guests: Mutex::default(),
            wants_guests: AtomicBool::new(true),
            ends: Mutex::default(),
            ended: AtomicUsize::new(0),
        });
        let mut all = ALL.lock();
        let all = all.get_or_insert_default();
        all.insert(wires.address.clone(), Arc::downgrade(&wires));
        wires
    }

    /// An operation of the network's own has ended.
    pub(crate) fn tell_of_end(&self) {
        self.ended.fetch_add(1, Ordering::AcqRel);
        ring(&self.alarm);
    }

    /// Loses all peers.
    pub(crate) fn end_all(&self) {
        for end in self.ends.lock().iter().filter_map(Weak::upgrade) {
            end.end();
            // The agent has not seen the end.
            end.over.store(false, Ordering::Release);
        }
        ring(&self.alarm);
    }

    /// Begins a stream to it, without a greeting.
    pub fn begin(&self) -> Arc<End> {
        self.begun_by(&alarm(), None)
    }

    fn begun_by(&self, alarm: &Arc<OwnedFd>, known: Option<&[u8]>) -> Arc<End> {
        let (theirs, mine) = between(self.kind.room, alarm, &self.alarm);
        self.ends.lock().push(Arc::downgrade(&mine));
        self.guests.lock().push_back(Accepted {
            stream: mine,
            known: known.map(padded),
        });
        ring(&self.alarm);
        theirs
    }
}

impl Network for Wires {
    fn address(&self) -> &[u8] {
        &self.address
    }

    fn secret(&self) -> [u8; SECRET] {
        self.secret
    }

    fn reach(&self, address: &[u8]) -> Result<Begun> {
        let all = ALL.lock();
        let other = all.as_ref().and_then(|all| all.get(address));
        let other = other.and_then(Weak::upgrade).ok_or(Error::PeerDead)?;
        let known = self.kind.trusts.then_some(&self.address[..]);
        let stream = other.begun_by(&self.alarm, known);
        self.ends.lock().push(Arc::downgrade(&stream));
        Ok(Begun {
            stream,
            secret: (!self.kind.trusts).then_some(other.secret),
        })
    }

    fn accept(&self) -> Result<Option<Accepted>> {
        Ok(self.guests.lock().pop_front())
    }

    fn want_guests(&self, wanted: bool) {
        self.wants_guests.store(wanted, Ordering::Release);
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.alarm.as_fd()]
    }

    fn progress(&self, _turn: bool, _alone: bool) -> ProgressEvents {
        ProgressEvents {
            streams: true,
            guests: true,
            ended: self.ended.swap(0, Ordering::AcqRel) > 0,
        }
    }

    fn is_moved_on_by_waiting(&self) -> bool {
        false
    }

    fn needs_beats(&self) -> bool {
        true
    }

    fn may_rest(&self) -> bool {
        let _ = rustix::io::read(&*self.alarm, &mut [0u8; 8]);
        let called = self.wants_guests.load(Ordering::Acquire) && !self.guests.lock().is_empty();
        let mut ends = self.ends.lock();
        ends.retain(|end| end.strong_count() > 0);
        let mut there = ends.iter().filter_map(Weak::upgrade);
        self.ended.load(Ordering::Acquire) == 0 && !called && !there.any(|end| end.has_news())
    }

    fn limits(&self) -> Limits {
        self.kind.limits
    }

    fn requests_wait_for(&self) -> After {
        self.kind.waits_for
    }

    fn imported(&self, _: &Link, told: &[u8]) -> Result<[u64; 3]> {
        match told.try_into() {
            Ok(word) => Ok([u64::from_le_bytes(word), 0, 0]),
            Err(_) => Err(Error::StaleRegion),
        }
    }
}

impl StreamBackend for Wires {
    const NAME: &'static str = "wires";
    const TAG: Tag = Tag::new(9);

    fn is_common(&self, _: &[u8]) -> bool {
        true
    }

    unsafe fn register_own(
        &self,
        _: *mut u8,
        _: usize,
        _: Option<Rights>,
        _: bool,
    ) -> Result<OwnPart> {
        Ok(OwnPart {
            told: OWN.to_le_bytes().to_vec(),
            ..OwnPart::default()
        })
    }
}
