//! libfabric's C interface, as a provider fills it and as who uses providers calls it: structures, tables of functions, constants. The
//! layouts are those of 1.17, which later versions only append to; a test compares them with the installed headers.
//!
//! ```
//! use unipgas_libfabric_sys::{FI_ATOMIC, FI_RMA};
//!
//! let capabilities: u64 = FI_RMA | FI_ATOMIC;
//! assert_eq!(capabilities.count_ones(), 2);
//! ```
#![allow(
    missing_docs,
    reason = "the names are those of the C headers, where they are described"
)]
#![allow(non_camel_case_types)]

mod constants;
mod ops;
mod structures;

pub use constants::*;
pub use ops::*;
pub use structures::*;
