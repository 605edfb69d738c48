//! The C interface. The header `utofu.h` has the prototypes and describes each function. `fjmpi/mpi-ext.h` does the same for MPI's topology functions.
//!
//! No function unwinds, and none crashes on null pointers, wrong handles, ids, flags, sizes or numbers: they return the codes of
//! guide §3.1.2. Pointers that are not null must be valid as C requires. The operation that uses a STADD checks it.
#![allow(missing_docs)]
#![allow(clippy::missing_safety_doc)]

mod barrier;
mod completion;
mod entry;
mod last_error;
mod management;
pub(crate) mod native;
mod onesided;
mod stadd;
mod topology;

pub use barrier::*;
pub use completion::*;
pub use last_error::*;
pub use management::*;
pub use onesided::*;
pub use stadd::*;
pub use topology::*;
