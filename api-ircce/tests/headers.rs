//! The C headers as a contract. They compile alone in C and C++, in either interface. Layout and values agree with compiled
//! programs.

use std::path::PathBuf;
use std::process::Command;

mod common;
use common::c::{accepted, alone, compile, demand, run, scratch, write};
use common::crate_dir;

const STANDARDS: [&str; 6] = ["c89", "c99", "gnu11", "gnu17", "c++11", "c++17"];
const WAYS: [&[&str]; 5] = [
    &[],
    &["-DGORY"],
    &["-DRC_POWER_MANAGEMENT"],
    &["-fopenmp"],
    &["-DUNIPGAS_IRCCE_NO_SIZES", "-DAIR"],
];

/// The strict compiler of a standard, with the headers' folder.
fn compiler(standard: &str) -> Command {
    common::c::compiler("api-ircce", standard)
}

/// The compilers of all standards, each with all variants of the interface.
fn compilers() -> impl Iterator<Item = Command> {
    let ways = |standard| WAYS.iter().map(move |way| (standard, way));
    STANDARDS.into_iter().flat_map(ways).map(|(standard, way)| {
        let mut command = compiler(standard);
        command.args(*way);
        command
    })
}

fn source(name: &str) -> PathBuf {
    crate_dir().join("tests/headers").join(name)
}

#[test]
fn each_header_compiles_alone() {
    for header in ["RCCE.h", "RCCE_lib.h", "iRCCE.h", "iRCCE_lib.h"] {
        alone(header, compilers());
    }
}

#[test]
fn layout_and_values() {
    for mut compiler in compilers() {
        accepted(&mut compiler, &source("layout.c"));
    }
}

/// Checks that accept anything would pass the tests above. So each of these changes must fail.
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
        let mut changed = Command::new(compiler("c99").get_program());
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

/// The calls of a program reach the library under the names of the program's interface.
#[test]
fn names_in_the_library() {
    let symbols = |way: &[&str]| {
        let object = format!("names{}.o", way.concat());
        let object = compile(compiler("c99").args(way), &source("names.c"), &object);
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

/// A call of the other interface gets one error with the remedy. Declarations by the program and pointers compile.
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
                let text = format!(
                    "#include <RCCE.h>\n\
                     extern int RCCE_recv(); int (*const pointer)() = RCCE_send;\n\
                     void use(char *b, t_vcharp m, RCCE_FLAG f);\n\
                     void use(char *b, t_vcharp m, RCCE_FLAG f) {{ int n; {calls} (void)m; (void)f; (void)n; }}\n"
                );
                let path = write("other.c", &text);
                let mut command = compiler(standard);
                command.args(way).args(["-Wno-strict-prototypes", "-c"]);
                run(command.arg(&path).arg("-o").arg(scratch("other.o")))
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

/// C++ programs that declare functions of the library themselves reach the C functions.
#[test]
fn declarations_of_cxx_programs() {
    let path = write(
        "own.cc",
        "#include <RCCE.h>\n\
         extern t_vcharp RCCE_malloc(size_t);\n\
         extern int RCCE_put(t_vcharp, t_vcharp, int, int);\n\
         extern int RCCE_acquire_lock(int);\n\
         void print_dividers(void);\n\
         int use() { print_dividers(); return RCCE_acquire_lock(0) + RCCE_put(RCCE_malloc(32), 0, 0, 0); }\n",
    );
    let mut compiler = compiler("c++17");
    compiler.args(["-DRC_POWER_MANAGEMENT", "-Wno-redundant-decls"]);
    let object = compile(&mut compiler, &path, "own.o");
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
