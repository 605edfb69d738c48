//! A job as `unipgas ps` shows it, from the boards that a process of this user may read, here or on another host.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use unipgas::core::descriptor;
use unipgas::core::job::board::{Board, boards};
use unipgas_launcher::job_snapshot::{JobSnapshot, ProcessState, RankEntry};

/// A job's ranks on this host, or on several hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobListing {
    /// Identifies the job. It is the same on all hosts of the job.
    id: String,
    /// The host of process `job`, if the query names hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    /// Pid of its launcher, or of the rank that created its board.
    job: u32,
    /// Pid of the parent of `job`.
    started_by: u32,
    size: u32,
    command: String,
    ranks: Vec<RankEntry>,
    /// Ranks that wait for each other.
    deadlock: Option<Vec<u32>>,
}

/// A job in an argument: one of its processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobSelector {
    host: Option<String>,
    pid: u32,
}

impl FromStr for JobSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<JobSelector, String> {
        let (host, pid) = match text.rsplit_once(':') {
            Some((host, pid)) if !host.is_empty() => (Some(host.to_owned()), pid),
            Some(_) | None => (None, text),
        };
        let pid = pid.parse().map_err(|_| {
            "want the pid of a launcher or a rank, or HOST:PID beside --hosts".to_owned()
        })?;
        Ok(JobSelector { host, pid })
    }
}

impl std::fmt::Display for JobSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.host {
            Some(host) => write!(f, "{host}:{}", self.pid),
            None => write!(f, "{}", self.pid),
        }
    }
}

impl JobListing {
    /// The jobs on this host.
    pub fn all() -> Vec<JobListing> {
        boards().iter().map(JobListing::look).collect()
    }

    fn look(board: &Board) -> JobListing {
        let (picture, pid) = (JobSnapshot::look(board), board.launcher_pid());
        JobListing {
            id: format!("{:016x}", board.everywhere()),
            host: None,
            job: pid,
            started_by: parent_of(pid).unwrap_or(0) as u32,
            size: board.size(),
            command: command_of(pid),
            deadlock: picture.cycle(),
            ranks: picture.ranks,
        }
    }

    /// Merges the jobs of several hosts. Each host has its name.
    pub fn joined(hosts: Vec<(String, Vec<JobListing>)>) -> Vec<JobListing> {
        let mut all: Vec<JobListing> = Vec::new();
        for (host, jobs) in hosts {
            for job in jobs {
                let mut picture = JobSnapshot::default();
                picture.join(&host, JobSnapshot { ranks: job.ranks });
                let job = JobListing {
                    host: Some(host.clone()),
                    command: job.command.replace(char::is_control, " "),
                    ranks: picture.ranks,
                    ..job
                };
                match all.iter_mut().find(|known| known.id == job.id) {
                    Some(known) => known.add(job),
                    None => all.push(job),
                }
            }
        }
        all
    }

    /// Adds the ranks of this job on another host.
    fn add(&mut self, other: JobListing) {
        // The list may contain two names of one host.
        let known: BTreeSet<u32> = self.ranks.iter().map(|seen| seen.rank).collect();
        let new = (other.ranks.into_iter()).filter(|seen| !known.contains(&seen.rank));
        self.ranks.extend(new);
        self.ranks.sort_by_key(|seen| seen.rank);
        self.deadlock = self.picture().cycle();
    }

    /// The state of its ranks.
    pub fn picture(&self) -> JobSnapshot {
        JobSnapshot {
            ranks: self.ranks.clone(),
        }
    }

    /// The argument that selects this job.
    pub fn name(&self) -> JobSelector {
        JobSelector {
            host: self.host.clone(),
            pid: self.job,
        }
    }

    /// Whether this process is its launcher, the parent of the launcher, or a rank.
    fn has(&self, name: &JobSelector) -> bool {
        let is = |host: &Option<String>, pid: u32| {
            pid == name.pid && (name.host.is_none() || *host == name.host)
        };
        let mut ranks = self.ranks.iter();
        is(&self.host, self.job)
            || is(&self.host, self.started_by)
            || ranks.any(|seen| is(&seen.host, seen.pid))
    }

    /// The job with this process, or the only job. Errors: a line.
    pub fn find(
        mut all: Vec<JobListing>,
        wanted: Option<&JobSelector>,
        place: &str,
    ) -> Result<JobListing, String> {
        match wanted {
            Some(name) => all.retain(|job| job.has(name)),
            // A launcher has a board without ranks if another launcher has started its ranks. There is nothing to show.
            None => all.retain(|job| !job.ranks.is_empty()),
        }
        match (all.len(), wanted) {
            (1, _) => Ok(all.remove(0)),
            (0, Some(name)) => Err(format!(
                "{name} is no process of a job on {place}; unipgas ps lists the jobs"
            )),
            (0, None) => Err(format!("no job runs on {place}")),
            (many, Some(name)) => Err(format!(
                "{many} jobs have a process {name}: name it with its host, as {}",
                all[0].name()
            )),
            (many, None) => Err(format!(
                "{many} jobs run on {place}: name one; unipgas ps lists them"
            )),
        }
    }

    /// Numbers of ranks that wait in calls, that compute, and that are in another state.
    fn counts(&self) -> [usize; 3] {
        let waits = (self.ranks.iter()).filter(|seen| !seen.waits.is_empty());
        let waits = waits.count();
        let computes = (self.ranks.iter())
            .filter(|seen| seen.waits.is_empty() && seen.doing == ProcessState::Runs)
            .count();
        [waits, computes, self.ranks.len() - waits - computes]
    }

