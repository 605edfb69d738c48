//! The shared library exports the functions and variables of the headers, and no other names of theirs.

use std::collections::BTreeSet;
use std::process::Command;

mod common;
use common::{declared, demand, library};

/// Objects, with their sizes in bytes, which copies in executables depend on.
const VARIABLES: [(&str, usize); 15] = [
    ("RCCE_BUFF_SIZE", 4),
    ("RCCE_COMM_WORLD", 224),
    ("RCCE_IAM", 4),
    ("RCCE_NP", 4),
    ("RCCE_comm_buffer", 384),
    ("RCCE_debug_RPC", 4),
    ("RCCE_debug_comm", 4),
    ("RCCE_debug_debug", 4),
    ("RCCE_debug_synch", 4),
    ("RCCE_fool_write_combine_buffer", 8),
    ("RC_COREID", 192),
    ("RC_MY_COREID", 4),
    ("RC_REFCLOCKGHZ", 8),
    ("iRCCE_ANY_LENGTH", 4),
    ("iRCCE_ANY_SOURCE", 4),
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
    let declared: BTreeSet<String> = declared(false).union(&declared(true)).cloned().collect();
    assert_eq!(declared.len(), 124, "{declared:?}");
    let missing: Vec<&String> = declared.difference(&functions).collect();
    let extra: Vec<&String> = functions.difference(&declared).collect();
    assert!(
        missing.is_empty() && extra.is_empty(),
        "{}: missing: {missing:?}; not in the headers: {extra:?}",
        library.display()
    );
}
