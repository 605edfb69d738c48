//! Starts the measured processes and collects what they found.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::arena::Arena;
use crate::case::Case;
use crate::samples::Samples;
use crate::worker::Order;

/// Runs `cases`, all of which have the same number of processes, `visits` times with each column in turn.
pub fn run(cases: &[Case], visits: usize, quick: bool, limit: Duration, samples: &mut Samples) -> Result<(), String> {
    let Some(size) = cases.first().map(|c| c.processes) else { return Ok(()) };
    let arena = Arena::create(size)?;
    let order = Order { arena: arena.token(), size, visits, quick, cases: cases.to_vec() }.to_string();
    let mut children = Vec::new();
    for rank in 0..size {
        match command(&order, rank, size) {
            Ok(child) => children.push(child),
            Err(e) => {
                end(&mut children);
                return Err(e);
            }
        }
    }
    let outcome = wait(&mut children, limit);
    end(&mut children);
    samples.read(&arena.text());
    outcome
}

fn command(order: &str, rank: u32, size: u32) -> Result<Child, String> {
    let exe = std::env::current_exe().map_err(|e| format!("the path of this program: {e}"))?;
    let mut command = Command::new(exe);
    // As part of the command `unipgas` the worker is reached by the same subcommand.
    if std::env::args().nth(1).as_deref() == Some("bench") {
        command.arg("bench");
    }
    command.args(["--worker", order]);
    command.env("UNIPGAS_RANK", rank.to_string()).env("UNIPGAS_SIZE", size.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().map_err(|e| format!("a measured process does not start: {e}"))
}

fn wait(children: &mut [Child], limit: Duration) -> Result<(), String> {
    let start = Instant::now();
    let mut left: Vec<usize> = (0..children.len()).collect();
    while !left.is_empty() {
        let mut failed = None;
        left.retain(|&rank| match children[rank].try_wait() {
            Ok(None) => true,
            Ok(Some(status)) if status.success() => false,
            Ok(Some(status)) => {
                failed.get_or_insert(format!("{}{}", status, last_words(&mut children[rank])));
                false
            }
            Err(e) => {
                failed.get_or_insert(e.to_string());
                false
            }
        });
        if let Some(why) = failed {
            return Err(format!("a measured process ended: {why}"));
        }
        if start.elapsed() > limit {
            return Err(format!("the measured processes were not done after {} s", limit.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn last_words(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(stderr) = child.stderr.as_mut() {
        let _ = stderr.read_to_string(&mut text);
    }
    text.lines().next_back().map(|line| format!(": {line}")).unwrap_or_default()
}

fn end(children: &mut [Child]) {
    for child in children {
        // Failing means that it has ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
}
