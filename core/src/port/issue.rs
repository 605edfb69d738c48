//! A port as its owner has it: registering memory, posting commands, learning what became of them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::command::{Command, CommandFlags, CommandKind, Rmw};
use super::completion::{Completed, Completions, Counts, DEPTH, Delayed, MOST_DELAYED};
use super::directory::PortDirectory;
use super::guard::{Guarded, Held};
use super::keys::{KeyTable, RESERVED_KEYS, Reach, ShortKey};
use super::neighbour::Network;
use super::notice::{Fault, NoticeKind, Packed, PortNotice};
use super::remote::{PLAIN_LEN, RemotePort};
use super::trigger::{self, PLAIN, SESSION, SESSION_LEN, TRIGGERED, Trigger};
use crate::endpoint::Endpoint;
use crate::inbox::{InboxLayout, InboxReader, initialise_zeroed};
use crate::mapped;
use crate::op::{AtomicRequest, Flags, Local, Outcome, Remote};
use crate::region::{Region, Rights};
use crate::{AtomicOp, AtomicType, Error, Result};

/// How a port is to be.
#[derive(Debug, Clone, Copy)]
pub struct PortOptions {
    /// What it calls itself in notices to others.
    pub id: u64,
    /// Its index among the ports of this process.
    pub index: u16,
    /// Its commands wait for arrivals.
    pub session: bool,
    /// Several threads use it at the same time.
    pub shared: bool,
    /// Notices that it holds: a power of two.
    pub inbox: usize,
}

/// Empty polls between two offers of the core to others, where each process has a core, and where not.
const PATIENCE: (u32, u32) = (1024, 8);
/// Offers between two looks at the lives of peers.
const OFFERS: u32 = 64;
/// How often somebody looks after operations that are under way while the program computes.
const PROGRESS: Duration = Duration::from_micros(100);

/// A port.
pub struct Port {
    pub(super) network: Arc<Network>,
    directory: Arc<PortDirectory>,
    pub(super) options: PortOptions,
    place: u16,
    pub(super) endpoint: Endpoint,
    direct: bool,
    /// Commands take effect when they are posted, and nobody else carries them out.
    pub(super) quick: bool,
    pub(super) keys: KeyTable,
    table: Region,
    /// Memory of the reader in `queues`.
    inbox: Region,
    queues: Guarded<Queues>,
    pub(super) counts: Counts,
    /// Commands that are delayed, under way or triggered.
    waiting: AtomicUsize,
}

/// What one thread at a time may use.
pub struct Queues {
    pub(super) completions: Completions,
    pub(super) notices: VecDeque<Packed>,
    pub(super) reader: InboxReader,
    pub(super) delayed: Delayed,
    /// Commands under way, in the order of posting, where the engine is asynchronous.
    flights: VecDeque<Flight>,
    /// Number of the first of them.
    first_flight: u64,
    session: Option<Session>,
    idle: u32,
    offers: u32,
}

/// The poster's side of triggered commands.
struct Session {
    contexts: Box<[u64]>,
    taken: u64,
}

struct Flight {
    command: Command,
    context: u64,
    stage: Stage,
    /// Where the previous value goes.
    before: Box<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Moving,
    Moved,
    Telling,
    Told,
    NotSent(Fault),
    Failed(Fault),
}

/// Why a command was not carried out: before anything left, or after.
enum Failed {
    Send(Fault),
    After(Fault),
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Failed::After(fault)
    }
}

