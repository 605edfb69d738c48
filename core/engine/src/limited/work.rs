//! An operation that a network may not take whole, or not now. It owns the registered memory and makes the pieces.

use std::ops::Range;

use crate::agent;
use crate::atomic::{AtomicForm, supported};
use crate::deferred_op::{DeferredOp, DeferredPart, RegionPlace, Source};
use crate::lines::{LINE, last_word};
use crate::mapped::move_bytes;
use crate::op::{Flags, Local, Outcome, ReplyBuffer};
use crate::region::RemoteRegion;
use crate::registration::{Block, COPIED, Held, Registrations};
use crate::transport::{Channel, Limits, check_inbox, check_message};
use crate::{Error, Result, Rights};

/// The most bytes of a piece with `Flags::LINES`. The target's processor may process the lines: it does so while the next piece is in flight.
const IN_LINES: usize = 64 << 10;

/// Registered memory, for the duration of the operation.
enum Registered {
    /// A bounce buffer in place of the user's memory.
    Bounce(Block),
    /// The user's memory.
    There(Held),
}

impl Registered {
    /// The memory for the network, in place of the user's address.
    fn local(&self, users: *mut u8) -> Local {
        match self {
            Registered::Bounce(block) => block.local(),
            Registered::There(held) => Local {
                ptr: users,
                desc: held.desc(),
            },
        }
    }
}

/// An operation and its registered memory.
pub(super) struct Work {
    kept: DeferredOp,
    /// Registered memory that the operation reads.
    source: Option<Registered>,
    /// Registered memory that the operation writes, the user's address, and its length.
    landing: Option<(Registered, *mut u8, usize)>,
}

// SAFETY:
// - contract of `Channel`: the user's memory is valid on each thread until the operation is complete.
unsafe impl Send for Work {}

/// A part that is issued at once. Unit: bytes of a transfer, elements of an atomic operation.
struct Piece {
    range: Range<usize>,
    /// Ordered after the earlier pieces of the operation.
    ordered: bool,
}

/// The address at which a place is mapped here, or an address with the same alignment.
fn address(place: &RegionPlace) -> usize {
    let base = place.region.parts().base.addr();
    base.wrapping_add(place.offset)
}

impl Work {
    pub fn new(kept: DeferredOp) -> Self {
        Work {
            kept,
            source: None,
            landing: None,
        }
    }

    /// A region of the operation's peer.
    pub(crate) fn region(&self) -> &RemoteRegion {
        self.kept.region()
    }

    /// The operation's error for an error of the network.
    pub fn error(&self, error: Error, limits: &Limits) -> Error {
        match (&self.kept, error) {
            (DeferredOp::Atomic { .. }, Error::Refused(why)) => agent::atomic_error(why),
            (DeferredOp::Message { .. }, Error::Refused(why)) if !limits.atomics => {
                agent::programs_error(why)
            }
            (_, error) => error,
        }
    }

    /// Checks the whole operation before a part of it leaves. Errors: as the operation.
    pub fn check(&self) -> Result<()> {
        let within = |at: &RegionPlace, len, need| at.region.check(at.offset, len, need);
        let word = |slot: &RegionPlace| {
            within(slot, 4, Rights::WRITE)?;
            match slot.at(0).offset_is_multiple_of(4) {
                true => Ok(()),
                false => Err(Error::Misaligned(4)),
            }
        };
        match &self.kept {
            DeferredOp::Put {
                dst, len, notice, ..
            } => {
                within(dst, *len, Rights::WRITE)?;
                notice.as_ref().map_or(Ok(()), |(slot, _)| word(slot))
            }
            DeferredOp::Get { src, len, .. } => within(src, *len, Rights::READ),
            DeferredOp::Notify { slot, .. } => word(slot),
            DeferredOp::Atomic {
                dst,
                op,
                ty,
                count,
                result,
                ..
            } => {
                let len = count.saturating_mul(ty.size());
                within(dst, len, Rights::ATOMIC)?;
                let lost = op.form() == AtomicForm::FetchOnly && result.ptr.is_null();
                match lost || !supported(*op, *ty) {
                    true => Err(Error::Unsupported),
                    false => Ok(()),
                }
            }
            DeferredOp::Deliver { put, first, .. } => {
                check_inbox(first)?;
                let put = put.as_ref();
                put.map_or(Ok(()), |put| within(&put.1, put.2, Rights::WRITE))
            }
            DeferredOp::Message { to, .. } => {
                // SAFETY:
                // - the call of the operation has not returned.
                check_message(to.at(0), unsafe { self.kept.message_bytes() })
            }
        }
    }

