//! uTofu User's Guide, chapter 3: the interface.

use super::{Sentence, by, test};

#[rustfmt::skip]
pub(super) const SENTENCES: &[Sentence] = &[
    test("3.1.1.1", "the types have the widths of the table", "api-utofu/tests/headers.rs"),
    by("3.7.5.1", "the number of notices not looked at counts them", &["utofu.mrq.unread"]),
];
