//! Work that waits until it is due, as deferred work of fi_trigger(3). [`Steps`] lets one thread at a time start due work, each once.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::steps::Steps;

/// Runner id for [`Steps::run`]. All threads of the process share it, since they cannot end alone.
const PROCESS: u64 = 1;

/// Work of a [`TriggerQueue`].
pub trait Triggered {
    /// Data that the queue keeps until the work ends.
    type Running;
    /// An error of the start.
    type Error;

    /// Whether the work may be started. It stays due.
    fn is_due(&self) -> bool;

    /// Due work starts in this order. Equal thresholds keep the order of posting.
    fn threshold(&self) -> u64;

    /// `None`: the work ends in `start`.
    fn running(&self) -> Option<Self::Running>;

    /// Starts the work. `number`: the argument of [`TriggerQueue::end`], or 0 for work without [`running`](Self::running). Errors: `None` if the work is
    /// blocked and must be started again.
    fn start(&self, number: u32) -> Result<(), Option<Self::Error>>;

    /// Reports an error of the start.
    fn fail(&self, running: Option<Self::Running>, error: Self::Error);
}

/// A queue of work.
pub struct TriggerQueue<W: Triggered> {
    steps: Steps,
    lists: Mutex<Lists<W>>,
    /// Amount of work that has not ended.
    left: AtomicUsize,
}

struct Lists<W: Triggered> {
    waiting: Vec<W>,
    due: VecDeque<W>,
    /// Steps without effect, because the due work was blocked.
    owed: usize,
    blocked: bool,
    /// Keyed by number. `last`: the last used number. 0 is never used.
    running: HashMap<u32, W::Running>,
    last: u32,
}

impl<W: Triggered> Default for TriggerQueue<W> {
    fn default() -> Self {
        let lists = Lists {
            waiting: Vec::new(),
            due: VecDeque::new(),
            owed: 0,
            blocked: false,
            running: HashMap::new(),
            last: 0,
        };
        TriggerQueue {
            steps: Steps::new(),
            lists: Mutex::new(lists),
            left: AtomicUsize::new(0),
        }
    }
}

impl<W: Triggered> TriggerQueue<W> {
    /// Whether all work has ended.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Adds work. [`start_due`](Self::start_due) starts it.
    pub fn post(&self, work: W) {
        self.left.fetch_add(1, Ordering::AcqRel);
        self.lists.lock().waiting.push(work);
    }

    /// Starts due work, unless another thread does.
    pub fn start_due(&self) {
        self.unblock();
        while self.find_due() {
            let start = |_| {
                self.start();
                ControlFlow::Continue(())
            };
            self.steps.run(PROCESS, |_| false, start);
        }
    }

    fn unblock(&self) {
        let mut lists = self.lists.lock();
        lists.blocked = false;
        for _ in 0..std::mem::take(&mut lists.owed) {
            self.allow();
        }
    }

    fn allow(&self) {
        self.steps.post();
        self.steps.allow(1);
    }

    /// Moves due work to `due`. Returns whether work may be started.
    fn find_due(&self) -> bool {
        let mut lists = self.lists.lock();
        let mut due: Vec<W> = lists.waiting.extract_if(.., |work| work.is_due()).collect();
        // The sort is stable.
        due.sort_by_key(W::threshold);
        for work in due {
            lists.due.push_back(work);
            self.allow();
        }
        !lists.blocked && self.steps.ready().is_some()
    }

    /// Starts the first due work.
    fn start(&self) {
        let mut lists = self.lists.lock();
        if lists.blocked {
            lists.owed += 1;
            return;
        }
        // `None`: the work was withdrawn.
        let Some(work) = lists.due.pop_front() else {
            return;
        };
        let mut number = 0;
        if let Some(running) = work.running() {
            number = lists.last.checked_add(1).unwrap_or(1);
            lists.last = number;
            lists.running.insert(number, running);
        }
        drop(lists);
        match work.start(number) {
            // `end` ends the work.
            Ok(()) if number != 0 => return,
            Ok(()) => {}
            Err(None) => {
                let mut lists = self.lists.lock();
                lists.running.remove(&number);
                lists.due.push_front(work);
                lists.blocked = true;
                lists.owed += 1;
                return;
            }
            Err(Some(error)) => {
                let running = self.lists.lock().running.remove(&number);
                if number != 0 && running.is_none() {
                    // The failed operation has ended the work.
                    return;
                }
                work.fail(running, error);
            }
        }
        self.left.fetch_sub(1, Ordering::AcqRel);
    }

