//! The data path of backends whose peers' memory is mapped here: loads, stores, CPU atomics. Nobody is called, nothing is
//! allocated, no system call is made unless somebody sleeps.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::atomic::{self, Exclusion};
use crate::copy::{SHORT, copy};
use crate::inbox::{InboxWriter, Record};
use crate::lines::{IN_ORDER, copy_lines};
use crate::op::{AtomicRequest, Completion, Flags, Inbox, Local, Notice, Outcome, Remote, Reply};
use crate::region::{RemoteRegion, Rights};
use crate::transport::{Channel, check_message};
use crate::{Error, Result, announced, prefetch};

/// A channel for peers whose regions all have a base address here. Every operation is complete when its call returns. Notices,
/// aligned words and the ends of [lines](Flags::LINES) are release stores, atomic operations release and acquire, gets end with an
/// acquire fence: what is left to [`Flags::ORDERED`] is the other bytes of puts.
#[derive(Debug, Default, Clone, Copy)]
pub struct MappedChannel;

#[inline(always)]
fn place(at: Remote<'_>, len: usize, need: Rights) -> Result<*mut u8> {
    at.region.check(at.offset, len, need)?;
    debug_assert!(!at.region.parts().base.is_null());
    Ok(at.region.parts().base.wrapping_add(at.offset))
}

/// Copies so that a peer which polls an aligned word of 1, 2, 4 or 8 bytes never sees half of it.
///
/// # Safety
/// `len` bytes are valid at both ends.
#[inline(always)]
unsafe fn transfer(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY:
    // - valid for `len` bytes by the caller's word; the store is aligned as just checked; the source is read unaligned.
    unsafe {
        if len == 8 && (dst as usize) & 7 == 0 {
            AtomicU64::from_ptr(dst.cast())
                .store(src.cast::<u64>().read_unaligned(), Ordering::Release);
        } else {
            transfer_other(src, dst, len);
        }
    }
}

/// Kept out of the way of 8-byte words: a jump table costs more than their store.
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

/// As `transfer`, with the lines that [`Flags::LINES`] asks for.
///
/// # Safety
/// `len` bytes are valid at both ends.
#[inline(always)]
unsafe fn transfer_lines(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY:
    // - the caller's word.
    unsafe {
        // A copy in line goes from the front to the end, and so do its stores where they become visible in their order.
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
    // - the caller's word.
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
    // - the caller's word.
    unsafe {
        if flags.contains(Flags::LINES) {
            transfer_lines(src, dst, len);
        } else {
            transfer(src, dst, len);
        }
    }
}

/// All that is written next becomes visible after what has been written before. Costs nothing where [stores are seen in order](IN_ORDER).
#[inline(always)]
pub(crate) fn after_earlier_puts() {
    std::sync::atomic::fence(Ordering::Release);
}

#[inline(always)]
fn set_word(notice: &Notice<'_>, word: *mut u8) {
    // SAFETY:
    // - `word` is 4 aligned bytes in bounds of a live mapping (checked by `notice_word`).
    unsafe { AtomicU32::from_ptr(word.cast()) }.store(notice.value, Ordering::Release);
    if let Some(bell) = notice.slot.region.bell() {
        bell.ring_in_line();
    }
}

fn writer(inbox: &RemoteRegion) -> Result<InboxWriter> {
    let whole = Remote {
        region: inbox,
        offset: 0,
    };
    let at = place(whole, inbox.len(), Rights::WRITE)?;
    // SAFETY:
    // - the whole region is mapped here for as long as it lives, which the caller's borrow outlives the writer.
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

/// A put with notice, if it needs loads and stores only; else false, and nothing is done.
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
    // - the source by the caller's word, the destination as just seen.
    unsafe { transfer(src.ptr, to, len) };
    set_word(&notice, word);
    true
}

/// An atomic operation on one or more elements, likewise; `None`: nothing is done.
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
        // - the caller's word; in bounds, as just seen.
        return Some(unsafe { atomic::apply_locked(locks, op, ty, at, operand, compare, result) });
    }
    // SAFETY:
    // - the caller's word; in bounds, as just seen.
    Some(unsafe { change(dst.region, request, at) })
}

/// As [`value`], likewise.
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
    // - 8 aligned bytes in bounds of a mapping that lives as long as the region, whose borrow bounds the result.
    Some(unsafe { AtomicU64::from_ptr(at.cast()) })
}

/// A put of an aligned word, likewise.
#[inline(always)]
pub(crate) fn put_word_fast(word: u64, dst: Remote<'_>) -> bool {
    let to = dst.region.parts().base.wrapping_add(dst.offset);
    if !dst.region.is_open(dst.offset, 8, Rights::WRITE) | ((to as usize) & 7 != 0) {
        return false;
    }
    // SAFETY:
    // - 8 aligned bytes in bounds of a live mapping, as just seen.
    unsafe { AtomicU64::from_ptr(to.cast()) }.store(word, Ordering::Release);
    true
}

/// A line of 64 bytes whose last word becomes visible last, likewise.
#[inline(always)]
pub(crate) fn put_line_fast(line: &[u64; 8], dst: Remote<'_>) -> bool {
    let to = dst.region.parts().base.wrapping_add(dst.offset);
    if !(dst.region.is_open(dst.offset, 64, Rights::WRITE) & ((to as usize) & 63 == 0)) {
        return false;
    }
    // SAFETY:
    // - 64 aligned bytes in bounds of a live mapping, as just seen, which others access by atomics.
    announced::publish(unsafe { &*to.cast::<[AtomicU64; 8]>() }, line);
    ring(dst.region);
    true
}

/// A notice, likewise.
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

/// A put, likewise.
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
    // - the source by the caller's word, the destination as just seen.
    unsafe { transfer(src.ptr, to, len) };
    true
}

