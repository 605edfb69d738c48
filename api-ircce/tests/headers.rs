//! The C headers as a contract: they compile alone in C and C++, in either interface, and layout and values are those that programs
//! were compiled with.

use std::path::PathBuf;
use std::process::Command;

mod common;
use common::{crate_dir, demand, run, scratch};

const STRICT: &[&str] = &["-Wall", "-Wextra", "-Werror", "-pedantic", "-O2"];
const STANDARDS: [(&str, &str); 6] = [
    ("c", "c89"),
    ("c", "c99"),
    ("c", "gnu11"),
    ("c", "gnu17"),
    ("c++", "c++11"),
    ("c++", "c++17"),
];
const WAYS: [&[&str]; 5] = [
    &[],
    &["-DGORY"],
    &["-DRC_POWER_MANAGEMENT"],
    &["-fopenmp"],
    &["-DUNIPGAS_IRCCE_NO_SIZES", "-DAIR"],
];

fn compiler(language: &str, standard: &str) -> Command {
    let (variable, default) = match language {
        "c" => ("CC", "cc"),
        _ => ("CXX", "c++"),
    };
    let program = std::env::var(variable).unwrap_or_else(|_| default.to_owned());
    let mut command = Command::new(program);
    command
        .arg(format!("-std={standard}"))
        .args(STRICT)
        .arg("-I")
        .arg(crate_dir().join("include"))
        .args(["-x", language]);
    command
}

fn source(name: &str) -> PathBuf {
    crate_dir().join("tests/headers").join(name)
}

#[test]
fn each_header_compiles_alone() {
    for header in ["RCCE.h", "RCCE_lib.h", "iRCCE.h", "iRCCE_lib.h"] {
        // Twice, for the guard.
        let text = format!("#include <{header}>\n#include <{header}>\nextern int not_empty;\n");
        let path = scratch(&format!("alone-{header}"));
        std::fs::write(&path, text).unwrap();
        for (language, standard) in STANDARDS {
            for way in WAYS {
                demand(
                    compiler(language, standard)
                        .args(way)
                        .arg("-fsyntax-only")
                        .arg(&path),
                );
            }
        }
    }
}

#[test]
fn layout_and_values() {
    for (language, standard) in STANDARDS {
        for way in WAYS {
            demand(
                compiler(language, standard)
                    .args(way)
                    .arg("-fsyntax-only")
                    .arg(source("layout.c")),
            );
        }
    }
}

/// A contract that accepts anything would pass above: each of these changes must be noticed.
#[test]
fn a_changed_header_is_noticed() {
    for (header, from, to) in [
        (
            "RCCE.h",
            "#define RCCE_ERROR_BASE 1234321",
            "#define RCCE_ERROR_BASE 1234320",
        ),
        ("RCCE.h", "  int my_rank; ", "  long my_rank; "),
        (
            "RCCE.h",
            "RCCE_INT RCCE_TYPE_BASE",
            "RCCE_INT (RCCE_TYPE_BASE + 1)",
        ),
        (
            "RCCE.h",
            "int RCCE_comm_size(RCCE_COMM comm",
            "int RCCE_comm_size(RCCE_COMM *comm",
        ),
        (
            "RCCE_requests.h",
            "  int source;\n  int sync;",
            "  int sync;\n  int source;",
        ),
        (
            "iRCCE.h",
            "#define iRCCE_PENDING (-2)",
            "#define iRCCE_PENDING (-1)",
        ),
        (
            "iRCCE.h",
            "iRCCE_isend(char *buffer, ssize_t",
            "iRCCE_isend(char *buffer, int",
        ),
        ("iRCCE.h", "#define iRCCE_memcpy iRCCE_memcpy_put", ""),
    ] {
        let directory = scratch("changed");
        std::fs::create_dir_all(&directory).unwrap();
        for name in ["RCCE.h", "RCCE_lib.h", "RCCE_requests.h", "iRCCE.h"] {
            let mut text = std::fs::read_to_string(crate_dir().join("include").join(name)).unwrap();
            if name == header {
                assert!(text.contains(from), "{from} is gone");
                text = text.replace(from, to);
            }
            std::fs::write(directory.join(name), text).unwrap();
        }
        let mut changed = Command::new(compiler("c", "c99").get_program());
        changed
            .args(["-std=c99", "-Werror", "-fsyntax-only", "-x", "c", "-I"])
            .arg(&directory)
            .arg(source("layout.c"));
        assert!(
            !run(&mut changed).status.success(),
            "{to:?} for {from:?} is not noticed"
        );
    }
}

