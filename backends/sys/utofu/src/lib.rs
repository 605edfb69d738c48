//! uTofu's C interface, for its providers and callers: types, constants, and one list of all functions ([`utofu_functions`]).
//! The values and layouts follow the header of the A64FX systems (LP64); a test compares them with `utofu.h`.
//!
//! ```
//! use unipgas_utofu_sys::{UTOFU_ONESIDED_FLAG_TCQ_NOTICE, UTOFU_SUCCESS};
//!
//! assert_eq!(UTOFU_SUCCESS, 0);
//! assert_ne!(UTOFU_ONESIDED_FLAG_TCQ_NOTICE, 0);
//! ```
#![allow(
    missing_docs,
    reason = "these names come from the C header, which describes each of them"
)]
#![allow(non_camel_case_types, non_snake_case)]

mod constants;
mod functions;
mod types;

pub use constants::*;
pub use functions::*;
pub use types::*;

/// The types of C in the list of functions.
pub use std::ffi::{c_int, c_uint, c_ulong, c_void};
