//! Address vectors (fi_av(3)). In tables and maps alike, an address is the lowest free index.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use crate::collectives::AvSet;
use crate::domain::Domain;
use crate::name::{Called, EndpointName};
use crate::service::Search;
use crate::status::{Errno, Result};
use crate::sys::FI_ADDR_NOTAVAIL;

/// Time between two searches for services. Programs retry in a loop.
const LOOK: Duration = Duration::from_millis(1);

/// An address vector.
pub struct AddressVector {
    domain: Arc<Domain>,
    entries: RwLock<Entries>,
    /// Time of the last search for services.
    looked: Mutex<Option<Instant>>,
    /// Searches for services of other hosts, by address.
    searches: Mutex<HashMap<u64, Search>>,
    /// Number of removed addresses. Endpoints compare it to detect stale cached addresses.
    removals: AtomicU64,
    sets: Mutex<Vec<Weak<AvSet>>>,
}

/// The endpoint at an address.
#[derive(Clone, Copy)]
struct Known {
    called: Called,
    /// `None`: the service has not been found yet.
    name: Option<EndpointName>,
}

#[derive(Default)]
struct Entries {
    names: Vec<Option<Known>>,
    /// Number of entries without a name.
    unknown: usize,
    /// Indices of removed entries.
    free: BTreeSet<u64>,
    by_id: HashMap<u64, u64>,
}

impl AddressVector {
    /// An empty address vector.
    pub fn new(domain: &Arc<Domain>) -> AddressVector {
        AddressVector {
            domain: domain.clone(),
            entries: RwLock::default(),
            looked: Mutex::new(None),
            searches: Mutex::default(),
            removals: AtomicU64::new(0),
            sets: Mutex::default(),
        }
    }

    /// Its domain.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Inserts a name and returns its address. Addresses of removed entries are used again.
    pub fn insert(&self, called: Called) -> u64 {
        let name = match called {
            Called::Name(name) => Some(name),
            Called::Service(_) | Called::Server(_) => None,
        };
        let known = Known { called, name };
        let mut entries = self.entries.write();
        let address = match entries.free.pop_first() {
            Some(address) => {
                entries.names[address as usize] = Some(known);
                address
            }
            None => {
                entries.names.push(Some(known));
                entries.names.len() as u64 - 1
            }
        };
        match name {
            Some(name) => drop(entries.by_id.entry(name.id()).or_insert(address)),
            None => entries.unknown += 1,
        }
        address
    }

