//! The page of a specification, in its own order: sentences with the laws that decide them, functions, and further laws.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::book::{
    Book, Outcome, Spec, function_anchor, law_link, section_anchor, sentence_anchor, slug,
};
use super::{badge, count, document, scrolled};
use crate::Law;
use crate::clauses::Procedure;
use crate::coverage::laws_of;
use crate::sentences::{Sentence, SentenceCheck, SpecificationPart};

pub(super) fn page(book: &Book<'_>, spec: &Spec) -> Markup {
    let parts: Vec<_> = spec.parts().collect();
    let laws: Vec<_> = book.laws(spec.api).collect();
    let others: Vec<_> = laws
        .iter()
        .copied()
        .filter(|law| book.decided(law).is_empty())
        .collect();
    let functions: Vec<_> = spec
        .functions
        .iter()
        .filter(|(_, all)| !all.is_empty())
        .collect();
    let main = html! {
        (summary(book, spec))
        nav aria-label="On this page" {
            ul .inline {
                @for part in &parts { li { a href={ "#" (slug(part.title)) } { (part.title) } } }
                @for (title, _) in &functions { li { a href={ "#" (slug(title)) } { (title) } } }
                @if !spec.beside.is_empty() { li { a href="#beside" { "Functions beside it" } } }
                @if !others.is_empty() { li { a href="#other-laws" { (others_title(spec)) } } }
            }
        }
        @for part in &parts { (sentences(book, spec, part)) }
        @for (title, all) in &functions { (functions_table(book, spec, &laws, title, all)) }
        @if !spec.beside.is_empty() {
            section {
                h2 #beside { "Functions beside it" }
                p { "The text does not have them, and programs use them." }
                (rows_of_functions(book, &laws, "Functions beside it", spec.beside.iter().map(|name| (*name, html! {}))))
            }
        }
        @if !others.is_empty() { (other_laws(book, spec, &others)) }
    };
    document(spec.title, &spec.page(), main)
}

fn others_title(spec: &Spec) -> &'static str {
    match spec.parts().next() {
        Some(_) => "Laws beside the sentences",
        None => "Laws by clause",
    }
}

/// Numbers of sentences, by their kind of check, and by the results of their laws.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    pub all: usize,
    pub laws: usize,
    pub tests: usize,
    pub unseen: usize,
    pub not: usize,
    /// In the order of [`Outcome::ALL`].
    pub outcomes: [usize; Outcome::ALL.len()],
}

impl Tally {
    pub fn of<'s>(book: &Book<'_>, sentences: impl Iterator<Item = &'s Sentence>) -> Tally {
        let mut tally = Tally::default();
        for sentence in sentences {
            tally.all += 1;
            match sentence.kept {
                SentenceCheck::By(_) => tally.laws += 1,
                SentenceCheck::Test(_) => tally.tests += 1,
                SentenceCheck::Unseen(_) => tally.unseen += 1,
                SentenceCheck::Not(_) => tally.not += 1,
            }
            let outcome = book.sentence_outcome(sentence);
            for (count, one) in tally.outcomes.iter_mut().zip(Outcome::ALL) {
                *count += usize::from(outcome == Some(one));
            }
        }
        tally
    }
}

/// Number of functions with laws, and number of all functions.
pub(super) fn functions_with_laws(book: &Book<'_>, spec: &Spec) -> (usize, usize) {
    let laws: Vec<_> = book.laws(spec.api).collect();
    let functions = spec.functions.iter().flat_map(|(_, all)| *all);
    let with = functions
        .clone()
        .filter(|one| !laws_of(&laws, one.name).is_empty());
    (with.count(), functions.count())
}

fn summary(book: &Book<'_>, spec: &Spec) -> Markup {
    let (with, functions) = functions_with_laws(book, spec);
    html! {
        @if spec.parts().next().is_some() {
            (coverage(book, spec.parts().map(|part| (part.title, part.sentences))))
        }
        p {
            (count(book.laws(spec.api).count(), "law")) ": "
            a href=(spec.laws_page()) { "text and places of each run" } "."
            @if functions > 0 { " Of " (functions) " functions, " (with) " have laws." }
        }
    }
}

fn coverage<'s>(book: &Book<'_>, parts: impl Iterator<Item = (&'s str, &'s [Sentence])>) -> Markup {
    let table = html! {
        table {
            caption { "Sentences, by the check that keeps them, with the results of laws" }
            thead {
                tr {
                    th scope="col" { "Part" }
                    @for title in ["sentences", "by laws", "by tests", "not to be seen", "not kept"] { th scope="col" .number { (title) } }
                    @for outcome in Outcome::ALL { th scope="col" .number { (outcome.plural()) } }
                }
            }
            tbody {
                @for (title, sentences) in parts {
                    @let tally = Tally::of(book, sentences.iter());
                    tr {
                        th scope="row" { a href={ "#" (slug(title)) } { (title) } }
                        (tally_cells(&tally))
                    }
                }
            }
        }
    };
    scrolled("Coverage", table)
}

/// The numbers of a tally, one cell each.
pub(super) fn tally_cells(tally: &Tally) -> Markup {
    let numbers = [tally.all, tally.laws, tally.tests, tally.unseen, tally.not];
    html! {
        @for number in numbers { td .number { (number) } }
        @for (number, outcome) in tally.outcomes.iter().zip(Outcome::ALL) {
            td class={ "number " @if *number > 0 { (outcome.class()) } } { (number) }
        }
    }
}

