//! A snapshot of the ranks of a job, for users. It shows running ranks, waits (call, awaited ranks, time), and deadlocks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::rates::Rates;
use unipgas_core::counters::{CounterValues, QueueCounts};
use unipgas_core::descriptor;
use unipgas_core::job::{Board, RankState};
use unipgas_core::waits::{NAMED, Waiting};

/// Longest list of single ranks.
const LISTED: usize = 64;

/// State of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankEntry {
    /// The rank.
    pub rank: u32,
    /// Its pid.
    pub pid: u32,
    /// The program, as named by the kernel: at most 15 bytes.
    #[serde(default)]
    pub program: String,
    /// Its host, if another one.
    pub host: Option<String>,
    /// State of its process.
    pub doing: ProcessState,
    /// Its threads that wait in calls, the longest wait first.
    pub waits: Vec<Waiting>,
    /// Its counters.
    pub counts: CounterValues,
}

/// State of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessState {
    /// It has not started.
    Absent,
    /// It runs, or is ready to run.
    Runs,
    /// It sleeps.
    Sleeps,
    /// A signal or a debugger has stopped it.
    Stopped,
    /// It has left the job.
    Left,
    /// It has ended without leaving the job.
    Dead,
}

impl fmt::Display for ProcessState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProcessState::Absent => "has not begun",
            ProcessState::Runs => "computes",
            ProcessState::Sleeps => "sleeps elsewhere",
            ProcessState::Stopped => "is stopped",
            ProcessState::Left => "has left",
            ProcessState::Dead => "is dead",
        })
    }
}

impl RankEntry {
    /// State of a rank on this host.
    fn look(board: &Board, rank: u32) -> RankEntry {
        let pid = board.pid(rank).unwrap_or(0);
        let doing = match board.state(rank).unwrap_or(RankState::Absent) {
            RankState::Finalized => ProcessState::Left,
            RankState::Dead => ProcessState::Dead,
            // Programs of uTofu may run without joining.
            RankState::Absent if pid == 0 => ProcessState::Absent,
            RankState::Absent | RankState::Joined => of_process(pid),
        };
        let waits = match doing {
            ProcessState::Runs | ProcessState::Sleeps | ProcessState::Stopped => board.waits(rank),
            _ => Vec::new(),
        };
        RankEntry {
            rank,
            pid,
            program: program_of(pid),
            host: None,
            doing,
            waits,
            counts: board.counts(rank),
        }
    }
}

/// Name of the program. Empty: no such process.
fn program_of(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// State of the process in the kernel.
fn of_process(pid: u32) -> ProcessState {
    match descriptor::state_in(&descriptor::stat_of(pid).unwrap_or_default()) {
        Some('S' | 'D' | 'I') => ProcessState::Sleeps,
        Some('T' | 't') => ProcessState::Stopped,
        Some('R') => ProcessState::Runs,
        _ => ProcessState::Dead,
    }
}

/// State of all ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSnapshot {
    /// In ascending order.
    pub ranks: Vec<RankEntry>,
}

impl JobSnapshot {
    /// State of the ranks on this host.
    pub fn look(board: &Board) -> JobSnapshot {
        let here = (0..board.size()).filter(|rank| board.is_afar(*rank) == Ok(false));
        JobSnapshot {
            ranks: here.map(|rank| RankEntry::look(board, rank)).collect(),
        }
    }

    /// Adds the picture of another host.
    pub fn join(&mut self, host: &str, other: JobSnapshot) {
        let there = other.ranks.into_iter().map(|seen| RankEntry {
            host: Some(host.into()),
            ..seen
        });
        self.ranks.extend(there);
        self.ranks.sort_by_key(|seen| seen.rank);
    }

