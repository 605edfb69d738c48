//! Description of the interface.

use unipgas_core::interface::Interface;
use unipgas_core::variables::Variable;

/// Description of this interface, for the engine.
pub const INTERFACE: Interface = Interface {
    calls: &["RCCE_", "iRCCE_"],
    crates: &["unipgas_ircce::"],
    variables: &[
        Variable::new(
            "UNIPGAS_RCCE_MPB",
            "RCCE: bytes of each message-passing buffer (8192)",
        ),
        Variable::new(
            "UNIPGAS_RCCE_SHM_LOW",
            "RCCE: 1: the memory of RCCE_shmalloc has addresses of 32 bits (0)",
        ),
        Variable::new(
            "UNIPGAS_RCCE_CORES",
            "RCCE: the cores that the UEs stand for, with commas between them",
        ),
    ],
};
