//! Address vectors (fi_av(3)). An address is an index, in tables and maps alike: the lowest one that is not in use.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::domain::Domain;
use crate::name::Name;
use crate::status::{Errno, Result};
use crate::sys::FI_ADDR_NOTAVAIL;

/// An address vector.
pub struct AddressVector {
    domain: Arc<Domain>,
    entries: RwLock<Entries>,
    /// How many addresses have been removed: endpoints look here whether what they know may be out of date.
    removals: AtomicU64,
}

#[derive(Default)]
struct Entries {
    names: Vec<Option<Name>>,
    /// Indices of names that were removed.
    free: BTreeSet<u64>,
    by_id: HashMap<u64, u64>,
}

impl AddressVector {
    /// An empty one.
    pub fn new(domain: &Arc<Domain>) -> AddressVector {
        AddressVector {
            domain: domain.clone(),
            entries: RwLock::default(),
            removals: AtomicU64::new(0),
        }
    }

    /// Its domain.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Inserts a name; its address, which may be one that was removed.
    pub fn insert(&self, name: Name) -> u64 {
        let mut entries = self.entries.write();
        let address = match entries.free.pop_first() {
            Some(address) => {
                entries.names[address as usize] = Some(name);
                address
            }
            None => {
                entries.names.push(Some(name));
                entries.names.len() as u64 - 1
            }
        };
        entries.by_id.entry(name.id()).or_insert(address);
        address
    }

    /// Removes an address. Errors: [`Errno::INVAL`] if it is not there.
    pub fn remove(&self, address: u64) -> Result<()> {
        let mut entries = self.entries.write();
        let place = entries
            .names
            .get_mut(address as usize)
            .ok_or(Errno::INVAL)?;
        let name = place.take().ok_or(Errno::INVAL)?;
        entries.free.insert(address);
        if entries.by_id.get(&name.id()) == Some(&address) {
            let again = entries.names.iter().position(|other| *other == Some(name));
            match again {
                Some(other) => entries.by_id.insert(name.id(), other as u64),
                None => entries.by_id.remove(&name.id()),
            };
        }
        self.removals.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// The name at an address. Errors: [`Errno::INVAL`] if it is not there.
    pub fn name(&self, address: u64) -> Result<Name> {
        let entries = self.entries.read();
        let name = entries.names.get(address as usize).copied().flatten();
        name.ok_or(Errno::INVAL)
    }

    /// The address of the endpoint `id`; FI_ADDR_NOTAVAIL if it was not inserted.
    pub fn address_of(&self, id: u64) -> u64 {
        let entries = self.entries.read();
        entries.by_id.get(&id).copied().unwrap_or(FI_ADDR_NOTAVAIL)
    }

    /// How many addresses have been removed so far.
    #[inline(always)]
    pub(crate) fn removals(&self) -> u64 {
        self.removals.load(Ordering::Acquire)
    }
}