    /// Ranks that wait for each other in a cycle. It considers ranks that are not stopped, and of which one thread waits for one rank.
    pub fn cycle(&self) -> Option<Vec<u32>> {
        let next: BTreeMap<u32, u32> = (self.ranks.iter())
            .filter(|seen| seen.doing != ProcessState::Stopped)
            .filter_map(|seen| match &seen.waits[..] {
                [wait] if wait.needed == 1 => Some((seen.rank, *wait.ranks.first()?)),
                _ => None,
            })
            .collect();
        // Ranks from which no cycle is reachable.
        let mut done = BTreeSet::new();
        for first in next.keys() {
            let mut way = Vec::new();
            let mut places = BTreeMap::new();
            let mut at = *first;
            while !done.contains(&at) {
                if let Some(begin) = places.insert(at, way.len()) {
                    return Some(way.split_off(begin));
                }
                way.push(at);
                match next.get(&at) {
                    Some(to) => at = *to,
                    None => break,
                }
            }
            done.extend(way);
        }
        None
    }

    /// Queues with operations in flight, of ranks that wait.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = (u32, &QueueCounts)> {
        let waits = self.ranks.iter().filter(|seen| !seen.waits.is_empty());
        waits.flat_map(|seen| {
            let busy = seen.counts.queues.iter().filter(|queue| queue.pending > 0);
            busy.map(|queue| (seen.rank, queue))
        })
    }

    /// Calls in which ranks wait for a set of ranks that includes themselves, each with the missing ranks. Missing ranks are in the set and in the
    /// picture, but not in the call.
    pub(crate) fn missing(&self) -> Vec<(String, Vec<u32>)> {
        let mut calls: BTreeMap<(&str, &[u32]), BTreeSet<u32>> = BTreeMap::new();
        for seen in &self.ranks {
            for wait in &seen.waits {
                let all_named = wait.needed as usize <= NAMED && wait.ranks.len() > 1;
                if all_named && wait.ranks.contains(&seen.rank) {
                    let call = calls.entry((&wait.call, &wait.ranks)).or_default();
                    call.insert(seen.rank);
                }
            }
        }
        let known: BTreeSet<u32> = self.ranks.iter().map(|seen| seen.rank).collect();
        let missing = |((call, needed), here): ((&str, &[u32]), BTreeSet<u32>)| {
            let others = needed
                .iter()
                .filter(|rank| known.contains(rank) && !here.contains(rank));
            let others: Vec<u32> = others.copied().collect();
            (!others.is_empty()).then(|| (call.to_owned(), others))
        };
        calls.into_iter().filter_map(missing).collect()
    }
}

/// `3`, `0, 4` or `0-7, 9`.
pub(super) fn listed(ranks: &[u32]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut at = 0;
    while at < ranks.len() {
        let mut end = at;
        while end + 1 < ranks.len() && Some(ranks[end + 1]) == ranks[end].checked_add(1) {
            end += 1;
        }
        parts.push(match end - at {
            0 => ranks[at].to_string(),
            1 => format!("{}, {}", ranks[at], ranks[end]),
            _ => format!("{}-{}", ranks[at], ranks[end]),
        });
        at = end + 1;
    }
    parts.join(", ")
}

fn for_whom(wait: &Waiting) -> String {
    let more = wait.needed as usize - wait.ranks.len().min(wait.needed as usize);
    let mut text = match wait.ranks.len() {
        0 => String::new(),
        1 => format!("rank {}", listed(&wait.ranks)),
        _ => format!("ranks {}", listed(&wait.ranks)),
    };
    if more > 0 {
        text += &format!(" and {more} more");
    }
    if wait.pending > 0 {
        let operations = operations(wait.pending);
        let and = if text.is_empty() { "" } else { ", " };
        text += &format!("{and}{operations} under way");
    }
    match text.is_empty() {
        true => "anyone".into(),
        false => text,
    }
}

fn operations(many: u32) -> String {
    match many {
        1 => "1 operation".to_owned(),
        many => format!("{many} operations"),
    }
}

fn seconds(span: Duration) -> String {
    match span.as_secs() {
        ..=99 => format!("{:.1} s", span.as_secs_f64()),
        many => format!("{many} s"),
    }
}

