//! An operation that has been posted and waits to be carried out, and how a part of it is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use unipgas_core::inbox::Record;
use unipgas_core::op::{AtomicRequest, Flags, Inbox, Local, Notice, Outcome, Remote, Reply};
use unipgas_core::transport::Channel;
use unipgas_core::{AtomicOp, AtomicType, RemoteRegion, Result};

use crate::plan::Part;

/// A place in a peer's region, kept beyond the call.
pub struct Place {
    pub region: RemoteRegion,
    pub offset: usize,
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
}

/// Where the bytes of a put come from.
pub enum Source {
    /// Read when the operation is carried out, as late as that may be.
    Users(Local),
    /// Taken when it was posted.
    Taken(Box<[u8]>),
}

impl Source {
    fn at(&self, offset: usize) -> Local {
        match self {
            Source::Users(local) => forward(*local, offset),
            Source::Taken(bytes) => Local {
                ptr: bytes.as_ptr().wrapping_add(offset).cast_mut(),
                desc: 0,
            },
        }
    }
}

fn forward(local: Local, offset: usize) -> Local {
    Local {
        ptr: local.ptr.wrapping_add(offset),
        desc: local.desc,
    }
}

/// What is to be done.
pub enum Work {
    Put {
        src: Source,
        dst: Place,
        len: usize,
        notice: Option<(Place, u32)>,
    },
    Get {
        dst: Local,
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
        operand: Box<[u8]>,
        compare: Box<[u8]>,
        result: Local,
    },
    Deliver {
        first: RemoteRegion,
        second: Option<RemoteRegion>,
        overflow: Option<Place>,
        record: Record,
        /// If there is no room now, its owner is told so.
        last_try: bool,
    },
    Message {
        to: Place,
        bytes: Box<[u8]>,
        reply: Reply,
    },
}

// SAFETY:
// - the pointers are the user's, who gives them to the backend, on any thread, until the operation is complete (contract of
//   `Channel`).
unsafe impl Send for Work {}

/// Names an inbox: records of one channel to one inbox stay in order.
pub type InboxId = (u32, usize, usize, [u64; 2]);

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

    /// The inbox that the operation delivers to, if it does.
    pub fn inbox(&self) -> Option<InboxId> {
        match self {
            Work::Deliver { first, .. } => {
                let parts = first.parts();
                Some((
                    parts.peer,
                    parts.base as usize,
                    parts.generation as usize,
                    parts.detail,
                ))
            }
            _ => None,
        }
    }

    /// Whether a record that finds no room is not offered again.
    pub fn set_last_try(&mut self, last: bool) {
        if let Work::Deliver { last_try, .. } = self {
            *last_try = last;
        }
    }

    /// Gives `part` of the work to the channel below.
    ///
    /// # Safety
    /// What the user has said of the pointers still holds.
    pub unsafe fn carry_out(
        &self,
        part: &Part,
        inner: &dyn Channel,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        // SAFETY (all calls below):
        // - pointers are the user's and valid by the caller's word, or those of boxes that live as long as the operation;
        //   a range is within the length that they are valid for.
        match self {
            Work::Put {
                src,
                dst,
                len,
                notice,
            } => {
                let notice = notice.as_ref().map(|(slot, value)| Notice {
                    slot: slot.at(0),
                    value: *value,
                });
                match (part, notice) {
                    (Part::Notice, Some(notice)) => inner.notify(notice, flags, context),
                    (Part::Whole, Some(notice)) => {
                        // SAFETY:
                        // - see above.
                        unsafe {
                            inner.put_notify(src.at(0), dst.at(0), *len, notice, flags, context)
                        }
                    }
                    _ => {
                        let range = range(part, *len);
                        // SAFETY:
                        // - see above.
                        unsafe {
                            inner.put(
                                src.at(range.start),
                                dst.at(range.start),
                                range.len(),
                                flags,
                                context,
                            )
                        }
                    }
                }
            }
            Work::Get { dst, src, len } => {
                let range = range(part, *len);
                // SAFETY:
                // - see above.
                unsafe {
                    inner.get(
                        forward(*dst, range.start),
                        src.at(range.start),
                        range.len(),
                        flags,
                        context,
                    )
                }
            }
            Work::Notify { slot, value } => {
                let notice = Notice {
                    slot: slot.at(0),
                    value: *value,
                };
                inner.notify(notice, flags, context)
            }
            Work::Atomic {
                dst,
                op,
                ty,
                count,
                operand,
                compare,
                result,
            } => {
                let range = range(part, *count);
                let skip = range.start * ty.size();
                let input = |bytes: &[u8]| match bytes {
                    [] => std::ptr::null(),
                    _ => bytes[skip..].as_ptr(),
                };
                let request = AtomicRequest {
                    op: *op,
                    ty: *ty,
                    count: range.len(),
                    operand: input(operand),
                    compare: input(compare),
                    result: match result.ptr.is_null() {
                        true => result.ptr,
                        false => result.ptr.wrapping_add(skip),
                    },
                };
                // SAFETY:
                // - see above.
                unsafe { inner.atomic(dst.at(skip), &request, result.desc, flags, context) }
            }
            Work::Deliver {
                first,
                second,
                overflow,
                record,
                last_try,
            } => {
                let overflow = overflow.as_ref().filter(|_| *last_try);
                let inbox = Inbox {
                    first,
                    second: second.as_ref(),
                    overflow: overflow.map(|word| word.at(0)),
                };
                inner.deliver(inbox, *record, flags, context)
            }
            Work::Message { to, bytes, reply } => {
                inner.active_message(to.at(0), bytes, *reply, flags, context)
            }
        }
    }
}

fn range(part: &Part, len: usize) -> std::ops::Range<usize> {
    match part {
        Part::Range(range) => range.clone(),
        _ => 0..len,
    }
}

/// What befalls the process at a chosen operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disaster {
    /// SIGKILL.
    Kill,
    /// Nothing goes on for so long.
    Stall(Duration),
}

impl Disaster {
    /// Does not return from [`Disaster::Kill`].
    pub fn strike(self, stalls: &Stalls) {
        match self {
            Disaster::Kill => {
                let me = rustix::process::getpid();
                let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
                // A process 1 that ignores the signal ends all the same.
                std::process::abort()
            }
            Disaster::Stall(span) => {
                tracing::debug!(?span, "chaos: stall");
                stalls.begin(span);
                stalls.pass();
            }
        }
    }
}

/// The gate that all of a process's communication passes.
pub struct Stalls {
    start: Instant,
    /// Nanoseconds after `start`.
    until: AtomicU64,
}

impl Stalls {
    pub fn new() -> Self {
        Stalls {
            start: Instant::now(),
            until: AtomicU64::new(0),
        }
    }

    fn begin(&self, span: Duration) {
        let until = self.start.elapsed().saturating_add(span).as_nanos();
        self.until
            .fetch_max(until.min(u128::from(u64::MAX)) as u64, Ordering::Relaxed);
    }

    /// Returns when no stall is on.
    pub fn pass(&self) {
        let until = self.until.load(Ordering::Relaxed);
        if until == 0 {
            return;
        }
        while let Some(rest) = Duration::from_nanos(until).checked_sub(self.start.elapsed()) {
            if rest.is_zero() {
                break;
            }
            std::thread::sleep(rest);
        }
    }
}
