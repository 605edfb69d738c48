//! Bytes and elements of this process's memory: copies, atomic operations, the program's mappings.

pub mod atomic;
pub mod cache;
pub mod combine;
#[cfg(test)]
mod copies;
pub mod copy;
pub mod exclusive;
pub mod lines;
pub mod pages;
pub mod polled_line;
pub mod prefetch;
pub mod rights;
pub mod user_memory;
pub mod userfaultfd;
pub mod word_ring;
pub mod words;
