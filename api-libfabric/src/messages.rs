//! Messages (fi_msg(3), fi_tagged(3)).

use std::sync::Arc;

use unipgas_core::lanes::{Lanes, number_there};
use unipgas_core::message::{
    Envelope, MARK, Mailbox, Mode, Pattern, PeerMailbox, Peers, Precedence, ReceiveTicket,
    Received, SendTicket,
};
use unipgas_core::transport::Life;
use unipgas_core::{Error, RegionKey};

use crate::completion::Entry;
use crate::domain::Domain;
use crate::endpoint::{Endpoint, INJECT_SIZE, IOV_LIMIT, Posting};
use crate::name::Name;
use crate::operation::{Counted, Report, Reports, State};
use crate::rma::{LONGEST, Part, TRANSMIT_FLAGS, total};
use crate::status::{Errno, Result};
use crate::sys::{
    FI_ADDR_NOTAVAIL, FI_ADDR_UNSPEC, FI_CLAIM, FI_COMPLETION, FI_DELIVERY_COMPLETE,
    FI_DIRECTED_RECV, FI_DISCARD, FI_INJECT, FI_MATCH_COMPLETE, FI_MORE, FI_MSG, FI_ORDER_SAS,
    FI_PEEK, FI_RECV, FI_REMOTE_CQ_DATA, FI_SEND, FI_TAGGED,
};
use crate::target::{SHAPE, SHAPE_WORDS, read_directory};

/// Who is known here by which number, and how they are reached.
struct Acquaintances {
    domain: Arc<Domain>,
    lanes: Lanes,
    name: Name,
}

impl Acquaintances {
    fn name_of(&self, number: u32) -> std::result::Result<Name, Error> {
        let bytes = self.lanes.name(number)?;
        Name::from_bytes(&bytes).map_err(|_| Error::PeerDead)
    }
}

impl Peers for Acquaintances {
    fn find(&self, number: u32) -> std::result::Result<PeerMailbox, Error> {
        let name = self.name_of(number)?;
        let (connection, _, directory) = read_directory(&self.domain, &name)?;
        if directory.shape != SHAPE_WORDS || directory.mailbox == [0; 64] {
            return Err(Error::Unreachable(
                "the peer takes no messages of this kind".into(),
            ));
        }
        let lanes = connection.import(&RegionKey::from_bytes(&directory.lanes)?)?;
        let domain = &self.domain;
        let (id, name) = (self.name.id(), self.name.as_bytes());
        Ok(PeerMailbox {
            lane: number_there(domain.engine(), domain.service(), &lanes, id, name)?,
            region: connection.import(&RegionKey::from_bytes(&directory.mailbox)?)?,
            connection,
        })
    }
}

/// A send that has not ended.
struct Sent {
    ticket: SendTicket,
    report: Report,
    /// Bytes that were collected from several places, or taken over from the caller.
    _held: Option<Box<[u8]>>,
}

/// A receive that has not ended.
struct Awaited {
    ticket: ReceiveTicket,
    report: Report,
    source: Option<u32>,
    parts: Vec<Part>,
    /// Where the message goes first, if there is more than one part.
    bounce: Option<Box<[u8]>>,
}

/// A message that was found by FI_PEEK | FI_CLAIM and is kept for a receive with that context.
struct Claimed {
    context: usize,
    ticket: ReceiveTicket,
    bytes: Box<[u8]>,
}

/// The messages of one endpoint.
pub(crate) struct Messages {
    mailbox: Mailbox,
    acquaintances: Arc<Acquaintances>,
    sent: Vec<Sent>,
    awaited: Vec<Awaited>,
    claimed: Vec<Claimed>,
    /// Receives whose message nobody wants.
    discarded: Vec<ReceiveTicket>,
    /// Addresses of peers, by their numbers.
    sources: Vec<u64>,
}

/// The way a message is addressed: with a tag, or without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// `None`: fi_msg(3).
    pub tag: Option<u64>,
    /// For receives: bits that need not agree.
    pub ignore: u64,
}

impl Tag {
    /// A message without a tag.
    pub const NONE: Tag = Tag {
        tag: None,
        ignore: 0,
    };

    fn context(self) -> u8 {
        u8::from(self.tag.is_some())
    }

    fn kind(self) -> u64 {
        if self.tag.is_some() {
            FI_TAGGED
        } else {
            FI_MSG
        }
    }
}

