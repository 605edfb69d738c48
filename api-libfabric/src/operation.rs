//! What is told of operations when they end, and where.

use std::sync::Arc;

use crate::completion::{CompletionQueue, Entry, Failure};
use crate::counter::Counter;
use crate::status::{Errno, Result};

/// What a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "the names are those of the flags of fi_ep_bind(3)"
)]
pub enum Counted {
    Send,
    Receive,
    Read,
    Write,
    RemoteRead,
    RemoteWrite,
}

/// What to tell of an operation when it has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Report {
    pub context: usize,
    /// The completion's flags.
    pub flags: u64,
    /// Whether success is told by an entry; failures always are.
    pub wanted: bool,
    pub counted: Counted,
}

/// Where the ends of operations are reported: fixed when the endpoint is enabled.
pub(crate) struct Reports {
    pub transmit: Option<Arc<CompletionQueue>>,
    pub receive: Option<Arc<CompletionQueue>>,
    /// Successes are told only where the operation asks for it.
    pub selective: [bool; 2],
    pub counters: [Option<Arc<Counter>>; 6],
}

impl Reports {
    #[inline(always)]
    fn queue(&self, counted: Counted) -> Option<&CompletionQueue> {
        match counted {
            Counted::Receive | Counted::RemoteRead | Counted::RemoteWrite => {
                self.receive.as_deref()
            }
            _ => self.transmit.as_deref(),
        }
    }

    #[inline(always)]
    pub fn count(&self, counted: Counted) {
        if let Some(counter) = &self.counters[counted as usize] {
            counter.add(1);
        }
    }

    #[inline(always)]
    pub fn succeed(&self, report: &Report) {
        self.succeed_with(report, Entry::default());
    }

    #[inline(always)]
    pub fn succeed_with(&self, report: &Report, entry: Entry) {
        if report.wanted
            && let Some(queue) = self.queue(report.counted)
        {
            queue.push(Entry {
                context: report.context,
                flags: report.flags | entry.flags,
                ..entry
            });
        }
        self.count(report.counted);
    }

    /// Errors: the failure itself, if there is nothing bound that could tell it.
    #[cold]
    pub fn fail(&self, report: &Report, errno: Errno) -> Result<()> {
        self.fail_with(report, errno, Entry::default(), 0)
    }

    #[cold]
    pub fn fail_with(
        &self,
        report: &Report,
        errno: Errno,
        entry: Entry,
        excess: usize,
    ) -> Result<()> {
        let (queue, counter) = (
            self.queue(report.counted),
            &self.counters[report.counted as usize],
        );
        if queue.is_none() && counter.is_none() {
            return Err(errno);
        }
        if let Some(queue) = queue {
            queue.fail(Failure {
                entry: Entry {
                    context: report.context,
                    flags: report.flags | entry.flags,
                    ..entry
                },
                errno,
                excess,
            });
        }
        if let Some(counter) = counter {
            counter.add_errors(1);
        }
        Ok(())
    }
}
