//! An operation that has not ended, and the state of its notice.

use std::num::NonZeroU32;

use unipgas_core::inbox::Record;

use crate::operation::Report;
use crate::status::Errno;

/// An operation that has not ended.
pub(crate) struct Operation {
    pub to: u64,
    /// Id of the endpoint at `to`.
    pub peer: u64,
    pub report: Report,
    /// Number of parts in flight.
    pub left: u32,
    pub error: Option<Errno>,
    pub notice: Notice,
    /// Number in the order of posting.
    pub number: u64,
    /// The target's words to increment, once the effects are visible and the notice has been delivered.
    pub counting: Vec<NonZeroU32>,
}

impl Operation {
    /// Whether all parts must end before the next step. Only a notice can be posted behind parts in flight.
    pub fn has_to_end_first(&self) -> bool {
        self.left > 0 && (self.notice.record().is_none() || self.error.is_some())
    }

    /// Nothing is in flight, and the target gets no notice.
    pub fn needs_no_more(&self) -> bool {
        self.left == 0 && self.notice.record().is_none()
    }

    /// Whether it waits to send its notice or counts.
    pub fn waits_to_tell(&self) -> bool {
        match self.notice {
            Notice::None => !self.counting.is_empty(),
            Notice::Waiting(_) | Notice::Refused(_) => true,
            Notice::InFlight(_) => false,
        }
    }
}

/// Delivery of an operation's notice to its target.
pub(crate) enum Notice {
    /// The operation has no notice, or the target has it.
    None,
    Waiting(Record),
    InFlight(Record),
    /// The target had no room for it. It is sent again once no part is in flight.
    Refused(Record),
}

impl Notice {
    pub fn record(&self) -> Option<Record> {
        match *self {
            Notice::None => None,
            Notice::Waiting(record) | Notice::InFlight(record) | Notice::Refused(record) => {
                Some(record)
            }
        }
    }
}

/// Position of a new notice among earlier ones to its target.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// No earlier notice is under way.
    First,
    /// Earlier notices are in flight, and the channel keeps their order.
    Chained,
    /// Earlier notices must arrive first.
    Later,
}