impl Messages {
    pub fn new(domain: &Arc<Domain>, name: &Name) -> Result<Messages> {
        let acquaintances = Arc::new(Acquaintances {
            domain: domain.clone(),
            lanes: Lanes::new(domain.engine(), SHAPE.peers)?,
            name: *name,
        });
        Ok(Messages {
            mailbox: Mailbox::new(
                domain.engine(),
                SHAPE,
                Precedence::Posted,
                acquaintances.clone(),
            )?,
            acquaintances,
            sent: Vec::new(),
            awaited: Vec::new(),
            claimed: Vec::new(),
            discarded: Vec::new(),
            sources: Vec::new(),
        })
    }

    /// Keys of the mailbox and of the table of lanes.
    pub fn keys(&self) -> ([u8; 64], [u8; 64]) {
        let lanes = self.acquaintances.lanes.region().key();
        (*self.mailbox.key().as_bytes(), *lanes.as_bytes())
    }

    fn number(&self, name: &Name) -> std::result::Result<u32, Error> {
        self.acquaintances.lanes.number(name.id(), name.as_bytes())
    }

    pub fn forget(&mut self, number: u32) {
        self.mailbox.forget(number, &Error::PeerDead);
    }

    /// Peers that somebody waits to hear from may never have been talked to.
    pub fn forget_the_dead(&mut self, domain: &Domain) {
        let mut waited_for: Vec<u32> = self.awaited.iter().filter_map(|a| a.source).collect();
        waited_for.sort_unstable();
        waited_for.dedup();
        for number in waited_for {
            let name = self.acquaintances.name_of(number);
            let life = name.and_then(|name| Ok(domain.engine().connect(&name.address())?.life()));
            if life != Ok(Life::Alive) {
                self.forget(number);
            }
        }
    }
}

/// Messages have no keys: a mailbox that is not there any more has gone with its owner.
fn errno(error: Error) -> Errno {
    match error {
        Error::StaleRegion => Errno::CONNRESET,
        error => error.into(),
    }
}

fn gathered(parts: &[Part], len: usize) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(len);
    for part in parts.iter().filter(|part| part.len > 0) {
        // SAFETY:
        // - valid for reads by the word of the operation's caller.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(part.ptr, part.len) });
    }
    bytes.into()
}

fn scatter(bytes: &[u8], parts: &[Part]) {
    let mut rest = bytes;
    for part in parts {
        let (now, later) = rest.split_at(part.len.min(rest.len()));
        // SAFETY:
        // - valid for writes by the word of the receive's caller; the bytes are ours.
        unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), part.ptr, now.len()) };
        rest = later;
    }
}

const RECEIVE_FLAGS: u64 = FI_COMPLETION | FI_MORE;
const PEEK_FLAGS: u64 = FI_PEEK | FI_CLAIM | FI_DISCARD;

