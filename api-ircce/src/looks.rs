//! Poll loops of programs. Programs wait in loops of nonblocking calls: reads of flags and registers, tests, copies from MPBs. After a number of polls
//! without a result, a call yields the core.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use unipgas_core::waits::{self, polled};
use unipgas_core::{World, issue_totals};

use crate::mpb::{LINE, MpbOffset};
use crate::process::Ue;
use crate::status::Result;

/// Polls without a result before a yield. `CROWDED_PATIENCE` applies if the job has more processes than cores.
const PATIENCE: u32 = 256;
const CROWDED_PATIENCE: u32 = 16;
/// Entries of [`Looks::found`].
const PLACES: usize = 128;

/// The polls of this UE.
pub(crate) struct Looks {
    count: AtomicU32,
    /// Whether the job has more processes than cores. Only then copies from MPBs count as polls.
    crowded: bool,
    /// The [`summary`] of the last copy from an MPB, hashed by place and UE.
    found: [AtomicU64; PLACES],
}

impl Looks {
    pub fn new(world: &World) -> Self {
        Looks {
            count: AtomicU32::new(0),
            crowded: world.engine().crowded(),
            found: [const { AtomicU64::new(0) }; PLACES],
        }
    }
}

impl Ue {
    /// Counts a poll without a result. Errors: as for [`Ue::reached`].
    #[inline]
    pub(crate) fn looked(&self) -> Result<()> {
        let looks = self.looks.count.load(Ordering::Relaxed).wrapping_add(1);
        self.looks.count.store(looks, Ordering::Relaxed);
        if looks.is_multiple_of(CROWDED_PATIENCE) {
            self.looked_often(looks);
        }
        self.reached()
    }

    #[cold]
    fn looked_often(&self, looks: u32) {
        if self.looks.crowded || looks.is_multiple_of(PATIENCE) {
            issue_totals::look();
            polled(false, || {
                waits::needs(&self.messages.pending.lock().peers())
            });
            std::thread::yield_now();
        }
    }

    /// [`Ue::looked`], if the job has more processes than cores.
    #[inline(always)]
    pub(crate) fn looked_if_crowded(&self) -> Result<()> {
        if self.looks.crowded {
            self.looked()?;
        }
        Ok(())
    }

    /// Whether the caller must call [`Ue::copied`] after a copy from an MPB.
    #[inline(always)]
    pub(crate) fn copies_are_looks(&self) -> bool {
        self.looks.crowded
    }

    /// Notes a copy from an MPB. It counts as a poll if the previous copy from this place had the same bytes.
    ///
    /// # Safety
    /// `len` bytes at `bytes` are valid.
    pub(crate) unsafe fn copied(
        &self,
        bytes: *const u8,
        from: MpbOffset,
        len: usize,
        id: u32,
    ) -> Result<()> {
        let nth = (from.0 / LINE).wrapping_add(id as usize * 5) % PLACES;
        // SAFETY:
        // - contract of this call: `len` bytes are valid.
        let now = unsafe { summary(bytes, from, len, id) };
        let found = &self.looks.found[nth];
        if found.load(Ordering::Relaxed) == now {
            return self.looked();
        }
        found.store(now, Ordering::Relaxed);
        Ok(())
    }
}

/// A hash of the bytes, their place, length and UE. It covers the first two lines of the bytes, where programs keep the values that they poll.
///
/// # Safety
/// `len` bytes at `bytes` are valid.
unsafe fn summary(bytes: *const u8, from: MpbOffset, len: usize, id: u32) -> u64 {
    let mix = |sum: u64, word: u64| {
        (sum ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
    };
    let mut sum = mix(from.0 as u64, (len as u64) << 8 | u64::from(id));
    let len = len.min(2 * LINE);
    for at in (0..len).step_by(8) {
        let mut word = [0; 8];
        // SAFETY:
        // - contract of this call: `len` bytes are valid, and `at` is below `len`. `copy` allows concurrent writers.
        unsafe { unipgas_core::copy(bytes.add(at), word.as_mut_ptr(), (len - at).min(8)) };
        sum = mix(sum, u64::from_ne_bytes(word));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_tell_bytes_places_and_lengths_apart() {
        let of = |bytes: &[u8], place, id| {
            // SAFETY:
            // - the bytes are a slice.
            unsafe { summary(bytes.as_ptr(), MpbOffset(place), bytes.len(), id) }
        };
        let line = [7u8; 32];
        let same = of(&line, 64, 1);
        assert_eq!(of(&line, 64, 1), same);
        assert_ne!(of(&line, 96, 1), same);
        assert_ne!(of(&line, 64, 2), same);
        assert_ne!(of(&line[..31], 64, 1), same);
        for nth in 0..line.len() {
            let mut other = line;
            other[nth] = 8;
            assert_ne!(of(&other, 64, 1), same, "byte {nth}");
        }
    }
}
