//! Calls that send, receive, peek and cancel.

use unipgas_core::message::{Envelope, MARK, Mode, Pattern};

use super::ends::GIVEN_BACK;
use super::{After, Awaited, AwaitedKind, Claimed, Destination, MatchTag, Messages, Sent, errno};
use crate::completion::CqEntry;
use crate::endpoint::{Endpoint, PostOptions, RECEIVES, fence};
use crate::operation::{CounterEvent, Report, Reports};
use crate::rma::{LONGEST, LocalRange, TRANSMIT_FLAGS, bytes_of, check_local, check_parts};
use crate::status::{Errno, Result};
use crate::sys::{
    FI_ADDR_UNSPEC, FI_CLAIM, FI_COMPLETION, FI_DELIVERY_COMPLETE, FI_DIRECTED_RECV, FI_DISCARD,
    FI_MATCH_COMPLETE, FI_MORE, FI_MULTI_RECV, FI_ORDER_SAS, FI_PEEK, FI_RECV, FI_SEND,
    FI_TRANSMIT_COMPLETE,
};

pub(super) fn gathered(parts: &[LocalRange], len: usize) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(len);
    for part in parts.iter().filter(|part| part.len > 0) {
        // SAFETY:
        // - contract of the posting call (`Endpoint::send`, `receive` or `atomic`): the parts are valid for reads.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(part.ptr, part.len) });
    }
    bytes.into()
}

/// Flags of an endpoint for receives without own flags. The completion of a receive means more than FI_TRANSMIT_COMPLETE.
pub(crate) const RECEIVE_OP_FLAGS: u64 = FI_COMPLETION | FI_MULTI_RECV | FI_TRANSMIT_COMPLETE;
const RECEIVE_FLAGS: u64 = RECEIVE_OP_FLAGS | FI_MORE;
const PEEK_FLAGS: u64 = FI_PEEK | FI_CLAIM | FI_DISCARD;

/// Checks the arguments of a receive. Returns its length in bytes.
#[inline(always)]
pub(super) fn check_receive(
    tag: MatchTag,
    parts: &[LocalRange],
    flags: u64,
    caps: u64,
) -> Result<usize> {
    let peeks = flags & PEEK_FLAGS;
    let known = RECEIVE_FLAGS | if tag.tag.is_some() { PEEK_FLAGS } else { 0 };
    if flags & !known != 0 || peeks == FI_DISCARD || peeks == PEEK_FLAGS {
        return Err(Errno::BADFLAGS);
    }
    check_parts(parts)?;
    if flags & FI_MULTI_RECV != 0 && caps & FI_MULTI_RECV == 0 {
        return Err(Errno::BADFLAGS);
    }
    bytes_of(parts, LONGEST)
}

fn mode_of(posting: &PostOptions) -> Mode {
    let received = FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;
    match posting.flags & received != 0 && !posting.quiet {
        true => Mode::Synchronous,
        false => Mode::Buffered,
    }
}

