//! Starts the measured processes and collects what they found.

use std::sync::atomic::Ordering;
use std::time::Duration;

use unipgas_core::job::Launch;
use unipgas_core::job::launch::Output;

use crate::arena::{Arena, STARTS};
use crate::case::Case;
use crate::ctx::now_ns;
use crate::samples::Samples;
use crate::worker::Order;

/// Runs `cases`, all of which have the same number of processes, `visits` times with each column in turn; ours by `backend`.
pub fn run(
    cases: &[Case],
    visits: usize,
    quick: bool,
    backend: &str,
    limit: Duration,
    samples: &mut Samples,
) -> Result<(), String> {
    let Some(size) = cases.first().map(|c| c.processes) else {
        return Ok(());
    };
    let arena = Arena::create(size)?;
    let order = Order {
        arena: arena.token(),
        size,
        visits,
        quick,
        cases: cases.to_vec(),
    }
    .to_string();
    let exe = std::env::current_exe().map_err(|e| format!("the path of this program: {e}"))?;
    let mut launch = Launch::new(size, exe);
    // As part of the command `unipgas` the worker is reached by the same subcommand.
    if std::env::args().nth(1).as_deref() == Some("bench") {
        launch.args.push("bench".into());
    }
    launch.args.extend(["--worker".into(), order.into()]);
    launch.backend = Some(backend.into());
    launch.output = Output::Capture;
    launch.timeout = Some(limit);
    arena.control(STARTS).store(now_ns(), Ordering::Release);
    let outcome = launch.run().map_err(|e| e.to_string());
    samples.read(&arena.text());
    let outcome = outcome?;
    if outcome.success() {
        return Ok(());
    }
    let Some(rank) = outcome.first_failure else {
        return Err(format!(
            "the measured processes were not done after {} s",
            limit.as_secs()
        ));
    };
    let rank = &outcome.ranks[rank as usize];
    let stderr = String::from_utf8_lossy(&rank.stderr);
    let words = stderr
        .lines()
        .next_back()
        .map(|line| format!(": {line}"))
        .unwrap_or_default();
    Err(format!("a measured process {}{words}", rank.exit))
}
