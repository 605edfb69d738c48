//! The ends of messages: results of sends and receives, and numbers of peers.

use unipgas_core::Deadline;
use unipgas_core::message::{APART, MARK, ReceiveTicket, Received, Share};

use super::shared::{Several, Taken};
use super::{After, Awaited, AwaitedKind, Messages, errno};
use crate::completion::CqEntry;
use crate::name::EndpointName;
use crate::operation::Reports;
use crate::rma::LocalRange;
use crate::state::State;
use crate::status::{Errno, Result};
use crate::sys::{FI_ADDR_NOTAVAIL, FI_MULTI_RECV, FI_REMOTE_CQ_DATA};
use crate::target::SHAPE;

/// The entry that returns a buffer for several messages to the program.
pub(super) const GIVEN_BACK: CqEntry = CqEntry {
    context: 0,
    flags: FI_MULTI_RECV,
    len: 0,
    buffer: 0,
    data: 0,
    tag: 0,
    source: 0,
};

pub(super) fn scatter(bytes: &[u8], parts: &[LocalRange]) {
    let mut rest = bytes;
    for part in parts {
        let (now, later) = rest.split_at(part.len.min(rest.len()));
        // SAFETY:
        // - contract of `Endpoint::receive` or `Endpoint::atomic`: the parts are valid for writes. `bytes` belongs to the library.
        unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), part.ptr, now.len()) };
        rest = later;
    }
}

impl Messages {
    fn report_sends(&mut self, reports: &Reports) {
        self.sent.retain(|sent| {
            let Some(result) = self.mailbox.test_send(sent.ticket) else {
                return true;
            };
            self.own -= usize::from(sent.after.is_own());
            match (&sent.after, result) {
                (After::Report(report), Ok(())) => reports.succeed(report),
                (After::Report(report), Err(error)) => {
                    let _ = reports.fail(report, errno(error));
                }
                // A peer that has gone needs no answer.
                (After::Receive(report, entry, failure), _) => {
                    let sender = || self.acquaintances.name_of(sent.to).ok();
                    reports.operated(report, *entry, *failure, sender);
                }
                (After::Nothing, _) => {}
            }
            false
        });
    }

    /// Ends a receive that discards its message. A claimed message stays until a receive requests it.
    #[cold]
    fn discard(&mut self, ticket: ReceiveTicket) {
        let Some(at) = self.discarded.iter().position(|known| *known == ticket) else {
            return;
        };
        let apart = self.mailbox.take_apart(ticket);
        if let Some(ended) = self.mailbox.test_receive(ticket) {
            self.discarded.swap_remove(at);
            if let (Some(request), Ok(received)) = (apart, ended) {
                self.refuse(received.source, &request, Errno::CANCELED);
            }
        }
    }
}

impl State {
    /// The number of the endpoint at `to` among the peers of the mailbox. Errors: as for [`State::target`].
    #[inline]
    pub(crate) fn number(
        &mut self,
        reports: &Reports,
        to: u64,
    ) -> Result<std::result::Result<u32, Errno>> {
        let name = match self.target(to)? {
            Ok(target) => match target.number {
                Some(number) => return Ok(Ok(number)),
                None => target.name,
            },
            Err(errno) => return Ok(Err(errno)),
        };
        let number = self.number_of(reports, &name)?;
        if let (Ok(number), Ok(Ok(target))) = (&number, self.target(to)) {
            target.number = Some(*number);
        }
        Ok(number.map_err(Errno::from))
    }

