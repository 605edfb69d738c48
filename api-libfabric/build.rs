//! Compiles the weak references to functions of a libfabric that is linked statically.
fn main() {
    println!("cargo::rerun-if-changed=src/ffi/linked.c");
    cc::Build::new()
        .file("src/ffi/linked.c")
        .compile("unipgas_fi_linked");
}
