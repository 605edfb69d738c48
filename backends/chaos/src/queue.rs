//! The incomplete operations of one channel: selects the operations to carry out now, and their order.

use std::collections::VecDeque;

use unipgas_core::op::{Completion, Flags, Outcome};
use unipgas_core::transport::Channel;
use unipgas_core::{Error, Result};

use crate::config::ChaosConfig;
use crate::plan::{DelayPlan, OperationPart, SplitMix};
use crate::work::{Disaster, InboxId, Stalls, Work};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Waiting,
    /// The channel below has it and will report its completion.
    Under,
    Done,
}

struct Step {
    part: OperationPart,
    due: u64,
    rank: u64,
    progress: Progress,
}

/// A posted operation.
pub(crate) struct QueuedOperation {
    /// Its number in the channel.
    pub number: u64,
    pub context: u64,
    pub flags: Flags,
    pub work: Work,
    pub disaster: Option<Disaster>,
    peer: u32,
    disaster_after: usize,
    steps: Vec<Step>,
    retries: u32,
    result: Result<()>,
}

impl QueuedOperation {
    pub fn new(number: u64, context: u64, flags: Flags, work: Work) -> Self {
        QueuedOperation {
            peer: work.region().parts().peer,
            number,
            context,
            flags,
            work,
            disaster: None,
            disaster_after: 0,
            steps: Vec::new(),
            retries: 0,
            result: Ok(()),
        }
    }

    fn count(&self, progress: Progress) -> usize {
        self.steps.iter().filter(|s| s.progress == progress).count()
    }

    fn ended(&self) -> bool {
        self.count(Progress::Done) == self.steps.len()
    }

    /// Fails the operation. Parts that have not begun are dropped.
    fn fail(&mut self, error: Error) {
        self.steps.retain(|step| step.progress != Progress::Waiting);
        self.result = Err(error);
    }

    /// Whether to retry after this error: the inbox is full, and retries are left. Counts the retry.
    fn take_retry(&mut self, error: &Error, means: &Means<'_>) -> bool {
        let again = *error == Error::InboxFull && self.retries < means.config.inbox_retries;
        self.retries += u32::from(again);
        again
    }

    fn delay_of_retry(&self, means: &Means<'_>) -> u64 {
        let delay = u64::from(means.config.max_delay_polls).max(1);
        let (seed, rank) = (means.config.seed, u64::from(means.config.rank));
        let retries = u64::from(self.retries);
        let parts = [seed, rank, means.channel, self.number, retries];
        1 + SplitMix::of(&parts).below(delay)
    }

    /// Whether the other parts allow step `index`. The last part waits for all others: a notice must not overtake its data, nor a wake-up the data
    /// that it announces.
    fn may_step(&self, index: usize) -> bool {
        let step = &self.steps[index];
        let last = self.count(Progress::Waiting) == 1 && self.count(Progress::Under) == 0;
        step.progress == Progress::Waiting
            && (last || step.part != OperationPart::Notice && self.count(Progress::Waiting) > 1)
    }
}

/// Context of a step beside the queue.
pub(crate) struct Means<'a> {
    pub inner: &'a dyn Channel,
    pub config: &'a ChaosConfig,
    pub stalls: &'a Stalls,
    pub channel: u64,
}

/// The operations of a channel, in the order of their numbers.
#[derive(Default)]
pub(crate) struct OperationQueue {
    ops: VecDeque<QueuedOperation>,
    now: u64,
    next: u64,
    pub ended: VecDeque<Completion>,
}

impl OperationQueue {
    /// The number of the next operation.
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Operations that have not ended.
    pub fn unfinished(&self) -> usize {
        self.ops.len()
    }

    /// Executes `op` at once if its plan demands it and no earlier operation must come first. Queues it otherwise. After an error nothing has been
    /// written.
    pub fn post(
        &mut self,
        mut op: QueuedOperation,
        plan: DelayPlan,
        means: &Means<'_>,
    ) -> Result<Outcome> {
        self.next += 1;
        if plan.at_once && !self.must_wait(&op, means.config) {
            op.steps = vec![Step {
                part: OperationPart::Whole,
                due: self.now,
                rank: 0,
                progress: Progress::Waiting,
            }];
            match step(&mut op, 0, means) {
                Ok(Outcome::Complete) => return Ok(Outcome::Complete),
                // The backend below has no room: the operation waits here.
                Ok(Outcome::Pending) | Err(Error::NotNow) => {}
                Err(error) if op.take_retry(&error, means) => {
                    op.steps[0].due = self.now + op.delay_of_retry(means);
                }
                Err(error) => return Err(error),
            }
        } else {
            op.disaster_after = plan.disaster_after;
            op.steps = plan
                .parts
                .into_iter()
                .map(|(part, delay, rank)| Step {
                    part,
                    due: self.now + delay,
                    rank,
                    progress: Progress::Waiting,
                })
                .collect();
        }
        self.ops.push_back(op);
        Ok(Outcome::Pending)
    }

    fn must_wait(&self, op: &QueuedOperation, config: &ChaosConfig) -> bool {
        let ordered = op.flags.contains(Flags::ORDERED) || !config.reorder;
        let inbox = op.work.inbox();
        self.ops.iter().any(|earlier| {
            ordered && earlier.peer == op.peer || inbox.is_some() && earlier.work.inbox() == inbox
        })
    }