    /// A table with a line for each job.
    pub fn list(all: &[JobListing]) -> String {
        let names: Vec<String> = all.iter().map(|job| job.name().to_string()).collect();
        let width = names.iter().map(String::len).max().unwrap_or(0).max(8);
        let mut text = format!(
            "{:>width$}  {:>6}  {:>5}  {:>7}  {:>5}  command\n",
            "job", "ranks", "wait", "compute", "other"
        );
        for (job, name) in all.iter().zip(names) {
            let ([waits, computes, others], size) = (job.counts(), job.size);
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{name:>width$}  {size:>6}  {waits:>5}  {computes:>7}  {others:>5}  {}",
                job.command
            );
        }
        text
    }

    /// A heading, then `shown`, then a hint if ranks run on other hosts.
    pub fn text(&self, shown: &str) -> String {
        let (name, size, command) = (self.name(), self.size, &self.command);
        if self.ranks.is_empty() {
            let on = match &self.host {
                Some(host) => format!(" on {host}"),
                None => String::new(),
            };
            return format!(
                "job {name}, {size} ranks, started by others: {command}\nkill -USR1 {}{on} has its launcher tell what they are doing\n",
                self.job
            );
        }
        let here = self.ranks.len();
        let of = match here == size as usize {
            true => String::new(),
            false => format!("{here} of "),
        };
        let mut text = format!("job {name}, {of}{size} ranks: {command}\n{shown}");
        if here < size as usize {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{} more on other hosts: --hosts LIST asks there, too",
                size as usize - here
            );
        }
        text
    }
}

fn command_of(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
    words.join(" ").escape_debug().to_string()
}

fn parent_of(pid: u32) -> Option<u64> {
    descriptor::field_in(&descriptor::stat_of(pid).ok()?, 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(rank: u32, awaits: Option<u32>) -> RankEntry {
        let wait = |of: u32| {
            let wait = serde_json::json!({
                "thread": 5, "call": "RCCE_recv", "lasted": 1.5, "ranks": [of], "needed": 1, "pending": 0, "sleeps": 2
            });
            serde_json::from_value(wait).unwrap()
        };
        RankEntry {
            rank,
            pid: 100 + rank / 2,
            program: "p".into(),
            host: None,
            doing: ProcessState::Sleeps,
            waits: awaits.into_iter().map(wait).collect(),
            counts: Default::default(),
        }
    }

    fn part(id: &str, job: u32, ranks: Vec<RankEntry>) -> JobListing {
        JobListing {
            id: id.into(),
            host: None,
            job,
            started_by: 1,
            size: 4,
            command: "./p".into(),
            ranks,
            deadlock: None,
        }
    }

    #[test]
    fn parts_of_one_job_are_one() {
        let (a, b) = (seen(0, Some(1)), seen(1, Some(0)));
        let hosts = vec![
            (
                "h1".to_owned(),
                vec![part("x", 100, vec![a, seen(2, None)])],
            ),
            (
                "h2".to_owned(),
                vec![part("y", 100, vec![]), part("x", 7, vec![b.clone()])],
            ),
            ("also-h2".to_owned(), vec![part("x", 7, vec![b])]),
        ];
        let text = serde_json::to_string(&hosts).unwrap();
        let all = JobListing::joined(serde_json::from_str(&text).unwrap());
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].deadlock, Some(vec![0, 1]));
        let ranks: Vec<_> = all[0].ranks.iter().map(|seen| seen.rank).collect();
        assert_eq!(
            (ranks, all[0].name().to_string()),
            (vec![0, 1, 2], "h1:100".into())
        );
        let text = all[0].text(&all[0].picture().table(None));
        assert!(
            text.starts_with("job h1:100, 3 of 4 ranks: ./p\n"),
            "{text}"
        );
        assert!(text.contains("100 on h2"), "{text}");
        assert!(
            text.ends_with("1 more on other hosts: --hosts LIST asks there, too\n"),
            "{text}"
        );
        let find =
            |name: &str| JobListing::find(all.clone(), Some(&name.parse().unwrap()), "h1, h2");
        // Process 100 is a rank of one job on h2, and the launcher of the other job.
        assert!(
            find("100")
                .unwrap_err()
                .contains("2 jobs have a process 100: name it with its host, as h1:100")
        );
        assert_eq!(find("h1:100").unwrap().id, "x");
        assert_eq!(find("101").unwrap().id, "x");
        assert_eq!(
            find("5").unwrap_err(),
            "5 is no process of a job on h1, h2; unipgas ps lists the jobs"
        );
        // Only one job has ranks.
        assert_eq!(JobListing::find(all.clone(), None, "").unwrap().id, "x");
        assert_eq!(JobListing::list(&all).lines().count(), 3);
    }

    #[test]
    fn jobs_are_named_by_processes() {
        for (text, host, pid) in [
            ("12", None, 12),
            ("h1:12", Some("h1"), 12),
            ("::1:7", Some("::1"), 7),
        ] {
            let name: JobSelector = text.parse().unwrap();
            assert_eq!((name.host.as_deref(), name.pid), (host, pid));
            assert_eq!(name.to_string(), text);
        }
        for text in ["", "h1", "h1:", ":5", "-1"] {
            assert!(text.parse::<JobSelector>().is_err(), "{text}");
        }
    }
}
