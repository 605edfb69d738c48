//! Compiles the variadic half of gaspi_printf.
fn main() {
    println!("cargo::rerun-if-changed=src/ffi/print.c");
    cc::Build::new()
        .file("src/ffi/print.c")
        .compile("unipgas_gaspi_print");
}
