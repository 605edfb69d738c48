//! Compilers, the C library and its symbols, for the tests of the C interfaces.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Standards that each header must do with.
pub const STANDARDS: [&str; 3] = ["c99", "c11", "c++11"];

/// The folder of an interface's crate.
pub fn crate_dir(name: &str) -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = own.ancestors().map(|folder| folder.join(name));
    found
        .into_iter()
        .find(|folder| folder.is_dir())
        .expect("the crates lie together")
}

/// A file or directory of this test.
pub fn scratch(name: &str) -> PathBuf {
    let test = concat!(env!("CARGO_PKG_NAME"), "-", env!("CARGO_CRATE_NAME"));
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{name}"))
}

/// A scratch file with a text.
pub fn write(name: &str, text: &str) -> PathBuf {
    let path = scratch(name);
    std::fs::write(&path, text).expect("scratch directory is writable");
    path
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

/// Runs a tool that must succeed; its output.
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

/// The strict compiler of a standard.
pub fn strict(standard: &str) -> Command {
    let (variable, default, language) = match standard.contains("++") {
        true => ("CXX", "c++", "c++"),
        false => ("CC", "cc", "c"),
    };
    let program = std::env::var(variable).unwrap_or_else(|_| default.to_owned());
    let mut command = Command::new(program);
    command.arg(format!("-std={standard}"));
    command.args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-O2"]);
    command.args(["-x", language]);
    command
}

/// The strict compiler of a standard, with the headers of an interface.
pub fn compiler(interface: &str, standard: &str) -> Command {
    let mut command = strict(standard);
    command.arg("-I").arg(crate_dir(interface).join("include"));
    command
}

/// Compiles a source with the compiler; the object.
pub fn compile(compiler: &mut Command, source: &Path, object: &str) -> PathBuf {
    let object = scratch(object);
    demand(compiler.arg("-c").arg(source).arg("-o").arg(&object));
    object
}

/// Links objects of C and C++ to a program.
pub fn link(objects: &[&Path], program: &str) -> PathBuf {
    let program = scratch(program);
    let mut link = Command::new(strict("c++11").get_program());
    demand(link.args(objects).arg("-o").arg(&program));
    program
}

/// Demands that the compiler accepts the syntax of a source.
pub fn accepted(compiler: &mut Command, source: &Path) {
    demand(compiler.arg("-fsyntax-only").arg(source));
}

/// Demands that a header compiles alone with each compiler.
pub fn alone(header: &str, compilers: impl IntoIterator<Item = Command>) {
    // Twice, for the guard; the declaration keeps strict C from finding the unit empty.
    let text = format!("#include <{header}>\n#include <{header}>\nextern int not_empty;\n");
    let path = write(&format!("alone-{header}.in"), &text);
    for mut compiler in compilers {
        accepted(&mut compiler, &path);
    }
}

/// A file of the development library. Cargo builds it beside what depends on it; a build of its own there would have other features, and take this
/// one's place.
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

/// The words of a C text, each with `(` behind it or not, that `is_name` accepts.
pub fn names(text: &str, is_name: impl Fn(&str, bool) -> bool) -> BTreeSet<String> {
    let in_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut names = BTreeSet::new();
    let mut rest = text;
    while let Some(start) = rest.find(in_word) {
        rest = &rest[start..];
        let end = rest.find(|c| !in_word(c)).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        if is_name(word, tail.trim_start().starts_with('(')) {
            names.insert(word.to_owned());
        }
        rest = tail;
    }
    names
}

/// Name, kind and size of each symbol with one of these prefixes that the library exports.
fn exported(prefixes: &[&str]) -> Vec<(String, String, usize)> {
    let mut nm = Command::new("nm");
    nm.args(["--dynamic", "--defined-only", "--format=posix"]);
    let text = demand(nm.arg(library()));
    let symbol = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next()?;
        let kind = words.next()?.to_owned();
        let size = usize::from_str_radix(words.nth(1).unwrap_or("0"), 16).ok()?;
        let ours = prefixes.iter().any(|prefix| name.starts_with(prefix));
        ours.then(|| (name.to_owned(), kind, size))
    };
    text.lines().filter_map(symbol).collect()
}

/// Demands that the library exports these functions, and no others with these prefixes. Returns its variables with their sizes.
pub fn exports(declared: &BTreeSet<String>, prefixes: &[&str]) -> Vec<(String, usize)> {
    let (functions, variables): (Vec<_>, Vec<_>) = exported(prefixes)
        .into_iter()
        .partition(|(_, kind, _)| matches!(kind.as_str(), "T" | "W"));
    let functions: BTreeSet<String> = functions.into_iter().map(|(name, ..)| name).collect();
    let missing: Vec<&String> = declared.difference(&functions).collect();
    let extra: Vec<&String> = functions.difference(declared).collect();
    assert!(
        missing.is_empty() && extra.is_empty(),
        "{}: missing: {missing:?}; not declared: {extra:?}",
        library().display()
    );
    let sized = variables.into_iter().map(|(name, _, size)| (name, size));
    sized.collect()
}
