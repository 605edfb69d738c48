//! Triggered commands of ports that peers map (uTofu guide §2.2.8). The owner posts them, and arrivals start them. The process that delivers an arrival carries
//! them out (the runner). All state is in the port's shared memory, so the owner need not run. [`Steps`] orders the commands.
//!
//! If a runner is killed, the next process that delivers an arrival or polls replaces it. The progress of each command is stored next to it. So no part is
//! repeated, except the last instructions of the killed runner, and no part is omitted.

use std::mem::size_of;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::carry::address;
use super::command::{Command, CommandFlags, CommandKind};
use super::last::Cut;
use super::neighbour::PortNetwork;
use super::notice::{Fault, NoticeKind, PortNotice};
use super::remote::{PLAIN_LEN, RemotePort};
use crate::steps::Steps;
use unipgas_base::cache::PAIR;
use unipgas_base::{Error, Result, Rights, on_pair};
use unipgas_engine::bundle::{BUNDLE_LEN, RegionKey};
use unipgas_engine::op::{Flags, Remote};

/// Maximum number of posted commands with unread completions at a session port. More than 2000 are required (§2.2.8.1).
pub(super) const TRIGGERED: usize = 4096;

/// Kind of a port, in its header.
pub(super) const PLAIN: u32 = 1;
pub(super) const SESSION: u32 = 2;
/// A session port with commands that its owner's process carries out ([`waiting_commands`](super::waiting_commands)).
pub(super) const HELD: u32 = 3;

/// The first page of a port's table region. All-zero bytes: no port yet.
#[repr(C, align(4096))]
pub(super) struct Header {
    /// The owner's name in notices.
    pub id: AtomicU64,
    pub kind: AtomicU32,
    /// A process that finds the inbox full sets it.
    pub overflow: AtomicU32,
    /// Key of the larger part of the inbox.
    pub spill: [AtomicU64; BUNDLE_LEN / 8],
    steps: Steps,
}

impl Header {
    /// Offset of the key of the inbox's larger part.
    pub(crate) const SPILL: usize = std::mem::offset_of!(Header, spill);
    /// Offset of the kind.
    pub(crate) const KIND: usize = std::mem::offset_of!(Header, kind);
    /// Offset of the overflow word.
    pub(crate) const OVERFLOW: usize = std::mem::offset_of!(Header, overflow);

    /// Publishes the key of the inbox's larger part.
    pub(crate) fn set_spill(&self, key: &RegionKey) {
        for (word, bytes) in self.spill.iter().zip(key.as_bytes().chunks_exact(8)) {
            let value = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
            word.store(value, Ordering::Relaxed);
        }
    }
}

/// Size of [`Header`] in bytes.
pub(super) const HEADER_LEN: usize = size_of::<Header>();

on_pair! {
    /// A triggered command.
    #[repr(C)]
    struct Place {
        words: [AtomicU64; 8],
        /// 0 until the command has been carried out. Then 1, plus its fault if it was not sent.
        state: AtomicU64,
        /// Progress of the command: [`MOVED`], [`PASSED_ON`].
        stage: AtomicU64,
    }
}

/// The data and the requested notice are at the target.
const MOVED: u64 = 1;
/// The target's commands have been allowed to start.
const PASSED_ON: u64 = 2;

/// Bytes of a session port's table region.
pub(super) const SESSION_LEN: usize =
    PLAIN_LEN.next_multiple_of(PAIR) + TRIGGERED * size_of::<Place>();

/// The commands of a session port, in any process.
#[derive(Clone, Copy)]
pub(super) struct Trigger<'a> {
    header: &'a Header,
    places: *const Place,
}

