//! libfabric's C interface for providers and for their callers: structures, tables of functions, constants. The layouts follow version 1.17;
//! later versions only append to them. A test compares the layouts with the installed headers.
//!
//! ```
//! use unipgas_libfabric_sys::{FI_ATOMIC, FI_RMA};
//!
//! let capabilities: u64 = FI_RMA | FI_ATOMIC;
//! assert_eq!(capabilities.count_ones(), 2);
//! ```
#![allow(
    missing_docs,
    reason = "these names come from the C headers, which describe each of them"
)]
#![allow(non_camel_case_types)]

mod constants;
mod ops;
mod structures;

pub use constants::*;
pub use ops::*;
pub use structures::*;