    /// The number of the endpoint at `from`, reachable or not. Errors: [`Errno::INVAL`] for an address that is not in use.
    #[inline]
    pub(super) fn number_of_sender(
        &mut self,
        reports: &Reports,
        from: u64,
    ) -> Result<std::result::Result<u32, unipgas_core::Error>> {
        let (Some(messages), Some(av)) = (&mut self.messages, &self.av) else {
            return Err(Errno::OPNOTSUPP);
        };
        messages.check_addresses();
        let at = from as usize;
        if let Some(Some(number)) = messages.numbers.get(at) {
            return Ok(Ok(*number));
        }
        let name = av.name(from)?;
        let number = self.number_of(reports, &name)?;
        if let (Ok(number), Some(messages)) = (&number, &mut self.messages) {
            if messages.numbers.len() <= at {
                messages.numbers.resize(at + 1, None);
            }
            messages.numbers[at] = Some(*number);
        }
        Ok(number)
    }

    /// The number of the endpoint with this name.
    #[cold]
    fn number_of(
        &mut self,
        reports: &Reports,
        name: &EndpointName,
    ) -> Result<std::result::Result<u32, unipgas_core::Error>> {
        let messages = self.messages.as_ref().ok_or(Errno::OPNOTSUPP)?;
        let mut number = messages.number(name);
        // Some lanes stay free for peers that arrive while this process does not poll.
        if number.is_err() || messages.is_crowded() {
            self.make_room(reports);
        }
        if let (Err(_), Some(messages)) = (&number, &self.messages) {
            number = messages.number(name);
        }
        Ok(number)
    }

    /// Frees the numbers of peers that have gone, once their messages have been received.
    #[cold]
    pub fn take_numbers_back(&mut self, reports: &Reports) {
        let Some(messages) = &mut self.messages else {
            return;
        };
        let peers = 0..SHAPE.numbers() as u32;
        let gone: Vec<u32> = peers
            .filter(|number| messages.acquaintances.has_gone(*number, Deadline::Never))
            .collect();
        for number in &gone {
            messages.mailbox.bury(*number);
        }
        // The reports may need the names of these peers.
        messages.report(reports);
        for number in gone {
            if !messages.mailbox.release(number) {
                continue;
            }
            if let Some(source) = messages.sources.get_mut(number as usize) {
                *source = FI_ADDR_NOTAVAIL;
            }
            for known in &mut messages.numbers {
                *known = known.filter(|known| *known != number);
            }
            for target in self.targets.iter_mut().flatten() {
                target.number = target.number.filter(|known| *known != number);
            }
            messages.collectives.forget(number);
            messages.acquaintances.free(number);
        }
    }

    /// Whether a message to the endpoint at `to`, or an atomic operation on its tagged buffers, is in progress.
    pub fn is_message_under_way_to(&self, to: u64) -> bool {
        let Some(messages) = &self.messages else {
            return false;
        };
        if messages.mailbox.sends() == 0 && messages.unanswered == 0 {
            return false;
        }
        let number = self.id_of(to).and_then(|id| self.known_number(id));
        let Some(number) = number else {
            return false;
        };
        let mut awaited = messages.awaited.iter().flatten();
        messages.sent.iter().any(|sent| sent.to == number)
            || messages.collectives.destinations().any(|to| to == number)
            || awaited.any(|it| it.kind == AwaitedKind::Answer && it.source == Some(number))
    }

    #[inline(always)]
    pub fn progress_messages(&mut self, reports: &Reports) {
        let Some(messages) = &mut self.messages else {
            return;
        };
        let news = messages.mailbox.has_news(self.domain.engine());
        if news | messages.stale {
            self.take_messages(reports);
        }
    }

    #[inline(never)]
    fn take_messages(&mut self, reports: &Reports) {
        let Some(messages) = &mut self.messages else {
            return;
        };
        messages.mailbox.progress_a_little(self.domain.engine());
        let greetings = messages.mailbox.greetings();
        let new = greetings != std::mem::replace(&mut messages.greetings, greetings);
        messages.report(reports);
        if new {
            self.make_room(reports);
        }
        if let Some(messages) = &mut self.messages {
            messages.keep_going();
        }
    }

