//! The data path of backends that map the memory of peers: loads, stores, CPU atomics. It calls no backend and allocates nothing. It makes a system call only
//! to wake a sleeping peer.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::atomic::{self, Exclusion};
use crate::copy::{SHORT, copy};
use crate::inbox::{InboxWriter, Record};
use crate::lines::{IN_ORDER, copy_lines};
use crate::op::{
    AtomicRequest, Flags, GetRequest, Inbox, Local, Notice, Outcome, PutRequest, Remote,
    ReplyBuffer,
};
use crate::region::RemoteRegion;
use crate::transport::{Channel, check_message};
use crate::{Error, Result, Rights, polled_line, prefetch};

/// A channel for peers with mapped regions only. Each operation is complete when its call returns. Notices, aligned words and the ends of
/// [lines](Flags::LINES) are release stores. Atomic operations release and acquire. Gets end with an acquire fence. [`Flags::ORDERED`] therefore concerns
/// only the other bytes of puts.
#[derive(Debug, Default, Clone, Copy)]
pub struct MappedChannel;

#[inline(always)]
fn place(at: Remote<'_>, len: usize, need: Rights) -> Result<*mut u8> {
    at.region.check(at.offset, len, need)?;
    debug_assert!(!at.region.parts().base.is_null());
    Ok(at.region.parts().base.wrapping_add(at.offset))
}

/// Copies. A peer that polls an aligned word of 1, 2, 4 or 8 bytes never sees a part of it.
///
/// # Safety
/// `src` is valid for reads of `len` bytes, `dst` for writes.
#[inline(always)]
unsafe fn transfer(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY:
    // - contract of this call: both ends are valid for `len` bytes.
    // - the store is aligned (tested above), and the load of the source is unaligned.
    unsafe {
        if len == 8 && (dst as usize) & 7 == 0 {
            AtomicU64::from_ptr(dst.cast())
                .store(src.cast::<u64>().read_unaligned(), Ordering::Release);
        } else {
            transfer_other(src, dst, len);
        }
    }
}

/// Separate from 8-byte words: a jump table costs more than their store.
#[inline(never)]
unsafe fn transfer_other(src: *const u8, dst: *mut u8, len: usize) {
    let aligned = (dst as usize) & (len.wrapping_sub(1)) == 0;
    // SAFETY:
    // - as for `transfer`.
    unsafe {
        if len > 8 {
            copy(src, dst, len);
        } else if len == 4 && aligned {
            AtomicU32::from_ptr(dst.cast())
                .store(src.cast::<u32>().read_unaligned(), Ordering::Release);
        } else if len == 2 && aligned {
            AtomicU16::from_ptr(dst.cast())
                .store(src.cast::<u16>().read_unaligned(), Ordering::Release);
        } else if len == 1 {
            AtomicU8::from_ptr(dst).store(src.read(), Ordering::Release);
        } else {
            copy(src, dst, len);
        }
    }
}

/// As `transfer`, with the line order of [`Flags::LINES`].
///
/// # Safety
/// As [`transfer`].
#[inline(always)]
unsafe fn transfer_lines(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY:
    // - contract of this call.
    unsafe {
        // An inline copy stores from front to end. Peers see these stores in order if `IN_ORDER`.
        if IN_ORDER && (8..=SHORT).contains(&len) {
            transfer(src, dst, len);
        } else {
            copy_lines(src, dst, len);
        }
    }
}

