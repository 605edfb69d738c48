//! The start page: laws that ran, failures, laws that did not run with the reasons, and the matrix.

use std::collections::BTreeMap;
use std::time::Duration;

use maud::{Markup, html};

use super::book::{Book, Outcome, SPECS, Spec, cell_link, law_link};
use super::specification::{Tally, functions_with_laws, tally_cells};
use super::{HtmlReport, RECORDS, Run, RunState};
use super::{clause, count, document, law, mark, pin_of, scrolled, time};
use crate::Law;
use crate::matrix::{Cell, Column};
use crate::report::counts;
use crate::runner::LawResult;

pub(super) fn page(
    report: &HtmlReport<'_>,
    book: &Book<'_>,
    cells: &[Cell],
    state: RunState<'_>,
) -> Markup {
    let failures: Vec<_> = cells
        .iter()
        .filter(|cell| matches!(cell.ran.verdict, LawResult::Fail(_)))
        .collect();
    let main = html! {
        (totals(&report.run, cells, state))
        nav aria-label="On this page" {
            ul .inline {
                @if !failures.is_empty() { li { a href="#failures" { "Failures" } } }
                li { a href="#what-ran" { "What ran" } }
                li { a href="#backends" { "Backends" } }
                li { a href="#specifications" { "Specifications" } }
                li { a href="#skipped" { "Laws that did not run, with reasons" } }
                li { a href="#matrix" { "Laws and backends" } }
            }
        }
        @if !failures.is_empty() {
            section {
                h2 #failures { "Failures" }
                @for cell in &failures { (failure(cell)) }
            }
        }
        (what_ran(report))
        (backends(&report.run, cells))
        (specifications(book))
        (skipped(cells))
        (matrix(book))
    };
    document("Conformance of unipgas", "index.html", main)
}

fn totals(run: &Run<'_>, cells: &[Cell], state: RunState<'_>) -> Markup {
    let counts = counts(cells);
    let all = run.laws.len() * run.columns.len();
    let missing = all - cells.len();
    html! {
        @match state {
            RunState::Done => {},
            RunState::Running => p .note role="status" { "The run goes on: this is what is known so far. Load the page again for more." },
            RunState::Ended(why) => p .note role="status" { "The run ended before all had run (" (why) "). This is what was known then." },
        }
        ul .totals {
            li .pass { strong { (counts.passed) } " passed" }
            li class=(if counts.failed > 0 { "fail" } else { "none" }) { strong { (counts.failed) } " failed" }
            li .skip { strong { (counts.skipped) } " skipped" }
            @if missing > 0 { li .none { strong { (missing) } " not run" } }
        }
    }
}

fn failure(cell: &Cell) -> Markup {
    let law = cell.ran.law;
    let (_, kind) = mark(Some(&cell.ran));
    html! {
        article .failure {
            h3 {
                a href=(cell_link(law, cell.column)) { (law.id) } " on " (cell.column.name) ": " span .badge.fail { (kind) }
            }
            dl {
                dt { "Law" } dd { (law.says) " (" (clause(law)) ")" }
                dt { "Seen, and how to repeat it" } dd { (law::seen(cell)) }
            }
        }
    }
}

fn what_ran(report: &HtmlReport<'_>) -> Markup {
    let (run, plan) = (&report.run, &report.run.plan);
    let (begun, took) = report.times();
    let system = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    html! {
        section {
            h2 #what-ran { "What ran" }
            dl {
                dt { "Version" } dd { "unipgas " (env!("CARGO_PKG_VERSION")) }
                dt { "Command" } dd { code { (run.command) } }
                dt { "Host" }
                dd {
                    (text(system.nodename())) ": " (text(system.sysname())) " " (text(system.release())) ", " (text(system.machine())) ", "
                    (count(processors, "processor"))
                }
                dt { "Begun" } dd { time datetime=(begun) { (begun) } ", took " (time(took)) }
                dt { "Laws" } dd { (run.laws.len()) " on " (count(run.columns.len(), "backend")) }
                dt { "Seeds" }
                dd {
                    @if plan.all { (count(plan.count as usize, "seed")) " for each law, from " (plan.first) }
                    @else { "from " (plan.first) ", " (plan.count) " for laws about order, fewer for others" }
                    "; " (count(run.work as usize, "run")) " in all"
                    @if plan.broken { "; laws that are pinned as broken have run, too" }
                }
                dt { "For programs" } dd { a href=(RECORDS) { (RECORDS) } ", one record a line" }
            }
        }
    }
}