impl Endpoint {
    /// Sends a message. Errors: those of the call, as for [`Endpoint::transfer`].
    ///
    /// # Safety
    /// The memory is readable, and unchanged, until the operation is complete (with FI_INJECT or `quiet`: until the call returns).
    pub unsafe fn send(&self, tag: Tag, parts: &[Part], to: u64, posting: &Posting) -> Result<()> {
        if posting.flags & !(TRANSMIT_FLAGS | FI_MATCH_COMPLETE) != 0 {
            return Err(Errno::BADFLAGS);
        }
        if parts.len() > IOV_LIMIT || parts.iter().any(|part| part.ptr.is_null() && part.len > 0) {
            return Err(Errno::INVAL);
        }
        let inline = posting.quiet || posting.flags & FI_INJECT != 0;
        let most = if inline { INJECT_SIZE } else { LONGEST };
        let len = total(parts.iter().map(|part| part.len), most)?;
        let (reports, mut state) = self.live()?;
        let state = &mut *state;
        if self.options().caps & tag.kind() == 0 || state.messages.is_none() {
            return Err(Errno::OPNOTSUPP);
        }
        let admitted = self.admit(reports, state, posting)?;
        if self.options().order & !FI_ORDER_SAS != 0 && state.under_way() > 0 {
            // Messages go another way than what was posted before.
            self.wait_for_earlier(reports, state)?;
        }
        let report = Report {
            context: posting.context,
            flags: tag.kind() | FI_SEND,
            wanted: admitted.wanted,
            counted: Counted::Send,
        };
        let number = match state.number(to)? {
            Ok(number) => number,
            Err(errno) => return reports.fail(&report, errno),
        };
        let received = FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;
        let synchronous = posting.flags & received != 0 && !posting.quiet;
        let mode = if synchronous {
            Mode::Synchronous
        } else {
            Mode::Buffered
        };
        let held = (parts.len() > 1 || inline && synchronous).then(|| gathered(parts, len));
        let data = match (&held, parts.first()) {
            (Some(held), _) => held.as_ptr(),
            (None, Some(part)) => part.ptr.cast_const(),
            (None, None) => std::ptr::NonNull::<u8>::dangling().as_ptr(),
        };
        let envelope = Envelope {
            context: tag.context() | if posting.data.is_some() { MARK } else { 0 },
            tag: tag.tag.unwrap_or(0),
            extra: posting.data.unwrap_or(0),
        };
        let messages = state.messages.as_mut().ok_or(Errno::OPNOTSUPP)?;
        let engine = self.domain().engine();
        // SAFETY:
        // - held here until the send has ended, or readable by the caller's word; what the caller takes back with the call's end is
        //   either gone by then or cancelled below.
        let outcome = unsafe {
            messages
                .mailbox
                .send(engine, number, envelope, (data, len), mode, false)
        };
        match outcome {
            Ok(None) => {
                reports.succeed(&report);
                Ok(())
            }
            Ok(Some(ticket)) if inline && held.is_none() => {
                // Room may have come just now; if not, the payload cannot wait.
                match messages.mailbox.test_send(ticket) {
                    Some(Ok(())) => reports.succeed(&report),
                    Some(Err(error)) => return reports.fail(&report, errno(error)),
                    None => {
                        messages.mailbox.cancel_send(ticket);
                        messages.mailbox.progress(engine);
                        return Err(Errno::AGAIN);
                    }
                }
                Ok(())
            }
            Ok(Some(ticket)) => {
                messages.sent.push(Sent {
                    ticket,
                    report,
                    _held: held,
                });
                Ok(())
            }
            Err(error) => reports.fail(&report, errno(error)),
        }
    }

    /// Receives a message, now or later. FI_PEEK only looks whether there is one (with FI_CLAIM: and keeps it for a receive with this
    /// context and FI_CLAIM; with FI_DISCARD: and throws it away). Errors: as for [`Endpoint::send`].
    ///
    /// # Safety
    /// The memory is valid for writes until the operation is complete.
    pub unsafe fn receive(
        &self,
        tag: Tag,
        parts: &[Part],
        from: u64,
        posting: &Posting,
    ) -> Result<()> {
        let flags = posting.flags;
        let peeks = flags & PEEK_FLAGS;
        let known = RECEIVE_FLAGS | if tag.tag.is_some() { PEEK_FLAGS } else { 0 };
        if flags & !known != 0 || peeks == FI_DISCARD || peeks == PEEK_FLAGS {
            return Err(Errno::BADFLAGS);
        }
        if parts.len() > IOV_LIMIT || parts.iter().any(|part| part.ptr.is_null() && part.len > 0) {
            return Err(Errno::INVAL);
        }
        let len = total(parts.iter().map(|part| part.len), LONGEST)?;
        let (reports, mut state) = self.live()?;
        let state = &mut *state;
        if self.options().caps & tag.kind() == 0 || state.messages.is_none() {
            return Err(Errno::OPNOTSUPP);
        }
        let report = Report {
            context: posting.context,
            flags: tag.kind() | FI_RECV,
            wanted: !reports.selective[1] || flags & FI_COMPLETION != 0,
            counted: Counted::Receive,
        };
        let directed = self.options().caps & FI_DIRECTED_RECV != 0 && from != FI_ADDR_UNSPEC;
        let source = if directed {
            let av = state.av.as_ref().ok_or(Errno::NOAV)?;
            let name = av.name(from)?;
            let messages = state.messages.as_ref().ok_or(Errno::OPNOTSUPP)?;
            match messages.number(&name) {
                Ok(number) => Some(number),
                Err(error) => return reports.fail(&report, error.into()),
            }
        } else {
            None
        };
        let pattern = Pattern {
            source,
            context: tag.context(),
            tag: tag.tag.unwrap_or(0),
            ignore: if tag.tag.is_some() {
                tag.ignore
            } else {
                u64::MAX
            },
        };
        if flags & FI_PEEK != 0 {
            return self.peek(reports, state, pattern, &report, flags);
        }
        let messages = state.messages.as_mut().ok_or(Errno::OPNOTSUPP)?;
        if flags & FI_CLAIM != 0 {
            let context = posting.context;
            let claim = messages
                .claimed
                .iter()
                .position(|claim| claim.context == context);
            let claim = messages.claimed.swap_remove(claim.ok_or(Errno::INVAL)?);
            if flags & FI_DISCARD != 0 {
                // The bytes may still be on their way.
                messages.await_message(claim.ticket, report, None, &[], Some(claim.bytes));
            } else {
                messages.await_message(claim.ticket, report, None, parts, Some(claim.bytes));
            }
            state.report_messages(reports);
            return Ok(());
        }
        let mut bounce = (parts.len() > 1).then(|| vec![0u8; len].into_boxed_slice());
        let buffer = match (&mut bounce, parts.first()) {
            (Some(bounce), _) => bounce.as_mut_ptr(),
            (None, Some(part)) if !part.ptr.is_null() => part.ptr,
            _ => std::ptr::NonNull::<u8>::dangling().as_ptr(),
        };
        // SAFETY:
        // - held here until the receive has ended, or valid by the caller's word.
        let ticket = unsafe { messages.mailbox.receive(pattern, buffer, len) };
        messages.await_message(ticket, report, source, parts, bounce);
        state.progress(reports);
        Ok(())
    }