/// # Safety
/// As [`Channel::atomic`], with the target in bounds at `at`.
#[inline(never)]
unsafe fn change(region: &RemoteRegion, request: &AtomicRequest, at: *mut u8) -> Result<()> {
    let AtomicRequest {
        op,
        ty,
        count,
        operand,
        compare,
        result,
    } = *request;
    if region.has_words_only() {
        request.check_word()?;
        if region.excludes_processors() {
            return Err(Error::Unsupported);
        }
    }
    let locks = region.locks();
    // SAFETY:
    // - contract of this call: the target is in bounds, and the operands and results of `request` are valid.
    unsafe {
        match locks {
            Some(locks) if region.is_exclusive() => {
                if count == 1 {
                    return atomic::apply_locked(locks, op, ty, at, operand, compare, result);
                }
                let exclusion = Exclusion::Locks(locks);
                atomic::apply_in(exclusion, op, ty, at, count, operand, compare, result)
            }
            Some(locks) if ty.size() != ty.alignment() => {
                let exclusion = Exclusion::Words(locks);
                atomic::apply_in(exclusion, op, ty, at, count, operand, compare, result)
            }
            _ if count == 1 => atomic::apply(op, ty, at, operand, compare, result),
            _ => atomic::apply_vector(op, ty, at, count, operand, compare, result),
        }
    }
}

/// # Safety
/// As [`transfer`].
#[inline(always)]
pub(crate) unsafe fn move_bytes(src: *const u8, dst: *mut u8, len: usize, flags: Flags) {
    // SAFETY:
    // - contract of this call.
    unsafe {
        if flags.contains(Flags::LINES) {
            transfer_lines(src, dst, len);
        } else {
            transfer(src, dst, len);
        }
    }
}

/// Later stores become visible after earlier stores. Costs nothing if [stores are seen in order](IN_ORDER).
#[inline(always)]
pub(crate) fn after_earlier_puts() {
    std::sync::atomic::fence(Ordering::Release);
}

#[inline(always)]
fn set_word(notice: &Notice<'_>, word: *mut u8) {
    // SAFETY:
    // - `word` is 4 aligned bytes in bounds of a live mapping: `notice_word`, or the caller's equal test, has checked this.
    unsafe { AtomicU32::from_ptr(word.cast()) }.store(notice.value, Ordering::Release);
    if let Some(bell) = notice.slot.region.bell() {
        bell.ring_in_line();
    }
}

fn writer(inbox: &RemoteRegion) -> Result<InboxWriter> {
    let whole = inbox.at(0);
    let at = place(whole, inbox.len(), Rights::WRITE)?;
    // SAFETY:
    // - the region is mapped as long as it lives. Callers drop the writer before their borrow of the region ends.
    unsafe { InboxWriter::attach(at, inbox.len()) }
}

#[inline(always)]
fn notice_word(notice: &Notice<'_>) -> Result<*mut u8> {
    aligned_word(notice.slot)
}

#[inline(always)]
fn aligned_word(slot: Remote<'_>) -> Result<*mut u8> {
    let word = place(slot, 4, Rights::WRITE)?;
    if (word as usize) & 3 != 0 {
        return Err(Error::Misaligned(4));
    }
    Ok(word)
}

#[inline(always)]
fn ring(region: &RemoteRegion) {
    if let Some(bell) = region.bell() {
        bell.ring_if_heard();
    }
}

/// A put with notice, if loads and stores suffice. False: they do not, and the call has no effect.
///
/// # Safety
/// `len` bytes at `src` are valid.
#[inline(always)]
pub(crate) unsafe fn put_notify_fast(
    src: Local,
    dst: Remote<'_>,
    len: usize,
    notice: Notice<'_>,
) -> bool {
    let (to, slot) = (dst.region.parts().base, notice.slot);
    let word = slot.region.parts().base.wrapping_add(slot.offset);
    if !(dst.region.is_open(dst.offset, len, Rights::WRITE)
        & slot.region.is_open(slot.offset, 4, Rights::WRITE)
        & ((word as usize) & 3 == 0))
    {
        return false;
    }
    let to = to.wrapping_add(dst.offset);
    prefetch::for_store(to);
    prefetch::for_store(word);
    // SAFETY:
    // - contract of this call: the source is valid. The test above covers the destination.
    unsafe { transfer(src.ptr, to, len) };
    set_word(&notice, word);
    true
}