fn backends(run: &Run<'_>, cells: &[Cell]) -> Markup {
    let table = html! {
        table .wide {
            caption .hidden { "Backends" }
            thead {
                tr {
                    th scope="col" { "Backend" } th scope="col" { "UNIPGAS_BACKEND and more" }
                    @for title in ["passed", "failed", "skipped", "not run", "time"] { th scope="col" .number { (title) } }
                }
            }
            tbody {
                @for column in run.columns {
                    @let here: Vec<Cell> = cells.iter().filter(|cell| cell.column == *column).cloned().collect();
                    @let counts = counts(&here);
                    @let took: Duration = here.iter().map(|cell| cell.ran.took).sum();
                    tr {
                        th scope="row" { (column.name) }
                        td { (settings(column, &here)) }
                        td .number { (counts.passed) }
                        td class={ "number " @if counts.failed > 0 { "fail" } } { (counts.failed) }
                        td .number { (counts.skipped) }
                        td .number { (run.laws.len() - here.len()) }
                        td .number { (time(took)) }
                    }
                }
            }
        }
    };
    html! {
        section {
            h2 #backends { "Backends" }
            p { "Times are sums over all laws; laws may run at the same time." }
            (scrolled("Backends", table))
        }
    }
}

fn settings(column: &Column, cells: &[Cell]) -> Markup {
    html! {
        code { (column.backend) }
        @for (name, value) in column.env { " " code { (name) "=" (value) } }
        @if column.threads { ", ranks are threads of one process" }
        @if let Some(hosts) = cells.iter().find_map(|cell| cell.hosts) { ", ranks are on " (hosts) " hosts" }
    }
}

fn specifications(book: &Book<'_>) -> Markup {
    let table = html! {
        table {
            caption .hidden { "Specifications" }
            thead {
                tr {
                    th scope="col" rowspan="2" { "Specification" }
                    th scope="colgroup" colspan="2" { "Laws" }
                    th scope="colgroup" colspan="2" { "Functions" }
                    th scope="colgroup" colspan="5" { "Normative sentences" }
                    th scope="colgroup" colspan=(Outcome::ALL.len()) { "Sentences that laws decide, in this run" }
                }
                tr {
                    @for title in ["all", "to run", "all", "with laws", "all", "by laws", "by tests", "not to be seen", "not kept"] {
                        th scope="col" .number { (title) }
                    }
                    @for outcome in Outcome::ALL { th scope="col" .number { (outcome.plural()) } }
                }
            }
            tbody { @for spec in SPECS { (specification(book, spec)) } }
        }
    };
    html! {
        section {
            h2 #specifications { "Specifications" }
            (scrolled("Specifications", table))
        }
    }
}

fn specification(book: &Book<'_>, spec: &Spec) -> Markup {
    let (with, functions) = functions_with_laws(book, spec);
    html! {
        tr {
            th scope="row" { a href=(spec.page()) { (spec.title) } }
            td .number { a href=(spec.laws_page()) { (book.laws(spec.api).count()) } }
            td .number { (book.wanted(spec.api).count()) }
            td .number { (functions) }
            td .number { (with) }
            (tally_cells(&Tally::of(book, spec.sentences())))
        }
    }
}

/// The kind of reason, whether it is pinned, and the reason.
type Reason<'a> = (&'a str, String, &'a str);

