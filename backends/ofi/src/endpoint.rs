//! The issue of operations. The provider carries out reads and writes; the target's agent carries out all others, as requests.

use std::ffi::c_void;
use std::sync::Arc;

use unipgas_core::lines::last_word;
use unipgas_core::op::{Completion, Flags, GetRequest, Local, Notice, Outcome, PutRequest, Remote};
use unipgas_core::streams::{After, NetworkOp, Requests, Ticket};
use unipgas_core::transport::{Channel, check_notice};
use unipgas_core::{Error, Result, Rights};

use crate::confirm_target::{self, Acknowledge};
use crate::fabric::{AccessParameters, RemoteLocation};
use crate::net::OfiNet;
use crate::operations::What;
use crate::region::{far, owner};
use crate::word;

/// Maximum number of bytes that a call copies.
pub const INLINE: usize = 64;

/// An issue context.
pub(crate) struct Endpoint {
    net: Arc<OfiNet>,
    requests: Requests,
}

/// The local side of an access.
enum Bytes {
    /// Copied in the call.
    Inline([u8; INLINE]),
    /// Valid until completion.
    At(*mut u8, *mut c_void),
}

struct Write {
    net: Arc<OfiNet>,
    bytes: Bytes,
    len: usize,
    to: RemoteLocation,
    word: Option<u64>,
}

struct Read {
    net: Arc<OfiNet>,
    into: Local,
    len: usize,
    from: RemoteLocation,
}

// SAFETY:
// - contract of `Channel::put`: the bytes are valid until completion, on any thread.
unsafe impl Send for Write {}
// SAFETY:
// - contract of `Channel::get`: the buffer is valid until completion, on any thread.
unsafe impl Send for Read {}

impl NetworkOp for Write {
    fn post(&mut self, ticket: Ticket) -> Result<()> {
        let (from, desc, inline) = match &mut self.bytes {
            Bytes::Inline(bytes) => (bytes.as_mut_ptr(), std::ptr::null_mut(), true),
            Bytes::At(from, desc) => (*from, *desc, false),
        };
        let context = self.net.operations.begin(What::Access(ticket));
        let how = AccessParameters {
            desc,
            context,
            data: self.word,
            inline,
        };
        // SAFETY:
        // - contract of `Channel::put`: the bytes are valid until completion. Inline bytes are copied in the call.
        let posted = unsafe { self.net.fabric.write(from, self.len, self.to, how) };
        self.net.posted(context, posted)
    }
}

impl NetworkOp for Read {
    fn post(&mut self, ticket: Ticket) -> Result<()> {
        let context = self.net.operations.begin(What::Access(ticket));
        let how = AccessParameters {
            desc: desc(self.into),
            context,
            data: None,
            inline: false,
        };
        // SAFETY:
        // - contract of `Channel::get`: the buffer is valid until completion.
        let posted = unsafe {
            let fabric = &self.net.fabric;
            fabric.read_from(self.into.ptr, self.len, self.from, how)
        };
        self.net.posted(context, posted)
    }
}

/// Whether the agent must carry out the access, since it writes lines in order ([`Flags::LINES`]).
fn keeps_lines(flags: Flags, to: usize, len: usize) -> bool {
    flags.contains(Flags::LINES) && last_word(to, len) < len
}

/// Whether the agent must confirm the end. The provider's completion only means that the notice has reached the target. The target sets the word
/// later, and reads by the provider may come in between.
fn by_answer(flags: Flags) -> bool {
    flags.contains(Flags::DELIVERED)
}

/// The destination's address at the target, for its alignment.
fn aligned(dst: &Remote<'_>) -> usize {
    dst.region.parts().base.addr().wrapping_add(dst.offset)
}

/// The provider's descriptor, which operands carry.
fn desc(local: Local) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(local.desc as usize)
}

impl Endpoint {
    /// An endpoint that issues requests by `requests`.
    pub fn new(net: Arc<OfiNet>, requests: Requests) -> Self {
        Endpoint { net, requests }
    }

    /// Checks the local side against the provider's limits, and adds its descriptor. Errors: [`Error::Unsupported`], [`Error::NotRegistered`].
    fn check(&self, local: Local, len: usize, flags: Flags) -> Result<Local> {
        let traits = &self.net.fabric.traits;
        let inline = flags.contains(Flags::INLINE) && len > traits.inject.min(INLINE);
        if inline || len > traits.longest {
            return Err(Error::Unsupported);
        }
        let needed = traits.local && !flags.contains(Flags::INLINE);
        let desc = match (needed, len) {
            (false, _) => 0,
            // Providers read the descriptor also for 0 bytes.
            (true, 0) => self.net.registered().expose_provenance() as u64,
            (true, _) => {
                let known = self.net.operands.find(local, len);
                known.ok_or(Error::NotRegistered)?
            }
        };
        Ok(Local { desc, ..local })
    }

    /// Earlier operations that an access with these flags waits for. The target's agent carries out requests later; accesses take effect when they
    /// arrive.
    fn waits_for(&self, flags: Flags, in_order: bool) -> After {
        match (flags.contains(Flags::ORDERED), in_order) {
            (false, _) => After::empty(),
            (true, true) => After::READS | After::ANSWERED,
            (true, false) => After::READS | After::ANSWERED | After::OWN,
        }
    }

