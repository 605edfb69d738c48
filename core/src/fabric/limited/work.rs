//! An operation that a network may not take whole, or not now: the memory that it needs registered, and its pieces.

use std::ops::Range;

use crate::agent;
use crate::atomic::{AtomicForm, supported};
use crate::kept::{Kept, Part, Place, Source};
use crate::lines::{LINE, last_word};
use crate::mapped::move_bytes;
use crate::op::{Flags, Local, Outcome, Reply};
use crate::region::{RemoteRegion, Rights};
use crate::registration::{Block, COPIED, Held, Registrations};
use crate::transport::{Channel, Limits, check_inbox, check_message};
use crate::{Error, Result};

/// The most bytes whose lines are kept that go at once: where the target's processor goes through them, it does so while the next ones come.
const IN_LINES: usize = 64 << 10;

/// Registered memory, as long as the operation takes.
enum Registered {
    /// In place of the user's.
    Bounce(Block),
    /// The user's.
    There(Held),
}

impl Registered {
    /// What the network is given in place of memory of the user's.
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

/// An operation, and what has been registered for it.
pub(super) struct Work {
    kept: Kept,
    /// What it reads.
    source: Option<Registered>,
    /// What it writes, for so many bytes at the user's address.
    landing: Option<(Registered, *mut u8, usize)>,
}

// SAFETY:
// - the pointers are the user's, valid on any thread until the operation is complete (contract of `Channel`).
unsafe impl Send for Work {}

/// What goes at once: of a transfer in bytes, of an atomic operation in elements.
struct Piece {
    range: Range<usize>,
    /// After what comes before it in the same operation.
    ordered: bool,
}

/// The address at which a place is mapped here, or at least one with the same alignment.
fn address(place: &Place) -> usize {
    let base = place.region.parts().base.addr();
    base.wrapping_add(place.offset)
}

impl Work {
    pub fn new(kept: Kept) -> Self {
        Work {
            kept,
            source: None,
            landing: None,
        }
    }

    /// The region that says which peer the operation is for.
    pub fn region(&self) -> &RemoteRegion {
        self.kept.region()
    }

    /// What an error of the network's means for the operation.
    pub fn error(&self, error: Error, limits: &Limits) -> Error {
        match (&self.kept, error) {
            (Kept::Atomic { .. }, Error::Refused(why)) => agent::atomic_error(why),
            (Kept::Message { .. }, Error::Refused(why)) if !limits.atomics => {
                agent::programs_error(why)
            }
            (_, error) => error,
        }
    }

