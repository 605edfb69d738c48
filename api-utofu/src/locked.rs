//! `UTOFU_SWAP_PROTECT` (guide §4.3.2.5): memory is locked as long as a registration of any VCQ covers it. Pages that the program
//! locked before the registration stay locked after it.

use std::collections::HashMap;
use std::ops::Range;

use parking_lot::{Mutex, Once};

/// Pages locked by the registrations of one VCQ, by STADD. Each registration under a STADD has one entry.
#[derive(Default)]
pub(crate) struct Locked {
    ranges: Mutex<HashMap<u64, Vec<Range<usize>>>>,
}

/// Counts the locks of a page, because mlock does not.
static ALL: Mutex<All> = Mutex::new(All {
    covered: Vec::new(),
    programs: Vec::new(),
});

struct All {
    /// The pages of all VCQs' registrations.
    covered: Vec<Range<usize>>,
    /// The subset that the program had locked before.
    programs: Vec<Range<usize>>,
}

fn page() -> usize {
    // SAFETY:
    // - no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(page).unwrap_or(4096)
}

/// Memory that a call is about to register. It is made before the registration: afterwards the program's locks are not distinguishable from the engine's.
pub(crate) struct LockRequest {
    pages: Range<usize>,
    programs: Vec<Range<usize>>,
}

impl LockRequest {
    /// Prepares to lock `len` bytes at `addr`. The range does not wrap.
    pub fn new(addr: *mut u8, len: usize) -> Self {
        let page = page();
        let end = (addr.addr() + len).checked_next_multiple_of(page);
        let pages = addr.addr() / page * page..end.unwrap_or(usize::MAX / page * page);
        let all = ALL.lock();
        let own = bare(&pages, &all.covered);
        drop(all);
        LockRequest {
            programs: own.iter().flat_map(locked_parts).collect(),
            pages,
        }
    }
}

impl Locked {
    /// Locks the pages, which have been registered under `stadd`. If the limit does not allow this, the system may swap them out, as in the guide. The first
    /// failure prints a warning.
    pub fn add(&self, stadd: u64, wish: LockRequest) {
        let LockRequest { pages, programs } = wish;
        let mut all = ALL.lock();
        // SAFETY:
        // - registered, so valid memory of the program. mlock does not change its contents.
        let code = unsafe { libc::mlock(std::ptr::without_provenance(pages.start), pages.len()) };
        if code != 0 {
            warn(pages.len(), &std::io::Error::last_os_error());
        }
        // Pages that other threads have registered since `LockRequest::new` are left out: those threads have recorded the program's locks.
        let fresh = bare(&pages, &all.covered);
        all.programs
            .extend(programs.iter().flat_map(|part| common(part, &fresh)));
        all.covered.push(pages.clone());
        self.ranges.lock().entry(stadd).or_default().push(pages);
    }

    /// Ends one registration under `stadd`, and unlocks the pages that no other registration covers.
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
        let ranges = std::mem::take(self.ranges.get_mut());
        for pages in ranges.into_values().flatten() {
            unlock(&pages);
        }
    }
}

#[cold]
fn warn(bytes: usize, why: &std::io::Error) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        eprintln!(
            "utofu: UTOFU_SWAP_PROTECT: {bytes} bytes of registered memory cannot be locked and may be swapped out (mlock: {why}): raise RLIMIT_MEMLOCK (ulimit -l)"
        );
    });
}

fn unlock(pages: &Range<usize>) {
    // Holds the lock to the end, so that no thread registers these pages meanwhile.
    let mut all = ALL.lock();
    if let Some(at) = all.covered.iter().position(|range| range == pages) {
        all.covered.swap_remove(at);
    }
    for part in bare(pages, &all.covered) {
        // Registration and deregistration may have replaced the pages, so this locks them again.
        for kept in all.programs.iter().filter_map(|own| overlap(own, &part)) {
            // SAFETY:
            // - the program had locked these pages. The call has no effect on pages that are no longer mapped.
            let _ = unsafe { libc::mlock(std::ptr::without_provenance(kept.start), kept.len()) };
        }
        for ours in bare(&part, &all.programs) {
            // SAFETY:
            // - a registration had locked these pages. The call has no effect on pages that are no longer mapped.
            let _ = unsafe { libc::munlock(std::ptr::without_provenance(ours.start), ours.len()) };
        }
        let programs = std::mem::take(&mut all.programs);
        let part = std::slice::from_ref(&part);
        all.programs = programs.iter().flat_map(|own| bare(own, part)).collect();
    }
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> Option<Range<usize>> {
    let both = one.start.max(other.start)..one.end.min(other.end);
    (!both.is_empty()).then_some(both)
}

/// The parts of `pages` that are also in one of `others`.
fn common(pages: &Range<usize>, others: &[Range<usize>]) -> Vec<Range<usize>> {
    others
        .iter()
        .filter_map(|other| overlap(pages, other))
        .collect()
}

/// The parts of `pages` outside of all `others`.
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

/// The locked parts of `pages`. Empty if /proc/self/smaps is not readable.
fn locked_parts(pages: &Range<usize>) -> Vec<Range<usize>> {
    let text = unipgas_core::descriptor::read_text("/proc/self/smaps").unwrap_or_default();
    locked_in(&text, pages)
}

fn locked_in(smaps: &str, pages: &Range<usize>) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut mapping = None;
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        if let Some((start, end)) = first.split_once('-') {
            let number = |text| usize::from_str_radix(text, 16).ok();
            mapping = number(start).zip(number(end));
        } else if first == "VmFlags:"
            && words.any(|flag| flag == "lo")
            && let Some((start, end)) = mapping
        {
            parts.extend(overlap(pages, &(start..end)));
        }
    }
    parts
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

    #[test]
    fn locked_mappings_are_found() {
        let text = "1000-3000 rw-p 00000000 00:00 0 [heap]\nRss: 8 kB\nVmFlags: rd wr mr mw me ac lo sd \n\
                    3000-4000 r--p 00000000 fe:01 7 /lib/some-lo\nVmFlags: rd mr mw me \n\
                    4000-6000 rw-p 00000000 00:00 0\nVmFlags: rd lo wr \n";
        assert_eq!(
            locked_in(text, &(0x2000..0x5000)),
            [0x2000..0x3000, 0x4000..0x5000]
        );
        assert_eq!(locked_in(text, &(0x3000..0x4000)), []);
        assert_eq!(locked_in("", &(0..0x4000)), []);
    }
}