impl<'a> Trigger<'a> {
    /// # Safety
    /// `header` is at the beginning of `len` mapped bytes, which stay mapped for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn attach(header: &'a Header, len: usize) -> Option<Self> {
        if header.kind.load(Ordering::Acquire) != SESSION || len < SESSION_LEN {
            return None;
        }
        // SAFETY:
        // - contract of this call: the bytes are mapped. `len` was checked above.
        Some(unsafe { Trigger::own(header) })
    }

    /// Commands of a session port of this process. Ignores the header's kind, which peers can overwrite.
    ///
    /// # Safety
    /// As [`attach`](Self::attach), with at least [`SESSION_LEN`] bytes.
    pub(crate) unsafe fn own(header: &'a Header) -> Self {
        let places = std::ptr::from_ref(header)
            .cast::<u8>()
            .wrapping_add(PLAIN_LEN.next_multiple_of(PAIR))
            .cast();
        Trigger { header, places }
    }

    fn place(&self, number: u64) -> &'a Place {
        // SAFETY:
        // - the index is below TRIGGERED, and `own` requires room for all commands. Atomics are valid for any bytes. The region is page-aligned.
        unsafe { &*self.places.add(number as usize % TRIGGERED) }
    }

    /// Number of posted commands, from the header. The owner uses a private counter instead.
    fn posted(&self) -> u64 {
        self.header.steps.posted()
    }

    /// Posts command `number`. Only the owner may call, while fewer than [`TRIGGERED`] commands are not taken.
    pub fn post(&self, number: u64, command: &Command) {
        let place = self.place(number);
        for (word, value) in place.words.iter().zip(command.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
        place.state.store(0, Ordering::Relaxed);
        place.stage.store(0, Ordering::Relaxed);
        self.header.steps.post_up_to(number + 1);
    }

    /// Whether commands may start, and have not been started.
    pub(crate) fn is_ready(&self) -> bool {
        self.header.steps.ready_of(TRIGGERED as u64).is_some()
    }

    /// Result of command `number`. `None`: it waits. Otherwise the fault, if it was not sent.
    pub(crate) fn outcome(&self, number: u64) -> Option<Option<Fault>> {
        match self.place(number).state.load(Ordering::Acquire) {
            0 => None,
            state => Some(Fault::from_bits((state - 1) as u8)),
        }
    }

    /// The flags of command `number`.
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

/// Processes an arrival at `port` that lets `steps` of its commands start. Carries them out, and all commands that they let start.
pub(super) fn arrive(network: &PortNetwork, port: &RemotePort, steps: u8) {
    if let Some(trigger) = port.trigger() {
        trigger.header.steps.allow(steps);
    }
    advance(network, port);
}

/// Carries out the commands that may start at `port`, and all commands that they let start. A loop instead of recursion, for chains of any length.
pub(super) fn advance(network: &PortNetwork, port: &RemotePort) {
    let mut next = Vec::new();
    run(network, port, &mut next);
    while let Some((place, index)) = next.pop() {
        if let Ok(port) = network.port(place, index) {
            run(network, port, &mut next);
        }
    }
}

/// Place and index of ports that commands have passed steps on to.
type Arrivals = Vec<(u16, u16)>;

fn run(network: &PortNetwork, port: &RemotePort, arrivals: &mut Arrivals) {
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
            let state = 1 + sent.map_or_else(|fault| fault as u64, |()| 0);
            place.state.store(state, Ordering::Release);
            ControlFlow::Continue(())
        },
    );
    if replaced {
        // The killed runner may not have advanced the ports that it passed steps on to.
        let posted = trigger.posted();
        let passed_on = (posted.saturating_sub(TRIGGERED as u64)..posted)
            .filter(|number| trigger.place(*number).stage.load(Ordering::Acquire) == PASSED_ON)
            .map(|number| trigger.command(number));
        arrivals.extend(passed_on.map(|command| (command.place(), command.port())));
        arrivals.sort_unstable();
        arrivals.dedup();
    }
}

