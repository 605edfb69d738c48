//! Sets the real name (soname) of the library. It stays loaded, since its exit handler runs at the end of the process.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtofucom.so");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
