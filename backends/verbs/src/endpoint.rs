//! The issue of operations. The device reads, writes, and changes memory; other operations are requests to the target's agent.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use unipgas_core::lines::last_word;
use unipgas_core::op::{
    AtomicRequest, Completion, Flags, GetRequest, Local, Notice, Outcome, PutRequest, Remote,
    UnsignaledPut,
};
use unipgas_core::region::RemoteRegion;
use unipgas_core::streams::{After, NetworkOp, Requests, Ticket};
use unipgas_core::transport::{Channel, check_notice};
use unipgas_core::{Error, Result, Rights};
use unipgas_verbs_sys::*;

use crate::connection::{Connection, INLINE};
use crate::native::{NativeAtomic, WORD};
use crate::net::VerbsNet;
use crate::posting::{PostedWork, write};
use crate::region::{connection, far, is_by_device};
use crate::unsignaled::UnsignaledWrites;

/// An issue context.
pub(crate) struct Endpoint {
    net: Arc<VerbsNet>,
    requests: Requests,
    unsignaled: UnsignaledWrites,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if !self.net.is_here() {
            return;
        }
        self.unsignaled.end();
        self.net
            .lanes
            .lock()
            .remove(self.unsignaled.lane() as usize);
    }
}

/// Source of a write.
#[derive(Clone, Copy)]
enum Source {
    /// Copied in the call.
    Inline(*const u8),
    /// Valid until completion; its local key.
    At(*const u8, u32),
}

/// Notification of a write.
#[derive(Clone, Copy)]
enum Tells {
    Nothing,
    /// Wakes the target.
    Wakes,
    /// Writes a word after the data, and wakes the target: address and key, and the value.
    Word((u64, u32), u32),
}

/// A write, and an optional word after it.
#[derive(Clone, Copy)]
struct Write {
    from: Source,
    len: usize,
    to: (u64, u32),
    tells: Tells,
    /// Waits for earlier reads.
    fence: bool,
}

impl Write {
    /// # Safety
    /// The source is valid: an inline source in this call, another one until completion.
    unsafe fn post(&self, to: &Connection, ends: PostedWork) -> Result<()> {
        let fence = if self.fence { IBV_SEND_FENCE } else { 0 };
        let (at, key, inline) = match self.from {
            Source::Inline(at) => (at, 0, IBV_SEND_INLINE),
            Source::At(at, key) => (at, key, 0),
        };
        let mut place = ibv_sge {
            addr: at.expose_provenance() as u64,
            length: self.len as u32,
            lkey: key,
        };
        let mut data = write(&mut place, self.to);
        data.send_flags = fence | if self.len > 0 { inline } else { 0 };
        let Tells::Word(slot, value) = self.tells else {
            let wakes = matches!(self.tells, Tells::Wakes);
            // SAFETY:
            // - contract of this call: the source is valid.
            return unsafe { to.post(&mut [data], wakes, ends) };
        };
        let mut place = ibv_sge {
            addr: (&raw const value).expose_provenance() as u64,
            length: size_of_val(&value) as u32,
            lkey: 0,
        };
        let mut word = write(&mut place, slot);
        word.send_flags = fence | IBV_SEND_INLINE;
        // SAFETY:
        // - as above; the word is inline, so it is copied in the call.
        unsafe {
            match self.len {
                0 => to.post(&mut [word], true, ends),
                _ => to.post(&mut [data, word], true, ends),
            }
        }
    }
}

/// A write that may be deferred, with a copy of its inline bytes.
struct DeferredWrite {
    bytes: [u8; INLINE],
    write: Write,
}

struct Read {
    into: *mut u8,
    key: u32,
    len: usize,
    from: (u64, u32),
}

// SAFETY:
// - contract of `Channel::put`: the source is valid until completion, on any thread.
unsafe impl Send for DeferredWrite {}
// SAFETY:
// - contract of `Channel::get`: the destination is valid until completion, on any thread.
unsafe impl Send for Read {}

impl NetworkOp for DeferredWrite {
    fn post(&mut self, ticket: Ticket) -> Result<()> {
        let link = ticket.link().clone();
        let from = match self.write.from {
            Source::Inline(_) => Source::Inline(self.bytes.as_ptr()),
            at => at,
        };
        let write = Write { from, ..self.write };
        // SAFETY:
        // - contract of `Channel::put`: the source is valid until completion. Inline bytes are in `self.bytes`, and are copied in the call.
        unsafe { write.post(Connection::of(&link), PostedWork::Access(ticket)) }
    }
}

