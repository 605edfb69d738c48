//! Collective operations in progress.
//!
//! A member that fails reports it at once to all members that need a message from it. So the death of a member ends the operation at all members
//! that depend on it. A failed operation stays until it has received all messages that the other members send for it.
//!
//! The death of a member ends all later operations, too. A member that has failed may begin no more operations, and members that do not depend on the
//! dead one would wait for it. So each member reports the loss once to all others.

use unipgas_core::Engine;
use unipgas_core::atomic::combine_alone;
use unipgas_core::message::{Envelope, Mode, Pattern, ReceiveTicket, Received};

use super::plan::{Plan, Receive, Span};
use super::{Awaiting, Elements, Group, JoinCallback, Role};
use crate::messages::{After, Messages, Sent, errno};
use crate::operation::{Report, Reports};
use crate::rma::LocalRange;
use crate::state::State;
use crate::status::{Errno, Result};

/// The context of these messages. Program messages have 0 and 1, answers to atomic operations have 2.
const CONTEXT: u8 = 3;

/// Receiver of an operation's result.
pub(super) enum End {
    Report(Report, LocalRange),
    Join(JoinCallback),
}

/// An operation in progress.
pub(super) struct Running {
    group: usize,
    /// Number among the operations of the group.
    number: u64,
    plan: Plan,
    elements: Option<Elements>,
    /// Aligned for all types.
    memory: Box<[u128]>,
    /// The current round. If it has `begun`, `open` of its sends and receives are in progress.
    round: usize,
    begun: bool,
    open: usize,
    failure: Option<Errno>,
    /// All rounds have begun, without data.
    abandoned: bool,
    /// `None`: the result has been reported.
    end: Option<End>,
}

impl Running {
    /// The next operation of the group. Errors: [`Errno::NOMEM`].
    pub fn new(
        key: usize,
        group: &mut Group,
        plan: Plan,
        elements: Option<Elements>,
        end: End,
    ) -> Result<Running> {
        let words = plan.len.div_ceil(size_of::<u128>());
        let mut memory = Vec::new();
        memory.try_reserve_exact(words).map_err(|_| Errno::NOMEM)?;
        memory.resize(words, 0);
        group.begun += 1;
        group.running += 1;
        Ok(Running {
            group: key,
            number: group.begun,
            plan,
            elements,
            memory: memory.into(),
            round: 0,
            begun: false,
            open: 0,
            failure: group.lost,
            abandoned: false,
            end: Some(end),
        })
    }

    fn bytes(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.memory)
    }

    /// Copies the operand.
    ///
    /// # Safety
    /// `operand` is readable for as many bytes as the plan loads.
    pub unsafe fn load(&mut self, operand: *const u8) {
        if let Some(Span { at, len }) = self.plan.load {
            // SAFETY:
            // - contract of this call.
            let operand = unsafe { std::slice::from_raw_parts(operand, len) };
            self.bytes()[at..at + len].copy_from_slice(operand);
        }
        if let Some((Span { at, len }, to)) = self.plan.own {
            self.bytes().copy_within(at..at + len, to);
        }
    }

    /// Combines the elements that the round has received.
    fn combine(&mut self) {
        let Some(round) = self.plan.rounds.get(self.round) else {
            return;
        };
        let Some(elements) = self.elements.filter(|_| self.failure.is_none()) else {
            return;
        };
        let base = self.memory.as_mut_ptr().cast::<u8>();
        for Receive { into, onto, .. } in &round.receives {
            let (Some(onto), Some(op)) = (onto, elements.op) else {
                continue;
            };
            let count = into.len / elements.size();
            // SAFETY:
            // - both ranges are within the buffer and do not overlap. The sends and receives of the round have ended, so no other code uses the buffer.
            let done = unsafe {
                combine_alone(
                    op,
                    elements.ty,
                    base.wrapping_add(*onto),
                    count,
                    base.wrapping_add(into.at),
                )
            };
            if let Err(error) = done {
                self.failure.get_or_insert(error.into());
            }
        }
    }

    /// Writes the result of a successful operation.
    fn store(&mut self, result: LocalRange) {
        if let Some(Span { at, len }) = self.plan.store {
            // SAFETY:
            // - contract of `Endpoint::collective`: `result` is valid for writes until the operation is complete, and as long as the plan's result.
            unsafe { result.bytes() }.copy_from_slice(&self.bytes()[at..at + len]);
        }
    }
}

