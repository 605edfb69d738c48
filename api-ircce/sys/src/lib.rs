//! The C interface of RCCE V1.0.13 and iRCCE 2.0, for libraries that offer it and for programs that load one: types, constants, and one list of all
//! functions ([`ircce_functions`]). Tests of `unipgas-ircce` compare the headers and the list with its functions.
//!
//! ```
//! use unipgas_ircce_sys::{RCCE_COMM, RCCE_SUCCESS};
//!
//! assert_eq!(RCCE_SUCCESS, 0);
//! assert_eq!(RCCE_COMM::UNDEFINED.size, 0);
//! ```
#![allow(
    missing_docs,
    reason = "these names come from the C headers, which describe each of them"
)]
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]

mod constants;
mod functions;
mod types;

pub use constants::*;
pub use functions::*;
pub use types::*;

/// The types of C in the list of functions.
pub use std::ffi::{c_char, c_int, c_void};
