//! Description of the backend.

use std::sync::Arc;

use unipgas_core::bundle::Tag;
use unipgas_core::registry::Backend;
use unipgas_core::variables::Variable;

use crate::{Tofu, functions, probe};

/// Number of this backend in addresses and keys.
pub(crate) const TAG: Tag = Tag::new(6);

/// The description of this backend for the engine.
pub const BACKEND: Backend = Backend {
    name: "tofu",
    old_name: None,
    tag: Some(TAG),
    variables: &[Variable::new(
        "UNIPGAS_TOFU_LIBRARY",
        "the machine's libtofucom.so, by which tofu reaches other nodes (the one in the loader's path)",
    )],
    open: |opening| Ok(Arc::new(Tofu::from_env(opening)?)),
    probe: |_| probe(),
    network: true,
    native: Some(|| Some(functions()?)),
};
