//! The list of functions of `unipgas-ircce-sys` agrees with the types of this crate's functions. Its structures and codes agree with the headers.

use std::ffi::{CStr, c_void};
use std::fmt::Write;
use std::mem::offset_of;

use unipgas_ircce::ffi;
use unipgas_ircce_sys::{ERRORS, RcceFunctions};

mod common;
use common::c::{run, write};
use common::{compiler, declared};

mod types {
    use unipgas_ircce_sys::*;

    // The requests of programs are larger than the library's. The library's type of a wait list names the targets of its pointers.
    use unipgas_ircce::ffi::CWaitList as iRCCE_WAIT_LIST;
    use unipgas_ircce::request::{
        RecvRequest as iRCCE_RECV_REQUEST, SendRequest as iRCCE_SEND_REQUEST,
    };

    macro_rules! types {
        ($(fn $name:ident($($parameter:ident: $ty:ty),* $(,)?) -> $result:ty;)*) => {
            /// Does not compile if a type differs.
            const _: () = {
                $(let _: unsafe extern "C" fn($($ty),*) -> $result = super::ffi::$name;)*
            };
        };
    }
    ircce_functions!(types);
}

/// Layout of a structure: name, size, and members with offsets.
macro_rules! layout {
    ($($name:ident { $($member:ident)* })*) => {
        [$((
            stringify!($name),
            size_of::<unipgas_ircce_sys::$name>(),
            vec![$((stringify!($member), offset_of!(unipgas_ircce_sys::$name, $member))),*],
        )),*]
    };
}

#[test]
fn structures_and_codes_are_those_of_the_headers() {
    let mut text = String::from("#include <stddef.h>\n#include <iRCCE.h>\n");
    for (name, value) in ERRORS {
        writeln!(text, "_Static_assert({name} == {value}, \"{name}\");").unwrap();
    }
    let layout = layout! {
        RCCE_COMM { size my_rank initialized member gather release }
        RCCE_REQUEST { release old_voltage_level new_voltage_level old_frequency_divider new_frequency_divider start_cycle }
        iRCCE_AIR { counter init }
        iRCCE_WAIT_LIST { first last }
        iRCCE_SEND_REQUEST { privbuf size dest finished next subchunk1 subchunk2 flag_set_value }
        iRCCE_RECV_REQUEST { privbuf size source finished started next subchunk1 subchunk2 flag_set_value }
    };
    for (name, size, members) in &layout {
        writeln!(
            text,
            "_Static_assert(sizeof({name}) == {size}, \"{name}\");"
        )
        .unwrap();
        for (member, offset) in members {
            writeln!(
                text,
                "_Static_assert(offsetof({name}, {member}) == {offset}, \"{name}.{member}\");"
            )
            .unwrap();
        }
    }
    let compile = |text: &str| {
        let path = write("table.c", text);
        let mut compiler = compiler();
        let options = [
            "-std=gnu11",
            "-Werror",
            "-fsyntax-only",
            "-DRC_POWER_MANAGEMENT",
        ];
        run(compiler.args(options).arg(&path)).status.success()
    };
    assert!(compile(&text), "{text}");
    // A test of the test: a wrong offset is an error.
    assert!(!compile(&text.replace(
        "RCCE_COMM, member) == 12",
        "RCCE_COMM, member) == 16"
    )));
}

#[test]
fn all_that_the_headers_declare_is_in_the_list() {
    let mut expected = &declared(false) | &declared(true);
    // Names without the common prefixes.
    expected.extend(["print_dividers", "id_compare"].map(str::to_owned));
    let listed = RcceFunctions::NAMES.iter().map(|name| (*name).to_owned());
    assert_eq!(expected, listed.collect());
}

#[test]
fn a_name_that_is_missing_is_told() {
    let found = |name: &CStr| match name.to_bytes() {
        b"RCCE_send" => std::ptr::null_mut(),
        _ => std::ptr::without_provenance_mut::<c_void>(64),
    };
    // SAFETY:
    // - nothing is called.
    let some = unsafe { RcceFunctions::load(found) };
    assert_eq!(some.missing().collect::<Vec<_>>(), ["RCCE_send"]);
    assert!(some.RCCE_send.is_none() && some.RCCE_recv.is_some());
}
