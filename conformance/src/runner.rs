//! Starts jobs of laws, and derives the result of each law from the reports of the processes.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::time::{Duration, Instant};

use unipgas_launcher::Exit;

use crate::Law;
use crate::hosts::HostPool;
use crate::job::{Ended, Job, Line};
use crate::stall::{CLOCK, Hang, SILENCE};
use crate::worker::Item;
use unipgas_core::stop::Stop;

/// The result of a law on a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LawResult {
    /// The law held under each seed.
    Pass,
    /// The law is broken.
    Fail(LawFailure),
    /// The backend does not offer the law's subject; the reason.
    NotOffered(String),
    /// The law did not run, because it does not apply to such a column; the reason.
    NotApplicable(String),
    /// The law did not run, because it is known not to hold; the reason.
    KnownBroken(String),
}

impl LawResult {
    /// For a law that did not run or whose subject the backend does not offer: the kind of reason, its mark in tables, and the reason.
    pub fn skipped(&self) -> Option<(&'static str, &'static str, &str)> {
        match self {
            LawResult::Pass | LawResult::Fail(_) => None,
            LawResult::NotOffered(reason) => Some(("not offered", "-", reason)),
            LawResult::NotApplicable(reason) => Some(("not applicable", "n/a", reason)),
            LawResult::KnownBroken(reason) => Some(("known to be broken", "broken", reason)),
        }
    }
}

/// The failure of a law.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LawFailure {
    /// The first seed that failed.
    pub seed: u64,
    /// The kind of failure.
    pub kind: FailureKind,
    /// The seen and the expected value, with the rank.
    pub text: String,
    /// The last log lines of the library before the failure, of all ranks.
    pub said: Vec<String>,
}

/// Maximum number of log lines of the library in a failure.
const SHOWN: usize = 80;

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The body returned an error.
    Fails,
    /// No rank moved any more, or the time limit was exceeded.
    Hangs,
    /// A process ended unexpectedly.
    Crashes,
}

impl FailureKind {
    /// Name in the table.
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::Fails => "fails",
            FailureKind::Hangs => "hangs",
            FailureKind::Crashes => "crashes",
        }
    }
}

/// The result of one law on one backend.
#[derive(Debug, Clone)]
pub struct Ran {
    /// The law.
    pub law: &'static Law,
    /// Its result.
    pub verdict: LawResult,
    /// Number of seeds that ran to the end.
    pub seeds: u64,
    /// Its run time, with its share of the job's start.
    pub took: Duration,
}

impl Ran {
    /// The result in a cell of a table.
    pub fn mark(&self) -> String {
        match (&self.verdict, self.verdict.skipped()) {
            (LawResult::Fail(failure), _) => failure.kind.name().to_uppercase(),
            (_, Some((_, mark, _))) => mark.into(),
            _ if self.seeds > 1 => format!("pass x{}", self.seeds),
            _ => "pass".into(),
        }
    }
}

/// The way to start jobs.
#[derive(Debug)]
pub struct Runner {
    /// The program to start as a worker: this one by default.
    pub program: OsString,
    /// Arguments before the worker's own ones.
    pub prefix: Vec<OsString>,
    /// The library under test.
    pub library: OsString,
    /// A law hangs if each rank has waited this time without success.
    pub limit: Duration,
    /// The hosts of the ranks in columns with several hosts.
    pub hosts: Option<HostPool>,
    /// A request to start no more jobs.
    pub stop: Option<Stop>,
}

impl Runner {
    /// Workers are this executable, started with `--worker`; they call `library`. Errors: a text.
    pub fn new(limit: Duration, library: OsString) -> Result<Runner, String> {
        let program = std::env::current_exe().map_err(|e| format!("cannot find myself: {e}"))?;
        Ok(Runner {
            program: program.into(),
            prefix: vec!["--worker".into()],
            library,
            limit,
            hosts: None,
            stop: None,
        })
    }

