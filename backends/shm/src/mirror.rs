//! The mirror: one sparse memfd that holds the adopted pages of the user's memory. Its offsets are addresses of this process.
//!
//! The offset of a page is its address, so neighbouring and overlapping registrations need no arrangement. The first registration that
//! covers a page adopts it. When the last one is released, the page becomes private again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags};
use unipgas_core::descriptor::{self, file_limit};
use unipgas_core::log;

use crate::adopt::{self, Refusal};
use crate::pool::PAGE;

/// Above all addresses of a process, with four or five levels of page tables.
const ADDRESSES: u64 = 1 << 56;

/// The file, and the number of registrations that cover each page.
pub(crate) struct Mirror {
    file: OwnedFd,
    cover: Cover,
}

impl Mirror {
    /// Creates the file.
    pub fn create() -> Result<Self, Refusal> {
        let refused = |what: &str, e| Refusal::Os(format!("{what}: {e}"));
        if let Some(limit) = file_limit() {
            return Err(Refusal::NotPermitted(format!(
                "files are limited to {limit} bytes (ulimit -f)"
            )));
        }
        let file = descriptor::memory("unipgas-mirror", MemfdFlags::empty())
            .map_err(|e| refused("memfd_create", e))?;
        rustix::fs::ftruncate(&file, ADDRESSES).map_err(|e| refused("ftruncate", e))?;
        Ok(Mirror {
            file,
            cover: Cover::default(),
        })
    }

    /// Its descriptor, for peers.
    pub fn fd(&self) -> u32 {
        self.file.as_raw_fd() as u32
    }

    /// Adopts the pages of `len` bytes at `base` that are not adopted yet, and counts a registration for all of the pages.
    ///
    /// # Safety
    /// The bytes are valid until [`release`](Mirror::release) with the same arguments; see [`adopt::adopt`].
    pub unsafe fn adopt(&mut self, base: *mut u8, len: usize) -> Result<(), Refusal> {
        let pages = pages(base, len);
        let mut adopted: Vec<Range<usize>> = Vec::new();
        let mut bare = self.cover.gaps(&pages);
        // The program may have replaced pages of an older registration by other memory. Such pages are adopted again.
        bare.extend(self.cover.covered(&pages).into_iter().filter(|part| {
            adopt::check_adopted(self.file.as_fd(), part.start as u64, part).is_err()
        }));
        for gap in bare {
            let first = std::ptr::with_exposed_provenance_mut(gap.start);
            // SAFETY:
            // - contract of this call: the bytes are valid until `release`; the file holds only these pages at these offsets.
            let result =
                unsafe { adopt::adopt(self.file.as_fd(), gap.start as u64, first, gap.len()) };
            if let Err(refusal) = result {
                for done in adopted {
                    self.give_back(&done);
                }
                return Err(refusal);
            }
            adopted.push(gap);
        }
        self.cover.add(&pages);
        Ok(())
    }

    /// Removes one registration. Pages without a registration become private again.
    pub fn release(&mut self, base: *mut u8, len: usize) {
        for bare in self.cover.remove(&pages(base, len)) {
            self.give_back(&bare);
        }
    }

    fn give_back(&self, pages: &Range<usize>) {
        let first = std::ptr::with_exposed_provenance_mut(pages.start);
        // SAFETY:
        // - `adopt` adopted the pages, and by its contract they are valid until now; the peers' registrations are closed.
        let result =
            unsafe { adopt::release(self.file.as_fd(), pages.start as u64, first, pages.len()) };
        match result {
            Ok(()) => {
                // Frees the pages of the file: no registration uses them.
                let _ = rustix::fs::fallocate(
                    &self.file,
                    FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    pages.start as u64,
                    pages.len() as u64,
                );
            }
            // The pages stay shared, and the program can use them as before; or the program has unmapped them.
            Err(refusal) => tracing::debug!(target: log::MEMORY, "pages stay adopted: {refusal}"),
        }
    }
}

fn pages(base: *mut u8, len: usize) -> Range<usize> {
    let start = base.expose_provenance();
    start & !(PAGE - 1)..(start + len).next_multiple_of(PAGE)
}

