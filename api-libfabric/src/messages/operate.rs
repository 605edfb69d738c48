//! Atomic operations on tagged receive buffers (fi_atomic(3), FI_TAGGED). A message requests an operation. The owner of the buffer carries it
//! out when it takes the message, and answers.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

use bytemuck::{Pod, Zeroable};
use unipgas_core::atomic::apply_vector;
use unipgas_core::message::{APART, Envelope, Mode, Pattern, Received};
use unipgas_core::{AtomicOp, Error};

use super::ends::scatter;
use super::post::gathered;
use super::{After, Awaited, AwaitedKind, Destination, MatchTag, Messages, Sent, errno};
use crate::atomics::{AtomicOperands, Family, Valid, check, valid};
use crate::completion::CqEntry;
use crate::endpoint::{Endpoint, PostOptions};
use crate::name::EndpointName;
use crate::operation::{Report, Reports};
use crate::rma::LocalRange;
use crate::status::{Errno, Result};
use crate::sys::{FI_ATOMIC, FI_TAGGED};

/// Maximum bytes of each array of an operation. Request and answer are short messages.
pub const MOST_BYTES: usize = 2048;

/// The context of answers. Program messages have 0 and 1.
const ANSWER: u8 = 2;
/// For `ignore`: matching compares all bits of the tag.
const ALL: u64 = 0;

/// Head of a request. The needed operands and comparands follow it.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Request {
    /// The tag of the answer.
    serial: u64,
    /// First byte of the target in the buffer.
    offset: u64,
    count: u32,
    datatype: i32,
    op: i32,
    family: u32,
}

const FAMILIES: [Family; 3] = [Family::Base, Family::Fetch, Family::Compare];

/// Converts lengths in elements to lengths in bytes.
fn in_bytes(parts: &[LocalRange], size: usize) -> Vec<LocalRange> {
    let bytes = |part: &LocalRange| LocalRange {
        ptr: part.ptr,
        len: part.len * size,
    };
    parts.iter().map(bytes).collect()
}

impl Endpoint {
    /// [`Endpoint::atomic`] on a buffer that the peer posts, now or later, by a receive with a tag. `key` of the one remote part is the tag, its
    /// address is the offset in the buffer. The operation ends the receive. Errors: as for [`Endpoint::atomic`].
    ///
    /// # Safety
    /// As for [`Endpoint::atomic`].
    pub unsafe fn atomic_tagged(
        &self,
        family: Family,
        what: (i32, i32),
        operands: &AtomicOperands<'_>,
        to: u64,
        posting: &PostOptions,
    ) -> Result<()> {
        let checked = check(family, what, operands, posting)?;
        let size = checked.valid.ty.size();
        let [remote] = operands.remote else {
            return Err(Errno::INVAL);
        };
        if checked.count * size > MOST_BYTES {
            return Err(Errno::MSGSIZE);
        }
        let (reports, mut state) = self.live()?;
        let state = &mut *state;
        if self.options().caps & FI_TAGGED == 0 || state.messages.is_none() {
            return Err(Errno::OPNOTSUPP);
        }
        let admitted = self.admit(reports, state, to, posting)?;
        let (flags, counted) = family.completion();
        let report = posting.report((flags | FI_TAGGED, counted), admitted.wanted);
        let number = match state.number(reports, to)? {
            Ok(number) => number,
            Err(errno) => return reports.fail(&report, errno),
        };
        let messages = state.messages.as_mut().ok_or(Errno::OPNOTSUPP)?;
        messages.asked += 1;
        let request = Request {
            serial: messages.asked,
            offset: remote.address,
            count: checked.count as u32,
            datatype: what.0,
            op: what.1,
            family: family as u32,
        };
        let mut bytes = bytemuck::bytes_of(&request).to_vec();
        let lists = [operands.operand, operands.compare];
        for (list, _) in lists
            .iter()
            .zip(checked.needed)
            .filter(|(_, needed)| *needed)
        {
            bytes.extend_from_slice(&gathered(&in_bytes(list, size), checked.count * size));
        }
        let envelope = Envelope {
            context: MatchTag {
                tag: Some(remote.key),
                ignore: ALL,
            }
            .context()
                | APART,
            tag: remote.key,
            extra: 0,
        };
        let sent = messages.dispatch(number, envelope, bytes.into(), After::Nothing);
        if let Err(error) = sent {
            return reports.fail(&report, errno(error));
        }
        let results = if family != Family::Base {
            in_bytes(operands.result, size)
        } else {
            Vec::new()
        };
        let pattern = Pattern {
            source: Some(number),
            context: ANSWER,
            tag: request.serial,
            ignore: ALL,
        };
        let len = results.iter().map(|part| part.len).sum();
        let bounce = vec![0; len].into_boxed_slice();
        let mut to = Destination::with(&results, Some(bounce));
        // SAFETY:
        // - the buffer stays in the `Awaited` until the receive has ended.
        let ticket = unsafe { messages.mailbox.receive(pattern, to.buffer(), len) };
        messages.unanswered += 1;
        messages.keep(Awaited {
            ticket,
            report,
            source: Some(number),
            to,
            kind: AwaitedKind::Answer,
        });
        messages.report(reports);
        Ok(())
    }
}

