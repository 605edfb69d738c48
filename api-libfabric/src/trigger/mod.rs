//! Operations that wait for counters: triggered ones and deferred work (fi_trigger(3)).
//!
//! They stand in the domain's queue until their counter has reached their threshold. Then they are *due*, in the order of thresholds, and
//! among equal ones of posting; and are carried out as the commands of a port in session mode are, by whoever comes by: [`Steps`] lets
//! one thread at a time start them, each once. Whoever changes a counter, reads it, waits for it or reads a completion queue comes by; with
//! automatic progress the domain's thread does.

mod action;

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use unipgas_core::steps::Steps;

pub(crate) use action::{Action, Kind, Request};

use crate::counter::Counter;
use crate::endpoint::Endpoint;
use crate::status::{Errno, Result};
use crate::watcher::Watched;

/// Who carries out: all threads of the process are one, since they cannot end alone.
const PROCESS: u64 = 1;

/// What is queued.
pub(crate) struct Work {
    /// What the program calls it: the address of its `struct fi_deferred_work`, or the context of a triggered operation.
    pub name: usize,
    /// Deferred work tells a counter of its end, if any, and not the endpoint.
    pub deferred: bool,
    pub trigger: Arc<Counter>,
    pub threshold: u64,
    pub completion: Option<Arc<Counter>>,
    pub action: Action,
}

/// Deferred work that has been started.
struct Running {
    completion: Option<Arc<Counter>>,
    /// What is to get on until it ends.
    endpoint: Weak<Endpoint>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Work>,
    due: VecDeque<Work>,
    /// Steps that were taken in vain, since what is due cannot be carried out yet.
    owed: usize,
    blocked: bool,
    /// By their numbers, the last of which was this; 0 is none.
    running: HashMap<u32, Running>,
    last: u32,
}

/// A domain's queue.
pub(crate) struct Deferred {
    steps: Steps,
    queue: Mutex<Queue>,
    /// What has not ended.
    left: AtomicUsize,
}

impl Deferred {
    pub fn new() -> Arc<Deferred> {
        Arc::new(Deferred {
            steps: Steps::new(),
            queue: Mutex::default(),
            left: AtomicUsize::new(0),
        })
    }

    /// Queues work; what is due already is carried out at once, if nobody else is about something.
    pub fn queue(&self, work: Work) {
        self.left.fetch_add(1, Ordering::AcqRel);
        self.queue.lock().waiting.push(work);
        self.advance();
    }

    /// Carries out what is due.
    #[inline(always)]
    pub fn progress(&self) {
        if self.left.load(Ordering::Acquire) != 0 {
            self.advance();
        }
    }

    #[cold]
    fn advance(&self) {
        for endpoint in self.busy() {
            endpoint.progress();
        }
        self.pay();
        while self.find_due() {
            self.steps.run(
                PROCESS,
                |_| false,
                |_| {
                    self.start();
                    ControlFlow::Continue(())
                },
            );
        }
    }

    /// Whose work is running.
    fn busy(&self) -> Vec<Arc<Endpoint>> {
        let queue = self.queue.lock();
        let mut busy: Vec<Arc<Endpoint>> = Vec::new();
        for endpoint in queue
            .running
            .values()
            .filter_map(|one| one.endpoint.upgrade())
        {
            if !busy.iter().any(|known| Arc::ptr_eq(known, &endpoint)) {
                busy.push(endpoint);
            }
        }
        drop(queue);
        busy
    }

    /// What could not be carried out may be tried again.
    fn pay(&self) {
        let mut queue = self.queue.lock();
        queue.blocked = false;
        for _ in 0..std::mem::take(&mut queue.owed) {
            self.steps.post();
            self.steps.allow(1);
        }
    }

    /// Whether something may be started.
    fn find_due(&self) -> bool {
        let mut queue = self.queue.lock();
        let queue = &mut *queue;
        let mut due: Vec<Work> = queue
            .waiting
            .extract_if(.., |work| work.trigger.has_reached(work.threshold))
            .collect();
        // Stable: equal ones stay as they were posted.
        due.sort_by_key(|work| work.threshold);
        for work in due {
            queue.due.push_back(work);
            self.steps.post();
            self.steps.allow(1);
        }
        !queue.blocked && self.steps.ready().is_some()
    }

