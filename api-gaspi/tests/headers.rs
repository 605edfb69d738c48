//! The C headers as a contract. Each compiles alone as C and C++. Source for release 1.6 and source for the 17.1 text both compile.
//! Layout and values agree with compiled programs. symbols.txt lists exactly the declared symbols.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

#[path = "../../tests/c/mod.rs"]
mod c;
use c::{STANDARDS, accepted, alone, crate_dir, demand, link, names, run, scratch, write};

#[path = "headers/layout.rs"]
mod layout;

const HEADERS: &[&str] = &[
    "GASPI.h",
    "GASPI_types.h",
    "GASPI_Ext.h",
    "GASPI_Threads.h",
    "GASPI_Lowlevel.h",
    "GASPI_Queue_Group.h",
    "PGASPI.h",
    "GPI2_VERSION.h",
];

/// The strict compiler of a standard, with the headers' folder.
fn compiler(standard: &str) -> Command {
    c::compiler("api-gaspi", standard)
}

fn source(name: &str) -> PathBuf {
    crate_dir("api-gaspi").join("tests/headers").join(name)
}

/// Compiles a source of tests/headers; the object.
fn compile(name: &str, standard: &str) -> PathBuf {
    let object = format!("{name}-{standard}.o");
    c::compile(&mut compiler(standard), &source(name), &object)
}

#[test]
fn each_header_compiles_alone() {
    for header in HEADERS {
        alone(header, STANDARDS.map(compiler));
    }
}

#[test]
fn no_header_is_forgotten() {
    let found: BTreeSet<String> = fs::read_dir(crate_dir("api-gaspi").join("include"))
        .expect("include directory")
        .map(|entry| {
            entry
                .expect("entry")
                .file_name()
                .into_string()
                .expect("text")
        })
        .collect();
    assert_eq!(found, HEADERS.iter().map(|&h| h.to_owned()).collect());
}

#[test]
fn source_of_release_1_6_compiles() {
    for standard in STANDARDS {
        compile("style_16.c", standard);
    }
}

#[test]
fn source_of_the_17_1_text_compiles() {
    for standard in STANDARDS {
        compile("style_17.c", standard);
    }
}

/// As with release 1.6, programs that do not include the headers of extensions may use their names.
#[test]
fn names_of_extensions_are_free() {
    let extensions = [
        "GASPI_Ext.h",
        "GASPI_Threads.h",
        "GASPI_Lowlevel.h",
        "GASPI_Queue_Group.h",
    ];
    let headers = extensions.map(|name| {
        let path = crate_dir("api-gaspi").join("include").join(name);
        let text = fs::read_to_string(path).expect("a header");
        // Comments name other procedures.
        let code = text.split("/*").filter_map(|part| part.split_once("*/"));
        code.map(|(_, code)| code.to_owned()).collect::<String>()
    });
    let names = declared(&headers.concat());
    assert!(names.len() > 25, "{names:?}");
    let own = names.iter().map(|name| format!("gaspi_size_t {name};\n"));
    let text = format!(
        "#include <GASPI.h>\n#include <PGASPI.h>\n{}",
        own.collect::<String>()
    );
    let path = write("free-names.in", &text);
    for standard in STANDARDS {
        accepted(&mut compiler(standard), &path);
    }
}

/// Some programs include the headers within extern "C". The choice by type works there, too: it is C++.
#[test]
fn headers_compile_within_extern_c() {
    let calls = fs::read_to_string(source("choice_calls.c")).expect("choice_calls.c");
    let (includes, rest): (Vec<&str>, Vec<&str>) =
        calls.lines().partition(|line| line.starts_with("#include"));
    let text = format!(
        "extern \"C\" {{\n{}\n#include <PGASPI.h>\n}}\n{}\n",
        includes.join("\n"),
        rest.join("\n")
    );
    let path = write("within-extern-c.in", &text);
    accepted(&mut compiler("c++11"), &path);
    // Checks both compilers, if both are installed.
    for other in ["g++", "clang++"] {
        let mut command = Command::new(other);
        command.args(["-std=c++11", "-fsyntax-only", "-x", "c++", "-I"]);
        command
            .arg(crate_dir("api-gaspi").join("include"))
            .arg(&path);
        if Command::new(other).arg("--version").output().is_ok() {
            demand(&mut command);
        }
    }
}

