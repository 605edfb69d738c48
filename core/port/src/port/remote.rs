//! A port of another process.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::keys::{KEYS, KeyEntry, Reach, ShortKey, TABLE_END, entry, within};
use super::neighbour::PortNetwork;
use super::notice::PortNotice;
use super::trigger::{HELD, Header, Trigger};
use unipgas_base::{Error, Result, Rights, waits};
use unipgas_engine::bundle::RegionKey;
use unipgas_engine::directory::read_listed;
use unipgas_engine::engine::Connection;
use unipgas_engine::inbox::InboxWriter;
use unipgas_engine::op::{Inbox, Remote};
use unipgas_engine::region::RemoteRegion;
use unipgas_engine::transport::Life;

struct KnownKey {
    name: u32,
    region: RemoteRegion,
}

/// A port that has been found. Each key is looked up once.
pub struct RemotePort {
    /// Its process has ended. The memory stays mapped, but is not used.
    left: AtomicBool,
    /// Arrivals are sent to its owner's process.
    holds: bool,
    /// Place of its owner.
    place: u32,
    connection: Connection,
    table: RemoteRegion,
    inbox: RemoteRegion,
    /// The larger part of the inbox. It is used while the smaller part is full, and until it has been emptied again.
    spill: RemoteRegion,
    /// Writers of both parts. `None`: the inbox is not mapped here.
    writers: Option<[InboxWriter; 2]>,
    /// An array in place saves one load in a put.
    known: [AtomicPtr<KnownKey>; KEYS],
}

/// Weights of a port and of a key, for the decision when to free them ([`Reclaimer`](unipgas_base::reclaimer::Reclaimer)).
pub(super) const WEIGHTS: (usize, usize) = (32, 1);

/// Whether the region can be a port's table. Its owner may list any region.
pub(super) fn is_table(region: &RemoteRegion) -> bool {
    let aligned = region
        .parts()
        .base
        .addr()
        .is_multiple_of(align_of::<Header>());
    region.len() >= PLAIN_LEN && aligned
}

impl RemotePort {
    /// Makes a port with a table that passes [`is_table`].
    pub(super) fn new(
        place: u32,
        connection: Connection,
        kind: u32,
        table: RemoteRegion,
        inbox: RemoteRegion,
        spill: RemoteRegion,
    ) -> Self {
        let writer = |region: &RemoteRegion| {
            let base = region.parts().base;
            if base.is_null() {
                return None;
            }
            // SAFETY:
            // - mapped while the region is held, and `self` holds it; `attach` refuses memory without a valid inbox.
            unsafe { InboxWriter::attach(base, region.len()) }.ok()
        };
        let writers = writer(&inbox).and_then(|small| Some([small, writer(&spill)?]));
        RemotePort {
            left: AtomicBool::new(false),
            holds: kind == HELD,
            place,
            connection,
            table,
            writers,
            inbox,
            spill,
            known: [const { AtomicPtr::new(null_mut()) }; KEYS],
        }
    }

    /// Whether its owner still offers it, and has not been seen dead.
    #[inline(always)]
    pub fn is_current(&self) -> bool {
        self.table.is_current() & !self.left.load(Ordering::Relaxed)
    }

    /// Notes that its process has ended.
    #[cold]
    pub(super) fn mark_departed(&self) {
        self.left.store(true, Ordering::Relaxed);
    }

    /// Memory shared by its owner and its peers. `None`: not mapped here.
    #[inline(always)]
    pub(super) fn header(&self) -> Option<&Header> {
        let base = self.table.parts().base;
        if base.is_null() {
            return None;
        }
        // SAFETY:
        // - `is_table` has checked size and alignment. A header consists of atomics, and stays mapped while the region is held.
        Some(unsafe { &*base.cast::<Header>() })
    }

