//! Interfaces of this program. The engine knows none by name: each describes itself in an [`Interface`], and the facade library contributes it.

use parking_lot::RwLock;

use crate::variables::{self, Variable};

/// Description of an interface.
#[derive(Debug, Clone, Copy)]
pub struct Interface {
    /// Prefixes of its calls in C.
    pub calls: &'static [&'static str],
    /// Names of its crates in Rust, with `::`.
    pub crates: &'static [&'static str],
    /// Its environment variables.
    pub variables: &'static [Variable],
}

static INTERFACES: RwLock<Vec<Interface>> = RwLock::new(Vec::new());

/// Adds an interface. Long waits are reported with the names of its calls.
pub fn contribute(interface: Interface) {
    variables::contribute(interface.variables);
    let mut interfaces = INTERFACES.write();
    if interfaces.iter().all(|one| one.crates != interface.crates) {
        interfaces.push(interface);
    }
}

/// Whether `name` is a call of an interface in C.
pub(crate) fn is_call(name: &str) -> bool {
    let has = |one: &Interface| one.calls.iter().any(|prefix| name.starts_with(prefix));
    INTERFACES.read().iter().any(has)
}

/// Whether `path` is the path of a function of an interface in Rust.
pub(crate) fn is_function(path: &str) -> bool {
    let has = |one: &Interface| one.crates.iter().any(|name| path.starts_with(name));
    INTERFACES.read().iter().any(has)
}
