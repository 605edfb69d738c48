//! The shared library exports exactly the functions of utofu.h.

mod common;

#[test]
fn library_exports_what_the_header_declares() {
    let variables = common::c::exports(&common::declared(), &["utofu_"]);
    assert!(variables.is_empty(), "{variables:?}");
}
