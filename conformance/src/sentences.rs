//! The normative sentences of the specifications, and the checks of each of them.

mod fi_atomic;
mod gaspi_chapters3to7;
mod gaspi_chapters8to14;
mod ircce;
mod utofu_chapter2;
mod utofu_chapter3;

use std::fmt::Write as _;

use crate::Api;

/// A normative sentence in a few words.
#[derive(Debug, Clone, Copy)]
pub struct Sentence {
    /// Its section.
    pub section: &'static str,
    /// Its requirement.
    pub says: &'static str,
    /// Its check.
    pub kept: SentenceCheck,
}

/// The check of a sentence.
#[derive(Debug, Clone, Copy)]
pub enum SentenceCheck {
    /// These laws.
    By(&'static [&'static str]),
    /// A test outside the laws: its file, relative to the root of the repository.
    Test(&'static str),
    /// No check is possible; the reason that programs see no difference.
    Unseen(&'static str),
    /// It does not hold; the actual behavior.
    Not(&'static str),
}

const fn by(section: &'static str, says: &'static str, laws: &'static [&'static str]) -> Sentence {
    Sentence {
        section,
        says,
        kept: SentenceCheck::By(laws),
    }
}

const fn test(section: &'static str, says: &'static str, file: &'static str) -> Sentence {
    Sentence {
        section,
        says,
        kept: SentenceCheck::Test(file),
    }
}

const fn unseen(section: &'static str, says: &'static str, why: &'static str) -> Sentence {
    Sentence {
        section,
        says,
        kept: SentenceCheck::Unseen(why),
    }
}

const fn not(section: &'static str, says: &'static str, instead: &'static str) -> Sentence {
    Sentence {
        section,
        says,
        kept: SentenceCheck::Not(instead),
    }
}

/// A part of a specification. Each of its sentences is listed.
#[derive(Debug, Clone, Copy)]
pub struct SpecificationPart {
    /// Its name.
    pub title: &'static str,
    /// The interface of the laws that check it.
    pub api: Api,
    /// In the order of the text.
    pub sentences: &'static [Sentence],
}

/// All parts.
pub const PARTS: &[SpecificationPart] = &[
    SpecificationPart {
        title: "GASPI 17.1, chapters 3 to 7",
        api: Api::Gaspi,
        sentences: gaspi_chapters3to7::SENTENCES,
    },
    SpecificationPart {
        title: "GASPI 17.1, chapters 8 to 14",
        api: Api::Gaspi,
        sentences: gaspi_chapters8to14::SENTENCES,
    },
    SpecificationPart {
        title: "uTofu, chapter 2",
        api: Api::Utofu,
        sentences: utofu_chapter2::SENTENCES,
    },
    SpecificationPart {
        title: "uTofu, §3.1 to §3.6",
        api: Api::Utofu,
        sentences: utofu_chapter3::MANAGEMENT,
    },
    SpecificationPart {
        title: "uTofu, §3.7",
        api: Api::Utofu,
        sentences: utofu_chapter3::ONESIDED,
    },
    SpecificationPart {
        title: "uTofu, §3.8 and §3.9",
        api: Api::Utofu,
        sentences: utofu_chapter3::BARRIER,
    },
    SpecificationPart {
        title: "iRCCE manual, sections 3 to 9",
        api: Api::Rcce,
        sentences: ircce::SENTENCES,
    },
    SpecificationPart {
        title: "fi_atomic(3) 1.8",
        api: Api::Libfabric,
        sentences: fi_atomic::SENTENCES,
    },
];

/// Each sentence of `api`, or each sentence without one, with its check; then the numbers.
pub fn table(api: Option<Api>) -> String {
    let mut text = String::new();
    let mut counts = String::new();
    for part in PARTS
        .iter()
        .filter(|part| api.is_none_or(|api| part.api == api))
    {
        let _ = writeln!(text, "{}", part.title);
        let (mut laws, mut tests, mut unseen, mut not) = (0, 0, 0, 0);
        for sentence in part.sentences {
            let kept = match sentence.kept {
                SentenceCheck::By(names) => {
                    laws += 1;
                    names.join(" ")
                }
                SentenceCheck::Test(file) => {
                    tests += 1;
                    file.into()
                }
                SentenceCheck::Unseen(why) => {
                    unseen += 1;
                    format!("not to be seen: {why}")
                }
                SentenceCheck::Not(instead) => {
                    not += 1;
                    format!("not kept: {instead}")
                }
            };
            let _ = writeln!(
                text,
                "  §{:10} {}\n{:14}{kept}",
                sentence.section, sentence.says, ""
            );
        }
        let _ = writeln!(
            counts,
            "{}: {} sentences, {laws} with laws, {tests} with tests, {unseen} not to be seen, {not} not kept",
            part.title,
            part.sentences.len(),
        );
    }
    text + "\n" + &counts
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::laws;

    #[test]
    fn what_keeps_a_sentence_exists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for part in PARTS {
            for sentence in part.sentences {
                let at = format!("{} §{}: {}", part.title, sentence.section, sentence.says);
                match sentence.kept {
                    SentenceCheck::By(names) => {
                        assert!(!names.is_empty(), "{at}");
                        for name in names {
                            let law = laws::find(name);
                            assert_eq!(law.map(|law| law.api), Some(part.api), "{at}: {name}");
                        }
                    }
                    SentenceCheck::Test(file) => assert!(root.join(file).is_file(), "{at}: {file}"),
                    SentenceCheck::Unseen(why) | SentenceCheck::Not(why) => {
                        assert!(!why.is_empty(), "{at}")
                    }
                }
            }
        }
    }

    #[test]
    fn a_sentence_is_listed_once() {
        for part in PARTS {
            let said: BTreeSet<_> = part.sentences.iter().map(|s| (s.section, s.says)).collect();
            assert_eq!(said.len(), part.sentences.len(), "{}", part.title);
        }
    }

    #[test]
    fn sections_come_in_their_order() {
        let numbers = |section: &str| -> Vec<u32> {
            section
                .split('.')
                .map(|n| n.parse().expect("a section is numbers with dots"))
                .collect()
        };
        for part in PARTS {
            let sections: Vec<_> = part.sentences.iter().map(|s| numbers(s.section)).collect();
            assert!(sections.is_sorted(), "{}", part.title);
        }
    }
}
