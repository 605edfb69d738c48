//! Operations that wait for counters: triggered operations and deferred work (fi_trigger(3)).
//!
//! Work waits in the domain's queue until its counter reaches its threshold. Then it is *due*, in the order of thresholds; equal thresholds keep
//! the order of posting. [`Steps`] lets one thread at a time start due work, each once, as commands of ports in session mode. Threads start due
//! work when they change, read or await a counter, or read a completion queue. With automatic progress the progress thread starts it, too.

mod action;

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use unipgas_core::steps::Steps;
use unipgas_core::watcher::Watched;

pub(crate) use action::{Action, Call, Kind, Request};

use crate::counter::Counter;
use crate::endpoint::Endpoint;
use crate::status::{Errno, Result};

/// Runner id for [`Steps::run`]. All threads of the process share it, since they cannot end alone.
const PROCESS: u64 = 1;

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
struct Running {
    completion: Option<Arc<Counter>>,
    /// The endpoint that must make progress until the work ends.
    endpoint: Weak<Endpoint>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Work>,
    due: VecDeque<Work>,
    /// Steps without effect, because the due work was blocked.
    owed: usize,
    blocked: bool,
    /// Keyed by number. `last`: the last used number. 0 is never used.
    running: HashMap<u32, Running>,
    last: u32,
}

/// A domain's queue.
pub(crate) struct Deferred {
    steps: Steps,
    queue: Mutex<Queue>,
    /// Amount of work that has not ended.
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

    /// Queues work. Starts it at once if it is due and no other thread is starting work.
    pub fn queue(&self, work: Work) {
        self.left.fetch_add(1, Ordering::AcqRel);
        self.queue.lock().waiting.push(work);
        self.advance();
    }

    /// Starts due work.
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

    /// Endpoints with work in progress.
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

    /// Lets blocked work be tried again.
    fn pay(&self) {
        let mut queue = self.queue.lock();
        queue.blocked = false;
        for _ in 0..std::mem::take(&mut queue.owed) {
            self.steps.post();
            self.steps.allow(1);
        }
    }

    /// Moves work that has become due to `due`. Returns whether work may be started.
    fn find_due(&self) -> bool {
        let mut queue = self.queue.lock();
        let queue = &mut *queue;
        let mut due: Vec<Work> = queue
            .waiting
            .extract_if(.., |work| work.trigger.has_reached(work.threshold))
            .collect();
        // The sort is stable: equal thresholds keep the order of posting.
        due.sort_by_key(|work| work.threshold);
        for work in due {
            queue.due.push_back(work);
            self.steps.post();
            self.steps.allow(1);
        }
        !queue.blocked && self.steps.ready().is_some()
    }

    /// Starts the first due work.
    fn start(&self) {
        let mut queue = self.queue.lock();
        if queue.blocked {
            queue.owed += 1;
            return;
        }
        // `None`: the work was cancelled.
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
            // The end of the operation ends the work.
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
                let running = self.take(number);
                if number != 0 && running.is_none() {
                    // The failed operation has ended the work.
                    return;
                }
                let completion = running.and_then(|running| running.completion);
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

    /// Ends deferred work. `well`: it has succeeded. False: it has no counter, so its end was not reported.
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

    /// Cancels deferred work that has not been started. Errors: [`Errno::NOENT`].
    pub fn cancel(&self, name: usize) -> Result<()> {
        match self.withdraw(|work| work.deferred && work.name == name) {
            works if works.is_empty() => Err(Errno::NOENT),
            _ => Ok(()),
        }
    }

    /// Cancels a triggered operation. It ends with [`Errno::CANCELED`]. False: there is none.
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

    /// Cancels deferred work that has not been started: all, or all of one counter.
    pub fn flush(&self, counter: Option<&Arc<Counter>>) {
        let meant = |work: &Work| {
            work.deferred && counter.is_none_or(|counter| Arc::ptr_eq(counter, &work.trigger))
        };
        drop(self.withdraw(meant));
    }

    /// Drops the work of an endpoint that is being closed.
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
    fn look(&self, _at_peers: bool) {
        self.progress();
    }
}
