//! Description of the interface.

use unipgas_core::interface::Interface;
use unipgas_core::variables::Variable;

/// Description of this interface, for the engine.
pub const INTERFACE: Interface = Interface {
    calls: &["utofu_"],
    crates: &["unipgas_utofu::"],
    variables: &[
        Variable::new(
            "UNIPGAS_TOFU_SHAPE",
            "uTofu: lengths of the axes X, Y, Z, A, B, C like 2x1x1x2x3x2; without it unipgas run sets one for its processes",
        ),
        Variable::new(
            "UNIPGAS_TOFU_PPN",
            "uTofu: processes that share a virtual node, 1 to 48 (1)",
        ),
        Variable::new(
            "UNIPGAS_JOB_NAME",
            "uTofu: name of a job of processes that are started by hand; processes of one user with the same name find each other",
        ),
        Variable::new(
            "UTOFU_NUM_EXCLUSIVE_CQS",
            "CQs of each TNI kept for exclusive VCQs (0)",
        ),
        Variable::new(
            "UTOFU_NUM_SESSION_MODE_CQS",
            "CQs of each TNI kept for session mode VCQs (3)",
        ),
        Variable::new(
            "UTOFU_NUM_MRQ_ENTRIES",
            "entries of the MRQ of a free mode VCQ: 2Ki, 8Ki, 32Ki, 128Ki, 512Ki, 2Mi (128Ki)",
        ),
        Variable::new(
            "UTOFU_NUM_MRQ_ENTRIES_SESSION",
            "the same of a session mode VCQ (128Ki)",
        ),
        Variable::new(
            "UTOFU_SWAP_PROTECT",
            "1: registered memory is locked, so that it is not swapped out (0)",
        ),
    ],
};
