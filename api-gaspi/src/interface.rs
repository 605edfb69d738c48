//! Description of the interface.

use unipgas_core::interface::Interface;

/// Description of this interface, for the engine.
pub const INTERFACE: Interface = Interface {
    calls: &["gaspi_", "pgaspi_"],
    crates: &["unipgas_gaspi::"],
    variables: &[],
};
