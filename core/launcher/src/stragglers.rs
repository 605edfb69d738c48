//! Ends processes that ranks have started and left. This process has adopted them, and has no other children.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};

use super::GRACE;
use unipgas_core::descriptor;

/// Kinds of ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Haste {
    /// SIGTERM, and SIGKILL after [`GRACE`].
    Ask,
    /// SIGKILL.
    Kill,
}

/// Consecutive looks without a process that can end before the rest is left. A look takes at most 50 ms and the time to read /proc.
const STUCK_LOOKS: u32 = 100;

/// Ends and reaps all children. Their children become this process's, and end, too. A killed process may wait for a processor for any time. So the wait ends
/// only with the last child, or if the rest are processes that the kernel cannot kill. Processes of another user get [`GRACE`] with [`Haste::Ask`], else no time.
pub(super) fn end_children(haste: Haste) {
    let start = Instant::now();
    let mut pause = Duration::from_micros(500);
    let mut stuck = 0;
    while stuck < STUCK_LOOKS {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        let signal = if haste == Haste::Ask && start.elapsed() < GRACE {
            Signal::TERM
        } else {
            Signal::KILL
        };
        let mut ends = signal == Signal::TERM;
        let (mut foreign, mut blocked) = (false, false);
        for pid in children() {
            match rustix::process::kill_process(pid, signal) {
                Err(Errno::PERM) => foreign = true,
                _ if is_stuck(pid) => blocked = true,
                _ => ends = true,
            }
        }
        if foreign && !blocked && !ends {
            return;
        }
        stuck = if ends { 0 } else { stuck + 1 };
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

fn children() -> Vec<Pid> {
    let own = u64::from(std::process::id());
    let is_own = |pid: &i32| parent_in(&format!("/proc/{pid}/stat")) == Some(own);
    numbered("/proc")
        .filter(is_own)
        .filter_map(Pid::from_raw)
        .collect()
}

fn parent_in(stat: &str) -> Option<u64> {
    descriptor::field_in(&descriptor::proc_text(stat).ok()??, 4)
}

/// Whether each thread of the process is in an uninterruptible sleep, or has ended.
fn is_stuck(pid: Pid) -> bool {
    let tasks = format!("/proc/{pid}/task");
    numbered(&tasks).all(|task| {
        let stat = descriptor::proc_text(&format!("{tasks}/{task}/stat"));
        let state = descriptor::state_in(&stat.ok().flatten().unwrap_or_default());
        matches!(state, Some('D' | 'Z' | 'X') | None)
    })
}

fn numbered(folder: &str) -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}