    #[cold]
    fn peek(
        &self,
        reports: &Reports,
        state: &mut State,
        pattern: Pattern,
        report: &Report,
        flags: u64,
    ) -> Result<()> {
        state.progress(reports);
        let messages = state.messages.as_mut().ok_or(Errno::OPNOTSUPP)?;
        let Some(found) = messages.mailbox.probe(pattern) else {
            return reports.fail(report, Errno::NOMSG);
        };
        if flags & (FI_CLAIM | FI_DISCARD) != 0 {
            let len = if flags & FI_CLAIM != 0 { found.len } else { 0 };
            let mut bytes = vec![0u8; len].into_boxed_slice();
            // SAFETY:
            // - the bytes stay with the claim until the receive has ended; or there are none.
            let ticket = unsafe { messages.mailbox.receive(pattern, bytes.as_mut_ptr(), len) };
            if flags & FI_CLAIM != 0 {
                messages.claimed.push(Claimed {
                    context: report.context,
                    ticket,
                    bytes,
                });
            } else {
                messages.discarded.push(ticket);
            }
        }
        let entry = state.entry(&found);
        // Looking is counted as nothing.
        if report.wanted
            && let Some(queue) = &reports.receive
        {
            queue.push(Entry {
                context: report.context,
                flags: report.flags | entry.flags,
                ..entry
            });
        }
        Ok(())
    }

    /// Takes back an operation that has not begun (fi_cancel(3)); it ends with [`Errno::CANCELED`]. Errors: [`Errno::NOENT`].
    pub fn cancel(&self, context: usize) -> Result<()> {
        let (reports, mut state) = self.live()?;
        let messages = state.messages.as_mut().ok_or(Errno::NOENT)?;
        let known = messages
            .awaited
            .iter()
            .position(|a| a.report.context == context);
        if let Some(at) = known
            && messages.mailbox.cancel_receive(messages.awaited[at].ticket)
        {
            let report = messages.awaited.remove(at).report;
            return reports.fail(&report, Errno::CANCELED);
        }
        let known = messages
            .sent
            .iter()
            .position(|s| s.report.context == context);
        if let Some(at) = known
            && messages.mailbox.cancel_send(messages.sent[at].ticket)
        {
            let report = messages.sent.remove(at).report;
            return reports.fail(&report, Errno::CANCELED);
        }
        Err(Errno::NOENT)
    }
}

impl Messages {
    fn await_message(
        &mut self,
        ticket: ReceiveTicket,
        report: Report,
        source: Option<u32>,
        parts: &[Part],
        bounce: Option<Box<[u8]>>,
    ) {
        self.awaited.push(Awaited {
            ticket,
            report,
            source,
            parts: parts.to_vec(),
            bounce,
        });
    }
}

