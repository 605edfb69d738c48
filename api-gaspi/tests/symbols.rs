//! The shared library exports exactly the GASPI functions that symbols.txt lists (and, by the header tests, the headers declare).

#[path = "../../tests/c/mod.rs"]
mod c;

#[test]
fn library_exports_what_is_listed() {
    let lines = include_str!("../symbols.txt").lines();
    let listed = lines.filter(|line| !line.starts_with('#'));
    let variables = c::exports(&listed.map(str::to_owned).collect(), &["gaspi_", "pgaspi_"]);
    assert!(variables.is_empty(), "{variables:?}");
}
