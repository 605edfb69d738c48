//! What each transport calls the registrations of local memory, where an engine has several: an operation needs the descriptor of the
//! transport that carries it.

use parking_lot::RwLock;
use slab::Slab;

use crate::op::Local;

/// By the number that operands carry. Only what has a descriptor with some transport is entered.
#[derive(Default)]
pub(crate) struct Operands(RwLock<Slab<Box<[u64]>>>);

impl Operands {
    /// A registration with these descriptors, by transport; gives its number, which is not 0.
    pub fn enter(&self, descriptors: Box<[u64]>) -> u64 {
        self.0.write().insert(descriptors) as u64 + 1
    }

    /// The registration has ended.
    pub fn leave(&self, number: u64) {
        self.0.write().try_remove((number - 1) as usize);
    }

    /// The operand as transport number `route` knows it.
    pub fn seen_by(&self, route: usize, local: Local) -> Local {
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
