//! Types, constants and functions agree with `utofu.h`.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use unipgas_utofu_sys::{
    STRUCTURES, UTOFU_ONESIDED_FLAG_PATH, UTOFU_ONESIDED_FLAG_SPS, UtofuFunctions, constants,
    path_id_of, sps_of, utofu_functions,
};

macro_rules! prototypes {
    ($(fn $name:ident($($parameter:ident: $ty:ty),* $(,)?) -> $result:ty;)*) => {
        const PROTOTYPES: &[(&str, &str, &[&str])] = &[$((
            stringify!($name),
            stringify!($result),
            &[$(stringify!($ty)),*],
        ),)*];
    };
}
utofu_functions!(prototypes);

/// A type of the list, as C writes it.
fn in_c(ty: &str) -> String {
    let pointers = ty.matches('*').count();
    let word = ty.rsplit(' ').next().unwrap_or(ty);
    let word = match word {
        "()" | "c_void" => "void",
        "c_int" => "int",
        "c_uint" => "unsigned int",
        "c_ulong" => "unsigned long",
        "usize" => "size_t",
        "u64" => "uint64_t",
        "u32" => "uint32_t",
        "u16" => "uint16_t",
        "u8" => "uint8_t",
        "f64" => "double",
        other if STRUCTURES.iter().any(|(name, ..)| *name == other) => &format!("struct {other}"),
        other if other.ends_with("_op") => &format!("enum {other}"),
        other => other,
    };
    format!("{word} {}", "*".repeat(pointers))
}

/// All facts as C source. The compiler refuses a declaration that contradicts the header.
fn facts() -> String {
    let mut text = String::from("#include <utofu.h>\n#include <stddef.h>\n");
    for (name, value) in constants() {
        // Compares in the widest type, so negative numbers stay negative.
        writeln!(
            text,
            "_Static_assert((__int128) {name} == ((__int128) {}LL << 64 | {}ULL), \"{name}\");",
            value >> 64,
            value as u64
        )
        .unwrap();
    }
    for argument in [0, 1, 15] {
        let sps = UTOFU_ONESIDED_FLAG_SPS(argument.into());
        let path = UTOFU_ONESIDED_FLAG_PATH(argument);
        assert_eq!(
            (sps_of(sps | path), path_id_of(sps | path)),
            (argument, argument)
        );
        writeln!(
            text,
            "_Static_assert(UTOFU_ONESIDED_FLAG_SPS({argument}) == {sps} && UTOFU_ONESIDED_FLAG_PATH({argument}) == {path}, \"SPS, PATH\");"
        )
        .unwrap();
    }
    for (name, size, members) in STRUCTURES {
        writeln!(
            text,
            "_Static_assert(sizeof(struct {name}) == {size}, \"{name}\");"
        )
        .unwrap();
        for (member, offset) in *members {
            writeln!(
                text,
                "_Static_assert(offsetof(struct {name}, {member}) == {offset}, \"{name}.{member}\");"
            )
            .unwrap();
        }
    }
    for (name, result, parameters) in PROTOTYPES {
        let parameters: Vec<String> = parameters.iter().map(|ty| in_c(ty)).collect();
        writeln!(text, "{} {name}({});", in_c(result), parameters.join(", ")).unwrap();
    }
    text
}

fn compiles(name: &str, text: &str) -> Result<(), String> {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&source, text).expect("the scratch directory is writable");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(&compiler)
        .args(["-std=gnu11", "-Wall", "-Werror", "-fsyntax-only", "-I"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/include"))
        .arg(&source)
        .output()
        .unwrap_or_else(|e| panic!("{compiler} does not start ({e}): install gcc, or set CC"));
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[test]
fn all_facts_are_those_of_the_header() {
    assert_eq!(compiles("facts.c", &facts()), Ok(()));
}

/// Facts that the compiler never checks would pass the test above. So each of these changes must fail.
#[test]
fn a_wrong_fact_is_noticed() {
    let right = facts();
    assert_eq!(compiles("right.c", &right), Ok(()));
    for (index, (from, to)) in [
        ("utofu_stadd_t , size_t ", "utofu_stadd_t , uint32_t "),
        ("enum utofu_armw_op", "int"),
        (
            "LL << 64 | 18446744073709551615ULL), \"UTOFU_ERR_NOT_FOUND\"",
            "LL << 64 | 1ULL), \"UTOFU_ERR_NOT_FOUND\"",
        ),
        (
            "UTOFU_VBG_ID_NULL == ((__int128) 0",
            "UTOFU_VBG_ID_NULL == ((__int128) -1",
        ),
        (
            "== 40, \"utofu_vbg_setting.dst_path_coords\"",
            "== 48, \"utofu_vbg_setting.dst_path_coords\"",
        ),
    ]
    .iter()
    .enumerate()
    {
        assert!(right.contains(from), "{from} is gone");
        let wrong = right.replacen(from, to, 1);
        assert!(
            compiles(&format!("wrong-{index}.c"), &wrong).is_err(),
            "{to}"
        );
    }
}

#[test]
fn the_table_is_filled_by_name_and_a_name_that_is_missing_is_told() {
    assert_eq!(UtofuFunctions::NAMES.len(), PROTOTYPES.len());
    let place = |name: &std::ffi::CStr| {
        let name = name.to_str().expect("a name is text");
        let index = UtofuFunctions::NAMES
            .iter()
            .position(|known| *known == name);
        std::ptr::without_provenance_mut(64 * (1 + index.expect("a name of the list")))
    };
    // SAFETY:
    // - nothing is called.
    let all = unsafe { UtofuFunctions::load(place) }.expect("all names are there");
    assert_eq!(all.utofu_get_onesided_tnis as usize, 64);
    assert_eq!(
        all.utofu_query_my_coords as usize,
        64 * UtofuFunctions::NAMES.len()
    );
    // SAFETY:
    // - nothing is called.
    let missing = unsafe {
        UtofuFunctions::load(|name| {
            if name == c"utofu_nop" {
                std::ptr::null_mut()
            } else {
                place(name)
            }
        })
    };
    assert_eq!(missing.err(), Some("utofu_nop"));
}
