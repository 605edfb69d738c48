//! Collective operations (fi_collective(3)), as messages between the members of a group. They make progress with the messages.

mod set;

use unipgas_core::message::{CollectiveGroup, CollectiveUser, GroupMember};
use unipgas_core::{AtomicOp, AtomicType, Error};

pub use set::AvSet;
pub use unipgas_core::message::Collective;

use crate::atomics::{Family, TYPES, valid};
use crate::endpoint::{Endpoint, INJECT_SIZE, PostOptions, fence};
use crate::messages::{MOST_PEERS, Messages, errno};
use crate::operation::{CounterEvent, Report, Reports};
use crate::rma::TRANSMIT_FLAGS;
use crate::state::State;
use crate::status::{Errno, Result};
use crate::sys::{FI_ADDR_NOTAVAIL, FI_COLLECTIVE, FI_FENCE, FI_INJECT, FI_REMOTE_CQ_DATA};

/// Maximum bytes of the elements that a call counts.
pub const MOST_BYTES: usize = 16 << 20;
/// Maximum members of a group: the peers of an endpoint's mailbox, and the endpoint itself.
pub const MOST_MEMBERS: usize = MOST_PEERS + 1;

/// Flags of collective operations.
const FLAGS: u64 = TRANSMIT_FLAGS & !FI_REMOTE_CQ_DATA;
/// A group's address: this bit, and the group's number.
const GROUP: u64 = 1 << 63;
/// The context of these messages. Program messages have 0 and 1, answers to atomic operations have 2.
pub(crate) const CONTEXT: u8 = 3;

/// Called once with the result of a join.
pub type JoinCallback = Box<dyn FnOnce(Result<()>) + Send>;

