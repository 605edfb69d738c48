//! Other libraries, measured in the same run if they are installed.
//!
//! Small C programs use each library as its users do; they are compiled at the start of the benchmark. UCX has its own program. If a peer is absent,
//! does not compile, fails or hangs, the benchmark reports and skips it.

mod build;
mod programs;
pub mod tool;
mod ucx;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::case::{Case, Metric};
use crate::network::hosts::Placement;
use crate::samples::Notes;
use build::Workshop;

/// Timeout of one start of a peer.
const LIMIT: Duration = Duration::from_secs(60);

/// A library that can be measured.
trait Peer {
    /// Its column.
    fn name(&self) -> &'static str;
    /// Packages that provide it.
    fn packages(&self) -> &'static str;
    /// Prepares it. Errors: the reason why it is not usable.
    fn prepare(&mut self, workshop: &Workshop) -> Result<(), String>;
    /// Measures the supported `cases`, which have the same number of processes. Returns lines "CASE COLUMN VALUE", and the failure if any.
    fn measure(&self, cases: &[Case], quick: bool) -> (String, Option<String>);
}

/// The peers of this machine.
pub(crate) struct PeerPrograms {
    ready: Vec<Box<dyn Peer>>,
    /// Peers to skip: the index, and the number of processes with which the peer timed out (`None`) or measured nothing (a metric).
    stuck: Vec<(usize, u32, Option<Metric>)>,
    _workshop: Workshop,
}

impl PeerPrograms {
    /// Finds the usable peers, and notes the others. libfabric loads the provider `unipgas` from `library`, on `backend`.
    pub fn find(
        place: Option<&Placement>,
        backend: &str,
        library: Result<PathBuf, String>,
        notes: &mut Notes,
    ) -> Result<PeerPrograms, String> {
        // Other hosts share the home directory, if there is one.
        let home = match place {
            Some(Placement::Hosts(hosts)) if !hosts.made => std::env::home_dir(),
            _ => None,
        };
        let workshop = Workshop::new(home.unwrap_or_else(std::env::temp_dir))?;
        let all = match place {
            Some(place) => Self::of_a_network(place),
            None => Self::of_one_host(backend, library),
        };
        let mut ready = Vec::new();
        for mut peer in all {
            match peer.prepare(&workshop) {
                Ok(()) => ready.push(peer),
                Err(why) => notes.add(format!(
                    "{}: not usable ({why}): apt-get install {}",
                    peer.name(),
                    peer.packages()
                )),
            }
        }
        Ok(PeerPrograms {
            ready,
            stuck: Vec::new(),
            _workshop: workshop,
        })
    }

    fn of_a_network(place: &Placement) -> Vec<Box<dyn Peer>> {
        vec![
            Box::new(programs::openmpi_tcp(place)),
            Box::new(programs::openmpi_windows(place)),
            Box::new(ucx::tcp(place)),
        ]
    }

    fn of_one_host(backend: &str, library: Result<PathBuf, String>) -> Vec<Box<dyn Peer>> {
        vec![
            Box::new(programs::openmpi()),
            Box::new(programs::mpich()),
            Box::new(programs::oshmem()),
            Box::new(ucx::Ucx::default()),
            Box::new(programs::libfabric()),
            Box::new(programs::libfabric_tcp()),
            Box::new(programs::unipgas(backend, library)),
        ]
    }

    /// Names of the usable peers.
    pub fn names(&self) -> Vec<&'static str> {
        self.ready.iter().map(|p| p.name()).collect()
    }

    /// Runs peer `index` on `cases`, which have the same metric and number of processes. A peer that timed out or measured nothing is skipped later.
    /// Returns result lines, and the failure if any.
    pub fn measure(
        &mut self,
        index: usize,
        cases: &[Case],
        quick: bool,
    ) -> (String, Option<String>) {
        let Some(Case {
            metric, processes, ..
        }) = cases.first().copied()
        else {
            return (String::new(), None);
        };
        let is_stuck = |metric| self.stuck.contains(&(index, processes, metric));
        if is_stuck(None) || is_stuck(Some(metric)) {
            return (String::new(), None);
        }
        let peer = &self.ready[index];
        let start = Instant::now();
        let (text, failure) = peer.measure(cases, quick);
        let name = peer.name();
        if failure.is_some() && (start.elapsed() >= LIMIT || text.is_empty()) {
            let whole = start.elapsed() >= LIMIT;
            self.stuck
                .push((index, processes, (!whole).then_some(metric)));
        }
        (text, failure.map(|why| format!("{name}: {why}")))
    }
}
