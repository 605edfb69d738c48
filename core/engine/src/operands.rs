//! Descriptors of local registrations, by transport, for an engine with several transports. An operation needs the descriptor of the transport that carries
//! it.

use parking_lot::RwLock;
use slab::Slab;

use crate::op::Local;

/// Indexed by the number in operands. Only registrations with a descriptor in some transport are entered.
#[derive(Default)]
pub(crate) struct Operands(RwLock<Slab<Box<[u64]>>>);

impl Operands {
    /// Adds a registration with `descriptors`, by transport. Returns its number, which is not 0.
    pub(crate) fn enter(&self, descriptors: Box<[u64]>) -> u64 {
        self.0.write().insert(descriptors) as u64 + 1
    }

    /// Removes a registration that has ended.
    pub(crate) fn leave(&self, number: u64) {
        self.0.write().try_remove((number - 1) as usize);
    }

    /// The operand with the descriptor of transport number `route`.
    pub(crate) fn seen_by(&self, route: usize, local: Local) -> Local {
        if local.desc == 0 {
            return local;
        }
        let known = self.0.read();
        let descriptors = known.get((local.desc - 1) as usize);
        Local {
            desc: descriptors.map_or(0, |all| all[route]),
            ..local
        }
    }
}
