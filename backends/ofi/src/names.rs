//! Peer endpoints in the provider's address vector. Each stays there while it is in use.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use unipgas_core::{Error, Result};

use crate::net::OfiNet;
use crate::piggyback::Piggyback;

/// Endpoints in use, by name.
#[derive(Default)]
pub(crate) struct AvTable(Mutex<InUse>);

#[derive(Default)]
struct InUse {
    by_name: HashMap<Box<[u8]>, Used>,
    /// Number of insertions so far.
    ever: u32,
}

struct Used {
    number: u64,
    tag: u32,
    piggyback: Arc<Piggyback>,
    by: usize,
}

/// Bits of a tag that hold the number in the address vector. The bits above distinguish endpoints that have had the same number.
const NUMBER: u32 = (1 << 24) - 1;

/// Number in the address vector of the endpoint with this tag.
pub fn number(tag: u32) -> u64 {
    u64::from(tag & NUMBER)
}

/// An endpoint in use.
pub(crate) struct AvEntry {
    net: Weak<OfiNet>,
    name: Box<[u8]>,
    /// Number in the address vector, valid until this is dropped.
    pub number: u64,
    /// Tag in this process.
    pub tag: u32,
    /// Held-back pieces that leave with the next message to the endpoint.
    pub piggyback: Arc<Piggyback>,
}

impl AvTable {
    /// The tag of an endpoint in use.
    pub fn tag(&self, name: &[u8]) -> Option<u32> {
        self.0.lock().by_name.get(name).map(|used| used.tag)
    }
}

impl AvEntry {
    /// The name as the provider gives it.
    pub fn bytes(&self) -> &[u8] {
        &self.name
    }

    /// Begins a use of endpoint `name`. Errors: [`Error::Unreachable`](unipgas_core::Error::Unreachable).
    pub fn hold(net: &OfiNet, name: &[u8]) -> Result<Arc<Self>> {
        let mut in_use = net.names.0.lock();
        let (number, tag, piggyback) = match in_use.by_name.get_mut(name) {
            Some(used) => {
                used.by += 1;
                (used.number, used.tag, used.piggyback.clone())
            }
            None => {
                let number = net.fabric.insert(name)?;
                // An index, since the vector is a table.
                let index = u32::try_from(number).ok().filter(|index| *index <= NUMBER);
                let Some(index) = index else {
                    net.fabric.remove(number);
                    let why = "too many peers for the address vector";
                    return Err(Error::Unreachable(why.into()));
                };
                let tag = in_use.ever << NUMBER.count_ones() | index;
                in_use.ever = in_use.ever.wrapping_add(1);
                let piggyback = Arc::<Piggyback>::default();
                let used = Used {
                    number,
                    tag,
                    piggyback: piggyback.clone(),
                    by: 1,
                };
                in_use.by_name.insert(name.into(), used);
                (number, tag, piggyback)
            }
        };
        Ok(Arc::new(AvEntry {
            net: net.me.clone(),
            name: name.into(),
            number,
            tag,
            piggyback,
        }))
    }
}

impl Drop for AvEntry {
    fn drop(&mut self) {
        // Without the network the address vector is closed.
        let Some(net) = self.net.upgrade() else {
            return;
        };
        let used = &mut net.names.0.lock().by_name;
        if let Some(one) = used.get_mut(&self.name) {
            one.by -= 1;
            if one.by == 0 {
                net.landings.write().remove(&one.tag);
                net.fabric.remove(one.number);
                used.remove(&self.name);
            }
        }
    }
}
