//! Lookup of a job's processes: on this host in the rendezvous file, on other hosts through the launcher.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use unipgas_base::{Error, Result};
use unipgas_engine::bundle::{Address, BUNDLE_LEN, RegionKey};
use unipgas_engine::transport::Life;
use unipgas_job::bootstrap::Bootstrap;
use unipgas_job::job::RankState;
use unipgas_job::rendezvous::{PROPERTIES_LEN, PublishedProcess, Rendezvous};

/// Name of the published value: address, key, and the properties of the host's rendezvous file.
const NAME: &str = "places";
/// The only cycle: a process joins once.
const CYCLE: u32 = 1;
const VALUE: usize = 2 * BUNDLE_LEN + PROPERTIES_LEN;

/// The places of a job. A rank on another host has its rank number as its place.
pub struct JobPlaces {
    here: Rendezvous,
    afar: Option<Afar>,
}

/// The other hosts.
struct Afar {
    bootstrap: Arc<dyn Bootstrap>,
    /// Indexed by place.
    known: Mutex<HashMap<u32, Known>>,
    /// Deaths detected by this process.
    deaths: AtomicU64,
}

/// State of a process on another host.
#[derive(Clone, Copy)]
struct Known {
    /// Distinguishes the processes that had the place.
    generation: u32,
    dead: bool,
}

impl From<Rendezvous> for JobPlaces {
    /// All processes are on this host.
    fn from(here: Rendezvous) -> Self {
        JobPlaces { here, afar: None }
    }
}

impl JobPlaces {
    /// A job with ranks on other hosts, reachable through `bootstrap`.
    pub fn beyond(here: Rendezvous, bootstrap: Arc<dyn Bootstrap>) -> Self {
        let afar = Afar {
            bootstrap,
            known: Mutex::default(),
            deaths: AtomicU64::new(0),
        };
        JobPlaces {
            here,
            afar: Some(afar),
        }
    }

    /// The file of this host.
    pub fn here(&self) -> &Rendezvous {
        &self.here
    }

    /// Whether all processes are in this host's file.
    pub fn are_all_here(&self) -> bool {
        self.afar.is_none()
    }

    /// Whether the process at `place` is, or would be, in this host's file.
    pub(crate) fn is_here(&self, place: u32) -> bool {
        self.beyond_this_host(place).is_none()
    }

    /// Publishes the address of this process: see [`Rendezvous::publish`]. Errors: as there, and as [`Bootstrap::publish`] and [`Bootstrap::commit`].
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

    /// The other hosts, if the process at `place` is on one.
    fn beyond_this_host(&self, place: u32) -> Option<&Afar> {
        let afar = self.afar.as_ref()?;
        let other = place < afar.bootstrap.size() && !afar.bootstrap.shares_host(place);
        other.then_some(afar)
    }

    /// The published values of the process at `place`. `None`: no process, or nothing is published. Does not wait for processes of this host. Errors: as
    /// [`Rendezvous::find`] and [`Bootstrap::fetch`]; [`Error::Unreachable`] if the hosts have different settings.
    pub fn find(&self, place: u32) -> Result<Option<PublishedProcess>> {
        match self.beyond_this_host(place) {
            Some(afar) => afar.find(place, self.here.properties()),
            None => self.here.find(place),
        }
    }

    /// Whether the process at `place` has ended without leaving, as far as known. May read /proc.
    pub(crate) fn has_died(&self, place: u32) -> bool {
        match self.beyond_this_host(place) {
            Some(afar) => afar.has_died(place),
            None => self.here.has_died(place),
        }
    }

    /// Notes the end of a peer at `place`.
    pub(crate) fn take_notice(&self, place: u32, life: Life) {
        match self.beyond_this_host(place) {
            Some(afar) if life == Life::Dead => afar.mark_dead(place),
            Some(_) => {}
            None => drop(self.here.has_died(place)),
        }
    }

    /// Increases with each detected death. While it is unchanged, processes that lived at the last read need no new check.
    pub fn deaths(&self) -> u64 {
        let afar = self.afar.as_ref().map_or(0, |afar| {
            let told = afar.bootstrap.deaths().load(Ordering::Acquire);
            u64::from(told) + afar.deaths.load(Ordering::Acquire)
        });
        self.here.deaths() + afar
    }

    /// No place from this number on was ever taken.
    pub(crate) fn places_used(&self) -> u32 {
        let ranks = self.afar.as_ref().map_or(0, |afar| afar.bootstrap.size());
        self.here.places_used().max(ranks)
    }

    /// Leaves the job, at the end of the process. Peers find nothing here any more.
    pub(crate) fn leave(&self) {
        self.here.end();
        if let Some(afar) = &self.afar {
            // The process ends, and cannot handle an error.
            let _ = afar.bootstrap.leave();
        }
    }
}

impl Afar {
    fn find(&self, place: u32, properties: &[u8]) -> Result<Option<PublishedProcess>> {
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
        let found = PublishedProcess {
            // Not used for other hosts.
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

    /// Marks the process that was found at `place` as dead.
    fn mark_dead(&self, place: u32) {
        if let Some(known) = self.known.lock().get_mut(&place)
            && !known.dead
        {
            known.dead = true;
            self.deaths.fetch_add(1, Ordering::AcqRel);
        }
    }
}
