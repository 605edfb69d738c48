//! What the tests share: compilers, the library, the command, and what the headers declare.

#![allow(dead_code, reason = "not every test uses everything")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Of the interface's crate. The command's tests share this file.
pub fn crate_dir() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = own.ancestors().map(|folder| folder.join("api-ircce"));
    found
        .into_iter()
        .find(|folder| folder.is_dir())
        .expect("the crates lie together")
}

/// A file or directory of the tests.
pub fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ircce-{name}"))
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
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("output is text")
}

/// The C compiler with the headers' directory.
pub fn compiler() -> Command {
    let mut command = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
    command.arg("-I").arg(crate_dir().join("include"));
    command
}

/// A file of the development library. Cargo builds both beside what depends on it; a build of its own there would have other features, and
/// take this one's place.
pub fn built(name: &str) -> PathBuf {
    let path = std::env::current_exe()
        .expect("this program has a path")
        .with_file_name(name);
    assert!(path.is_file(), "cargo has built {}", path.display());
    path
}

/// The library that UNIPGAS_LIB names, or else the development one.
pub fn library() -> PathBuf {
    let Some(path) = std::env::var_os("UNIPGAS_LIB").filter(|path| !path.is_empty()) else {
        return built("libunipgas_c.so");
    };
    let path = PathBuf::from(path);
    assert!(
        path.is_file(),
        "UNIPGAS_LIB={} is no file: name a libunipgas.so by its full path",
        path.display()
    );
    path
}

/// Names that the headers declare, or bind to others by an assembler name: those that begin as RCCE's do and stand before a
/// parenthesis, as programs of the simple interface see them or as GORY ones do.
pub fn declared(gory: bool) -> BTreeSet<String> {
    let mut preprocess = compiler();
    preprocess.args([
        "-E",
        "-P",
        "-DRC_POWER_MANAGEMENT",
        "-DUNIPGAS_IRCCE_NO_SIZES",
        "-x",
        "c",
    ]);
    if gory {
        preprocess.arg("-DGORY");
    }
    let all = crate_dir().join("include/iRCCE.h");
    let more = crate_dir().join("include/iRCCE_lib.h");
    let text = demand(preprocess.arg("-include").arg(all).arg(more));
    let mut names = BTreeSet::new();
    for declaration in text.split(';') {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name = declaration.split_once('(').map(|(before, _)| {
            before
                .trim_end()
                .rsplit(|c| !is_name(c))
                .next()
                .unwrap_or_default()
        });
        let bound = declaration
            .split_once("__asm__(\"")
            .and_then(|(_, rest)| rest.split_once('"'));
        let name = bound.map(|(name, _)| name).or(name).unwrap_or_default();
        if ["RCCE_", "iRCCE_", "RC_"]
            .iter()
            .any(|begin| name.starts_with(begin))
        {
            names.insert(name.to_owned());
        }
    }
    names
}
