//! What becomes of messages.

use unipgas_core::Engine;
use unipgas_core::message::{APART, MARK, Pattern, ReceiveTicket, Received};

use super::{After, Awaited, Messages, Parts, errno};
use crate::completion::Entry;
use crate::name::Name;
use crate::operation::Reports;
use crate::rma::Part;
use crate::state::State;
use crate::status::{Errno, Result};
use crate::sys::{FI_ADDR_NOTAVAIL, FI_MULTI_RECV, FI_REMOTE_CQ_DATA};
use crate::target::SHAPE;

/// Messages in one buffer begin at multiples of this from its beginning.
const ALIGN: usize = 8;

pub(super) fn scatter(bytes: &[u8], parts: &[Part]) {
    let mut rest = bytes;
    for part in parts {
        let (now, later) = rest.split_at(part.len.min(rest.len()));
        // SAFETY:
        // - valid for writes by the word of the receive's caller; the bytes are ours.
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
            match (&sent.after, result) {
                (After::Report(report), Ok(())) => reports.succeed(report),
                (After::Report(report), Err(error)) => {
                    let _ = reports.fail(report, errno(error));
                }
                // Whoever has gone needs no answer.
                (After::Receive(report, entry, failure), _) => {
                    reports.operated(report, *entry, *failure);
                }
                (After::Nothing, _) => {}
            }
            false
        });
    }

    /// The end of a receive that nobody waits for: of one that was discarded, or claimed and not asked for yet.
    #[cold]
    fn discard(&mut self, engine: &Engine, ticket: ReceiveTicket) {
        let Some(at) = self.discarded.iter().position(|known| *known == ticket) else {
            return;
        };
        let apart = self.mailbox.take_apart(ticket);
        if let Some(ended) = self.mailbox.test_receive(ticket) {
            self.discarded.swap_remove(at);
            if let (Some(request), Ok(received)) = (apart, ended) {
                self.refuse(engine, received.source, &request, Errno::CANCELED);
            }
        }
    }
}

