//! The list of procedures of `unipgas-gaspi-sys` agrees with the names and types of this crate's functions, and its codes agree with the header.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_void};

use unipgas_gaspi::ffi;
use unipgas_gaspi_sys::*;

macro_rules! types {
    ($(fn $name:ident($($parameter:ident: $ty:ty),* $(,)?) -> $result:ty;)*) => {
        /// Does not compile if a type differs.
        const _: () = {
            $(let _: unsafe extern "C" fn($($ty),*) -> $result = ffi::$name;)*
        };
    };
}
gaspi_functions!(types);

#[test]
fn all_that_is_exported_is_in_the_list() {
    let exported = include_str!("../symbols.txt").lines();
    let exported: BTreeSet<&str> = exported.filter(|line| !line.starts_with('#')).collect();
    let printing = [
        "gaspi_printf",
        "gaspi_printf_to",
        "pgaspi_printf",
        "pgaspi_printf_to",
    ];
    let listed: BTreeSet<&str> = GaspiFunctions::NAMES
        .iter()
        .copied()
        .chain(printing)
        .collect();
    assert_eq!(listed, exported);
}

#[test]
fn codes_are_those_of_the_header() {
    let header = include_str!("../include/GASPI_types.h");
    assert_eq!(RETURN_CODES.len(), 30);
    for (name, value) in RETURN_CODES {
        assert!(header.contains(&format!("  {name} = {value}")), "{name}");
    }
}

#[test]
fn a_name_that_is_missing_is_told() {
    let found = |name: &CStr| match name.to_bytes() {
        b"gaspi_wait" | b"gaspi_printf" => std::ptr::null_mut(),
        _ => std::ptr::without_provenance_mut::<c_void>(64),
    };
    // SAFETY:
    // - nothing is called.
    let some = unsafe { GaspiFunctions::load(found) };
    let missing: Vec<_> = some.missing().collect();
    assert_eq!(missing, ["gaspi_wait", "gaspi_printf"]);
    assert!(some.gaspi_wait.is_none() && some.gaspi_write.is_some());
}
