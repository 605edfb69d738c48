//! The matrix as pages for a browser: the run, and each specification, sentence by sentence, with the laws that decide it.

mod book;
mod index;
mod law;
mod specification;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::{Timestamp, Unit};
use maud::{DOCTYPE, Markup, html};

use crate::Law;
use crate::matrix::{Cell, Column, SeedPlan};
use crate::pinned::{self, Pin, Why};
use crate::report;
use crate::runner::{LawResult, Ran};
use book::{Book, Outcome, SPECS, Spec};

const STYLE: &str = include_str!("html/style.css");
const RECORDS: &str = "report.json";

/// The request of a run.
#[derive(Debug)]
pub struct Run<'a> {
    /// The command line.
    pub command: String,
    /// The laws in the order of display.
    pub laws: &'a [&'static Law],
    /// The columns in the order of display.
    pub columns: &'a [&'static Column],
    /// The seeds of the laws.
    pub plan: SeedPlan,
    /// Total number of seeds.
    pub work: u64,
}

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState<'a> {
    /// It is in progress.
    Running,
    /// It ended early; the reason.
    Ended(&'a str),
    /// All laws have run.
    Done,
}

/// A report of a run, in a separate directory.
#[derive(Debug)]
pub struct HtmlReport<'a> {
    dir: PathBuf,
    run: Run<'a>,
    begun: Timestamp,
    start: Instant,
}

impl<'a> HtmlReport<'a> {
    /// Creates the directory, and writes there that the run has started.
    ///
    /// # Errors
    /// A text, if the directory is not writable.
    pub fn begin(dir: &Path, run: Run<'a>) -> Result<HtmlReport<'a>, String> {
        std::fs::create_dir_all(dir)
            .map_err(|e| format!("cannot make {} for the report: {e}", dir.display()))?;
        let report = HtmlReport {
            dir: dir.into(),
            run,
            begun: Timestamp::now(),
            start: Instant::now(),
        };
        report.write(&[], RunState::Running)?;
        Ok(report)
    }

    /// The start page.
    pub fn index(&self) -> PathBuf {
        self.dir.join("index.html")
    }

    /// Rewrites all pages. A concurrent reader gets either the old page or the new one.
    ///
    /// # Errors
    /// A text, if a page cannot be written.
    pub fn write(&self, cells: &[Cell], state: RunState<'_>) -> Result<(), String> {
        let book = Book::new(self.run.laws, self.run.columns, cells);
        self.put("style.css", STYLE.as_bytes())?;
        for spec in SPECS {
            self.put(&spec.page(), page_bytes(specification::page(&book, spec)))?;
            self.put(&spec.laws_page(), page_bytes(law::page(&book, spec)))?;
        }
        let mut records = Vec::new();
        report::json(cells, &mut records).map_err(|e| format!("cannot write {RECORDS}: {e}"))?;
        self.put(RECORDS, records)?;
        let index = index::page(self, &book, cells, state);
        self.put("index.html", page_bytes(index))
    }

    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<(), String> {
        let (new, path) = (self.dir.join(format!(".{name}.new")), self.dir.join(name));
        std::fs::write(&new, bytes)
            .and_then(|()| std::fs::rename(&new, &path))
            .map_err(|e| format!("cannot write {}: {e}", path.display()))
    }

    /// Start of the run, and its duration so far.
    fn times(&self) -> (Timestamp, Duration) {
        let begun = self.begun.round(Unit::Second).unwrap_or(self.begun);
        (begun, self.start.elapsed())
    }
}

fn page_bytes(page: Markup) -> Vec<u8> {
    page.into_string().into_bytes()
}

/// A whole page; `here` is its file.
fn document(title: &str, here: &str, main: Markup) -> Markup {
    let link = |file: &str, text: &str| {
        html! { a href=(file) aria-current=[(file == here).then_some("page")] { (text) } }
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="stylesheet" href="style.css";
            }
            body {
                header {
                    nav aria-label="Pages of the report" {
                        ul {
                            li { (link("index.html", "Run")) }
                            @for spec in SPECS {
                                li { (link(&spec.page(), spec.short)) " (" (link(&spec.laws_page(), "laws")) ")" }
                            }
                        }
                    }
                }
                main {
                    h1 { (title) }
                    (main)
                }
            }
        }
    }
}

/// A table that may be wider than the page: it scrolls separately, also by keys.
fn scrolled(label: &str, table: Markup) -> Markup {
    html! { div .scrolled role="region" aria-label=(label) tabindex="0" { (table) } }
}

/// The result of a law on a backend, as in a cell of the matrix: a class and a text.
fn mark(ran: Option<&Ran>) -> (&'static str, String) {
    let Some(ran) = ran else {
        return (Outcome::NotRun.class(), "not run".into());
    };
    let outcome = match &ran.verdict {
        LawResult::Pass => Outcome::Holds,
        LawResult::Fail(_) => Outcome::Fails,
        _ => Outcome::Skipped,
    };
    let text = ran.mark().replace("pass x", "pass ×");
    (outcome.class(), if text == "-" { "–".into() } else { text })
}

fn badge(outcome: Outcome) -> Markup {
    html! { span class={ "badge " (outcome.class()) } { (outcome.name()) } }
}

/// The pin that decided the result of a cell.
fn pin_of(cell: &Cell) -> Option<&'static Pin> {
    let decides = |pin: &&Pin| match cell.ran.verdict {
        LawResult::Pass => false,
        LawResult::Fail(_) => true,
        // Without a seed no law can run there.
        LawResult::NotOffered(_) => pin.why == Why::Absent && cell.ran.seeds > 0,
        LawResult::NotApplicable(_) => pin.why == Why::Inapplicable,
        LawResult::KnownBroken(_) => pin.why == Why::Broken,
    };
    pinned::find(cell.column, cell.ran.law).filter(decides)
}

/// A clause, with links to the sections that it names.
fn clause(law: &Law) -> Markup {
    html! {
        @for (text, link) in Spec::of(law.api).clause_links(law.clause) {
            @match link {
                Some(link) => a href=(link) { (text) },
                None => (text),
            }
        }
    }
}

fn time(took: Duration) -> String {
    let seconds = took.as_secs();
    match seconds {
        0 => format!("{} ms", took.as_millis()),
        1..60 => format!("{:.1} s", took.as_secs_f64()),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// `1 law`, `2 laws`.
fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}
