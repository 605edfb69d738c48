//! Imports of a process: regions of other ranks by number, and arenas of groups.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use bytemuck::Zeroable;

use super::look::{Look, Sought};
use super::world::World;
use unipgas_base::calls::Call;
use unipgas_base::{Deadline, Error, Result};
use unipgas_engine::bundle::{BUNDLE_LEN, RegionKey};
use unipgas_engine::directory::{
    GROUP_PLACES, GROUPS, GroupEntry, REGION_IDS, RegionEntry, region_entry, visibility_word,
};
use unipgas_engine::region::RemoteRegion;

/// A divisor of [`GROUP_PLACES`].
const GROUPS_AT_ONCE: usize = 16;
const _: () = assert!(GROUP_PLACES.is_multiple_of(GROUPS_AT_ONCE));

/// Two regions that a peer lists under a number.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The data.
    pub data: RemoteRegion,
    /// The notification words of the data.
    pub notices: RemoteRegion,
}

type ImportTable = [AtomicPtr<Imported>; REGION_IDS];

/// The imported regions by rank and number. An unused rank costs a pointer. Interfaces keep a clone: each load on the way to a region counts on the fast path.
#[derive(Clone)]
pub struct Imports(Arc<[AtomicPtr<ImportTable>]>);

impl Imports {
    /// No imports of `ranks` ranks.
    pub(super) fn of(ranks: usize) -> Self {
        Imports((0..ranks).map(|_| AtomicPtr::new(null_mut())).collect())
    }

    /// The imported entry `id` of `rank`, if there is one.
    ///
    /// # Safety
    /// The caller uses the result only in one [call](Call), which has begun. The world lives as long.
    #[inline(always)]
    pub unsafe fn get(&self, rank: u32, id: usize) -> Option<&Imported> {
        let table = self.0.get(rank as usize)?.load(Ordering::Acquire);
        if table.is_null() || id >= REGION_IDS {
            return None;
        }
        // SAFETY:
        // - tables live as long as the world. An import lives until all calls that may have found it have ended. `id` is in range.
        unsafe { (*table)[id].load(Ordering::Acquire).as_ref() }
    }
}