impl State {
    /// The number of the endpoint at `to` among the peers of the mailbox. Errors: as for [`State::target`].
    #[inline]
    fn number(&mut self, to: u64) -> Result<std::result::Result<u32, Errno>> {
        let name = match self.target(to)? {
            Ok(target) => match target.number {
                Some(number) => return Ok(Ok(number)),
                None => target.name,
            },
            Err(errno) => return Ok(Err(errno)),
        };
        let messages = self.messages.as_ref().ok_or(Errno::OPNOTSUPP)?;
        let number = messages.number(&name);
        if let (Ok(number), Ok(Ok(target))) = (&number, self.target(to)) {
            target.number = Some(*number);
        }
        Ok(number.map_err(Errno::from))
    }

    pub fn messages_under_way(&self) -> bool {
        self.messages
            .as_ref()
            .is_some_and(|messages| !messages.sent.is_empty())
    }

    #[inline]
    pub fn progress_messages(&mut self, reports: &Reports) {
        let Some(messages) = &mut self.messages else {
            return;
        };
        messages.mailbox.progress(self.domain.engine());
        if !(messages.sent.is_empty()
            && messages.awaited.is_empty()
            && messages.discarded.is_empty())
        {
            self.report_messages(reports);
        }
    }

    /// What a message says of itself, for a completion queue.
    fn entry(&mut self, received: &Received) -> Entry {
        let marked = received.envelope.context & MARK != 0;
        Entry {
            flags: if marked { FI_REMOTE_CQ_DATA } else { 0 },
            len: received.len,
            data: if marked { received.envelope.extra } else { 0 },
            tag: received.envelope.tag,
            source: if self.tells_sources {
                self.source(received.source)
            } else {
                FI_ADDR_NOTAVAIL
            },
            ..Entry::default()
        }
    }

    fn source(&mut self, number: u32) -> u64 {
        let (Some(messages), Some(av)) = (&mut self.messages, &self.av) else {
            return FI_ADDR_NOTAVAIL;
        };
        let at = number as usize;
        if let Some(known) = messages.sources.get(at)
            && av.name(*known).is_ok()
        {
            return *known;
        }
        let name = messages.acquaintances.name_of(number);
        let address = name.map_or(FI_ADDR_NOTAVAIL, |name| av.address_of(name.id()));
        if messages.sources.len() <= at {
            messages.sources.resize(at + 1, FI_ADDR_NOTAVAIL);
        }
        messages.sources[at] = address;
        address
    }

    /// Tells of the messages that have ended.
    fn report_messages(&mut self, reports: &Reports) {
        let Some(messages) = &mut self.messages else {
            return;
        };
        messages
            .sent
            .retain(|sent| match messages.mailbox.test_send(sent.ticket) {
                None => true,
                Some(Ok(())) => {
                    reports.succeed(&sent.report);
                    false
                }
                Some(Err(error)) => {
                    let _ = reports.fail(&sent.report, errno(error));
                    false
                }
            });
        messages
            .discarded
            .retain(|ticket| messages.mailbox.test_receive(*ticket).is_none());
        let mut at = 0;
        while let Some(messages) = &mut self.messages
            && let Some(awaited) = messages.awaited.get(at)
        {
            let Some(result) = messages.mailbox.test_receive(awaited.ticket) else {
                at += 1;
                continue;
            };
            let awaited = messages.awaited.remove(at);
            match result {
                Ok(received) => self.received(reports, &awaited, &received),
                Err(error) => drop(reports.fail(&awaited.report, errno(error))),
            }
        }
    }

    fn received(&mut self, reports: &Reports, awaited: &Awaited, received: &Received) {
        let capacity: usize = awaited.parts.iter().map(|part| part.len).sum();
        if let Some(bounce) = &awaited.bounce {
            scatter(&bounce[..received.len.min(bounce.len())], &awaited.parts);
        }
        let mut entry = self.entry(received);
        let discarded = awaited.parts.is_empty() && awaited.bounce.is_some();
        if received.len <= capacity || discarded {
            reports.succeed_with(&awaited.report, entry);
        } else {
            entry.len = capacity;
            let excess = received.len - capacity;
            let _ = reports.fail_with(&awaited.report, Errno::TRUNC, entry, excess);
        }
    }
}