impl Port {
    /// Opens a port and lists it. Errors: [`Error::Exhausted`], [`Error::InvalidArgument`] for an inbox that is no power of two.
    pub fn open(
        network: &Arc<Network>,
        directory: &Arc<PortDirectory>,
        options: PortOptions,
    ) -> Result<Arc<Port>> {
        let engine = network.engine();
        let layout = InboxLayout::new(options.inbox)?;
        let place = network
            .rendezvous()
            .place()
            .ok_or_else(|| Error::InvalidArgument("a port needs a place".into()))?;
        let inbox = engine.allocate(layout.size(), Rights::all())?;
        let table_len = if options.session {
            SESSION_LEN
        } else {
            PLAIN_LEN
        };
        let table = engine.allocate(table_len, Rights::all())?;
        // SAFETY:
        // - fresh, zeroed, page-aligned memory of the layout's size, which nobody has the key of yet; it stays as long as `self.inbox`,
        //   and this is its only reader.
        let reader = unsafe {
            initialise_zeroed(inbox.base(), options.inbox)?;
            InboxReader::attach(inbox.base(), inbox.len())?
        };
        let port = Arc::new(Port {
            network: network.clone(),
            directory: directory.clone(),
            options,
            place: place as u16,
            endpoint: engine.endpoint(u32::MAX)?,
            direct: !engine.asynchronous(),
            quick: !engine.asynchronous() && !options.session,
            keys: KeyTable::new(),
            queues: Guarded::new(
                Queues {
                    completions: Completions::new(),
                    notices: VecDeque::new(),
                    reader,
                    delayed: VecDeque::new(),
                    flights: VecDeque::new(),
                    first_flight: 0,
                    session: options.session.then(|| Session {
                        contexts: vec![0; TRIGGERED].into(),
                        taken: 0,
                    }),
                    idle: 0,
                    offers: 0,
                },
                options.shared || engine.asynchronous(),
            ),
            table,
            inbox,
            counts: Counts::default(),
            waiting: AtomicUsize::new(0),
        });
        let header = port.header();
        header.id.store(options.id, Ordering::Relaxed);
        let kind = if options.session { SESSION } else { PLAIN };
        header.kind.store(kind, Ordering::Release);
        directory.list(options.index.into(), &port.table.key(), &port.inbox.key())?;
        if engine.asynchronous() {
            let port = Arc::downgrade(&port);
            std::thread::Builder::new()
                .name("unipgas-port".into())
                .spawn(move || look_after(&port))
                .map_err(|e| Error::os("a thread for operations under way", e))?;
        }
        Ok(port)
    }

    fn header(&self) -> &trigger::Header {
        // SAFETY:
        // - the table region is page-aligned and larger than a header, which is made of atomics.
        unsafe { &*self.table.base().cast() }
    }

