//! unipgas: one-sided communication for parallel programs, one engine under several interfaces.

pub use unipgas_chaos as chaos;
pub use unipgas_core as core;
pub use unipgas_gaspi as gaspi;
pub use unipgas_shm as shm;
