//! Two processes supervise a job. All processes that the ranks have started end with the job, even if one of the two is killed.
//!
//! The *keeper* is the process that starts a job. It forks the *launcher*, which is the parent of the ranks, and waits for it. Both are
//! subreapers. They adopt orphaned processes, in any session and process group. The launcher adopts them first, and the keeper if the
//! launcher has ended.
//!
//! When the keeper ends, its pipe closes, and the launcher kills all processes. When the launcher ends, the ranks die with it (PR_SET_PDEATHSIG), and the
//! keeper kills the remaining processes. If a user kills both at once, processes that ranks have started and not waited for stay alive.

use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use super::signals::{Inbox, ignore_broken_pipes, signal_name};
use super::stragglers::{Haste, end_children};
use unipgas_core::{Error, Result, descriptor, tell};

/// The launcher's end of the pipe. It is readable when the keeper has ended.
#[derive(Debug, Clone)]
pub struct Keeper(Arc<OwnedFd>);

impl AsFd for Keeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Runs `job` in a child process, and returns in both processes. In the child it returns the result of `job`, the child's exit status. In the caller it
/// returns the exit status of the child, or 128 + n for signal n. The process must have one thread only.
///
/// # Errors
/// [`Error::Os`] if the system cannot start a process. Nothing has been started then.
pub fn keep(job: impl FnOnce(Keeper) -> u8) -> Result<u8> {
    let (reader, writer) = pipe()?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|e| Error::os("cannot adopt the ranks' children (prctl)", e))?;
    // Before the fork, so that no signal is lost.
    let inbox = Inbox::open()?;
    let keeper = rustix::process::getpid();
    // SAFETY:
    // - contract of this function: the process has one thread, so no lock is held by a thread that the child lacks.
    match unsafe { libc::fork() } {
        ..0 => Err(Error::os(
            "cannot start the launcher (fork)",
            std::io::Error::last_os_error(),
        )),
        0 => {
            drop((inbox, writer));
            // `killall unipgas` finds only one of the two processes.
            let _ = rustix::thread::set_name(c"job-launcher");
            // A stopped launcher must wake up to notice the end of the keeper.
            let _ = rustix::process::set_parent_process_death_signal(Some(Signal::CONT));
            if rustix::process::getppid() != Some(keeper) {
                return Ok(1);
            }
            Ok(job(Keeper(Arc::new(reader))))
        }
        launcher => {
            drop(reader);
            let status = wait(Pid::from_raw(launcher), &inbox);
            // Children remain only if the launcher was killed.
            end_children(Haste::Kill);
            drop(writer);
            status
        }
    }
}

/// As [`keep`], for the part of a job on this host: prints an error, with status 2. The other end of the pipes may end first, so broken pipes are ignored.
pub fn keep_part<E: Display>(part: impl FnOnce(Keeper) -> std::result::Result<(), E>) -> ExitCode {
    ignore_broken_pipes();
    let failed = |error: &dyn Display| {
        tell(&error.to_string());
        2
    };
    let kept = keep(|keeper| part(keeper).map_or_else(|error| failed(&error), |()| 0));
    ExitCode::from(kept.unwrap_or_else(|error| failed(&error)))
}

fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let _reserved = descriptor::Reserved::take();
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|e| Error::os("cannot make a pipe", e))
}

/// Forwards signals until the launcher has ended. Returns its exit status.
fn wait(launcher: Option<Pid>, inbox: &Inbox) -> Result<u8> {
    let launcher = launcher.ok_or_else(|| Error::Os("fork gave no process".into()))?;
    let ended = descriptor::process(launcher)
        .map_err(|e| Error::os("cannot watch the launcher (pidfd_open)", e))?;
    loop {
        let mut fds = [
            PollFd::new(&ended, PollFlags::IN),
            PollFd::from_borrowed_fd(inbox.fd(), PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Error::os("cannot wait for the launcher (poll)", e)),
        }
        let has_ended = !fds[0].revents().is_empty();
        while let Some(arrived) = inbox.next() {
            // The terminal sends its signals to the launcher as well.
            if let (false, Some(signal)) = (
                arrived.from_terminal,
                Signal::from_named_raw(arrived.signal),
            ) {
                let _ = rustix::process::pidfd_send_signal(&ended, signal);
            }
        }
        if has_ended {
            break;
        }
    }
    let status = loop {
        match rustix::process::waitpid(Some(launcher), WaitOptions::empty()) {
            Ok(Some((_, status))) => break status,
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Error::os("cannot wait for the launcher (waitpid)", e)),
        }
    };
    Ok(told(status))
}

fn told(status: WaitStatus) -> u8 {
    if let Some(signal) = status.terminating_signal() {
        tell(&format!(
            "the launcher of the job was killed by signal {signal} ({}); killing the job",
            signal_name(signal)
        ));
        return u8::try_from(128 + signal).unwrap_or(1);
    }
    let code = status.exit_status().unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}
