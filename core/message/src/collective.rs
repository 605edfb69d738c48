//! Collective operations, as messages between the members of a group. They make progress with the messages of a mailbox.
//!
//! After progress of the mailbox, the caller passes the ends of receives, and lets the groups test their sends. Each call may end operations. The
//! caller takes their ends.

mod plan;
mod run;

use std::collections::{HashMap, VecDeque};

use slab::Slab;
use unipgas_base::Error;
use unipgas_base::atomic::{AtomicOp, AtomicType};
use unipgas_engine::Engine;

pub use plan::{Collective, CollectivePlan};

use super::{Mailbox, ReceiveTicket, SendTicket};
use plan::Seat;
use run::Running;

/// A group's number: a generation that makes numbers of earlier groups invalid, and the group's key.
const KEYS: u64 = 1 << 24;
/// Groups have numbers below.
const NUMBERS: u64 = 1 << 63;
/// Number of the reports that a group has lost a member. Operations begin at 1.
const LOSS: u64 = 0;

/// The data that a caller keeps here, and its numbers of failures. All members have the same numbers. None is 0.
pub trait CollectiveUser {
    /// Kept with a group.
    type Group;
    /// Kept with an operation until its end.
    type Operation;
    /// The members do not agree on the operation.
    const DISAGREEMENT: i32;
    /// The failure of an operation by an error of a message.
    fn failure(error: Error) -> i32;
    /// Whether a failure means that the group has lost a member.
    fn is_loss(failure: i32) -> bool;
}

/// A member of a group.
pub struct GroupMember {
    /// Its identity, the same at all members.
    pub id: u64,
    /// Its number among the peers of the mailbox, or the failure of operations that need it. The member itself has no number.
    pub number: Result<u32, i32>,
}

/// The end of an operation. It uses no more memory of the caller.
pub struct CollectiveEnd<T> {
    /// The data that the caller keeps with the operation.
    pub operation: T,
    /// Errors: the failure.
    pub result: Result<(), i32>,
    /// This member has left the group.
    pub left: bool,
}

/// A group of peers, as one member knows it.
pub struct CollectiveGroup<G> {
    number: u64,
    /// The same at all members.
    id: u64,
    members: Box<[GroupMember]>,
    me: u32,
    kept: G,
    /// Number of operations begun. All members number them alike.
    begun: u64,
    meeting: bool,
    /// The caller has left the group. It stays until its operations have ended.
    left: bool,
    running: usize,
    /// The group has lost a member. All its operations fail.
    lost: Option<i32>,
    /// The receive for the report of a loss.
    losses: Option<ReceiveTicket>,
}

impl<G> CollectiveGroup<G> {
    /// The data that the caller keeps with it.
    pub fn kept(&self) -> &G {
        &self.kept
    }

    /// Whether its meeting has not succeeded. Until then no operation may begin.
    pub fn is_meeting(&self) -> bool {
        self.meeting
    }

    /// This member's part of an operation on slices of `len` bytes. `root`: index of the root. Reductions need a combination.
    pub fn plan(
        &self,
        kind: Collective,
        root: u32,
        len: usize,
        combination: Option<(AtomicOp, AtomicType)>,
    ) -> CollectivePlan {
        CollectivePlan {
            combination,
            ..CollectivePlan::new(kind, self.seat(root), len)
        }
    }

    /// The tag of an operation's messages. In one operation a member sends at most one message to each other member.
    fn tag(&self, number: u64) -> u64 {
        mixed(self.id ^ mixed(number))
    }

    fn seat(&self, root: u32) -> Seat {
        Seat {
            me: self.me,
            n: self.members.len() as u32,
            root,
        }
    }
}

/// The message of a receive.
enum Awaited {
    /// A message of an operation's round.
    Round {
        running: usize,
        bytes: usize,
        source: u32,
    },
    /// The report that the group with this key has lost a member.
    Loss(usize),
}

/// The groups of a mailbox, and their operations in progress. All calls get the same mailbox.
pub struct Collectives<U: CollectiveUser> {
    /// The context of the messages.
    context: u8,
    groups: Slab<CollectiveGroup<U::Group>>,
    generation: u64,
    running: Slab<Running<U::Operation>>,
    /// Sends in progress: the peer, the ticket, and the operation unless it reports a loss.
    sent: Vec<(u32, SendTicket, Option<usize>)>,
    awaited: HashMap<ReceiveTicket, Awaited>,
    /// Number of groups of each set of members.
    formed: HashMap<u64, u64>,
    ended: VecDeque<CollectiveEnd<U::Operation>>,
}

/// Calls on groups, and the mailbox that they use.
pub struct GroupCalls<'a, U: CollectiveUser> {
    all: &'a mut Collectives<U>,
    engine: &'a Engine,
    mailbox: &'a mut Mailbox,
}