    /// Makes room for new peers if there is little: first in lanes of peers that have left, then in new lanes.
    #[cold]
    pub fn make_room(&mut self, reports: &Reports) {
        if self.messages.as_ref().is_some_and(Messages::is_crowded) {
            self.take_numbers_back(reports);
        }
        let engine = self.domain.engine();
        while let Some(messages) = &mut self.messages
            && messages.is_crowded()
            && messages.mailbox.grow(engine).is_ok()
        {}
    }
}

impl Messages {
    /// The completion queue entry of a message.
    pub(super) fn entry(&mut self, received: &Received) -> CqEntry {
        let marked = received.envelope.context & MARK != 0;
        CqEntry {
            flags: if marked { FI_REMOTE_CQ_DATA } else { 0 },
            len: received.len,
            data: if marked { received.envelope.extra } else { 0 },
            tag: received.envelope.tag,
            source: if self.tells_sources {
                self.source(received.source)
            } else {
                FI_ADDR_NOTAVAIL
            },
            ..CqEntry::default()
        }
    }

    fn source(&mut self, number: u32) -> u64 {
        let at = number as usize;
        self.check_addresses();
        if let Some(known) = self.sources.get(at)
            && *known != FI_ADDR_NOTAVAIL
        {
            return *known;
        }
        let address = match (self.name_of(number), &self.av) {
            (Some(name), Some(av)) => av.address_of(name.id()),
            _ => FI_ADDR_NOTAVAIL,
        };
        if self.sources.len() <= at {
            self.sources.resize(at + 1, FI_ADDR_NOTAVAIL);
        }
        self.sources[at] = address;
        address
    }

    /// Reports the messages that have ended.
    pub(crate) fn report(&mut self, reports: &Reports) {
        self.stale = false;
        if self.mailbox.sends() > 0 {
            self.report_sends(reports);
            if self.collectives.destinations().next().is_some() {
                self.report_collectives(reports);
            }
        }
        while let Some(ticket) = self.mailbox.take_ended() {
            self.report_receive(reports, ticket);
        }
    }

    /// Reports a receive if it has ended and a caller waits for it.
    pub(super) fn report_receive(&mut self, reports: &Reports, ticket: ReceiveTicket) {
        let place = self.awaited.get_mut(ticket.index());
        let Some((place, awaited)) = place.and_then(|place| place.take().map(|it| (place, it)))
        else {
            return match self.mailbox.share(ticket) {
                Some(share) => self.report_share(reports, ticket, &share),
                None => self.report_drawn(reports, ticket),
            };
        };
        let apart = self.mailbox.take_apart(ticket);
        match self.mailbox.test_receive(ticket) {
            Some(result) if awaited.kind == AwaitedKind::Answer => {
                self.answered(reports, &awaited, result)
            }
            Some(result) => self.report_end(reports, &awaited, apart, result),
            // An earlier receive with this index has ended.
            None => *place = Some(awaited),
        }
    }

    #[inline(always)]
    fn report_end(
        &mut self,
        reports: &Reports,
        awaited: &Awaited,
        apart: Option<Box<[u8]>>,
        result: std::result::Result<Received, unipgas_core::Error>,
    ) {
        match result {
            Ok(received) if received.envelope.context & APART != 0 => {
                self.operate(reports, awaited, &received, &apart.unwrap_or_default());
            }
            Ok(received) => self.received(reports, awaited, &received),
            Err(error) => {
                let entry = match awaited.kind {
                    AwaitedKind::Several | AwaitedKind::Cancelled => GIVEN_BACK,
                    _ => CqEntry::default(),
                };
                let _ = reports.fail_with(&awaited.report, errno(error), entry, 0);
            }
        }
    }

