//! The shared library exports exactly the functions of utofu.h.

use std::collections::BTreeSet;
use std::process::Command;

mod common;
use common::{declared, demand, library};

#[test]
fn library_exports_what_the_header_declares() {
    let library = library();
    let mut nm = Command::new("nm");
    nm.args(["--dynamic", "--defined-only", "--format=posix"])
        .arg(&library);
    let text = demand(&mut nm);
    let exported: BTreeSet<String> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (name, kind) = (words.next()?, words.next()?);
            (name.starts_with("utofu_") && matches!(kind, "T" | "W")).then(|| name.to_owned())
        })
        .collect();
    let declared = declared();
    assert_eq!(declared.len(), 66);
    let missing: Vec<&String> = declared.difference(&exported).collect();
    let extra: Vec<&String> = exported.difference(&declared).collect();
    assert!(
        missing.is_empty() && extra.is_empty(),
        "{}: missing: {missing:?}; not in utofu.h: {extra:?}",
        library.display()
    );
}
