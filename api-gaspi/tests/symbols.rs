//! The shared library exports exactly the GASPI functions that symbols.txt lists (and, by the header tests, the headers declare).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(command: &mut Command, hint: &str) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{:?} does not start ({e}): {hint}", command.get_program()));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// The library that UNIPGAS_LIB names, or else the development one.
fn library() -> PathBuf {
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

/// Functions of the dynamic symbol table that begin as GASPI's do.
fn exported(library: &Path) -> BTreeSet<String> {
    let mut nm = Command::new("nm");
    nm.args(["--dynamic", "--defined-only", "--format=posix"])
        .arg(library);
    let output = run(&mut nm, "install binutils");
    let text = String::from_utf8(output.stdout).expect("symbols are text");
    text.lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (name, kind) = (words.next()?, words.next()?);
            let ours = name.starts_with("gaspi_") || name.starts_with("pgaspi_");
            (ours && matches!(kind, "T" | "W")).then(|| name.to_owned())
        })
        .collect()
}

fn listed() -> BTreeSet<String> {
    include_str!("../symbols.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn library_exports_what_is_listed() {
    let library = library();
    let (exported, listed) = (exported(&library), listed());
    let missing: Vec<&String> = listed.difference(&exported).collect();
    let extra: Vec<&String> = exported.difference(&listed).collect();
    assert!(
        missing.is_empty() && extra.is_empty(),
        "{}: missing: {missing:?}; not in symbols.txt: {extra:?}",
        library.display()
    );
}
