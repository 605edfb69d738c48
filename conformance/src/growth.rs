//! Checks whether a process grows while it repeats an operation. Measures memory, not time.

use crate::ensure;
use crate::law::Verdict;

/// Memory of this process, in KiB.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// Resident, without pages of files: code becomes resident when it first runs.
    resident: u64,
    /// The shared part of the resident memory.
    shared: u64,
    /// Mapped.
    mapped: u64,
    /// Allocated and not freed.
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

    /// Growth since `since`. Old allocations that are touched for the first time are no growth: libraries below allocate large rings and
    /// fill them slowly.
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

/// Returns cached free memory of the allocator to the system: its amount depends on the last frees.
#[cfg(target_env = "gnu")]
fn give_back() {
    // SAFETY:
    // - any thread may call this at any time.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(target_env = "gnu")]
fn allocated() -> u64 {
    // SAFETY:
    // - any thread may call this at any time.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as u64 >> 10
}

/// Calls `body` `times` / 8 times to fill caches and pools, then `times` times. Fails if these grow the process by more than `most` KiB.
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
