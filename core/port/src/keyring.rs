//! A process's memory under 64-bit keys that its program chooses. Peers look keys up by one-sided reads, so the owner does not have to answer.
//!
//! The table is a hash table in registered memory. It grows by moving to a larger region. A peer with the old table finds it stale, and reads the root again.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

use std::collections::HashMap;
use std::mem::{offset_of, size_of};

use bytemuck::{Pod, Zeroable};
use parking_lot::Mutex;

use unipgas_base::{Error, Result, Rights};
use unipgas_engine::bundle::{BUNDLE_LEN, RegionKey};
use unipgas_engine::directory::{Listed, read_listed, write_listed};
use unipgas_engine::engine::{Connection, Engine};
use unipgas_engine::op::Remote;
use unipgas_engine::service::Service;
use unipgas_engine::{Region, RemoteRegion};

/// Slots of a new table.
const FIRST: usize = 64;
/// Slots for recent keys of a peer, which are found without a hash table.
const RECENT: usize = 32;
const LIVE: u32 = 1;
const GONE: u32 = 2;

/// Location of the table.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Root {
    sequence: u32,
    listed: u32,
    places: u64,
    table: [u8; BUNDLE_LEN],
}

/// A slot of the table: never used, in use, or removed.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Place {
    sequence: u32,
    state: u32,
    key: u64,
    base: u64,
    len: u64,
    access: u64,
    beside: u64,
    region: [u8; BUNDLE_LEN],
}

const _: () = assert!(offset_of!(Root, sequence) == 0 && offset_of!(Place, sequence) == 0);

impl Listed for Root {
    fn listed(&self) -> bool {
        self.listed != 0
    }
}

impl Listed for Place {
    fn listed(&self) -> bool {
        self.state != 0
    }
}

/// Description of the memory under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keyed {
    /// Address of its first byte, as peers name it.
    pub base: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Access rights of peers, encoded by the interface.
    pub access: u64,
    /// A value of the interface.
    pub beside: u64,
    /// The region. All zero: peers have no access.
    pub region: RegionKey,
}

/// The process's own keys.
pub struct KeyRing {
    root: Region,
    table: Mutex<Table>,
    writing: Mutex<()>,
}

struct Table {
    region: Region,
    places: usize,
    /// Slots in use or removed.
    used: usize,
    keys: HashMap<u64, (usize, Keyed)>,
}

#[inline]
fn first_place(key: u64, places: usize) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (places - 1)
}

const fn offset(place: usize) -> usize {
    place * size_of::<Place>()
}

impl KeyRing {
    /// Makes a ring without keys. Errors: as [`Engine::allocate`].
    pub fn new(engine: &Engine) -> Result<Self> {
        let ring = KeyRing {
            root: engine.allocate(size_of::<Root>(), Rights::READ)?,
            table: Mutex::new(Table {
                region: engine.allocate(offset(FIRST), Rights::READ)?,
                places: FIRST,
                used: 0,
                keys: HashMap::new(),
            }),
            writing: Mutex::new(()),
        };
        ring.publish(&ring.table.lock())?;
        Ok(ring)
    }

    /// The key that peers import.
    pub fn key(&self) -> RegionKey {
        self.root.key()
    }

    fn publish(&self, table: &Table) -> Result<()> {
        let root = Root {
            sequence: 0,
            listed: 1,
            places: table.places as u64,
            table: *table.region.key().as_bytes(),
        };
        write_listed(&self.root, &self.writing, 0, &root)
    }

    /// Whether the key is in use.
    pub fn contains(&self, key: u64) -> bool {
        let table = self.table.lock();
        table.keys.contains_key(&key)
    }

    /// Inserts memory under `key`. Errors: [`Error::Taken`], and as [`Engine::allocate`].
    pub fn insert(&self, engine: &Engine, key: u64, keyed: Keyed) -> Result<()> {
        let mut table = self.table.lock();
        if table.keys.contains_key(&key) {
            return Err(Error::Taken(format!("key {key:#x}")));
        }
        // A quarter of the slots is never used, so that a search without result ends soon.
        if (table.used + 1) * 4 > table.places * 3 {
            let places = ((table.keys.len() + 1) * 4).next_power_of_two().max(FIRST);
            let mut larger = Table {
                region: engine.allocate(offset(places), Rights::READ)?,
                places,
                used: 0,
                keys: HashMap::new(),
            };
            for (key, (_, keyed)) in &table.keys {
                self.place(&mut larger, *key, *keyed)?;
            }
            self.publish(&larger)?;
            *table = larger;
        }
        self.place(&mut table, key, keyed)
    }

