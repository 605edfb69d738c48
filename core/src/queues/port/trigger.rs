//! Triggered commands of ports whose memory peers map (uTofu guide §2.2.8): posted by a port's owner, started by arrivals, carried out by
//! whoever brings the arrival. All of it lies in the port's shared memory, so that the owner need not even be running. [`Steps`] orders it.
//!
//! A runner that is killed is replaced by the next process that brings something, or looks. What it had done of its command stands
//! beside the command, so that nothing is done twice (but what it did in its very last instructions), and nothing is left out.

use std::mem::size_of;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::carry::address;
use super::command::{Command, CommandFlags, CommandKind};
use super::last::Cut;
use super::neighbour::Network;
use super::notice::{Fault, NoticeKind, PortNotice};
use super::remote::{PLAIN_LEN, RemotePort};
use crate::bundle::{BUNDLE_LEN, RegionKey};
use crate::cache::PAIR;
use crate::op::{Flags, Remote};
use crate::region::Rights;
use crate::steps::Steps;
use crate::{Error, Result, on_pair};

/// Commands that a session port can have posted whose completions have not been looked at. More than 2000 must fit (§2.2.8.1).
pub(super) const TRIGGERED: usize = 4096;

/// The kind of a port, in its header.
pub(super) const PLAIN: u32 = 1;
pub(super) const SESSION: u32 = 2;
/// A session port whose owner's process carries the commands out ([`held`](super::held)).
pub(super) const HELD: u32 = 3;

/// The first page of a port's table region. All-zero bytes are no port yet.
#[repr(C, align(4096))]
pub(super) struct Header {
    /// What the owner calls itself in notices.
    pub id: AtomicU64,
    pub kind: AtomicU32,
    /// Set by whoever found the inbox full.
    pub overflow: AtomicU32,
    /// Key of the region of the inbox's larger part.
    pub spill: [AtomicU64; BUNDLE_LEN / 8],
    steps: Steps,
}

impl Header {
    /// Where the key of the inbox's larger part lies.
    pub const SPILL: usize = std::mem::offset_of!(Header, spill);
    /// Where the kind is.
    pub const KIND: usize = std::mem::offset_of!(Header, kind);
    /// Where the word is that says that the inbox was full.
    pub const OVERFLOW: usize = std::mem::offset_of!(Header, overflow);

    /// Tells where the inbox's larger part is.
    pub fn set_spill(&self, key: &RegionKey) {
        for (word, bytes) in self.spill.iter().zip(key.as_bytes().chunks_exact(8)) {
            let value = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
            word.store(value, Ordering::Relaxed);
        }
    }
}

/// Bytes of [`Header`].
pub(super) const HEADER_LEN: usize = size_of::<Header>();

on_pair! {
    /// One triggered command.
    #[repr(C)]
    struct Place {
        words: [AtomicU64; 8],
        /// 0 until it has been carried out; then 1, more by its fault if it was not sent.
        state: AtomicU64,
        /// How far it has come: [`MOVED`], [`PASSED_ON`].
        stage: AtomicU64,
    }
}

/// The data is at the target, and the notice that it asked for.
const MOVED: u64 = 1;
/// The target's commands may start.
const PASSED_ON: u64 = 2;

/// Bytes of a session port's table region.
pub(super) const SESSION_LEN: usize =
    PLAIN_LEN.next_multiple_of(PAIR) + TRIGGERED * size_of::<Place>();

/// A session port's commands, from any process.
#[derive(Clone, Copy)]
pub(super) struct Trigger<'a> {
    header: &'a Header,
    places: *const Place,
}

impl<'a> Trigger<'a> {
    /// # Safety
    /// `header` lies at the beginning of `len` mapped bytes, which stay mapped for `'a`.
    #[inline(always)]
    pub unsafe fn attach(header: &'a Header, len: usize) -> Option<Self> {
        if header.kind.load(Ordering::Acquire) != SESSION || len < SESSION_LEN {
            return None;
        }
        // SAFETY:
        // - the caller's word, and there is room.
        Some(unsafe { Trigger::own(header) })
    }

