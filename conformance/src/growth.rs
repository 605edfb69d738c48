//! Whether a process grows while it repeats something: its memory is looked at, no clock.

use crate::ensure;
use crate::law::Verdict;

/// KiB of this process that are in memory.
fn resident() -> Result<u64, String> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(|e| e.to_string())?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .ok_or("/proc/self/status without VmRSS".into())
}

/// Does it `times`, and as many more as it takes to fill what may be filled; then it must not have grown by more than `most` KiB.
pub(crate) fn stays_small(times: u64, most: u64, mut body: impl FnMut(u64) -> Verdict) -> Verdict {
    let first = times / 8;
    (0..first).try_for_each(&mut body)?;
    let before = resident()?;
    (first..first + times).try_for_each(&mut body)?;
    let grown = resident()?.saturating_sub(before);
    ensure!(grown <= most, "{times} rounds took {grown} KiB");
    Ok(())
}