impl Messages {
    /// Posts the sends and receives of an operation's round.
    fn begin_round(&mut self, engine: &Engine, key: usize) {
        let collectives = &mut self.collectives;
        let (running, mailbox) = (&mut collectives.running[key], &mut self.mailbox);
        let group = &collectives.groups[running.group];
        let Some(round) = running.plan.rounds.get(running.round) else {
            return;
        };
        let base = running.memory.as_mut_ptr().cast::<u8>();
        let tag = group.tag(running.number);
        for Receive { from, into, .. } in &round.receives {
            let source = match group.members[*from as usize].number {
                Ok(number) => number,
                Err(errno) => {
                    running.failure.get_or_insert(errno);
                    continue;
                }
            };
            let pattern = Pattern {
                source: Some(source),
                context: CONTEXT,
                tag,
                ignore: 0,
            };
            // Rounds of a failed operation are in progress together, so they use no memory.
            let bytes = running.failure.map_or(into.len, |_| 0);
            // SAFETY:
            // - the bytes are within the buffer, which stays until the receive has ended. No other send or receive of the round uses them.
            let ticket = unsafe { mailbox.receive(pattern, base.wrapping_add(into.at), bytes) };
            let role = Role::Round {
                running: key,
                bytes,
                source,
            };
            let awaiting = Awaiting { ticket, role };
            collectives.awaiting.insert(ticket.index(), awaiting);
            running.open += 1;
        }
        for (to, Span { at, len }) in &round.sends {
            let Ok(number) = group.members[*to as usize].number else {
                running.failure.get_or_insert(Errno::CONNRESET);
                continue;
            };
            let failure = running.failure.map_or(0, |errno| errno.0);
            let envelope = Envelope {
                context: CONTEXT,
                tag,
                extra: failure as u64,
            };
            let data = match failure {
                0 => (base.wrapping_add(*at).cast_const(), *len),
                _ => (base.cast_const(), 0),
            };
            // SAFETY:
            // - the bytes are within the buffer, which stays unchanged until all sends of the round have ended.
            let sent =
                unsafe { mailbox.send(engine, number, envelope, data, Mode::Buffered, false) };
            match sent {
                Ok(None) => {}
                Ok(Some(ticket)) => {
                    running.open += 1;
                    self.sent.push(Sent {
                        to: number,
                        ticket,
                        after: After::Collective(key),
                        _held: None,
                    });
                    self.stale = true;
                }
                Err(error) => {
                    running.failure.get_or_insert(errno(error));
                }
            }
        }
    }
}

impl Messages {
    /// Posts the receive for the report that a group has lost a member.
    pub(super) fn await_loss(&mut self, key: usize) {
        let group = &mut self.collectives.groups[key];
        let pattern = Pattern {
            source: None,
            context: CONTEXT,
            tag: group.loss_tag(),
            ignore: 0,
        };
        // SAFETY:
        // - the message has no bytes.
        let ticket = unsafe { self.mailbox.receive(pattern, std::ptr::null_mut(), 0) };
        group.losses = Some(ticket);
        let role = Role::Loss(key);
        let awaiting = Awaiting { ticket, role };
        self.collectives.awaiting.insert(ticket.index(), awaiting);
    }

    /// Reports to all other members that the group has lost a member.
    fn report_loss(&mut self, engine: &Engine, key: usize, errno: Errno) {
        let group = &self.collectives.groups[key];
        let envelope = Envelope {
            context: CONTEXT,
            tag: group.loss_tag(),
            extra: errno.0 as u64,
        };
        let members = group.members.iter();
        let numbers: Vec<u32> = members.filter_map(|member| member.number.ok()).collect();
        for number in numbers {
            // A dead member needs no report.
            let _ = self.dispatch(engine, number, envelope, Box::default(), After::Nothing);
        }
    }