impl NetworkOp for Read {
    fn post(&mut self, ticket: Ticket) -> Result<()> {
        let link = ticket.link().clone();
        let mut place = ibv_sge {
            addr: self.into.expose_provenance() as u64,
            length: self.len as u32,
            lkey: self.key,
        };
        let mut request = write(&mut place, self.from);
        request.opcode = IBV_WR_RDMA_READ;
        let connection = Connection::of(&link);
        // SAFETY:
        // - contract of `Channel::get`: the destination is valid for writes until completion.
        unsafe { connection.post(&mut [request], false, PostedWork::Access(ticket)) }
    }
}

/// An operation that completes when all earlier writes are visible at the peer.
struct Acknowledge<'a>(&'a Connection);

impl NetworkOp for Acknowledge<'_> {
    fn post(&mut self, ticket: Ticket) -> Result<()> {
        let nothing = Write {
            from: Source::Inline(std::ptr::null()),
            len: 0,
            to: (0, 0),
            tells: Tells::Nothing,
            fence: false,
        };
        // SAFETY:
        // - the length is 0.
        unsafe { nothing.post(self.0, PostedWork::Access(ticket)) }
    }
}

/// The operation that confirms gathered writes on the connection at this address.
fn acknowledge<'a>(to: u64) -> Acknowledge<'a> {
    // SAFETY:
    // - `write` exposed this address. The link of the request keeps its connection.
    Acknowledge(unsafe { &*std::ptr::with_exposed_provenance(to as usize) })
}

/// Whether the agent must carry out the operation, because only it keeps the order in lines ([`Flags::LINES`]).
fn keeps_lines(flags: Flags, to: usize, len: usize) -> bool {
    flags.contains(Flags::LINES) && last_word(to, len) < len
}

/// An address with the alignment of the destination.
fn aligned(dst: &Remote<'_>) -> usize {
    far(dst.region, dst.offset).0 as usize
}

impl Endpoint {
    /// A new channel.
    pub fn new(net: Arc<VerbsNet>, requests: Requests) -> Self {
        let lane = net.lanes.lock().insert(()) as u32;
        Endpoint {
            net,
            requests,
            unsignaled: UnsignaledWrites::new(lane),
        }
    }

    /// Local key of memory of this process. Errors: [`Error::NotRegistered`], [`Error::Unsupported`].
    fn key(&self, local: Local, len: usize) -> Result<u32> {
        if len > self.net.port.longest as usize {
            return Err(Error::Unsupported);
        }
        match len {
            0 => Ok(0),
            _ => {
                let known = self.net.operands.find(local, len);
                known.map(|key| key as u32).ok_or(Error::NotRegistered)
            }
        }
    }

    /// Operations that an access with these flags waits for, in addition to earlier accesses. The target's agent executes requests later.
    fn waits_for(flags: Flags) -> After {
        match flags.contains(Flags::ORDERED) {
            false => After::empty(),
            true => After::ANSWERED,
        }
    }

    unsafe fn write(
        &self,
        src: Local,
        dst: Remote<'_>,
        len: usize,
        tells: Tells,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let from = match flags.contains(Flags::INLINE) {
            true if len > self.net.inline as usize => return Err(Error::Unsupported),
            true => Source::Inline(src.ptr),
            false => Source::At(src.ptr, self.key(src, len)?),
        };
        let write = Write {
            from,
            len,
            to: far(dst.region, dst.offset),
            tells,
            fence: flags.contains(Flags::ORDERED),
        };
        let after = Endpoint::waits_for(flags);
        if flags.contains(Flags::GATHERED) {
            let connection = connection(dst.region);
            let to = std::ptr::from_ref(connection).expose_provenance() as u64;
            // SAFETY:
            // - contract of `Flags::GATHERED`: the bytes are inline. They are valid, and are copied in the call.
            let post = || unsafe { write.post(connection, PostedWork::Nothing) };
            let polls = || self.net.staging.load(Ordering::Relaxed) == 0;
            let about = (to, after, context);
            let gathered = (self.requests).gather(dst.region, about, post, acknowledge, polls);
            if let Some(outcome) = gathered {
                return outcome;
            }
        }
        let mut kept = DeferredWrite {
            bytes: [0; INLINE],
            write,
        };
        if let Source::Inline(at) = from {
            // SAFETY:
            // - contract of this call: `src` has `len` bytes. The array has room for them, because `net.inline` is at most `INLINE`.
            unsafe { kept.bytes.as_mut_ptr().copy_from_nonoverlapping(at, len) };
        }
        self.requests
            .post_own(dst.region, kept, false, after, context)
    }
}

const NOWHERE: Local = Local::unregistered(std::ptr::null());

impl Channel for Endpoint {
    fn below(&self) -> Result<&dyn Channel> {
        Ok(&self.requests)
    }

