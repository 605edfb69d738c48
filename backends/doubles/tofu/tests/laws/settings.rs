//! What is wrong with the settings is told once, in one line, and all calls fail.

use unipgas_utofu_sys::*;

use crate::kit::*;
use crate::process::{again, is_inside};

fn told(test: &str, settings: &str, environment: &[(&str, &str)], line: &str) {
    if is_inside() {
        for _ in 0..2 {
            assert_eq!(create(0, 0), Err(UTOFU_ERR_FATAL));
            let (mut major, mut minor) = (-1, -1);
            call!(utofu_query_tofu_version(&mut major, &mut minor));
            assert_eq!((major, minor), (-1, -1));
        }
        return;
    }
    let output = again(test, settings, environment);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("MOCK_TOFU"))
        .collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert!(lines[0].contains(line), "{said}");
}

#[test]
fn a_wrong_setting() {
    let line = "MOCK_TOFU: toq=none: give a number from 1 to 4096";
    told("settings::a_wrong_setting", "toq=none", &[], line);
}

#[test]
fn no_library() {
    let none = [("MOCK_TOFU_LIBRARY", "")];
    told(
        "settings::no_library",
        "",
        &none,
        "MOCK_TOFU_LIBRARY: not set: give the path",
    );
}

#[test]
fn a_library_that_is_not_there() {
    let none = [("MOCK_TOFU_LIBRARY", "/nowhere/libtofucom.so")];
    told(
        "settings::a_library_that_is_not_there",
        "",
        &none,
        "/nowhere/libtofucom.so",
    );
}

#[test]
fn a_library_of_something_else() {
    let other = [("MOCK_TOFU_LIBRARY", "libc.so.6")];
    let line = "libc.so.6 has no utofu_get_onesided_tnis";
    told("settings::a_library_of_something_else", "", &other, line);
}