impl Endpoint {
    /// Sends a message. Errors: as for [`Endpoint::transfer`].
    ///
    /// # Safety
    /// The memory is readable and unchanged until the operation is complete. With FI_INJECT or `quiet`: until the call returns.
    pub unsafe fn send(
        &self,
        tag: MatchTag,
        parts: &[LocalRange],
        to: u64,
        posting: &PostOptions,
    ) -> Result<()> {
        if posting.flags & !(TRANSMIT_FLAGS | FI_MATCH_COMPLETE) != 0 {
            return Err(Errno::BADFLAGS);
        }
        let (len, inline) = check_local(parts, posting)?;
        let (reports, mut state) = self.live()?;
        let state = &mut *state;
        if self.options().caps & tag.kind() == 0 || state.messages.is_none() {
            return Err(Errno::OPNOTSUPP);
        }
        let admitted = self.admit(reports, state, to, posting)?;
        if self.options().order & !FI_ORDER_SAS != 0 && state.has_accesses() {
            // Messages take another route than earlier accesses.
            fence(reports, state, |state| state.is_under_way_to(to))?;
        }
        let report = posting.report((tag.kind() | FI_SEND, CounterEvent::Send), admitted.wanted);
        let number = match state.number(reports, to)? {
            Ok(number) => number,
            Err(errno) => return reports.fail(&report, errno),
        };
        let mode = mode_of(posting);
        let copies = parts.len() > 1 || inline && mode == Mode::Synchronous;
        let held = copies.then(|| gathered(parts, len));
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
        let more = posting.flags & FI_MORE != 0;
        let among = state.is_among(more);
        if among {
            state.begin_among(to);
        }
        let messages = state.messages.as_mut().ok_or(Errno::OPNOTSUPP)?;
        let engine = self.domain().engine();
        // SAFETY:
        // - contract of this call: the bytes are readable until the operation is complete. `Sent` keeps `held` until the send has ended.
        // - without `held`, the payload of an inject send has left, or is copied below, before the call returns.
        let outcome = unsafe {
            messages
                .mailbox
                .send(engine, number, envelope, (data, len), mode, false)
        };
        if among {
            state.batch.end(&state.channel, more);
        }
        let ticket = match outcome {
            Ok(Some(ticket)) => ticket,
            ended => return reports.end(&report, ended.err().map(errno)),
        };
        // The caller's memory may change after an inject call: a copy waits for room.
        let copy = (inline && held.is_none()).then(|| gathered(parts, len));
        if let Some(copy) = &copy {
            // SAFETY:
            // - the copy has the same length, and `Sent` keeps it until the send has ended.
            unsafe {
                messages
                    .mailbox
                    .move_payload(ticket, copy.as_ptr(), posting.quiet)
            };
        }
        messages.own += 1;
        messages.sent.push(Sent {
            to: number,
            ticket,
            after: After::Report(report),
            _held: held.or(copy),
        });
        messages.stale = true;
        if posting.quiet {
            messages.keep_going();
        }
        Ok(())
    }

    /// Receives a message, now or later. FI_PEEK only checks for one. With FI_CLAIM it also keeps the message for a receive with this context and
    /// FI_CLAIM; with FI_DISCARD it discards it. Errors: as for [`Endpoint::send`].
    ///
    /// # Safety
    /// The memory is valid for reads and writes until the operation is complete. An atomic operation of a peer reads it.
    pub unsafe fn receive(
        &self,
        tag: MatchTag,
        parts: &[LocalRange],
        from: u64,
        posting: &PostOptions,
    ) -> Result<()> {
        let flags = posting.flags;
        let len = check_receive(tag, parts, flags, self.options().caps)?;
        let (reports, mut state) = self.live()?;
        let state = &mut *state;
        if self.receives & tag.kind() == 0 || state.messages.is_none() {
            return Err(Errno::OPNOTSUPP);
        }
        let report = posting.report(
            (tag.kind() | FI_RECV, CounterEvent::Receive),
            posting.wants(reports.selective[1]),
        );
        let directed = self.options().caps & FI_DIRECTED_RECV != 0 && from != FI_ADDR_UNSPEC;
        let source = if directed {
            match state.number_of_sender(reports, from)? {
                Ok(number) => Some(number),
                Err(error) => return reports.fail(&report, error.into()),
            }
        } else {
            None
        };
        let pattern = tag.pattern(source);
        let messages = state.messages.as_mut().ok_or(Errno::OPNOTSUPP)?;
        if flags & FI_PEEK != 0 {
            let found = messages.peek(reports, pattern, &report, flags)?;
            return match found {
                true => Ok(()),
                false => reports.fail(&report, Errno::NOMSG),
            };
        }
        if flags & FI_CLAIM != 0 {
            return match messages.claim(reports, &report, parts, flags)? {
                true => Ok(()),
                false => Err(Errno::INVAL),
            };
        }
        if messages.receives() >= RECEIVES {
            state.progress(reports);
            return Err(Errno::AGAIN);
        }
        let several = flags & FI_MULTI_RECV != 0;
        if several && parts.len() != 1 {
            return Err(Errno::INVAL);
        }
        let mut to = Destination::of(parts, len);
        let (buffer, least) = (to.buffer(), self.least_room());
        let mailbox = &mut messages.mailbox;
        // SAFETY:
        // - contract of this call: the memory is valid for writes. The `Awaited` keeps a bounce buffer until the receive has ended.
        let (ticket, kind) = unsafe {
            match several {
                true => (
                    mailbox.receive_several(pattern, buffer, len, least),
                    AwaitedKind::Several,
                ),
                false => (mailbox.receive(pattern, buffer, len), AwaitedKind::One),
            }
        };
        messages.keep(Awaited {
            ticket,
            report,
            source,
            to,
            kind,
        });
        messages.report(reports);
        Ok(())
    }

