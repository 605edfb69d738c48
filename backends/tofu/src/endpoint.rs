//! The issue of operations. TNIs read, write, and change memory; other operations are requests to the target's agent.

use std::ffi::c_ulong;
use std::sync::{Arc, OnceLock};

use unipgas_core::op::{
    AtomicRequest, Completion, Flags, GetRequest, Local, Notice, Outcome, PutRequest, Remote,
    UnsignaledPut,
};
use unipgas_core::streams::{After, NetworkOp, Requests, Ticket};
use unipgas_core::transport::{Channel, check_notice};
use unipgas_core::{Error, Result, Rights};
use unipgas_utofu_sys::*;

use crate::armw::{ArmwRequest, command};
use crate::conversation::TofuStream;
use crate::lanes::{LaneUse, PendingWork, ResultSlot, VcqLane};
use crate::net::{TofuNet, acknowledge, data_of};
use crate::region::{address, far};
use crate::unsignaled::UnsignaledPuts;
use crate::vcq::RawVcq;

/// Maximum bytes in a descriptor (guide §6.1.2).
pub const PIGGYBACK: usize = 32;

/// An issue context. It has its own VCQ while there are enough.
pub(crate) struct Endpoint {
    net: Arc<TofuNet>,
    requests: Requests,
    unsignaled: UnsignaledPuts,
    lane: OnceLock<LaneUse>,
}

/// Source of a write.
#[derive(Clone, Copy)]
enum Source {
    /// Copied in the call.
    Along([u8; PIGGYBACK]),
    /// STADD of the source, which is valid until completion.
    At(u64),
}

/// A write, and an optional word after it.
struct Write {
    lane: Arc<VcqLane>,
    from: Source,
    len: usize,
    to: u64,
    /// STADD and value of the word.
    word: Option<(u64, u32)>,
    flags: c_ulong,
    /// The data is posted; the word found no room.
    half: bool,
}

impl Write {
    /// # Safety
    /// The source is valid until completion.
    unsafe fn put(&self, vcq: &RawVcq, peer: u64, flags: c_ulong, data: usize) -> Result<()> {
        let flags = (0, self.flags | flags);
        match &self.from {
            // SAFETY:
            // - the write owns the bytes, and `write` has checked their number.
            Source::Along(bytes) => unsafe {
                vcq.put_piggyback(peer, (bytes.as_ptr(), self.len), self.to, flags, data)
            },
            // SAFETY:
            // - contract of this call: the source is valid until completion.
            Source::At(from) => unsafe { vcq.put(peer, (*from, self.to), self.len, flags, data) },
        }
    }
}

impl NetworkOp for Write {
    fn post(&mut self, ticket: Ticket) -> Result<()> {
        let link = ticket.link().clone();
        let to = &*TofuStream::of(&link).target;
        let (peer, data) = (to.route, data_of(to));
        let lane = self.lane.clone();
        let post = |vcq: &RawVcq, notice: c_ulong| {
            let Some((slot, value)) = self.word else {
                return match self.len {
                    0 => acknowledge(vcq, to, notice),
                    // SAFETY:
                    // - contract of `Channel::put`: the source is valid until completion.
                    _ => unsafe { self.put(vcq, peer, notice, data) },
                };
            };
            if self.len > 0 && !self.half {
                // `DELAY_START`: the data leaves with the word.
                // SAFETY:
                // - contract of `Channel::put`.
                unsafe { self.put(vcq, peer, vcq.waiting(), data) }?;
                self.half = true;
            }
            let (word, order) = (value.to_ne_bytes(), UTOFU_ONESIDED_FLAG_STRONG_ORDER);
            let flags = (0, order | notice);
            // SAFETY:
            // - `word` has `word.len()` bytes.
            unsafe { vcq.put_piggyback(peer, (word.as_ptr(), word.len()), slot, flags, data) }
        };
        let mut queue = lane.queue();
        let posted = lane.post(&mut queue, to, post, || PendingWork::Access(ticket));
        if !matches!(posted, Ok(()) | Err(Error::NotNow)) {
            // The data leaves now, while its source is valid.
            lane.vcq.start();
        }
        posted
    }
}

