//! `UTOFU_SWAP_PROTECT` (guide §4.3.2.5): registered memory is locked, as long as a registration of any VCQ covers it.

use std::collections::HashMap;
use std::ops::Range;

use parking_lot::Mutex;

/// What the registrations of one VCQ have locked: pages by STADD, as often as it was given.
#[derive(Default)]
pub struct Locked {
    ranges: Mutex<HashMap<u64, Vec<Range<usize>>>>,
}

/// The pages of all VCQs' registrations. mlock does not count, so this does.
static ALL: Mutex<Vec<Range<usize>>> = Mutex::new(Vec::new());

fn page() -> usize {
    // SAFETY:
    // - no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(page).unwrap_or(4096)
}

impl Locked {
    /// Locks the pages of `len` bytes at `addr`. Where the limit does not allow it, they may be swapped out as without.
    pub fn add(&self, stadd: u64, addr: *mut u8, len: usize) {
        let pages = addr.addr() / page() * page()..(addr.addr() + len).next_multiple_of(page());
        let mut all = ALL.lock();
        // SAFETY:
        // - valid memory of the program; mlock changes nothing of it.
        let _ = unsafe { libc::mlock(addr.cast(), len) };
        all.push(pages.clone());
        let mut ranges = self.ranges.lock();
        ranges.entry(stadd).or_default().push(pages);
    }

    /// Takes back one registration under `stadd`, and unlocks the pages that no other one covers.
    pub fn remove(&self, stadd: u64) {
        let mut ranges = self.ranges.lock();
        let Some(of_key) = ranges.get_mut(&stadd) else {
            return;
        };
        let pages = of_key.pop();
        if of_key.is_empty() {
            ranges.remove(&stadd);
        }
        drop(ranges);
        if let Some(pages) = pages {
            unlock(&pages);
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let ranges = self.ranges.get_mut();
        for pages in std::mem::take(ranges).into_values().flatten() {
            unlock(&pages);
        }
    }
}

fn unlock(pages: &Range<usize>) {
    // The lock is held until it is done: nobody may register what is being unlocked.
    let mut all = ALL.lock();
    if let Some(at) = all.iter().position(|range| range == pages) {
        all.swap_remove(at);
    }
    for bare in bare(pages, &all) {
        // SAFETY:
        // - pages that this process has had locked; if they are not mapped any more, the call has no effect.
        let _ = unsafe { libc::munlock(std::ptr::without_provenance(bare.start), bare.len()) };
    }
}

/// The parts of `pages` that no one of `others` covers.
fn bare(pages: &Range<usize>, others: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut left = vec![pages.clone()];
    for other in others {
        left = left
            .into_iter()
            .flat_map(|part| {
                [
                    part.start..part.end.min(other.start),
                    part.start.max(other.end)..part.end,
                ]
            })
            .filter(|part| !part.is_empty())
            .collect();
    }
    left
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges are meant")]
mod tests {
    use super::*;

    #[test]
    fn what_others_cover_stays() {
        let all = |others: &[Range<usize>]| bare(&(10..20), others);
        assert_eq!(all(&[]), [10..20]);
        assert_eq!(all(&[0..10, 20..30]), [10..20]);
        assert_eq!(all(&[12..14, 13..15]), [10..12, 15..20]);
        assert_eq!(all(&[0..12, 18..40]), [12..18]);
        assert_eq!(all(&[10..15, 15..20]), []);
        assert_eq!(all(&[0..100]), []);
    }
}
