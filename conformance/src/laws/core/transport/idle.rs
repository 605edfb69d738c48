//! Threads of the library in an idle process.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use unipgas_core::Flags;

use super::node::on_nodes;
use crate::kit::library_threads;
use crate::law::{Ctx, Verdict};
use crate::{ensure, ensure_eq};

laws! {
    "core.transport.idle", "unipgas core: driver; Transport", 3,
        "a process has one progress thread at most, and while nothing is under way its threads sleep" => idle;
}

/// The kernel keeps 15 bytes of a thread's name.
const PROGRESS: &str = "unipgas-progres";
/// An idle thread of the library wakes at most once in this time.
const LOOK: Duration = Duration::from_millis(50);
/// Extra sleeps allowed while peers finish earlier operations.
const LATE: u128 = 10;

/// Name and number of sleeps of each thread of the library.
fn threads() -> Vec<(String, u64)> {
    let of = |(name, folder): (String, PathBuf)| {
        let status = std::fs::read_to_string(folder.join("status")).ok()?;
        let sleeps = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        Some((name, sleeps.trim().parse().ok()?))
    };
    library_threads().into_iter().filter_map(of).collect()
}

fn sleeps() -> u64 {
    threads().iter().map(|(_, sleeps)| sleeps).sum()
}

fn idle(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, 4096, |node| {
        for nth in 1..=20 {
            node.source().set(0, nth);
            node.put(0, node.at(node.right(), 0), 8, Flags::empty())?;
        }
        node.drain()?;
        ctx.sync();
        let named = threads()
            .iter()
            .filter(|(name, _)| name == PROGRESS)
            .count();
        ensure!(named <= 1, "{named} progress threads");
        let (begun, before) = (Instant::now(), sleeps());
        std::thread::sleep(8 * LOOK);
        let (took, after) = (begun.elapsed(), sleeps());
        let most = threads().len() as u128 * (took.as_millis() / LOOK.as_millis() + 1) + LATE;
        let looks = u128::from(after - before);
        ensure!(
            looks <= most,
            "{looks} looks in {} ms, by {:?}",
            took.as_millis(),
            threads()
        );
        ctx.sync();
        ensure_eq!(node.own().get(0), 20, "what a peer put last");
        Ok(())
    })
}
