//! uTofu User's Guide, chapter 3: the interface.

mod barrier;
mod management;
mod onesided;

use super::{Sentence, by, test, unseen};

pub(super) use barrier::SENTENCES as BARRIER;
pub(super) use management::SENTENCES as MANAGEMENT;
pub(super) use onesided::SENTENCES as ONESIDED;
