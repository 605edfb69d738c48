//! Gives the shared library its soname, and keeps it loaded once loaded (its threads and signal handlers outlive a dlclose).
fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libunipgas.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
