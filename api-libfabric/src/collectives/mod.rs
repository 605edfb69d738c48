//! Collective operations (fi_collective(3)), as messages between the members of a group. They make progress with the messages.

mod plan;
mod run;
mod set;

use std::collections::HashMap;

use slab::Slab;
use unipgas_core::message::ReceiveTicket;
use unipgas_core::{AtomicOp, AtomicType};

pub use plan::Collective;
pub use set::AvSet;

use crate::atomics::{Family, TYPES, valid};
use crate::endpoint::{Endpoint, INJECT_SIZE, PostOptions, fence};
use crate::messages::MOST_PEERS;
use crate::operation::CounterEvent;
use crate::rma::{LocalRange, TRANSMIT_FLAGS};
use crate::state::State;
use crate::status::{Errno, Result};
use crate::sys::{FI_ADDR_NOTAVAIL, FI_COLLECTIVE, FI_FENCE, FI_INJECT, FI_REMOTE_CQ_DATA};
use plan::{Plan, Seat};
use run::{End, Running};

/// Maximum bytes of the elements that a call counts.
pub const MOST_BYTES: usize = 16 << 20;
/// Maximum members of a group: the peers of an endpoint's mailbox, and the endpoint itself.
pub const MOST_MEMBERS: usize = MOST_PEERS + 1;

/// Flags of collective operations.
const FLAGS: u64 = TRANSMIT_FLAGS & !FI_REMOTE_CQ_DATA;
/// A group's address: this bit, a generation that makes addresses of earlier groups invalid, and the group's key.
const GROUP: u64 = 1 << 63;
const KEYS: u64 = 1 << 24;

/// Called once with the result of a join.
pub type JoinCallback = Box<dyn FnOnce(Result<()>) + Send>;

/// The elements of an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elements {
    ty: AtomicType,
    /// The combining operation. `None`: the elements are only moved.
    op: Option<AtomicOp>,
}

impl Elements {
    /// The elements of a collective operation; `None` for a barrier. Errors: [`Errno::OPNOTSUPP`].
    pub(crate) fn of(kind: Collective, (datatype, op): (i32, i32)) -> Result<Option<Elements>> {
        if kind == Collective::Barrier {
            return Ok(None);
        }
        if kind.reduces() {
            let valid = valid(Family::Base, datatype, op)?;
            return match valid.op {
                AtomicOp::Read | AtomicOp::Write => Err(Errno::OPNOTSUPP),
                op => Ok(Some(Elements {
                    ty: valid.ty,
                    op: Some(op),
                })),
            };
        }
        let ty = usize::try_from(datatype).ok().and_then(|at| TYPES.get(at));
        let ty = *ty.ok_or(Errno::OPNOTSUPP)?;
        Ok(Some(Elements { ty, op: None }))
    }

    /// Bytes of one element.
    pub(crate) fn size(self) -> usize {
        self.ty.size()
    }
}

/// A collective operation.
#[derive(Debug, Clone, Copy)]
pub struct CollectiveCall {
    /// The operation.
    pub kind: Collective,
    /// The root's address in the address vector. Ignored by operations without a root.
    pub root: u64,
    /// `enum fi_datatype` and `enum fi_op`. Barriers ignore both. Operations without a reduction ignore the second.
    pub what: (i32, i32),
    /// The operand. May be null if this member contributes none.
    pub operand: *const u8,
    /// Destination of the result. May be null if this member gets none.
    pub result: *mut u8,
    /// Elements of one member's contribution. For operations that distribute data: elements of one slice.
    pub count: usize,
}

/// A member of a group.
struct Member {
    address: u64,
    /// Its number among the peers of the mailbox, or the error that makes it unreachable. Not used for the own endpoint.
    number: std::result::Result<u32, Errno>,
}

