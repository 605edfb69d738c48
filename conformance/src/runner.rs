//! Starting jobs of laws, and finding out from what their processes have told how each law went.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::time::{Duration, Instant};

use unipgas_launcher::Exit;

use crate::Law;
use crate::hosts::Hosts;
use crate::job::{Ended, Job, Line};
use crate::stall::{CLOCK, Hang, SILENCE};
use crate::worker::Item;
use unipgas_core::stop::Stop;

/// How a law went on a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Held under every seed.
    Pass,
    /// Was found broken.
    Fail(Failure),
    /// The backend does not offer what it is about; why.
    NotOffered(String),
    /// It has not run: it is not about such a column; why.
    NotApplicable(String),
    /// It has not run: it is known not to hold; why.
    KnownBroken(String),
}

/// How a law was found broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Under this seed.
    pub seed: u64,
    /// In what way.
    pub kind: FailureKind,
    /// What was seen and expected, with the rank.
    pub text: String,
    /// What the library had told before, in all ranks: the last lines.
    pub said: Vec<String>,
}

/// So many lines of what the library has told are shown.
const SHOWN: usize = 80;

/// In what way a law was found broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The body says so.
    Fails,
    /// Nothing moved any more, or its time was over.
    Hangs,
    /// A process ended that should not have.
    Crashes,
}

impl FailureKind {
    /// In the table.
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
    /// How it went.
    pub verdict: Verdict,
    /// Seeds under which it was run to its end.
    pub seeds: u64,
    /// Time that it took, with its share of starting the job.
    pub took: Duration,
}

/// How jobs are started.
#[derive(Debug)]
pub struct Runner {
    /// This program, and what makes it a worker.
    pub program: OsString,
    /// Arguments before those of a worker.
    pub prefix: Vec<OsString>,
    /// The library whose interfaces are called.
    pub library: OsString,
    /// So long every rank waits in vain in a law that hangs.
    pub limit: Duration,
    /// Where the ranks of columns with several hosts are.
    pub hosts: Option<Hosts>,
    /// Who may say that no more is to run.
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

    /// Whether no more is to run.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(Stop::is_asked)
    }

    /// Runs `items`, which need the same number of processes, on a column; calls `progress` with the seeds done so far. A law that
    /// fails costs the others nothing but a new job. Where the runner is [stopped](Stop), the results of those that were done before.
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
                && ran[last].verdict == Verdict::Pass
                && let Some(left) = ended.left
            {
                ran[last].verdict = Verdict::Fail(Failure {
                    seed: rest[last].first,
                    kind: FailureKind::Fails,
                    text: left,
                    said: Vec::new(),
                });
            }
            let laws: Duration = ran.iter().map(|ran| ran.took).sum();
            let stopped = self.is_stopped();
            if stopped {
                // Ended by the stop, or by what others have done since: nothing is known of it.
                ran.retain(|ran| !matches!(ran.verdict, Verdict::Fail(_)));
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

    /// The most time that a seed gets.
    pub(crate) fn clock(&self) -> Duration {
        self.limit.max(Duration::from_secs(1)) * CLOCK
    }
}

/// What is known of one item under one seed.
#[derive(Default)]
struct Told<'a> {
    started: BTreeSet<u32>,
    /// How many processes of each rank have started, and how many have killed themselves.
    lives: HashMap<u32, (u32, u32)>,
    returned: BTreeSet<u32>,
    ok: BTreeSet<u32>,
    none: Option<&'a str>,
    /// Of the slowest rank.
    took: Duration,
    /// By rank; the first one is not always the cause, since a body that fails takes its regions away from the others.
    fails: Vec<(u32, &'a str)>,
    /// When the first rank has begun, in microseconds since 1970.
    began: Option<i64>,
}

impl Told<'_> {
    /// A rank of which a process has ended that has not killed itself: another one has taken its place.
    fn unasked_end(&self, law: &Law) -> Option<String> {
        if law.kills_launcher || self.lives.values().all(|(_, killed)| *killed == 0) {
            // It kills otherwise.
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

/// The results of the items that were begun: all of them, or those up to the first that was found broken.
/// `hang` tells what became of one that does not end, and whether all were ended since nothing moved.
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
            verdict: Verdict::Pass,
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
                    ran.verdict = Verdict::NotOffered(reason.into());
                }
                continue;
            }
            let (kind, text) = broken(item.law, told, ended, &dying, hang);
            ran.verdict = Verdict::Fail(Failure {
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
        && last.verdict == Verdict::Pass
    {
        last.verdict = Verdict::Fail(Failure {
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

/// The last lines that the library has logged since then, with the milliseconds before the last one, and what the ranks have written themselves.
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
        // Other processes have taken the places of those that were ended, and have found nobody.
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
    // Of the ends, the first one is the cause; a job with kills goes on, so that there it is looked for.
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