/// A bijection that spreads bits (the finaliser of splitmix64).
fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl<U: CollectiveUser> Collectives<U> {
    /// No groups. The caller uses `context` for no other messages of the mailbox.
    pub fn new(context: u8) -> Self {
        Collectives {
            context,
            groups: Slab::new(),
            generation: 0,
            running: Slab::new(),
            sent: Vec::new(),
            awaited: HashMap::new(),
            formed: HashMap::new(),
            ended: VecDeque::new(),
        }
    }

    /// Calls on these groups.
    pub fn on<'a>(&'a mut self, engine: &'a Engine, mailbox: &'a mut Mailbox) -> GroupCalls<'a, U> {
        GroupCalls {
            all: self,
            engine,
            mailbox,
        }
    }

    /// The next operation that has ended.
    pub fn take_end(&mut self) -> Option<CollectiveEnd<U::Operation>> {
        self.ended.pop_front()
    }

    /// The peers of sends in progress.
    pub fn destinations(&self) -> impl Iterator<Item = u32> {
        self.sent.iter().map(|(to, ..)| *to)
    }

    /// Members from which operations await messages, by number.
    pub fn sources(&self) -> impl Iterator<Item = u32> {
        self.awaited.values().filter_map(|awaited| match awaited {
            Awaited::Round { source, .. } => Some(*source),
            Awaited::Loss(_) => None,
        })
    }

    /// Number of receives in progress.
    pub fn receives(&self) -> usize {
        self.awaited.len()
    }

    /// Notes that a member has gone. Another peer may get its number.
    pub fn forget(&mut self, number: u32) {
        let members = self
            .groups
            .iter_mut()
            .flat_map(|(_, group)| &mut group.members);
        for member in members.filter(|member| member.number == Ok(number)) {
            member.number = Err(U::failure(Error::PeerDead));
        }
    }

    /// The group with this number, until this member leaves it.
    pub fn group(&self, number: u64) -> Option<&CollectiveGroup<U::Group>> {
        self.groups.get(self.key(number).ok()?)
    }

    /// Errors: [`Error::InvalidArgument`] for the number of no group.
    fn key(&self, number: u64) -> Result<usize, Error> {
        let key = (number % KEYS) as usize;
        let group = self.groups.get(key);
        match group.is_some_and(|group| group.number == number && !group.left) {
            true => Ok(key),
            false => Err(Error::InvalidArgument("no such group".into())),
        }
    }

    /// Whether an operation of the group has not ended.
    pub fn is_under_way(&self, number: u64) -> bool {
        let key = self.key(number).ok();
        let mut running = self.running.iter();
        running.any(|(_, running)| Some(running.group) == key && running.end.is_some())
    }

    /// Removes a group that this member has left, once no operation of it is in progress.
    fn drop_left(&mut self, key: usize) {
        let group = self.groups.get(key);
        if group.is_some_and(|group| group.left && group.running == 0) {
            self.groups.remove(key);
        }
    }
}

impl<U: CollectiveUser> GroupCalls<'_, U> {
    /// Adds a group and returns its number, which is below 2^63. `me`: index of this member. All members add groups of the same members in the same
    /// order. Errors: [`Error::Exhausted`].
    pub fn add(
        &mut self,
        members: Vec<GroupMember>,
        me: u32,
        kept: U::Group,
    ) -> Result<u64, Error> {
        let ids = members.iter().map(|member| member.id);
        let set = ids.fold(0, |id, member| mixed(id ^ member));
        let nth = self.all.formed.entry(set).or_default();
        *nth += 1;
        let id = mixed(set ^ *nth);
        let key = self.all.groups.vacant_key();
        if key as u64 >= KEYS {
            return Err(Error::Exhausted("groups".into()));
        }
        self.all.generation += 1;
        let number = ((self.all.generation * KEYS) % NUMBERS) | key as u64;
        self.all.groups.insert(CollectiveGroup {
            number,
            id,
            members: members.into(),
            me,
            kept,
            begun: 0,
            meeting: false,
            left: false,
            running: 0,
            lost: None,
            losses: None,
        });
        self.await_loss(key);
        Ok(number)
    }

    /// Begins the meeting of a group: it ends after all members have begun it. Errors: as for [`begin`](Self::begin).
    pub fn meet(&mut self, number: u64, operation: U::Operation) -> Result<(), Error> {
        let key = self.all.key(number)?;
        let group = &mut self.all.groups[key];
        group.meeting = true;
        let plan = CollectivePlan::meeting(group.seat(0));
        let running = Running::new(key, group, plan, std::ptr::null_mut(), operation)?;
        self.start(running);
        Ok(())
    }

    /// Begins an operation of a group. All members begin the operations of a group in the same order. Errors:
    /// [`Error::Exhausted`] without memory, [`Error::InvalidArgument`] for the number of no group.
    ///
    /// # Safety
    /// - The plan is of this group.
    /// - If the plan reads, the operand is readable until the call returns. If it writes, the result is valid for writes until the operation has ended.
    ///   Both have the slices that [`Collective`] names.
    /// - The mailbox makes no progress after the end of these collectives.
    pub unsafe fn begin(
        &mut self,
        number: u64,
        plan: CollectivePlan,
        (operand, result): (*const u8, *mut u8),
        operation: U::Operation,
    ) -> Result<(), Error> {
        let key = self.all.key(number)?;
        let mut running = Running::new(key, &mut self.all.groups[key], plan, result, operation)?;
        // SAFETY:
        // - contract of this call: as many bytes as the plan loads are readable.
        unsafe { running.load(operand) };
        self.start(running);
        Ok(())
    }

    /// Leaves a group. Its operations in progress fail by [`Error::Ended`], also at members that need messages of this one. Errors:
    /// [`Error::InvalidArgument`] for the number of no group.
    pub fn leave(&mut self, number: u64) -> Result<(), Error> {
        let key = self.all.key(number)?;
        let group = &mut self.all.groups[key];
        group.left = true;
        if let Some(ticket) = group.losses.take() {
            self.mailbox.let_go_of_receive(ticket);
            self.all.awaited.remove(&ticket);
        }
        self.fail_group(key, U::failure(Error::Ended));
        self.all.drop_left(key);
        Ok(())
    }

    /// Leaves all groups, before the mailbox settles.
    pub fn leave_all(&mut self) {
        let known = self.all.groups.iter();
        let numbers: Vec<u64> = known.map(|(_, group)| group.number).collect();
        for number in numbers {
            // A group that this member has left before stays until its operations have ended.
            let _ = self.leave(number);
        }
        for (_, ticket, _) in &self.all.sent {
            self.mailbox.settle_send(*ticket);
        }
    }
}