    fn trigger(&self) -> Trigger<'_> {
        // SAFETY:
        // - the header is at the beginning of the table region.
        unsafe { Trigger::attach(self.header(), self.table.len()) }.expect("a session port")
    }

    /// How it was opened.
    pub fn options(&self) -> &PortOptions {
        &self.options
    }

    /// Registers memory; the same range with the same rights gets the same key, as often as it is asked for.
    /// Errors: [`Error::Exhausted`], those of [`Engine::register`](crate::Engine::register).
    ///
    /// # Safety
    /// `len` bytes at `base` stay valid until the key has been released as often as it was given, or the port is dropped.
    pub unsafe fn register(&self, base: *mut u8, len: usize, rights: Rights) -> Result<ShortKey> {
        // SAFETY:
        // - the caller's word.
        unsafe {
            self.keys
                .register(self.network.engine(), &self.table, base, len, rights)
        }
    }

    /// Registers memory under [`ShortKey::reserved`]`(index)`. Errors: [`Error::Taken`], and as [`Port::register`].
    ///
    /// # Safety
    /// As [`Port::register`].
    pub unsafe fn register_reserved(
        &self,
        base: *mut u8,
        len: usize,
        index: u32,
        rights: Rights,
    ) -> Result<ShortKey> {
        if index >= RESERVED_KEYS {
            return Err(Error::InvalidArgument(format!(
                "reserved keys go from 0 to {}",
                RESERVED_KEYS - 1
            )));
        }
        let engine = self.network.engine();
        // SAFETY:
        // - the caller's word.
        unsafe {
            self.keys
                .register_reserved(engine, &self.table, (base, len), index, rights)
        }
    }

    /// Takes one registration back. Errors: [`Error::StaleRegion`] for a key that names none.
    pub fn release(&self, key: ShortKey) -> Result<()> {
        self.keys.release(&self.table, key)
    }

    /// The queues, for this thread alone.
    ///
    /// # Safety
    /// Unless the port was opened for several threads: no other thread holds them meanwhile.
    #[inline(always)]
    pub unsafe fn hold(&self) -> Held<'_, Queues> {
        // SAFETY:
        // - the caller's word.
        unsafe { self.queues.hold() }
    }

    /// Commands posted whose completions have not been looked at. May be called at any time by any thread.
    pub fn unread(&self) -> usize {
        self.counts.unread() + self.waiting.load(Ordering::Relaxed)
    }

    /// Posts a command. Errors: [`Error::QueueFull`]: look at completions first; [`Error::InboxFull`]: own notices have not been
    /// taken, and the one of this command is lost.
    #[inline(never)]
    pub fn post(&self, queues: &mut Queues, command: &Command, context: u64) -> Result<()> {
        if self.options.session {
            return self.post_all(queues, std::slice::from_ref(command), context);
        }
        if !queues.has_room(&self.counts, 1) {
            return Err(Error::QueueFull);
        }
        if !queues.delayed.is_empty() {
            self.start_delayed(queues)?;
        }
        let result = self.issue(queues, command, context);
        self.count(queues);
        result
    }

    /// Posts all of the commands, or none. Errors: as [`Port::post`].
    pub fn post_all(&self, queues: &mut Queues, commands: &[Command], context: u64) -> Result<()> {
        if !queues.has_room_at(commands.len(), self) {
            return Err(Error::QueueFull);
        }
        self.start_delayed(queues)?;
        if let Some(session) = &mut queues.session {
            let trigger = self.trigger();
            for command in commands {
                session.contexts[trigger.posted() as usize % TRIGGERED] = context;
                trigger.post(command);
            }
            self.advance()?;
        } else {
            for command in commands {
                match self.now(queues, command, context) {
                    Some(done) => done?,
                    None => self.issue(queues, command, context)?,
                }
            }
        }
        self.count(queues);
        Ok(())
    }

    /// Posts a command that may wait until the next one is posted.
    pub fn post_delayed(&self, queues: &mut Queues, command: &Command, context: u64) -> Result<()> {
        if queues.delayed.len() >= MOST_DELAYED || self.options.session {
            return self.post(queues, command, context);
        }
        if !queues.has_room(&self.counts, 1) {
            return Err(Error::QueueFull);
        }
        queues.delayed.push_back((*command, context));
        self.count(queues);
        Ok(())
    }

    /// Starts what waits.
    pub fn start_delayed(&self, queues: &mut Queues) -> Result<()> {
        while let Some((command, context)) = queues.delayed.pop_front() {
            self.issue(queues, &command, context)?;
        }
        Ok(())
    }

    fn advance(&self) -> Result<()> {
        let own = self
            .network
            .port(self.place, self.options.index)
            .map_err(|_| Error::StaleRegion)?;
        trigger::advance(&self.network, own)
    }

    #[inline]
    fn count(&self, queues: &Queues) {
        self.waiting.store(queues.waiting(self), Ordering::Relaxed);
    }

    #[inline(always)]
    fn issue(&self, queues: &mut Queues, command: &Command, context: u64) -> Result<()> {
        if !self.direct {
            return self.fly(queues, command, context);
        }
        let mut before = 0;
        let wanted = command.flags().contains(CommandFlags::COMPLETION);
        match self.carry(command, 0, &mut before) {
            Ok((target, _)) => {
                queues.completions.push(&self.counts, context, wanted, None);
                let Some(target) = target else {
                    return Ok(());
                };
                if command.flags().contains(CommandFlags::REMOTE_NOTICE) {
                    self.tell_mapped(target, self.remote_notice(command));
                }
                self.arrived(command, target)?;
                if command.flags().contains(CommandFlags::LOCAL_NOTICE) {
                    return queues.note(local_notice(command, before, None));
                }
                Ok(())
            }
            Err(failed) => queues.fail(&self.counts, command, context, failed),
        }
    }

    #[inline(always)]
    fn arrived(&self, command: &Command, target: &RemotePort) -> Result<()> {
        if command.steps() > 0 && command.kind() == Some(CommandKind::Put) {
            return trigger::arrive(&self.network, target, command.steps());
        }
        Ok(())
    }

    /// Moves the command's data.
    #[inline(always)]
    fn carry(
        &self,
        command: &Command,
        context: u64,
        before: &mut u64,
    ) -> Result<(Option<&RemotePort>, Outcome), Failed> {
        let len = command.len();
        let flags = if command.flags().contains(CommandFlags::ORDERED) {
            Flags::ORDERED
        } else {
            Flags::empty()
        };
        let kind = command.kind().ok_or(Failed::Send(Fault::Other))?;
        match kind {
            CommandKind::Put | CommandKind::Inline => {
                let source = if kind == CommandKind::Put {
                    self.keys
                        .local(command.local(), len, false)
                        .map_err(|reach| Failed::Send(reach.at_send()))?
                } else {
                    Local {
                        ptr: command.data.as_ptr().cast::<u8>().cast_mut(),
                        desc: 0,
                    }
                };
                let target = self.network.port(command.place(), command.port())?;
                if let Some(writer) = &target.writer
                    && command.flags().contains(CommandFlags::REMOTE_NOTICE)
                {
                    writer.prefetch();
                }
                let to = self.at(target, command, len, Rights::WRITE)?;
                // SAFETY:
                // - registered memory, valid until its key is released, which the owner does after the completion; or bytes of the
                //   command, which are taken before the call returns.
                let outcome = unsafe {
                    self.endpoint
                        .put(source, to, len, flags | Flags::INLINE, context)
                };
                Ok((Some(target), outcome.map_err(fault)?))
            }
            CommandKind::Get => {
                let target = self.network.port(command.place(), command.port())?;
                let from = self.at(target, command, len, Rights::READ)?;
                let local = self
                    .keys
                    .local(command.local(), len, true)
                    .map_err(|reach| reach.at_return())?;
                // SAFETY:
                // - registered memory, as above.
                let outcome = unsafe { self.endpoint.get(local, from, len, flags, context) };
                Ok((Some(target), outcome.map_err(fault)?))
            }
            CommandKind::Atomic4 | CommandKind::Atomic8 => {
                let wide = kind == CommandKind::Atomic8;
                let target = self.network.port(command.place(), command.port())?;
                let at = self.at(target, command, if wide { 8 } else { 4 }, Rights::ATOMIC)?;
                let rmw = command.rmw().ok_or(Failed::Send(Fault::Other))?;
                let outcome = self
                    .change(rmw, wide, at, command, flags, context, before)
                    .map_err(fault)?;
                Ok((Some(target), outcome))
            }
            CommandKind::Nop => Ok((None, Outcome::Complete)),
        }
    }

    #[inline(always)]
    fn at<'a>(
        &self,
        target: &'a RemotePort,
        command: &Command,
        len: usize,
        need: Rights,
    ) -> Result<Remote<'a>, Fault> {
        target
            .at(&self.network, command.remote(), len, need)
            .map_err(|reach: Reach| self.network.blame(target, reach))
    }

    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "the parts of one operation")]
    fn change(
        &self,
        rmw: Rmw,
        wide: bool,
        at: Remote<'_>,
        command: &Command,
        flags: Flags,
        context: u64,
        before: &mut u64,
    ) -> Result<Outcome> {
        let [operand, compare, ..] = command.data;
        if !self.endpoint.is_direct(at.region) {
            return self.change_afar(rmw, wide, at, command, flags, context, before);
        }
        use Ordering::{AcqRel, Acquire};
        *before = if wide {
            let word = mapped::value(at)?;
            match rmw {
                Rmw::Swap => word.swap(operand, AcqRel),
                Rmw::Add => word.fetch_add(operand, AcqRel),
                Rmw::Xor => word.fetch_xor(operand, AcqRel),
                Rmw::And => word.fetch_and(operand, AcqRel),
                Rmw::Or => word.fetch_or(operand, AcqRel),
                Rmw::CompareSwap => {
                    let (Ok(seen) | Err(seen)) =
                        word.compare_exchange(compare, operand, AcqRel, Acquire);
                    seen
                }
            }
        } else {
            let (operand, compare) = (operand as u32, compare as u32);
            let word = mapped::value32(at)?;
            u64::from(match rmw {
                Rmw::Swap => word.swap(operand, AcqRel),
                Rmw::Add => word.fetch_add(operand, AcqRel),
                Rmw::Xor => word.fetch_xor(operand, AcqRel),
                Rmw::And => word.fetch_and(operand, AcqRel),
                Rmw::Or => word.fetch_or(operand, AcqRel),
                Rmw::CompareSwap => {
                    let (Ok(seen) | Err(seen)) =
                        word.compare_exchange(compare, operand, AcqRel, Acquire);
                    seen
                }
            })
        };
        Ok(Outcome::Complete)
    }

    #[cold]
    #[allow(clippy::too_many_arguments, reason = "the parts of one operation")]
    fn change_afar(
        &self,
        rmw: Rmw,
        wide: bool,
        at: Remote<'_>,
        command: &Command,
        flags: Flags,
        context: u64,
        before: &mut u64,
    ) -> Result<Outcome> {
        let size = if wide { 8 } else { 4 };
        if !at.offset_is_multiple_of(size) {
            return Err(Error::Misaligned(size));
        }
        *before = 0;
        let request = AtomicRequest {
            op: match rmw {
                Rmw::Swap => AtomicOp::Write,
                Rmw::Add => AtomicOp::Sum,
                Rmw::Xor => AtomicOp::Bxor,
                Rmw::And => AtomicOp::Band,
                Rmw::Or => AtomicOp::Bor,
                Rmw::CompareSwap => AtomicOp::Cswap,
            },
            ty: if wide {
                AtomicType::U64
            } else {
                AtomicType::U32
            },
            count: 1,
            // Little-endian: the low half of a word is its first bytes.
            operand: (&raw const command.data[0]).cast(),
            compare: (&raw const command.data[1]).cast(),
            result: std::ptr::from_mut(before).cast(),
        };
        // SAFETY:
        // - operand and comparand are read before the call returns; `before` belongs to the flight, which stays until the end of the
        //   operation, or the engine completes in the call.
        unsafe { self.endpoint.atomic(at, &request, flags, context) }
    }

    fn remote_notice(&self, command: &Command) -> PortNotice {
        PortNotice {
            peer: self.options.id,
            ..notice(command, true, 0)
        }
    }

    /// The next completion that somebody wants to know of.
    #[inline(always)]
    pub fn poll_completion(&self, queues: &mut Queues) -> Option<Completed> {
        if !self.direct {
            self.progress(queues);
        }
        let taken = if self.options.session {
            self.take_triggered(queues)
        } else {
            queues.completions.take(&self.counts)
        };
        if self.options.session {
            self.count(queues);
        }
        if taken.is_none() {
            self.idle(queues);
        }
        taken
    }

    fn take_triggered(&self, queues: &mut Queues) -> Option<Completed> {
        let session = queues.session.as_mut()?;
        let trigger = self.trigger();
        while session.taken < trigger.posted() {
            let number = session.taken;
            let fault = trigger.outcome(number)?;
            session.taken += 1;
            if fault.is_some() || trigger.flags(number).contains(CommandFlags::COMPLETION) {
                return Some(Completed {
                    context: session.contexts[number as usize % TRIGGERED],
                    fault,
                });
            }
        }
        None
    }

    /// The next notice: of own commands, or from others. Errors: [`Error::InboxFull`]: notices were lost, since they were not
    /// taken in time.
    #[inline(always)]
    pub fn poll_notice(&self, queues: &mut Queues) -> Result<Option<PortNotice>> {
        if !self.direct {
            self.progress(queues);
        }
        if let Some(waiting) = queues.notices.front() {
            let notice = Packed::open(waiting);
            queues.notices.pop_front();
            return Ok(Some(notice));
        }
        match queues.reader.take(|pid| self.network.has_ended(pid)) {
            Some(record) => Ok(Some(PortNotice::from_record(&record))),
            None => self.no_notice(queues),
        }
    }

    fn no_notice(&self, queues: &mut Queues) -> Result<Option<PortNotice>> {
        if self.header().overflow.load(Ordering::Acquire) != 0 {
            return Err(Error::InboxFull);
        }
        self.idle(queues);
        Ok(None)
    }

    /// Whether notices were lost.
    pub fn has_overflowed(&self) -> bool {
        self.header().overflow.load(Ordering::Acquire) != 0
    }

    /// Notices that have not been taken, about.
    pub fn unread_notices(&self, queues: &mut Queues) -> usize {
        if !self.direct {
            self.progress(queues);
        }
        queues.notices.len() + queues.reader.len()
    }

    /// Nothing has happened: whoever asks again and again lets others have the core now and then.
    #[inline]
    fn idle(&self, queues: &mut Queues) {
        queues.idle += 1;
        let patience = if self.network.engine().crowded() {
            PATIENCE.1
        } else {
            PATIENCE.0
        };
        if queues.idle >= patience {
            self.offer(queues);
        }
    }

    #[cold]
    fn offer(&self, queues: &mut Queues) {
        queues.idle = 0;
        std::thread::yield_now();
        queues.offers += 1;
        if queues.offers.is_multiple_of(OFFERS) {
            self.network.look();
            if self.options.session {
                // Whoever was about to start commands may have died.
                let _ = self.advance();
            }
        }
    }

    // Where the engine is asynchronous: commands are under way, and end in the order of their posting.

    #[cold]
    fn fly(&self, queues: &mut Queues, command: &Command, context: u64) -> Result<()> {
        let number = queues.first_flight + queues.flights.len() as u64;
        queues.flights.push_back(Flight {
            command: *command,
            context,
            stage: Stage::Moving,
            before: Box::new(0),
        });
        let flight = queues.flights.back_mut().expect("just pushed");
        let stage = match self.carry(command, number + 1, &mut flight.before) {
            Ok((_, Outcome::Pending)) => Stage::Moving,
            Ok((_, Outcome::Complete)) => Stage::Moved,
            Err(Failed::Send(fault)) => Stage::NotSent(fault),
            Err(Failed::After(fault)) => Stage::Failed(fault),
        };
        flight.stage = stage;
        self.land(queues)
    }

    #[cold]
    fn progress(&self, queues: &mut Queues) {
        let (flights, first) = (&mut queues.flights, queues.first_flight);
        self.endpoint.poll(&mut |completion| {
            let Some(flight) = flights.get_mut((completion.context - 1 - first) as usize) else {
                return;
            };
            flight.stage = match (flight.stage, completion.result) {
                (Stage::Moving, Ok(())) => Stage::Moved,
                (Stage::Telling, Ok(())) => Stage::Told,
                (_, Err(error)) => Stage::Failed(fault(error)),
                (stage, Ok(())) => stage,
            };
        });
        if self.land(queues).is_err() {
            self.header().overflow.store(1, Ordering::Release);
        }
        self.count(queues);
    }

    /// Ends the first commands, as far as they have come.
    fn land(&self, queues: &mut Queues) -> Result<()> {
        while let Some(flight) = queues.flights.front_mut() {
            let command = flight.command;
            match flight.stage {
                Stage::Moving | Stage::Telling => return Ok(()),
                Stage::Moved => {
                    let number = queues.first_flight + 1;
                    flight.stage = self.tell_later(&command, number);
                    continue;
                }
                Stage::Told | Stage::NotSent(_) | Stage::Failed(_) => {}
            }
            let flight = queues.flights.pop_front().expect("just seen");
            queues.first_flight += 1;
            let wanted = command.flags().contains(CommandFlags::COMPLETION);
            match flight.stage {
                Stage::NotSent(fault) => {
                    queues.fail(&self.counts, &command, flight.context, Failed::Send(fault))?;
                }
                Stage::Failed(fault) => {
                    queues.fail(&self.counts, &command, flight.context, Failed::After(fault))?;
                }
                _ => {
                    queues
                        .completions
                        .push(&self.counts, flight.context, wanted, None);
                    if command.kind() == Some(CommandKind::Nop) {
                        continue;
                    }
                    if let Ok(target) = self.network.port(command.place(), command.port()) {
                        self.arrived(&command, target)?;
                    }
                    if command.flags().contains(CommandFlags::LOCAL_NOTICE) {
                        queues.note(local_notice(&command, *flight.before, None))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn tell_later(&self, command: &Command, number: u64) -> Stage {
        if command.kind() == Some(CommandKind::Nop)
            || !command.flags().contains(CommandFlags::REMOTE_NOTICE)
        {
            return Stage::Told;
        }
        let target = match self.network.port(command.place(), command.port()) {
            Ok(target) => target,
            Err(fault) => return Stage::Failed(fault),
        };
        let record = self.remote_notice(command).to_record();
        match self
            .endpoint
            .deliver(&target.inbox, record, Flags::ORDERED, number)
        {
            Ok(Outcome::Complete) => Stage::Told,
            Ok(Outcome::Pending) => Stage::Telling,
            Err(Error::InboxFull) => {
                target.overflowed();
                Stage::Told
            }
            Err(error) => Stage::Failed(fault(error)),
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let _ = self.directory.unlist(self.options.index.into());
    }
}

/// Moves a port's operations on until it is dropped.
fn look_after(port: &Weak<Port>) {
    loop {
        std::thread::sleep(PROGRESS);
        let Some(port) = port.upgrade() else {
            return;
        };
        // SAFETY:
        // - ports of asynchronous engines have a lock.
        let mut queues = unsafe { port.hold() };
        port.progress(&mut queues);
    }
}

impl Queues {
    #[inline(always)]
    fn has_room(&self, counts: &Counts, commands: usize) -> bool {
        counts.has_room(commands + self.delayed.len() + self.flights.len())
    }

    fn has_room_at(&self, commands: usize, port: &Port) -> bool {
        match &self.session {
            Some(session) => {
                port.trigger().posted() - session.taken + commands as u64 <= TRIGGERED as u64
            }
            None => self.has_room(&port.counts, commands),
        }
    }

    #[inline]
    fn waiting(&self, port: &Port) -> usize {
        match &self.session {
            Some(session) => (port.trigger().posted() - session.taken) as usize,
            None => self.delayed.len() + self.flights.len(),
        }
    }

    #[inline(always)]
    pub(super) fn note(&mut self, notice: PortNotice) -> Result<()> {
        if self.notices.len() >= self.reader.capacity() {
            return Err(Error::InboxFull);
        }
        self.notices.push_back(notice.pack());
        Ok(())
    }

    #[cold]
    fn fail(
        &mut self,
        counts: &Counts,
        command: &Command,
        context: u64,
        failed: Failed,
    ) -> Result<()> {
        match failed {
            Failed::Send(fault) => {
                self.completions.push(counts, context, true, Some(fault));
                Ok(())
            }
            Failed::After(fault) => {
                let wanted = command.flags().contains(CommandFlags::COMPLETION);
                self.completions.push(counts, context, wanted, None);
                self.note(local_notice(command, 0, Some(fault)))
            }
        }
    }
}

/// What the target (`remote`) or the poster is told of a command.
#[inline(always)]
fn notice(command: &Command, remote: bool, before: u64) -> PortNotice {
    let len = command.len() as u64;
    let (kind, value, end) = match command.kind() {
        Some(CommandKind::Get) if remote => (
            NoticeKind::RemoteGet,
            command.data[0].wrapping_add(len),
            len,
        ),
        Some(CommandKind::Get) => (NoticeKind::LocalGet, command.data[0].wrapping_add(len), len),
        Some(CommandKind::Atomic4 | CommandKind::Atomic8) if remote => {
            (NoticeKind::RemoteAtomic, 0, 0)
        }
        Some(CommandKind::Atomic4 | CommandKind::Atomic8) => (NoticeKind::LocalAtomic, before, 0),
        _ if remote => (NoticeKind::RemotePut, 0, len),
        _ => (NoticeKind::LocalPut, 0, len),
    };
    PortNotice {
        kind,
        fault: None,
        edata: command.edata(),
        peer: command.peer,
        value,
        remote: command.remote.wrapping_add(end),
    }
}

#[inline(always)]
fn local_notice(command: &Command, before: u64, fault: Option<Fault>) -> PortNotice {
    PortNotice {
        fault,
        ..notice(command, false, before)
    }
}

#[cold]
fn fault(error: Error) -> Fault {
    match error {
        Error::PeerDead | Error::RankDead(_) | Error::Unreachable(_) => Fault::Peer,
        Error::StaleRegion => Fault::RemoteKey,
        Error::OutOfBounds { .. } => Fault::RemoteLength,
        Error::AccessDenied | Error::Misaligned(_) => Fault::RemoteMemory,
        _ => Fault::Other,
    }
}

const _: () = assert!(DEPTH == TRIGGERED);
