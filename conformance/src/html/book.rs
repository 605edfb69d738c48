//! The contents of the pages: the specifications, their laws, and the results of this run.

use std::collections::{BTreeMap, BTreeSet};

use crate::clauses::{
    EXTENSIONS, FI_ATOMIC, FI_NEIGHBOURS, GASPI, IRCCE, Procedure, RCCE, RCCE_EXTENSIONS, UTOFU,
};
use crate::matrix::{Cell, Column};
use crate::runner::LawResult;
use crate::sentences::{PARTS, Sentence, SentenceCheck, SpecificationPart};
use crate::{Api, Law, laws};

/// A specification. It has two pages: one in its own order, and one with its laws.
#[derive(Debug)]
pub(super) struct Spec {
    pub api: Api,
    /// Start of the pages' file names.
    pub name: &'static str,
    pub title: &'static str,
    /// Title in lists of pages.
    pub short: &'static str,
    /// Name in the clauses of laws.
    cited: &'static str,
    /// Its functions, in groups with titles.
    pub functions: &'static [(&'static str, &'static [Procedure])],
    /// Functions of existing programs that the specification lacks.
    pub beside: &'static [&'static str],
}

pub(super) const SPECS: &[Spec] = &[
    Spec {
        api: Api::Core,
        name: "engine",
        title: "The engine",
        short: "Engine",
        cited: "unipgas",
        functions: &[],
        beside: &[],
    },
    Spec {
        api: Api::Gaspi,
        name: "gaspi",
        title: "GASPI 17.1",
        short: "GASPI",
        cited: "GASPI",
        functions: &[("Functions", GASPI)],
        beside: EXTENSIONS,
    },
    Spec {
        api: Api::Utofu,
        name: "utofu",
        title: "uTofu (User's Guide J2UL-2567-01ENZ0)",
        short: "uTofu",
        cited: "uTofu",
        functions: &[("Functions", UTOFU)],
        beside: &[],
    },
    Spec {
        api: Api::Rcce,
        name: "ircce",
        title: "RCCE 1.0.13 and iRCCE 2.0",
        short: "RCCE and iRCCE",
        cited: "iRCCE",
        functions: &[
            ("Functions of iRCCE 2.0", IRCCE),
            ("Functions of RCCE 1.0.13", RCCE),
        ],
        beside: RCCE_EXTENSIONS,
    },
    Spec {
        api: Api::Libfabric,
        name: "fi_atomic",
        title: "libfabric: fi_atomic(3) 1.8",
        short: "fi_atomic(3)",
        cited: "fi_atomic(3)",
        functions: &[("Functions", FI_ATOMIC)],
        beside: FI_NEIGHBOURS,
    },
];

impl Spec {
    pub fn of(api: Api) -> &'static Spec {
        let found = SPECS.iter().find(|spec| spec.api == api);
        found.unwrap_or(&SPECS[0])
    }

    pub fn page(&self) -> String {
        format!("{}.html", self.name)
    }

    pub fn laws_page(&self) -> String {
        format!("{}-laws.html", self.name)
    }

    pub fn parts(&self) -> impl Iterator<Item = &'static SpecificationPart> {
        PARTS.iter().filter(|part| part.api == self.api)
    }

    /// The sentences of all parts, in order.
    pub fn sentences(&self) -> impl Iterator<Item = &'static Sentence> {
        self.parts().flat_map(|part| part.sentences)
    }

    fn has_section(&self, section: &str) -> bool {
        self.sentences().any(|sentence| sentence.section == section)
    }

    /// Link to a section, if sentences of it are listed.
    pub fn section_link(&self, section: &str) -> Option<String> {
        let there = self.has_section(section);
        there.then(|| format!("{}#{}", self.page(), section_anchor(section)))
    }

    /// Link to a function of this specification.
    pub fn function_link(&self, name: &str) -> Option<String> {
        // The names of GASPI's profiling interface (§14) stand for the same procedures.
        let plain = name.strip_prefix('p').unwrap_or(name);
        let mut listed = self.functions.iter().flat_map(|(_, all)| *all);
        let is_there = listed.any(|one| one.name == plain) || self.beside.contains(&plain);
        is_there.then(|| format!("{}#{}", self.page(), function_anchor(plain)))
    }

    /// The text of a clause in pieces, each with a link to the section that it names.
    pub fn clause_links(&self, clause: &str) -> Vec<(String, Option<String>)> {
        let mut pieces = Vec::new();
        let mut spec = self;
        let mut rest = clause;
        while let Some(at) = rest.find('§') {
            let (before, from) = rest.split_at(at);
            let cited = |other: &Spec| Some((before.rfind(other.cited)?, other.api));
            if let Some((_, api)) = SPECS.iter().filter_map(cited).max_by_key(|(at, _)| *at) {
                spec = Spec::of(api);
            }
            let number = |c: char| c.is_ascii_digit() || c == '.';
            let sign = '§'.len_utf8();
            let end = from[sign..].find(|c| !number(c));
            let end = end.map_or(from.len(), |end| sign + end);
            let named = from[..end].trim_end_matches('.');
            pieces.push((before.into(), None));
            pieces.push((named.into(), spec.section_link(&named[sign..])));
            rest = &from[named.len()..];
        }
        pieces.push((rest.into(), None));
        pieces
    }
}

