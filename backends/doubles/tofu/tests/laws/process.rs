//! Each test runs in a separate process, because the library reads the settings of the machine once in a process.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const ROLE: &str = "TOFU_DOUBLE_TEST_ROLE";

/// The library of unipgas.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("UNIPGAS_LIB").filter(|path| !path.is_empty()) {
            return path.into();
        }
        // Cargo builds the library beside this test. A separate build there would have other features, and would overwrite this one.
        let path = std::env::current_exe()
            .expect("this program has a path")
            .with_file_name("libunipgas_c.so");
        assert!(path.is_file(), "cargo has built {}", path.display());
        path
    })
}

/// Whether this is the separate process of a test.
pub fn is_inside() -> bool {
    std::env::var_os(ROLE).is_some()
}

/// The path of the test that passes this closure, in the test harness.
fn test_of<F>(_: &F) -> &'static str {
    let path = std::any::type_name::<F>();
    let (_, path) = path.split_once("::").unwrap();
    path.split("::{{closure}}").next().unwrap()
}

/// Runs the test `test` in a separate process, with a separate job.
pub fn again(test: &str, settings: &str, environment: &[(&str, &str)]) -> Output {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let job = format!(
        "double-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Relaxed)
    );
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, "alone")
        .env("UNIPGAS_JOB_NAME", job)
        .env("UNIPGAS_BACKEND", "shm")
        .env("TOFU_DOUBLE", settings)
        .env("TOFU_DOUBLE_LIBRARY", library())
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs the body of a test in a separate process.
pub fn alone(settings: &str, body: impl FnOnce()) {
    alone_with(settings, &[], body);
}

pub fn alone_with(settings: &str, environment: &[(&str, &str)], body: impl FnOnce()) {
    run(test_of(&body), settings, environment, body);
}

fn run(test: &str, settings: &str, environment: &[(&str, &str)], body: impl FnOnce()) {
    if is_inside() {
        return body();
    }
    let output = again(test, settings, environment);
    assert!(
        output.status.success(),
        "{test}: {}\n{}",
        output.status,
        said(&output)
    );
}

/// Runs a body that breaks a rule. The double must abort the process, after the line `line`.
pub fn dies(settings: &str, line: &str, body: impl FnOnce()) {
    let test = test_of(&body);
    if is_inside() {
        body();
        // The rule did not end the process. It ends normally, so the parent fails the test. A panic would not be an abort, either.
        return;
    }
    let output = again(test, settings, &[]);
    let said = said(&output);
    assert_eq!(
        output.status.signal(),
        Some(libc::SIGABRT),
        "{test}: {}\n{said}",
        output.status
    );
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("tofu_double: "))
        .collect();
    let [told] = lines[..] else {
        panic!("{test}: {said}");
    };
    assert!(told.contains(line), "{told}");
}
