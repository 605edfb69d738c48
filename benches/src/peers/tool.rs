//! Runs other programs with a time limit, and ends all their processes.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use unipgas_core::stop::Stop;

/// A started program, with threads that collect its output. Dropping it ends its process group, if the leader still runs.
pub(crate) struct Running {
    child: Child,
    out: Option<JoinHandle<String>>,
    err: Option<JoinHandle<String>>,
    start: Instant,
}

/// The end of a program.
pub(crate) struct ProgramOutput {
    /// `None` if this program ended it.
    pub status: Option<ExitStatus>,
    /// Its stdout.
    pub out: String,
    /// Its stderr.
    pub err: String,
}

impl ProgramOutput {
    /// Whether it exited by itself with status 0.
    pub fn success(&self) -> bool {
        self.status.is_some_and(|s| s.success())
    }

    /// The exit status in words.
    pub fn how(&self) -> String {
        match self.status {
            None => "did not end in time".to_string(),
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("exit status {code}"),
                (None, Some(signal)) => format!("signal {signal}"),
                (None, None) => "unknown end".into(),
            },
        }
    }

    /// One line about a failure.
    pub fn why(&self) -> String {
        let how = self.how();
        let text = format!("{}\n{}", self.err, self.out);
        let line = text
            .lines()
            .map(str::trim)
            .find(|l| l.len() > 3 && !l.starts_with(['-', '=', '*', '+', '|']));
        line.map_or(how.clone(), |l| {
            format!("{how}: {}", l.chars().take(160).collect::<String>())
        })
    }
}

/// Whether `name` is a program in PATH.
pub fn exists(name: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(name).is_file()))
}

/// Starts `command` in its own process group.
pub fn start(command: &mut Command) -> Result<Running, String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    // SAFETY:
    // - prctl and pthread_sigmask are async-signal-safe and allocate nothing
    unsafe {
        command.pre_exec(|| {
            Stop::let_through();
            rustix::process::set_parent_process_death_signal(Some(Signal::TERM)).map_err(Into::into)
        });
    }
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command.spawn().map_err(|e| format!("{name}: {e}"))?;
    let (out, err) = (
        child.stdout.take().map(collect),
        child.stderr.take().map(collect),
    );
    Ok(Running {
        child,
        out,
        err,
        start: Instant::now(),
    })
}

/// Runs `command` until it ends, or until `limit`.
pub fn run(command: &mut Command, limit: Duration) -> Result<ProgramOutput, String> {
    Ok(start(command)?.end(limit))
}

fn collect(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // After an error, the bytes read so far are the output.
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Running {
    /// Waits until the program ends, until `limit` after its start, or until a signal asks this program to stop. Then it ends the rest of the group.
    pub fn end(mut self, limit: Duration) -> ProgramOutput {
        let mut status = None;
        while status.is_none() && self.start.elapsed() < limit && !Stop::is_pending() {
            match self.child.try_wait() {
                Ok(Some(ended)) => status = Some(ended),
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                Err(_) => break,
            }
        }
        self.stop();
        let text = |handle: Option<JoinHandle<String>>| {
            handle.and_then(|h| h.join().ok()).unwrap_or_default()
        };
        ProgramOutput {
            status,
            out: text(self.out.take()),
            err: text(self.err.take()),
        }
    }

    /// Ends the rest of the group. The leader gets SIGTERM and up to 1 s, so that a launcher ends and cleans up its processes. Then the group gets
    /// SIGKILL.
    fn stop(&mut self) {
        let Some(group) = Pid::from_raw(self.child.id() as i32) else {
            return;
        };
        let mut patience = 100;
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(group, Signal::TERM);
        }
        while patience > 0 && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
            patience -= 1;
        }
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_end_is_ended_with_its_children() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 1000 & echo $!; wait"]);
        let ended = run(&mut shell, Duration::from_millis(300)).expect("sh starts");
        assert!(ended.status.is_none());
        let child: i32 = ended.out.trim().parse().expect("the process id of sleep");
        let gone = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat"));
            stat.map_or(true, |s| s.contains(") Z "))
        });
        assert!(gone, "sleep lives on");
    }

    #[test]
    fn a_failure_is_told_in_one_line() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo -----; echo it broke >&2; exit 3"]);
        let ended = run(&mut shell, Duration::from_secs(10)).expect("sh starts");
        assert!(!ended.success());
        assert_eq!(ended.why(), "exit status 3: it broke");
    }
}
