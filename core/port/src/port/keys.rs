//! Registered memory under short keys: the owner's registrations, and the entries that peers read.

use std::collections::HashMap;
use std::mem::size_of;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use bytemuck::{Pod, Zeroable};
use parking_lot::Mutex;

use super::notice::Fault;
use super::trigger::HEADER_LEN;
use unipgas_base::{Error, Result, Rights};
use unipgas_engine::Region;
use unipgas_engine::bundle::BUNDLE_LEN;
use unipgas_engine::directory::{Listed, write_listed};
use unipgas_engine::engine::Engine;
use unipgas_engine::op::Local;

/// Number of keys of a port.
pub const KEYS: usize = 8192;
/// The first keys are reserved: the program selects them by number.
pub(crate) const RESERVED_KEYS: u32 = 256;

const OFFSET_BITS: u32 = 40;
const INDEX_BITS: u32 = 13;
const GENERATION_BITS: u32 = 7;
const PORT_SHIFT: u32 = OFFSET_BITS + INDEX_BITS + GENERATION_BITS;
/// Ports with indices that differ only in the bits of this range have no key in common.
const PORTS: u64 = 8;

/// A byte of registered memory as a 64-bit number. Offsets can be added to it. It is never 0. Bits 40 to 63 are the key, the rest is the offset. Keys differ
/// among the eight ports of a block of indices (0 to 7, 8 to 15, ...). A released key is invalid until 127 other registrations have used its slot; a reserved
/// key is reused at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShortKey(pub u64);

impl ShortKey {
    /// Byte 0 of reserved key `index` of the port with index `port`. Memory need not be registered there.
    pub fn reserved(port: u16, index: u32) -> Self {
        ShortKey::new(port, index as usize, 0)
    }

    fn new(port: u16, index: usize, generation: u8) -> Self {
        let port = u64::from(port) % PORTS + 1;
        ShortKey(
            port << PORT_SHIFT
                | u64::from(generation) << (OFFSET_BITS + INDEX_BITS)
                | (index as u64) << OFFSET_BITS,
        )
    }

    /// Offset from the beginning of the registered memory.
    #[inline(always)]
    pub fn offset(self) -> usize {
        (self.0 & ((1 << OFFSET_BITS) - 1)) as usize
    }

    #[inline(always)]
    pub(super) fn index(self) -> usize {
        (self.0 >> OFFSET_BITS) as usize & (KEYS - 1)
    }

    /// The key without the offset.
    #[inline(always)]
    pub(super) fn name(self) -> u32 {
        (self.0 >> OFFSET_BITS) as u32
    }
}

/// Entry of a key, as peers read it.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(8))]
pub(super) struct KeyEntry {
    sequence: u32,
    /// [`ShortKey::name`]. 0: no key.
    pub name: u32,
    pub region: [u8; BUNDLE_LEN],
}

impl Listed for KeyEntry {
    fn listed(&self) -> bool {
        self.name != 0
    }
}

/// Offset of the end of the entries in a port's table region.
pub(super) const TABLE_END: usize = entry(KEYS);

/// Offset of the entry of key `index` in a port's table region, after the header.
pub(super) const fn entry(index: usize) -> usize {
    HEADER_LEN + index * size_of::<KeyEntry>()
}

/// Entry of a key for the owner's own commands.
#[derive(Debug, Default)]
struct Own {
    /// [`ShortKey::name`]. 0: no key.
    name: AtomicU32,
    rights: AtomicU32,
    base: AtomicUsize,
    len: AtomicUsize,
    desc: AtomicU64,
}

struct Registered {
    region: Region,
    range: (usize, usize, u32),
    count: usize,
}

#[derive(Default)]
struct Registrations {
    by_index: HashMap<usize, Registered>,
    by_range: HashMap<(usize, usize, u32), usize>,
    generations: HashMap<usize, u8>,
    free: Vec<usize>,
    used: usize,
}