    /// Changes the description of a key in use. Peers that have looked it up keep the old description until the key is removed. Errors: [`Error::StaleRegion`]
    /// if the key is not in use.
    pub fn change(&self, key: u64, what: impl FnOnce(&mut Keyed)) -> Result<()> {
        let mut table = self.table.lock();
        let (at, keyed) = table.keys.get_mut(&key).ok_or(Error::StaleRegion)?;
        what(keyed);
        let (at, keyed) = (*at, *keyed);
        self.write(&table, at, key, keyed)
    }

    fn place(&self, table: &mut Table, key: u64, keyed: Keyed) -> Result<()> {
        let mut at = first_place(key, table.places);
        while table
            .region
            .word(offset(at) + offset_of!(Place, state))?
            .load(std::sync::atomic::Ordering::Relaxed)
            != 0
        {
            at = (at + 1) & (table.places - 1);
        }
        self.write(table, at, key, keyed)?;
        table.used += 1;
        table.keys.insert(key, (at, keyed));
        Ok(())
    }

    fn write(&self, table: &Table, at: usize, key: u64, keyed: Keyed) -> Result<()> {
        let place = Place {
            sequence: 0,
            state: LIVE,
            key,
            base: keyed.base,
            len: keyed.len,
            access: keyed.access,
            beside: keyed.beside,
            region: *keyed.region.as_bytes(),
        };
        write_listed(&table.region, &self.writing, offset(at), &place)
    }

    /// Removes a key. Peers that know it are refused once its region is dropped. Errors: [`Error::StaleRegion`] if the key is not in use.
    pub fn remove(&self, key: u64) -> Result<()> {
        let mut table = self.table.lock();
        let (at, _) = table.keys.remove(&key).ok_or(Error::StaleRegion)?;
        let gone = Place {
            state: GONE,
            ..Place::zeroed()
        };
        write_listed(&table.region, &self.writing, offset(at), &gone)
    }
}

/// A key of another process, looked up.
pub struct RemoteKey {
    key: u64,
    /// Its description by the owner.
    pub keyed: Keyed,
    /// The memory. `None`: peers have no access.
    pub region: Option<RemoteRegion>,
}

impl RemoteKey {
    fn is_current(&self) -> bool {
        self.region.as_ref().is_some_and(RemoteRegion::is_current)
    }
}

/// The keys of another process.
pub struct RemoteKeys {
    connection: Connection,
    root: RemoteRegion,
    table: Option<(RemoteRegion, usize)>,
    /// Indexed by low bits of the key.
    recent: [Option<Box<RemoteKey>>; RECENT],
    others: HashMap<u64, Box<RemoteKey>>,
}

impl RemoteKeys {
    /// The keys of the ring with this [`KeyRing::key`]. Errors: as [`Connection::import`].
    pub fn new(connection: &Connection, key: &RegionKey) -> Result<Self> {
        Ok(RemoteKeys {
            connection: connection.clone(),
            root: connection.import(key)?,
            table: None,
            recent: [const { None }; RECENT],
            others: HashMap::new(),
        })
    }

    #[inline(always)]
    fn recent_place(key: u64) -> usize {
        (key ^ key >> 32) as usize % RECENT
    }

    /// The entry of `key`, if it is among the recent keys and still current.
    #[inline(always)]
    pub fn find_fast(&self, key: u64) -> Option<&RemoteKey> {
        let known = self.recent[Self::recent_place(key)].as_deref()?;
        (known.key == key && known.is_current()).then_some(known)
    }

    /// The entry of `key`. Errors: [`Error::StaleRegion`] if there is none; [`Error::PeerDead`].
    #[inline(always)]
    pub fn find(&mut self, engine: &Engine, service: &Service, key: u64) -> Result<&RemoteKey> {
        if self.find_fast(key).is_none() {
            self.find_slowly(engine, service, key)?;
        }
        match &self.recent[Self::recent_place(key)] {
            Some(known) => Ok(known),
            None => Err(Error::StaleRegion),
        }
    }

    #[cold]
    fn find_slowly(&mut self, engine: &Engine, service: &Service, key: u64) -> Result<()> {
        let known = match self.others.remove(&key) {
            Some(known) if known.is_current() => known,
            _ => Box::new(self.look_up(engine, service, key)?),
        };
        if let Some(evicted) = self.recent[Self::recent_place(key)].replace(known)
            && evicted.is_current()
            && evicted.key != key
        {
            self.others.insert(evicted.key, evicted);
            if self.others.len().is_power_of_two() {
                self.others.retain(|_, known| known.is_current());
            }
        }
        Ok(())
    }