struct Group {
    address: u64,
    /// The same at all members.
    id: u64,
    members: Box<[Member]>,
    me: u32,
    operations: u16,
    /// Number of operations begun. All members number them alike.
    begun: u64,
    joined: bool,
    /// The program has left the group. It stays until its operations have ended.
    left: bool,
    running: usize,
    /// The group has lost a member. All its operations fail.
    lost: Option<Errno>,
    /// The receive for the report of a loss.
    losses: Option<ReceiveTicket>,
}

/// A receive in progress.
struct Awaiting {
    ticket: ReceiveTicket,
    role: Role,
}

enum Role {
    /// A message of an operation's round.
    Round {
        running: usize,
        bytes: usize,
        source: u32,
    },
    /// The report that the group with this key has lost a member.
    Loss(usize),
}

/// An endpoint's groups, and its operations in progress.
#[derive(Default)]
pub(crate) struct Collectives {
    groups: Slab<Group>,
    generation: u64,
    running: Slab<Running>,
    /// Keyed by the index of the ticket.
    awaiting: HashMap<usize, Awaiting>,
    /// Operations with a send that has ended.
    moved: Vec<usize>,
    /// Number of joins of each set of members.
    joins: HashMap<u64, u64>,
}

/// A bijection that spreads bits (the finaliser of splitmix64).
fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Collectives {
    /// Members from which operations await messages, by number.
    pub fn sources(&self) -> impl Iterator<Item = u32> {
        self.awaiting
            .values()
            .filter_map(|awaiting| match awaiting.role {
                Role::Round { source, .. } => Some(source),
                Role::Loss(_) => None,
            })
    }

    /// Receives in progress. The program did not post them.
    pub fn receives(&self) -> usize {
        self.awaiting.len()
    }

    /// Notes that a member has gone. Another peer may get its number.
    pub fn forget(&mut self, number: u32) {
        let members = self
            .groups
            .iter_mut()
            .flat_map(|(_, group)| &mut group.members);
        for member in members.filter(|member| member.number == Ok(number)) {
            member.number = Err(Errno::CONNRESET);
        }
    }

    /// The key of the group with this address. Errors: [`Errno::INVAL`].
    fn key(&self, address: u64) -> Result<usize> {
        let key = (address % KEYS) as usize;
        let group = self.groups.get(key).ok_or(Errno::INVAL)?;
        match group.address == address && !group.left {
            true => Ok(key),
            false => Err(Errno::INVAL),
        }
    }

    /// Adds a group of these endpoints. `me`: index of the own endpoint.
    fn add(&mut self, members: Vec<(Member, u64)>, me: u32, operations: u16) -> Result<usize> {
        let ids = members.iter().map(|(_, id)| *id);
        let set = ids.fold(0, |id, member| mixed(id ^ member));
        let nth = self.joins.entry(set).or_default();
        *nth += 1;
        let id = mixed(set ^ *nth);
        let key = self.groups.vacant_key();
        if key as u64 >= KEYS {
            return Err(Errno::NOSPC);
        }
        self.generation += 1;
        let address = GROUP | ((self.generation * KEYS) % GROUP) | key as u64;
        let members = members.into_iter().map(|(member, _)| member);
        Ok(self.groups.insert(Group {
            address,
            id,
            members: members.collect(),
            me,
            operations,
            begun: 0,
            joined: false,
            left: false,
            running: 0,
            lost: None,
            losses: None,
        }))
    }
}

impl Group {
    /// The tag of an operation's messages. In one operation a member sends at most one message to each other member.
    fn tag(&self, number: u64) -> u64 {
        mixed(self.id ^ mixed(number))
    }

    /// The tag of the report that the group has lost a member. Operations begin at 1.
    fn loss_tag(&self) -> u64 {
        self.tag(0)
    }

    fn seat(&self, root: u32) -> Seat {
        Seat {
            me: self.me,
            n: self.members.len() as u32,
            root,
        }
    }
}