/// The keys of a port of this process.
pub(super) struct KeyTable {
    /// Index of the port.
    port: u16,
    own: Box<[Own; KEYS]>,
    registrations: Mutex<Registrations>,
    /// Held while the shared table is written.
    writing: Mutex<()>,
}

impl KeyTable {
    pub(crate) fn new(port: u16) -> Self {
        let own: Vec<_> = (0..KEYS).map(|_| Own::default()).collect();
        KeyTable {
            port,
            own: own.try_into().expect("as many as the array has"),
            registrations: Mutex::default(),
            writing: Mutex::default(),
        }
    }

    /// Registers memory under a new key, or counts another registration of its present key. Errors: [`Error::Exhausted`], and as [`Engine::register`].
    ///
    /// # Safety
    /// As [`Engine::register`], until the key is released as often as it was returned.
    pub(crate) unsafe fn register(
        &self,
        engine: &Engine,
        table: &Region,
        base: *mut u8,
        len: usize,
        rights: Rights,
    ) -> Result<ShortKey> {
        let range = (base as usize, len, rights.bits());
        let mut all = self.registrations.lock();
        if let Some(index) = all.by_range.get(&range).copied() {
            let registered = all.by_index.get_mut(&index).expect("both maps agree");
            registered.count += 1;
            return Ok(ShortKey(
                u64::from(self.own[index].name.load(Ordering::Relaxed)) << OFFSET_BITS,
            ));
        }
        let fresh = RESERVED_KEYS as usize + all.used;
        if all.free.is_empty() && fresh >= KEYS {
            return Err(Error::Exhausted(format!("keys (a port has {KEYS})")));
        }
        // SAFETY:
        // - contract of this call, as for `Engine::register`.
        let region = unsafe { engine.register(base, len, rights) }?;
        let index = all.free.pop().unwrap_or_else(|| {
            all.used += 1;
            fresh
        });
        let generation = all.generations.entry(index).or_insert(0);
        *generation = (*generation + 1) % (1 << GENERATION_BITS);
        let key = ShortKey::new(self.port, index, *generation);
        if let Err(error) = self.list(table, key, &region, rights) {
            all.free.push(index);
            return Err(error);
        }
        all.by_range.insert(range, index);
        all.by_index.insert(
            index,
            Registered {
                region,
                range,
                count: 1,
            },
        );
        Ok(key)
    }

    /// Registers memory under the reserved key `index`. Errors: [`Error::Taken`], and as [`Engine::register`].
    ///
    /// # Safety
    /// As [`KeyTable::register`].
    pub(crate) unsafe fn register_reserved(
        &self,
        engine: &Engine,
        table: &Region,
        (base, len): (*mut u8, usize),
        index: u32,
        rights: Rights,
    ) -> Result<ShortKey> {
        debug_assert!(index < RESERVED_KEYS);
        let mut all = self.registrations.lock();
        if all.by_index.contains_key(&(index as usize)) {
            return Err(Error::Taken(format!("key {index}")));
        }
        // SAFETY:
        // - contract of this call, as for `Engine::register`.
        let region = unsafe { engine.register(base, len, rights) }?;
        let key = ShortKey::reserved(self.port, index);
        self.list(table, key, &region, rights)?;
        all.by_index.insert(
            index as usize,
            Registered {
                region,
                range: (base as usize, len, rights.bits()),
                count: 1,
            },
        );
        Ok(key)
    }

    fn list(&self, table: &Region, key: ShortKey, region: &Region, rights: Rights) -> Result<()> {
        let entry_here = KeyEntry {
            sequence: 0,
            name: key.name(),
            region: *region.key().as_bytes(),
        };
        write_listed(table, &self.writing, entry(key.index()), &entry_here)?;
        let own = &self.own[key.index()];
        own.base.store(region.base() as usize, Ordering::Relaxed);
        own.len.store(region.len(), Ordering::Relaxed);
        own.desc.store(region.local(0, 0)?.desc, Ordering::Relaxed);
        own.rights.store(rights.bits(), Ordering::Relaxed);
        own.name.store(key.name(), Ordering::Release);
        Ok(())
    }