    fn look_up(&mut self, engine: &Engine, service: &Service, key: u64) -> Result<RemoteKey> {
        // The table may move during a search; the limit ends an endless repetition.
        for _ in 0..64 {
            if self
                .table
                .as_ref()
                .is_none_or(|(table, _)| !table.is_current())
            {
                self.table = Some(self.find_table(engine, service)?);
            }
            let (table, places) = self.table.as_ref().expect("just found");
            let found = search(engine, service, table, *places, key);
            if !table.is_current() || matches!(found, Err(Error::StaleRegion)) {
                self.table = None;
                continue;
            }
            let place = found?.ok_or(Error::StaleRegion)?;
            let keyed = Keyed {
                base: place.base,
                len: place.len,
                access: place.access,
                beside: place.beside,
                region: RegionKey::from_bytes(&place.region)?,
            };
            let region = (keyed.region != RegionKey::zeroed())
                .then(|| self.connection.import(&keyed.region));
            return Ok(RemoteKey {
                key,
                keyed,
                region: region.transpose()?,
            });
        }
        Err(Error::StaleRegion)
    }

    fn find_table(&self, engine: &Engine, service: &Service) -> Result<(RemoteRegion, usize)> {
        for _ in 0..64 {
            let root: Option<Root> = read_listed(0, |offset, into| {
                let region = &self.root;
                service.read(engine, Remote { region, offset }, into)
            })?;
            let root = root.ok_or(Error::StaleRegion)?;
            let places = root.places as usize;
            if !places.is_power_of_two() {
                return Err(Error::StaleRegion);
            }
            match self.connection.import(&RegionKey::from_bytes(&root.table)?) {
                // The table has moved since the root was read.
                Err(Error::StaleRegion) if self.root.is_current() => std::thread::yield_now(),
                table => {
                    let table = table?;
                    let whole = places.checked_mul(size_of::<Place>());
                    return match whole.is_some_and(|whole| whole <= table.len()) {
                        true => Ok((table, places)),
                        false => Err(Error::StaleRegion),
                    };
                }
            }
        }
        Err(Error::StaleRegion)
    }
}

fn search(
    engine: &Engine,
    service: &Service,
    table: &RemoteRegion,
    places: usize,
    key: u64,
) -> Result<Option<Place>> {
    let first = first_place(key, places);
    for nth in 0..places {
        let at = offset((first + nth) & (places - 1));
        let place: Option<Place> = read_listed(at, |offset, into| {
            let region = table;
            service.read(engine, Remote { region, offset }, into)
        })?;
        match place {
            Some(place) if place.state == LIVE && place.key == key => return Ok(Some(place)),
            Some(_) => {}
            None => return Ok(None),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use unipgas_engine::loopback::{Loopback, LoopbackNet};

    #[test]
    fn keys_are_found_while_the_table_grows() {
        let net = Arc::new(LoopbackNet::default());
        let [mine, yours] =
            [(); 2].map(|()| Engine::new(vec![Arc::new(Loopback::join(&net))]).unwrap());
        let ring = KeyRing::new(&yours).unwrap();
        let service = Service::new(&mine).unwrap();
        let connection = mine.connect(&yours.address().unwrap()).unwrap();
        let mut keys = RemoteKeys::new(&connection, &ring.key()).unwrap();
        let mut regions = Vec::new();
        // A number of keys that makes the table grow.
        let keys_in_all = if cfg!(miri) { 40 } else { 500 };
        for nth in 0..keys_in_all as u64 {
            let key = nth.wrapping_mul(nth << 40 | 1);
            let region = yours.allocate(64, Rights::FULL).unwrap();
            let keyed = Keyed {
                base: nth,
                len: 64,
                access: 3,
                beside: !nth,
                region: region.key(),
            };
            if ring.insert(&yours, key, keyed).is_err() {
                assert!(ring.contains(key));
                continue;
            }
            ring.change(key, |keyed| keyed.beside = nth).unwrap();
            assert_eq!(keys.find(&mine, &service, key).unwrap().keyed.beside, nth);
            regions.push((key, nth, region));
            for (key, nth, _) in &regions[regions.len().saturating_sub(50)..] {
                assert_eq!(keys.find(&mine, &service, *key).unwrap().keyed.base, *nth);
            }
            assert_eq!(
                keys.find(&mine, &service, 0xdead_0000_0000 + nth).err(),
                Some(Error::StaleRegion)
            );
            if nth % 3 == 0 {
                let (key, _, region) = regions.swap_remove(regions.len() / 2);
                ring.remove(key).unwrap();
                drop(region);
                assert!(keys.find(&mine, &service, key).is_err());
                assert_eq!(ring.remove(key), Err(Error::StaleRegion));
            }
        }
        assert!(regions.len() > keys_in_all * 3 / 5);
        for (key, nth, _) in &regions {
            assert_eq!(keys.find(&mine, &service, *key).unwrap().keyed.base, *nth);
        }
    }
}