    /// Cancels an operation that has not begun (fi_cancel(3)). It ends with [`Errno::CANCELED`]. Errors: [`Errno::NOENT`].
    pub fn cancel(&self, context: usize) -> Result<()> {
        let (reports, mut state) = self.live()?;
        let messages = state.messages.as_mut().ok_or(Errno::NOENT)?;
        let awaited = messages.awaited.iter_mut();
        for place in awaited {
            let Some(awaited) = place else { continue };
            let (report, ticket) = (awaited.report, awaited.ticket);
            if report.context != context {
                continue;
            }
            let (entry, cancelled) = match awaited.kind {
                AwaitedKind::Cancelled | AwaitedKind::Answer => continue,
                AwaitedKind::One if messages.mailbox.cancel_receive(ticket) => {
                    (CqEntry::default(), true)
                }
                AwaitedKind::One => break,
                AwaitedKind::Several => match messages.mailbox.cancel_several(ticket) {
                    Some(at_once) => (GIVEN_BACK, at_once),
                    None => break,
                },
            };
            if !cancelled {
                awaited.kind = AwaitedKind::Cancelled;
                return Ok(());
            }
            *place = None;
            return reports.fail_with(&report, Errno::CANCELED, entry, 0);
        }
        let known = messages.sent.iter().position(
            |sent| matches!(&sent.after, After::Report(report) if report.context == context),
        );
        if let Some(at) = known
            && messages.mailbox.cancel_send(messages.sent[at].ticket)
            && let After::Report(report) = messages.sent.remove(at).after
        {
            messages.own -= 1;
            return reports.fail(&report, Errno::CANCELED);
        }
        Err(Errno::NOENT)
    }
}

impl Messages {
    /// Looks for a message. Returns whether there is one. FI_CLAIM keeps it, FI_DISCARD discards it.
    #[cold]
    pub(super) fn peek(
        &mut self,
        reports: &Reports,
        pattern: Pattern,
        report: &Report,
        flags: u64,
    ) -> Result<bool> {
        self.move_on();
        self.report(reports);
        let Some(found) = self.mailbox.probe(pattern) else {
            return Ok(false);
        };
        if flags & (FI_CLAIM | FI_DISCARD) != 0 {
            let len = if flags & FI_CLAIM != 0 { found.len } else { 0 };
            let mut bytes = vec![0u8; len].into_boxed_slice();
            // SAFETY:
            // - for a claim, `Claimed` or `Awaited` keeps the bytes until the receive has ended. Otherwise the length is 0.
            let ticket = unsafe { self.mailbox.receive(pattern, bytes.as_mut_ptr(), len) };
            if flags & FI_CLAIM != 0 {
                self.claimed.push(Claimed {
                    context: report.context,
                    ticket,
                    bytes,
                });
            } else {
                self.discarded.push(ticket);
            }
        }
        let entry = self.entry(&found);
        // No counter counts a peek.
        let sender = || self.name_of(found.source);
        reports.tell_from(report, entry, sender);
        Ok(true)
    }

    /// Receives the message that was claimed with this context, or discards it (FI_DISCARD). Returns whether there is one.
    #[cold]
    pub(super) fn claim(
        &mut self,
        reports: &Reports,
        report: &Report,
        parts: &[LocalRange],
        flags: u64,
    ) -> Result<bool> {
        let mut claimed = self.claimed.iter();
        let Some(at) = claimed.position(|claim| claim.context == report.context) else {
            return Ok(false);
        };
        let claim = self.claimed.swap_remove(at);
        // The bytes of a discarded message may still be in flight, so they keep their buffer.
        let parts = match flags & FI_DISCARD {
            0 => parts,
            _ => &[],
        };
        self.keep(Awaited {
            ticket: claim.ticket,
            report: *report,
            source: None,
            to: Destination::with(parts, Some(claim.bytes)),
            kind: AwaitedKind::One,
        });
        // The mailbox may have reported its end already.
        self.report_receive(reports, claim.ticket);
        Ok(true)
    }
}
