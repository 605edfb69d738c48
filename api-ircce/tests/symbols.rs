//! The shared library exports the functions and variables of the headers, and no other names of theirs.

use std::collections::BTreeSet;
use std::process::Command;

mod common;
use common::{declared, demand, library};

/// Objects, with their sizes in bytes, which copies in executables depend on.
const VARIABLES: [(&str, usize); 6] = [
    ("RCCE_COMM_WORLD", 224),
    ("RCCE_IAM", 4),
    ("RCCE_NP", 4),
    ("RC_COREID", 192),
    ("iRCCE_ANY_LENGTH", 4),
    ("iRCCE_ANY_SOURCE", 4),
];

/// Functions of two-sided messages, which are not there yet.
const MISSING: &[&str] = &[
    "RCCE_allreduce",
    "RCCE_bcast",
    "RCCE_recv",
    "RCCE_recv_gory",
    "RCCE_recv_test",
    "RCCE_recv_test_gory",
    "RCCE_reduce",
    "RCCE_send",
    "RCCE_send_gory",
    "iRCCE_add_recv_to_wait_list",
    "iRCCE_add_send_to_wait_list",
    "iRCCE_add_to_wait_list",
    "iRCCE_bcast",
    "iRCCE_get_dest",
    "iRCCE_get_length",
    "iRCCE_get_size",
    "iRCCE_get_source",
    "iRCCE_get_status",
    "iRCCE_init_wait_list",
    "iRCCE_iprobe",
    "iRCCE_irecv",
    "iRCCE_irecv_cancel",
    "iRCCE_irecv_push",
    "iRCCE_irecv_test",
    "iRCCE_irecv_wait",
    "iRCCE_irecv_within",
    "iRCCE_isend",
    "iRCCE_isend_cancel",
    "iRCCE_isend_push",
    "iRCCE_isend_test",
    "iRCCE_isend_wait",
    "iRCCE_isrecv",
    "iRCCE_isrecv_within",
    "iRCCE_issend",
    "iRCCE_mcast",
    "iRCCE_mrecv",
    "iRCCE_mrecv_within",
    "iRCCE_msend",
    "iRCCE_probe",
    "iRCCE_srecv",
    "iRCCE_srecv_test",
    "iRCCE_srecv_within",
    "iRCCE_ssend",
    "iRCCE_test_all",
    "iRCCE_test_any",
    "iRCCE_wait_all",
    "iRCCE_wait_any",
];

#[test]
fn library_exports_what_the_headers_declare() {
    let library = library();
    let mut nm = Command::new("nm");
    nm.args(["--dynamic", "--defined-only", "--format=posix"])
        .arg(&library);
    let text = demand(&mut nm);
    let mut functions = BTreeSet::new();
    let mut variables = Vec::new();
    for line in text.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [name, kind, _, size] = words[..] else {
            continue;
        };
        if !["RCCE_", "iRCCE_", "RC_"]
            .iter()
            .any(|begin| name.starts_with(begin))
        {
            continue;
        }
        if matches!(kind, "T" | "W") {
            functions.insert(name.to_owned());
        } else {
            variables.push((name, usize::from_str_radix(size, 16).unwrap()));
        }
    }
    variables.sort_unstable();
    assert_eq!(variables, VARIABLES);
    let mut declared: BTreeSet<String> = declared(false).union(&declared(true)).cloned().collect();
    assert_eq!(declared.len(), 110, "{declared:?}");
    for name in MISSING {
        assert!(declared.remove(*name), "{name} is not declared");
    }
    let missing: Vec<&String> = declared.difference(&functions).collect();
    let extra: Vec<&String> = functions.difference(&declared).collect();
    assert!(
        missing.is_empty() && extra.is_empty(),
        "{}: missing: {missing:?}; not in the headers: {extra:?}",
        library.display()
    );
}
