//! Operations that wait for counters: triggered operations and deferred work (fi_trigger(3)).
//!
//! Work waits in the domain's queue until its counter reaches its threshold. Then it is *due*, in the order of thresholds; equal thresholds keep
//! the order of posting. Threads start due work when they change, read or await a counter, or read a completion queue. With automatic progress the
//! progress thread starts it, too.

mod action;

use std::sync::{Arc, Weak};

use unipgas_core::trigger_queue::{TriggerQueue, Triggered};
use unipgas_core::watcher::Watched;

pub(crate) use action::{Action, Call, Kind, Request};

use crate::counter::Counter;
use crate::endpoint::Endpoint;
use crate::status::{Errno, Result};

/// Queued work.
pub(crate) struct Work {
    /// The program's name for it: address of its `struct fi_deferred_work`, or context of a triggered operation.
    pub name: usize,
    /// Deferred work reports its end to `completion`. It reports to the endpoint only with FI_COMPLETION, or a failure without `completion`.
    pub deferred: bool,
    pub trigger: Arc<Counter>,
    pub threshold: u64,
    pub completion: Option<Arc<Counter>>,
    pub action: Action,
}

/// Deferred work in progress.
pub(crate) struct Running {
    completion: Option<Arc<Counter>>,
    /// The endpoint that must make progress until the work ends.
    endpoint: Weak<Endpoint>,
}

impl Triggered for Work {
    type Running = Running;
    type Error = Errno;

    fn is_due(&self) -> bool {
        self.trigger.has_reached(self.threshold)
    }

    fn threshold(&self) -> u64 {
        self.threshold
    }

    fn running(&self) -> Option<Running> {
        match &self.action {
            Action::Request(request) if self.deferred => Some(Running {
                completion: self.completion.clone(),
                endpoint: Arc::downgrade(&request.endpoint),
            }),
            _ => None,
        }
    }

    fn start(&self, number: u32) -> std::result::Result<(), Option<Errno>> {
        let started = self.action.carry_out(number);
        started.map_err(|errno| Some(errno).filter(|errno| *errno != Errno::AGAIN))
    }

    fn fail(&self, running: Option<Running>, errno: Errno) {
        let completion = running.and_then(|running| running.completion);
        match (&self.action, completion) {
            (_, Some(completion)) => completion.count_errors(1),
            (Action::Request(request), None) => request.refuse(errno),
            _ => {}
        }
    }
}

/// A domain's queue.
#[derive(Default)]
pub(crate) struct Deferred(TriggerQueue<Work>);

impl Deferred {
    /// Queues work. Starts it at once if it is due and no other thread is starting work.
    pub fn queue(&self, work: Work) {
        self.0.post(work);
        self.advance();
    }

    /// Starts due work.
    #[inline(always)]
    pub fn progress(&self) {
        if !self.0.is_idle() {
            self.advance();
        }
    }

    #[cold]
    fn advance(&self) {
        let mut busy: Vec<Arc<Endpoint>> = Vec::new();
        self.0.for_each_running(|running| {
            let endpoint = running.endpoint.upgrade();
            let is_new = |one: &Arc<Endpoint>| !busy.iter().any(|known| Arc::ptr_eq(known, one));
            busy.extend(endpoint.filter(is_new));
        });
        for endpoint in busy {
            endpoint.progress();
        }
        self.0.start_due();
    }

    /// Ends deferred work. `well`: it has succeeded. False: it has no counter, so its end was not reported.
    #[cold]
    pub fn ended(&self, number: u32, well: bool) -> bool {
        let report = |running: Running| {
            match &running.completion {
                Some(completion) if well => completion.count(1),
                Some(completion) => completion.count_errors(1),
                None => {}
            }
            running.completion.is_some()
        };
        self.0.end(number, report).unwrap_or(false)
    }

    /// Cancels deferred work that has not been started. Errors: [`Errno::NOENT`].
    pub fn cancel(&self, name: usize) -> Result<()> {
        match self.0.withdraw(|work| work.deferred && work.name == name) {
            works if works.is_empty() => Err(Errno::NOENT),
            _ => Ok(()),
        }
    }

    /// Cancels a triggered operation. It ends with [`Errno::CANCELED`]. False: there is none.
    pub fn cancel_triggered(&self, endpoint: &Endpoint, context: usize) -> bool {
        let meant =
            |work: &Work| !work.deferred && work.name == context && work.action.is_of(endpoint);
        let works = self.0.withdraw(meant);
        for work in &works {
            if let Action::Request(request) = &work.action {
                request.refuse(Errno::CANCELED);
            }
        }
        !works.is_empty()
    }

    /// Cancels deferred work that has not been started: all, or all of one counter.
    pub fn flush(&self, counter: Option<&Arc<Counter>>) {
        let meant = |work: &Work| {
            work.deferred && counter.is_none_or(|counter| Arc::ptr_eq(counter, &work.trigger))
        };
        drop(self.0.withdraw(meant));
    }

    /// Drops the work of an endpoint that is being closed.
    pub fn forget(&self, endpoint: &Endpoint) {
        drop(self.0.withdraw(|work| work.action.is_of(endpoint)));
        self.0
            .forget(|running| std::ptr::eq(running.endpoint.as_ptr(), endpoint));
    }
}

impl Watched for Deferred {
    fn look(&self, _at_peers: bool) {
        self.progress();
    }
}