/// Carries out one command for its owner. Errors: the fault of a command that was not sent. A notice reports later faults.
fn start(
    network: &PortNetwork,
    owner: &RemotePort,
    header: &Header,
    place: &Place,
    command: &Command,
    arrivals: &mut Arrivals,
) -> Result<(), Fault> {
    if command.kind() != Some(CommandKind::Put) {
        return Ok(());
    }
    // More than 0 if a runner was killed during the command.
    let stage = place.stage.load(Ordering::Acquire);
    let mut fault = None;
    if stage < MOVED {
        let source = owner
            .at(network, command.local(), command.len(), Rights::READ)
            .map_err(|reach| reach.at_send())?;
        match move_data(network, header, source, command) {
            Ok(()) => place.stage.store(MOVED, Ordering::Release),
            failed => fault = failed.err(),
        }
    }
    if fault.is_none() && command.steps() > 0 && stage < PASSED_ON {
        pass_on(network, command);
        place.stage.store(PASSED_ON, Ordering::Release);
        arrivals.push((command.place(), command.port()));
    }
    if fault.is_some() || command.flags().contains(CommandFlags::LOCAL_NOTICE) {
        let end = notice_of(command, NoticeKind::LocalPut, command.peer);
        network.tell(owner, PortNotice { fault, ..end });
    }
    Ok(())
}

/// Moves the data to the target, then the requested notice.
fn move_data(
    network: &PortNetwork,
    header: &Header,
    source: Remote<'_>,
    command: &Command,
) -> Result<(), Fault> {
    let target = relay(network, source, command)?;
    if command.flags().contains(CommandFlags::REMOTE_NOTICE) {
        let owner = header.id.load(Ordering::Relaxed);
        network.tell(target, notice_of(command, NoticeKind::RemotePut, owner));
    }
    Ok(())
}

fn notice_of(command: &Command, kind: NoticeKind, peer: u64) -> PortNotice {
    PortNotice {
        kind,
        fault: None,
        edata: command.edata(),
        peer,
        value: 0,
        remote: command.remote.wrapping_add(command.len() as u64),
    }
}

/// Lets commands of the target start. Does nothing if the target has ended.
fn pass_on(network: &PortNetwork, command: &Command) {
    if let Ok(target) = network.port(command.place(), command.port())
        && let Some(trigger) = target.trigger()
    {
        trigger.header.steps.allow(command.steps());
    }
}

fn relay<'n>(
    network: &'n PortNetwork,
    source: Remote<'_>,
    command: &Command,
) -> Result<&'n RemotePort, Fault> {
    let target = network.port(command.place(), command.port())?;
    let attempt = || {
        let to = target
            .at(network, command.remote(), command.len(), Rights::WRITE)
            .map_err(|reach| network.blame(target, reach))?;
        Ok(relay_end_last(network, source, to, command))
    };
    let mut relayed = attempt()?;
    if relayed == Err(Error::StaleRegion) {
        relayed = attempt()?;
    }
    match relayed {
        Ok(()) => Ok(target),
        Err(Error::PeerDead) => Err(Fault::Peer),
        Err(_) => Err(Fault::Other),
    }
}

/// Copies the data. The end of each line, or of all data, becomes visible last ([`last`](super::last)).
fn relay_end_last(
    network: &PortNetwork,
    source: Remote<'_>,
    to: Remote<'_>,
    command: &Command,
) -> Result<()> {
    let len = command.len();
    let ordered = command.flags().contains(CommandFlags::ORDERED);
    if !source.region.is_asynchronous() && !to.region.is_asynchronous() {
        return network.relay(source, to, len, Flags::LINES);
    }
    let cut = Cut::of(address(to), len, ordered);
    // The ranges may overlap, so the end is read before the first write.
    let mut word = [0u8; 8];
    let word = &mut word[..cut.last];
    network.read(source.region, source.offset + cut.first, word)?;
    network.relay(source, to, cut.first, cut.lines)?;
    network.write(word, to.region, to.offset + cut.first)
}
