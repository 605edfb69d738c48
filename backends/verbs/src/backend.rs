//! Description of the backend.

use std::sync::Arc;

use unipgas_core::bundle::Tag;
use unipgas_core::registry::Backend;
use unipgas_core::variables::Variable;

use crate::{Verbs, probe};

/// Number of this backend in addresses and keys.
pub(crate) const TAG: Tag = Tag::new(5);

/// The description of this backend for the engine.
pub const BACKEND: Backend = Backend {
    name: "verbs",
    old_name: None,
    tag: Some(TAG),
    variables: &[
        Variable::new(
            "UNIPGAS_VERBS_DEVICE",
            "the RDMA device that verbs uses, or device:port, as ibv_devices lists them (one near the process with an active port)",
        ),
        Variable::new(
            "UNIPGAS_VERBS_GID",
            "the index in the port's table of the GID that verbs uses (the best one: RoCE v2, IPv4)",
        ),
        Variable::new(
            "UNIPGAS_VERBS_TIMEOUT",
            "verbs: a peer is dead that has not answered for 7 times 4.096 us times 2 to this power, 8 to 31 (17: four seconds)",
        ),
    ],
    open: |opening| Ok(Arc::new(Verbs::from_env(opening)?)),
    probe: |_| probe(),
    network: true,
    native: None,
};
