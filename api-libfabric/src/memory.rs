//! Memory regions (fi_mr(3)).

use std::sync::Arc;

use bytemuck::Zeroable;
use parking_lot::Mutex;
use unipgas_core::keyring::Keyed;
use unipgas_core::{Error, Region, RegionKey, Rights, user_memory};

use crate::counter::Counter;
use crate::domain::Domain;
use crate::rma::COUNTED;
use crate::status::{Errno, Result};
use crate::sys::{FI_READ, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SEND, FI_WRITE};
use crate::target::Counts;

/// Bytes of a key.
pub const KEY_SIZE: usize = 8;

const ACCESS: u64 = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

/// Registered memory. Drop ends the registration: later operations of peers fail.
pub struct MemoryRegion {
    domain: Arc<Domain>,
    key: u64,
    /// `None`: peers have no rights.
    region: Option<Region>,
    /// Counters of peers' reads and writes.
    counters: Mutex<[Option<Arc<Counter>>; 2]>,
}

impl MemoryRegion {
    /// Registers `len` bytes at `base` under `key`, or under a key that the domain chooses. `access`: FI_REMOTE_READ, FI_REMOTE_WRITE. Local
    /// operations need no right. Errors: [`Errno::NOKEY`] if the key is in use, [`Errno::INVAL`], [`Errno::NOMEM`].
    ///
    /// # Safety
    /// The memory stays valid until the region is dropped. In a domain [by address](crate::DomainOptions::by_address), peers may access any
    /// memory is mapped there.
    pub unsafe fn register(
        domain: &Arc<Domain>,
        base: *mut u8,
        len: usize,
        access: u64,
        key: u64,
    ) -> Result<MemoryRegion> {
        let by_address = domain.options().by_address;
        if base.is_null() && !by_address || len == 0 || access & !ACCESS != 0 {
            return Err(Errno::INVAL);
        }
        let own = domain.options().own_keys;
        if !own && domain.keys().contains(key) {
            return Err(Errno::NOKEY);
        }
        let mut rights = Rights::empty();
        rights.set(Rights::READ, access & FI_REMOTE_READ != 0);
        rights.set(Rights::WRITE, access & FI_REMOTE_WRITE != 0);
        rights.set(Rights::ATOMIC, !rights.is_empty());
        // Only one of several actors may operate atomically on memory at a time (fi_atomic(3), "Completions").
        rights.set(Rights::EXCLUSIVE, !rights.is_empty());
        let region = if rights.is_empty() {
            match by_address {
                true => user_memory::check_addresses(base, len)?,
                false => user_memory::check(base, len, "to register")?,
            }
            None
        } else {
            let otherwise = match rights.contains(Rights::WRITE) {
                _ if by_address => rights | Rights::BY_ADDRESS,
                true => rights,
                // A read-only mapping permits reads, but no atomic operations: they need write access.
                false => Rights::READ,
            };
            let first = match by_address && !domain.options().in_place {
                true => otherwise,
                false => rights,
            };
            // SAFETY:
            // - contract of this call.
            let register = |rights| unsafe { domain.engine().register(base, len, rights) };
            Some(match register(first) {
                Err(Error::InvalidArgument(_)) if first != otherwise => register(otherwise)?,
                region => region?,
            })
        };
        let keyed = Keyed {
            base: if domain.options().virtual_addresses {
                base as u64
            } else {
                0
            },
            len: len as u64,
            access,
            beside: 0,
            region: region.as_ref().map_or(RegionKey::zeroed(), Region::key),
        };
        loop {
            let key = if own { domain.fresh_key() } else { key };
            match domain.keys().insert(domain.engine(), key, keyed) {
                Err(Error::Taken(_)) if own => {}
                inserted => {
                    inserted?;
                    return Ok(MemoryRegion {
                        domain: domain.clone(),
                        key,
                        region,
                        counters: Mutex::default(),
                    });
                }
            }
        }
    }

    /// The key by which peers access it.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// The descriptor for local use (fi_mr_desc(3)). 0: none is needed.
    pub fn descriptor(&self) -> u64 {
        let known = (self.region.as_ref()).filter(|_| !self.domain.options().by_address);
        let local = known.and_then(|region| region.local(0, 0).ok());
        local.map_or(0, |local| local.desc)
    }

    /// Binds a counter (fi_mr_bind(3)) of peers' `reads`, or of their `writes`: all operations that modify the memory. Peers count by themselves,
    /// so the owner need not make calls. Peers that already use the key do not see the change. Errors: [`Errno::DOMAIN`]; [`Errno::INVAL`] if one is
    /// bound; [`Errno::NOSPC`] if too many counters count operations of peers.
    pub fn bind_counter(&self, counter: &Arc<Counter>, reads: bool, writes: bool) -> Result<()> {
        if !Arc::ptr_eq(&self.domain, counter.domain()) {
            return Err(Errno::DOMAIN);
        }
        let wanted = [reads, writes];
        let mut counters = self.counters.lock();
        if counters
            .iter()
            .zip(wanted)
            .any(|(bound, wanted)| wanted && bound.is_some())
        {
            return Err(Errno::INVAL);
        }
        let tally = counter.tally()?;
        self.domain.keys().change(self.key, |keyed| {
            let mut counts = Counts::unpack(keyed.beside);
            if reads {
                counts.read = Some(tally);
            }
            if writes {
                counts.write = Some(tally);
            }
            keyed.beside = counts.packed();
            keyed.access |= COUNTED;
        })?;
        for (bound, wanted) in counters.iter_mut().zip(wanted) {
            if wanted {
                *bound = Some(counter.clone());
            }
        }
        Ok(())
    }

    /// Its domain.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // The key first: later look-ups then find nothing.
        let _ = self.domain.keys().remove(self.key);
        self.region = None;
    }
}