    /// Takes one step.
    fn start(&self) {
        let mut queue = self.queue.lock();
        if queue.blocked {
            queue.owed += 1;
            return;
        }
        // Else it was cancelled.
        let Some(work) = queue.due.pop_front() else {
            return;
        };
        let number = match &work.action {
            Action::Request(request) if work.deferred => {
                queue.last = queue.last.checked_add(1).unwrap_or(1);
                let running = Running {
                    completion: work.completion.clone(),
                    endpoint: Arc::downgrade(&request.endpoint),
                };
                let number = queue.last;
                queue.running.insert(number, running);
                number
            }
            _ => 0,
        };
        drop(queue);
        match work.action.carry_out(number) {
            // Until it has ended.
            Ok(()) if number != 0 => return,
            Ok(()) => {}
            Err(Errno::AGAIN) => {
                self.take(number);
                let mut queue = self.queue.lock();
                queue.due.push_front(work);
                queue.blocked = true;
                queue.owed += 1;
                return;
            }
            Err(errno) => {
                let completion = self.take(number).and_then(|running| running.completion);
                match (&work.action, completion) {
                    (_, Some(completion)) => completion.count_errors(1),
                    (Action::Request(request), None) => request.refuse(errno),
                    _ => {}
                }
            }
        }
        self.left.fetch_sub(1, Ordering::AcqRel);
    }

    fn take(&self, number: u32) -> Option<Running> {
        self.queue.lock().running.remove(&number)
    }

    /// Deferred work has ended, well or not. False: nothing was told of that.
    #[cold]
    pub fn ended(&self, number: u32, well: bool) -> bool {
        let Some(running) = self.take(number) else {
            return false;
        };
        match &running.completion {
            Some(completion) if well => completion.count(1),
            Some(completion) => completion.count_errors(1),
            None => {}
        }
        self.left.fetch_sub(1, Ordering::AcqRel);
        running.completion.is_some()
    }

    /// Takes back what has not been started. Errors: [`Errno::NOENT`].
    pub fn cancel(&self, name: usize) -> Result<()> {
        match self.withdraw(|work| work.deferred && work.name == name) {
            works if works.is_empty() => Err(Errno::NOENT),
            _ => Ok(()),
        }
    }

    /// Takes back a triggered operation, which ends with [`Errno::CANCELED`]. False: there is none.
    pub fn cancel_triggered(&self, endpoint: &Endpoint, context: usize) -> bool {
        let meant =
            |work: &Work| !work.deferred && work.name == context && work.action.is_of(endpoint);
        let works = self.withdraw(meant);
        for work in &works {
            if let Action::Request(request) = &work.action {
                request.refuse(Errno::CANCELED);
            }
        }
        !works.is_empty()
    }

    /// Takes back all deferred work, or all that waits for one counter.
    pub fn flush(&self, counter: Option<&Arc<Counter>>) {
        let meant = |work: &Work| {
            work.deferred && counter.is_none_or(|counter| Arc::ptr_eq(counter, &work.trigger))
        };
        drop(self.withdraw(meant));
    }

    /// Forgets what an endpoint was to do, which is being closed.
    pub fn forget(&self, endpoint: &Endpoint) {
        drop(self.withdraw(|work| work.action.is_of(endpoint)));
        if self.left.load(Ordering::Acquire) != 0 {
            let mut queue = self.queue.lock();
            let before = queue.running.len();
            let is_another = |one: &Running| !std::ptr::eq(one.endpoint.as_ptr(), endpoint);
            queue.running.retain(|_, one| is_another(one));
            self.left
                .fetch_sub(before - queue.running.len(), Ordering::AcqRel);
        }
    }

    fn withdraw(&self, meant: impl Fn(&Work) -> bool) -> Vec<Work> {
        if self.left.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut queue = self.queue.lock();
        let mut works: Vec<Work> = queue.waiting.extract_if(.., |work| meant(work)).collect();
        let (taken, kept): (VecDeque<Work>, _) = std::mem::take(&mut queue.due)
            .into_iter()
            .partition(|work| meant(work));
        queue.due = kept;
        works.extend(taken);
        drop(queue);
        self.left.fetch_sub(works.len(), Ordering::AcqRel);
        works
    }
}

impl Watched for Deferred {
    fn look(&self) {
        self.progress();
    }
}
