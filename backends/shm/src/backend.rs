//! Description of the backend.

use std::sync::Arc;

use unipgas_core::bundle::Tag;
use unipgas_core::registry::Backend;
use unipgas_core::variables::Variable;

use crate::{Shm, probe};

/// Number of this backend in addresses and keys.
pub(crate) const TAG: Tag = Tag::new(2);

/// Description of this backend, for the engine.
pub const BACKEND: Backend = Backend {
    name: "shm",
    old_name: None,
    tag: Some(TAG),
    variables: &[Variable::new(
        "UNIPGAS_SHM_ADOPT",
        "0: memory that programs register is copied, not shared in place (1)",
    )],
    open: |opening| Ok(Arc::new(Shm::open(opening.local_processes)?)),
    probe: |_| probe(),
    network: false,
    native: None,
};