impl World {
    /// The entry `id` of `rank`, which must show it to this process. An earlier import costs two loads. Errors: [`Error::StaleRegion`] if there is no entry; as
    /// [`World::import`].
    #[inline]
    pub fn imported<'a>(
        &'a self,
        rank: u32,
        id: usize,
        call: &'a Call,
        deadline: Deadline,
    ) -> Result<&'a Imported> {
        // SAFETY:
        // - the result borrows self and the call.
        match unsafe { self.imports.get(rank, id) } {
            Some(import) => Ok(import),
            None => self.import(rank, id, call, deadline),
        }
    }

    /// The imports, for a caller that keeps them.
    pub fn imports(&self) -> Imports {
        self.imports.clone()
    }

    /// Imports the entry `id` of `rank`, in place of an earlier import. After [`Error::StaleRegion`] the owner may have a new one. Errors: [`Error::Timeout`]
    /// if the rank must answer over a network and has not; the next call continues the request.
    #[cold]
    pub fn import<'a>(
        &'a self,
        rank: u32,
        id: usize,
        _call: &'a Call,
        deadline: Deadline,
    ) -> Result<&'a Imported> {
        if id >= REGION_IDS {
            return Err(Error::StaleRegion);
        }
        let incarnation = self.incarnation_of(rank);
        let found = self.look_for(rank, Sought::Region(id), deadline, |look, deadline| {
            self.find_region(look, rank, id, deadline).map(Some)
        })?;
        let fresh = Box::into_raw(Box::new(found.ok_or(Error::StaleRegion)?));
        let old = self.table(rank)[id].swap(fresh, Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY:
            // - from Box::into_raw above. Only this thread has got it from the swap.
            let old = unsafe { Box::from_raw(old) };
            self.retire(old, 1);
        }
        if self.incarnation_of(rank) != incarnation {
            // The import belongs to the previous process, so no thread may find it.
            let gone = self.forget(rank).into_iter();
            gone.for_each(|one| self.retire(one, 1));
            return Err(Error::RankDead(rank));
        }
        // SAFETY:
        // - made above. It lives until the call has ended.
        Ok(unsafe { &*fresh })
    }

    /// Errors: [`Error::StaleRegion`]: there is no entry for this process.
    fn find_region(
        &self,
        look: &mut Look,
        rank: u32,
        id: usize,
        deadline: Deadline,
    ) -> Result<Imported> {
        let entry: Option<RegionEntry> = self.read_entry(look, rank, region_entry(id), deadline)?;
        let mut bits = 0u64;
        let me = self.rank() as usize;
        let visible = visibility_word(id, me, self.size() as usize);
        self.read(
            look,
            rank,
            visible,
            bytemuck::bytes_of_mut(&mut bits),
            deadline,
        )?;
        let entry = entry
            .filter(|_| bits & (1 << (me % 64)) != 0)
            .ok_or(Error::StaleRegion)?;
        let import = |bytes: &[u8; BUNDLE_LEN]| {
            self.import_by(rank, &RegionKey::from_bytes(bytes)?, deadline)
        };
        Ok(Imported {
            data: import(&entry.data)?,
            notices: import(&entry.notices)?,
        })
    }

    /// Takes all imports from `rank` out of use. The caller [retires](World::retire) them where memory may be released.
    pub fn forget(&self, rank: u32) -> Vec<Box<dyn Send>> {
        // SAFETY:
        // - null, or a table, which lives as long as the world.
        let table = unsafe {
            self.imports.0[rank as usize]
                .load(Ordering::Acquire)
                .as_ref()
        };
        let places = table.into_iter().flatten();
        let taken = places.filter_map(|place| {
            let old = place.swap(null_mut(), Ordering::AcqRel);
            // SAFETY:
            // - from Box::into_raw in `import`. Only this thread has got it from the swap.
            (!old.is_null()).then(|| unsafe { Box::from_raw(old) } as Box<dyn Send>)
        });
        taken.collect()
    }

    fn table(&self, rank: u32) -> &ImportTable {
        let place = &self.imports.0[rank as usize];
        let table = place.load(Ordering::Acquire);
        if !table.is_null() {
            // SAFETY:
            // - lives as long as the world.
            return unsafe { &*table };
        }
        let fresh = Box::into_raw(Box::new(std::array::from_fn(
            |_| AtomicPtr::new(null_mut()),
        )));
        match place.compare_exchange(null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY:
            // - made above. It lives as long as the world.
            Ok(_) => unsafe { &*fresh },
            Err(other) => {
                // SAFETY:
                // - no other thread has seen `fresh`. `other` is the table in use.
                unsafe {
                    drop(Box::from_raw(fresh));
                    &*other
                }
            }
        }
    }

    /// The arena that `rank` lists for the group `name`, if any. Deadline and errors as for [`World::import`].
    pub fn find_group(
        &self,
        rank: u32,
        name: [u64; 2],
        deadline: Deadline,
    ) -> Result<Option<RemoteRegion>> {
        self.look_for(rank, Sought::Group(name), deadline, |look, deadline| {
            self.find_arena(look, rank, name, deadline)
        })
    }

    fn find_arena(
        &self,
        look: &mut Look,
        rank: u32,
        name: [u64; 2],
        deadline: Deadline,
    ) -> Result<Option<RemoteRegion>> {
        const EACH: usize = size_of::<GroupEntry>();
        for first in (0..GROUP_PLACES).step_by(GROUPS_AT_ONCE) {
            let mut seen = [GroupEntry::zeroed(); GROUPS_AT_ONCE];
            let at = GROUPS + first * EACH;
            self.read(
                look,
                rank,
                at,
                bytemuck::cast_slice_mut(&mut seen),
                deadline,
            )?;
            // A group takes the lowest free entry. So the entries behind an unused one are unused too.
            let used = seen.iter().take_while(|entry| entry.was_used()).count();
            for nth in (0..used).filter(|nth| seen[*nth].may_be(name)) {
                let entry: Option<GroupEntry> =
                    self.read_entry(look, rank, at + nth * EACH, deadline)?;
                if let Some(entry) = entry.filter(|entry| entry.name == name) {
                    let key = RegionKey::from_bytes(&entry.arena)?;
                    return self.import_by(rank, &key, deadline).map(Some);
                }
            }
            if used < GROUPS_AT_ONCE {
                break;
            }
        }
        Ok(None)
    }
}

impl Imports {
    /// Frees all imports, at the end of the world.
    pub(super) fn free(&self) {
        for place in &*self.0 {
            // A clone that outlives the world finds no imports.
            let table = place.swap(null_mut(), Ordering::AcqRel);
            if table.is_null() {
                continue;
            }
            // SAFETY:
            // - tables and imports are from Box::into_raw. No reference to the world is left.
            unsafe {
                for import in &*table {
                    let import = import.load(Ordering::Acquire);
                    if !import.is_null() {
                        drop(Box::from_raw(import));
                    }
                }
                drop(Box::from_raw(table));
            }
        }
    }
}
