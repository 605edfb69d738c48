//! The C header as a contract: it compiles alone as C and C++, its layout and values are those that programs were compiled with, and
//! every function has the type that it must have, by name and in the library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

mod common;
use common::{crate_dir, declared, demand, library, run};

const STRICT: &[&str] = &["-Wall", "-Wextra", "-Werror", "-pedantic", "-O2"];
const LANGUAGES: [Language; 3] = [Language::C99, Language::C11, Language::Cxx11];
/// Those of the guide, utofu_query_num_unread_mrq and utofu_get_last_error.
const FUNCTIONS: usize = 66;

/// A language and the standards that must do.
#[derive(Clone, Copy, Debug)]
enum Language {
    C99,
    C11,
    Cxx11,
}

impl Language {
    /// The compiler, strict, with the header's directory.
    fn command(self) -> Command {
        let (variable, default, standard, name) = match self {
            Language::C99 => ("CC", "cc", "c99", "c"),
            Language::C11 => ("CC", "cc", "c11", "c"),
            Language::Cxx11 => ("CXX", "c++", "c++11", "c++"),
        };
        let compiler = std::env::var(variable).unwrap_or_else(|_| default.to_owned());
        let mut command = Command::new(compiler);
        command.arg(format!("-std={standard}")).args(STRICT);
        command
            .arg("-I")
            .arg(crate_dir().join("include"))
            .args(["-x", name]);
        command
    }
}

/// A source of tests/headers.
fn source(name: &str) -> PathBuf {
    crate_dir().join("tests/headers").join(name)
}

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("utofu-headers-{name}"))
}

fn write(name: &str, text: &str) -> PathBuf {
    let path = scratch(name);
    fs::write(&path, text).expect("scratch directory is writable");
    path
}

#[test]
fn the_header_compiles_alone() {
    // Twice, for the guard; the declaration keeps strict C from finding the unit empty.
    let path = write(
        "alone.in",
        "#include <utofu.h>\n#include <utofu.h>\nextern int not_empty;\n",
    );
    for language in LANGUAGES {
        demand(language.command().arg("-fsyntax-only").arg(&path));
    }
}

#[test]
fn there_is_one_header_and_one_for_mpi() {
    let files = |folder: &str| {
        let mut found: Vec<_> = fs::read_dir(crate_dir().join(folder))
            .expect("include directory")
            .map(|entry| entry.expect("entry").file_name())
            .collect();
        found.sort();
        found
    };
    assert_eq!(files("include"), ["fjmpi", "utofu.h"]);
    assert_eq!(files("include/fjmpi"), ["mpi-ext.h"]);
}

#[test]
fn layout_and_values() {
    for language in LANGUAGES {
        demand(
            language
                .command()
                .arg("-fsyntax-only")
                .arg(source("layout.c")),
        );
    }
}

/// A contract that accepts anything would pass above: each of these changes must be noticed.
#[test]
fn a_changed_header_is_noticed() {
    let text = fs::read_to_string(crate_dir().join("include/utofu.h")).expect("utofu.h");
    let changes = [
        ("layout.c", "UTOFU_ERR_NOT_FOUND", "= -1", "= -2"),
        (
            "layout.c",
            "typedef",
            "uint16_t  utofu_tni_id_t",
            "int16_t  utofu_tni_id_t",
        ),
        (
            "layout.c",
            "uint8_t",
            "dst_path_coords[3]",
            "dst_path_coords[9]",
        ),
        (
            "prototypes.c",
            "utofu_nop",
            "unsigned long int flags",
            "unsigned int flags",
        ),
        (
            "linkage.cpp",
            "utofu_nop",
            "unsigned long int flags",
            "unsigned int flags",
        ),
    ];
    for (index, (name, after, from, to)) in changes.iter().enumerate() {
        let start = text
            .find(after)
            .unwrap_or_else(|| panic!("{after} is gone"));
        let at = start
            + text[start..]
                .find(from)
                .unwrap_or_else(|| panic!("{from} after {after} is gone"));
        let changed = [&text[..at], to, &text[at + from.len()..]].concat();
        let dir = scratch(&format!("changed-{index}"));
        fs::create_dir_all(&dir).expect("scratch directory is writable");
        fs::write(dir.join("utofu.h"), changed).expect("scratch directory is writable");
        let language = match *name {
            "linkage.cpp" => Language::Cxx11,
            _ => Language::C11,
        };
        // Its guard keeps the right one away.
        let mut compiler = language.command();
        compiler
            .arg("-fsyntax-only")
            .arg("-include")
            .arg(dir.join("utofu.h"))
            .arg(source(name));
        assert!(
            !run(&mut compiler).status.success(),
            "{name} does not notice {to:?} for {from:?}"
        );
    }
}

#[test]
fn declarations_agree_with_the_basic_types() {
    demand(
        Language::Cxx11
            .command()
            .arg("-fsyntax-only")
            .arg(source("linkage.cpp")),
    );
    assert_eq!(declared().len(), FUNCTIONS, "{:?}", declared());
}

#[test]
fn the_library_has_every_function() {
    let library = library();
    // Programs look for the soname, which a file that has just been built does not bear.
    let directory = scratch("lib");
    fs::create_dir_all(&directory).expect("scratch directory is writable");
    let named = directory.join("libunipgas.so.0");
    let _ = fs::remove_file(&named);
    std::os::unix::fs::symlink(&library, &named).expect("scratch directory is writable");
    for language in LANGUAGES {
        let object = scratch(&format!("prototypes-{language:?}.o"));
        let program = scratch(&format!("prototypes-{language:?}"));
        demand(
            language
                .command()
                .arg("-c")
                .arg(source("prototypes.c"))
                .arg("-o")
                .arg(&object),
        );
        // By the linker of C++, for objects of both languages.
        let mut link = Command::new(Language::Cxx11.command().get_program());
        demand(link.arg(&object).arg(&library).arg("-o").arg(&program));
        let said = demand(Command::new(&program).env("LD_LIBRARY_PATH", &directory));
        assert_eq!(
            said.trim(),
            format!("{FUNCTIONS} functions"),
            "{language:?}"
        );
    }
}
