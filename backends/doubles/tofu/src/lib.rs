//! A double of `libtofucom.so` for tests: it wraps another one, and is as strict as the machine.
//!
//! `TOFU_DOUBLE_LIBRARY` is the path of the library that does the work, as our own `libunipgas.so`: the processes of one host communicate by shared memory
//! then, started by `unipgas run` or alone. A program that loads `libtofu_double.so` (by its path, or in a folder of `LD_LIBRARY_PATH` as a link `libtofucom.so`) gets
//! all 65 functions; each passes on what it is given, when that keeps the rules:
//!
//! - Limits of arguments have the codes of the guide: `UTOFU_ERR_INVALID_SIZE` for a put, get or piggyback that is too long, for an MTU, and for memory under a
//!   STag whose size is no multiple of 256; `UTOFU_ERR_INVALID_EDATA`, `UTOFU_ERR_INVALID_FLAGS`, `UTOFU_ERR_INVALID_STAG`, `UTOFU_ERR_INVALID_ADDRESS`,
//!   `UTOFU_ERR_INVALID_TNI_ID`, and others.
//! - Resources end: `UTOFU_ERR_FULL` for VCQs and registrations, `UTOFU_ERR_BUSY` for a TOQ whose TCQ descriptors are not polled. A place of the TOQ is free when a
//!   poll on any VCQ of the CQ has read its TCQ descriptor, whether or not that was asked for.
//! - What is undefined on the machine ends the program with one line, which names the call and the rule: a handle that is none; a local range that is not
//!   registered on the VCQ; memory that is deregistered twice, or while a put or get may use it; an ARMW on a word that is
//!   not aligned (of this process's VCQs: of others, the library says it at a poll); blocks that are written over each other in no order; session mode for what is no put; descriptors that were not
//!   prepared with the VCQ; two threads in VCQs that share a CQ, or in a VBG; an MRQ with as many descriptors as it has entries.
//!
//! Tests of other crates have this one as a dev-dependency: cargo then builds `libtofu_double.so` beside their executables.
//!
//! `TOFU_DOUBLE` says what the machine is like and what fails (`config.rs`). With a wrong setting, or no library, all calls answer `UTOFU_ERR_FATAL`, after one line.
//!
//! What was done is counted (`counts.rs`): calls by name, flags of one-sided communication, what was injected, and the most that was outstanding.
//! `tofu_double_counts` gives it as JSON, and with `TOFU_DOUBLE_COUNTS=PATH` each process writes `PATH.PID` when it ends.
//!
//! A put or get that has asked for a TCQ descriptor or a local notice may use its memory until the program has got what says otherwise. For a put this is its TCQ descriptor or a
//! later one of the VCQ, its local notice or a later one for the same VCQ by the same path, or a 0 of `utofu_query_num_unread_tcq`; for a get with a local notice, the notices
//! alone (guide §2.2.10). One that has asked for neither uses it until it has been sent: a program can know the rest from elsewhere, as from a peer's answer.
//!
//! What it is not: it does not see what peers do to this process's memory, and of their notices only those that have arrived. It keeps
//! all descriptors that were prepared, until their VCQ is freed. A descriptor that fails
//! (`tcq=`, `mrq=`) is not carried out, and what was posted with it in one call leaves by `utofu_post_toq`, without its delay. The child of a fork is told nothing
//! that the library does not tell.
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "the functions are those of the C library, where they are described"
)]

mod calls;
mod config;
mod counts;
mod exports;
mod faults;
mod flight;
mod library;
mod operation;
mod post;
mod rules;
mod vcqs;