    /// Registers local memory for networks that need this. Errors: as [`Registrations::hold`](crate::registration::Registrations::hold).
    ///
    /// # Safety
    /// The call of the operation has not returned, and its memory is valid until its end.
    pub(crate) unsafe fn hold(
        &mut self,
        flags: Flags,
        limits: &Limits,
        registrations: &Registrations,
    ) -> Result<()> {
        let held = |ptr, len, write| {
            // SAFETY:
            // - contract of this call: the memory is valid until the operation ends. `self` drops the registration then.
            unsafe { registrations.hold(ptr, len, write) }
        };
        match &mut self.kept {
            DeferredOp::Put { src, len, .. } => {
                let Source::Users(local) = *src else {
                    return Ok(());
                };
                let inline = flags.contains(Flags::INLINE);
                if *len == 0 || (inline && *len <= limits.inline) || (!inline && local.desc != 0) {
                    return Ok(());
                }
                let registered = if inline || *len <= COPIED {
                    let block = registrations.block(*len)?;
                    // SAFETY:
                    // - contract of this call: the source is valid. The block has at least `len` bytes, and this operation alone uses it.
                    unsafe { crate::copy(local.ptr, block.local().ptr, *len) };
                    Registered::Bounce(block)
                } else {
                    Registered::There(held(local.ptr, *len, false)?)
                };
                *src = Source::Given(registered.local(local.ptr));
                self.source = Some(registered);
            }
            DeferredOp::Get { dst, len, .. } if dst.desc == 0 && *len > 0 => {
                let (users, len) = (dst.ptr, *len);
                let registered = match len <= COPIED {
                    true => Registered::Bounce(registrations.block(len)?),
                    false => Registered::There(held(users, len, true)?),
                };
                *dst = registered.local(users);
                self.landing = Some((registered, users, len));
            }
            DeferredOp::Atomic {
                ty, count, result, ..
            } if !result.ptr.is_null() && *count > 0 && limits.atomics => {
                let (users, len) = (result.ptr, *count * ty.size());
                let registered = Registered::Bounce(registrations.block(len)?);
                *result = registered.local(users);
                self.landing = Some((registered, users, len));
            }
            _ => {}
        }
        Ok(())
    }

    /// Copies received bytes from the bounce buffer to the user's memory.
    ///
    /// # Safety
    /// All bytes have been received, and their destination is valid.
    pub(crate) unsafe fn land(&self, flags: Flags) {
        if let Some((Registered::Bounce(block), users, len)) = &self.landing {
            let flags = match &self.kept {
                DeferredOp::Get { .. } => flags,
                _ => Flags::empty(),
            };
            // SAFETY:
            // - contract of this call: the destination is valid. The block has at least `len` bytes.
            unsafe { move_bytes(block.local().ptr, *users, *len, flags) };
        }
    }

    /// Leaks memory that the network may still read or write.
    pub(crate) fn abandon(self) {
        self.kept.abandon();
        std::mem::forget((self.source, self.landing));
    }

    /// Copies memory that is valid only during the call.
    ///
    /// # Safety
    /// The call of the operation has not returned, or `take` has been called before.
    pub unsafe fn take(&mut self, flags: Flags) {
        // SAFETY:
        // - contract of this call.
        unsafe { self.kept.take(flags) };
    }

    /// Whether the network does not take the operation as one piece.
    pub(crate) fn needs_cutting(&self, flags: Flags, limits: &Limits) -> bool {
        if let DeferredOp::Atomic { op, ty, count, .. } = &self.kept
            && !limits.atomics
        {
            return *count > agent::most(*op, *ty);
        }
        let bytes = match &self.kept {
            DeferredOp::Atomic { ty, count, .. } => count.saturating_mul(ty.size()),
            _ => self.kept.extent(),
        };
        let lines = flags.contains(Flags::LINES) && (!limits.lines || bytes > IN_LINES);
        let inline = flags.contains(Flags::INLINE) && bytes > limits.inline;
        bytes > limits.largest || lines || inline
    }

