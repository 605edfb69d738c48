//! The page of an interface's laws: each with its sentence, and its results by backend.

use maud::{Markup, html};

use super::book::{Book, Spec, cell_anchor, sentence_anchor};
use super::{badge, clause, count, document, mark, pin_of, scrolled, time};
use crate::Law;
use crate::matrix::{Cell, Column};
use crate::report;
use crate::runner::LawResult;

pub(super) fn page(book: &Book<'_>, spec: &Spec) -> Markup {
    let laws: Vec<_> = book.laws(spec.api).collect();
    let main = html! {
        p {
            (count(laws.len(), "law")) ", of which " (book.wanted(spec.api).count()) " were to run. Their subject: "
            a href=(spec.page()) { (spec.title) } "."
        }
        details {
            summary { "All laws" }
            ul .inline { @for law in &laws { li { a href={ "#" (law.id) } { (law.id) } } } }
        }
        @for law in laws { (section(book, spec, law)) }
    };
    document(&format!("Laws: {}", spec.title), &spec.laws_page(), main)
}

fn section(book: &Book<'_>, spec: &Spec, law: &'static Law) -> Markup {
    let heading = format!("h-{}", law.id);
    let decided = book.decided(law);
    let cells: Vec<_> = book
        .columns
        .iter()
        .filter_map(|column| Some((*column, book.cell(law, column)?)))
        .collect();
    html! {
        section #(law.id) .law aria-labelledby=(heading) {
            h2 #(heading) { a href={ "#" (law.id) } { (law.id) } " " (badge(book.outcome(law))) }
            p .says { (law.says) }
            dl {
                dt { "Clause" } dd { (clause(law)) }
                dt { "Processes" } dd { (law.processes) @if law.processes == 1 { " process" } @else { " processes" } }
                @if !law.procedures.is_empty() {
                    dt { "Functions" }
                    dd { ul .inline { @for name in law.procedures { li { (function(spec, name)) } } } }
                }
                @if !decided.is_empty() {
                    dt { "Decides" }
                    dd {
                        ul {
                            @for sentence in decided {
                                li {
                                    a href={ (spec.page()) "#" (sentence_anchor(sentence)) } { "§" (sentence.section) } " " (sentence.says)
                                }
                            }
                        }
                    }
                }
                @let needs = needs(law);
                @if !needs.is_empty() {
                    dt { "How it runs" } dd { (needs.join("; ")) }
                }
            }
            @if !cells.is_empty() { (backends(law, &cells)) }
        }
    }
}

fn function(spec: &Spec, name: &str) -> Markup {
    html! {
        @match spec.function_link(name) {
            Some(link) => a href=(link) { code { (name) } },
            None => code { (name) },
        }
    }
}

fn backends(law: &Law, cells: &[(&'static Column, &Cell)]) -> Markup {
    let caption = format!("{} on each backend", law.id);
    let table = html! {
        table .wide {
            caption .hidden { (caption) }
            thead {
                tr {
                    th scope="col" { "Backend" } th scope="col" { "Verdict" } th scope="col" .number { "Seeds" }
                    th scope="col" .number { "Time" } th scope="col" { "Result or reason" }
                }
            }
            tbody {
                @for (column, cell) in cells {
                    @let (class, text) = mark(Some(&cell.ran));
                    tr #(cell_anchor(law, column)) {
                        th scope="row" { (column.name) }
                        td class=(class) { (text) }
                        td .number { (cell.ran.seeds) }
                        td .number { @if cell.ran.seeds > 0 || matches!(cell.ran.verdict, LawResult::Fail(_)) { (time(cell.ran.took)) } }
                        td { (seen(cell)) }
                    }
                }
            }
        }
    };
    scrolled(&caption, table)
}

/// The values of a failure and the command that repeats it, or the reason that the law did not run.
pub(super) fn seen(cell: &Cell) -> Markup {
    let pin = pin_of(cell);
    html! {
        @if let LawResult::Fail(failure) = &cell.ran.verdict {
            p { "Seed " (failure.seed) ": " (failure.text) }
            pre { code { (report::repeat(cell, failure.seed)) } }
            @if let Some(pin) = pin { p { "Pinned as " (pin.why.name()) ": " (pin.reason) } }
        } @else if let Some((what, _, reason)) = cell.ran.verdict.skipped() {
            (what) ": " (reason)
            @if let Some(pin) = pin { " (pinned" @if pin.reason != reason { ": " (pin.reason) } ")" }
        }
    }
}

/// The special needs of a run.
fn needs(law: &Law) -> Vec<&'static str> {
    let all = [
        (law.ordering, "about order: under many seeds"),
        (law.needs_kill, "a process dies on purpose"),
        (law.replaces, "other processes take the places of dead ones"),
        (law.one_host, "on one host only"),
        (law.needs_cut, "a link between hosts is taken down"),
        (law.kills_launcher, "the launcher of a host is killed"),
        (law.bare, "begins and ends its interface itself"),
    ];
    let held = all.into_iter().filter(|(holds, _)| *holds);
    held.map(|(_, text)| text).collect()
}
