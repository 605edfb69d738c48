//! Message-passing buffers (MPBs): memory of each UE that each UE can read and write. Programs name a place in any MPB by the address of the same place in
//! their own MPB.

use unipgas_core::{Flags, Local, Remote};

use crate::extents::Extents;
use crate::process::Ue;
use crate::status::{ErrorCode, Result};

/// `RCCE_LINE_SIZE`: length of a line in bytes, the unit of MPB allocations.
pub const LINE: usize = 32;
/// Offset of the MPB in a UE's region. The control words are in front of it.
pub(crate) const MPB: usize = crate::air::END.next_multiple_of(4096);

/// An offset in an MPB, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MpbOffset(pub usize);

impl Ue {
    /// Size of each MPB in bytes.
    pub fn mpb_len(&self) -> usize {
        self.mpb_len
    }

    /// Allocates `size` bytes, a multiple of [`LINE`] above 0 (`RCCE_malloc`). If all UEs allocate in the same order, they get the same place. `None` for
    /// other sizes, or if there is no room.
    pub fn malloc(&self, size: usize) -> Option<MpbOffset> {
        if !size.is_multiple_of(LINE) {
            return None;
        }
        let mut extents = self.mpb.lock();
        extents.take(size).map(MpbOffset)
    }

    /// Later allocations use the whole lines of these bytes (`RCCE_malloc_init`). If the bytes are not in the MPB, later allocations fail.
    pub fn malloc_from(&self, begin: Option<MpbOffset>, size: usize) {
        let end = begin.and_then(|begin| begin.0.checked_add(size));
        let whole = end.filter(|end| *end <= self.mpb_len).map_or(0..0, |end| {
            let first = begin.map_or(end, |begin| begin.0.next_multiple_of(LINE));
            first..(end / LINE * LINE).max(first)
        });
        *self.mpb.lock() = Extents::of(whole);
    }

    /// Allocates `size` bytes, and halves the size until there is room (`RCCE_malloc_request`). Returns the place and the size in bytes.
    pub fn malloc_request(&self, size: usize) -> Option<(MpbOffset, usize)> {
        request(size, |size| self.malloc(size))
    }

    /// Frees a place of [`Ue::malloc`] (`RCCE_free`). False: the place is not allocated.
    pub fn free(&self, place: MpbOffset) -> bool {
        let mut extents = self.mpb.lock();
        extents.give_back(place.0)
    }

    /// The address of a place in this UE's MPB.
    pub fn address(&self, place: MpbOffset) -> *mut u8 {
        self.base().wrapping_add(MPB + place.0)
    }

    /// Address of the MPB of UE `id` in this process. Null if it is not mapped, or the UE does not exist.
    pub fn window(&self, id: u32) -> *mut u8 {
        if id == self.id() {
            return self.address(MpbOffset(0));
        }
        match self.peer(id).map(|region| region.parts().base) {
            Ok(base) if !base.is_null() => base.wrapping_add(MPB),
            _ => std::ptr::null_mut(),
        }
    }

    /// The place of an address in this UE's MPB.
    #[inline(always)]
    pub fn place(&self, address: *const u8) -> Option<MpbOffset> {
        let offset = (address as usize).wrapping_sub(self.base() as usize + MPB);
        (offset < self.mpb_len).then_some(MpbOffset(offset))
    }

    /// Offset of `len` bytes at a place in a UE's region. `None`: they exceed the MPB.
    #[inline(always)]
    fn inside(&self, place: MpbOffset, len: usize) -> Option<usize> {
        (place.0 <= self.mpb_len && len <= self.mpb_len - place.0).then(|| MPB + place.0)
    }

    /// Writes `data` into the MPB of UE `id` (`RCCE_put`). Errors: [`ErrorCode::Id`], [`ErrorCode::Target`].
    pub fn put(&self, to: MpbOffset, data: &[u8], id: u32) -> Result<()> {
        // SAFETY:
        // - the bytes are a slice.
        unsafe { self.put_from(to, data.as_ptr(), data.len(), id) }
    }