    /// Removes an address. Errors: [`Errno::INVAL`] if it is not in use.
    pub fn remove(&self, address: u64) -> Result<()> {
        let mut entries = self.entries.write();
        let place = entries
            .names
            .get_mut(address as usize)
            .ok_or(Errno::INVAL)?;
        let known = place.take().ok_or(Errno::INVAL)?;
        entries.free.insert(address);
        let Some(name) = known.name else {
            entries.unknown -= 1;
            self.searches.lock().remove(&address);
            return Ok(());
        };
        if entries.by_id.get(&name.id()) == Some(&address) {
            let same = |other: &Option<Known>| other.and_then(|other| other.name) == Some(name);
            let again = entries.names.iter().position(same);
            match again {
                Some(other) => entries.by_id.insert(name.id(), other as u64),
                None => entries.by_id.remove(&name.id()),
            };
        }
        self.removals.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// The name at an address. Errors: [`Errno::INVAL`] if it is not in use. For a service also [`Errno::AGAIN`] while no endpoint serves it, and
    /// the error that makes it unreachable.
    pub fn name(&self, address: u64) -> Result<EndpointName> {
        let known = self.known(address)?;
        match (known.name, known.called) {
            (Some(name), _) | (None, Called::Name(name)) => Ok(name),
            (None, called) => self.find(address, called),
        }
    }

    /// The name or service that the program inserted at an address. Errors: [`Errno::INVAL`] if it is not in use.
    pub fn called(&self, address: u64) -> Result<Called> {
        self.known(address).map(|known| known.called)
    }

    fn known(&self, address: u64) -> Result<Known> {
        let entries = self.entries.read();
        let known = entries.names.get(address as usize).copied().flatten();
        known.ok_or(Errno::INVAL)
    }

    #[cold]
    fn find(&self, address: u64, called: Called) -> Result<EndpointName> {
        if self.is_time_to_look() {
            self.find_now(address, called)
        } else {
            Err(Errno::AGAIN)
        }
    }

    fn is_time_to_look(&self) -> bool {
        let mut looked = self.looked.lock();
        let due = looked.is_none_or(|looked| looked.elapsed() >= LOOK);
        if due {
            *looked = Some(Instant::now());
        }
        due
    }

    fn find_now(&self, address: u64, called: Called) -> Result<EndpointName> {
        let found = match &called {
            Called::Name(name) => Ok(Some(*name)),
            Called::Service(service) => service.find(&self.domain),
            Called::Server(server) => {
                let mut searches = self.searches.lock();
                let found = searches.entry(address).or_default().look(server);
                if !matches!(found, Ok(None)) {
                    searches.remove(&address);
                }
                found
            }
        };
        let name = found?.ok_or(Errno::AGAIN)?;
        let mut entries = self.entries.write();
        let place = entries.names.get_mut(address as usize);
        let known = place.and_then(Option::as_mut).ok_or(Errno::INVAL)?;
        if known.called != called {
            return Err(Errno::INVAL);
        }
        if known.name.is_none() {
            known.name = Some(name);
            entries.unknown -= 1;
            entries.by_id.entry(name.id()).or_insert(address);
        }
        Ok(name)
    }

    /// The address of the endpoint `id`, or FI_ADDR_NOTAVAIL if it was not inserted.
    pub fn address_of(&self, id: u64) -> u64 {
        let (found, unknown) = self.look_up(id);
        // The sender may be a service that has no name here yet.
        if found.is_none() && unknown {
            self.find_services();
            return self.look_up(id).0.unwrap_or(FI_ADDR_NOTAVAIL);
        }
        found.unwrap_or(FI_ADDR_NOTAVAIL)
    }

    fn look_up(&self, id: u64) -> (Option<u64>, bool) {
        let entries = self.entries.read();
        (entries.by_id.get(&id).copied(), entries.unknown > 0)
    }

    #[cold]
    fn find_services(&self) {
        if !self.is_time_to_look() {
            return;
        }
        let entries = self.entries.read();
        let unknown: Vec<(u64, Called)> = (0..)
            .zip(&entries.names)
            .filter_map(|(address, known)| match known {
                Some(Known { called, name: None }) => Some((address, *called)),
                _ => None,
            })
            .collect();
        drop(entries);
        for (address, called) in unknown {
            // An unreachable service cannot be the sender.
            let _ = self.find_now(address, called);
        }
    }

    /// All addresses, in order.
    pub fn addresses(&self) -> Vec<u64> {
        let entries = self.entries.read();
        let all = (0..).zip(&entries.names);
        all.filter(|(_, known)| known.is_some())
            .map(|(address, _)| address)
            .collect()
    }

    pub(crate) fn add_set(&self, set: &Arc<AvSet>) {
        let mut sets = self.sets.lock();
        sets.retain(|known| known.strong_count() > 0);
        sets.push(Arc::downgrade(set));
    }

    /// The set with this address.
    pub(crate) fn set(&self, address: u64) -> Option<Arc<AvSet>> {
        let sets = self.sets.lock();
        let mut sets = sets.iter().filter_map(Weak::upgrade);
        sets.find(|set| set.address() == address)
    }

    /// Number of addresses that have been removed.
    #[inline(always)]
    pub(crate) fn removals(&self) -> u64 {
        self.removals.load(Ordering::Acquire)
    }
}