    /// Reports a message that has taken a shared receive, if the ticket belongs to one.
    #[cold]
    fn report_drawn(&mut self, reports: &Reports, ticket: ReceiveTicket) {
        let drawn = self.mailbox.drawn(ticket);
        let (Some(drawn), Some(shared)) = (drawn, &self.shared) else {
            match self.groups().received(ticket) {
                true => self.report_collectives(reports),
                false => self.discard(ticket),
            }
            return;
        };
        let apart = self.mailbox.take_apart(ticket);
        let Some(result) = self.mailbox.test_receive(ticket) else {
            return;
        };
        match shared.taken(drawn.of, reports.selective[1]) {
            Some(Taken::Whole(report, to)) => {
                let awaited = Awaited {
                    ticket,
                    report,
                    source: None,
                    to,
                    kind: AwaitedKind::One,
                };
                self.report_end(reports, &awaited, apart, result);
            }
            Some(Taken::Part(several)) => {
                let place = (drawn.buffer, drawn.capacity);
                self.report_part(reports, several, place, apart, result);
            }
            None => {}
        }
    }

    #[inline(always)]
    fn received(&mut self, reports: &Reports, awaited: &Awaited, received: &Received) {
        let capacity: usize = awaited.to.list().iter().map(|part| part.len).sum();
        awaited.to.fill(received.len);
        let mut entry = self.entry(received);
        if received.len <= capacity || awaited.to.is_nowhere() {
            let sender = || self.name_of(received.source);
            reports.succeed_from(&awaited.report, entry, sender);
        } else {
            entry.len = capacity;
            let excess = received.len - capacity;
            let _ = reports.fail_with(&awaited.report, Errno::TRUNC, entry, excess);
        }
    }

    /// Reports a message for a buffer for several messages, or its failure.
    #[inline(never)]
    fn report_share(&mut self, reports: &Reports, ticket: ReceiveTicket, share: &Share) {
        let apart = self.mailbox.take_apart(ticket);
        let Some(result) = self.mailbox.test_receive(ticket) else {
            return;
        };
        let place = self.awaited.get_mut(share.of.index());
        let Some(place) = place else { return };
        let Some(awaited) = place else { return };
        let several = Several {
            report: awaited.report,
            last: share.last,
            cancelled: awaited.kind == AwaitedKind::Cancelled,
        };
        if share.last {
            *place = None;
        }
        let place = (share.buffer, share.capacity);
        self.report_part(reports, several, place, apart, result);
    }

    /// Reports the result of a message for `capacity` bytes at `buffer`, in a buffer for several messages.
    fn report_part(
        &mut self,
        reports: &Reports,
        several: Several,
        (buffer, capacity): (*mut u8, usize),
        apart: Option<Box<[u8]>>,
        result: std::result::Result<Received, unipgas_core::Error>,
    ) {
        let Several {
            mut report,
            last,
            cancelled,
        } = several;
        let told = last && !cancelled;
        // Reported always: only this report returns the buffer to the program.
        report.wanted |= told;
        // Another call reads failures, perhaps before earlier entries. So failures do not return the buffer.
        let by_itself;
        match result {
            Ok(received) if received.envelope.context & APART != 0 => {
                let request = apart.unwrap_or_default();
                self.refuse(received.source, &request, Errno::OPNOTSUPP);
                by_itself = told;
            }
            Ok(received) => {
                let mut entry = self.entry(&received);
                entry.buffer = buffer.addr();
                if received.len <= capacity {
                    by_itself = told && reports.is_nameless(&entry);
                    if told && !by_itself {
                        entry.flags |= FI_MULTI_RECV;
                    }
                    let sender = || self.name_of(received.source);
                    reports.succeed_from(&report, entry, sender);
                } else {
                    by_itself = told;
                    entry.len = capacity;
                    let excess = received.len - capacity;
                    let _ = reports.fail_with(&report, Errno::TRUNC, entry, excess);
                }
            }
            Err(error) => {
                let _ = reports.fail(&report, errno(error));
                by_itself = told;
            }
        }
        if by_itself && let Some(queue) = &reports.receive {
            queue.push(CqEntry {
                context: report.context,
                ..GIVEN_BACK
            });
        }
        if last && cancelled {
            let _ = reports.fail_with(&report, Errno::CANCELED, GIVEN_BACK, 0);
        }
    }
}
