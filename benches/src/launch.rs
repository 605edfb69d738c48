//! Jobs of measured processes.

use std::ffi::OsString;
use std::time::Duration;

use unipgas_launcher::{JobOutcome, Launch, Output};

/// A job of `size` workers with these arguments.
pub fn worker(size: u32, args: Vec<OsString>, limit: Duration) -> Result<Launch, String> {
    let exe = std::env::current_exe().map_err(|e| format!("the path of this program: {e}"))?;
    let mut launch = Launch::new(size, exe);
    launch.args = args;
    launch.output = Output::Capture;
    launch.timeout = Some(limit);
    Ok(launch)
}

/// Checks the outcome of a job. Errors: a line about the first process that failed, or about the timeout.
pub fn outcome_of(outcome: &JobOutcome, limit: Duration) -> Result<(), String> {
    if outcome.success() {
        return Ok(());
    }
    let failed = |rank: u32| outcome.ranks.iter().find(|one| one.rank == rank);
    let Some(rank) = outcome.first_failure.and_then(failed) else {
        return Err(format!(
            "the measured processes were not done after {} s",
            limit.as_secs()
        ));
    };
    let stderr = String::from_utf8_lossy(&rank.stderr);
    let words = stderr
        .lines()
        .next_back()
        .map(|line| format!(": {line}"))
        .unwrap_or_default();
    Err(format!("a measured process {}{words}", rank.exit))
}