/// As [`put_notify_fast`], for an atomic operation on one or more elements. `None`: the call has no effect.
///
/// # Safety
/// As [`Channel::atomic`].
#[inline(always)]
pub(crate) unsafe fn atomic_fast(dst: Remote<'_>, request: &AtomicRequest) -> Option<Result<()>> {
    let len = request.ty.size().checked_mul(request.count)?;
    if !dst.region.is_open(dst.offset, len, Rights::ATOMIC) {
        return None;
    }
    let at = dst.region.parts().base.wrapping_add(dst.offset);
    if let Some(locks) = dst.region.locks()
        && dst.region.is_exclusive() & (request.count == 1)
    {
        let AtomicRequest {
            op,
            ty,
            operand,
            compare,
            result,
            ..
        } = *request;
        // SAFETY:
        // - contract of this call. The target is in bounds (tested above).
        return Some(unsafe { atomic::apply_locked(locks, op, ty, at, operand, compare, result) });
    }
    // SAFETY:
    // - contract of this call. The target is in bounds (tested above).
    Some(unsafe { change(dst.region, request, at) })
}

/// As [`value`]. `None`: the call has no effect.
#[inline(always)]
pub(crate) fn value_fast(dst: Remote<'_>) -> Option<&AtomicU64> {
    let at = dst.region.parts().base.wrapping_add(dst.offset);
    if !dst.region.is_open(dst.offset, 8, Rights::ATOMIC)
        | ((at as usize) & 7 != 0)
        | dst.region.excludes_processors()
    {
        return None;
    }
    // SAFETY:
    // - 8 aligned bytes in bounds of a mapping that lives as long as the region. Its borrow bounds the result.
    Some(unsafe { AtomicU64::from_ptr(at.cast()) })
}

/// Puts an aligned word, if a store suffices. False: it does not, and the call has no effect.
#[inline(always)]
pub fn put_word_fast(word: u64, dst: Remote<'_>) -> bool {
    let to = dst.region.parts().base.wrapping_add(dst.offset);
    if !dst.region.is_open(dst.offset, 8, Rights::WRITE) | ((to as usize) & 7 != 0) {
        return false;
    }
    // SAFETY:
    // - 8 aligned bytes in bounds of a live mapping (tested above).
    unsafe { AtomicU64::from_ptr(to.cast()) }.store(word, Ordering::Release);
    true
}

/// As [`put_notify_fast`], for a line of 64 bytes. Its last word becomes visible last.
#[inline(always)]
pub(crate) fn put_line_fast(line: &[u64; 8], dst: Remote<'_>) -> bool {
    let to = dst.region.parts().base.wrapping_add(dst.offset);
    if !(dst.region.is_open(dst.offset, 64, Rights::WRITE) & ((to as usize) & 63 == 0)) {
        return false;
    }
    // SAFETY:
    // - 64 aligned bytes in bounds of a live mapping (tested above). Other threads and peers access them by atomics.
    polled_line::publish(unsafe { &*to.cast::<[AtomicU64; 8]>() }, line);
    ring(dst.region);
    true
}

/// As [`put_notify_fast`], for a notice.
#[inline(always)]
pub(crate) fn notify_fast(notice: Notice<'_>) -> bool {
    let slot = notice.slot;
    let word = slot.region.parts().base.wrapping_add(slot.offset);
    if !(slot.region.is_open(slot.offset, 4, Rights::WRITE) & ((word as usize) & 3 == 0)) {
        return false;
    }
    set_word(&notice, word);
    true
}

/// As [`put_notify_fast`], for a put.
///
/// # Safety
/// As [`put_notify_fast`].
#[inline(always)]
pub(crate) unsafe fn put_fast(src: Local, dst: Remote<'_>, len: usize) -> bool {
    if !dst.region.is_open(dst.offset, len, Rights::WRITE) {
        return false;
    }
    let to = dst.region.parts().base.wrapping_add(dst.offset);
    // SAFETY:
    // - contract of this call: the source is valid. The test above covers the destination.
    unsafe { transfer(src.ptr, to, len) };
    true
}

