//! Programs ask for the library by its real name. What it has registered at the end of the process stays loaded.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtofucom.so");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