    /// Reads from the MPB of UE `id` (`RCCE_get`). Errors: [`ErrorCode::Id`], [`ErrorCode::Source`].
    pub fn get(&self, into: &mut [u8], from: MpbOffset, id: u32) -> Result<()> {
        // SAFETY:
        // - the bytes are a slice.
        unsafe { self.get_into(into.as_mut_ptr(), from, into.len(), id) }
    }

    /// As [`Ue::put`]. `data` may be in this UE's MPB, and the ranges may overlap.
    ///
    /// # Safety
    /// `len` bytes at `data` are valid.
    #[inline]
    pub unsafe fn put_from(
        &self,
        to: MpbOffset,
        data: *const u8,
        len: usize,
        id: u32,
    ) -> Result<()> {
        let region = self.peer(id)?;
        let offset = self.inside(to, len).ok_or(ErrorCode::Target)?;
        let (src, dst) = (local(data.cast_mut()), Remote { region, offset });
        if len == 0 {
            return Ok(());
        }
        let now = self.endpoint.fast_path();
        // SAFETY:
        // - contract of this call: `len` bytes at `data` are valid.
        if !unsafe { now.put(src, dst, len) } {
            // SAFETY:
            // - contract of this call: `len` bytes at `data` are valid. `inside` has checked `dst`.
            return unsafe { self.put_slowly(src, dst, len, id) };
        }
        // Programs may also set flags by puts, so wake the sleepers of the target.
        if let Some(bell) = region.bell() {
            bell.ring_if_heard();
        }
        self.accessed(len)
    }

    /// # Safety
    /// `len` bytes are valid at `src` and at `dst`, and `dst` is in the region of UE `id`.
    #[cold]
    unsafe fn put_slowly(&self, src: Local, dst: Remote<'_>, len: usize, id: u32) -> Result<()> {
        if id == self.id() {
            // Backends need not support overlapping ranges.
            // SAFETY:
            // - contract of this call: `len` bytes are valid at `src`, and at `dst` in this UE's region.
            unsafe { unipgas_core::copy(src.ptr, self.base().wrapping_add(dst.offset), len) };
            self.world().engine().ring();
            return Ok(());
        }
        // SAFETY:
        // - contract of `Channel::put`: `src` is valid until completion. `settle` waits for it.
        unsafe {
            self.endpoint
                .put(src, dst, len, Flags::ORDERED | Flags::WAKE, 0)
                .map_err(|error| self.blame(id, error))?;
        }
        self.settle(id, len)
    }

    /// As [`Ue::get`]. `into` may be in this UE's MPB, and the ranges may overlap.
    ///
    /// # Safety
    /// `len` bytes at `into` are valid for writes.
    #[inline]
    pub unsafe fn get_into(
        &self,
        into: *mut u8,
        from: MpbOffset,
        len: usize,
        id: u32,
    ) -> Result<()> {
        let region = self.peer(id)?;
        let offset = self.inside(from, len).ok_or(ErrorCode::Source)?;
        if len == 0 {
            return Ok(());
        }
        if self.copies_are_looks() {
            // SAFETY:
            // - contract of this call: `len` bytes at `into` are valid for writes.
            return unsafe { self.get_and_look(into, offset, len, id) };
        }
        if id == self.id() {
            // SAFETY:
            // - contract of this call: `len` bytes at `into` are valid for writes. `inside` has checked the source range.
            unsafe { unipgas_core::copy(self.base().wrapping_add(offset), into, len) };
            return Ok(());
        }
        // SAFETY:
        // - contract of this call: `len` bytes at `into` are valid for writes.
        unsafe { self.fetch(local(into), Remote { region, offset }, len, id) }
    }

    /// [`Ue::get_into`] if the job has more processes than cores. It is separate to keep its stack frame out of the other case.
    ///
    /// # Safety
    /// `len` bytes at `into` are valid for writes.
    #[inline(never)]
    unsafe fn get_and_look(&self, into: *mut u8, offset: usize, len: usize, id: u32) -> Result<()> {
        let region = self.peer(id)?;
        // SAFETY:
        // - contract of this call: `len` bytes at `into` are valid for writes.
        // - `get_into` has checked that the source range lies in the MPB.
        unsafe {
            if id == self.id() {
                unipgas_core::copy(self.base().wrapping_add(offset), into, len);
            } else {
                self.fetch(local(into), Remote { region, offset }, len, id)?;
            }
            self.copied(into, MpbOffset(offset - MPB), len, id)
        }
    }