impl Messages {
    /// Sends a message. Its end has the effect `after`; if it has ended already, the result is `after`.
    fn dispatch(
        &mut self,
        to: u32,
        envelope: Envelope,
        bytes: Box<[u8]>,
        after: After,
    ) -> std::result::Result<Option<After>, Error> {
        let place = (bytes.as_ptr(), bytes.len());
        let engine = self.acquaintances.domain.engine();
        // SAFETY:
        // - `Sent` keeps the bytes until the send has ended. A move of the box does not move its content.
        let sent = unsafe {
            self.mailbox
                .send(engine, to, envelope, place, Mode::Buffered, false)
        };
        let Some(ticket) = sent? else {
            return Ok(Some(after));
        };
        self.sent.push(Sent {
            to,
            ticket,
            after,
            _held: Some(bytes),
        });
        self.stale = true;
        Ok(None)
    }

    /// Answers a request. False: the answer waits for room, and its end has the effect `after`.
    fn answer(
        &mut self,
        (to, serial): (u32, u64),
        errno: i32,
        results: Box<[u8]>,
        after: After,
    ) -> bool {
        let envelope = Envelope {
            context: ANSWER,
            tag: serial,
            extra: errno as u64,
        };
        // A peer that has gone needs no answer.
        !matches!(self.dispatch(to, envelope, results, after), Ok(None))
    }

    /// Rejects a request.
    pub(super) fn refuse(&mut self, to: u32, request: &[u8], errno: Errno) {
        if let Some((request, _)) = read(request) {
            let to = (to, request.serial);
            self.answer(to, errno.0, Box::default(), After::Nothing);
        }
    }
}

impl Reports {
    /// Reports the end of a receive after an operation on its buffer.
    pub(super) fn operated(
        &self,
        report: &Report,
        entry: CqEntry,
        failure: Option<Errno>,
        sender: impl FnOnce() -> Option<EndpointName>,
    ) {
        match failure {
            None => self.succeed_from(report, entry, sender),
            // Without a queue and a counter no receiver for the failure exists.
            Some(errno) => drop(self.fail_with(report, errno, entry, 0)),
        }
    }
}

fn read(bytes: &[u8]) -> Option<(Request, &[u8])> {
    let (head, rest) = bytes.split_at_checked(size_of::<Request>())?;
    Some((bytemuck::pod_read_unaligned(head), rest))
}

