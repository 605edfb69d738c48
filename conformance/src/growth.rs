//! Whether a process grows while it repeats something: its memory is looked at, no clock.

use crate::ensure;
use crate::law::Verdict;

/// What there is of this process, in KiB.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// In memory, without pages of files: code comes there when it first runs.
    resident: u64,
    /// Of that, shared with others.
    shared: u64,
    /// Mapped.
    mapped: u64,
    /// Allocated, and not freed.
    allocated: u64,
}

impl Size {
    fn now() -> Result<Self, String> {
        give_back();
        let status = std::fs::read_to_string("/proc/self/status").map_err(|e| e.to_string())?;
        let of = |name: &str| {
            let rest = status.lines().find_map(|line| line.strip_prefix(name));
            rest.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
                .ok_or(format!("/proc/self/status without {name}"))
        };
        Ok(Size {
            resident: of("RssAnon:")? + of("RssShmem:")?,
            shared: of("RssShmem:")?,
            mapped: of("VmSize:")?,
            allocated: allocated(),
        })
    }

    /// Since then. Pages that were allocated before and are touched now for the first time are no growth: libraries below make large rings that take long to
    /// go round.
    fn grown(&self, since: &Size) -> u64 {
        let resident = self.resident.saturating_sub(since.resident);
        let held = [
            self.shared.saturating_sub(since.shared),
            self.mapped.saturating_sub(since.mapped),
            self.allocated.saturating_sub(since.allocated),
        ];
        resident.min(held.into_iter().max().unwrap_or(0))
    }
}

/// What the allocator keeps for later goes back: how much that is depends on what was freed last.
#[cfg(target_env = "gnu")]
fn give_back() {
    // SAFETY:
    // - any thread may ask at any time.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(target_env = "gnu")]
fn allocated() -> u64 {
    // SAFETY:
    // - any thread may ask at any time.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as u64 >> 10
}

/// Does it `times`, and as many more as it takes to fill what may be filled; then it must not have grown by more than `most` KiB.
pub(crate) fn stays_small(times: u64, most: u64, mut body: impl FnMut(u64) -> Verdict) -> Verdict {
    let first = times / 8;
    (0..first).try_for_each(&mut body)?;
    let before = Size::now()?;
    (first..first + times).try_for_each(&mut body)?;
    let after = Size::now()?;
    let grown = after.grown(&before);
    ensure!(
        grown <= most,
        "{times} rounds took {grown} KiB: {before:?} became {after:?}"
    );
    Ok(())
}
