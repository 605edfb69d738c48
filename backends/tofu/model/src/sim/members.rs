//! The position of each member in its schedule, and the arrivals for it.

use unipgas_schedule::{Schedule, Step};

use super::SentCounts;

/// Time of an event that has not occurred.
pub const NEVER: u64 = u64::MAX;
const NOBODY: u32 = u32::MAX;

/// A member of the operation. Its steps are empty before it begins and after it ends.
#[derive(Clone)]
struct Member {
    steps: Box<[Step]>,
    at: u32,
    /// The slot for which it waits, and the begin of the wait.
    waits: u32,
    since: u64,
    begun: bool,
}

pub(super) struct Members {
    all: Vec<Member>,
    /// Arrival time for each slot of each member. One more slot is for the release of a meeting.
    arrivals: Vec<u64>,
    slots: u32,
    pub sent: Vec<SentCounts>,
}

impl Members {
    pub fn new(n: u32, slots: u32) -> Self {
        let member = Member {
            steps: Box::new([]),
            at: 0,
            waits: NOBODY,
            since: 0,
            begun: false,
        };
        Members {
            all: vec![member; n as usize],
            arrivals: vec![NEVER; n as usize * (slots as usize + 1)],
            slots,
            sent: vec![SentCounts::default(); n as usize],
        }
    }

    pub fn slots(&self) -> u32 {
        self.slots
    }

    pub fn begin(&mut self, me: u32, schedule: &impl Fn(u32) -> Schedule) {
        let member = &mut self.all[me as usize];
        if !member.begun {
            member.begun = true;
            member.steps = schedule(me).steps;
        }
    }

    pub fn step(&self, me: u32) -> Option<Step> {
        let member = &self.all[me as usize];
        member.steps.get(member.at as usize).copied()
    }

    pub fn passed(&mut self, me: u32) {
        self.all[me as usize].at += 1;
    }

    /// Replaces the current step by these steps, and continues with the first of them. Later steps remain.
    pub fn replace(&mut self, me: u32, steps: Vec<Step>) {
        let member = &mut self.all[me as usize];
        let rest = &member.steps[member.at as usize + 1..];
        member.steps = steps.iter().chain(rest).copied().collect();
        member.at = 0;
    }

    /// Frees the memory of a member that has ended.
    pub fn end(&mut self, me: u32) {
        self.all[me as usize].steps = Box::new([]);
    }

    fn place(&self, me: u32, slot: u32) -> usize {
        me as usize * (self.slots as usize + 1) + slot as usize
    }

    pub fn arrival(&self, me: u32, slot: u32) -> u64 {
        self.arrivals[self.place(me, slot)]
    }

    pub fn wait(&mut self, me: u32, slot: u32, since: u64) {
        let member = &mut self.all[me as usize];
        member.waits = slot;
        member.since = since;
    }

    /// Records an arrival. If the member waits for it, returns the begin of the wait.
    pub fn arrive(&mut self, me: u32, slot: u32, when: u64) -> Option<u64> {
        let place = self.place(me, slot);
        debug_assert_eq!(
            self.arrivals[place], NEVER,
            "slot {slot} of {me} is used twice"
        );
        self.arrivals[place] = when;
        let member = &mut self.all[me as usize];
        if member.waits != slot {
            return None;
        }
        member.waits = NOBODY;
        Some(member.since)
    }

    /// Whether no later step waits for a slot that `such` selects.
    pub fn is_last_wait(&self, me: u32, such: impl Fn(u32) -> bool) -> bool {
        let member = &self.all[me as usize];
        let rest = member.steps.get(member.at as usize + 1..).unwrap_or(&[]);
        !rest.iter().any(|step| match step {
            Step::Await { slot } | Step::Combine { slot } | Step::Take { slot } => such(*slot),
            _ => false,
        })
    }
}
