//! What became of commands, and what others have done: looking at completions and notices.

use std::sync::atomic::Ordering;

use super::command::CommandFlags;
use super::completion::Completed;
use super::issue::{Port, Queues};
use super::notice::{Packed, PortNotice};
use super::trigger::TRIGGERED;
use crate::{Error, Result};

/// Empty polls between two offers of the core to others, where each process has a core, and where not.
const PATIENCE: (u32, u32) = (1024, 8);
/// Offers between two looks at the lives of peers.
const OFFERS: u32 = 16;

impl Port {
    /// The next completion that somebody wants to know of.
    #[inline(always)]
    pub fn poll_completion(&self, queues: &mut Queues) -> Option<Completed> {
        if !self.direct {
            self.progress(queues);
        }
        let taken = if self.options.session {
            self.take_triggered(queues)
        } else {
            queues.completions.take(&self.counts)
        };
        if self.options.session {
            self.count(queues);
        }
        if taken.is_none() {
            self.idle(queues);
        }
        taken
    }

    fn take_triggered(&self, queues: &mut Queues) -> Option<Completed> {
        let session = queues.session.as_mut()?;
        let trigger = self.trigger();
        while session.taken < trigger.posted() {
            let number = session.taken;
            let fault = trigger.outcome(number)?;
            session.taken += 1;
            if fault.is_some() || trigger.flags(number).contains(CommandFlags::COMPLETION) {
                return Some(Completed {
                    context: session.contexts[number as usize % TRIGGERED],
                    fault,
                });
            }
        }
        None
    }

    /// The next notice: of own commands, or from others. Errors: [`Error::InboxFull`]: notices were lost, since they were not
    /// taken in time.
    #[inline(always)]
    pub fn poll_notice(&self, queues: &mut Queues) -> Result<Option<PortNotice>> {
        if !self.direct {
            self.progress(queues);
        }
        if let Some(waiting) = queues.notices.front() {
            let notice = Packed::open(waiting);
            queues.notices.pop_front();
            return Ok(Some(notice));
        }
        match queues.readers[0].take() {
            Some(record) => Ok(Some(PortNotice::from_record(&record))),
            None => self.no_notice(queues),
        }
    }

    #[inline(never)]
    fn no_notice(&self, queues: &mut Queues) -> Result<Option<PortNotice>> {
        let [small, large] = &mut queues.readers;
        if large.has_work() {
            // What its producers have delivered to the small part before is counted there now, and comes first, though another one
            // that has claimed a place before theirs may not be done.
            let next = match small.is_empty() {
                true => large.take(),
                false => small.take(),
            };
            if let Some(record) = next {
                return Ok(Some(PortNotice::from_record(&record)));
            }
        }
        if self.header().overflow.load(Ordering::Acquire) != 0 {
            return Err(Error::InboxFull);
        }
        self.idle(queues);
        Ok(None)
    }

    /// Whether notices were lost.
    pub fn has_overflowed(&self) -> bool {
        self.header().overflow.load(Ordering::Acquire) != 0
    }

    /// Notices that have not been taken, about.
    pub fn unread_notices(&self, queues: &mut Queues) -> usize {
        if !self.direct {
            self.progress(queues);
        }
        queues.notices.len() + queues.readers.iter().map(|part| part.len()).sum::<usize>()
    }

    /// Nothing has happened: whoever asks again and again lets others have the core now and then.
    #[inline]
    fn idle(&self, queues: &mut Queues) {
        queues.idle += 1;
        let patience = if self.network.engine().crowded() {
            PATIENCE.1
        } else {
            PATIENCE.0
        };
        if queues.idle >= patience {
            self.offer(queues);
        }
    }

    #[cold]
    fn offer(&self, queues: &mut Queues) {
        queues.idle = 0;
        std::thread::yield_now();
        queues.offers += 1;
        if queues.offers.is_multiple_of(OFFERS) {
            self.network.look();
            for part in &mut queues.readers {
                part.pass_over(|pid| self.network.has_ended(pid));
            }
            if self.options.session {
                // Whoever was about to start commands may have died.
                let _ = self.advance();
            }
        }
    }
}