    /// Ends started work. `report` gets its data first. `None`: the work has ended already, or has been forgotten.
    pub fn end<T>(&self, number: u32, report: impl FnOnce(W::Running) -> T) -> Option<T> {
        let running = self.lists.lock().running.remove(&number)?;
        let reported = report(running);
        self.left.fetch_sub(1, Ordering::AcqRel);
        Some(reported)
    }

    /// Removes work that has not been started.
    pub fn withdraw(&self, meant: impl Fn(&W) -> bool) -> Vec<W> {
        if self.is_idle() {
            return Vec::new();
        }
        let mut lists = self.lists.lock();
        let mut works: Vec<W> = lists.waiting.extract_if(.., |work| meant(work)).collect();
        let (taken, kept): (VecDeque<W>, _) = std::mem::take(&mut lists.due)
            .into_iter()
            .partition(|work| meant(work));
        lists.due = kept;
        works.extend(taken);
        drop(lists);
        self.left.fetch_sub(works.len(), Ordering::AcqRel);
        works
    }

    /// Calls `look` for all started work.
    pub fn for_each_running(&self, look: impl FnMut(&W::Running)) {
        self.lists.lock().running.values().for_each(look);
    }

    /// Ends started work without a report.
    pub fn forget(&self, meant: impl Fn(&W::Running) -> bool) {
        if self.is_idle() {
            return;
        }
        let mut lists = self.lists.lock();
        let before = lists.running.len();
        lists.running.retain(|_, running| !meant(running));
        let ended = before - lists.running.len();
        self.left.fetch_sub(ended, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    struct Job<'a> {
        threshold: u64,
        counter: &'a AtomicUsize,
        blocked: &'a AtomicBool,
        log: &'a Mutex<Vec<String>>,
    }

    impl Triggered for Job<'_> {
        type Running = u64;
        type Error = &'static str;

        fn is_due(&self) -> bool {
            self.counter.load(Ordering::Acquire) as u64 >= self.threshold
        }

        fn threshold(&self) -> u64 {
            self.threshold
        }

        fn running(&self) -> Option<u64> {
            self.threshold.is_multiple_of(2).then_some(self.threshold)
        }

        fn start(&self, number: u32) -> Result<(), Option<&'static str>> {
            if self.blocked.load(Ordering::Acquire) {
                return Err(None);
            }
            self.log.lock().push(format!("{}/{number}", self.threshold));
            (self.threshold != 5).then_some(()).ok_or(Some("refused"))
        }

        fn fail(&self, running: Option<u64>, error: &'static str) {
            self.log.lock().push(format!("{running:?} {error}"));
        }
    }

    #[test]
    fn due_work_starts_in_order_of_thresholds() {
        let (counter, blocked) = (AtomicUsize::new(0), AtomicBool::new(true));
        let log = Mutex::new(Vec::new());
        let queue = TriggerQueue::default();
        for threshold in [5, 4, 3, 2, 9] {
            let (counter, blocked, log) = (&counter, &blocked, &log);
            queue.post(Job {
                threshold,
                counter,
                blocked,
                log,
            });
        }
        let logged = || std::mem::take(&mut *log.lock());
        queue.start_due();
        counter.store(5, Ordering::Release);
        queue.start_due();
        assert!(logged().is_empty(), "nothing is due, then all is blocked");
        blocked.store(false, Ordering::Release);
        let withdrawn = queue.withdraw(|job| job.threshold == 3);
        assert_eq!(withdrawn.len(), 1);
        queue.start_due();
        // Number 1 was that of the blocked start.
        assert_eq!(logged(), ["2/2", "4/3", "5/0", "None refused"]);
        assert_eq!(queue.end(2, |threshold| threshold), Some(2));
        assert_eq!(queue.end(2, |threshold| threshold), None);
        queue.forget(|threshold| *threshold == 4);
        assert!(!queue.is_idle());
        assert_eq!(queue.withdraw(|_| true).len(), 1);
        assert!(queue.is_idle());
    }

    #[test]
    fn threads_start_each_work_once() {
        let (counter, blocked) = (AtomicUsize::new(0), AtomicBool::new(false));
        let log = Mutex::new(Vec::new());
        let queue = TriggerQueue::default();
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (queue, counter, blocked, log) = (&queue, &counter, &blocked, &log);
                scope.spawn(move || {
                    for threshold in 0..200 {
                        queue.post(Job {
                            threshold: 10 + 4 * threshold + 2 * thread + 1,
                            counter,
                            blocked,
                            log,
                        });
                        counter.fetch_add(10, Ordering::AcqRel);
                        queue.start_due();
                    }
                });
            }
        });
        queue.start_due();
        let started = log.lock().len();
        assert!(queue.is_idle(), "{started} of 400 were started");
        assert_eq!(started, 400);
    }
}