impl JobSnapshot {
    /// A table for terminals, and below it the deadlocks and missing ranks that the picture shows. With `rates`, it has columns for operations and bytes a
    /// second.
    pub fn table(&self, rates: Option<&Rates>) -> String {
        let mut text = String::new();
        // A write to a string cannot fail.
        let _ = self.write(&mut text, rates);
        text
    }

    fn write(&self, f: &mut impl fmt::Write, rates: Option<&Rates>) -> fmt::Result {
        write_rows(f, &self.rows(rates))?;
        if self.ranks.len() > LISTED {
            writeln!(f, "and {} ranks more", self.ranks.len() - LISTED)?;
        }
        match self.cycle().as_deref() {
            Some([one]) => writeln!(f, "rank {one} waits for itself")?,
            Some(cycle @ [first, ..]) => {
                let way: Vec<_> = cycle.iter().map(u32::to_string).collect();
                let way = way.join(" waits for ");
                writeln!(f, "deadlock: rank {way} waits for {first}")?;
            }
            Some([]) | None => {}
        }
        for (rank, queue) in self.under_way().take(LISTED) {
            let operations = operations(queue.pending);
            let name = queue.name.escape_debug();
            writeln!(f, "under way in {name} of rank {rank}: {operations}")?;
        }
        for (call, others) in self.missing() {
            let ranks = match others.len() {
                1 => "rank",
                _ => "ranks",
            };
            let call = call_name(&call);
            writeln!(f, "not in {call}: {ranks} {}", listed(&others))?;
        }
        Ok(())
    }

    /// The head and the rows of the table.
    fn rows(&self, rates: Option<&Rates>) -> Vec<Vec<String>> {
        let programs: BTreeSet<_> = (self.ranks.iter().map(|seen| &seen.program))
            .filter(|program| !program.is_empty())
            .collect();
        let names_programs = programs.len() > 1;
        let process = match names_programs || self.ranks.iter().any(|seen| seen.host.is_some()) {
            true => "process",
            false => "pid",
        };
        let columns = ["rank", process, "call", "since"].map(String::from);
        let of_rates = rates.map(|_| ["operations/s", "bytes/s"].map(String::from));
        let head = row(columns, of_rates, "waits for".into());
        let listed = self.ranks.iter().take(LISTED);
        let rows = listed.flat_map(|seen| seen.rows(names_programs, rates));
        [head].into_iter().chain(rows).collect()
    }
}

impl RankEntry {
    /// One row for each wait, or a row without a wait.
    fn rows(&self, names_program: bool, rates: Option<&Rates>) -> Vec<Vec<String>> {
        let mut process = match &self.host {
            Some(host) => format!("{} on {host}", self.pid),
            None => self.pid.to_string(),
        };
        if names_program {
            process = format!("{} {process}", self.program.escape_debug());
        }
        let columns = |call, since| [self.rank.to_string(), process.clone(), call, since];
        let mut rates = rates.map(|rates| rates.of(self.rank));
        if self.waits.is_empty() {
            let columns = columns(self.doing.to_string(), String::new());
            return vec![row(columns, rates, String::new())];
        }
        let of_wait = |wait: &Waiting| {
            let call = match (wait.call.is_empty(), self.doing) {
                (false, ProcessState::Stopped) => format!("{} (stopped)", call_name(&wait.call)),
                _ => call_name(&wait.call),
            };
            // The rates are of the process, so only its first row shows them.
            let rates = rates.as_mut().map(std::mem::take);
            row(columns(call, seconds(wait.lasted)), rates, for_whom(wait))
        };
        self.waits.iter().map(of_wait).collect()
    }
}

fn row(columns: [String; 4], rates: Option<[String; 2]>, whom: String) -> Vec<String> {
    let rates = rates.into_iter().flatten();
    columns.into_iter().chain(rates).chain([whom]).collect()
}

fn call_name(call: &str) -> String {
    match call {
        "" => "a wait".to_owned(),
        call => call.escape_debug().to_string(),
    }
}