    unsafe fn put(&self, put: &PutRequest<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        let PutRequest { dst, len, .. } = *put;
        dst.region.check(dst.offset, len, Rights::WRITE)?;
        put.notice.as_ref().map_or(Ok(()), check_notice)?;
        if keeps_lines(flags, aligned(&dst), len) || dst.region.is_by_address() {
            // SAFETY:
            // - contract of this call: the source is valid until completion.
            return unsafe { self.requests.put(put, flags, context) };
        }
        let tells = match put.notice {
            Some(Notice { slot, value }) => Tells::Word(far(slot.region, slot.offset), value),
            None if flags.contains(Flags::WAKE) => Tells::Wakes,
            None => Tells::Nothing,
        };
        // SAFETY:
        // - as above.
        unsafe { self.write(put.src, dst, len, tells, flags, context) }
    }

    unsafe fn get(&self, get: &GetRequest<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        let GetRequest { dst, src, len } = *get;
        src.region.check(src.offset, len, Rights::READ)?;
        if keeps_lines(flags, dst.ptr.addr(), len) || src.region.is_by_address() {
            // SAFETY:
            // - contract of this call: `dst` is valid for writes until completion.
            return unsafe { self.requests.get(get, flags, context) };
        }
        let own = Read {
            into: dst.ptr,
            key: self.key(dst, len)?,
            len,
            from: far(src.region, src.offset),
        };
        let after = Endpoint::waits_for(flags);
        self.requests
            .post_own(src.region, own, true, after, context)
    }

    fn notify(&self, notice: Notice<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        check_notice(&notice)?;
        let slot = far(notice.slot.region, notice.slot.offset);
        let flags = flags.difference(Flags::LINES) | Flags::INLINE;
        let tells = Tells::Word(slot, notice.value);
        // SAFETY:
        // - the length is 0.
        unsafe { self.write(NOWHERE, notice.slot, 0, tells, flags, context) }
    }

    unsafe fn put_unsignaled(&self, put: &UnsignaledPut<'_>) -> bool {
        let behind =
            self.requests.pending() > 0 && self.requests.is_behind(put.dst.region, After::ANSWERED);
        // SAFETY:
        // - contract of this call: the bytes are valid.
        !behind && self.net.is_here() && unsafe { self.unsignaled.put(&self.net, put) }
    }

    fn begin_batch(&self, to: &RemoteRegion) {
        if self.net.is_here() {
            connection(to).queue().staged.begin_batch();
        }
    }

    fn end_batch(&self, to: &RemoteRegion, more: bool) {
        if !self.net.is_here() {
            return;
        }
        let connection = connection(to);
        let mut queue = connection.queue();
        queue.staged.end_batch();
        if !more && queue.staged.is_due() {
            queue.ring(&connection.pair);
        }
    }

    fn quick_pending(&self) -> usize {
        self.unsignaled.pending()
    }

    fn quick_failure(&self) -> Option<Error> {
        self.unsignaled.failure()
    }

    unsafe fn atomic(
        &self,
        dst: Remote<'_>,
        request: &AtomicRequest,
        desc: u64,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        if is_by_device(dst.region)
            && let Some(nowhere) = &self.net.native
        {
            dst.region
                .check(dst.offset, request.ty.size(), Rights::ATOMIC)?;
            let into = match request.result.is_null() {
                true => nowhere.place(),
                false => {
                    let result = Local {
                        ptr: request.result,
                        desc,
                    };
                    let at = result.ptr.expose_provenance() as u64;
                    (at, self.key(result, request.ty.size())?)
                }
            };
            let at = far(dst.region, dst.offset);
            // SAFETY:
            // - contract of this call: the request's pointers are valid.
            let own =
                unsafe { NativeAtomic::of(request, at, into, flags.contains(Flags::ORDERED)) };
            if let Some(own) = own {
                let after = Endpoint::waits_for(flags);
                return self
                    .requests
                    .post_own(dst.region, own, true, after, context);
            }
        }
        if dst.region.parts().rights.contains(Rights::DEVICE) {
            return Err(match far(dst.region, dst.offset).0 % WORD as u64 {
                0 => Error::Unsupported,
                _ => Error::Misaligned(WORD),
            });
        }
        // SAFETY:
        // - as above.
        unsafe { self.requests.atomic(dst, request, desc, flags, context) }
    }

    fn poll(&self, sink: &mut dyn FnMut(Completion)) {
        if self.net.is_here() {
            self.requests.ask_for_gathered(acknowledge);
        }
        if self.unsignaled.pending() > 0 && self.net.is_here() {
            self.unsignaled.settle();
            self.requests.look();
        }
        self.requests.poll(sink);
    }
}
