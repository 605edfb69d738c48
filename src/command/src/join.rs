//! `unipgas run --rank R --job PID`: finds the job of a process.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use unipgas_launcher::Join;

const JOB: &str = "UNIPGAS_JOB";
/// Variables that differ between the processes of a job.
const OWN: [&str; 4] = [JOB, "UNIPGAS_RANK", "UNIPGAS_SIZE", "UNIPGAS_INCARNATION"];
/// Variables of the library. All processes of a job have the same values.
const PREFIXES: [&str; 3] = ["UNIPGAS_", "UTOFU_", "FI_"];

type Variables = Vec<(OsString, OsString)>;

/// Finds the job of process `pid`, which is its launcher or a rank. Returns the place of `rank` and the library's variables in that job.
///
/// Errors: a line.
pub fn find(pid: u32, rank: u32) -> Result<(Join, Variables), String> {
    let parents = parents();
    // The environment of a launcher has no job, or an outer job that started the launcher. So its descendants come first.
    let below: Vec<u32> = descendants(pid, &parents).collect();
    let mut seen = below.iter().chain([&pid]);
    let (token, variables) = seen.find_map(|pid| job_of(*pid)).ok_or_else(|| {
        format!("process {pid} is no launcher of a job that runs on this host, and none of its processes (or belongs to another user)")
    })?;
    Ok((Join { token, rank }, variables))
}

fn job_of(pid: u32) -> Option<(String, Variables)> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut token = None;
    let mut variables = Vec::new();
    for variable in environment.split(|byte| *byte == 0) {
        let Some(at) = variable.iter().position(|byte| *byte == b'=') else {
            continue;
        };
        let Ok(name) = std::str::from_utf8(&variable[..at]) else {
            continue;
        };
        let value = OsStr::from_bytes(&variable[at + 1..]);
        if name == JOB {
            token = Some(value.to_str()?.to_owned());
        } else if PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !OWN.contains(&name) {
            variables.push((name.into(), value.to_owned()));
        }
    }
    Some((token?, variables))
}

/// The parent of each process.
fn parents() -> BTreeMap<u32, u32> {
    let list = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = list.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, fields) = stat.rsplit_once(')')?;
        let parent = fields.split_ascii_whitespace().nth(1)?.parse().ok()?;
        Some((pid, parent))
    })
    .collect()
}

/// All descendants, the nearest first.
fn descendants(pid: u32, parents: &BTreeMap<u32, u32>) -> impl Iterator<Item = u32> {
    let mut found = Vec::new();
    let mut known = BTreeSet::from([pid]);
    let mut level = vec![pid];
    while !level.is_empty() {
        let below = parents.iter().filter(|(_, parent)| level.contains(parent));
        let below: Vec<u32> = below.map(|(child, _)| *child).collect();
        level = below
            .into_iter()
            .filter(|child| known.insert(*child))
            .collect();
        found.extend(&level);
    }
    found.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_below_is_found_level_by_level() {
        let parents = BTreeMap::from([(2, 1), (3, 1), (4, 2), (5, 9), (6, 4)]);
        assert_eq!(descendants(1, &parents).collect::<Vec<_>>(), [2, 3, 4, 6]);
        assert_eq!(descendants(5, &parents).count(), 0);
    }

    #[test]
    fn a_process_without_a_job_is_told() {
        let why = find(u32::MAX, 0).unwrap_err();
        assert!(why.contains("is no launcher of a job"), "{why}");
    }
}