    /// Begins all remaining rounds of a failed operation.
    fn abandon(&mut self, engine: &Engine, key: usize) {
        while let Some(running) = self.collectives.running.get_mut(key)
            && running.round + usize::from(running.begun) < running.plan.rounds.len()
        {
            running.round += usize::from(running.begun);
            running.begun = true;
            self.begin_round(engine, key);
        }
    }
}

impl super::Collectives {
    /// Notes that a send of an operation has ended. [`State::move_collectives`] continues the operation.
    #[cold]
    pub fn sent(&mut self, key: usize, result: std::result::Result<(), unipgas_core::Error>) {
        let Some(running) = self.running.get_mut(key) else {
            return;
        };
        running.open -= 1;
        if let Err(error) = result {
            running.failure.get_or_insert(errno(error));
        }
        self.moved.push(key);
    }
}

impl State {
    /// Begins an operation.
    pub(super) fn begin(&mut self, reports: &Reports, running: Running) {
        if let Some(messages) = &mut self.messages {
            messages.unanswered += 1;
            let key = messages.collectives.running.insert(running);
            self.advance(reports, key);
            self.report_messages(reports);
        }
    }

    /// Continues operations with a send that has ended.
    #[cold]
    pub(crate) fn move_collectives(&mut self, reports: &Reports) {
        while let Some(messages) = &mut self.messages
            && let Some(key) = messages.collectives.moved.pop()
        {
            self.advance(reports, key);
        }
    }

    /// Handles the end of a receive. False: it belongs to no collective operation.
    #[cold]
    pub(crate) fn collective_received(&mut self, reports: &Reports, ticket: ReceiveTicket) -> bool {
        let Some(messages) = &mut self.messages else {
            return false;
        };
        let known = messages.collectives.awaiting.get(&ticket.index());
        if known.is_none_or(|known| known.ticket != ticket) {
            return false;
        }
        // `None`: only an earlier receive with this index has ended.
        let Some(result) = messages.mailbox.test_receive(ticket) else {
            return true;
        };
        let Some(known) = messages.collectives.awaiting.remove(&ticket.index()) else {
            return true;
        };
        let (key, bytes) = match known.role {
            Role::Round { running, bytes, .. } => (running, bytes),
            Role::Loss(key) => {
                self.loss_received(reports, key, ticket, result);
                return true;
            }
        };
        let Some(running) = messages.collectives.running.get_mut(key) else {
            return true;
        };
        running.open -= 1;
        if let Err(errno) = checked(result, bytes) {
            running.failure.get_or_insert(errno);
        }
        self.advance(reports, key);
        true
    }

    /// Runs the operation until it waits or ends.
    fn advance(&mut self, reports: &Reports, key: usize) {
        loop {
            self.tell_failed(reports, key);
            let Some(messages) = &mut self.messages else {
                return;
            };
            let Some(running) = messages.collectives.running.get_mut(key) else {
                return;
            };
            if running.failure.is_some() && !std::mem::replace(&mut running.abandoned, true) {
                messages.abandon(self.domain.engine(), key);
            } else if running.open > 0 {
                return;
            } else if std::mem::take(&mut running.begun) {
                running.combine();
                running.round += 1;
            } else if running.round == running.plan.rounds.len() {
                return self.finish(reports, key);
            } else {
                running.begun = true;
                messages.begin_round(self.domain.engine(), key);
            }
        }
    }

