//! A process that is stopped while others work on it: nothing of it runs, neither the program nor the engine's progress thread.

use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, getpid, kill_process};

use super::until_ok;
use crate::law::{Ctx, Verdict};

/// Long enough for others to fill their queues; nothing depends on it.
const A_WHILE: &str = "0.3";

/// Runs the script beside this process, its `$PPID`.
fn beside(script: &str) -> Result<Child, String> {
    Command::new("sh")
        .args(["-c", script])
        .stdin(Stdio::null())
        .spawn()
        .map_err(|e| format!("sh: {e}"))
}

fn stop() -> Verdict {
    kill_process(getpid(), Signal::STOP).map_err(|e| format!("SIGSTOP: {e}"))
}

/// Stops this process, which goes on after a while.
fn stop_for_a_while() -> Verdict {
    // Again and again: the first signal may come before the process has stopped.
    let script = format!("while sleep {A_WHILE}; do kill -CONT \"$PPID\" || exit; done");
    let mut other = beside(&script)?;
    let stopped = stop();
    let _ = other.kill();
    let _ = other.wait();
    stopped
}

/// The last rank stops for a while; the others go on.
pub(crate) fn last_stops_for_a_while(ctx: &Ctx) -> Verdict {
    match ctx.rank + 1 == ctx.size {
        true => stop_for_a_while(),
        false => Ok(()),
    }
}

/// Stops this process, which is killed after a while, in a law with [`Law::needs_kill`](crate::law::Law::needs_kill).
pub(crate) fn stop_until_killed(ctx: &Ctx) -> Verdict {
    ctx.may_die();
    let _killer = beside(&format!("sleep {A_WHILE}; kill -KILL \"$PPID\""))?;
    stop()?;
    Err("went on after SIGKILL".into())
}

/// Another process, which has stopped and goes on when it is woken.
pub(crate) struct Stopped(Pid);

impl Stopped {
    /// Stops this process, until another one wakes it.
    pub(crate) fn stop() -> Verdict {
        stop()
    }

    /// The process with this number, when it has stopped.
    pub(crate) fn of(pid: u64) -> Result<Self, String> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let process = number.ok_or_else(|| format!("no process has the number {pid}"))?;
        let file = format!("/proc/{pid}/stat");
        until_ok("the process to stop", || {
            let text = std::fs::read_to_string(&file).map_err(|e| format!("{file}: {e}"))?;
            // Behind the name, which may hold anything.
            let state = text
                .rsplit_once(") ")
                .map(|(_, rest)| rest.starts_with('T'));
            state.ok_or_else(|| format!("{file}: {text}"))
        })?;
        Ok(Stopped(process))
    }

    /// It goes on.
    pub(crate) fn wake(&self) -> Verdict {
        kill_process(self.0, Signal::CONT).map_err(|e| format!("SIGCONT: {e}"))
    }
}
