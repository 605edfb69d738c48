//! Description of the backend.

use std::sync::Arc;

use unipgas_core::bundle::Tag;
use unipgas_core::registry::Backend;
use unipgas_core::variables::Variable;

use crate::{Opaque, probe};

/// Number of this backend in addresses and keys.
pub(crate) const TAG: Tag = Tag::new(3);

/// What the engine knows of this backend.
pub const BACKEND: Backend = Backend {
    name: "opaque",
    tag: Some(TAG),
    variables: &[Variable::new(
        "UNIPGAS_OPAQUE",
        "properties of the backend opaque: tcp,unordered,no-lines,no-atomics,registered,inline=N,largest=N,depth=N,lose=RANK@OP",
    )],
    open: |opening| Ok(Arc::new(Opaque::from_env(opening)?)),
    probe: |_| probe(),
    network: true,
    native: None,
};
