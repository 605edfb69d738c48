//! libibverbs' C interface: the structures and constants that unipgas uses. A test compares the layouts with the installed headers; the
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
    reason = "these names come from the C header, which describes each of them"
)]
#![allow(non_camel_case_types, non_snake_case)]

mod constants;
mod structures;

pub use constants::*;
pub use structures::*;
