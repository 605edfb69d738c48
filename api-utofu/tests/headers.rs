//! The C header as a contract. It compiles alone as C and C++. Its layout and values agree with compiled programs. All functions have
//! their specified type, in the header and in the library.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

mod common;
use common::c::{
    STANDARDS, accepted, alone, compile, crate_dir, demand, library, link, run, scratch,
};
use common::{FUNCTIONS, compiler, declared};

/// A source of tests/headers.
fn source(name: &str) -> PathBuf {
    crate_dir("api-utofu").join("tests/headers").join(name)
}

#[test]
fn the_header_compiles_alone() {
    alone("utofu.h", STANDARDS.map(compiler));
}

#[test]
fn there_is_one_header_and_one_for_mpi() {
    let files = |folder: &str| {
        let mut found: Vec<_> = fs::read_dir(crate_dir("api-utofu").join(folder))
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
    for standard in STANDARDS {
        accepted(&mut compiler(standard), &source("layout.c"));
    }
}

/// Checks that accept anything would pass the tests above. So each of these changes must fail.
#[test]
fn a_changed_header_is_noticed() {
    let text = fs::read_to_string(crate_dir("api-utofu").join("include/utofu.h")).expect("utofu.h");
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
        let standard = if *name == "linkage.cpp" {
            "c++11"
        } else {
            "c11"
        };
        // Its include guard excludes the right header.
        let mut compiler = compiler(standard);
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
    accepted(&mut compiler("c++11"), &source("linkage.cpp"));
    declared();
}

#[test]
fn the_library_has_every_function() {
    let library = library();
    // Programs look for the soname; the built file has another name.
    let directory = scratch("lib");
    fs::create_dir_all(&directory).expect("scratch directory is writable");
    let named = directory.join("libunipgas.so.0");
    let _ = fs::remove_file(&named);
    std::os::unix::fs::symlink(&library, &named).expect("scratch directory is writable");
    for standard in STANDARDS {
        let name = format!("prototypes-{standard}");
        let object = compile(
            &mut compiler(standard),
            &source("prototypes.c"),
            &format!("{name}.o"),
        );
        let program = link(&[&object, &library], &name);
        let said = demand(Command::new(&program).env("LD_LIBRARY_PATH", &directory));
        assert_eq!(said.trim(), format!("{FUNCTIONS} functions"), "{standard}");
    }
}