/// A get, likewise.
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
    // - the destination by the caller's word, the source as just seen.
    unsafe { transfer(from, dst.ptr, len) };
    // What is read later must not be older than what this get has seen.
    std::sync::atomic::fence(Ordering::Acquire);
    true
}

/// A put with [`Flags::LINES`], likewise.
///
/// # Safety
/// As [`put_notify_fast`].
#[inline(always)]
pub(crate) unsafe fn put_lines_fast(src: *const u8, dst: Remote<'_>, len: usize) -> bool {
    if !dst.region.is_open(dst.offset, len, Rights::WRITE) {
        return false;
    }
    let to = dst.region.parts().base.wrapping_add(dst.offset);
    // SAFETY:
    // - the source by the caller's word, the destination as just seen.
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

/// Where the u64 at `dst` is mapped, for the two atomics that every interface has. Errors: those of an access; [`Error::Unsupported`]
/// where the CPU's atomics do not count ([`Rights::EXCLUSIVE`], [`Rights::DEVICE`]).
#[inline(always)]
pub(crate) fn value(dst: Remote<'_>) -> Result<&AtomicU64> {
    let at = place(dst, 8, Rights::ATOMIC)?;
    if ((at as usize) & 7 != 0) | dst.region.excludes_processors() {
        return Err(no_value(dst.region, 8));
    }
    // SAFETY:
    // - 8 aligned bytes in bounds of a mapping that lives as long as the region, whose borrow bounds the result.
    Ok(unsafe { AtomicU64::from_ptr(at.cast()) })
}

/// Where the u32 at `dst` is mapped.
#[inline(always)]
pub(crate) fn value32(dst: Remote<'_>) -> Result<&AtomicU32> {
    let at = place(dst, 4, Rights::ATOMIC)?;
    if ((at as usize) & 3 != 0) | dst.region.excludes_processors() {
        return Err(no_value(dst.region, 4));
    }
    // SAFETY:
    // - 4 aligned bytes in bounds of a mapping that lives as long as the region, whose borrow bounds the result.
    Ok(unsafe { AtomicU32::from_ptr(at.cast()) })
}

/// The `len` bytes at `at`, if they are mapped here and are whole words: for what others may be changing by atomics at the same time, so that a
/// copy is no way to read or write it.
pub(crate) fn words(at: Remote<'_>, len: usize, need: Rights) -> Result<Option<&[AtomicU64]>> {
    if !at.region.is_direct() {
        return Ok(None);
    }
    let first = place(at, len, need)?;
    if !(first.addr() | len).is_multiple_of(size_of::<u64>()) {
        return Ok(None);
    }
    // SAFETY:
    // - aligned words in bounds of a mapping that lives as long as the region, whose borrow bounds the result.
    Ok(Some(unsafe {
        std::slice::from_raw_parts(first.cast(), len / size_of::<u64>())
    }))
}

impl Channel for MappedChannel {
    #[inline]
    unsafe fn put(
        &self,
        src: Local,
        dst: Remote<'_>,
        len: usize,
        flags: Flags,
        _context: u64,
    ) -> Result<Outcome> {
        let to = place(dst, len, Rights::WRITE)?;
        if flags.contains(Flags::ORDERED) {
            after_earlier_puts();
        }
        // SAFETY:
        // - the source is valid by the caller's word, the destination by `place`.
        unsafe { move_bytes(src.ptr, to, len, flags) };
        if flags.contains(Flags::WAKE) {
            ring(dst.region);
        }
        Ok(Outcome::Complete)
    }

    #[inline]
    unsafe fn get(
        &self,
        dst: Local,
        src: Remote<'_>,
        len: usize,
        flags: Flags,
        _context: u64,
    ) -> Result<Outcome> {
        let from = place(src, len, Rights::READ)?;
        // SAFETY:
        // - the destination is valid by the caller's word, the source by `place`.
        unsafe { move_bytes(from, dst.ptr, len, flags) };
        // What is read later must not be older than what this get has seen.
        std::sync::atomic::fence(Ordering::Acquire);
        Ok(Outcome::Complete)
    }

    #[inline]
    fn notify(&self, notice: Notice<'_>, _flags: Flags, _context: u64) -> Result<Outcome> {
        set_word(&notice, notice_word(&notice)?);
        Ok(Outcome::Complete)
    }

    #[inline]
    unsafe fn put_notify(
        &self,
        src: Local,
        dst: Remote<'_>,
        len: usize,
        notice: Notice<'_>,
        _flags: Flags,
        _context: u64,
    ) -> Result<Outcome> {
        let to = place(dst, len, Rights::WRITE)?;
        let word = notice_word(&notice)?;
        prefetch::for_store(to);
        prefetch::for_store(word);
        // SAFETY:
        // - the source is valid by the caller's word, the destination by `place`.
        unsafe { transfer(src.ptr, to, len) };
        set_word(&notice, word);
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
        // - the target is in bounds (`place`); operands and results are valid by the caller's word.
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
            // - 4 aligned bytes in bounds of a live mapping, as just seen.
            unsafe { AtomicU32::from_ptr(word.cast()) }.store(1, Ordering::Release);
        }
        ring(inbox.first);
        delivered.map(|()| Outcome::Complete)
    }

    /// Memory has no handler: a backend's own channel knows who takes messages.
    fn active_message(
        &self,
        to: Remote<'_>,
        message: &[u8],
        _reply: Reply,
        _flags: Flags,
        _context: u64,
    ) -> Result<Outcome> {
        check_message(to, message)?;
        Err(Error::Unsupported)
    }

    fn poll(&self, _sink: &mut dyn FnMut(Completion)) {}

    fn pending(&self) -> usize {
        0
    }
}
