//! unipgas: one-sided communication for parallel programs, one engine under several interfaces.
//!
//! This crate is the facade. It links the interfaces and the backends into one library, so a process with two interfaces has one engine.
//!
//! A GASPI program. `unipgas run -n 4 ./program` starts four processes of it:
//!
//! ```no_run
//! use unipgas::gaspi::safe::Gaspi;
//!
//! unipgas::init();
//! let gaspi = Gaspi::init()?;
//! println!("{} of {}", gaspi.rank(), gaspi.size());
//! # Ok::<(), unipgas::gaspi::safe::Error>(())
//! ```

pub use unipgas_core as core;
#[cfg(feature = "gaspi")]
pub use unipgas_gaspi as gaspi;
#[cfg(feature = "ircce")]
pub use unipgas_ircce as ircce;
#[cfg(feature = "libfabric")]
pub use unipgas_libfabric as libfabric;
#[cfg(feature = "utofu")]
pub use unipgas_utofu as utofu;

pub use unipgas_backends::{chaos, ofi, shm, streams, tofu, verbs};

/// Fills the tables of backends and interfaces, and starts the log if UNIPGAS_LOG is set. A program calls it before it uses an interface. Later calls
/// change nothing.
pub fn init() {
    unipgas_backends::init();
    let interfaces: &[core::interface::Interface] = &[
        #[cfg(feature = "gaspi")]
        gaspi::INTERFACE,
        #[cfg(feature = "ircce")]
        ircce::INTERFACE,
        #[cfg(feature = "libfabric")]
        libfabric::INTERFACE,
        #[cfg(feature = "utofu")]
        utofu::INTERFACE,
    ];
    for interface in interfaces {
        core::interface::contribute(*interface);
    }
}