impl Endpoint {
    /// Joins the group of a set's members (fi_join_collective(3)) and returns the group's address. `joined` gets the result of the join.
    ///
    /// `at` is the address of a set, or of a group that contains all members. All members join; they join several groups of the same members in
    /// the same order. With FI_ADDR_NOTAVAIL the program manages the membership, and the join completes at once.
    ///
    /// Errors: [`Errno::OPNOTSUPP`] without FI_COLLECTIVE. [`Errno::INVAL`] if the endpoint is no member, the set belongs to another address
    /// vector, or `at` is no such address. [`Errno::AGAIN`] while a service does not exist.
    pub fn join(&self, set: &AvSet, at: u64, joined: JoinCallback) -> Result<u64> {
        let (reports, mut state) = self.live()?;
        let state = &mut *state;
        let av = state.av.clone().ok_or(Errno::NOAV)?;
        if self.options().caps & FI_COLLECTIVE == 0 {
            return Err(Errno::OPNOTSUPP);
        }
        if !std::sync::Arc::ptr_eq(&av, set.av()) {
            return Err(Errno::INVAL);
        }
        let addresses = set.members();
        let local = at == FI_ADDR_NOTAVAIL;
        if !local {
            let wider = match av.set(at) {
                Some(wider) => wider.members(),
                None => state.group_at(at)?,
            };
            if !addresses.iter().all(|address| wider.contains(address)) {
                return Err(Errno::INVAL);
            }
        }
        let mut me = None;
        let mut members = Vec::with_capacity(addresses.len());
        for (nth, address) in (0..).zip(addresses) {
            let id = av.name(address)?.id();
            let number = if id == self.name().id() {
                me = Some(nth);
                Err(Errno::INVAL)
            } else {
                state.number(reports, address)?
            };
            members.push((Member { address, number }, id));
        }
        let me = me.ok_or(Errno::INVAL)?;
        let messages = state.messages.as_mut().ok_or(Errno::OPNOTSUPP)?;
        let collectives = &mut messages.collectives;
        let group = collectives.add(members, me, set.operations())?;
        messages.await_loss(group);
        let known = &mut messages.collectives.groups[group];
        let address = known.address;
        if local {
            known.joined = true;
            joined(Ok(()));
            return Ok(address);
        }
        let plan = Plan::meeting(known.seat(0));
        let running = Running::new(group, known, plan, None, End::Join(joined))?;
        state.begin(reports, running);
        Ok(address)
    }

    /// Leaves a group. Operations in progress end with [`Errno::CANCELED`], here and at members that need messages of this endpoint. A join in
    /// progress ends without a report. Errors: [`Errno::INVAL`].
    pub fn leave(&self, group: u64) -> Result<()> {
        let (reports, mut state) = self.live()?;
        let messages = state.messages.as_mut().ok_or(Errno::INVAL)?;
        let key = messages.collectives.key(group)?;
        let group = &mut messages.collectives.groups[key];
        group.left = true;
        if let Some(ticket) = group.losses.take()
            && messages.mailbox.cancel_receive(ticket)
        {
            messages.collectives.awaiting.remove(&ticket.index());
        }
        state.leave_group(reports, key);
        Ok(())
    }

