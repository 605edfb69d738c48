//! An operation that a network may not take whole, or not now: what it is made of, and its pieces.

use std::ops::Range;

use crate::agent;
use crate::atomic::{AtomicForm, supported};
use crate::inbox::Record;
use crate::lines::{LINE, last_word};
use crate::mapped::move_bytes;
use crate::op::{AtomicRequest, Flags, Inbox, Local, Notice, Outcome, Remote, Reply};
use crate::region::{RemoteRegion, Rights};
use crate::registration::{Block, COPIED, Held, Registrations};
use crate::transport::{Channel, Limits, check_message};
use crate::{AtomicOp, AtomicType, Error, Result};

/// A place in a peer's region, kept beyond the call.
pub(super) struct Place {
    region: RemoteRegion,
    offset: usize,
}

impl Place {
    pub fn of(remote: Remote<'_>) -> Self {
        Place {
            region: remote.region.clone(),
            offset: remote.offset,
        }
    }

    fn at(&self, more: usize) -> Remote<'_> {
        Remote {
            region: &self.region,
            offset: self.offset + more,
        }
    }

    /// The address at which it is mapped here, or at least one with the same alignment.
    fn address(&self) -> usize {
        let base = self.region.parts().base.addr();
        base.wrapping_add(self.offset)
    }
}

/// Bytes that the operation reads.
pub(super) enum Source {
    /// The user's, as long as the contract says.
    Users(Local),
    /// A copy, for a network that needs no registration.
    Taken(Box<[u8]>),
    /// A copy in registered memory.
    Bounced(Block),
    /// The user's, registered for the operation.
    Held(*mut u8, Held),
}

/// Where bytes that the network brings go first.
pub(super) enum Landing {
    /// Where the user wants them.
    There,
    /// Likewise, registered for the operation.
    Held(Held),
    /// From where they are copied at the end.
    Bounce(Block),
}

impl Landing {
    /// What lies `offset` bytes behind `user`, or in its place.
    fn at(&self, user: Local, offset: usize) -> Local {
        let first = match self {
            Landing::There => user,
            Landing::Held(held) => Local {
                ptr: user.ptr,
                desc: held.desc(),
            },
            Landing::Bounce(block) => block.local(),
        };
        forward(first, offset)
    }

    /// # Safety
    /// The `len` bytes of the user's are valid for writes.
    unsafe fn land(&self, user: *mut u8, len: usize, flags: Flags) {
        if let Landing::Bounce(block) = self {
            // SAFETY:
            // - the caller's word; the block is as long.
            unsafe { move_bytes(block.local().ptr, user, len, flags) };
        }
    }
}

fn forward(local: Local, offset: usize) -> Local {
    Local {
        ptr: local.ptr.wrapping_add(offset),
        desc: local.desc,
    }
}

impl Source {
    fn at(&self, offset: usize) -> Local {
        let first = match self {
            Source::Users(local) => *local,
            Source::Taken(bytes) => Local {
                ptr: bytes.as_ptr().cast_mut(),
                desc: 0,
            },
            Source::Bounced(block) => block.local(),
            Source::Held(ptr, held) => Local {
                ptr: *ptr,
                desc: held.desc(),
            },
        };
        forward(first, offset)
    }

    /// # Safety
    /// The user's `len` bytes are valid.
    unsafe fn take(&mut self, len: usize) {
        if let Source::Users(local) = *self
            && !local.ptr.is_null()
        {
            let mut bytes = vec![0; len].into_boxed_slice();
            // SAFETY:
            // - the caller's word; the destination is new, and as long.
            unsafe { crate::copy(local.ptr, bytes.as_mut_ptr(), len) };
            *self = Source::Taken(bytes);
        }
    }
}

/// What is to be done.
pub(super) enum Work {
    Put {
        src: Source,
        dst: Place,
        len: usize,
        notice: Option<(Place, u32)>,
    },
    Get {
        dst: Local,
        landing: Landing,
        src: Place,
        len: usize,
    },
    Notify {
        slot: Place,
        value: u32,
    },
    Atomic {
        dst: Place,
        op: AtomicOp,
        ty: AtomicType,
        count: usize,
        operand: Source,
        compare: Source,
        result: *mut u8,
        landing: Landing,
    },
    Deliver {
        first: RemoteRegion,
        second: Option<RemoteRegion>,
        overflow: Option<Place>,
        record: Record,
    },
    Message {
        to: Place,
        bytes: Source,
        len: usize,
        reply: Reply,
    },
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

impl Work {
    /// The region that says which peer the operation is for.
    pub fn region(&self) -> &RemoteRegion {
        match self {
            Work::Put { dst, .. } | Work::Atomic { dst, .. } => &dst.region,
            Work::Get { src, .. } => &src.region,
            Work::Notify { slot, .. } => &slot.region,
            Work::Deliver { first, .. } => first,
            Work::Message { to, .. } => &to.region,
        }
    }

