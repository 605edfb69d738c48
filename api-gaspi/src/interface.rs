//! Description of the interface.

use unipgas_core::interface::Interface;

/// What the engine knows of this interface.
pub const INTERFACE: Interface = Interface {
    calls: &["gaspi_", "pgaspi_"],
    crates: &["unipgas_gaspi::"],
    variables: &[],
};
