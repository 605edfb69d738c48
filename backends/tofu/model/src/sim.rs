//! Simulation of collective operations along the [`Schedule`]s that the engine's groups execute.
//!
//! All members begin at the same time. Each executes its steps in order:
//!
//! - A signal or send to another node occupies the processor for [`Figures::post_ns`]. Then it occupies a free TNI for its bytes, or for
//!   [`Figures::gap_ns`]. It arrives after the rest of [`Figures::put`].
//! - A signal or send within a node occupies the processor for [`Figures::store_ns`] and the copy. It arrives after [`Figures::put`] with no hops.
//! - A wait ends when the flag or value has arrived. To combine takes the time of its bytes at [`Figures::combine_gbs`].
//! - A count ([`Step::Meet`]) is an atomic operation at the node of member 0, with an answer. Operations there are executed one after another.
//!
//! With [`Fidelity::Contention`] each link and each receiving TNI also carries one message after another: the head of a message waits at a busy one.
//! Messages get resources in the order of their posting.
//!
//! Times are in ps, so that sums are exact and equal on all machines.

mod members;
mod network;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use unipgas_schedule::{FEW, Schedule, Step, children};

use crate::figures::Figures;
use crate::job::JobLayout;
use crate::{Result, wrong};
use members::{Members, NEVER};
use network::SimNetwork;

/// Maximum number of members. Each has its schedule and its slots in memory.
pub const MOST_MEMBERS: u32 = 1 << 20;

/// The resources for which messages wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fidelity {
    /// The sending TNI.
    #[default]
    Injection,
    /// The sending TNI, the links and the receiving TNI.
    Contention,
}

/// The subject of a simulation.
#[derive(Debug, Clone, Copy)]
pub struct SimSetting<'a> {
    /// The job. All its ranks are members.
    pub job: &'a JobLayout,
    /// The times of the machine.
    pub figures: &'a Figures,
    /// The resources for which messages wait.
    pub fidelity: Fidelity,
    /// Length of the value.
    pub bytes: u64,
    /// First slot of the barrier gates. Gates of the nodes' TNIs send to it and to later slots, without a processor.
    pub gates: Option<u32>,
}

/// Numbers of messages that a member has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SentCounts {
    /// Signals: flags of other members.
    pub signals: u32,
    /// Values.
    pub sends: u32,
    /// Counts at the counter of member 0.
    pub meets: u32,
}

/// The result of a simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct SimResult {
    /// Time from the start to the end of the last member, in ns.
    pub time_ns: f64,
    /// Time from the start to the end of the first member, in ns.
    pub first_ns: f64,
    /// Messages to other nodes.
    pub remote: u64,
    /// Messages within nodes.
    pub local: u64,
    /// Messages of each member.
    pub sent: Vec<SentCounts>,
}

/// Simulates an operation. `schedule` returns the schedule of a member. It is called once for each member, when the member begins; the schedule is freed when
/// the member ends. Errors: more than [`MOST_MEMBERS`] members; a deadlock of members.
pub fn simulate(setting: &SimSetting<'_>, schedule: impl Fn(u32) -> Schedule) -> Result<SimResult> {
    let members = setting.job.processes;
    if members > MOST_MEMBERS {
        return wrong(format!(
            "at most {MOST_MEMBERS} processes are simulated, not {members}: take fewer nodes, or fewer processes of each"
        ));
    }
    let shared = setting.job.per_node > setting.figures.tnis as u32;
    let first = schedule(0);
    let meets = first
        .steps
        .iter()
        .any(|step| matches!(step, Step::Meet { .. }));
    let ordered = shared || meets || setting.fidelity == Fidelity::Contention;
    simulate_in(setting, schedule, first.slots, ordered)
}

/// `ordered`: members advance in the order of time. Without shared resources each member advances as far as it can: the result is the same.
fn simulate_in(
    setting: &SimSetting<'_>,
    schedule: impl Fn(u32) -> Schedule,
    slots: u32,
    ordered: bool,
) -> Result<SimResult> {
    let n = setting.job.processes;
    let mut run = Run {
        setting,
        n,
        members: Members::new(n, slots),
        network: SimNetwork::new(setting),
        ordered,
        queue: BinaryHeap::new(),
        ready: Vec::new(),
        counter: (0, 0),
        ended: 0,
        first: NEVER,
        last: 0,
    };
    (0..n).rev().for_each(|member| run.put(member, 0));
    while let Some((member, now)) = run.next() {
        run.go_on(member, now, &schedule);
    }
    if run.ended < n {
        return wrong(format!("{} of {n} members wait for ever", n - run.ended));
    }
    Ok(SimResult {
        time_ns: run.last as f64 / 1e3,
        first_ns: run.first as f64 / 1e3,
        remote: run.network.remote,
        local: run.network.local,
        sent: run.members.sent,
    })
}

