//! libibverbs' C interface: structures and constants, as far as they are used here. A test compares the layouts with the installed headers; the
//! binary interface has been the same since release 1.1.
//!
//! ```
//! use unipgas_verbs_sys::{IBV_WR_RDMA_WRITE, ibv_send_wr};
//!
//! // SAFETY: a plain structure, as C has it.
//! let mut request: ibv_send_wr = unsafe { std::mem::zeroed() };
//! request.opcode = IBV_WR_RDMA_WRITE;
//! ```
#![allow(
    missing_docs,
    reason = "the names are those of the C header, where they are described"
)]
#![allow(non_camel_case_types, non_snake_case)]

mod constants;
mod structures;

pub use constants::*;
pub use structures::*;
