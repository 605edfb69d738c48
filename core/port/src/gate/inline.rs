//! A short list on the stack. It costs nothing while it is empty.

use std::mem::MaybeUninit;

/// Up to `N` values.
#[derive(Clone, Copy)]
pub(super) struct Inline<T: Copy, const N: usize> {
    len: usize,
    /// The first `len` are initialised.
    items: [MaybeUninit<T>; N],
}

impl<T: Copy, const N: usize> Inline<T, N> {
    #[inline(always)]
    pub(super) const fn new() -> Self {
        Self {
            len: 0,
            items: [const { MaybeUninit::uninit() }; N],
        }
    }

    #[inline(always)]
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends the item, or returns it if the list is full.
    #[inline(always)]
    pub(super) fn push(&mut self, item: T) -> Result<(), T> {
        let Some(place) = self.items.get_mut(self.len) else {
            return Err(item);
        };
        place.write(item);
        self.len += 1;
        Ok(())
    }

    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<T> {
        let last = self.as_slice().last().copied()?;
        self.len -= 1;
        Some(last)
    }

    #[inline(always)]
    pub(super) fn as_slice(&self) -> &[T] {
        // SAFETY:
        // - `len` is at most `N`: only `push` raises it, after `get_mut` has found the slot;
        // - `push` has written the first `len` items.
        unsafe { std::slice::from_raw_parts(self.items.as_ptr().cast(), self.len) }
    }

    #[inline(always)]
    pub(super) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY:
        // - as in `as_slice`. The exclusive reference to the list makes this the only reference to its items.
        unsafe { std::slice::from_raw_parts_mut(self.items.as_mut_ptr().cast(), self.len) }
    }
}