/// Laws that did not run, or that their column cannot offer, by reason; backends with the same laws share an entry.
fn reasons(cells: &[Cell]) -> Vec<(Reason<'_>, Vec<&'static str>, Vec<&'static Law>)> {
    let mut laws: BTreeMap<(Reason<'_>, &'static str), Vec<&'static Law>> = BTreeMap::new();
    for cell in cells {
        if let Some((what, _, why)) = cell.ran.verdict.skipped() {
            let pinned = match pin_of(cell) {
                None => "no".into(),
                Some(pin) if pin.reason == why => pin.why.name().into(),
                Some(pin) => format!("{}: {}", pin.why.name(), pin.reason),
            };
            let place = ((what, pinned, why), cell.column.name);
            laws.entry(place).or_default().push(cell.ran.law);
        }
    }
    let mut rows: Vec<(Reason<'_>, Vec<&'static str>, Vec<&'static Law>)> = Vec::new();
    let ids = |laws: &[&'static Law]| laws.iter().map(|law| law.id).collect::<Vec<_>>();
    for ((reason, column), laws) in laws {
        let is_like =
            |row: &&mut (Reason<'_>, Vec<_>, Vec<_>)| row.0 == reason && ids(&row.2) == ids(&laws);
        match rows.iter_mut().find(is_like) {
            Some((_, columns, _)) => columns.push(column),
            None => rows.push((reason, vec![column], laws)),
        }
    }
    rows
}

fn skipped(cells: &[Cell]) -> Markup {
    let reasons = reasons(cells);
    let table = html! {
        table .wide {
            caption .hidden { "What did not run" }
            thead { tr { @for title in ["Why", "What", "Pinned", "Backends", "Laws"] { th scope="col" { (title) } } } }
            tbody {
                @for ((what, pinned, why), columns, laws) in &reasons {
                    tr { th scope="row" { (why) } td { (what) } td { (pinned) } td { (columns.join(", ")) } td { (which(laws)) } }
                }
            }
        }
    };
    html! {
        section {
            h2 #skipped { "Laws that did not run, with reasons" }
            p {
                "Pinned laws are known not to hold on that backend: " em { "absent" } " is what the backend cannot have (the law runs and must say so), "
                em { "broken" } " is what does not hold for now (it runs with " code { "--pinned" } " only), and " em { "not applicable" }
                " the part that the law does not cover there. Other gaps follow from the backend or from this machine."
            }
            @if reasons.is_empty() { p { "All that was asked for could run." } }
            @else { (scrolled("What did not run", table)) }
        }
    }
}

/// Folds long lists.
fn which(laws: &[&'static Law]) -> Markup {
    let list = html! {
        ul { @for law in laws { li { a href=(law_link(law)) { (law.id) } } } }
    };
    match laws.len() {
        1..4 => list,
        number => html! { details { summary { (count(number, "law")) } (list) } },
    }
}

fn matrix(book: &Book<'_>) -> Markup {
    html! {
        section {
            h2 #matrix { "Laws and backends" }
            p {
                "A pass ×20 is one under 20 seeds; – stands for what the backend does not offer, n/a for what the law is not about there, broken for what is pinned as such. "
                "Each cell leads to what is known of it."
            }
            @for spec in SPECS {
                @let laws: Vec<_> = book.wanted(spec.api).collect();
                @if !laws.is_empty() {
                    h3 #{ "matrix-" (spec.name) } { (spec.title) }
                    (scrolled(&format!("Laws and backends: {}", spec.title), rows(book, spec, &laws)))
                }
            }
        }
    }
}

fn rows(book: &Book<'_>, spec: &Spec, laws: &[&'static Law]) -> Markup {
    html! {
        table .matrix {
            caption .hidden { "Laws and backends: " (spec.title) }
            thead {
                tr {
                    th scope="col" { "Law" }
                    th scope="col" .number { abbr title="processes" { "n" } }
                    @for column in book.columns { th scope="col" { (column.name) } }
                }
            }
            tbody {
                @for law in laws {
                    tr {
                        th scope="row" { a href=(law_link(law)) title=(law.says) { (law.id) } }
                        td .number { (law.processes) }
                        @for column in book.columns {
                            @let cell = book.cell(law, column);
                            @let (class, text) = mark(cell.map(|cell| &cell.ran));
                            td class=(class) {
                                @if cell.is_some() { a href=(cell_link(law, column)) { (text) } } @else { (text) }
                            }
                        }
                    }
                }
            }
        }
    }
}
