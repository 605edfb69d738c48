//! Description of the interface.

use unipgas_core::interface::Interface;
use unipgas_core::variables::Variable;

/// Description of this interface, for the engine.
pub const INTERFACE: Interface = Interface {
    calls: &["fi_"],
    crates: &["unipgas_libfabric::"],
    variables: &[Variable::new(
        "UNIPGAS_MR_ALLOCATED",
        "libfabric: 1: registered memory stays in place, as with FI_MR_ALLOCATED (0)",
    )],
};
