//! A wrong setting is reported once, in one line, and all calls fail.

use unipgas_utofu_sys::*;

use crate::kit::*;
use crate::process::{again, is_inside};

#[test]
fn what_is_wrong_is_told() {
    if is_inside() {
        for _ in 0..2 {
            assert_eq!(create(0, 0), Err(UTOFU_ERR_FATAL));
            let (mut major, mut minor) = (-1, -1);
            call!(utofu_query_tofu_version(&mut major, &mut minor));
            assert_eq!((major, minor), (-1, -1));
        }
        return;
    }
    let wrong = "TOFU_DOUBLE: toq=none: give a number from 1 to 4096";
    let unset = "TOFU_DOUBLE_LIBRARY: not set: give the path";
    let nowhere = "/nowhere/libtofucom.so";
    for (settings, library, line) in [
        ("toq=none", None, wrong),
        ("", Some(""), unset),
        ("", Some(nowhere), nowhere),
        (
            "",
            Some("libc.so.6"),
            "libc.so.6 has no utofu_get_onesided_tnis",
        ),
    ] {
        let library = library.map(|path| ("TOFU_DOUBLE_LIBRARY", path));
        let output = again(
            "settings::what_is_wrong_is_told",
            settings,
            library.as_slice(),
        );
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let lines: Vec<&str> = said
            .lines()
            .filter(|line| line.starts_with("TOFU_DOUBLE"))
            .collect();
        assert_eq!(lines.len(), 1, "{said}");
        assert!(lines[0].contains(line), "{said}");
    }
}