    /// The piece that begins at `at`.
    fn piece(&self, at: usize, flags: Flags, limits: &Limits) -> Piece {
        let unordered = |range| Piece {
            range,
            ordered: false,
        };
        let (address, len) = match &self.kept {
            DeferredOp::Put { dst, len, .. } => (address(dst), *len),
            DeferredOp::Get { dst, len, .. } => (dst.ptr.addr(), *len),
            DeferredOp::Atomic { op, ty, count, .. } => {
                let most = match limits.atomics {
                    true => (limits.largest / ty.size()).max(1),
                    false => agent::most(*op, *ty),
                };
                return unordered(at..(*count).min(at.saturating_add(most)));
            }
            _ => return unordered(0..0),
        };
        let end = len.min(at.saturating_add(limits.largest));
        if !flags.contains(Flags::LINES) {
            return unordered(at..end);
        }
        if limits.lines && limits.largest >= LINE {
            // The network keeps the lines within a piece.
            let end = end.min(at.saturating_add(IN_LINES));
            let over = address.wrapping_add(end) % LINE;
            let whole = if end < len { end - over.min(end) } else { end };
            return unordered(at..if whole > at { whole } else { end });
        }
        // One line at a time. Its last word follows the rest.
        let into_line = address.wrapping_add(at) % LINE;
        let begin = at - into_line.min(at);
        let end = len.min(at + LINE - into_line);
        let word = end - last_word(address.wrapping_add(begin), end - begin);
        if at < word {
            return unordered(at..word.min(at.saturating_add(limits.largest)));
        }
        Piece {
            range: at..end,
            ordered: begin < word,
        }
    }

    /// Issues the piece that begins at `at`. Returns the start of the next piece; `None`: this was the last. A separate notice is the piece beyond the data.
    ///
    /// # Safety
    /// The memory that the operation reads and writes is valid until the completion with `context`.
    pub(crate) unsafe fn issue(
        &self,
        at: usize,
        flags: Flags,
        limits: &Limits,
        inner: &dyn Channel,
        context: u64,
    ) -> Result<(Outcome, Option<usize>)> {
        let extent = self.kept.extent();
        if at > extent {
            let flags = flags.difference(Flags::INLINE | Flags::LINES) | Flags::ORDERED;
            // SAFETY:
            // - a notice reads and writes no memory of the caller.
            let outcome = unsafe { self.kept.post(&DeferredPart::Notice, inner, flags, context) }?;
            return Ok((outcome, None));
        }
        let Piece { range, ordered } = self.piece(at, flags, limits);
        let (first, last) = (at == 0, range.end >= extent);
        let apart = last
            && self
                .kept
                .notice()
                .is_some_and(|notice| !inner.notifies(&notice));
        let mut asked = flags;
        if !limits.lines || limits.largest < LINE {
            asked.remove(Flags::LINES);
        }
        let taken = match (&self.kept, &self.source) {
            // On networks that need registered memory, unregistered bytes stay inline.
            (
                DeferredOp::Put {
                    src: Source::Taken(_),
                    ..
                },
                _,
            ) => !limits.registered,
            (_, Some(Registered::Bounce(_))) => true,
            _ => false,
        };
        if taken || range.len() > limits.inline {
            asked.remove(Flags::INLINE);
        }
        if !last {
            asked.remove(Flags::WAKE);
        }
        // The last piece notifies the peer, which must then find all others.
        let tells = match &self.kept {
            DeferredOp::Put { notice, .. } => notice.is_some() || asked.contains(Flags::WAKE),
            _ => asked.contains(Flags::WAKE),
        };
        if ordered || last && !first && tells {
            asked |= Flags::ORDERED;
        }
        let next = match apart {
            true => Some(extent + 1),
            false => (!last).then_some(range.end),
        };
        // SAFETY:
        // - contract of this call, for a part of the bytes. Borrowed bytes were taken, or the call of the operation has not returned.
        let outcome = unsafe {
            match &self.kept {
                DeferredOp::Atomic { ty, .. } if !limits.atomics => {
                    let len = range.len() * ty.size();
                    let (to, request) = self.kept.elements(range);
                    let message = agent::atomic(&request, asked);
                    let reply = match request.result.is_null() {
                        true => ReplyBuffer::NONE,
                        false => ReplyBuffer::new(request.result, len),
                    };
                    inner.active_message(to, &message, reply, asked, context)
                }
                kept => {
                    let part = match last && !apart {
                        true => DeferredPart::Last(range),
                        false => DeferredPart::Data(range),
                    };
                    kept.post(&part, inner, asked, context)
                }
            }
        }?;
        Ok((outcome, next))
    }
}
