//! The shared library exports the functions and variables of the headers, and no other names with their prefixes.

mod common;
use common::{c, declared};

/// Objects, with their sizes in bytes. Copy relocations in executables depend on the sizes.
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
    let declared = &declared(false) | &declared(true);
    assert_eq!(declared.len(), 124, "{declared:?}");
    let mut variables = c::exports(&declared, &["RCCE_", "iRCCE_", "RC_"]);
    variables.sort_unstable();
    assert_eq!(
        variables,
        VARIABLES.map(|(name, size)| (name.to_owned(), size))
    );
}
