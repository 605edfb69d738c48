//! The laws of libfabric stand for libfabric: a provider finds its functions by dlsym.
fn main() {
    for name in ["fi_dupinfo", "fi_freeinfo"] {
        println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol={name}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
