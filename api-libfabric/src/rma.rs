//! Remote memory access (fi_rma(3)).

use unipgas_core::inbox::Record;
use unipgas_core::keyring::RemoteKey;
use unipgas_core::operations::Target as _;
use unipgas_core::transport::LONGEST_MESSAGE;
use unipgas_core::{Error, Flags, Local, Outcome, Remote};

use crate::domain::Domain;
use crate::endpoint::{Endpoint, INJECT_SIZE, IOV_LIMIT, PostOptions};
use crate::operation::CounterEvent;
use crate::state::{DATA, Job, Parts, Via};
use crate::status::{Errno, Result};
use crate::sys::{
    FI_COMPLETION, FI_DELIVERY_COMPLETE, FI_FENCE, FI_INJECT, FI_INJECT_COMPLETE, FI_MORE, FI_READ,
    FI_REMOTE_CQ_DATA, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_RMA, FI_TRANSMIT_COMPLETE, FI_WRITE,
};
use crate::target::Target;

/// The longest transfer, in bytes.
pub const LONGEST: usize = 1 << 47;

/// Flags that all transmitting operations know.
pub(crate) const TRANSMIT_FLAGS: u64 = FI_COMPLETION
    | FI_MORE
    | FI_INJECT
    | FI_FENCE
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_REMOTE_CQ_DATA;

/// Memory of this process.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct LocalRange {
    /// First byte.
    pub ptr: *mut u8,
    /// Bytes, or elements in interfaces that count elements.
    pub len: usize,
}

// SAFETY:
// - `LocalRange` is a pointer and a length. Until the operation is complete, its contract permits access from any thread.
unsafe impl Send for LocalRange {}
// SAFETY:
// - as for Send.
unsafe impl Sync for LocalRange {}

impl LocalRange {
    /// The bytes.
    ///
    /// # Safety
    /// The memory is valid for reads and writes, and no other code uses it, while the result is used. The length counts bytes.
    pub(crate) unsafe fn bytes<'a>(self) -> &'a mut [u8] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY:
        // - contract of this call.
        unsafe { std::slice::from_raw_parts_mut(self.ptr, self.len) }
    }
}

/// Memory of a peer: `struct fi_rma_iov`, `struct fi_rma_ioc`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RemotePart {
    /// Address in the peer's domain.
    pub address: u64,
    /// Bytes, or elements.
    pub len: usize,
    /// The memory's key.
    pub key: u64,
}

/// Direction of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "names of the calls")]
pub enum RmaKind {
    Read,
    Write,
}

impl RmaKind {
    /// Flags of the completion, and the counter that counts it.
    #[inline(always)]
    pub(crate) fn completion(self) -> (u64, CounterEvent) {
        match self {
            RmaKind::Read => (FI_RMA | FI_READ, CounterEvent::Read),
            RmaKind::Write => (FI_RMA | FI_WRITE, CounterEvent::Write),
        }
    }

    /// The necessary right.
    #[inline(always)]
    pub(crate) fn access(self) -> u64 {
        match self {
            RmaKind::Read => FI_REMOTE_READ,
            RmaKind::Write => FI_REMOTE_WRITE,
        }
    }
}

/// Bit beside the access rights: counters count accesses to the memory.
pub(crate) const COUNTED: u64 = 1 << 63;

/// Sum of the lengths. Errors: [`Errno::MSGSIZE`] for more than `most`.
pub(crate) fn total(lens: impl Iterator<Item = usize>, most: usize) -> Result<usize> {
    lens.into_iter()
        .try_fold(0usize, usize::checked_add)
        .filter(|sum| *sum <= most)
        .ok_or(Errno::MSGSIZE)
}

/// Checks parts of local memory. Errors: [`Errno::INVAL`] for too many parts, and for null with a length.
#[inline(always)]
pub(crate) fn check_parts(parts: &[LocalRange]) -> Result<()> {
    let is_wrong = |part: &LocalRange| part.ptr.is_null() && part.len > 0;
    // Most calls have one part, which needs no loop.
    let wrong = match parts {
        [part] => is_wrong(part),
        _ => parts.len() > IOV_LIMIT || parts.iter().any(is_wrong),
    };
    if wrong { Err(Errno::INVAL) } else { Ok(()) }
}

/// Total bytes of the parts. Errors: [`Errno::MSGSIZE`] for more than `most`.
#[inline(always)]
pub(crate) fn bytes_of(parts: &[LocalRange], most: usize) -> Result<usize> {
    match parts {
        [part] if part.len <= most => Ok(part.len),
        _ => total(parts.iter().map(|part| part.len), most),
    }
}

/// Walks along several lists of lengths together. Each step returns the item and the used length in each list, and the common length of the
/// next piece.
pub(crate) struct Walk<const LISTS: usize> {
    at: [(usize, usize); LISTS],
}

