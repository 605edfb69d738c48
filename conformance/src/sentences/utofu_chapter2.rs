//! uTofu User's Guide, chapter 2: the communication models.

use super::{Sentence, by, unseen};

#[rustfmt::skip]
pub(super) const SENTENCES: &[Sentence] = &[
    by("2.2.10", "with the remote notice of a put all its data are in the target's memory", &["utofu.mrq.remote.put"]),
    unseen("2.2.11", "cache injection puts the data into the target's cache", "data of another process come through the shared cache anyway"),
];
