//! Common parts of the tests with C programs.
#![allow(dead_code, reason = "each test uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

#[path = "../../../tests/c/mod.rs"]
pub mod c;
use c::{library, scratch};

/// A C compiler; `None`, with a message, where libfabric's headers or library are not installed.
pub fn compiler() -> Option<Command> {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    let name = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    if !INSTALLED.get_or_init(|| is_installed(&name)) {
        eprintln!("skipped: libfabric is not installed (Debian: libfabric-dev)");
        return None;
    }
    let mut command = Command::new(name);
    command.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1"]);
    // Depends on how much the compiler looks at.
    command.arg("-Wno-maybe-uninitialized");
    Some(command)
}

fn is_installed(compiler: &str) -> bool {
    let probe = scratch("probe.c");
    let text = "#include <rdma/fabric.h>\nint main(void) { return fi_version() == 0; }\n";
    std::fs::write(&probe, text).expect("scratch directory is writable");
    let mut command = Command::new(compiler);
    command.arg(&probe).arg("-o").arg(scratch("probe"));
    let found = command.arg("-lfabric").stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// A directory with the library under the name by which libfabric finds it.
pub fn providers() -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(make_providers).clone()
}

fn make_providers() -> PathBuf {
    let directory = scratch("providers");
    std::fs::create_dir_all(&directory).expect("scratch directory is writable");
    let link = directory.join("libunipgas-fi.so");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(library(), &link).expect("a link");
    directory
}

/// A program's environment: libfabric with this provider.
pub fn under(providers: &Path, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command
        .env("FI_PROVIDER_PATH", providers)
        // Another provider's handler of signals would keep a crashed program from ending.
        .env("IPATH_NO_BACKTRACE", "1");
    command
}

/// Waits for the end of a process, and kills it if that does not come.
pub fn end(child: &mut Child, limit: Duration) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        if start.elapsed() > limit {
            let _ = child.kill();
            let _ = child.wait();
            panic!("a process does not end within {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