    /// Releases one registration of `key`. The offset of `key` must be 0. Errors: [`Error::StaleRegion`].
    pub fn release(&self, table: &Region, key: ShortKey) -> Result<()> {
        let mut all = self.registrations.lock();
        let index = key.index();
        let own = &self.own[index];
        if key.offset() != 0 || own.name.load(Ordering::Acquire) != key.name() {
            return Err(Error::StaleRegion);
        }
        let Some(registered) = all.by_index.get_mut(&index) else {
            return Err(Error::StaleRegion);
        };
        registered.count -= 1;
        if registered.count > 0 {
            return Ok(());
        }
        own.name.store(0, Ordering::Release);
        own.len.store(0, Ordering::Release);
        write_listed(table, &self.writing, entry(index), &KeyEntry::zeroed())?;
        let registered = all.by_index.remove(&index).expect("just seen");
        if index >= RESERVED_KEYS as usize {
            all.by_range.remove(&registered.range);
            all.free.push(index);
        }
        drop(registered.region);
        Ok(())
    }

    /// Releases all registrations.
    pub(crate) fn release_all(&self, table: &Region) {
        let mut all = self.registrations.lock();
        for index in all.by_index.keys() {
            let own = &self.own[*index];
            own.name.store(0, Ordering::Release);
            own.len.store(0, Ordering::Release);
            let _ = write_listed(table, &self.writing, entry(*index), &KeyEntry::zeroed());
        }
        *all = Registrations::default();
    }

    /// `len` bytes at `key`, as an operand of a command of this process.
    #[inline(always)]
    pub(crate) fn local(&self, key: ShortKey, len: usize, write: bool) -> Result<Local, Reach> {
        let own = &self.own[key.index()];
        if own.name.load(Ordering::Acquire) != key.name() {
            return Err(Reach::Key);
        }
        within(key.offset(), len, own.len.load(Ordering::Relaxed))?;
        if write && own.rights.load(Ordering::Relaxed) & Rights::WRITE.bits() == 0 {
            return Err(Reach::Memory);
        }
        Ok(Local {
            ptr: (own.base.load(Ordering::Relaxed) + key.offset()) as *mut u8,
            desc: own.desc.load(Ordering::Relaxed),
        })
    }
}

/// Reason why memory under a key is not usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    Key,
    Length,
    Memory,
}

impl Reach {
    /// The fault for the source of a put.
    #[cold]
    pub(crate) fn at_send(self) -> Fault {
        match self {
            Reach::Key => Fault::SendKey,
            Reach::Length => Fault::SendLength,
            Reach::Memory => Fault::SendMemory,
        }
    }

    /// The fault for the destination of a get.
    #[cold]
    pub(crate) fn at_return(self) -> Fault {
        match self {
            Reach::Key => Fault::LocalKey,
            Reach::Length => Fault::LocalLength,
            Reach::Memory => Fault::LocalMemory,
        }
    }

    /// The fault for memory of the target.
    #[cold]
    pub(crate) fn at_target(self) -> Fault {
        match self {
            Reach::Key => Fault::RemoteKey,
            Reach::Length => Fault::RemoteLength,
            Reach::Memory => Fault::RemoteMemory,
        }
    }
}

/// A first byte outside is a wrong key; a last byte outside is a wrong length (uTofu guide §3.1.2.1).
#[inline(always)]
pub(super) fn within(offset: usize, len: usize, region_len: usize) -> Result<(), Reach> {
    if offset <= region_len && len <= region_len - offset {
        Ok(())
    } else {
        Err(outside(offset, region_len))
    }
}

#[cold]
fn outside(offset: usize, region_len: usize) -> Reach {
    if offset >= region_len {
        Reach::Key
    } else {
        Reach::Length
    }
}

const _: () =
    assert!(PORT_SHIFT == 60 && PORTS < 1 << (64 - PORT_SHIFT) && KEYS == 1 << INDEX_BITS);