/// The type of an operation's elements, and the operation that combines them. `None`: a barrier. Errors: [`Errno::OPNOTSUPP`].
pub(crate) fn elements(
    kind: Collective,
    (datatype, op): (i32, i32),
) -> Result<Option<(AtomicType, Option<AtomicOp>)>> {
    if kind == Collective::Barrier {
        return Ok(None);
    }
    if kind.reduces() {
        let valid = valid(Family::Base, datatype, op)?;
        return match valid.op {
            AtomicOp::Read | AtomicOp::Write => Err(Errno::OPNOTSUPP),
            op => Ok(Some((valid.ty, Some(op)))),
        };
    }
    let ty = usize::try_from(datatype).ok().and_then(|at| TYPES.get(at));
    ty.map(|ty| Some((*ty, None))).ok_or(Errno::OPNOTSUPP)
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

/// An endpoint's groups.
pub(crate) struct EndpointGroups;

/// The members of a group, and its operations as a bit set.
pub(crate) struct GroupNames {
    members: Vec<u64>,
    operations: u16,
}

/// Receiver of an operation's result.
pub(crate) enum End {
    Report(Report),
    Join(JoinCallback),
}

impl CollectiveUser for EndpointGroups {
    type Group = GroupNames;
    type Operation = End;
    const DISAGREEMENT: i32 = Errno::TRUNC.0;

    fn failure(error: Error) -> i32 {
        errno(error).0
    }

    fn is_loss(failure: i32) -> bool {
        matches!(
            Errno(failure),
            Errno::CONNRESET | Errno::HOSTUNREACH | Errno::CANCELED
        )
    }
}

impl Messages {
    /// The group with this address. Errors: [`Errno::INVAL`].
    fn group(&self, address: u64) -> Result<&CollectiveGroup<GroupNames>> {
        let group = self.collectives.group(address ^ GROUP);
        group.ok_or(Errno::INVAL)
    }

    /// Continues the operations with an ended send, and reports the ended operations.
    #[cold]
    pub(crate) fn report_collectives(&mut self, reports: &Reports) {
        self.groups().test_sends();
        self.stale |= self.collectives.destinations().next().is_some();
        while let Some(end) = self.collectives.take_end() {
            self.unanswered -= 1;
            let result = end.result.map_err(Errno);
            match end.operation {
                // Without a queue and a counter no receiver for a failure exists.
                End::Report(report) => drop(reports.end(&report, result.err())),
                End::Join(_) if end.left => {}
                End::Join(joined) => joined(result),
            }
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
        for (nth, address) in (0..).zip(&addresses) {
            let id = av.name(*address)?.id();
            let number = if id == self.name().id() {
                me = Some(nth);
                Err(Errno::INVAL)
            } else {
                state.number(reports, *address)?
            };
            let number = number.map_err(|errno| errno.0);
            members.push(GroupMember { id, number });
        }
        let me = me.ok_or(Errno::INVAL)?;
        let messages = state.messages.as_mut().ok_or(Errno::OPNOTSUPP)?;
        let names = GroupNames {
            members: addresses,
            operations: set.operations(),
        };
        let mut groups = messages.groups();
        let group = groups.add(members, me, names)?;
        if local {
            joined(Ok(()));
        } else {
            groups.meet(group, End::Join(joined))?;
            state.collective_begun(reports);
        }
        Ok(group | GROUP)
    }

    /// Leaves a group. Operations in progress end with [`Errno::CANCELED`], here and at members that need messages of this endpoint. A join in
    /// progress ends without a report. Errors: [`Errno::INVAL`].
    pub fn leave(&self, group: u64) -> Result<()> {
        let (reports, mut state) = self.live()?;
        let messages = state.messages.as_mut().ok_or(Errno::INVAL)?;
        messages.groups().leave(group ^ GROUP)?;
        messages.report_collectives(reports);
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
        let elements = elements(call.kind, call.what)?;
        let len = match elements {
            None => 0,
            Some(_) if call.count == 0 => return Err(Errno::INVAL),
            Some((ty, _)) => {
                let len = call.count.checked_mul(ty.size());
                let inject = posting.flags & FI_INJECT != 0;
                let most = if inject { INJECT_SIZE } else { MOST_BYTES };
                len.filter(|len| *len <= most).ok_or(Errno::MSGSIZE)?
            }
        };
        let messages = state.messages.as_ref().ok_or(Errno::OPNOTSUPP)?;
        let known = messages.group(group)?;
        if known.is_meeting() {
            return Err(Errno::OPBADSTATE);
        }
        let names = known.kept();
        if names.operations & set::bit(call.kind) == 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let is_root = |member: &u64| *member == call.root;
        let root = match call.kind.has_root() {
            true => names.members.iter().position(is_root).ok_or(Errno::INVAL)?,
            false => 0,
        };
        let combination = elements.and_then(|(ty, op)| Some((op?, ty)));
        let plan = known.plan(call.kind, root as u32, len, combination);
        if plan.reads() && call.operand.is_null() || plan.writes() && call.result.is_null() {
            return Err(Errno::INVAL);
        }
        let fenced = (posting.flags & FI_FENCE != 0).then(|| names.members.clone());
        let unfenced = PostOptions {
            flags: posting.flags & !FI_FENCE,
            ..*posting
        };
        let admitted = self.admit(reports, state, FI_ADDR_NOTAVAIL, &unfenced)?;
        if let Some(members) = fenced {
            fence(reports, state, |state| {
                state.is_under_way_among(group, &members)
            })?;
        }
        let report = posting.report((FI_COLLECTIVE, CounterEvent::Write), admitted.wanted);
        let memory = (call.operand, call.result);
        let messages = state.messages.as_mut().ok_or(Errno::OPNOTSUPP)?;
        let mut groups = messages.groups();
        let end = End::Report(report);
        // SAFETY:
        // - contract of this call: the operand is readable until its return, the result is valid for writes until the operation is complete.
        // - the mailbox and the collectives end together.
        unsafe { groups.begin(group ^ GROUP, plan, memory, end)? };
        state.collective_begun(reports);
        Ok(())
    }
}

impl State {
    /// The addresses of the members of a group. Errors: [`Errno::INVAL`].
    fn group_at(&self, address: u64) -> Result<Vec<u64>> {
        let messages = self.messages.as_ref().ok_or(Errno::INVAL)?;
        let group = messages.group(address)?;
        match group.is_meeting() {
            false => Ok(group.kept().members.clone()),
            true => Err(Errno::INVAL),
        }
    }

    /// Counts an operation that has begun, and reports what has ended.
    fn collective_begun(&mut self, reports: &Reports) {
        if let Some(messages) = &mut self.messages {
            messages.unanswered += 1;
            messages.report_collectives(reports);
            messages.report(reports);
        }
    }

    /// Whether an operation of the group, or an operation to one of its members, is in progress.
    fn is_under_way_among(&self, group: u64, members: &[u64]) -> bool {
        let messages = self.messages.as_ref();
        messages.is_some_and(|messages| messages.collectives.is_under_way(group ^ GROUP))
            || members
                .iter()
                .any(|to| self.is_under_way_to(*to) || self.is_message_under_way_to(*to))
    }
}