pub(super) fn section_anchor(section: &str) -> String {
    format!("s-{section}")
}

pub(super) fn function_anchor(name: &str) -> String {
    format!("f-{name}")
}

/// The anchor depends only on the sentence: it stays when others are added.
pub(super) fn sentence_anchor(sentence: &Sentence) -> String {
    format!(
        "{}-{}",
        section_anchor(sentence.section),
        slug(sentence.says)
    )
}

pub(super) fn law_link(law: &Law) -> String {
    format!("{}#{}", Spec::of(law.api).laws_page(), law.id)
}

pub(super) fn cell_anchor(law: &Law, column: &Column) -> String {
    format!("{}@{}", law.id, column.name)
}

pub(super) fn cell_link(law: &Law, column: &Column) -> String {
    let page = Spec::of(law.api).laws_page();
    format!("{page}#{}", cell_anchor(law, column))
}

/// The words, joined by dashes.
pub(super) fn slug(text: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c)).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}

/// The result of a law or of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    /// It was not requested, or has not run yet.
    NotRun,
    /// It does not apply to these backends, they do not offer its subject, or it is pinned as broken.
    Skipped,
    /// It passed on all backends on which it ran.
    Holds,
    /// For a sentence: some of its laws hold, others have not run.
    Partly,
    /// It failed on at least one backend.
    Fails,
}

impl Outcome {
    pub const ALL: [Outcome; 5] = [
        Outcome::Holds,
        Outcome::Partly,
        Outcome::Fails,
        Outcome::Skipped,
        Outcome::NotRun,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Outcome::NotRun => "not run",
            Outcome::Skipped => "skipped",
            Outcome::Holds => "holds",
            Outcome::Partly => "holds in part",
            Outcome::Fails => "FAILS",
        }
    }

    /// Name for several.
    pub fn plural(self) -> &'static str {
        match self {
            Outcome::Holds => "hold",
            Outcome::Partly => "hold in part",
            Outcome::Fails => "FAIL",
            other => other.name(),
        }
    }

    pub fn class(self) -> &'static str {
        match self {
            Outcome::NotRun => "none",
            Outcome::Skipped => "skip",
            Outcome::Holds => "pass",
            Outcome::Partly => "part",
            Outcome::Fails => "fail",
        }
    }
}

/// The run, arranged for the pages.
pub(super) struct Book<'a> {
    pub columns: &'a [&'static Column],
    cells: BTreeMap<(&'static str, &'static str), &'a Cell>,
    /// Laws of the specifications, and other laws that ran.
    laws: Vec<&'static Law>,
    wanted: BTreeSet<&'static str>,
    /// For each law: the sentences that it decides.
    decided: BTreeMap<&'static str, Vec<&'static Sentence>>,
}