/// C++ programs hand procedures to templates that call them.
#[test]
fn procedures_can_be_handed_to_templates() {
    let text = "#include <GASPI.h>
template <class Procedure, class... Args> int checked (Procedure procedure, Args... args) { return procedure (args...); }
int f ();
int f ()
{
  gaspi_pointer_t pointer = 0;
  gaspi_cycles_t ticks = 0;
  gaspi_state_t states[2] = { GASPI_STATE_HEALTHY, GASPI_STATE_HEALTHY };
  return checked (gaspi_segment_ptr, gaspi_segment_id_t (0), &pointer) + checked (gaspi_time_ticks, &ticks)
         + checked (gaspi_state_vec_get, states) + (::gaspi_segment_ptr (0, &pointer)) + int (sizeof (&gaspi_allreduce_user));
}
";
    let path = write("handed.in", text);
    accepted(&mut compiler("c++11"), &path);
}

/// Each definition returns a different number, which shows the called definition.
#[test]
fn argument_types_choose_the_function() {
    for standard in STANDARDS {
        let definitions = compile("choice_definitions.c", standard);
        let calls = compile("choice_calls.c", standard);
        let program = link(&[&definitions, &calls], &format!("choice-{standard}"));
        let output = run(&mut Command::new(&program));
        assert!(
            output.status.success(),
            "{standard}: wrong choice: {}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
}

/// The choice by type must refuse arguments that no signature accepts.
#[test]
fn wrong_types_do_not_compile() {
    let calls = [
        ("int x = 0;", "gaspi_time_ticks (&x)"),
        ("int x = 0;", "gaspi_state_vec_get (&x)"),
        (
            "double (*x) (double) = 0;",
            "gaspi_allreduce_user (0, 0, 1, 8, x, 0, GASPI_GROUP_ALL, GASPI_BLOCK)",
        ),
        ("double x = 0;", "gaspi_segment_ptr (0, x)"),
    ];
    for (index, (variable, call)) in calls.iter().enumerate() {
        let text = |call: &str| {
            format!(
                "#include <GASPI.h>\nint f (void);\nint f (void) {{ {variable} (void) x; return (int) {call}; }}\n"
            )
        };
        let wrong = write(&format!("wrong-{index}.in"), &text(call));
        let right = write(
            &format!("right-{index}.in"),
            &text("gaspi_wait (0, GASPI_BLOCK)"),
        );
        for standard in STANDARDS {
            accepted(&mut compiler(standard), &right);
            let output = run(compiler(standard).arg("-fsyntax-only").arg(&wrong));
            assert!(
                !output.status.success(),
                "{standard} accepts {call} with {variable}"
            );
        }
    }
}

#[test]
fn layout_and_values_are_those_of_release_1_6() {
    let mut table: Vec<(String, i128)> = Vec::new();
    for (name, size, align) in layout::TYPES {
        table.push((format!("sizeof ({name})"), *size));
        table.push((format!("__alignof__ ({name})"), *align));
    }
    for (field, offset, size) in layout::CONFIG {
        table.push((format!("offsetof (gaspi_config_t, {field})"), *offset));
        table.push((format!("sizeof (((gaspi_config_t *) 0)->{field})"), *size));
    }
    for name in layout::UNSIGNED {
        table.push((format!("({name}) -1 > ({name}) 0"), 1));
    }
    for (name, value) in layout::VALUES {
        table.push(((*name).to_owned(), *value));
    }
    table.push(("(int) (GASPI_VERSION * 100.0f + 0.5f)".to_owned(), 160));
    // Some values are not constant expressions in C, so the program compares them at run time.
    let mut text = String::from("#include <GASPI.h>\n#include <stdio.h>\n#include <stddef.h>\n");
    text += "int main (void)\n{\n  int wrong = 0;\n";
    for (expression, value) in table {
        // GASPI_BLOCK needs this suffix: no signed type holds it.
        let suffix = if value > i128::from(i64::MAX) {
            "ul"
        } else {
            ""
        };
        let tell = format!("printf (\"{expression} is not {value}\\n\")");
        text += &format!("  if (({expression}) != {value}{suffix}) {{ wrong = 1; {tell}; }}\n");
    }
    text += "  return wrong;\n}\n";
    for standard in STANDARDS {
        let program = scratch(&format!("values-{standard}"));
        let path = write(&format!("values-{standard}.in"), &text);
        // The program compares unsigned values on purpose.
        let mut compiler = compiler(standard);
        compiler.args(["-Wno-type-limits", "-Wno-bool-compare"]);
        demand(compiler.arg(&path).arg("-o").arg(&program));
        demand(&mut Command::new(&program));
    }
}

/// Functions that the preprocessed text declares: every pgaspi_ name, and every gaspi_ name before a parenthesis that is not a type.
fn declared(text: &str) -> BTreeSet<String> {
    names(text, |word, called| {
        let is_function = called && !word.ends_with("_t");
        word.starts_with("pgaspi_") || (word.starts_with("gaspi_") && is_function)
    })
}

fn symbols() -> BTreeSet<String> {
    let text = fs::read_to_string(crate_dir("api-gaspi").join("symbols.txt")).expect("symbols.txt");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(lines.is_sorted(), "symbols.txt is not sorted");
    let set: BTreeSet<String> = lines.iter().map(|&line| line.to_owned()).collect();
    assert_eq!(set.len(), lines.len(), "symbols.txt has a line twice");
    set
}

#[test]
fn symbols_are_what_the_headers_declare() {
    let all = write(
        "all.in",
        "#define GASPI_NO_OVERLOADS\n#include <PGASPI.h>\n#include <GASPI_Ext.h>\n#include <GASPI_Threads.h>\n\
         #include <GASPI_Lowlevel.h>\n#include <GASPI_Queue_Group.h>\n",
    );
    let text = demand(compiler("c11").args(["-E", "-P"]).arg(&all));
    let (declared, listed) = (declared(&text), symbols());
    let differences: Vec<&String> = declared.symmetric_difference(&listed).collect();
    assert!(
        differences.is_empty(),
        "only in the headers or only in symbols.txt: {differences:?}"
    );
}

#[test]
fn every_function_has_its_shifted_name_with_the_same_type() {
    let symbols = symbols();
    let mut text = String::from(
        "#include <PGASPI.h>\n#include <GASPI_Ext.h>\n#include <GASPI_Lowlevel.h>\n#include <GASPI_Queue_Group.h>\n",
    );
    // Thread functions have no profiling names.
    let threads = |name: &str| name.starts_with("gaspi_threads_");
    let plain = symbols
        .iter()
        .filter(|name| name.starts_with("gaspi_") && !threads(name));
    for name in plain {
        assert!(
            symbols.contains(&format!("p{name}")),
            "p{name} is missing in symbols.txt"
        );
        text += &format!(
            "_Static_assert (__builtin_types_compatible_p (__typeof__ ({name}), __typeof__ (p{name})), \"{name}\");\n"
        );
    }
    let shifted = symbols
        .iter()
        .filter(|name| name.starts_with("pgaspi_"))
        .count();
    let of_threads = symbols.iter().filter(|name| threads(name)).count();
    assert_eq!(shifted * 2 + of_threads, symbols.len());
    accepted(&mut compiler("c11"), &write("shifted.in", &text));
}
