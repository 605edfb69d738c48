//! Laws of GASPI 17.1.

use crate::law::Law;

/// The laws of this interface.
pub fn laws() -> Vec<&'static Law> {
    Vec::new()
}