    /// Begins a collective operation of the group with this address. All members begin the operations of a group in the same order. The transmit
    /// queue or the counter of writes reports the result.
    ///
    /// Errors: [`Errno::OPNOTSUPP`] for unknown operations, types or combinations. [`Errno::OPBADSTATE`] before the join has ended.
    /// [`Errno::MSGSIZE`] for more than [`MOST_BYTES`]. [`Errno::INVAL`], [`Errno::NOMEM`], [`Errno::AGAIN`], [`Errno::BADFLAGS`].
    ///
    /// # Safety
    /// The operand is readable until the call returns. It has `count` elements, or `count` for each member: in all-to-all and reduce-scatter
    /// operations, and at the root of a scatter operation.
    ///
    /// The result is valid for writes until the operation is complete. It has `count` elements, or `count` for each member: in all-to-all and
    /// all-gather operations, and at the root of a gather operation.
    pub unsafe fn collective(
        &self,
        group: u64,
        call: &CollectiveCall,
        posting: &PostOptions,
    ) -> Result<()> {
        if posting.flags & !FLAGS != 0 {
            return Err(Errno::BADFLAGS);
        }
        let (reports, mut state) = self.live()?;
        let state = &mut *state;
        if self.options().caps & FI_COLLECTIVE == 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let elements = Elements::of(call.kind, call.what)?;
        let len = match elements {
            None => 0,
            Some(_) if call.count == 0 => return Err(Errno::INVAL),
            Some(elements) => {
                let len = call.count.checked_mul(elements.size());
                let inject = posting.flags & FI_INJECT != 0;
                let most = if inject { INJECT_SIZE } else { MOST_BYTES };
                len.filter(|len| *len <= most).ok_or(Errno::MSGSIZE)?
            }
        };
        let messages = state.messages.as_mut().ok_or(Errno::OPNOTSUPP)?;
        let key = messages.collectives.key(group)?;
        let known = &messages.collectives.groups[key];
        if !known.joined {
            return Err(Errno::OPBADSTATE);
        }
        if known.operations & set::bit(call.kind) == 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let is_root = |member: &Member| member.address == call.root;
        let root = match call.kind.has_root() {
            true => known.members.iter().position(is_root).ok_or(Errno::INVAL)?,
            false => 0,
        };
        let plan = Plan::new(call.kind, known.seat(root as u32), len);
        let given = |needed: bool, null: bool| !(needed && null);
        if !given(plan.load.is_some(), call.operand.is_null())
            || !given(plan.store.is_some(), call.result.is_null())
        {
            return Err(Errno::INVAL);
        }
        let addresses: Box<[u64]> = match posting.flags & FI_FENCE {
            0 => Box::default(),
            _ => known.members.iter().map(|member| member.address).collect(),
        };
        let unfenced = PostOptions {
            flags: posting.flags & !FI_FENCE,
            ..*posting
        };
        let admitted = self.admit(reports, state, FI_ADDR_NOTAVAIL, &unfenced)?;
        if posting.flags & FI_FENCE != 0 {
            fence(reports, state, |state| {
                state.is_under_way_among(key, &addresses)
            })?;
        }
        let report = posting.report((FI_COLLECTIVE, CounterEvent::Write), admitted.wanted);
        let store = plan.store.map_or(0, |store| store.len);
        let result = LocalRange {
            ptr: call.result,
            len: store,
        };
        let messages = state.messages.as_mut().ok_or(Errno::OPNOTSUPP)?;
        // `fence` may have made progress that ended the membership.
        let key = messages.collectives.key(group)?;
        let known = &mut messages.collectives.groups[key];
        let mut running = Running::new(key, known, plan, elements, End::Report(report, result))?;
        // SAFETY:
        // - contract of this call: as many bytes as the plan loads are readable.
        unsafe { running.load(call.operand) };
        state.begin(reports, running);
        Ok(())
    }
}

impl State {
    /// The addresses of the members of a group. Errors: [`Errno::INVAL`].
    fn group_at(&self, address: u64) -> Result<Vec<u64>> {
        let messages = self.messages.as_ref().ok_or(Errno::INVAL)?;
        let group = &messages.collectives.groups[messages.collectives.key(address)?];
        match group.joined {
            true => Ok(group.members.iter().map(|member| member.address).collect()),
            false => Err(Errno::INVAL),
        }
    }

    /// Whether an operation of the group, or an operation to one of its members, is in progress.
    fn is_under_way_among(&self, key: usize, members: &[u64]) -> bool {
        let messages = self.messages.as_ref();
        messages.is_some_and(|messages| messages.collectives.has_begun(key))
            || members
                .iter()
                .any(|to| self.is_under_way_to(*to) || self.is_message_under_way_to(*to))
    }
}