    /// Reads from the region of UE `id`, and waits for completion.
    ///
    /// # Safety
    /// `len` bytes at `into` are valid for writes.
    #[inline]
    pub(crate) unsafe fn fetch(
        &self,
        into: Local,
        from: Remote<'_>,
        len: usize,
        id: u32,
    ) -> Result<()> {
        let now = self.endpoint.fast_path();
        // SAFETY:
        // - contract of this call: `len` bytes at `into` are valid for writes.
        if !unsafe { now.get(into, from, len) } {
            // SAFETY:
            // - contract of this call: `len` bytes at `into` are valid for writes.
            return unsafe { self.fetch_slowly(into, from, len, id) };
        }
        self.accessed(len)
    }

    /// # Safety
    /// As [`Ue::fetch`].
    #[cold]
    unsafe fn fetch_slowly(
        &self,
        into: Local,
        from: Remote<'_>,
        len: usize,
        id: u32,
    ) -> Result<()> {
        // SAFETY:
        // - contract of `Channel::get`: `into` is valid until completion. `settle` waits for a pending get.
        let outcome = unsafe { self.endpoint.get(into, from, len, Flags::ORDERED, 0) };
        match outcome.map_err(|error| self.blame(id, error))? {
            unipgas_core::Outcome::Complete => self.accessed(len),
            unipgas_core::Outcome::Pending => self.settle(id, len),
        }
    }

    /// The stricter checks of `RCCE_put` and `RCCE_get` in the gory library. `inside`: the range in the MPB of UE `id`. `other`: memory of this process.
    /// Errors: [`ErrorCode::Id`], [`ErrorCode::MessageLength`], `outside`, [`ErrorCode::DataOverlap`], [`ErrorCode::Alignment`].
    pub fn check_gory(
        &self,
        inside: Option<MpbOffset>,
        other: *const u8,
        len: usize,
        id: u32,
        outside: ErrorCode,
    ) -> Result<()> {
        self.exists(id)?;
        if !len.is_multiple_of(LINE) {
            return Err(ErrorCode::MessageLength.into());
        }
        let inside = inside
            .filter(|place| self.inside(*place, len).is_some())
            .ok_or(outside)?;
        let other = self
            .place(other)
            .filter(|place| self.inside(*place, len).is_some());
        if let Some(other) = other
            && id == self.id()
            && inside.0.abs_diff(other.0) < len
        {
            return Err(ErrorCode::DataOverlap.into());
        }
        let aligned = |place: MpbOffset| place.0.is_multiple_of(LINE);
        if !aligned(inside) || other.is_some_and(|place| !aligned(place)) {
            return Err(ErrorCode::Alignment.into());
        }
        Ok(())
    }

    /// `RCCE_fence`: earlier writes of this UE are visible before later writes.
    pub fn fence(&self) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }
}

/// An operand in memory of this process.
#[inline(always)]
pub(crate) fn local(ptr: *mut u8) -> Local {
    Local { ptr, desc: 0 }
}

/// Calls `take` with the size in whole lines, and halves the size until `take` succeeds.
pub(crate) fn request<T>(
    size: usize,
    mut take: impl FnMut(usize) -> Option<T>,
) -> Option<(T, usize)> {
    let mut size = size.checked_next_multiple_of(LINE)?;
    while size > 0 {
        if let Some(taken) = take(size) {
            return Some((taken, size));
        }
        size = match size {
            LINE => 0,
            _ => (size / 2).next_multiple_of(LINE),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_shrink_by_halves() {
        let upto = |room| move |size| (size <= room).then_some(());
        assert_eq!(request(100, upto(1000)), Some(((), 128)));
        assert_eq!(request(1000, upto(300)), Some(((), 256)));
        assert_eq!(request(1, upto(31)), None);
        assert_eq!(request(0, upto(31)), None);
        assert_eq!(request(usize::MAX, upto(31)), None);
    }
}
