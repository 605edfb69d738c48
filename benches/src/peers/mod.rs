//! Other libraries, measured in the same run when they are installed.
//!
//! Small C programs, compiled when the benchmark starts, use each library as its users do; UCX brings a program of its own. A peer that is
//! absent, does not compile, fails or does not end is reported and left out.

mod build;
mod programs;
pub mod tool;
mod ucx;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::case::{Case, Metric};
use crate::network::hosts::Place;
use crate::samples::Notes;
use build::Workshop;

/// How long one start of a peer may take.
const LIMIT: Duration = Duration::from_secs(60);

/// A library that can be measured.
trait Peer {
    /// Its column.
    fn name(&self) -> &'static str;
    /// What to install to have it.
    fn packages(&self) -> &'static str;
    /// Gets ready; the error says what is missing.
    fn prepare(&mut self, workshop: &Workshop) -> Result<(), String>;
    /// Measures what it can of `cases`, which have one number of processes: lines "CASE COLUMN VALUE", and what went wrong.
    fn measure(&self, cases: &[Case], quick: bool) -> (String, Option<String>);
}

/// The peers of this machine.
pub struct Peers {
    ready: Vec<Box<dyn Peer>>,
    /// Which of them did not end, with how many processes; or measured nothing then, of which metric.
    stuck: Vec<(usize, u32, Option<Metric>)>,
    _workshop: Workshop,
}

impl Peers {
    /// Finds out which peers there are; the others go into the notes. Our provider, which libfabric loads, is that of `library` on `backend`.
    pub fn find(
        place: Option<&Place>,
        backend: &str,
        library: Result<PathBuf, String>,
        notes: &mut Notes,
    ) -> Result<Peers, String> {
        // Other hosts see the home directory, if any.
        let home = match place {
            Some(Place::Hosts(hosts)) if !hosts.made => std::env::home_dir(),
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
        Ok(Peers {
            ready,
            stuck: Vec::new(),
            _workshop: workshop,
        })
    }

    fn of_a_network(place: &Place) -> Vec<Box<dyn Peer>> {
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

    /// Names of those that can be measured.
    pub fn names(&self) -> Vec<&'static str> {
        self.ready.iter().map(|p| p.name()).collect()
    }

    /// Lets the peer number `index` measure `cases`, which have one metric and one number of processes. One that did not end, or
    /// could do nothing, is not asked again.
    /// Gives the lines of what was measured, and what went wrong.
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