fn sentences(book: &Book<'_>, spec: &Spec, part: &SpecificationPart) -> Markup {
    let by_section = part
        .sentences
        .chunk_by(|one, next| one.section == next.section);
    html! {
        section {
            h2 #(slug(part.title)) { (part.title) }
            details {
                summary { "Sections" }
                ul .inline {
                    @for section in by_section.clone().map(|sentences| sentences[0].section) {
                        li { a href={ "#" (section_anchor(section)) } { "§" (section) } }
                    }
                }
            }
            @for sentences in by_section {
                @let section = sentences[0].section;
                h3 #(section_anchor(section)) {
                    a href={ "#" (section_anchor(section)) } { "§" (section) }
                    @for name in functions_of(spec, section) { " " code { (name) } }
                    " " small { (told(&Tally::of(book, sentences.iter()))) }
                }
                ol { @for sentence in sentences { (one(book, sentence)) } }
            }
        }
    }
}

fn functions_of(spec: &Spec, section: &str) -> impl Iterator<Item = &'static str> {
    let functions = spec.functions.iter().flat_map(|(_, all)| *all);
    functions
        .filter(move |function| function.section == section)
        .map(|function| function.name)
}

/// A tally in a few words.
fn told(tally: &Tally) -> String {
    let outcomes = tally.outcomes.iter().zip(Outcome::ALL);
    let mut parts: Vec<String> = outcomes
        .map(|(number, outcome)| match number {
            1 => (1, outcome.name()),
            _ => (*number, outcome.plural()),
        })
        .chain([
            (tally.tests, "by tests"),
            (tally.unseen, "not to be seen"),
            (tally.not, "not kept"),
        ])
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{number} {what}"))
        .collect();
    parts.insert(0, count(tally.all, "sentence"));
    parts.join(", ")
}

fn one(book: &Book<'_>, sentence: &Sentence) -> Markup {
    let anchor = sentence_anchor(sentence);
    html! {
        li #(anchor) {
            (sentence.says) " "
            a .anchor href={ "#" (anchor) } aria-label="Link to this sentence" { "#" }
            div .kept {
                @match sentence.kept {
                    SentenceCheck::By(ids) => {
                        @if let Some(outcome) = book.sentence_outcome(sentence) { (badge(outcome)) " " }
                        (laws_list(book, ids.iter().filter_map(|id| book.law(id))))
                    }
                    SentenceCheck::Test(file) => {
                        span .badge.other { "by a test" } " No law decides it, a test outside the laws does: " code { (file) }
                    }
                    SentenceCheck::Unseen(why) => {
                        span .badge.other { "not to be seen" } " No law can decide it: " (why)
                    }
                    SentenceCheck::Not(instead) => {
                        span .badge.skip { "not kept" } " " (instead)
                    }
                }
            }
        }
    }
}

/// Links to laws, each with its result.
fn laws_list(book: &Book<'_>, laws: impl Iterator<Item = &'static Law>) -> Markup {
    html! {
        ul .inline {
            @for law in laws {
                @let outcome = book.outcome(law);
                li { a class=(outcome.class()) href=(law_link(law)) title=(law.says) { (law.id) } @if outcome != Outcome::Holds { " (" (outcome.name()) ")" } }
            }
        }
    }
}

fn functions_table(
    book: &Book<'_>,
    spec: &Spec,
    laws: &[&'static Law],
    title: &str,
    functions: &[Procedure],
) -> Markup {
    let place = |function: &Procedure| {
        let numbered = function.section.starts_with(|c: char| c.is_ascii_digit());
        html! {
            @match spec.section_link(function.section) {
                Some(link) => a href=(link) { "§" (function.section) },
                None => { @if numbered { "§" } (function.section) },
            }
        }
    };
    html! {
        section {
            h2 #(slug(title)) { (title) }
            (rows_of_functions(book, laws, title, functions.iter().map(|one| (one.name, place(one)))))
        }
    }
}

fn rows_of_functions(
    book: &Book<'_>,
    laws: &[&'static Law],
    title: &str,
    functions: impl Iterator<Item = (&'static str, Markup)>,
) -> Markup {
    let law = |id| book.law(id);
    let table = html! {
        table .wide {
            caption .hidden { (title) }
            thead { tr { th scope="col" { "Function" } th scope="col" { "Where" } th scope="col" { "Laws" } } }
            tbody {
                @for (name, place) in functions {
                    @let deciding = laws_of(laws, name);
                    tr #(function_anchor(name)) {
                        th scope="row" { code { (name) } }
                        td { (place) }
                        td {
                            @if deciding.is_empty() { "none" }
                            @else { (laws_list(book, deciding.into_iter().filter_map(law))) }
                        }
                    }
                }
            }
        }
    };
    scrolled(title, table)
}

fn other_laws(book: &Book<'_>, spec: &Spec, laws: &[&'static Law]) -> Markup {
    let mut clauses: Vec<&str> = Vec::new();
    let mut by_clause: BTreeMap<&str, Vec<&'static Law>> = BTreeMap::new();
    for law in laws {
        if !clauses.contains(&law.clause) {
            clauses.push(law.clause);
        }
        by_clause.entry(law.clause).or_default().push(law);
    }
    let title = others_title(spec);
    let table = html! {
        table .wide {
            caption .hidden { (title) }
            thead { tr { th scope="col" { "Clause" } th scope="col" { "Law" } th scope="col" { "What it says" } th scope="col" { "In this run" } } }
            @for clause in clauses {
                @let laws = by_clause.get(clause).map_or(&[][..], Vec::as_slice);
                tbody {
                    @for (nth, law) in laws.iter().enumerate() {
                        tr {
                            @if nth == 0 { th scope="rowgroup" rowspan=(laws.len()) { (super::clause(law)) } }
                            td { a href=(law_link(law)) { (law.id) } }
                            td { (law.says) }
                            td { (badge(book.outcome(law))) }
                        }
                    }
                }
            }
        }
    };
    html! {
        section {
            h2 #other-laws { (title) }
            (scrolled(title, table))
        }
    }
}
