//! GASPI's C interface, for libraries that offer it and for programs that load one: types, constants, and one list of all procedures
//! ([`gaspi_functions`]). The values and layouts follow release 1.6; tests of `unipgas-gaspi` compare the headers and the list with its functions.
//!
//! ```
//! use unipgas_gaspi_sys::{GASPI_SUCCESS, gaspi_config_t};
//!
//! assert_eq!(GASPI_SUCCESS, 0);
//! assert_eq!(size_of::<gaspi_config_t>(), 144);
//! ```
#![allow(
    missing_docs,
    reason = "these names come from the C headers, which describe each of them"
)]
#![allow(non_camel_case_types)]

mod constants;
mod functions;
mod types;

pub use constants::*;
pub use functions::*;
pub use types::*;

/// The types of C in the list of functions.
pub use std::ffi::{c_char, c_int, c_ushort, c_void};
