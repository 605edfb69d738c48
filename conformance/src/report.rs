//! The matrix for people and programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;

use serde::Serialize;

use crate::Law;
use crate::matrix::{Cell, Column};
use crate::runner::LawResult;

/// Numbers of cells by result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResultCounts {
    /// Passed.
    pub passed: usize,
    /// Failed.
    pub failed: usize,
    /// Not offered, not applicable, or known broken.
    pub skipped: usize,
}

/// Counts `cells`.
pub fn counts(cells: &[Cell]) -> ResultCounts {
    let mut counts = ResultCounts::default();
    for cell in cells {
        match cell.ran.verdict {
            LawResult::Pass => counts.passed += 1,
            LawResult::Fail(_) => counts.failed += 1,
            _ => counts.skipped += 1,
        }
    }
    counts
}

/// A row for each law and a column for each backend. Below: the failures with the commands that repeat them, and the reasons of laws that did not run.
pub fn table(laws: &[&'static Law], columns: &[&'static Column], cells: &[Cell]) -> String {
    let mut text = String::new();
    let width = laws.iter().map(|law| law.id.len()).fold(3, usize::max);
    let _ = write!(text, "{:width$}  n", "law");
    for column in columns {
        let _ = write!(text, "  {:9}", column.name);
    }
    text = text.trim_end().into();
    text.push('\n');
    let by_place: BTreeMap<(&str, &str), &Cell> = cells
        .iter()
        .map(|cell| ((cell.ran.law.id, cell.column.name), cell))
        .collect();
    for law in laws {
        let mut row = format!("{:width$}  {}", law.id, law.processes);
        for column in columns {
            let cell = by_place.get(&(law.id, column.name));
            let mark = cell.map_or(String::new(), |cell| cell.ran.mark());
            let _ = write!(row, "  {mark:9}");
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    for cell in cells {
        if let LawResult::Fail(failure) = &cell.ran.verdict {
            let law = cell.ran.law;
            let _ = write!(
                text,
                "\n{} {} on {} (seed {})\n  law:    {} ({})\n  seen:   {}\n  repeat: {}\n",
                law.id,
                failure.kind.name(),
                cell.column.name,
                failure.seed,
                law.says,
                law.clause,
                failure.text,
                repeat(cell, failure.seed),
            );
            if !failure.said.is_empty() {
                text.push_str("  told before by the library, the last at 0 ms:\n");
            }
            for line in &failure.said {
                let _ = writeln!(text, "    {line}");
            }
        }
    }
    let mut reasons: BTreeMap<_, BTreeMap<(&str, &str), Vec<&str>>> = BTreeMap::new();
    for cell in cells {
        let Some((what, mark, reason)) = cell.ran.verdict.skipped() else {
            continue;
        };
        let reasons = reasons.entry((what, mark)).or_default();
        let laws = reasons.entry((cell.column.name, reason)).or_default();
        laws.push(cell.ran.law.id);
    }
    for ((what, mark), reasons) in reasons {
        let _ = write!(text, "\n{what} ({mark}):\n");
        for ((column, reason), laws) in reasons {
            let which = match laws.as_slice() {
                [one] => (*one).to_string(),
                many => format!("{} laws", many.len()),
            };
            let _ = writeln!(text, "  {column}: {which}: {reason}");
        }
    }
    let counts = counts(cells);
    let _ = write!(
        text,
        "\n{} passed, {} failed, {} skipped\n",
        counts.passed, counts.failed, counts.skipped
    );
    text
}

/// The command that runs a cell again.
pub(crate) fn repeat(cell: &Cell, seed: u64) -> String {
    let place = match cell.hosts {
        Some(hosts) => format!("--hosts {hosts}"),
        None => format!("--backend {}", cell.column.name),
    };
    format!(
        "unipgas conform --law {} {place} --seed {seed}",
        cell.ran.law.id
    )
}

#[derive(Serialize)]
struct Record<'a> {
    law: &'a str,
    clause: &'a str,
    api: &'a str,
    backend: &'a str,
    processes: u32,
    verdict: &'a str,
    seeds: u64,
    milliseconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repeat: Option<String>,
}

/// One record a line: law, clause, api, backend, processes, verdict (`pass`, `fails`, `hangs`, `crashes`, `not offered`,
/// `not applicable`, `known broken`), seeds, milliseconds; and for failures and reasons: seed, text, repeat.
pub fn json(cells: &[Cell], mut to: impl Write) -> std::io::Result<()> {
    for cell in cells {
        let ran = &cell.ran;
        let (verdict, text, seed) = match (&ran.verdict, ran.verdict.skipped()) {
            (LawResult::Fail(failure), _) => {
                let (text, seed) = (failure.text.as_str(), failure.seed);
                (failure.kind.name(), Some(text), Some(seed))
            }
            (LawResult::KnownBroken(reason), _) => ("known broken", Some(reason.as_str()), None),
            (_, Some((what, _, reason))) => (what, Some(reason), None),
            (_, None) => ("pass", None, None),
        };
        let record = Record {
            law: ran.law.id,
            clause: ran.law.clause,
            api: ran.law.api.name(),
            backend: cell.column.name,
            processes: ran.law.processes,
            verdict,
            seeds: ran.seeds,
            milliseconds: ran.took.as_millis() as u64,
            seed,
            text,
            repeat: seed.map(|seed| repeat(cell, seed)),
        };
        serde_json::to_writer(&mut to, &record)?;
        to.write_all(b"\n")?;
    }
    to.flush()
}