    /// What an error of the network's means for the operation.
    pub fn error(&self, error: Error, limits: &Limits) -> Error {
        match (self, error) {
            (Work::Atomic { .. }, Error::Refused(why)) => agent::atomic_error(why),
            (Work::Message { .. }, Error::Refused(why)) if !limits.atomics => {
                agent::programs_error(why)
            }
            (_, error) => error,
        }
    }

    fn len(&self) -> usize {
        match self {
            Work::Put { len, .. } | Work::Get { len, .. } => *len,
            Work::Atomic { count, .. } => *count,
            _ => 0,
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
        match self {
            Work::Put {
                dst, len, notice, ..
            } => {
                within(dst, *len, Rights::WRITE)?;
                notice.as_ref().map_or(Ok(()), |(slot, _)| word(slot))
            }
            Work::Get { src, len, .. } => within(src, *len, Rights::READ),
            Work::Notify { slot, .. } => word(slot),
            Work::Atomic {
                dst,
                op,
                ty,
                count,
                result,
                ..
            } => {
                let len = count.saturating_mul(ty.size());
                within(dst, len, Rights::ATOMIC)?;
                let lost = op.form() == AtomicForm::FetchOnly && result.is_null();
                match lost || !supported(*op, *ty) {
                    true => Err(Error::Unsupported),
                    false => Ok(()),
                }
            }
            Work::Deliver { first, .. } => first.check(0, first.len(), Rights::WRITE),
            Work::Message { to, bytes, len, .. } => {
                // SAFETY:
                // - so many bytes by the caller's word, or the copy's.
                let bytes = unsafe { std::slice::from_raw_parts(bytes.at(0).ptr, *len) };
                check_message(to.at(0), bytes)
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
        match self {
            Work::Put { src, len, .. } => {
                let Source::Users(local) = *src else {
                    return Ok(());
                };
                let inline = flags.contains(Flags::INLINE);
                if *len == 0 || (inline && *len <= limits.inline) || (!inline && local.desc != 0) {
                    return Ok(());
                }
                if inline || *len <= COPIED {
                    let block = registrations.block(*len)?;
                    // SAFETY:
                    // - the caller's word; the block is as long, and nobody else's.
                    unsafe { crate::copy(local.ptr, block.local().ptr, *len) };
                    *src = Source::Bounced(block);
                } else {
                    *src = Source::Held(local.ptr, held(local.ptr, *len, false)?);
                }
            }
            Work::Get {
                dst, landing, len, ..
            } if dst.desc == 0 && *len > 0 => {
                *landing = match *len <= COPIED {
                    true => Landing::Bounce(registrations.block(*len)?),
                    false => Landing::Held(held(dst.ptr, *len, true)?),
                };
            }
            Work::Atomic {
                ty,
                count,
                result,
                landing,
                ..
            } if !result.is_null() && *count > 0 && limits.atomics => {
                *landing = Landing::Bounce(registrations.block(*count * ty.size())?);
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
        // SAFETY:
        // - the caller's word.
        unsafe {
            match self {
                Work::Get {
                    dst, landing, len, ..
                } => landing.land(dst.ptr, *len, flags),
                Work::Atomic {
                    ty,
                    count,
                    result,
                    landing,
                    ..
                } => landing.land(*result, *count * ty.size(), Flags::empty()),
                _ => {}
            }
        }
    }

    /// Never gives back what the network may still read or write.
    pub fn abandon(self) {
        match self {
            Work::Put { src, .. } => std::mem::forget(src),
            Work::Get { landing, .. } | Work::Atomic { landing, .. } => std::mem::forget(landing),
            _ => {}
        }
    }

    /// Copies what is the caller's for the time of the call alone.
    ///
    /// # Safety
    /// The call has not returned, or this has been called before.
    pub unsafe fn take(&mut self, flags: Flags) {
        // SAFETY:
        // - the caller's word; as many bytes as the operation reads.
        unsafe {
            match self {
                Work::Put { src, len, .. } if flags.contains(Flags::INLINE) => src.take(*len),
                Work::Atomic {
                    ty,
                    count,
                    operand,
                    compare,
                    ..
                } => {
                    operand.take(*count * ty.size());
                    compare.take(*count * ty.size());
                }
                Work::Message { bytes, len, .. } => bytes.take(*len),
                _ => {}
            }
        }
    }

    /// Whether the network does not take it as it is.
    pub fn needs_cutting(&self, flags: Flags, limits: &Limits) -> bool {
        if let Work::Atomic { op, ty, count, .. } = self
            && !limits.atomics
        {
            return *count > agent::most(*op, *ty);
        }
        let bytes = match self {
            Work::Atomic { ty, count, .. } => count.saturating_mul(ty.size()),
            _ => self.len(),
        };
        let lines = flags.contains(Flags::LINES) && !limits.lines;
        let inline = flags.contains(Flags::INLINE) && bytes > limits.inline;
        bytes > limits.largest || lines || inline
    }

    /// The piece that begins at `at`.
    fn piece(&self, at: usize, flags: Flags, limits: &Limits) -> Piece {
        let (address, len) = match self {
            Work::Put { dst, len, .. } => (dst.address(), *len),
            Work::Get { dst, len, .. } => (dst.ptr.addr(), *len),
            Work::Atomic { op, ty, count, .. } => {
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

    /// Issues the piece that begins at `at`; gives where the next one does, or none if this was the last.
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
        let Piece { range, ordered } = self.piece(at, flags, limits);
        let size = range.len();
        let (first, last) = (at == 0, range.end >= self.len());
        let mut asked = flags;
        if !limits.lines || limits.largest < LINE {
            asked.remove(Flags::LINES);
        }
        let taken = match self {
            Work::Put { src, .. } => match src {
                // What is registered nowhere goes inline, where that matters.
                Source::Taken(_) => !limits.registered,
                Source::Bounced(_) => true,
                Source::Users(_) | Source::Held(..) => false,
            },
            _ => false,
        };
        if taken || size > limits.inline {
            asked.remove(Flags::INLINE);
        }
        if !last {
            asked.remove(Flags::WAKE);
        }
        // Whoever is told by the last piece finds the others.
        let tells = match self {
            Work::Put { notice, .. } => notice.is_some() || asked.contains(Flags::WAKE),
            _ => asked.contains(Flags::WAKE),
        };
        if ordered || last && !first && tells {
            asked |= Flags::ORDERED;
        }
        // SAFETY:
        // - the caller's word, for a part of the bytes.
        let outcome = unsafe {
            match self {
                Work::Put {
                    src, dst, notice, ..
                } => {
                    let (src, dst) = (src.at(at), dst.at(at));
                    match notice.as_ref().filter(|_| last) {
                        None => inner.put(src, dst, size, asked, context),
                        Some((slot, value)) => {
                            let notice = Notice {
                                slot: slot.at(0),
                                value: *value,
                            };
                            inner.put_notify(src, dst, size, notice, asked, context)
                        }
                    }
                }
                Work::Get {
                    dst, landing, src, ..
                } => {
                    let dst = landing.at(*dst, at);
                    inner.get(dst, src.at(at), size, asked, context)
                }
                Work::Notify { slot, value } => {
                    let notice = Notice {
                        slot: slot.at(0),
                        value: *value,
                    };
                    inner.notify(notice, asked, context)
                }
                Work::Atomic {
                    dst,
                    op,
                    ty,
                    operand,
                    compare,
                    result,
                    landing,
                    ..
                } => {
                    let skip = at * ty.size();
                    let users = Local {
                        ptr: *result,
                        desc: 0,
                    };
                    let result = match result.is_null() {
                        true => users,
                        false => landing.at(users, skip),
                    };
                    let request = AtomicRequest {
                        op: *op,
                        ty: *ty,
                        count: size,
                        operand: operand.at(skip).ptr,
                        compare: compare.at(skip).ptr,
                        result: result.ptr,
                    };
                    let dst = dst.at(skip);
                    if limits.atomics {
                        inner.atomic(dst, &request, result.desc, asked, context)
                    } else {
                        let message = agent::atomic(&request, asked);
                        let reply = match request.result.is_null() {
                            true => Reply::NONE,
                            false => Reply::new(request.result, size * ty.size()),
                        };
                        inner.active_message(dst, &message, reply, asked, context)
                    }
                }
                Work::Deliver {
                    first,
                    second,
                    overflow,
                    record,
                } => {
                    let inbox = Inbox {
                        first,
                        second: second.as_ref(),
                        overflow: overflow.as_ref().map(|word| word.at(0)),
                    };
                    inner.deliver(inbox, *record, asked, context)
                }
                Work::Message {
                    to,
                    bytes,
                    len,
                    reply,
                } => {
                    let bytes = std::slice::from_raw_parts(bytes.at(0).ptr, *len);
                    inner.active_message(to.at(0), bytes, *reply, asked, context)
                }
            }
        }?;
        Ok((outcome, (!last).then_some(range.end)))
    }
}