    /// Whether a stop is requested.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(Stop::is_asked)
    }

    /// Runs `items`, which need the same number of processes, on a column; calls `progress` with the seeds done so far. After a
    /// failed law a new job runs the others. After a [stop](Stop) it returns the results of the items done before.
    pub(crate) fn run(
        &self,
        column: &crate::matrix::Column,
        items: &[Item],
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Vec<Ran>, String> {
        let mut done = Vec::new();
        let mut seeds_before = 0;
        while done.len() < items.len() {
            let rest = &items[done.len()..];
            let start = Instant::now();
            let job = Job {
                runner: self,
                column,
                items: rest,
            };
            let (lines, ended, found) = job.run(&|seeds| progress(seeds_before + seeds))?;
            let hang = match found {
                Some(Hang::Standstill) => {
                    format!("nothing moves: all have waited for {:?}", self.limit)
                }
                Some(Hang::Silence) => format!("nothing moves for {:?}", self.limit * SILENCE),
                None => format!("not done after {:?}", self.clock()),
            };
            let mut ran = judge(rest, &lines, &ended, (&hang, found.is_some()));
            let last = ran.len() - 1;
            if rest[last].law.needs_kill
                && ran[last].verdict == LawResult::Pass
                && let Some(left) = ended.left
            {
                ran[last].verdict = LawResult::Fail(LawFailure {
                    seed: rest[last].first,
                    kind: FailureKind::Fails,
                    text: left,
                    said: Vec::new(),
                });
            }
            let laws: Duration = ran.iter().map(|ran| ran.took).sum();
            let stopped = self.is_stopped();
            if stopped {
                // The stop, or an effect of it on other processes, has ended these laws: they have no result.
                ran.retain(|ran| !matches!(ran.verdict, LawResult::Fail(_)));
            }
            let share = start.elapsed().saturating_sub(laws) / ran.len().max(1) as u32;
            for ran in &mut ran {
                ran.took += share;
            }
            seeds_before += rest[..ran.len()].iter().map(|item| item.count).sum::<u64>();
            progress(seeds_before);
            done.append(&mut ran);
            if stopped {
                break;
            }
        }
        Ok(done)
    }

    /// The maximum time of a seed.
    pub(crate) fn clock(&self) -> Duration {
        self.limit.max(Duration::from_secs(1)) * CLOCK
    }
}

/// Reports on one item under one seed.
#[derive(Default)]
struct Told<'a> {
    started: BTreeSet<u32>,
    /// For each rank: number of processes that have started, and number that have killed themselves.
    lives: HashMap<u32, (u32, u32)>,
    returned: BTreeSet<u32>,
    ok: BTreeSet<u32>,
    none: Option<&'a str>,
    /// Time of the slowest rank.
    took: Duration,
    /// Failures with their ranks. The first one may be a consequence: a failing body removes its regions from the others.
    fails: Vec<(u32, &'a str)>,
    /// Start of the first rank, in microseconds since 1970.
    began: Option<i64>,
}

impl Told<'_> {
    /// A rank with more processes than its kills explain: one has crashed, and another one has replaced it.
    fn unasked_end(&self, law: &Law) -> Option<String> {
        if law.kills_launcher || self.lives.values().all(|(_, killed)| *killed == 0) {
            // Such laws kill in another way.
            return None;
        }
        let mut lives = self.lives.iter();
        let (rank, (started, killed)) =
            lives.find(|(_, (started, killed))| *started > killed + 1)?;
        Some(format!(
            "rank {rank} has had {started} processes, and {killed} of them killed themselves: another one has crashed"
        ))
    }
}

/// The results of the items that have begun: all items, or those up to the first broken one.
/// `hang` has the text for an item that does not end, and whether a standstill ended all processes.
fn judge(items: &[Item], lines: &[Line], ended: &Ended, hang: (&str, bool)) -> Vec<Ran> {
    let mut told: HashMap<(usize, u64), Told<'_>> = HashMap::new();
    let mut dying = BTreeSet::new();
    for line in lines {
        let told = told.entry(line.item).or_default();
        match line.what.as_str() {
            "start" => {
                told.started.insert(line.rank);
                told.lives.entry(line.rank).or_default().0 += 1;
                let began = line.text.parse().ok();
                told.began = told.began.into_iter().chain(began).min();
            }
            "body" => drop(told.returned.insert(line.rank)),
            "took" => {
                let took = Duration::from_micros(line.text.parse().unwrap_or(0));
                told.took = told.took.max(took);
            }
            "ok" => drop(told.ok.insert(line.rank)),
            "none" => {
                told.none = Some(&line.text);
                told.ok.insert(line.rank);
            }
            "fail" if told.fails.iter().all(|(rank, _)| *rank != line.rank) => {
                told.fails.push((line.rank, &line.text));
            }
            "dies" => {
                dying.insert(line.rank);
                told.lives.entry(line.rank).or_default().1 += 1;
            }
            _ => {}
        }
    }
    let mut results = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let mut ran = Ran {
            law: item.law,
            verdict: LawResult::Pass,
            seeds: 0,
            took: Duration::ZERO,
        };
        for nth in 0..item.count {
            let seed = item.first.wrapping_add(nth);
            let nothing = Told::default();
            let told = told.get(&(index, seed)).unwrap_or(&nothing);
            ran.took += told.took;
            let all = (0..item.law.processes)
                .all(|rank| told.ok.contains(&rank) || dying.contains(&rank));
            if all && told.fails.is_empty() && told.unasked_end(item.law).is_none() {
                ran.seeds += 1;
                if let Some(reason) = told.none {
                    ran.verdict = LawResult::NotOffered(reason.into());
                }
                continue;
            }
            let (kind, text) = broken(item.law, told, ended, &dying, hang);
            ran.verdict = LawResult::Fail(LawFailure {
                seed,
                kind,
                text,
                said: last_said(told.began, ended),
            });
            results.push(ran);
            return results;
        }
        results.push(ran);
    }
    let began = told.values().filter_map(|told| told.began).max();
    let unexpected = ended
        .ranks
        .iter()
        .enumerate()
        .find(|(rank, end)| !end.exit.success() && !dying.contains(&(*rank as u32)));
    if let (Some((rank, end)), Some(last)) = (unexpected, results.last_mut())
        && last.verdict == LawResult::Pass
    {
        last.verdict = LawResult::Fail(LawFailure {
            seed: items[items.len() - 1].first,
            kind: FailureKind::Crashes,
            text: format!(
                "rank {rank}, after all was done, {}{}",
                end.exit,
                last_words(ended, rank)
            ),
            said: last_said(began, ended),
        });
    }
    results
}

