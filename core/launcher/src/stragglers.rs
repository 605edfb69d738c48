//! Ends processes that ranks have started and left. This process has adopted them, and has no other children.

use std::time::{Duration, Instant};

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

/// Ends and reaps all children. Their children become this process's, and end, too.
pub(super) fn end_children(haste: Haste) {
    let start = Instant::now();
    let mut pause = Duration::from_micros(500);
    loop {
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
        // A process that the kernel cannot kill must not block the launcher.
        if start.elapsed() > 2 * GRACE {
            return;
        }
        for pid in children() {
            // Fails only if it has just ended.
            let _ = rustix::process::kill_process(pid, signal);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

fn children() -> Vec<Pid> {
    let own = std::process::id().to_string();
    let Ok(list) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    list.flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            descriptor::read_text(format!("/proc/{pid}/stat"))
                .ok()
                .and_then(|stat| {
                    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)? == own)
                })
                .unwrap_or(false)
        })
        .filter_map(Pid::from_raw)
        .collect()
}
