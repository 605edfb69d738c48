//! Programs that wait in loops of calls which return at once: flags and registers that are read, tests, buffers that are copied from MPBs.
//! Now and then such a call lets others run.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use unipgas_core::waits::{self, polled};
use unipgas_core::{World, issued};

use crate::mpb::{LINE, Place};
use crate::process::Ue;
use crate::status::Result;

/// Looks that found nothing before the core is offered to others; fewer where processes share cores.
const PATIENCE: u32 = 256;
const CROWDED_PATIENCE: u32 = 16;
/// Places in MPBs of which it is remembered what was there.
const PLACES: usize = 128;

/// How often this UE has looked, and at what.
pub(crate) struct Looks {
    count: AtomicU32,
    /// Whether processes share cores: elsewhere copies from MPBs are no looks.
    crowded: bool,
    /// What copies from MPBs have found, by place: see [`summary`].
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
    /// Called by what programs call in loops until something changes, and which has not.
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
            issued::look();
            polled(false, || {
                waits::needs(&self.messages.pending.lock().peers())
            });
            std::thread::yield_now();
        }
    }

    /// [`Ue::looked`], where processes share cores.
    #[inline(always)]
    pub(crate) fn looked_if_crowded(&self) -> Result<()> {
        if self.looks.crowded {
            self.looked()?;
        }
        Ok(())
    }

    /// Whether [`Ue::copied`] is called when bytes have been copied from an MPB: where processes share cores.
    #[inline(always)]
    pub(crate) fn copies_are_looks(&self) -> bool {
        self.looks.crowded
    }

    /// Bytes have been copied from an MPB, which is a look if the last ones from there were the same.
    ///
    /// # Safety
    /// `len` bytes at `bytes` are valid.
    pub(crate) unsafe fn copied(
        &self,
        bytes: *const u8,
        from: Place,
        len: usize,
        id: u32,
    ) -> Result<()> {
        let nth = (from.0 / LINE).wrapping_add(id as usize * 5) % PLACES;
        // SAFETY:
        // - the caller's word.
        let now = unsafe { summary(bytes, from, len, id) };
        let found = &self.looks.found[nth];
        if found.load(Ordering::Relaxed) == now {
            return self.looked();
        }
        found.store(now, Ordering::Relaxed);
        Ok(())
    }
}

/// A number for bytes and where they come from; of many bytes the first two lines count, where programs have what they wait for.
///
/// # Safety
/// `len` bytes at `bytes` are valid.
unsafe fn summary(bytes: *const u8, from: Place, len: usize, id: u32) -> u64 {
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
        // - within the bytes, as `at` is below their number; another thread may write them, as the program pleases.
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
            // - a slice is valid.
            unsafe { summary(bytes.as_ptr(), Place(place), bytes.len(), id) }
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