    /// Its triggered commands. `None`: not a session port, or not mapped here.
    pub(super) fn trigger(&self) -> Option<Trigger<'_>> {
        let header = self.header()?;
        // SAFETY:
        // - as for `header`. `Trigger::attach` checks that a session port's table region has room for the commands.
        unsafe { Trigger::attach(header, self.table.len()) }
    }

    /// Destination of arrivals, if it is a session port that carries out its commands itself.
    pub(super) fn arrivals(&self) -> Option<Remote<'_>> {
        self.holds.then_some(Remote {
            region: &self.table,
            offset: 0,
        })
    }

    /// Prefetches the line of the next notice while the data is in flight.
    #[inline(always)]
    pub(super) fn prefetch_inbox(&self) {
        if let Some([small, _]) = &self.writers {
            small.prefetch();
        }
    }

    /// Whether [`RemotePort::push`] can deliver notices.
    #[inline(always)]
    pub(super) fn has_mapped_inbox(&self) -> bool {
        self.writers.is_some()
    }

    /// Delivers a notice to a mapped inbox. The inbox has a small part, which stays in the caches, and a large part for notices that do not fit. False: both
    /// parts are full, or the inbox is not mapped.
    #[inline(always)]
    pub(super) fn push(&self, notice: PortNotice) -> bool {
        let Some([small, large]) = &self.writers else {
            return false;
        };
        if !small.push_or(large, notice.to_record()) {
            return false;
        }
        if let Some(bell) = self.inbox.bell() {
            bell.ring_if_heard();
        }
        true
    }

    /// Both parts of the inbox, in the order of [`RemotePort::push`].
    pub(super) fn inbox(&self) -> Inbox<'_> {
        Inbox {
            first: &self.inbox,
            second: Some(&self.spill),
            overflow: Some(Remote {
                region: &self.table,
                offset: Header::OVERFLOW,
            }),
        }
    }

    /// Sets the overflow word: the owner has not taken its notices in time. Its next poll returns the error.
    #[cold]
    pub(super) fn overflowed(&self) {
        if let Some(header) = self.header() {
            header.overflow.store(1, Ordering::Release);
        }
    }

    /// Checks whether the owner has ended.
    #[cold]
    pub(super) fn owner_has_gone(&self) -> bool {
        self.connection.life() != Life::Alive
    }

    /// The memory under `key`, if it was looked up before. It may have been released since. It is valid for the call that holds a port's queues, like all
    /// regions here.
    #[inline(always)]
    pub(super) fn region_fast(&self, key: ShortKey) -> Option<&RemoteRegion> {
        let known = self.known[key.index()].load(Ordering::Acquire);
        // SAFETY:
        // - null, or made by Box::into_raw; kept until the call that read it is over, or self is dropped.
        let known = unsafe { known.as_ref() }?;
        (known.name == key.name()).then_some(&known.region)
    }

    /// The memory under `key`, for any offset.
    #[inline(always)]
    pub(super) fn region(
        &self,
        network: &PortNetwork,
        key: ShortKey,
    ) -> Result<&RemoteRegion, Reach> {
        match self.region_fast(key) {
            Some(region) if region.is_current() => Ok(region),
            _ => self.look_up(network, key),
        }
    }

    /// `len` bytes at `key`.
    #[inline(always)]
    pub(super) fn at(
        &self,
        network: &PortNetwork,
        key: ShortKey,
        len: usize,
        need: Rights,
    ) -> Result<Remote<'_>, Reach> {
        let region = self.region(network, key)?;
        within(key.offset(), len, region.len())?;
        if !region.parts().rights.contains(need) {
            return Err(Reach::Memory);
        }
        Ok(Remote {
            region,
            offset: key.offset(),
        })
    }

    #[cold]
    fn look_up(&self, network: &PortNetwork, key: ShortKey) -> Result<&RemoteRegion, Reach> {
        let _slices = waits::in_slices(self.place);
        let listed: Option<KeyEntry> = read_listed(entry(key.index()), |offset, into| {
            network.read(&self.table, offset, into)
        })
        .map_err(|_| Reach::Key)?;
        let listed = listed
            .filter(|listed| listed.name == key.name())
            .ok_or(Reach::Key)?;
        let region = RegionKey::from_bytes(&listed.region)
            .and_then(|region| self.connection.import(&region))
            .map_err(|_: Error| Reach::Key)?;
        let fresh = Box::into_raw(Box::new(KnownKey {
            name: key.name(),
            region,
        }));
        let old = self.known[key.index()].swap(fresh, Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY:
            // - made by Box::into_raw above; the swap passed it to this thread alone.
            let old = unsafe { Box::from_raw(old) };
            // Another thread, and this call, may still read it.
            network.reclaimer().retire(old, WEIGHTS.1);
        }
        // SAFETY:
        // - just made; kept until this call is over, or self is dropped.
        Ok(unsafe { &(*fresh).region })
    }
}

impl Drop for RemotePort {
    fn drop(&mut self) {
        for known in &self.known {
            let known = known.swap(null_mut(), Ordering::AcqRel);
            if !known.is_null() {
                // SAFETY:
                // - made by Box::into_raw; `&mut self` excludes other references.
                drop(unsafe { Box::from_raw(known) });
            }
        }
    }
}

/// Bytes of a port's table region without triggered commands.
pub(super) const PLAIN_LEN: usize = TABLE_END;