impl<const LISTS: usize> Walk<LISTS> {
    pub fn new() -> Self {
        Walk {
            at: [(0, 0); LISTS],
        }
    }

    /// The next piece: its location in each list, and its length. `len(list, item)` is `None` behind the end of a list.
    #[inline(always)]
    pub fn next(
        &mut self,
        len: impl Fn(usize, usize) -> Option<usize>,
    ) -> Option<([(usize, usize); LISTS], usize)> {
        let mut common = usize::MAX;
        for (list, at) in self.at.iter_mut().enumerate() {
            // Empty items have no data.
            while len(list, at.0)? == at.1 {
                *at = (at.0 + 1, 0);
            }
            common = common.min(len(list, at.0)? - at.1);
        }
        let here = self.at;
        for at in &mut self.at {
            at.1 += common;
        }
        Some((here, common))
    }
}

/// `len` bytes at `address`, if the owner grants exactly the rights `allowed` among the rights `asked`.
#[inline(always)]
fn part_of(
    known: &RemoteKey,
    address: u64,
    len: usize,
    (asked, allowed): (u64, u64),
) -> Option<Remote<'_>> {
    let keyed = &known.keyed;
    let offset = address.wrapping_sub(keyed.base);
    let inside = (offset <= keyed.len) & (len as u64 <= keyed.len.wrapping_sub(offset));
    if !inside | (keyed.access & asked != allowed) {
        return None;
    }
    Some(Remote {
        region: known.region.as_ref()?,
        offset: offset as usize,
    })
}

impl Target {
    /// `len` bytes at `address` of the memory under `key`, which must permit `access`.
    #[inline(always)]
    pub fn place(
        &mut self,
        domain: &Domain,
        key: u64,
        address: u64,
        len: usize,
        access: u64,
    ) -> std::result::Result<Remote<'_>, Errno> {
        let known = self.key(domain, key, access & FI_REMOTE_WRITE != 0)?;
        part_of(known, address, len, (access, access)).ok_or(Errno::ACCES)
    }

    /// As [`Target::place`], if the key was used before, and no counter counts the access.
    #[inline(always)]
    pub fn place_fast(
        &self,
        key: u64,
        address: u64,
        len: usize,
        access: u64,
    ) -> Option<Remote<'_>> {
        part_of(
            self.key_fast(key)?,
            address,
            len,
            (access | COUNTED, access),
        )
    }
}

impl Endpoint {
    /// Reads or writes a peer's memory. The completion queue or counter reports the result. Errors: [`Errno::AGAIN`], [`Errno::INVAL`],
    /// [`Errno::MSGSIZE`], [`Errno::BADFLAGS`].
    ///
    /// # Safety
    /// The local memory is valid until the operation is complete. With FI_INJECT or `quiet`: until the call returns.
    #[inline]
    pub unsafe fn transfer(
        &self,
        direction: RmaKind,
        local: &[LocalRange],
        remote: &[RemotePart],
        to: u64,
        posting: &PostOptions,
    ) -> Result<()> {
        if let ([here], [there]) = (local, remote) {
            // SAFETY:
            // - contract of this call.
            if unsafe { self.transfer_fast(direction, (here, there), to, posting) }.is_some() {
                return Ok(());
            }
        }
        // SAFETY:
        // - contract of this call.
        unsafe { self.transfer_otherwise(direction, local, remote, to, posting) }
    }

    /// The slow path.
    ///
    /// # Safety
    /// As for [`Endpoint::transfer`].
    #[inline(never)]
    unsafe fn transfer_otherwise(
        &self,
        direction: RmaKind,
        local: &[LocalRange],
        remote: &[RemotePart],
        to: u64,
        posting: &PostOptions,
    ) -> Result<()> {
        let (len, inline) = check_transfer(local, remote, posting)?;
        let (reports, mut state) = self.live()?;
        let state = &mut *state;
        let admitted = self.admit(reports, state, to, posting)?;
        let notice = posting.data.map(|data| Record {
            source: self.name().id(),
            kind: DATA,
            len: 0,
            value: data,
            offset: len as u64,
        });
        let mut transfer = Transfer {
            direction,
            local,
            remote,
            flags: admitted.flags,
            walk: Walk::new(),
        };
        transfer.flags.set(Flags::INLINE, inline);
        // The notice of a long transfer is a separate operation.
        let apart = notice.is_some() && len > LONGEST_MESSAGE;
        let job = Job {
            to,
            report: posting.report(direction.completion(), admitted.wanted),
            notice,
            several: !transfer.is_single() || apart,
            more: posting.flags & FI_MORE != 0,
            bytes: len,
        };
        state.run(reports, job, transfer)
    }
}