/// As [`put_notify_fast`], for a get.
///
/// # Safety
/// `len` bytes at `dst` are valid for writes.
#[inline(always)]
pub(crate) unsafe fn get_fast(dst: Local, src: Remote<'_>, len: usize) -> bool {
    if !src.region.is_open(src.offset, len, Rights::READ) {
        return false;
    }
    let from = src.region.parts().base.wrapping_add(src.offset);
    // SAFETY:
    // - contract of this call: the destination is valid. The test above covers the source.
    unsafe { transfer(from, dst.ptr, len) };
    // Later loads must not return older values than this get.
    std::sync::atomic::fence(Ordering::Acquire);
    true
}

/// Puts with [`Flags::LINES`], if stores suffice. False: they do not, and the call has no effect.
///
/// # Safety
/// `len` bytes at `src` are valid.
#[inline(always)]
pub unsafe fn put_lines_fast(src: *const u8, dst: Remote<'_>, len: usize) -> bool {
    if !dst.region.is_open(dst.offset, len, Rights::WRITE) {
        return false;
    }
    let to = dst.region.parts().base.wrapping_add(dst.offset);
    // SAFETY:
    // - contract of this call: the source is valid. The test above covers the destination.
    unsafe { transfer_lines(src, to, len) };
    true
}

#[cold]
fn no_value(region: &RemoteRegion, alignment: usize) -> Error {
    if region.excludes_processors() {
        Error::Unsupported
    } else {
        Error::Misaligned(alignment)
    }
}

/// The mapped u64 at `dst`, for the two atomics that every interface has. Errors: as for an access; [`Error::Unsupported`] if the region excludes CPU
/// atomics ([`Rights::EXCLUSIVE`], [`Rights::DEVICE`]).
#[inline(always)]
pub fn value(dst: Remote<'_>) -> Result<&AtomicU64> {
    let at = place(dst, 8, Rights::ATOMIC)?;
    if ((at as usize) & 7 != 0) | dst.region.excludes_processors() {
        return Err(no_value(dst.region, 8));
    }
    // SAFETY:
    // - 8 aligned bytes in bounds of a mapping that lives as long as the region. Its borrow bounds the result.
    Ok(unsafe { AtomicU64::from_ptr(at.cast()) })
}

/// The mapped u32 at `dst`. Errors: as [`value`].
#[inline(always)]
pub fn value32(dst: Remote<'_>) -> Result<&AtomicU32> {
    let at = place(dst, 4, Rights::ATOMIC)?;
    if ((at as usize) & 3 != 0) | dst.region.excludes_processors() {
        return Err(no_value(dst.region, 4));
    }
    // SAFETY:
    // - 4 aligned bytes in bounds of a mapping that lives as long as the region. Its borrow bounds the result.
    Ok(unsafe { AtomicU32::from_ptr(at.cast()) })
}

/// The `len` bytes at `at`, if they are mapped and whole words. Peers may change them by atomics at the same time, so a plain copy must not read or write
/// them.
pub(crate) fn words(at: Remote<'_>, len: usize, need: Rights) -> Result<Option<&[AtomicU64]>> {
    if !at.region.is_direct() {
        return Ok(None);
    }
    let first = place(at, len, need)?;
    if !(first.addr() | len).is_multiple_of(size_of::<u64>()) {
        return Ok(None);
    }
    // SAFETY:
    // - aligned words in bounds of a mapping that lives as long as the region. Its borrow bounds the result.
    Ok(Some(unsafe {
        std::slice::from_raw_parts(first.cast(), len / size_of::<u64>())
    }))
}

/// # Safety
/// As [`Channel::put`], for a put without a notice.
#[inline]
pub(crate) unsafe fn put_alone(
    src: Local,
    dst: Remote<'_>,
    len: usize,
    flags: Flags,
) -> Result<Outcome> {
    let to = place(dst, len, Rights::WRITE)?;
    if flags.contains(Flags::ORDERED) {
        after_earlier_puts();
    }
    // SAFETY:
    // - contract of `Channel::put`: the source is valid. `place` has checked the destination.
    unsafe { move_bytes(src.ptr, to, len, flags) };
    if flags.contains(Flags::WAKE) {
        ring(dst.region);
    }
    Ok(Outcome::Complete)
}