/// Number of registrations that cover each address: pieces by their start, with end and count. No piece has count 0.
#[derive(Default, Debug, PartialEq, Eq)]
struct Cover(BTreeMap<usize, (usize, u32)>);

impl Cover {
    fn split(&mut self, at: usize) {
        if let Some((&start, &(end, count))) = self.0.range(..at).next_back()
            && end > at
        {
            self.0.insert(start, (at, count));
            self.0.insert(at, (end, count));
        }
    }

    /// The parts of `range` without a registration.
    fn gaps(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let mut at = range.start;
        let mut gaps = Vec::new();
        let before = self.0.range(..range.start).next_back();
        for (&start, &(end, _)) in before.into_iter().chain(self.0.range(range.clone())) {
            if start > at {
                gaps.push(at..start);
            }
            at = at.max(end);
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// The parts of `range` with a registration.
    fn covered(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let mut at = range.start;
        let mut parts = Vec::new();
        for gap in self.gaps(range) {
            if gap.start > at {
                parts.push(at..gap.start);
            }
            at = gap.end;
        }
        if at < range.end {
            parts.push(at..range.end);
        }
        parts
    }

    fn add(&mut self, range: &Range<usize>) {
        self.split(range.start);
        self.split(range.end);
        for gap in self.gaps(range) {
            self.0.insert(gap.start, (gap.end, 0));
        }
        for (_, (_, count)) in self.0.range_mut(range.clone()) {
            *count += 1;
        }
    }

    /// Removes one registration of `range`. Returns the parts without a registration.
    fn remove(&mut self, range: &Range<usize>) -> Vec<Range<usize>> {
        self.split(range.start);
        self.split(range.end);
        let mut bare: Vec<Range<usize>> = Vec::new();
        for (&start, (end, count)) in self.0.range_mut(range.clone()) {
            *count -= 1;
            if *count == 0 {
                match bare.last_mut() {
                    Some(last) if last.end == start => last.end = *end,
                    _ => bare.push(start..*end),
                }
            }
        }
        self.0.retain(|_, (_, count)| *count > 0);
        bare
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges are meant")]
mod tests {
    use super::*;

    #[test]
    fn pages_are_covered_as_long_as_one_registration_needs_them() {
        let mut cover = Cover::default();
        assert_eq!(cover.gaps(&(10..20)), [10..20]);
        cover.add(&(10..20));
        assert_eq!(cover.gaps(&(5..25)), [5..10, 20..25]);
        cover.add(&(15..30));
        assert_eq!(cover.gaps(&(0..40)), [0..10, 30..40]);
        assert_eq!(cover.covered(&(0..40)), [10..30]);
        assert_eq!(cover.covered(&(30..40)), []);
        assert_eq!(cover.covered(&(15..35)), [15..30]);
        assert_eq!(cover.remove(&(10..20)), [10..15]);
        assert_eq!(cover.gaps(&(10..30)), [10..15]);
        assert_eq!(cover.remove(&(15..30)), [15..30]);
        assert_eq!(cover, Cover::default());
    }

    #[test]
    fn random_registrations_agree_with_a_plain_count() {
        let mut cover = Cover::default();
        let mut plain = [0u32; 64];
        let mut held: Vec<Range<usize>> = Vec::new();
        let mut seed = 1u64;
        for _ in 0..2000 {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let draw = (seed >> 33) as usize;
            if held.len() < 8 && !draw.is_multiple_of(3) {
                let start = draw / 3 % 60;
                let range = start..start + 1 + draw / 200 % (64 - start);
                let gaps: Vec<usize> = cover.gaps(&range).into_iter().flatten().collect();
                let bare: Vec<usize> = range.clone().filter(|at| plain[*at] == 0).collect();
                assert_eq!(gaps, bare);
                cover.add(&range);
                range.clone().for_each(|at| plain[at] += 1);
                held.push(range);
            } else if let Some(range) =
                (!held.is_empty()).then(|| held.swap_remove(draw % held.len()))
            {
                range.clone().for_each(|at| plain[at] -= 1);
                let bare: Vec<usize> = cover.remove(&range).into_iter().flatten().collect();
                let expected: Vec<usize> = range.filter(|at| plain[*at] == 0).collect();
                assert_eq!(bare, expected);
            }
        }
    }
}