/// Carries out a request on a buffer. Returns the previous values, and the number of bytes that the operation covered. Errors:
/// [`Errno::TRUNC`] outside the buffer, [`Errno::INVAL`] for a wrong alignment or a malformed request.
fn carry_out(request: &Request, data: &[u8], buffer: &mut [u8]) -> Result<(Box<[u8]>, usize)> {
    let family = FAMILIES.get(request.family as usize).ok_or(Errno::INVAL)?;
    let Valid { ty, op, .. } = valid(*family, request.datatype, request.op)?;
    let len = request.count as usize * ty.size();
    let needed = [op != AtomicOp::Read, *family == Family::Compare];
    let lists = needed.iter().filter(|needed| **needed).count();
    if len > MOST_BYTES || data.len() != lists * len {
        return Err(Errno::INVAL);
    }
    let offset = usize::try_from(request.offset).map_err(|_| Errno::TRUNC)?;
    let target = buffer
        .get_mut(offset..)
        .and_then(|rest| rest.get_mut(..len));
    let target = target.ok_or(Errno::TRUNC)?;
    let mut results = vec![0; if *family == Family::Base { 0 } else { len }].into_boxed_slice();
    let place = match *family {
        Family::Base => std::ptr::null_mut(),
        _ => results.as_mut_ptr(),
    };
    let compare = if needed[1] { &data[len..] } else { &[] };
    // SAFETY:
    // - the checks above leave `count` elements in the buffer and in each list that the operation uses. `apply_vector` checks the alignment.
    unsafe {
        apply_vector(
            op,
            ty,
            target.as_mut_ptr(),
            request.count as usize,
            data.as_ptr(),
            compare.as_ptr(),
            place,
        )
    }
    .map_err(|_| Errno::INVAL)?;
    Ok((results, len))
}

impl Messages {
    /// Carries out a request that has arrived for a buffer.
    #[cold]
    pub(super) fn operate(
        &mut self,
        reports: &Reports,
        awaited: &Awaited,
        received: &Received,
        request: &[u8],
    ) {
        let mut entry = self.entry(received);
        let source = received.source;
        if awaited.to.is_nowhere() {
            self.refuse(source, request, Errno::CANCELED);
            return reports.succeed_with(&awaited.report, entry);
        }
        let Some((head, data)) = read(request) else {
            let _ = reports.fail(&awaited.report, Errno::INVAL);
            return;
        };
        let done = match awaited.to.list() {
            [part] => {
                // SAFETY:
                // - contract of `Endpoint::receive` or `SharedReceives::receive`: the part is valid for reads and writes until the receive has ended.
                let buffer = unsafe { part.bytes() };
                carry_out(&head, data, buffer)
            }
            parts => {
                let mut whole = gathered(parts, parts.iter().map(|part| part.len).sum());
                let done = carry_out(&head, data, &mut whole);
                scatter(&whole, parts);
                done
            }
        };
        let (results, len, failure) = match done {
            Ok((results, len)) => (results, len, None),
            Err(errno) => (Box::default(), 0, Some(errno)),
        };
        entry.len = len;
        if failure.is_none() {
            entry.flags |= FI_ATOMIC;
        }
        let after = After::Receive(awaited.report, entry, failure);
        let (to, code) = ((source, head.serial), failure.map_or(0, |errno| errno.0));
        if self.answer(to, code, results, after) {
            reports.operated(&awaited.report, entry, failure, || self.name_of(source));
        }
    }

    /// Ends an operation: its answer has arrived, or never will.
    #[cold]
    pub(super) fn answered(
        &mut self,
        reports: &Reports,
        awaited: &Awaited,
        result: std::result::Result<Received, Error>,
    ) {
        self.unanswered -= 1;
        let failure = match result {
            Ok(received) => received.envelope.extra as i32,
            Err(error) => errno(error).0,
        };
        if failure != 0 {
            // Without a queue and a counter no receiver for the failure exists.
            let _ = reports.fail(&awaited.report, Errno(failure));
            return;
        }
        awaited.to.fill(usize::MAX);
        reports.succeed(&awaited.report);
    }
}