impl<'a> Book<'a> {
    pub fn new(
        wanted: &[&'static Law],
        columns: &'a [&'static Column],
        cells: &'a [Cell],
    ) -> Book<'a> {
        let mut known = laws::all();
        let wanted_ids: BTreeSet<_> = wanted.iter().map(|law| law.id).collect();
        let ids: BTreeSet<_> = known.iter().map(|law| law.id).collect();
        known.extend(wanted.iter().filter(|law| !ids.contains(law.id)));
        let mut decided: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for sentence in PARTS.iter().flat_map(|part| part.sentences) {
            if let SentenceCheck::By(ids) = sentence.kept {
                for id in ids {
                    decided.entry(*id).or_default().push(sentence);
                }
            }
        }
        let place = |cell: &'a Cell| ((cell.ran.law.id, cell.column.name), cell);
        Book {
            columns,
            cells: cells.iter().map(place).collect(),
            laws: known,
            wanted: wanted_ids,
            decided,
        }
    }

    pub fn laws(&self, api: Api) -> impl Iterator<Item = &'static Law> {
        self.laws.iter().copied().filter(move |law| law.api == api)
    }

    /// The laws that this run includes.
    pub fn wanted(&self, api: Api) -> impl Iterator<Item = &'static Law> {
        self.laws(api).filter(|law| self.wanted.contains(law.id))
    }

    pub fn law(&self, id: &str) -> Option<&'static Law> {
        self.laws.iter().copied().find(|law| law.id == id)
    }

    pub fn cell(&self, law: &Law, column: &Column) -> Option<&'a Cell> {
        self.cells.get(&(law.id, column.name)).copied()
    }

    pub fn decided(&self, law: &Law) -> &[&'static Sentence] {
        self.decided.get(law.id).map_or(&[], Vec::as_slice)
    }

    /// Over all columns.
    pub fn outcome(&self, law: &Law) -> Outcome {
        let cells = self.columns.iter().map(|column| self.cell(law, column));
        let each = cells.map(|cell| match cell.map(|cell| &cell.ran.verdict) {
            None => Outcome::NotRun,
            Some(LawResult::Pass) => Outcome::Holds,
            Some(LawResult::Fail(_)) => Outcome::Fails,
            Some(_) => Outcome::Skipped,
        });
        each.max().unwrap_or(Outcome::NotRun)
    }

    /// Derived from its laws; `None` if no law decides it.
    pub fn sentence_outcome(&self, sentence: &Sentence) -> Option<Outcome> {
        let SentenceCheck::By(ids) = sentence.kept else {
            return None;
        };
        let laws = ids.iter().filter_map(|id| self.law(id));
        let each: Vec<_> = laws.map(|law| self.outcome(law)).collect();
        match each.iter().max().copied() {
            Some(Outcome::Holds) if each.iter().any(|one| *one != Outcome::Holds) => {
                Some(Outcome::Partly)
            }
            most => most,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_of_a_page_differ() {
        for spec in SPECS {
            let sections: BTreeSet<_> = spec.sentences().map(|one| one.section).collect();
            let sentences = spec.sentences().map(sentence_anchor);
            let anchors: Vec<_> = sections
                .into_iter()
                .map(section_anchor)
                .chain(sentences)
                .collect();
            let different: BTreeSet<_> = anchors.iter().collect();
            assert_eq!(different.len(), anchors.len(), "{}", spec.name);
        }
    }

    #[test]
    fn clauses_lead_to_their_sections() {
        let of = |api, clause| -> Vec<_> {
            let pieces = Spec::of(api).clause_links(clause);
            let text: String = pieces.iter().map(|(text, _)| text.as_str()).collect();
            assert_eq!(text, clause);
            pieces.into_iter().filter_map(|(_, link)| link).collect()
        };
        assert_eq!(
            of(Api::Gaspi, "GASPI 17.1 §8.2.1, §3.9."),
            ["gaspi.html#s-8.2.1", "gaspi.html#s-3.9"]
        );
        assert_eq!(
            of(
                Api::Core,
                "GASPI 17.1 §3.9; fi_atomic(3) §4.8, unipgas core"
            ),
            ["gaspi.html#s-3.9", "fi_atomic.html#s-4.8"]
        );
        assert_eq!(of(Api::Core, "unipgas core: §3.9, §77"), [""; 0]);
    }

    #[test]
    fn functions_are_found_under_both_names() {
        let gaspi = Spec::of(Api::Gaspi);
        let there = Some("gaspi.html#f-gaspi_write".to_string());
        assert_eq!(gaspi.function_link("gaspi_write"), there);
        assert_eq!(gaspi.function_link("pgaspi_write"), there);
        assert_eq!(gaspi.function_link("utofu_put"), None);
    }
}