/// The last lines that the library has logged since `began`, with milliseconds relative to the last one. Then the lines that the ranks themselves have written.
fn last_said(began: Option<i64>, ended: &Ended) -> Vec<String> {
    let parts = |line: &String| {
        let (time, text) = line.split_once(' ')?;
        let time: jiff::Timestamp = time.parse().ok()?;
        Some((time.as_microsecond(), text.to_owned()))
    };
    let since = |(micros, _): &(i64, String)| began.is_some_and(|began| *micros >= began);
    let mut all: Vec<_> = ended.said.iter().filter_map(parts).filter(since).collect();
    all.sort_by_key(|(micros, _)| *micros);
    let last = all.last().map_or(0, |(micros, _)| *micros);
    let shown = all.into_iter().rev().take(SHOWN).rev();
    let shown = shown.map(|(micros, line)| {
        let before = (micros - last) as f64 / 1000.0;
        format!("{before:.3} ms, {line}")
    });
    let written = ended.ranks.iter().flat_map(|end| {
        let lines = end.wrote.iter();
        lines.map(|line| format!("rank {} wrote: {line}", end.rank))
    });
    shown.chain(written).collect()
}

fn broken(
    law: &Law,
    told: &Told<'_>,
    ended: &Ended,
    dying: &BTreeSet<u32>,
    (hang, stands_still): (&str, bool),
) -> (FailureKind, String) {
    let fails = told.fails.iter();
    let fails = fails.map(|(rank, text)| format!("rank {rank}: {text}"));
    if stands_still && law.spares() > 0 {
        // Replacements of the ended processes have started and found no peers.
        let then: Vec<String> = std::iter::once(hang.into()).chain(fails).collect();
        return (FailureKind::Hangs, then.join("; then "));
    }
    if !told.fails.is_empty() {
        let texts: Vec<String> = fails.collect();
        return (FailureKind::Fails, texts.join("; "));
    }
    if let Some(text) = told.unasked_end(law) {
        return (FailureKind::Crashes, text);
    }
    let missing: Vec<u32> = (0..law.processes)
        .filter(|rank| !told.ok.contains(rank) && !dying.contains(rank))
        .collect();
    // The first failed rank is the cause. A job with kills continues after one, so search the ranks there.
    let threads = ended.ranks.len() < law.processes as usize;
    let cause = match ended.first_failure {
        Some(rank) if threads || !dying.contains(&rank) => Some(rank),
        _ => missing.iter().copied().find(|rank| {
            ended
                .ranks
                .get(*rank as usize)
                .is_some_and(|end| !end.exit.success())
        }),
    };
    let end = cause.map(|rank| (rank, ended.ranks[rank as usize].exit));
    let words = cause.map_or(String::new(), |rank| last_words(ended, rank as usize));
    if let Some((_, Exit::Signal(libc::SIGALRM))) = end {
        let inside: Vec<u32> = missing
            .iter()
            .copied()
            .filter(|r| !told.returned.contains(r))
            .collect();
        let place = match inside.as_slice() {
            [] => "after the body".to_string(),
            ranks => format!("rank {}", list(ranks)),
        };
        return (FailureKind::Hangs, format!("{place}: {hang}{words}"));
    }
    let text = match end {
        Some((rank, exit)) if threads => {
            debug_assert_eq!(rank, 0);
            format!("the process of all ranks {exit}{words}")
        }
        Some((rank, exit)) => format!("rank {rank} {exit}{words}"),
        None => format!("rank {} said nothing", list(&missing)),
    };
    (FailureKind::Crashes, text)
}

fn list(ranks: &[u32]) -> String {
    let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
    ranks.join(", ")
}

/// The last line that the rank wrote to standard error.
fn last_words(ended: &Ended, rank: usize) -> String {
    match ended.ranks[rank].wrote.last() {
        None => String::new(),
        Some(words) => format!(" ({words})"),
    }
}
