//! The list of functions that are not there, in the book, against the tables.

use std::collections::BTreeSet;
use std::path::Path;

/// Entries that no function of a program calls.
const COMMON: [&str; 4] = ["ops_open", "tostr", "ops_set", "msg"];

fn text(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).expect("a file of the sources")
}

#[test]
fn the_book_lists_what_is_not_there() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = here.join("src/ffi").read_dir().expect("the tables");
    let tables: String = sources
        .map(|file| text(file.expect("a file").path()))
        .collect();
    let entries = tables
        .lines()
        .filter_map(|line| line.trim().strip_suffix(": no,"));
    let missing: BTreeSet<String> = entries
        .filter(|entry| !COMMON.contains(entry))
        .map(|entry| format!("fi_{}", entry.replace("x_ctx", "x_context")))
        .collect();
    let book = text(here.join("../docs/src/libfabric.md"));
    let list = book.split("These functions give -FI_ENOSYS:").nth(1);
    let list = list.expect("the list").split("Hints for these").next();
    let words = list.unwrap_or_default().split('`').skip(1).step_by(2);
    let listed = words.filter(|word| word.starts_with("fi_") && *word != "fi_getinfo");
    assert_eq!(listed.map(str::to_owned).collect::<BTreeSet<_>>(), missing);
}