    /// Whether the whole of it is right, before a part of it leaves. Errors: those of the operation.
    pub fn check(&self) -> Result<()> {
        let within = |at: &Place, len, need| at.region.check(at.offset, len, need);
        let word = |slot: &Place| {
            within(slot, 4, Rights::WRITE)?;
            match slot.at(0).offset_is_multiple_of(4) {
                true => Ok(()),
                false => Err(Error::Misaligned(4)),
            }
        };
        match &self.kept {
            Kept::Put {
                dst, len, notice, ..
            } => {
                within(dst, *len, Rights::WRITE)?;
                notice.as_ref().map_or(Ok(()), |(slot, _)| word(slot))
            }
            Kept::Get { src, len, .. } => within(src, *len, Rights::READ),
            Kept::Notify { slot, .. } => word(slot),
            Kept::Atomic {
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
            Kept::Deliver { put, first, .. } => {
                check_inbox(first)?;
                let put = put.as_ref();
                put.map_or(Ok(()), |put| within(&put.1, put.2, Rights::WRITE))
            }
            Kept::Message { to, .. } => {
                // SAFETY:
                // - the call has not returned.
                check_message(to.at(0), unsafe { self.kept.message_bytes() })
            }
        }
    }

    /// Sees to it that all local memory is registered, for a network that needs that. Errors: those of
    /// [`Registrations::hold`](crate::registration::Registrations::hold).
    ///
    /// # Safety
    /// The call has not returned, and the operation's memory is valid until its end.
    pub unsafe fn hold(
        &mut self,
        flags: Flags,
        limits: &Limits,
        registrations: &Registrations,
    ) -> Result<()> {
        let held = |ptr, len, write| {
            // SAFETY:
            // - the caller's word: it is given back when the operation has ended.
            unsafe { registrations.hold(ptr, len, write) }
        };
        match &mut self.kept {
            Kept::Put { src, len, .. } => {
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
                    // - the caller's word; the block is as long, and nobody else's.
                    unsafe { crate::copy(local.ptr, block.local().ptr, *len) };
                    Registered::Bounce(block)
                } else {
                    Registered::There(held(local.ptr, *len, false)?)
                };
                *src = Source::Given(registered.local(local.ptr));
                self.source = Some(registered);
            }
            Kept::Get { dst, len, .. } if dst.desc == 0 && *len > 0 => {
                let (users, len) = (dst.ptr, *len);
                let registered = match len <= COPIED {
                    true => Registered::Bounce(registrations.block(len)?),
                    false => Registered::There(held(users, len, true)?),
                };
                *dst = registered.local(users);
                self.landing = Some((registered, users, len));
            }
            Kept::Atomic {
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

    /// Brings the user what has come for him elsewhere.
    ///
    /// # Safety
    /// All of it has come, and its destination is valid still.
    pub unsafe fn land(&self, flags: Flags) {
        if let Some((Registered::Bounce(block), users, len)) = &self.landing {
            let flags = match &self.kept {
                Kept::Get { .. } => flags,
                _ => Flags::empty(),
            };
            // SAFETY:
            // - the caller's word; the block is as long.
            unsafe { move_bytes(block.local().ptr, *users, *len, flags) };
        }
    }

    /// Never gives back what the network may still read or write.
    pub fn abandon(self) {
        self.kept.abandon();
        std::mem::forget((self.source, self.landing));
    }

    /// Copies what is the caller's for the time of the call alone.
    ///
    /// # Safety
    /// The call has not returned, or this has been called before.
    pub unsafe fn take(&mut self, flags: Flags) {
        // SAFETY:
        // - the caller's word.
        unsafe { self.kept.take(flags) };
    }

    /// Whether the network does not take it as it is.
    pub fn needs_cutting(&self, flags: Flags, limits: &Limits) -> bool {
        if let Kept::Atomic { op, ty, count, .. } = &self.kept
            && !limits.atomics
        {
            return *count > agent::most(*op, *ty);
        }
        let bytes = match &self.kept {
            Kept::Atomic { ty, count, .. } => count.saturating_mul(ty.size()),
            _ => self.kept.extent(),
        };
        let lines = flags.contains(Flags::LINES) && (!limits.lines || bytes > IN_LINES);
        let inline = flags.contains(Flags::INLINE) && bytes > limits.inline;
        bytes > limits.largest || lines || inline
    }

    /// The piece that begins at `at`.
    fn piece(&self, at: usize, flags: Flags, limits: &Limits) -> Piece {
        let (address, len) = match &self.kept {
            Kept::Put { dst, len, .. } => (address(dst), *len),
            Kept::Get { dst, len, .. } => (dst.ptr.addr(), *len),
            Kept::Atomic { op, ty, count, .. } => {
                let most = match limits.atomics {
                    true => (limits.largest / ty.size()).max(1),
                    false => agent::most(*op, *ty),
                };
                return Piece {
                    range: at..(*count).min(at.saturating_add(most)),
                    ordered: false,
                };
            }
            _ => {
                return Piece {
                    range: 0..0,
                    ordered: false,
                };
            }
        };
        let end = len.min(at.saturating_add(limits.largest));
        if !flags.contains(Flags::LINES) {
            return Piece {
                range: at..end,
                ordered: false,
            };
        }
        if limits.lines && limits.largest >= LINE {
            // The network keeps lines that go whole.
            let end = end.min(at.saturating_add(IN_LINES));
            let over = address.wrapping_add(end) % LINE;
            let whole = if end < len { end - over.min(end) } else { end };
            return Piece {
                range: at..if whole > at { whole } else { end },
                ordered: false,
            };
        }
        // A line at a time, its last word after the rest.
        let into_line = address.wrapping_add(at) % LINE;
        let begin = at - into_line.min(at);
        let end = len.min(at + LINE - into_line);
        let word = end - last_word(address.wrapping_add(begin), end - begin);
        if at < word {
            return Piece {
                range: at..word.min(at.saturating_add(limits.largest)),
                ordered: false,
            };
        }
        Piece {
            range: at..end,
            ordered: begin < word,
        }
    }

    /// Issues the piece that begins at `at`; gives where the next one does, or none if this was the last. Beyond the data is a notice that does not go with it.
    ///
    /// # Safety
    /// What the operation reads and writes is valid until its end, which `context` will tell.
    pub unsafe fn issue(
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
            // - it reads and writes no memory of the caller's.
            let outcome = unsafe { self.kept.post(&Part::Notice, inner, flags, context) }?;
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
            // What is registered nowhere goes inline, where that matters.
            (
                Kept::Put {
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
        // Whoever is told by the last piece finds the others.
        let tells = match &self.kept {
            Kept::Put { notice, .. } => notice.is_some() || asked.contains(Flags::WAKE),
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
        // - the caller's word, for a part of the bytes; what has to be was taken, or the call has not returned.
        let outcome = unsafe {
            match &self.kept {
                Kept::Atomic { ty, .. } if !limits.atomics => {
                    let len = range.len() * ty.size();
                    let (to, request) = self.kept.elements(range);
                    let message = agent::atomic(&request, asked);
                    let reply = match request.result.is_null() {
                        true => Reply::NONE,
                        false => Reply::new(request.result, len),
                    };
                    inner.active_message(to, &message, reply, asked, context)
                }
                kept => {
                    let part = match last && !apart {
                        true => Part::Last(range),
                        false => Part::Data(range),
                    };
                    kept.post(&part, inner, asked, context)
                }
            }
        }?;
        Ok((outcome, next))
    }
}