    /// Advances time by `ticks` polls, then carries out all steps that are due and allowed. Returns whether there were any.
    pub fn advance(&mut self, ticks: u64, means: &Means<'_>) -> bool {
        self.now += ticks;
        let mut moved = self.collect(means);
        loop {
            let ready = self.ready(means.config);
            if ready.is_empty() {
                return moved;
            }
            let mut stepped = false;
            for (_, op, index) in ready {
                let op = &mut self.ops[op];
                if index >= op.steps.len() || !op.may_step(index) {
                    continue;
                }
                stepped = true;
                match step(op, index, means) {
                    Ok(_) => {}
                    Err(Error::NotNow) => op.steps[index].due = self.now + 1,
                    Err(error) if op.take_retry(&error, means) => {
                        op.steps[index].due = self.now + op.delay_of_retry(means);
                    }
                    Err(error) => op.fail(error),
                }
            }
            moved |= stepped | self.retire() | self.collect(means);
            if !stepped {
                return moved;
            }
        }
    }

    /// Steps that are due and allowed, in their drawn order.
    fn ready(&self, config: &ChaosConfig) -> Vec<(u64, usize, usize)> {
        let mut ready = Vec::new();
        let mut busy_peers: Vec<u32> = Vec::new();
        let mut busy_inboxes: Vec<InboxId> = Vec::new();
        for (at, op) in self.ops.iter().enumerate() {
            let ordered = op.flags.contains(Flags::ORDERED) || !config.reorder;
            let new_peer = enter(&mut busy_peers, op.peer);
            let inbox = op.work.inbox();
            let new_inbox = inbox.is_none_or(|inbox| enter(&mut busy_inboxes, inbox));
            if ordered && !new_peer || !new_inbox {
                continue;
            }
            for (index, step) in op.steps.iter().enumerate() {
                if step.due <= self.now && op.may_step(index) {
                    ready.push((step.rank, at, index));
                }
                if !config.reorder && step.progress == Progress::Waiting {
                    break;
                }
            }
        }
        if config.reorder {
            ready.sort_unstable();
        }
        ready
    }

    /// Collects completions of the channel below.
    fn collect(&mut self, means: &Means<'_>) -> bool {
        let mut any = false;
        let (ops, now) = (&mut self.ops, self.now);
        means.inner.poll(&mut |completion| {
            any = true;
            let Ok(at) = ops.binary_search_by_key(&completion.context, |op| op.number) else {
                return;
            };
            let op = &mut ops[at];
            // Parts are interchangeable here: only the number of parts in flight counts.
            let under = |step: &&mut Step| step.progress == Progress::Under;
            match completion.result {
                Err(error) if op.take_retry(&error, means) => {
                    let due = now + op.delay_of_retry(means);
                    if let Some(step) = op.steps.iter_mut().find(under) {
                        (step.progress, step.due) = (Progress::Waiting, due);
                    }
                }
                result => {
                    if let Some(step) = op.steps.iter_mut().find(under) {
                        step.progress = Progress::Done;
                    }
                    if let Err(error) = result {
                        op.fail(error);
                    }
                }
            }
        });
        if any {
            self.retire();
        }
        any
    }

    /// Turns ended operations into completions.
    fn retire(&mut self) -> bool {
        let before = self.ops.len();
        let ended = &mut self.ended;
        self.ops.retain_mut(|op| {
            let over = op.ended();
            if over {
                ended.push_back(Completion {
                    context: op.context,
                    result: op.result.clone(),
                });
            }
            !over
        });
        self.ops.len() != before
    }

    /// Drops unfinished operations. This backend no longer touches the memory of the user.
    pub fn abandon(&mut self) {
        for op in self.ops.drain(..) {
            if op.count(Progress::Under) > 0 {
                // The channel below may still read the copied bytes.
                std::mem::forget(op);
            }
        }
    }
}

/// Adds to a set; returns whether the element is new. A linear search: sets are small, also with thousands of operations.
fn enter<T: PartialEq>(set: &mut Vec<T>, one: T) -> bool {
    let new = !set.contains(&one);
    if new {
        set.push(one);
    }
    new
}

/// Takes one step of `op`. Records its progress unless it fails.
fn step(op: &mut QueuedOperation, index: usize, means: &Means<'_>) -> Result<Outcome> {
    let waiting = op.count(Progress::Waiting);
    if op.steps.len() - waiting >= op.disaster_after
        && let Some(disaster) = op.disaster.take()
    {
        tracing::debug!(
            channel = means.channel,
            number = op.number,
            ?disaster,
            "chaos"
        );
        disaster.strike(means.stalls);
    }
    let mut flags = op.flags;
    if waiting > 1 {
        flags.remove(Flags::WAKE);
    }
    op.work
        .set_last_try(op.retries >= means.config.inbox_retries);
    // SAFETY:
    // - contract of `Work::carry_out`: the operation has not been reported as complete, so the pointers of the user are still valid.
    let outcome = unsafe {
        op.work
            .carry_out(&op.steps[index].part, means.inner, flags, op.number)
    }?;
    op.steps[index].progress = match outcome {
        Outcome::Complete => Progress::Done,
        Outcome::Pending => Progress::Under,
    };
    Ok(outcome)
}