    /// Of a session port of this process, whatever somebody has written to its header.
    ///
    /// # Safety
    /// As [`attach`](Self::attach), of at least [`SESSION_LEN`] bytes.
    pub unsafe fn own(header: &'a Header) -> Self {
        let places = std::ptr::from_ref(header)
            .cast::<u8>()
            .wrapping_add(PLAIN_LEN.next_multiple_of(PAIR))
            .cast();
        Trigger { header, places }
    }

    fn place(&self, number: u64) -> &'a Place {
        // SAFETY:
        // - the index is below TRIGGERED, and there is room for as many (`own`); atomics, valid for any bytes; aligned,
        //   since the region is page-aligned.
        unsafe { &*self.places.add(number as usize % TRIGGERED) }
    }

    /// Commands posted so far, as the header says: the owner knows for himself.
    fn posted(&self) -> u64 {
        self.header.steps.posted()
    }

    /// Posts command `number`; the owner alone, and only while fewer than [`TRIGGERED`] are not taken.
    pub fn post(&self, number: u64, command: &Command) {
        let place = self.place(number);
        for (word, value) in place.words.iter().zip(command.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
        place.state.store(0, Ordering::Relaxed);
        place.stage.store(0, Ordering::Relaxed);
        self.header.steps.post_up_to(number + 1);
    }

    /// Whether commands may start, and nobody has yet.
    pub fn is_ready(&self) -> bool {
        self.header.steps.ready_of(TRIGGERED as u64).is_some()
    }

    /// What became of command `number`: `None` while it waits; else whether its sending failed.
    pub fn outcome(&self, number: u64) -> Option<Option<Fault>> {
        match self.place(number).state.load(Ordering::Acquire) {
            0 => None,
            state => Some(Fault::from_bits((state - 1) as u8)),
        }
    }

    /// The flags that command `number` was posted with.
    pub fn flags(&self, number: u64) -> CommandFlags {
        self.command(number).flags()
    }

    fn command(&self, number: u64) -> Command {
        let place = self.place(number);
        Command::from_words(std::array::from_fn(|i| {
            place.words[i].load(Ordering::Relaxed)
        }))
    }
}

/// Something has arrived at `port` that lets `steps` of its commands start. Carries out those, and what they let start in turn.
pub(super) fn arrive(network: &Network, port: &RemotePort, steps: u8) {
    if let Some(trigger) = port.trigger() {
        trigger.header.steps.allow(steps);
    }
    advance(network, port);
}

/// Carries out what may start at `port`, and what that lets start in turn: a chain of any length, without recursion.
pub(super) fn advance(network: &Network, port: &RemotePort) {
    let mut next = Vec::new();
    run(network, port, &mut next);
    while let Some((place, index)) = next.pop() {
        if let Ok(port) = network.port(place, index) {
            run(network, port, &mut next);
        }
    }
}

/// Ports, as place and index, that something has been passed on to.
type Arrivals = Vec<(u16, u16)>;

fn run(network: &Network, port: &RemotePort, arrivals: &mut Arrivals) {
    let Some(trigger) = port.trigger() else {
        return;
    };
    let replaced = trigger.header.steps.run_of(
        TRIGGERED as u64,
        network.pid().into(),
        |pid| network.has_ended(pid as u32),
        |number| {
            let place = trigger.place(number);
            let command = trigger.command(number);
            let sent = start(network, port, trigger.header, place, &command, arrivals);
            let state = 1 + sent.map_or(0, |fault| fault as u64);
            place.state.store(state, Ordering::Release);
            ControlFlow::Continue(())
        },
    );
    if replaced {
        // It may have died before it had seen to those whom it has passed something on to.
        let posted = trigger.posted();
        let passed_on = (posted.saturating_sub(TRIGGERED as u64)..posted)
            .filter(|number| trigger.place(*number).stage.load(Ordering::Acquire) == PASSED_ON)
            .map(|number| trigger.command(number));
        arrivals.extend(passed_on.map(|command| (command.place(), command.port())));
        arrivals.sort_unstable();
        arrivals.dedup();
    }
}

