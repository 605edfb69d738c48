//! Bytes and elements of this process's memory: copies, atomic operations, what a program may have mapped.

pub mod announced;
pub mod atomic;
pub mod cache;
pub mod combine;
pub(crate) mod copy;
pub(crate) mod exclusive;
pub mod lines;
pub(crate) mod prefetch;
pub mod user_memory;
pub mod userfaultfd;
pub mod words;
