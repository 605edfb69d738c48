//! Where the processes of a job are found: those of this host in its rendezvous file, those of other hosts by what the launcher carries.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::bootstrap::Bootstrap;
use crate::bundle::{Address, BUNDLE_LEN, RegionKey};
use crate::job::RankState;
use crate::rendezvous::{Found, PROPERTIES_LEN, Rendezvous};
use crate::transport::Life;
use crate::{Error, Result};

/// What processes publish under this name: address, key, and the properties of their host's file.
const NAME: &str = "places";
/// Processes join once.
const CYCLE: u32 = 1;
const VALUE: usize = 2 * BUNDLE_LEN + PROPERTIES_LEN;

/// The places of a job. Where it has ranks on other hosts, these are at the places that their ranks number.
pub struct Places {
    here: Rendezvous,
    afar: Option<Afar>,
}

/// Other hosts.
struct Afar {
    bootstrap: Arc<dyn Bootstrap>,
    /// By place.
    known: Mutex<HashMap<u32, Known>>,
    /// Deaths that have been noticed here.
    deaths: AtomicU64,
}

/// What is known of a process of another host.
#[derive(Clone, Copy)]
struct Known {
    /// Tells it from one that had the place before.
    generation: u32,
    dead: bool,
}

impl From<Rendezvous> for Places {
    /// All processes are on this host.
    fn from(here: Rendezvous) -> Self {
        Places { here, afar: None }
    }
}

impl Places {
    /// Of a job that has ranks on other hosts, too, as `bootstrap` tells.
    pub fn beyond(here: Rendezvous, bootstrap: Arc<dyn Bootstrap>) -> Self {
        let afar = Afar {
            bootstrap,
            known: Mutex::default(),
            deaths: AtomicU64::new(0),
        };
        Places {
            here,
            afar: Some(afar),
        }
    }

    /// The file of this host.
    pub fn here(&self) -> &Rendezvous {
        &self.here
    }

    /// Whether this host's file has all of them.
    pub fn are_all_here(&self) -> bool {
        self.afar.is_none()
    }

    /// Shows others the way to this process: see [`Rendezvous::publish`]. Errors: also those of [`Bootstrap::publish`] and
    /// [`Bootstrap::commit`].
    pub fn publish(&self, address: &Address, key: &RegionKey) -> Result<()> {
        self.here.publish(address, key)?;
        let Some(Afar { bootstrap, .. }) = &self.afar else {
            return Ok(());
        };
        let value = [
            &address.as_bytes()[..],
            key.as_bytes(),
            self.here.properties(),
        ];
        bootstrap.publish(NAME, CYCLE, &value.concat())?;
        bootstrap.commit()
    }

    /// The other hosts, if the process at `place` is on one of them.
    fn beyond_this_host(&self, place: u32) -> Option<&Afar> {
        let afar = self.afar.as_ref()?;
        let other = place < afar.bootstrap.size() && !afar.bootstrap.shares_host(place);
        other.then_some(afar)
    }

    /// What the process at `place` has published; `None` while there is nobody, or nothing published. Of this host without a wait for
    /// anybody. Errors: as [`Rendezvous::find`] and [`Bootstrap::fetch`]; [`Error::Unreachable`] if the hosts have not been set up
    /// alike.
    pub fn find(&self, place: u32) -> Result<Option<Found>> {
        match self.beyond_this_host(place) {
            Some(afar) => afar.find(place, self.here.properties()),
            None => self.here.find(place),
        }
    }

    /// Whether the process that has `place` is known to have ended without leaving. May read /proc.
    pub fn has_died(&self, place: u32) -> bool {
        match self.beyond_this_host(place) {
            Some(afar) => afar.has_died(place),
            None => self.here.has_died(place),
        }
    }

    /// A peer at `place` was seen to have ended.
    pub fn take_notice(&self, place: u32, life: Life) {
        match self.beyond_this_host(place) {
            Some(afar) if life == Life::Dead => afar.mark_dead(place),
            Some(_) => {}
            None => drop(self.here.has_died(place)),
        }
    }

    /// Grows whenever a death has been noticed: who finds it unchanged need not look again at those that lived when it was last read.
    pub fn deaths(&self) -> u64 {
        let afar = self.afar.as_ref().map_or(0, |afar| {
            let told = afar.bootstrap.deaths().load(Ordering::Acquire);
            u64::from(told) + afar.deaths.load(Ordering::Acquire)
        });
        self.here.deaths() + afar
    }

    /// No place from this one on was ever taken.
    pub fn places_used(&self) -> u32 {
        let ranks = self.afar.as_ref().map_or(0, |afar| afar.bootstrap.size());
        self.here.places_used().max(ranks)
    }

    /// For a process that ends: others find nothing here any more.
    pub fn leave(&self) {
        self.here.end();
        if let Some(afar) = &self.afar {
            // Nobody is left who could do something about it.
            let _ = afar.bootstrap.leave();
        }
    }
}

impl Afar {
    fn find(&self, place: u32, properties: &[u8]) -> Result<Option<Found>> {
        if self.bootstrap.state(place) == Ok(RankState::Dead) {
            return Ok(None);
        }
        let Some(value) = self.bootstrap.fetch(place, NAME, CYCLE)? else {
            return Ok(None);
        };
        let parts = (value.len() == VALUE).then(|| value.split_at(2 * BUNDLE_LEN));
        let Some((way, theirs)) = parts else {
            return Err(Error::Unreachable(format!(
                "rank {place} uses another version of this library: use one for all"
            )));
        };
        if theirs != properties {
            return Err(Error::Unreachable(format!(
                "rank {place} is on a host that was set up otherwise: give the processes of all hosts the same environment"
            )));
        }
        let found = Found {
            // It means nothing here.
            pid: 0,
            address: Address::from_bytes(&way[..BUNDLE_LEN])?,
            key: RegionKey::from_bytes(&way[BUNDLE_LEN..])?,
            generation: value.iter().fold(0, |sum, byte| {
                (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
            }),
        };
        let mut known = self.known.lock();
        if known
            .get(&place)
            .is_none_or(|known| known.generation != found.generation)
        {
            let fresh = Known {
                generation: found.generation,
                dead: false,
            };
            known.insert(place, fresh);
        }
        Ok(Some(found))
    }

    fn has_died(&self, place: u32) -> bool {
        let known = self.known.lock().get(&place).copied();
        known.is_some_and(|known| known.dead) || self.bootstrap.state(place) == Ok(RankState::Dead)
    }

    /// The process that was found at a place is dead.
    fn mark_dead(&self, place: u32) {
        if let Some(known) = self.known.lock().get_mut(&place)
            && !known.dead
        {
            known.dead = true;
            self.deaths.fetch_add(1, Ordering::AcqRel);
        }
    }
}
