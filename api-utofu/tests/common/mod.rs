//! Names that the header declares, for the tests of the header and of the exported symbols.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeSet;

#[path = "../../../tests/c/mod.rs"]
pub mod c;

/// Functions of the guide, utofu_query_num_unread_mrq and utofu_get_last_error.
pub const FUNCTIONS: usize = 66;

/// The strict compiler of a standard, with the header's folder.
pub fn compiler(standard: &str) -> std::process::Command {
    c::compiler("api-utofu", standard)
}

/// Names of functions that the header declares: names with uTofu's prefix before a parenthesis.
pub fn declared() -> BTreeSet<String> {
    let header = c::crate_dir("api-utofu").join("include/utofu.h");
    let text = c::demand(compiler("c11").args(["-E", "-P"]).arg(header));
    let names = c::names(&text, |word, called| called && word.starts_with("utofu_"));
    assert_eq!(names.len(), FUNCTIONS, "{names:?}");
    names
}
