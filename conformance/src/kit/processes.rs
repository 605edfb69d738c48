//! Processes that laws start themselves: children that have called nothing of the library.

use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use crate::kit::Memory;
use crate::law::Verdict;
use crate::{ensure, ensure_eq};

/// A child under way.
pub(crate) struct Child {
    pub(crate) pid: i32,
    stderr: OwnedFd,
}

impl Child {
    /// Runs the body in a child, with changes of the environment; a body that fails says why on standard error.
    pub(crate) fn start(
        environment: &[(&str, &str)],
        body: impl FnOnce() -> Verdict,
    ) -> Result<Child, String> {
        let mut ends = [0; 2];
        // SAFETY:
        // - room for two descriptors, which have no other owner.
        let (read, write) = unsafe {
            ensure_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0, "a pipe");
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        };
        // SAFETY:
        // - the child ends by exit, and until then is one thread that uses what is its own.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            for (name, value) in environment {
                // SAFETY:
                // - the only thread.
                unsafe { std::env::set_var(name, value) };
            }
            if environment.iter().any(|(name, _)| *name == "UNIPGAS_JOB") {
                // A job of the law's own plays no hosts.
                // SAFETY:
                // - as above.
                unsafe { std::env::remove_var("UNIPGAS_TEST_HOSTS") };
            }
            // SAFETY:
            // - the arguments are numbers; the alarm is the child's.
            unsafe {
                libc::dup2(write.as_raw_fd(), 2);
                libc::alarm(300);
                // Laws may kill the parent's launcher, with which the parent ends.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            }
            let verdict = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            let status = match verdict {
                Ok(Ok(())) => 0,
                Ok(Err(text)) => {
                    eprintln!("{text}");
                    77
                }
                Err(_) => 78,
            };
            // SAFETY:
            // - handlers of the library run as at every end of a program.
            unsafe { libc::exit(status) };
        }
        ensure!(pid > 0, "no child process");
        Ok(Child { pid, stderr: read })
    }

    /// Kills the child with SIGKILL.
    pub(crate) fn kill(&self) {
        // SAFETY:
        // - an own child that has not been waited for.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
    }

    /// The status of waitpid, and what was written to standard error.
    pub(crate) fn end(self) -> Result<(i32, String), String> {
        let mut text = String::new();
        let read = std::fs::File::from(self.stderr).read_to_string(&mut text);
        read.map_err(|e| format!("reading what a child says: {e}"))?;
        let mut status = 0;
        // SAFETY:
        // - a place for the status of an own child.
        let waited = unsafe { libc::waitpid(self.pid, &mut status, 0) };
        ensure_eq!(waited, self.pid, "the child");
        Ok((status, text))
    }

    /// The child must end with status 0 and print nothing to standard error.
    pub(crate) fn succeeds(self, what: &str) -> Verdict {
        let ended = self.end()?;
        ensure!(ended == (0, String::new()), "{what}: {ended:?}");
        Ok(())
    }
}

/// Runs the body in a child, which must end with status 0 and print nothing to standard error.
pub(crate) fn program(
    environment: &[(&str, &str)],
    what: &str,
    body: impl FnOnce() -> Verdict,
) -> Verdict {
    Child::start(environment, body)?.succeeds(what)
}

/// Runs the body in a child and waits for its end.
pub(crate) fn child(
    environment: &[(&str, &str)],
    body: impl FnOnce() -> Verdict,
) -> Result<(i32, String), String> {
    Child::start(environment, body)?.end()
}

/// Words that this process shares with the children that it starts afterwards. They stay as long as the process.
pub(crate) fn shared_words(number: usize) -> Result<&'static [AtomicU64], String> {
    let memory = Memory::shared(8 * number)?;
    // SAFETY:
    // - a page-aligned mapping of `number` zeroed words, which is never unmapped; all accesses are atomic.
    Ok(unsafe { std::slice::from_raw_parts(memory.base.cast(), number) })
}
