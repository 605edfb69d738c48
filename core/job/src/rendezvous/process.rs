//! Identity and liveness of processes.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::job::board::process_start_time;
use unipgas_base::process::has_no_threads;
use unipgas_base::{Result, random::random};

/// A unique process. The system reuses pids, but not the pair of pid and start time. `image` distinguishes programs that one process runs one after the other
/// by exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub pid: u32,
    pub start: u64,
    pub image: u64,
}

impl Process {
    /// This process.
    pub(crate) fn this() -> Result<Self> {
        static IMAGE: AtomicU64 = AtomicU64::new(0);
        if IMAGE.load(Ordering::Relaxed) == 0 {
            let drawn = u64::from_ne_bytes(random()?) | 1;
            // If threads draw at once, the first stored number counts.
            let _ = IMAGE.compare_exchange(0, drawn, Ordering::Relaxed, Ordering::Relaxed);
        }
        let pid = std::process::id();
        Ok(Process {
            pid,
            start: process_start_time(pid)?,
            image: IMAGE.load(Ordering::Relaxed),
        })
    }

    /// Whether it still runs the same program. Only the process itself can detect an exec.
    pub(crate) fn lives(&self, me: &Process) -> bool {
        if (self.pid, self.start) == (me.pid, me.start) {
            return self.image == me.image;
        }
        match process_start_time(self.pid) {
            Ok(start) => start == self.start,
            // There is no such process, its main thread has ended, or /proc is not readable. Other threads may still run.
            Err(_) => !has_no_threads(self.pid),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};
    use unipgas_base::descriptor;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "starts a process")]
    fn a_process_lives_until_all_its_threads_have_ended() {
        let me = Process::this().unwrap();
        assert!(me.lives(&me));
        let before_exec = Process {
            image: me.image ^ 2,
            ..me
        };
        assert!(!before_exec.lives(&me));
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let other = Process {
            pid: child.id(),
            start: process_start_time(child.id()).unwrap(),
            image: 1,
        };
        assert!(other.lives(&me));
        assert!(
            !Process {
                start: other.start + 1,
                ..other
            }
            .lives(&me)
        );
        child.kill().unwrap();
        let pidfd = descriptor::process(rustix::process::Pid::from_child(&child)).unwrap();
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).unwrap();
        assert!(!other.lives(&me), "a zombie does not live");
        child.wait().unwrap();
        assert!(!other.lives(&me));
    }
}
