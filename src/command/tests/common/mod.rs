//! Runs the command in tests, and checks its output.

#![allow(dead_code, reason = "each test uses a part")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A remote shell that runs all commands on this host.
pub const RSH: &str = "#!/bin/sh\nshift\nexec sh -c \"$*\"\n";

/// `unipgas` without unipgas variables from the environment of the test.
pub fn unipgas(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unipgas"));
    command.args(args).stdin(Stdio::null());
    for name in [
        "UNIPGAS_BACKEND",
        "UNIPGAS_LAUNCHER",
        "UNIPGAS_SEED",
        "UNIPGAS_TOFU_PPN",
        "UNIPGAS_TOFU_SHAPE",
    ] {
        command.env_remove(name);
    }
    command
}

/// Starts a command with pipes as standard input and output.
pub fn with_pipes(command: &mut Command) -> Child {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    piped.spawn().unwrap()
}

/// The words of a command line.
pub fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// The output of a command.
pub trait Said {
    fn out(&self) -> String;
    fn err(&self) -> String;
    /// Standard output of a command that must succeed.
    fn ok(&self) -> String;
    /// Standard error of a command that must end with this status.
    fn ends(&self, status: i32) -> String;
    /// Standard error of a command that must end with this status: one line, with this text.
    fn refuses(&self, status: i32, part: &str) -> String;
}

impl Said for Output {
    fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    #[track_caller]
    fn ok(&self) -> String {
        self.ends(0);
        self.out()
    }

    #[track_caller]
    fn ends(&self, status: i32) -> String {
        let (out, err) = (self.out(), self.err());
        assert_eq!(self.status.code(), Some(status), "{out}{err}");
        err
    }

    #[track_caller]
    fn refuses(&self, status: i32, part: &str) -> String {
        let text = self.ends(status);
        assert_eq!(text.lines().count(), 1, "{text}");
        has(&text, &[part]);
        text
    }
}

/// Fails unless the text has all these parts.
#[track_caller]
pub fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

/// The lines, sorted: ranks write in any order.
pub fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// A directory of a test. Drop deletes it.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path.canonicalize().unwrap())
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// Writes a program. Returns its path.
    pub fn script(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Both ends of a new terminal; `None` on machines without terminals.
pub fn terminal() -> Option<(std::fs::File, std::fs::File)> {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let Ok(ours) = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY) else {
        eprintln!("left out: this machine has no terminals (/dev/ptmx)");
        return None;
    };
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let its = std::fs::File::options()
        .write(true)
        .open(name.to_str().unwrap());
    Some((ours.into(), its.unwrap()))
}