/// # Safety
/// As [`Channel::put`], for a put with this notice.
#[inline]
pub(crate) unsafe fn put_and_notify(
    src: Local,
    dst: Remote<'_>,
    len: usize,
    notice: Notice<'_>,
) -> Result<Outcome> {
    let to = place(dst, len, Rights::WRITE)?;
    let word = notice_word(&notice)?;
    prefetch::for_store(to);
    prefetch::for_store(word);
    // SAFETY:
    // - contract of `Channel::put`: the source is valid. `place` has checked the destination.
    unsafe { transfer(src.ptr, to, len) };
    set_word(&notice, word);
    Ok(Outcome::Complete)
}

impl Channel for MappedChannel {
    #[inline]
    unsafe fn put(&self, put: &PutRequest<'_>, flags: Flags, _context: u64) -> Result<Outcome> {
        // SAFETY:
        // - contract of this call.
        unsafe {
            match put.notice {
                None => put_alone(put.src, put.dst, put.len, flags),
                Some(notice) => put_and_notify(put.src, put.dst, put.len, notice),
            }
        }
    }

    #[inline]
    unsafe fn get(&self, get: &GetRequest<'_>, flags: Flags, _context: u64) -> Result<Outcome> {
        let GetRequest { dst, src, len } = *get;
        let from = place(src, len, Rights::READ)?;
        // SAFETY:
        // - contract of `Channel::get`: the destination is valid. `place` has checked the source.
        unsafe { move_bytes(from, dst.ptr, len, flags) };
        // Later loads must not return older values than this get.
        std::sync::atomic::fence(Ordering::Acquire);
        Ok(Outcome::Complete)
    }

    #[inline]
    fn notify(&self, notice: Notice<'_>, _flags: Flags, _context: u64) -> Result<Outcome> {
        set_word(&notice, notice_word(&notice)?);
        Ok(Outcome::Complete)
    }

    #[inline]
    unsafe fn atomic(
        &self,
        dst: Remote<'_>,
        request: &AtomicRequest,
        _: u64,
        flags: Flags,
        _context: u64,
    ) -> Result<Outcome> {
        let size = request.ty.size();
        let len = if request.count == 1 {
            size
        } else {
            request.count.checked_mul(size).ok_or(Error::OutOfBounds {
                offset: dst.offset,
                len: usize::MAX,
                region_len: dst.region.len(),
            })?
        };
        let at = place(dst, len, Rights::ATOMIC)?;
        // SAFETY:
        // - contract of `Channel::atomic`: operands and results are valid. `place` has checked the target.
        unsafe { change(dst.region, request, at) }?;
        if flags.contains(Flags::WAKE) {
            ring(dst.region);
        }
        Ok(Outcome::Complete)
    }

    fn deliver(
        &self,
        inbox: Inbox<'_>,
        record: Record,
        _flags: Flags,
        _context: u64,
    ) -> Result<Outcome> {
        let first = writer(inbox.first)?;
        let delivered = match inbox.second {
            None => first.push(record),
            Some(second) => match first.push_or(&writer(second)?, record) {
                true => Ok(()),
                false => Err(Error::InboxFull),
            },
        };
        if let (Err(Error::InboxFull), Some(overflow)) = (&delivered, inbox.overflow) {
            let word = aligned_word(overflow)?;
            // SAFETY:
            // - 4 aligned bytes in bounds of a live mapping (checked by `aligned_word`).
            unsafe { AtomicU32::from_ptr(word.cast()) }.store(1, Ordering::Release);
        }
        ring(inbox.first);
        delivered.map(|()| Outcome::Complete)
    }

    /// Memory has no handler. The backend's own channel takes messages.
    fn active_message(
        &self,
        to: Remote<'_>,
        message: &[u8],
        _reply: ReplyBuffer,
        _flags: Flags,
        _context: u64,
    ) -> Result<Outcome> {
        check_message(to, message)?;
        Err(Error::Unsupported)
    }
}