/// Carries out one command for its owner; gives the fault if it could not be sent.
fn start(
    network: &Network,
    owner: &RemotePort,
    header: &Header,
    place: &Place,
    command: &Command,
    arrivals: &mut Arrivals,
) -> Option<Fault> {
    if command.kind() != Some(CommandKind::Put) {
        return None;
    }
    let len = command.len();
    let end = PortNotice {
        kind: NoticeKind::LocalPut,
        fault: None,
        edata: command.edata(),
        peer: command.peer,
        value: 0,
        remote: command.remote.wrapping_add(len as u64),
    };
    let flags = command.flags();
    // More than 0 where a runner has been killed in the middle.
    let stage = place.stage.load(Ordering::Acquire);
    let fault = if stage < MOVED {
        let source = match owner.at(network, command.local(), len, Rights::READ) {
            Ok(source) => source,
            Err(reach) => return Some(reach.at_send()),
        };
        match relay(network, source, command, len) {
            Ok(target) => {
                if flags.contains(CommandFlags::REMOTE_NOTICE) {
                    let notice = PortNotice {
                        kind: NoticeKind::RemotePut,
                        peer: header.id.load(Ordering::Relaxed),
                        ..end
                    };
                    network.tell(target, notice);
                }
                place.stage.store(MOVED, Ordering::Release);
                None
            }
            Err(fault) => Some(fault),
        }
    } else {
        None
    };
    if fault.is_none() && command.steps() > 0 && stage < PASSED_ON {
        pass_on(network, command);
        place.stage.store(PASSED_ON, Ordering::Release);
        arrivals.push((command.place(), command.port()));
    }
    if fault.is_some() || flags.contains(CommandFlags::LOCAL_NOTICE) {
        network.tell(owner, PortNotice { fault, ..end });
    }
    None
}

/// Lets commands of the target start. If it has gone meanwhile, nobody misses that.
fn pass_on(network: &Network, command: &Command) {
    if let Ok(target) = network.port(command.place(), command.port())
        && let Some(trigger) = target.trigger()
    {
        trigger.header.steps.allow(command.steps());
    }
}

fn relay<'n>(
    network: &'n Network,
    source: Remote<'_>,
    command: &Command,
    len: usize,
) -> Result<&'n RemotePort, Fault> {
    let target = network.port(command.place(), command.port())?;
    let ordered = command.flags().contains(CommandFlags::ORDERED);
    let mut again = false;
    loop {
        let to = target
            .at(network, command.remote(), len, Rights::WRITE)
            .map_err(|reach| network.blame(target, reach))?;
        match relay_end_last(network, source, to, len, ordered) {
            Ok(()) => return Ok(target),
            Err(Error::StaleRegion) if !again => again = true,
            Err(Error::PeerDead) => return Err(Fault::Peer),
            Err(_) => return Err(Fault::Other),
        }
    }
}

/// Copies; lines, or the end, become visible last ([`last`](super::last)).
fn relay_end_last(
    network: &Network,
    source: Remote<'_>,
    to: Remote<'_>,
    len: usize,
    ordered: bool,
) -> Result<()> {
    if !source.region.is_asynchronous() && !to.region.is_asynchronous() {
        return network.relay(source, to, len, Flags::LINES);
    }
    let cut = Cut::of(address(to), len, ordered);
    // The ranges may overlap: the end is read before anything is written.
    let mut word = [0u8; 8];
    let word = &mut word[..cut.last];
    network.read(source.region, source.offset + cut.first, word)?;
    network.relay(source, to, cut.first, cut.lines)?;
    network.write(word, to.region, to.offset + cut.first)
}