struct Read {
    lane: Arc<VcqLane>,
    into: u64,
    len: usize,
    from: u64,
    flags: c_ulong,
}

impl NetworkOp for Read {
    fn post(&mut self, ticket: Ticket) -> Result<()> {
        let link = ticket.link().clone();
        let to = &*TofuStream::of(&link).target;
        let lane = &self.lane;
        let post = |vcq: &RawVcq, notice: c_ulong| match self.len {
            0 => acknowledge(vcq, to, notice),
            // SAFETY:
            // - contract of `Channel::get`: the destination is valid for writes until completion.
            len => unsafe {
                let (places, flags) = ((self.into, self.from), self.flags | notice);
                vcq.get(to.route, places, len, flags, data_of(to))
            },
        };
        lane.post(&mut lane.queue(), to, post, || PendingWork::Access(ticket))
    }
}

impl Endpoint {
    /// A channel without a VCQ.
    pub fn new(net: Arc<TofuNet>, requests: Requests) -> Self {
        Endpoint {
            net,
            requests,
            unsignaled: UnsignaledPuts::default(),
            lane: OnceLock::new(),
        }
    }

    /// Its VCQ, assigned at the first post.
    #[inline]
    fn lane(&self) -> &Arc<VcqLane> {
        self.lane.get_or_init(|| self.net.lanes.share())
    }

    /// STADD of memory of this process. Errors: [`Error::NotRegistered`], [`Error::Unsupported`], and errors of registrations.
    fn near(&self, local: Local, len: usize) -> Result<u64> {
        if len > self.net.caps.max_putget_size {
            return Err(Error::Unsupported);
        }
        match len {
            0 => Ok(0),
            _ => self.net.memories.stadd(local, len, self.lane()),
        }
    }

    /// Operations that a write with these flags waits for. Answers: the target's agent executes requests later. Reads: a strongly ordered Put is
    /// written after earlier Puts, but possibly before earlier Gets read (guide §2.2.10).
    fn write_waits_for(flags: Flags) -> After {
        match flags.contains(Flags::ORDERED) {
            false => After::empty(),
            true => After::ANSWERED | After::READS,
        }
    }

    /// Operations that a read with these flags waits for. Earlier Puts may not be written yet.
    fn read_waits_for(flags: Flags) -> After {
        match flags.contains(Flags::ORDERED) {
            false => After::empty(),
            true => After::ANSWERED | After::OWN,
        }
    }

    unsafe fn write(
        &self,
        src: Local,
        dst: Remote<'_>,
        len: usize,
        word: Option<(u64, u32)>,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let from = match flags.contains(Flags::INLINE) {
            true if len > PIGGYBACK => return Err(Error::Unsupported),
            true => {
                let mut bytes = [0; PIGGYBACK];
                // SAFETY:
                // - contract of this call: `src` has `len` bytes. The array has room for them (checked above).
                unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(src.ptr, len) };
                Source::Along(bytes)
            }
            false => Source::At(self.near(src, len)?),
        };
        let strong = flags.intersects(Flags::ORDERED | Flags::LINES);
        let own = Write {
            lane: self.lane().clone(),
            from,
            len,
            to: far(dst.region, dst.offset),
            word,
            flags: if strong {
                UTOFU_ONESIDED_FLAG_STRONG_ORDER
            } else {
                0
            },
            half: false,
        };
        let after = Endpoint::write_waits_for(flags);
        self.requests
            .post_own(dst.region, own, false, after, context)
    }
}

/// STADD and value of the notice's word.
fn word(notice: Notice<'_>) -> (u64, u32) {
    (far(notice.slot.region, notice.slot.offset), notice.value)
}

