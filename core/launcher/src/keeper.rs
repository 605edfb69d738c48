//! Two processes see a job through, so that whatever the ranks have started ends with it though one of the two is killed.
//!
//! The *keeper* is the process that was asked to run a job. It forks the *launcher*, whose children the ranks are, and waits. Both
//! are subreapers: a process whose parent has ended becomes the launcher's child, and the keeper's if there is no launcher any more,
//! in whatever session and process group it is. When the keeper ends, the launcher finds their pipe closed and kills all; when the
//! launcher ends, the ranks die with it (PR_SET_PDEATHSIG), and the keeper kills what they leave. Who kills both at once is left with
//! what ranks have started and not waited for.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use super::signals::{Inbox, signal_name};
use super::stragglers::{Haste, end_children};
use unipgas_core::{Error, Result, descriptor, tell};

/// The launcher's end of the pipe: it is readable when the keeper has ended.
#[derive(Debug, Clone)]
pub struct Keeper(Arc<OwnedFd>);

impl AsFd for Keeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Carries `job` out in a child, and returns in both processes: in the child with what `job` gives, which is to be its exit status;
/// in this one with the child's, 128 + n for signal n. The process must have one thread only.
///
/// # Errors
/// [`Error::Os`] when the system refuses another process; nothing has been started then.
pub fn keep(job: impl FnOnce(Keeper) -> u8) -> Result<u8> {
    let (reader, writer) = pipe()?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|e| Error::os("cannot adopt the ranks' children (prctl)", e))?;
    // Before there is somebody to hand signals on to: none is lost.
    let inbox = Inbox::open()?;
    let keeper = rustix::process::getpid();
    // SAFETY:
    // - this process has one thread, so that the child is as whole as its parent.
    match unsafe { libc::fork() } {
        ..0 => Err(Error::os(
            "cannot start the launcher (fork)",
            std::io::Error::last_os_error(),
        )),
        0 => {
            drop((inbox, writer));
            // `killall unipgas` finds one of the two.
            let _ = rustix::thread::set_name(c"job-launcher");
            // A launcher that is stopped must find out, too.
            let _ = rustix::process::set_parent_process_death_signal(Some(Signal::CONT));
            if rustix::process::getppid() != Some(keeper) {
                return Ok(1);
            }
            Ok(job(Keeper(Arc::new(reader))))
        }
        launcher => {
            drop(reader);
            let status = wait(Pid::from_raw(launcher), &inbox);
            // None is there unless the launcher was killed.
            end_children(Haste::Kill);
            drop(writer);
            status
        }
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let _reserved = descriptor::Reserved::take();
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|e| Error::os("cannot make a pipe", e))
}

/// Hands signals on until the launcher has ended; its exit status.
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
            // The terminal sends them to the launcher as well.
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