impl State {
    /// The number of the endpoint at `to` among the peers of the mailbox. Errors: as for [`State::target`].
    #[inline]
    pub(super) fn number(
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

    /// The number of the endpoint at `from`, which need not be reachable. Errors: [`Errno::INVAL`] for an address that is not there.
    #[inline]
    pub(super) fn number_of_sender(
        &mut self,
        reports: &Reports,
        from: u64,
    ) -> Result<std::result::Result<u32, unipgas_core::Error>> {
        let (Some(messages), Some(av)) = (&mut self.messages, &self.av) else {
            return Err(Errno::OPNOTSUPP);
        };
        messages.check_addresses(av);
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
        name: &Name,
    ) -> Result<std::result::Result<u32, unipgas_core::Error>> {
        let messages = self.messages.as_ref().ok_or(Errno::OPNOTSUPP)?;
        let mut number = messages.number(name);
        // Some are left for peers that come while nobody looks here.
        if number.is_err() || messages.is_crowded() {
            self.take_numbers_back(reports);
        }
        if let (Err(_), Some(messages)) = (&number, &self.messages) {
            number = messages.number(name);
        }
        Ok(number)
    }

    /// Peers that have gone leave their numbers to others, when what they have sent has been received.
    #[cold]
    pub fn take_numbers_back(&mut self, reports: &Reports) {
        let Some(messages) = &mut self.messages else {
            return;
        };
        let peers = 0..SHAPE.peers as u32;
        let gone: Vec<u32> = peers
            .filter(|number| messages.acquaintances.has_gone(*number))
            .collect();
        for number in &gone {
            messages.mailbox.bury(*number);
        }
        // What is told of them may need their names.
        self.report_messages(reports);
        for number in gone {
            let Some(messages) = &mut self.messages else {
                return;
            };
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
            messages.acquaintances.lanes.free(number);
        }
    }

    /// Whether a message to the endpoint at `to`, or an atomic operation on its tagged buffers, has not ended.
    pub fn is_message_under_way_to(&self, to: u64) -> bool {
        let Some(messages) = &self.messages else {
            return false;
        };
        if messages.sent.is_empty() && messages.unanswered == 0 {
            return false;
        }
        let number = self.id_of(to).and_then(|id| self.known_number(id));
        let Some(number) = number else {
            return false;
        };
        let mut awaited = messages.awaited.iter().flatten();
        messages.sent.iter().any(|sent| sent.to == number)
            || awaited.any(|awaited| awaited.answer && awaited.source == Some(number))
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
        if let Some(messages) = &mut self.messages {
            messages.mailbox.progress_a_little(self.domain.engine());
            let greetings = messages.mailbox.greetings();
            let new = greetings != std::mem::replace(&mut messages.greetings, greetings);
            self.report_messages(reports);
            if new {
                self.make_room(reports);
            }
        }
    }

    /// Makes room for peers that come, if there is little.
    #[cold]
    pub fn make_room(&mut self, reports: &Reports) {
        if self.messages.as_ref().is_some_and(Messages::is_crowded) {
            self.take_numbers_back(reports);
        }
    }

    /// What a message says of itself, for a completion queue.
    pub(super) fn entry(&mut self, received: &Received) -> Entry {
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
        messages.check_addresses(av);
        if let Some(known) = messages.sources.get(at)
            && *known != FI_ADDR_NOTAVAIL
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
    pub(super) fn report_messages(&mut self, reports: &Reports) {
        let Some(messages) = &mut self.messages else {
            return;
        };
        messages.stale = false;
        if !messages.sent.is_empty() {
            messages.report_sends(reports);
        }
        while let Some(messages) = &mut self.messages
            && let Some(ticket) = messages.mailbox.take_ended()
        {
            self.report_receive(reports, ticket);
        }
    }

    /// Tells of a receive, if it has ended and somebody waits for it.
    pub(super) fn report_receive(&mut self, reports: &Reports, ticket: ReceiveTicket) {
        let Some(messages) = &mut self.messages else {
            return;
        };
        let place = messages.awaited.get_mut(ticket.index());
        let Some((place, awaited)) = place.and_then(|place| place.take().map(|it| (place, it)))
        else {
            return messages.discard(self.domain.engine(), ticket);
        };
        let apart = messages.mailbox.take_apart(ticket);
        match messages.mailbox.test_receive(ticket) {
            Some(result) if awaited.answer => self.answered(reports, &awaited, result),
            Some(Ok(received)) if received.envelope.context & APART != 0 => {
                self.operate(reports, &awaited, &received, &apart.unwrap_or_default());
            }
            Some(Ok(received)) => self.received(reports, &awaited, &received),
            Some(Err(error)) => drop(reports.fail(&awaited.report, errno(error))),
            // Its predecessor under this index has ended.
            None => *place = Some(awaited),
        }
    }

    fn received(&mut self, reports: &Reports, awaited: &Awaited, received: &Received) {
        let parts = awaited.parts.list();
        let capacity: usize = parts.iter().map(|part| part.len).sum();
        if let Some(bounce) = &awaited.bounce {
            scatter(&bounce[..received.len.min(bounce.len())], parts);
        }
        let mut entry = self.entry(received);
        if let (Some(pattern), Parts::One(part)) = (awaited.several, &awaited.parts) {
            return self.one_of_several(reports, awaited, pattern, *part, entry);
        }
        let discarded = parts.is_empty() && awaited.bounce.is_some();
        if received.len <= capacity || discarded {
            reports.succeed_with(&awaited.report, entry);
        } else {
            entry.len = capacity;
            let excess = received.len - capacity;
            let _ = reports.fail_with(&awaited.report, Errno::TRUNC, entry, excess);
        }
    }

    /// A message has come into a buffer for several: the rest of it is for the next one, if it is large enough.
    fn one_of_several(
        &mut self,
        reports: &Reports,
        awaited: &Awaited,
        pattern: Pattern,
        part: Part,
        mut entry: Entry,
    ) {
        entry.buffer = part.ptr.addr();
        let mut report = awaited.report;
        let used = entry.len.next_multiple_of(ALIGN);
        let rest = part.len.saturating_sub(used);
        let over = rest < self.least_room || rest == 0;
        if over || entry.len > part.len {
            entry.flags |= FI_MULTI_RECV;
            // Told always: the program has nothing else to know by that the buffer is its own again.
            report.wanted = true;
        }
        if entry.len > part.len {
            let excess = entry.len - part.len;
            entry.len = part.len;
            let _ = reports.fail_with(&awaited.report, Errno::TRUNC, entry, excess);
            return;
        }
        reports.succeed_with(&report, entry);
        if let (false, Some(messages)) = (over, &mut self.messages) {
            let next = Part {
                ptr: part.ptr.wrapping_add(used),
                len: rest,
            };
            // SAFETY:
            // - the buffer is the library's until it has said by the flag that it needs it no more.
            unsafe { messages.await_several(pattern, awaited.report, next) };
        }
    }
}