    /// Reports the failure of an operation once.
    fn tell_failed(&mut self, reports: &Reports, key: usize) {
        if let Some(messages) = &mut self.messages
            && let Some(running) = messages.collectives.running.get_mut(key)
            && let Some(errno) = running.failure
            && let Some(end) = running.end.take()
        {
            messages.unanswered -= 1;
            let group = running.group;
            let left = messages.collectives.groups[group].left;
            match end {
                // Without a queue and a counter no receiver for the failure exists.
                End::Report(report, _) => drop(reports.fail(&report, errno)),
                End::Join(_) if left => {}
                End::Join(joined) => joined(Err(errno)),
            }
            if matches!(errno, Errno::CONNRESET | Errno::HOSTUNREACH) {
                self.lose_member(reports, group, errno);
            }
        }
    }

    /// Handles the report of another member that the group has lost a member.
    fn loss_received(
        &mut self,
        reports: &Reports,
        key: usize,
        ticket: ReceiveTicket,
        result: std::result::Result<Received, unipgas_core::Error>,
    ) {
        if let Some(messages) = &mut self.messages
            && let Some(group) = messages.collectives.groups.get(key)
            && group.losses == Some(ticket)
            && let Ok(received) = result
        {
            // Each other member reports the loss.
            messages.await_loss(key);
            self.lose_member(reports, key, Errno(received.envelope.extra as i32));
        }
    }

    /// Fails the operations of a group that has lost a member, and later ones.
    fn lose_member(&mut self, reports: &Reports, key: usize, errno: Errno) {
        if let Some(messages) = &mut self.messages
            && let group = &mut messages.collectives.groups[key]
            && !group.left
            && group.lost.is_none()
        {
            group.lost = Some(errno);
            messages.report_loss(self.domain.engine(), key, errno);
            self.fail_group(reports, key, errno);
        }
    }

    /// Ends an operation after its last round.
    fn finish(&mut self, reports: &Reports, key: usize) {
        let Some(messages) = &mut self.messages else {
            return;
        };
        let mut running = messages.collectives.running.remove(key);
        let group = &mut messages.collectives.groups[running.group];
        group.running -= 1;
        let end = running.end.take();
        messages.unanswered -= usize::from(end.is_some());
        match end {
            None => {}
            Some(End::Report(report, result)) => {
                running.store(result);
                reports.succeed(&report);
            }
            Some(End::Join(joined)) => {
                group.joined = true;
                joined(Ok(()));
            }
        }
        messages.collectives.drop_left(running.group);
    }

    /// Fails the operations of a group that the program has left.
    pub(super) fn leave_group(&mut self, reports: &Reports, key: usize) {
        self.fail_group(reports, key, Errno::CANCELED);
        if let Some(messages) = &mut self.messages {
            messages.collectives.drop_left(key);
        }
    }

    /// Fails the operations of a group that are in progress.
    fn fail_group(&mut self, reports: &Reports, key: usize, errno: Errno) {
        let Some(messages) = &mut self.messages else {
            return;
        };
        let running = messages.collectives.running.iter_mut();
        let of_group: Vec<usize> = running
            .filter(|(_, running)| running.group == key)
            .map(|(nth, running)| {
                running.failure.get_or_insert(errno);
                nth
            })
            .collect();
        for nth in of_group {
            self.advance(reports, nth);
        }
    }
}

impl super::Collectives {
    /// Whether an operation of the group has no reported result yet.
    pub(super) fn has_begun(&self, key: usize) -> bool {
        let mut running = self.running.iter();
        running.any(|(_, running)| running.group == key && running.end.is_some())
    }

    /// Removes a group that the program has left, once no operation of it is in progress.
    fn drop_left(&mut self, key: usize) {
        let group = self.groups.get(key);
        if group.is_some_and(|group| group.left && group.running == 0) {
            self.groups.remove(key);
        }
    }
}

/// The result of a receive of `bytes` bytes. Errors: the failure of the sender's operation, or of the message.
fn checked(result: std::result::Result<Received, unipgas_core::Error>, bytes: usize) -> Result<()> {
    let received = result.map_err(errno)?;
    match received.envelope.extra as i32 {
        0 if received.len == bytes => Ok(()),
        // The members do not agree on the operation.
        0 => Err(Errno::TRUNC),
        failure => Err(Errno(failure)),
    }
}