/// Writes rows of equal length in columns. The last column needs no width.
fn write_rows(f: &mut impl fmt::Write, rows: &[Vec<String>]) -> fmt::Result {
    let last = rows[0].len() - 1;
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max();
    let widths: Vec<usize> = (0..last).map(|column| width(column).unwrap_or(0)).collect();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            line += &match column {
                2 => format!("{cell:<width$}  "),
                _ => format!("{cell:>width$}  "),
            };
        }
        line += &row[last];
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}

impl fmt::Display for JobSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(rank: u32, call: &str, ranks: &[u32]) -> RankEntry {
        RankEntry {
            rank,
            pid: 100 + rank,
            program: "solver".into(),
            host: None,
            doing: ProcessState::Sleeps,
            waits: vec![Waiting {
                thread: 100 + rank,
                call: call.into(),
                lasted: Duration::from_millis(2500),
                ranks: ranks.to_vec(),
                needed: ranks.len() as u32,
                pending: 0,
                sleeps: 3,
            }],
            counts: CounterValues::default(),
        }
    }

    #[test]
    fn who_waits_for_each_other_is_named() {
        let recv = |rank, from| waiting(rank, "RCCE_recv", &[from]);
        let mut all = JobSnapshot {
            ranks: vec![recv(0, 1), recv(1, 2), recv(2, 1), recv(3, 0)],
        };
        assert_eq!(all.cycle(), Some(vec![1, 2]));
        let text = all.to_string();
        assert!(
            text.contains("deadlock: rank 1 waits for 2 waits for 1"),
            "{text}"
        );
        all.ranks[2].waits.clear();
        assert_eq!(all.cycle(), None);
        let text = all.to_string();
        assert!(text.contains("2  102  sleeps elsewhere"), "{text}");
        assert!(
            text.contains("3  103  RCCE_recv         2.5 s  rank 0"),
            "{text}"
        );
    }

    #[test]
    fn who_is_not_in_a_barrier_is_named() {
        let members = [0, 1, 2, 3];
        let mut all = JobSnapshot {
            ranks: [0, 1, 3]
                .map(|rank| waiting(rank, "gaspi_barrier", &members))
                .into(),
        };
        let missing = vec![("gaspi_barrier".to_owned(), vec![2])];
        assert_eq!(all.missing(), [], "it was never read");
        let mut other = JobSnapshot {
            ranks: vec![waiting(2, "", &[])],
        };
        other.ranks[0].waits.clear();
        other.ranks[0].doing = ProcessState::Runs;
        all.join("far", other);
        assert_eq!(all.missing(), missing);
        let text = all.to_string();
        assert!(text.contains("2  102 on far  computes"), "{text}");
        assert!(text.contains("ranks 0-3"), "{text}");
        assert!(text.ends_with("not in gaspi_barrier: rank 2\n"), "{text}");
    }

    #[test]
    fn programs_are_named_where_they_differ() {
        let mut all = JobSnapshot {
            ranks: vec![
                waiting(0, "gaspi_wait", &[1]),
                waiting(1, "gaspi_wait", &[]),
            ],
        };
        let text = all.to_string();
        assert!(!text.contains("solver"), "{text}");
        all.ranks[1].program = "view\ner".into();
        let text = all.to_string();
        assert!(text.contains("0    solver 100  gaspi_wait"), "{text}");
        assert!(text.contains("1  view\\ner 101  gaspi_wait"), "{text}");
        assert!(text.starts_with("rank       process  call"), "{text}");
    }

    #[test]
    fn it_goes_from_host_to_host() {
        let all = JobSnapshot {
            ranks: vec![waiting(5, "gaspi_wait", &[1, 7])],
        };
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<JobSnapshot>(&text).unwrap(), all);
    }

    #[test]
    fn ranks_are_listed_shortly() {
        assert_eq!(listed(&[0, 1, 2, 3, 7, 9, 10]), "0-3, 7, 9, 10");
        // A rank may have overwritten its list.
        assert_eq!(listed(&[u32::MAX, 0]), "4294967295, 0");
    }
}