/// Checks local memory to send or transfer. Returns its length, and whether it is free when the call returns.
#[inline(always)]
pub(crate) fn check_local(local: &[LocalRange], posting: &PostOptions) -> Result<(usize, bool)> {
    check_parts(local)?;
    let inline = posting.quiet || posting.flags & FI_INJECT != 0;
    let most = if inline { INJECT_SIZE } else { LONGEST };
    Ok((bytes_of(local, most)?, inline))
}

/// Checks the arguments of a transfer. Returns its length, and whether the local memory is free when the call returns.
fn check_transfer(
    local: &[LocalRange],
    remote: &[RemotePart],
    posting: &PostOptions,
) -> Result<(usize, bool)> {
    if posting.flags & !TRANSMIT_FLAGS != 0 {
        return Err(Errno::BADFLAGS);
    }
    // An empty list is valid: the data for the target's queue remains.
    if remote.len() > IOV_LIMIT {
        return Err(Errno::INVAL);
    }
    let (len, inline) = check_local(local, posting)?;
    if total(remote.iter().map(|part| part.len), LONGEST)? != len {
        return Err(Errno::INVAL);
    }
    Ok((len, inline))
}

/// A transfer of [`Endpoint::transfer`]. The contract of that call holds for the local memory.
struct Transfer<'a> {
    direction: RmaKind,
    local: &'a [LocalRange],
    remote: &'a [RemotePart],
    flags: Flags,
    walk: Walk<2>,
}

impl Transfer<'_> {
    fn is_single(&self) -> bool {
        self.local.len() <= 1 && self.remote.len() == 1
    }
}

impl Parts for Transfer<'_> {
    fn check(&self, domain: &Domain, target: &mut Target) -> Result<()> {
        // The post of a single part checks it.
        if self.is_single() && self.remote[0].len > 0 {
            return Ok(());
        }
        self.remote.iter().try_for_each(|part| {
            let access = self.direction.access();
            target.place(domain, part.key, part.address, part.len, access)?;
            Ok(())
        })
    }

    fn post_next(&mut self, via: Via<'_>, target: &mut Target) -> Result<Option<Outcome>> {
        let (channel, context) = (via.channel, via.context);
        let lens = |list: usize, item: usize| match list {
            0 => self.local.get(item).map(|part| part.len),
            _ => self.remote.get(item).map(|part| part.len),
        };
        let Some(([(here, here_at), (there, there_at)], len)) = self.walk.next(lens) else {
            return Ok(None);
        };
        let here = Local {
            ptr: self.local[here].ptr.wrapping_add(here_at),
            desc: 0,
        };
        let part = &self.remote[there];
        let address = part.address.wrapping_add(there_at as u64);
        let along = target
            .along
            .filter(|_| self.is_single() && len <= LONGEST_MESSAGE)
            .map(|along| (target.inbox.clone(), along));
        let there = target.place(via.domain, part.key, address, len, self.direction.access())?;
        if let Some((inbox, (record, order))) = &along
            && there.region.is_asynchronous()
        {
            let (inbox, flags) = (inbox.into(), self.flags | *order);
            // SAFETY:
            // - contract of `transfer`: the local bytes are valid in the call. `put_deliver` reads them before it returns.
            let put =
                unsafe { channel.put_deliver(here, there, len, inbox, *record, flags, context) };
            // Without support, the notice follows the data as a separate operation.
            if put != Err(Error::Unsupported) {
                if put == Ok(Outcome::Pending) {
                    target.along = None;
                }
                return put.map(Some).map_err(|error| target.why(error));
            }
        }
        // SAFETY:
        // - contract of `transfer`: the local bytes are valid until completion. With `INLINE`: until the call returns.
        let outcome = unsafe {
            match self.direction {
                RmaKind::Write => channel.put(here, there, len, self.flags, context),
                RmaKind::Read => channel.get(here, there, len, self.flags, context),
            }
        };
        outcome.map(Some).map_err(|error| target.why(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_meets_every_boundary_once() {
        let lists = [vec![3, 0, 5, 2], vec![1, 1, 8]];
        let mut walk = Walk::<2>::new();
        let mut pieces = Vec::new();
        while let Some((at, len)) = walk.next(|list, item| lists[list].get(item).copied()) {
            pieces.push((at[0], at[1], len));
        }
        assert_eq!(
            pieces,
            [
                ((0, 0), (0, 0), 1),
                ((0, 1), (1, 0), 1),
                ((0, 2), (2, 0), 1),
                ((2, 0), (2, 1), 5),
                ((3, 0), (2, 6), 2)
            ]
        );
        assert_eq!(total([1, 2].into_iter(), 3), Ok(3));
        assert_eq!(
            total([usize::MAX, 2].into_iter(), usize::MAX),
            Err(Errno::MSGSIZE)
        );
    }
}