    unsafe fn write(
        &self,
        src: Local,
        dst: Remote<'_>,
        len: usize,
        word: Option<u64>,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let src = self.check(src, len, flags)?;
        let traits = &self.net.fabric.traits;
        let to = far(dst.region, dst.offset);
        let after = self.waits_for(flags, traits.write_after_write);
        if flags.contains(Flags::GATHERED) && traits.gathers {
            let owner = owner(dst.region);
            let how = AccessParameters {
                desc: std::ptr::null_mut(),
                context: confirm_target::context(owner),
                data: word,
                inline: true,
            };
            let write = || {
                // SAFETY:
                // - contract of `Channel::put`: `len` bytes are valid. [`Flags::GATHERED`] implies [`Flags::INLINE`], so the call copies them.
                let written = unsafe { self.net.fabric.write_untold(src.ptr, len, to, how) };
                self.net.written_untold(written)
            };
            let about = (owner.into(), after, context);
            let acknowledge = |to| self.acknowledge(to);
            let gathered = (self.requests).gather(dst.region, about, write, acknowledge, || true);
            if let Some(outcome) = gathered {
                return outcome;
            }
        }
        let bytes = match flags.contains(Flags::INLINE) {
            true => {
                let mut bytes = [0; INLINE];
                // SAFETY:
                // - contract of `Channel::put`: `len` bytes are valid. `check` has compared `len` with `INLINE`.
                unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(src.ptr, len) };
                Bytes::Inline(bytes)
            }
            false => Bytes::At(src.ptr, desc(src)),
        };
        let own = Write {
            net: self.net.clone(),
            bytes,
            len,
            to,
            word,
        };
        self.requests
            .post_own(dst.region, own, false, after, context)
    }

    /// The operation that confirms unsignaled writes to this peer.
    fn acknowledge(&self, to: u64) -> Acknowledge {
        Acknowledge {
            net: self.net.clone(),
            to: to as u32,
        }
    }

    /// The word that carries a notice with a write. `None`: the provider's data is shorter, or the notice's place has no number.
    fn word(&self, notice: &Notice<'_>) -> Option<u64> {
        match self.net.fabric.traits.data >= size_of::<u64>() {
            true => word::notice(notice),
            false => None,
        }
    }
}

impl Channel for Endpoint {
    fn below(&self) -> Result<&dyn Channel> {
        Ok(&self.requests)
    }

    unsafe fn put(&self, put: &PutRequest<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        let PutRequest { src, dst, len, .. } = *put;
        dst.region.check(dst.offset, len, Rights::WRITE)?;
        put.notice.as_ref().map_or(Ok(()), check_notice)?;
        let wakes = put.notice.is_none() && flags.contains(Flags::WAKE);
        let word = match &put.notice {
            Some(notice) => Some(self.word(notice).ok_or(Error::Unsupported)?),
            None => wakes.then_some(word::WAKE),
        };
        // The agent must write in four cases: no data word can wake the target, it must confirm a notice, lines need an order that the provider does not
        // keep, or accesses go by the owner's page tables.
        let by_agent = wakes && self.net.fabric.traits.data == 0
            || put.notice.is_some() && by_answer(flags)
            || keeps_lines(flags, aligned(&dst), len)
            || dst.region.is_by_address();
        // SAFETY:
        // - contract of this function.
        unsafe {
            match by_agent {
                true => self.requests.put(put, flags, context),
                false => self.write(src, dst, len, word, flags, context),
            }
        }
    }

    unsafe fn get(&self, get: &GetRequest<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        let GetRequest { dst, src, len } = *get;
        src.region.check(src.offset, len, Rights::READ)?;
        if keeps_lines(flags, dst.ptr.addr(), len) || src.region.is_by_address() {
            // SAFETY:
            // - contract of this function.
            return unsafe { self.requests.get(get, flags, context) };
        }
        let dst = self.check(dst, len, Flags::empty())?;
        let own = Read {
            net: self.net.clone(),
            into: dst,
            len,
            from: far(src.region, src.offset),
        };
        let in_order = self.net.fabric.traits.read_after_write;
        let after = self.waits_for(flags, in_order);
        self.requests
            .post_own(src.region, own, true, after, context)
    }

    fn notify(&self, notice: Notice<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        let Some(word) = self.word(&notice).filter(|_| !by_answer(flags)) else {
            return self.requests.notify(notice, flags, context);
        };
        check_notice(&notice)?;
        let nowhere = Local::unregistered(std::ptr::null());
        let flags = flags.difference(Flags::INLINE | Flags::LINES);
        // SAFETY:
        // - there are no bytes.
        unsafe { self.write(nowhere, notice.slot, 0, Some(word), flags, context) }
    }

    fn notifies(&self, notice: &Notice<'_>) -> bool {
        self.word(notice).is_some()
    }

    fn poll(&self, sink: &mut dyn FnMut(Completion)) {
        self.requests.ask_for_gathered(|to| self.acknowledge(to));
        self.requests.poll(sink);
    }
}