const NOWHERE: Local = Local::unregistered(std::ptr::dangling_mut());

impl Channel for Endpoint {
    fn below(&self) -> Result<&dyn Channel> {
        Ok(&self.requests)
    }

    unsafe fn put(&self, put: &PutRequest<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        let PutRequest { dst, len, .. } = *put;
        dst.region.check(dst.offset, len, Rights::WRITE)?;
        put.notice.as_ref().map_or(Ok(()), check_notice)?;
        if dst.region.is_by_address() {
            // SAFETY:
            // - contract of this call: the source is valid until completion.
            return unsafe { self.requests.put(put, flags, context) };
        }
        let word = put.notice.map(word);
        // SAFETY:
        // - as above.
        unsafe { self.write(put.src, dst, len, word, flags, context) }
    }

    unsafe fn get(&self, get: &GetRequest<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        let GetRequest { dst, src, len } = *get;
        src.region.check(src.offset, len, Rights::READ)?;
        if src.region.is_by_address() {
            // SAFETY:
            // - contract of this call: `dst` is valid for writes until completion.
            return unsafe { self.requests.get(get, flags, context) };
        }
        let strong = flags.intersects(Flags::ORDERED | Flags::LINES);
        let own = Read {
            lane: self.lane().clone(),
            into: self.near(dst, len)?,
            len,
            from: far(src.region, src.offset),
            flags: if strong {
                UTOFU_ONESIDED_FLAG_STRONG_ORDER
            } else {
                0
            },
        };
        let after = Endpoint::read_waits_for(flags);
        self.requests
            .post_own(src.region, own, true, after, context)
    }

    fn notify(&self, notice: Notice<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        check_notice(&notice)?;
        let word = word(notice);
        let flags = flags.difference(Flags::LINES) | Flags::INLINE;
        // SAFETY:
        // - the length is 0.
        unsafe { self.write(NOWHERE, notice.slot, 0, Some(word), flags, context) }
    }

    unsafe fn atomic(
        &self,
        dst: Remote<'_>,
        request: &AtomicRequest,
        desc: u64,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let size = request.ty.size();
        let aligned = address(dst.region, dst.offset).is_multiple_of(size);
        // SAFETY:
        // - contract of this call: the request's pointers are valid.
        let what = unsafe { command(request, &self.net.caps) }
            .filter(|_| aligned && !dst.region.is_by_address());
        let Some(what) = what else {
            // SAFETY:
            // - as above.
            return unsafe { self.requests.atomic(dst, request, desc, flags, context) };
        };
        dst.region.check(dst.offset, size, Rights::ATOMIC)?;
        let result = ResultSlot {
            at: request.result,
            len: size,
        };
        let own = ArmwRequest {
            lane: self.lane().clone(),
            what,
            at: far(dst.region, dst.offset),
            into: (!request.result.is_null()).then_some(result),
        };
        let after = Endpoint::read_waits_for(flags);
        self.requests
            .post_own(dst.region, own, true, after, context)
    }

    unsafe fn put_unsignaled(&self, put: &UnsignaledPut<'_>) -> bool {
        let before = After::ANSWERED | After::READS;
        let behind = self.requests.pending() > 0 && self.requests.is_behind(put.dst.region, before);
        // SAFETY:
        // - contract of this call: the bytes are valid.
        !behind && self.net.is_here() && unsafe { self.unsignaled.put(self.lane(), put) }
    }

    fn quick_pending(&self) -> usize {
        self.unsignaled.pending()
    }

    fn quick_failure(&self) -> Option<Error> {
        self.unsignaled.failure()
    }

    fn poll(&self, sink: &mut dyn FnMut(Completion)) {
        if self.unsignaled.pending() > 0 && self.net.is_here() {
            self.unsignaled.settle(self.lane());
            self.requests.look();
        }
        self.requests.poll(sink);
    }
}
