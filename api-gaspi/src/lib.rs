//! GASPI 17.1 on the unipgas engine, in C and in Rust.
