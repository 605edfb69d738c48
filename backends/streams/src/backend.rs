//! Description of the backend.

use std::sync::Arc;

use unipgas_core::bundle::Tag;
use unipgas_core::registry::Backend;
use unipgas_core::variables::Variable;

use crate::{SocketStreams, probe};

/// Number of this backend in addresses and keys.
pub(crate) const TAG: Tag = Tag::new(3);

/// Description of this backend, for the engine.
pub const BACKEND: Backend = Backend {
    name: "streams",
    old_name: Some("opaque"),
    tag: Some(TAG),
    variables: &[
        Variable::new(
            "UNIPGAS_STREAMS",
            "properties of the backend streams: tcp,unordered,no-lines,no-atomics,registered,inline=N,largest=N,depth=N,lose=RANK@OP",
        ),
        Variable::new("UNIPGAS_OPAQUE", "old name of UNIPGAS_STREAMS"),
    ],
    open: |opening| Ok(Arc::new(SocketStreams::from_env(opening)?)),
    probe: |_| probe(),
    network: true,
    native: None,
};
