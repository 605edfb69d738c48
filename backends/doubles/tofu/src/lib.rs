//! A double of `libtofucom.so` for tests. It wraps another library and is as strict as the machine.
//!
//! `TOFU_DOUBLE_LIBRARY` is the path of the library that does the work, for example `libunipgas.so`. Then the processes of a host communicate by shared
//! memory; `unipgas run` starts them, or each starts alone. A program loads `libtofu_double.so` by its path, or as the link `libtofucom.so` in a folder of
//! `LD_LIBRARY_PATH`. It gets all 65 functions. Each passes its call on if the call keeps these rules:
//!
//! - Limits of arguments have the codes of the guide. `UTOFU_ERR_INVALID_SIZE`: a put, get or piggyback is too long, an MTU is wrong, or the size of memory
//!   under a STag is no multiple of 256. Others: `UTOFU_ERR_INVALID_EDATA`, `UTOFU_ERR_INVALID_FLAGS`, `UTOFU_ERR_INVALID_STAG`,
//!   `UTOFU_ERR_INVALID_ADDRESS`, `UTOFU_ERR_INVALID_TNI_ID`.
//! - Resources end. `UTOFU_ERR_FULL`: no VCQ or registration is left. `UTOFU_ERR_BUSY`: the TCQ descriptors of a TOQ are not polled. A place of the TOQ is
//!   free when a poll on any VCQ of the CQ has read its TCQ descriptor, requested or not.
//! - Undefined behaviour of the machine ends the program with one line, which names the call and the rule:
//!   - an invalid handle;
//!   - a local range that is not registered on the VCQ;
//!   - memory that is deregistered twice, or while a put or get may use it;
//!   - an ARMW on a word of this process that is not aligned. For words of other processes, the library reports it at a poll;
//!   - blocks that overwrite each other without an order;
//!   - session mode for another operation than a put;
//!   - descriptors that were not prepared with the VCQ;
//!   - two threads in VCQs that share a CQ, or in a VBG;
//!   - an MRQ with as many descriptors as it has entries.
//!
//! Tests of other crates have this crate as a dev-dependency: cargo then builds `libtofu_double.so` beside their executables.
//!
//! `TOFU_DOUBLE` sets the properties of the machine and the injected failures (`config.rs`). With a wrong setting, or without a library, all calls return
//! `UTOFU_ERR_FATAL`, after one line.
//!
//! The double counts (`counts.rs`): calls by name, flags of one-sided communication, injected failures, and the most outstanding operations.
//! `tofu_double_counts` returns them as JSON. With `TOFU_DOUBLE_COUNTS=PATH` each process writes `PATH.PID` when it ends.
//!
//! A put or get with a TCQ descriptor or a local notice may use its memory until the program has read the proof of its end (guide §2.2.10). For a put this is
//! its TCQ descriptor or a later one of the VCQ, its local notice or a later one for the same VCQ by the same path, or a 0 of
//! `utofu_query_num_unread_tcq`. For a get with a local notice it is the notice alone. A put or get with neither uses its memory until it has been sent: the
//! program may know the rest from a peer's answer.
//!
//! Limits: the double does not see accesses of peers to this process's memory, and sees their notices only after the arrival. It keeps all prepared descriptors
//! until their VCQ is freed. A descriptor that fails (`tcq=`, `mrq=`) is not carried out. The others of its call leave by `utofu_post_toq`, without their
//! delay. In the child of a fork, only the library reports errors.
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "the C library documents the functions"
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
