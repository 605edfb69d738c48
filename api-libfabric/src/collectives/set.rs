//! Address vector sets (fi_av_set(3)): ordered subsets of an address vector.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::Collective;
use crate::av::AddressVector;
use crate::status::{Errno, Result};

/// A set's address: this bit, and the set's number. No address vector reaches this length.
const SET: u64 = 1 << 62;

static OPENED: AtomicU64 = AtomicU64::new(0);

/// An address vector set.
pub struct AvSet {
    av: Arc<AddressVector>,
    address: u64,
    /// Operations that the set supports, as a bit set.
    operations: u16,
    members: Mutex<Vec<u64>>,
}

impl AvSet {
    /// A set of these members of `av`, for `operations`. An empty slice allows all operations. Errors: [`Errno::INVAL`] for an address that is not
    /// in use, or occurs twice.
    pub fn new(
        av: &Arc<AddressVector>,
        members: impl IntoIterator<Item = u64>,
        operations: &[Collective],
    ) -> Result<Arc<AvSet>> {
        let operations = operations.iter().fold(0, |all, one| all | bit(*one));
        let set = Arc::new(AvSet {
            av: av.clone(),
            address: SET | OPENED.fetch_add(1, Ordering::Relaxed),
            operations: if operations == 0 {
                u16::MAX
            } else {
                operations
            },
            members: Mutex::default(),
        });
        members
            .into_iter()
            .try_for_each(|address| set.insert(address))?;
        av.add_set(&set);
        Ok(set)
    }

    /// Its address vector.
    pub fn av(&self) -> &Arc<AddressVector> {
        &self.av
    }

    /// The address for [`Endpoint::join`](crate::Endpoint::join).
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The addresses of the members, in order.
    pub fn members(&self) -> Vec<u64> {
        self.members.lock().clone()
    }

    pub(super) fn operations(&self) -> u16 {
        self.operations
    }

    /// Appends an address. Errors: as for [`AvSet::new`].
    pub fn insert(&self, address: u64) -> Result<()> {
        self.av.called(address)?;
        let mut members = self.members.lock();
        if members.contains(&address) {
            return Err(Errno::INVAL);
        }
        members.push(address);
        Ok(())
    }

    /// Removes an address. Errors: [`Errno::INVAL`] if it is no member.
    pub fn remove(&self, address: u64) -> Result<()> {
        let mut members = self.members.lock();
        let at = members.iter().position(|known| *known == address);
        members.remove(at.ok_or(Errno::INVAL)?);
        Ok(())
    }

    /// Appends the members of `other` that this set lacks. Errors: [`Errno::INVAL`] for a set of another address vector.
    pub fn unite(&self, other: &AvSet) -> Result<()> {
        self.change(other, |members, others| {
            let new = others.iter().filter(|address| !members.contains(address));
            let new: Vec<u64> = new.copied().collect();
            members.extend(new);
        })
    }

    /// Keeps only members that `other` has, too. Errors: as for [`AvSet::unite`].
    pub fn intersect(&self, other: &AvSet) -> Result<()> {
        self.change(other, |members, others| {
            members.retain(|address| others.contains(address));
        })
    }

    /// Removes the members of `other`. Errors: as for [`AvSet::unite`].
    pub fn subtract(&self, other: &AvSet) -> Result<()> {
        self.change(other, |members, others| {
            members.retain(|address| !others.contains(address));
        })
    }

    fn change(&self, other: &AvSet, how: impl FnOnce(&mut Vec<u64>, &[u64])) -> Result<()> {
        if !Arc::ptr_eq(&self.av, &other.av) {
            return Err(Errno::INVAL);
        }
        // The other set may be this one.
        let others = other.members();
        how(&mut self.members.lock(), &others);
        Ok(())
    }
}

/// The bit of an operation in `AvSet::operations`.
pub(super) fn bit(operation: Collective) -> u16 {
    1 << operation as u16
}
