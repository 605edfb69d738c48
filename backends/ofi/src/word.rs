//! The word that goes with a write into the target's completion queue: which notification becomes what.

use unipgas_core::agent::Registered;
use unipgas_core::op::Notice;
use unipgas_core::streams::place;

/// Nothing but: somebody may sleep who waits for what was written.
pub const WAKE: u64 = u64::MAX;
/// The largest number of a registration, and of a word in it.
const LARGEST: u64 = 0xfffe;

/// For the word in `notice`; `None` where its place does not fit into 32 bits.
pub fn notice(notice: &Notice<'_>) -> Option<u64> {
    let place = place(notice.slot.region, notice.slot.offset);
    let (slot, index) = (u64::from(place.slot), place.offset / 4);
    let fits = slot <= LARGEST && index <= LARGEST;
    fits.then(|| u64::from(notice.value) << 32 | slot << 16 | index)
}

/// What has come is done.
pub fn take(word: u64, registered: &Registered) {
    if word != WAKE {
        let (slot, index) = (word >> 16 & 0xffff, word & 0xffff);
        registered.notify(slot as u32, 4 * index as usize, (word >> 32) as u32);
    }
    registered.bell().ring_if_heard();
}
