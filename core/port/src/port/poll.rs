//! Polling of completions and notices.

use std::sync::atomic::Ordering;

use super::command::CommandFlags;
use super::completion::Completed;
use super::issue::{Port, Queues};
use super::notice::PortNotice;
use super::trigger::TRIGGERED;
use unipgas_base::waits::polled;
use unipgas_base::{Error, Result, issue_totals, waits};
use unipgas_engine::inbox::{InboxReader, Record};

/// Notices taken between two polls of the networks.
const TAKEN: u32 = 16;
/// Yields of the core between two liveness checks of peers.
const OFFERS: u32 = 16;

impl Port {
    /// The next requested completion, or the next fault.
    #[inline(always)]
    pub fn poll_completion(&self, queues: &mut Queues) -> Option<Completed> {
        if self.driven {
            self.progress(queues);
        }
        let taken = if self.triggered {
            self.take_triggered(queues)
        } else {
            queues.completions.take(&self.counts)
        };
        if self.triggered {
            self.count(queues);
        }
        match taken {
            Some(_) => queues.came = true,
            None => self.idle(queues),
        }
        taken
    }

    fn take_triggered(&self, queues: &mut Queues) -> Option<Completed> {
        let session = queues.session.as_mut()?;
        let trigger = self.trigger();
        while session.taken < session.posted {
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

    /// The next notice, of own commands or from peers. Errors: [`Error::InboxFull`]: notices were lost, because the caller took them too late.
    #[inline(always)]
    pub fn poll_notice(&self, queues: &mut Queues) -> Result<Option<PortNotice>> {
        if let Some(notice) = notice_at_hand(queues) {
            queues.came = true;
            // Notices in the queue must not delay notices from the networks.
            queues.taken += u32::from(self.driven);
            if queues.taken >= TAKEN {
                queues.taken = 0;
                self.progress(queues);
            }
            return Ok(Some(notice));
        }
        if self.driven {
            queues.taken = 0;
            self.progress(queues);
            if let Some(notice) = notice_at_hand(queues) {
                queues.came = true;
                return Ok(Some(notice));
            }
        }
        self.no_notice(queues)
    }

    #[inline(never)]
    fn no_notice(&self, queues: &mut Queues) -> Result<Option<PortNotice>> {
        let [small, large] = &mut queues.readers;
        if let Some(record) = next_of(small, large) {
            queues.came = true;
            return Ok(Some(PortNotice::from_record(&record)));
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

    /// Approximate number of notices not taken.
    pub fn unread_notices(&self, queues: &mut Queues) -> usize {
        if self.driven {
            self.progress(queues);
        }
        queues.notices.len() + queues.readers.iter().map(|part| part.len()).sum::<usize>()
    }

    /// Nothing was found. A caller that polls in a loop yields the core from time to time.
    #[inline]
    fn idle(&self, queues: &mut Queues) {
        queues.idle += 1;
        if queues.idle >= queues.patience {
            self.offer(queues);
        }
    }

    #[cold]
    fn offer(&self, queues: &mut Queues) {
        queues.idle = 0;
        queues.patience = self.network.engine().patience();
        issue_totals::look();
        polled(std::mem::take(&mut queues.came), || {
            waits::needs(&queues.awaited());
            waits::pending(self.waiting.load(Ordering::Relaxed));
        });
        std::thread::yield_now();
        queues.offers += 1;
        if queues.offers.is_multiple_of(OFFERS) {
            self.network.look();
            for part in &mut queues.readers {
                part.pass_over(|pid| self.network.has_ended(pid));
            }
            if self.triggered {
                // The process that was to start commands may have died.
                let _ = self.advance();
            }
        }
    }
}

/// The next notice that needs no other check.
#[inline(always)]
fn notice_at_hand(queues: &mut Queues) -> Option<PortNotice> {
    if let Some(notice) = queues.notices.pop() {
        return Some(notice);
    }
    let record = queues.readers[0].take()?;
    Some(PortNotice::from_record(&record))
}

/// The next record, if the small part has none ready. A producer fills the large part after the small part. So if the large part has records, earlier records
/// are counted in the small part. They come first, even while an unfinished claim of another producer holds them up.
fn next_of(small: &mut InboxReader, large: &mut InboxReader) -> Option<Record> {
    if !large.has_work() {
        return None;
    }
    match small.is_empty() {
        true => large.take(),
        false => small.take(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unipgas_base::cache::LINE;
    use unipgas_base::on_line;
    use unipgas_engine::inbox::{InboxLayout, InboxWriter, initialise};

    on_line! {
        #[repr(C)]
        struct Memory([u8; 2048]);
    }

    /// A claimed slot that is not filled holds up the records behind it. Later records of their producer must not overtake them.
    #[test]
    fn the_large_part_does_not_overtake_the_small_one() {
        const CLAIMS: usize = 3 * LINE;
        let mut parts = [const { Memory([0; 2048]) }; 2];
        let [small, large] = parts.each_mut().map(|memory| memory.0.as_mut_ptr());
        let len = InboxLayout::new(4).unwrap().size();
        assert!(len <= size_of::<Memory>());
        // SAFETY:
        // - aligned memory of sufficient size. It outlives readers and writers; each part has one reader.
        let (mut readers, writers) = unsafe {
            initialise(small, 4).unwrap();
            initialise(large, 4).unwrap();
            (
                [small, large].map(|at| InboxReader::attach(at, len).unwrap()),
                [small, large].map(|at| InboxWriter::attach_as(at, len, 1).unwrap()),
            )
        };
        let record = |value| Record {
            value,
            ..Record::default()
        };
        // Producer 77 has claimed the first slot of lap 1.
        // SAFETY:
        // - a word of the inbox; no other thread uses it.
        unsafe { small.add(CLAIMS).cast::<u64>().write(1 << 24 | 77) };
        writers[0].push(record(1)).unwrap();
        writers[1].push(record(2)).unwrap();
        let [small, large] = &mut readers;
        assert_eq!(small.take(), None);
        assert_eq!(next_of(small, large), None);
        small.pass_over(|producer| producer == 77);
        assert_eq!(next_of(small, large), Some(record(1)));
        assert_eq!(next_of(small, large), Some(record(2)));
        assert_eq!(next_of(small, large), None);
    }
}
