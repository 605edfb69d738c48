//! Registered memory, and the checks before it is used.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::{RwLock, RwLockReadGuard};
use unipgas_verbs_sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_WRITE, ibv_sge,
};

use crate::words;

/// Keys of 31 bits are assigned in sequence, so a key is not reused soon. The lowest bit is set in remote keys, and clear in local ones.
const KEYS: u32 = (1 << 31) - 1;
/// Factor that makes consecutive keys differ widely. It is odd, so keys are unique.
const SCATTER: u32 = 0x1e37_79b1;

pub(crate) struct Region {
    /// The first address, as work requests give it.
    pub start: u64,
    pub base: *mut u8,
    pub len: u64,
    pub access: u32,
    pub pd: u32,
    /// On-demand paging: it must be mapped only while it is accessed.
    pub odp: bool,
}

// SAFETY:
// - only `words` accesses the address, and only while the owner keeps it registered.
unsafe impl Send for Region {}
// SAFETY:
// - as above.
unsafe impl Sync for Region {}

pub(crate) struct MemoryTable {
    regions: RwLock<HashMap<u32, Region>>,
    next: AtomicU32,
}

/// While this guard is held, no region is deregistered.
pub(crate) struct MemoryGuard<'a>(RwLockReadGuard<'a, HashMap<u32, Region>>);

impl MemoryTable {
    pub fn new(seed: u32) -> Self {
        MemoryTable {
            regions: RwLock::new(HashMap::new()),
            next: AtomicU32::new(seed),
        }
    }

    /// Returns the local and the remote key.
    pub fn register(&self, region: Region) -> (u32, u32) {
        let mut regions = self.regions.write();
        loop {
            let key = (self.next.fetch_add(1, Relaxed).wrapping_mul(SCATTER) & KEYS) << 1;
            if key != 0 && !regions.contains_key(&key) {
                regions.insert(key, region);
                return (key, key | 1);
            }
        }
    }

    /// Waits until no access is in progress.
    pub fn deregister(&self, key: u32) -> Option<Region> {
        self.regions.write().remove(&key)
    }

    pub fn len(&self) -> usize {
        self.regions.read().len()
    }

    pub fn hold(&self) -> MemoryGuard<'_> {
        MemoryGuard(self.regions.read())
    }
}

impl MemoryGuard<'_> {
    fn find(&self, key: u32, pd: u32, at: u64, len: u64, need: u32) -> Option<*mut u8> {
        let region = self.0.get(&key)?;
        let offset = at.checked_sub(region.start)?;
        let inside = offset.checked_add(len).is_some_and(|end| end <= region.len);
        if !inside || region.pd != pd || region.access & need != need {
            return None;
        }
        let address = region.base.wrapping_add(offset as usize);
        (!region.odp || is_mapped(address, len as usize)).then_some(address)
    }

    /// The address, if the owner of the queue pair may read (or write) it.
    pub fn local(&self, sge: &ibv_sge, pd: u32, write: bool) -> Option<*mut u8> {
        let need = if write { IBV_ACCESS_LOCAL_WRITE } else { 0 };
        let len = u64::from(sge.length);
        (sge.lkey & 1 == 0)
            .then(|| self.find(sge.lkey, pd, sge.addr, len, need))
            .flatten()
    }

    /// The address, if a peer has the rights `need`.
    pub fn remote(&self, key: u32, pd: u32, at: u64, len: u64, need: u32) -> Option<*mut u8> {
        (key & 1 == 1)
            .then(|| self.find(key & !1, pd, at, len, need))
            .flatten()
    }

    /// Appends `len` bytes of a list, from `offset` on. `None`: an element may not be read.
    pub fn gather(
        &self,
        list: &[ibv_sge],
        pd: u32,
        offset: u32,
        len: u32,
        into: &mut Vec<u8>,
    ) -> Option<()> {
        for part in parts(list, offset, len) {
            let from = self.local(&part, pd, false)?;
            // SAFETY:
            // - the range is registered, and stays registered while `self` is held.
            unsafe { words::load(into, from, part.length as usize) };
        }
        Some(())
    }

    /// Writes to a list, from `offset` on. `None`: an element may not be written.
    pub fn scatter(&self, list: &[ibv_sge], pd: u32, offset: u32, from: &[u8]) -> Option<()> {
        let mut rest = from;
        for part in parts(list, offset, from.len() as u32) {
            let to = self.local(&part, pd, true)?;
            let (now, later) = rest.split_at(part.length as usize);
            // SAFETY:
            // - the range is registered, and stays registered while `self` is held.
            unsafe { words::store(to, now) };
            rest = later;
        }
        Some(())
    }
}

/// The pieces of a list that contain `len` bytes from `offset` on.
fn parts(list: &[ibv_sge], offset: u32, len: u32) -> impl Iterator<Item = ibv_sge> {
    let (mut skip, mut left) = (offset, len);
    list.iter().filter_map(move |sge| {
        let skipped = skip.min(sge.length);
        skip -= skipped;
        let length = left.min(sge.length - skipped);
        left -= length;
        (length > 0).then_some(ibv_sge {
            addr: sge.addr.wrapping_add(skipped.into()),
            length,
            lkey: sge.lkey,
        })
    })
}

/// Whether the whole range is mapped.
pub fn is_mapped(address: *mut u8, len: usize) -> bool {
    let page = rustix::param::page_size();
    let begin = address.map_addr(|addr| addr & !(page - 1));
    let len = len + (address.addr() - begin.addr());
    // SAFETY:
    // - MS_ASYNC changes nothing, and an unmapped range gives an error.
    len == 0 || unsafe { libc::msync(begin.cast::<c_void>(), len, libc::MS_ASYNC) } == 0
}

/// Remote writes and remote atomic operations need the right to write locally.
pub fn is_allowed(access: u32) -> bool {
    access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) == 0
        || access & IBV_ACCESS_LOCAL_WRITE != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_cut_into_parts() {
        let sge = |addr, length| ibv_sge {
            addr,
            length,
            lkey: 0,
        };
        let list = [sge(100, 10), sge(0, 0), sge(200, 5), sge(300, 7)];
        let cut = |offset, len| -> Vec<_> {
            parts(&list, offset, len)
                .map(|part| (part.addr, part.length))
                .collect()
        };
        assert_eq!(cut(0, 22), [(100, 10), (200, 5), (300, 7)]);
        assert_eq!(cut(9, 3), [(109, 1), (200, 2)]);
        assert_eq!(cut(15, 1), [(300, 1)]);
        assert_eq!(cut(4, 0), []);
    }
}
