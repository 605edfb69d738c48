//! Starts the measured processes and collects their results.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::arena::{Arena, STARTS};
use crate::case::Case;
use crate::ctx::now_ns;
use crate::launch::{outcome_of, worker};
use crate::network::hosts::{Placement, worker_args};
use crate::network::hub::Hub;
use crate::worker::{Token, WorkOrder};

/// Settings of a measurement.
pub(crate) struct JobSettings {
    /// The backend of unipgas, if the processes share memory.
    pub backend: String,
    /// The place of the processes, if they share no memory.
    pub place: Option<Placement>,
    /// The library under test.
    pub library: PathBuf,
    /// Number of passes through all cases and columns.
    pub visits: usize,
    /// Measure for a shorter time.
    pub quick: bool,
    /// Timeout of a job.
    pub limit: Duration,
}

/// Runs `cases`, which all have the same number of processes, with each column in turn. `heard` gets the result lines: at once on a network, else
/// after the job.
pub fn run(cases: &[Case], how: &JobSettings, heard: &(dyn Fn(&str) + Sync)) -> Result<(), String> {
    let Some(size) = cases.first().map(|c| c.processes) else {
        return Ok(());
    };
    let args = |ground| {
        let order = WorkOrder {
            ground,
            size,
            visits: how.visits,
            quick: how.quick,
            cases: cases.to_vec(),
        };
        worker_args(&order.to_string(), Some(&how.library))
    };
    match &how.place {
        None => {
            let arena = Arena::create(size)?;
            let mut launch = worker(size, args(Token::Memory(arena.token())), how.limit)?;
            launch.backend = Some(how.backend.clone());
            arena.control(STARTS).store(now_ns(), Ordering::Release);
            let outcome = launch.run().map_err(|e| e.to_string());
            arena.text().lines().for_each(heard);
            outcome_of(&outcome?, how.limit)
        }
        Some(place) => {
            let hub = Hub::open(place.address()?)?;
            let args = args(Token::Network(hub.token()));
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| hub.serve(size as usize, &|| over.load(Ordering::Acquire), heard));
                let outcome = place.run(size, args, &how.backend, how.limit);
                over.store(true, Ordering::Release);
                outcome
            })
        }
    }
}
