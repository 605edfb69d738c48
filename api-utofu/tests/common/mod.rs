//! What the tests of the header and of the exported symbols share.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Of this crate.
pub fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a tool to its end.
pub fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|e| {
        panic!(
            "{:?} does not start ({e}): install gcc, g++ and binutils, or set CC and CXX",
            command.get_program()
        )
    })
}

/// Runs a tool that must succeed; what it prints.
pub fn demand(command: &mut Command) -> String {
    let output = run(command);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("output is text")
}

/// The library that UNIPGAS_LIB names, or else the development one.
pub fn library() -> PathBuf {
    if let Some(path) = std::env::var_os("UNIPGAS_LIB").filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        assert!(
            path.is_file(),
            "UNIPGAS_LIB={} is no file: name a libunipgas.so by its full path",
            path.display()
        );
        return path;
    }
    // Cargo builds it beside what depends on it. A build of its own there would have other features, and take this one's place.
    let path = std::env::current_exe()
        .expect("this program has a path")
        .with_file_name("libunipgas_c.so");
    assert!(path.is_file(), "cargo has built {}", path.display());
    path
}

/// Names of functions that the header declares: those that begin as uTofu's do and stand before a parenthesis.
pub fn declared() -> BTreeSet<String> {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut preprocess = Command::new(compiler);
    preprocess
        .args(["-E", "-P", "-x", "c"])
        .arg(crate_dir().join("include/utofu.h"));
    let text = demand(&mut preprocess);
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut names = BTreeSet::new();
    let mut rest = text.as_str();
    while let Some(start) = rest.find(is_name) {
        rest = &rest[start..];
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        if word.starts_with("utofu_") && tail.trim_start().starts_with('(') {
            names.insert(word.to_owned());
        }
        rest = tail;
    }
    names
}
