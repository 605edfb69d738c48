//! Description of the backend.

use std::sync::Arc;

use unipgas_core::bundle::Tag;
use unipgas_core::registry::Backend;
use unipgas_core::variables::Variable;

use crate::{Ofi, probe};

/// Number of this backend in addresses and keys.
pub(crate) const TAG: Tag = Tag::new(4);

/// Description of this backend, for the engine.
pub const BACKEND: Backend = Backend {
    name: "ofi",
    old_name: None,
    tag: Some(TAG),
    variables: &[
        Variable::new(
            "UNIPGAS_OFI_PROVIDER",
            "libfabric's provider for the backend ofi, named as in fi_info -l (the first suitable provider)",
        ),
        Variable::new(
            "UNIPGAS_OFI_INTERFACE",
            "the interface that ofi uses: a domain as fi_info prints them, like eth0, or an address of this host",
        ),
    ],
    open: |opening| Ok(Arc::new(Ofi::from_env(opening)?)),
    probe,
    network: true,
    native: None,
};
