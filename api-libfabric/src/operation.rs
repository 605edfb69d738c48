//! Reports of ended operations, and their receivers.

use std::sync::{Arc, OnceLock};

use crate::completion::{CompletionQueue, CqEntry, CqErrorEntry};
use crate::counter::Counter;
use crate::name::EndpointName;
use crate::status::{Errno, Result};
use crate::sys::FI_ADDR_NOTAVAIL;
use crate::trigger::Deferred;

/// The operations that a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "the names are those of the flags of fi_ep_bind(3)"
)]
pub enum CounterEvent {
    Send,
    Receive,
    Read,
    Write,
    RemoteRead,
    RemoteWrite,
}

/// The report of an operation when it ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Report {
    pub context: usize,
    /// The completion's flags.
    pub flags: u64,
    /// Whether success produces a queue entry. Failures always do.
    pub wanted: bool,
    pub counted: CounterEvent,
    /// Number of the deferred work. 0: none, and the endpoint's counters count the operation.
    pub work: u32,
}

/// Receivers of reports. Fixed when the endpoint is enabled, except for counters that are bound later.
pub(crate) struct Reports {
    pub transmit: Option<Arc<CompletionQueue>>,
    pub receive: Option<Arc<CompletionQueue>>,
    /// Only operations that ask for it get an entry for success.
    pub selective: [bool; 2],
    /// A message from a sender that is not in the address vector is reported as an error (FI_SOURCE_ERR).
    pub names_senders: bool,
    pub counters: [OnceLock<Arc<Counter>>; 6],
    pub deferred: Arc<Deferred>,
}

impl Reports {
    #[inline(always)]
    fn queue(&self, counted: CounterEvent) -> Option<&CompletionQueue> {
        match counted {
            CounterEvent::Receive | CounterEvent::RemoteRead | CounterEvent::RemoteWrite => {
                self.receive.as_deref()
            }
            _ => self.transmit.as_deref(),
        }
    }

    #[inline(always)]
    pub fn count(&self, counted: CounterEvent) {
        if let Some(counter) = self.counters[counted as usize].get() {
            counter.count(1);
        }
    }

    #[inline(always)]
    pub fn succeed(&self, report: &Report) {
        self.succeed_with(report, CqEntry::default());
    }

    #[inline(always)]
    pub fn succeed_with(&self, report: &Report, entry: CqEntry) {
        self.tell(report, entry);
        self.count_success(report);
    }

    /// Reports the end of a receive. `sender` returns the name of a sender that the address vector lacks.
    #[inline(always)]
    pub fn succeed_from(
        &self,
        report: &Report,
        entry: CqEntry,
        sender: impl FnOnce() -> Option<EndpointName>,
    ) {
        self.tell_from(report, entry, sender);
        self.count_success(report);
    }

    #[inline(always)]
    fn tell(&self, report: &Report, entry: CqEntry) {
        if report.wanted
            && let Some(queue) = self.queue(report.counted)
        {
            queue.push(entry_of(report, entry));
        }
    }

    /// Adds a message to the queue. With FI_SOURCE_ERR, a message of a sender without address becomes an error with the sender's name.
    #[inline(always)]
    pub fn tell_from(
        &self,
        report: &Report,
        entry: CqEntry,
        sender: impl FnOnce() -> Option<EndpointName>,
    ) {
        if !self.is_nameless(&entry) {
            self.tell(report, entry);
        } else if report.wanted
            && let Some(queue) = self.queue(report.counted)
        {
            queue.fail(CqErrorEntry {
                entry: entry_of(report, entry),
                errno: Errno::ADDRNOTAVAIL,
                excess: 0,
                sender: sender(),
            });
        }
    }

    /// Whether a message is reported as an error because its sender has no address here.
    #[inline(always)]
    pub fn is_nameless(&self, entry: &CqEntry) -> bool {
        self.names_senders && entry.source == FI_ADDR_NOTAVAIL
    }

    #[inline(always)]
    fn count_success(&self, report: &Report) {
        if report.work != 0 {
            self.work_ended(report);
        } else {
            self.count(report.counted);
        }
    }

    #[cold]
    fn work_ended(&self, report: &Report) {
        self.deferred.ended(report.work, true);
        if report.wanted {
            self.count(report.counted);
        }
    }

    /// Reports the end of an operation. Errors: as for [`Reports::fail`].
    #[inline(always)]
    pub fn end(&self, report: &Report, error: Option<Errno>) -> Result<()> {
        let Some(errno) = error else {
            self.succeed(report);
            return Ok(());
        };
        self.fail(report, errno)
    }

    /// Reports a failure. Errors: the failure itself, without a queue and a counter for it.
    #[cold]
    pub fn fail(&self, report: &Report, errno: Errno) -> Result<()> {
        self.fail_with(report, errno, CqEntry::default(), 0)
    }

    #[cold]
    pub fn fail_with(
        &self,
        report: &Report,
        errno: Errno,
        entry: CqEntry,
        excess: usize,
    ) -> Result<()> {
        if report.work != 0 && self.deferred.ended(report.work, false) && !report.wanted {
            return Ok(());
        }
        let (queue, counter) = (
            self.queue(report.counted),
            self.counters[report.counted as usize].get(),
        );
        if queue.is_none() && counter.is_none() {
            return Err(errno);
        }
        if let Some(queue) = queue {
            queue.fail(CqErrorEntry {
                entry: entry_of(report, entry),
                errno,
                excess,
                sender: None,
            });
        }
        if let Some(counter) = counter {
            counter.count_errors(1);
        }
        Ok(())
    }
}

#[inline(always)]
fn entry_of(report: &Report, entry: CqEntry) -> CqEntry {
    CqEntry {
        context: report.context,
        flags: report.flags | entry.flags,
        ..entry
    }
}