/// What a program calls reaches the library under the name that fits its interface.
#[test]
fn names_in_the_library() {
    let symbols = |way: &[&str]| {
        let object = scratch(&format!("names{}.o", way.concat()));
        demand(
            compiler("c", "c99")
                .args(way)
                .arg("-c")
                .arg(source("names.c"))
                .arg("-o")
                .arg(&object),
        );
        demand(
            Command::new("nm")
                .args(["--undefined-only", "--format=posix"])
                .arg(&object),
        )
    };
    let has = |text: &str, name: &str| {
        text.lines()
            .any(|line| line.split(' ').next() == Some(name))
    };
    let (simple, gory) = (symbols(&[]), symbols(&["-DGORY"]));
    for name in ["RCCE_send", "RCCE_recv", "RCCE_recv_test"] {
        assert!(has(&simple, name), "{simple}");
        assert!(
            has(&gory, &format!("{name}_gory")) && !has(&gory, name),
            "{gory}"
        );
    }
    assert!(
        has(&simple, "iRCCE_irecv_within") && has(&simple, "iRCCE_srecv_within"),
        "{simple}"
    );
    let plain = symbols(&["-DUNIPGAS_IRCCE_NO_SIZES"]);
    assert!(
        has(&plain, "iRCCE_irecv") && !has(&plain, "iRCCE_irecv_within"),
        "{plain}"
    );
}

/// A call of the other interface gets one error, with the remedy; own declarations and pointers compile.
#[test]
fn calls_of_the_other_interface() {
    let simple = "RCCE_send(b, 32, 1); RCCE_recv(b, 32, 1); RCCE_recv_test(b, 32, 1, &n);";
    let gory = "RCCE_send(b, m, 32, &f, &f, 32, 1); RCCE_recv(b, m, 32, &f, &f, 32, 1); \
                RCCE_recv_test(b, m, 32, &f, &f, 32, 1, &n);";
    for (way, own, other, remedy) in [
        (&[][..], simple, gory, "compile with -DGORY"),
        (&["-DGORY"], gory, simple, "compile without -DGORY"),
    ] {
        for standard in ["c99", "gnu11", "gnu17"] {
            let compile = |calls: &str| {
                let (path, object) = (scratch("other.c"), scratch("other.o"));
                let text = format!(
                    "#include <RCCE.h>\n\
                     extern int RCCE_recv(); int (*const pointer)() = RCCE_send;\n\
                     void use(char *b, t_vcharp m, RCCE_FLAG f);\n\
                     void use(char *b, t_vcharp m, RCCE_FLAG f) {{ int n; {calls} (void)m; (void)f; (void)n; }}\n"
                );
                std::fs::write(&path, text).unwrap();
                let mut command = compiler("c", standard);
                command.args(way).args(["-Wno-strict-prototypes", "-c"]);
                run(command.arg(&path).arg("-o").arg(&object))
            };
            assert!(compile(own).status.success());
            let refused = compile(other);
            let text = String::from_utf8_lossy(&refused.stderr);
            let errors: Vec<_> = text
                .lines()
                .filter(|line| line.contains("error:"))
                .collect();
            let clear = errors.iter().filter(|line| line.contains(remedy));
            assert_eq!((errors.len(), clear.count()), (3, 3), "{text}");
        }
    }
}

/// C++ programs that declare functions of the library themselves mean those of C.
#[test]
fn declarations_of_cxx_programs() {
    let (path, object) = (scratch("own.cc"), scratch("own.o"));
    std::fs::write(
        &path,
        "#include <RCCE.h>\n\
         extern t_vcharp RCCE_malloc(size_t);\n\
         extern int RCCE_put(t_vcharp, t_vcharp, int, int);\n\
         extern int RCCE_acquire_lock(int);\n\
         void print_dividers(void);\n\
         int use() { print_dividers(); return RCCE_acquire_lock(0) + RCCE_put(RCCE_malloc(32), 0, 0, 0); }\n",
    )
    .unwrap();
    let mut compile = compiler("c++", "c++17");
    compile.args(["-DRC_POWER_MANAGEMENT", "-Wno-redundant-decls", "-c"]);
    demand(compile.arg(&path).arg("-o").arg(&object));
    let names = demand(Command::new("nm").arg("--undefined-only").arg(&object));
    for name in [
        "RCCE_malloc",
        "RCCE_put",
        "RCCE_acquire_lock",
        "print_dividers",
    ] {
        assert!(
            names
                .lines()
                .any(|line| line.ends_with(&format!(" {name}"))),
            "{names}"
        );
    }
}