struct Run<'a> {
    setting: &'a SimSetting<'a>,
    n: u32,
    members: Members,
    network: SimNetwork<'a>,
    ordered: bool,
    /// If `ordered`: members that can continue, by time.
    queue: BinaryHeap<Reverse<(u64, u32)>>,
    /// Otherwise: members that can continue, with their times.
    ready: Vec<(u32, u64)>,
    /// Number of members that have counted, and the time until which the counter is busy.
    counter: (u32, u64),
    ended: u32,
    first: u64,
    last: u64,
}

impl Run<'_> {
    fn put(&mut self, member: u32, when: u64) {
        match self.ordered {
            true => self.queue.push(Reverse((when, member))),
            false => self.ready.push((member, when)),
        }
    }

    fn next(&mut self) -> Option<(u32, u64)> {
        match self.ordered {
            true => self
                .queue
                .pop()
                .map(|Reverse((when, member))| (member, when)),
            false => self.ready.pop(),
        }
    }

    /// Executes steps of a member while no other member has an earlier step.
    fn go_on(&mut self, me: u32, mut now: u64, schedule: &impl Fn(u32) -> Schedule) {
        self.members.begin(me, schedule);
        loop {
            if self
                .queue
                .peek()
                .is_some_and(|Reverse((other, _))| *other < now)
            {
                return self.put(me, now);
            }
            let Some(step) = self.members.step(me) else {
                self.members.end(me);
                self.ended += 1;
                self.first = self.first.min(now);
                self.last = self.last.max(now);
                return;
            };
            now = match self.take(me, step, now) {
                Some(later) => later,
                None => return,
            };
            self.members.passed(me);
        }
    }

    /// The end of the step. `None`: it waits for a flag.
    fn take(&mut self, me: u32, step: Step, now: u64) -> Option<u64> {
        let bytes = self.setting.bytes;
        match step {
            Step::Signal { to, slot } => {
                self.members.sent[me as usize].signals += 1;
                Some(self.send(me, to, slot, 8, now))
            }
            Step::Send { to, slot } => {
                self.members.sent[me as usize].sends += 1;
                Some(self.send(me, to, slot, bytes, now))
            }
            Step::Await { slot } | Step::Take { slot } => self.wait(me, slot, now),
            Step::Combine { slot } => {
                let there = self.wait(me, slot, now)?;
                Some(there + self.network.combine(slot))
            }
            Step::Keep => Some(now + self.network.copy()),
            Step::CombineKept => Some(now + self.network.combine(0)),
            Step::Meet { slot } => Some(self.meet(me, slot, now)),
        }
    }

    fn send(&mut self, me: u32, to: u32, slot: u32, bytes: u64, now: u64) -> u64 {
        let message = network::SimMessage {
            from: me,
            to,
            slot,
            bytes,
        };
        let (over, there) = self.network.send(&message, now);
        if let Some(since) = self.members.arrive(to, slot, there) {
            self.put(to, since.max(there));
        }
        over
    }

    fn wait(&mut self, me: u32, slot: u32, now: u64) -> Option<u64> {
        let there = self.members.arrival(me, slot);
        if there == NEVER {
            self.members.wait(me, slot, now);
            return None;
        }
        let gates = self.setting.gates.is_some();
        let last = gates
            && self
                .members
                .is_last_wait(me, |slot| self.network.by_gates(slot));
        Some(now.max(there) + self.network.out_of_gates(slot, last))
    }

    /// Counts the member at the counter. A group then also releases its members, directly or down a tree; the schedule has no steps for that.
    fn meet(&mut self, me: u32, slot: u32, now: u64) -> u64 {
        self.members.sent[me as usize].meets += 1;
        let (there, back) = self.network.ask(me, 0, now);
        let (count, busy) = &mut self.counter;
        *busy = there.max(*busy) + self.network.atomic();
        *count += 1;
        let last = *count == self.n;
        let answered = *busy + back;
        let mut steps = vec![Step::Meet { slot }];
        let release = self.members.slots();
        if self.n <= FEW {
            match last {
                true => steps.extend(
                    (0..self.n)
                        .filter(|to| *to != me)
                        .map(|to| Step::Signal { to, slot }),
                ),
                false => steps.push(Step::Await { slot }),
            }
        } else {
            if last {
                steps.push(Step::Signal {
                    to: 0,
                    slot: release,
                });
            }
            let own = if me == 0 { release } else { slot };
            steps.push(Step::Await { slot: own });
            steps.extend(children(me, self.n).map(|to| Step::Signal { to, slot }));
        }
        self.members.replace(me, steps);
        answered
    }
}

#[cfg(test)]
mod tests;
