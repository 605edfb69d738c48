//! Collective operations in progress.
//!
//! A member that fails reports it at once to all members that need a message from it. So the death of a member ends the operation at all members
//! that depend on it. A failed operation stays until it has received all messages that the other members send for it.
//!
//! The death of a member ends all later operations, too. A member that has failed may begin no more operations, and members that do not depend on the
//! dead one would wait for it. So each member reports the loss once to all others.

use unipgas_base::Error;
use unipgas_base::atomic::combine_alone;

use super::plan::{CollectivePlan, Receive, Span};
use super::{Awaited, CollectiveEnd, CollectiveGroup, CollectiveUser, GroupCalls, LOSS};
use crate::{Envelope, Mode, Pattern, ReceiveTicket};

/// An operation in progress.
pub(super) struct Running<T> {
    pub group: usize,
    /// Number among the operations of the group.
    number: u64,
    plan: CollectivePlan,
    /// Aligned for all types.
    memory: Box<[u128]>,
    /// Destination of the result.
    result: *mut u8,
    /// The current round. If it has `begun`, `open` of its sends and receives are in progress.
    round: usize,
    begun: bool,
    open: usize,
    failure: Option<i32>,
    /// `None`: the result has been reported.
    pub end: Option<T>,
}

// SAFETY:
// - contract of `GroupCalls::begin`: `result` is valid on each thread until the operation has ended.
unsafe impl<T: Send> Send for Running<T> {}

impl<T> Running<T> {
    /// The next operation of the group. Errors: [`Error::Exhausted`].
    pub fn new<G>(
        key: usize,
        group: &mut CollectiveGroup<G>,
        plan: CollectivePlan,
        result: *mut u8,
        end: T,
    ) -> Result<Self, Error> {
        let words = plan.len.div_ceil(size_of::<u128>());
        let mut memory = Vec::new();
        let reserved = memory.try_reserve_exact(words);
        reserved.map_err(|_| Error::Exhausted("memory".into()))?;
        memory.resize(words, 0);
        group.begun += 1;
        group.running += 1;
        Ok(Running {
            group: key,
            number: group.begun,
            plan,
            memory: memory.into(),
            result,
            round: 0,
            begun: false,
            open: 0,
            failure: group.lost,
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
    fn combine(&mut self) -> Result<(), Error> {
        let round = self.plan.rounds.get(self.round);
        let Some((op, ty)) = self.plan.combination.filter(|_| self.failure.is_none()) else {
            return Ok(());
        };
        let base = self.memory.as_mut_ptr().cast::<u8>();
        for Receive { into, onto, .. } in round.iter().flat_map(|round| &round.receives) {
            let Some(onto) = onto else {
                continue;
            };
            let (onto, from) = (base.wrapping_add(*onto), base.wrapping_add(into.at));
            // SAFETY:
            // - both ranges are within the buffer and do not overlap. The sends and receives of the round have ended, so no other code uses the buffer.
            unsafe { combine_alone(op, ty, onto, into.len / ty.size(), from)? };
        }
        Ok(())
    }

    /// Writes the result of a successful operation.
    fn store(&mut self) {
        if let Some(Span { at, len }) = self.plan.store {
            let result = self.result;
            // SAFETY:
            // - contract of `GroupCalls::begin`: `result` is valid for writes until the operation has ended, and as long as the plan's result.
            let result = unsafe { std::slice::from_raw_parts_mut(result, len) };
            result.copy_from_slice(&self.bytes()[at..at + len]);
        }
    }
}

impl<U: CollectiveUser> GroupCalls<'_, U> {
    pub(super) fn start(&mut self, running: Running<U::Operation>) {
        let key = self.all.running.insert(running);
        self.advance(key);
    }

    /// Handles the ends of sends.
    #[cold]
    pub fn test_sends(&mut self) {
        let mut ended = Vec::new();
        self.all.sent.retain(|(_, ticket, running)| {
            let result = self.mailbox.test_send(*ticket);
            let remains = result.is_none();
            ended.extend(running.zip(result));
            remains
        });
        for (running, result) in ended {
            self.end_part(running, result.map_err(U::failure));
        }
    }

    /// Handles the end of a receive. False: it belongs to no operation.
    #[cold]
    pub fn received(&mut self, ticket: ReceiveTicket) -> bool {
        if !self.all.awaited.contains_key(&ticket) {
            return false;
        }
        // `None`: only an earlier receive with this ticket has ended.
        if let Some(result) = self.mailbox.test_receive(ticket)
            && let Some(awaited) = self.all.awaited.remove(&ticket)
        {
            let result = result.map_err(U::failure);
            let told = result.map(|received| (received.envelope.extra as i32, received.len));
            match (awaited, told) {
                (Awaited::Round { running, bytes, .. }, told) => {
                    let result = match told {
                        Ok((0, len)) if len == bytes => Ok(()),
                        Ok((0, _)) => Err(U::DISAGREEMENT),
                        Ok((failure, _)) | Err(failure) => Err(failure),
                    };
                    self.end_part(running, result);
                }
                (Awaited::Loss(key), Ok((failure, _))) => {
                    // Each other member reports the loss.
                    self.await_loss(key);
                    self.lose_member(key, failure);
                }
                (Awaited::Loss(_), Err(_)) => {}
            }
        }
        true
    }

    /// Handles the end of a send or receive.
    fn end_part(&mut self, key: usize, result: Result<(), i32>) {
        if let Some(running) = self.all.running.get_mut(key) {
            running.open -= 1;
            if let Err(failure) = result {
                running.failure.get_or_insert(failure);
            }
            self.advance(key);
        }
    }

    /// Runs the operation until it waits or ends.
    fn advance(&mut self, key: usize) {
        loop {
            self.report_failure(key);
            let Some(running) = self.all.running.get_mut(key) else {
                return;
            };
            let next = running.round + usize::from(running.begun);
            let rounds = running.plan.rounds.len();
            // The members that need messages of a failed operation do not wait for its rounds.
            if running.failure.is_some() && next < rounds {
                (running.round, running.begun) = (next, true);
                self.begin_round(key);
            } else if running.open > 0 {
                return;
            } else if std::mem::take(&mut running.begun) {
                if let Err(error) = running.combine() {
                    running.failure.get_or_insert(U::failure(error));
                }
                running.round = next;
            } else if running.round == rounds {
                return self.finish(key);
            } else {
                running.begun = true;
                self.begin_round(key);
            }
        }
    }

    /// Posts the sends and receives of an operation's round.
    fn begin_round(&mut self, key: usize) {
        let running = &mut self.all.running[key];
        let group = &self.all.groups[running.group];
        let Some(round) = running.plan.rounds.get(running.round) else {
            return;
        };
        let base = running.memory.as_mut_ptr().cast::<u8>();
        let (context, tag) = (self.all.context, group.tag(running.number));
        let (engine, mode) = (self.engine, Mode::Buffered);
        let number = |member: u32| group.members[member as usize].number;
        let sources = round.receives.iter().map(|receive| receive.from);
        let mut peers = sources.chain(round.sends.iter().map(|(to, _)| *to));
        running.failure = running
            .failure
            .or(peers.find_map(|peer| number(peer).err()));
        for Receive { from, into, .. } in &round.receives {
            let Ok(source) = number(*from) else {
                continue;
            };
            let pattern = Pattern {
                source: Some(source),
                context,
                tag,
                ignore: 0,
            };
            // Rounds of a failed operation are in progress together, so they use no memory.
            let bytes = running.failure.map_or(into.len, |_| 0);
            let buffer = base.wrapping_add(into.at);
            // SAFETY:
            // - the bytes are within the buffer, which stays until the receive has ended. No other send or receive of the round uses them.
            let ticket = unsafe { self.mailbox.receive(pattern, buffer, bytes) };
            let awaited = Awaited::Round {
                running: key,
                bytes,
                source,
            };
            self.all.awaited.insert(ticket, awaited);
            running.open += 1;
        }
        for (to, Span { at, len }) in &round.sends {
            let Ok(to) = number(*to) else {
                continue;
            };
            let failure = running.failure.unwrap_or(0);
            let envelope = Envelope {
                context,
                tag,
                extra: failure as u64,
            };
            let len = if failure == 0 { *len } else { 0 };
            let data = (base.wrapping_add(*at).cast_const(), len);
            // SAFETY:
            // - the bytes are within the buffer, which stays unchanged until all sends of the round have ended.
            let sent = unsafe { self.mailbox.send(engine, to, envelope, data, mode, false) };
            match sent {
                Ok(None) => {}
                Ok(Some(ticket)) => {
                    running.open += 1;
                    self.all.sent.push((to, ticket, Some(key)));
                }
                Err(error) => {
                    running.failure.get_or_insert(U::failure(error));
                }
            }
        }
    }

    /// Posts the receive for the report that a group has lost a member.
    pub(super) fn await_loss(&mut self, key: usize) {
        let group = &mut self.all.groups[key];
        let pattern = Pattern {
            source: None,
            context: self.all.context,
            tag: group.tag(LOSS),
            ignore: 0,
        };
        // SAFETY:
        // - the message has no bytes.
        let ticket = unsafe { self.mailbox.receive(pattern, std::ptr::null_mut(), 0) };
        group.losses = Some(ticket);
        self.all.awaited.insert(ticket, Awaited::Loss(key));
    }

    /// Reports the failure of an operation once.
    fn report_failure(&mut self, key: usize) {
        if let Some(running) = self.all.running.get_mut(key)
            && let Some(failure) = running.failure
            && let Some(operation) = running.end.take()
        {
            let key = running.group;
            self.all.ended.push_back(CollectiveEnd {
                operation,
                result: Err(failure),
                left: self.all.groups[key].left,
            });
            if U::is_loss(failure) {
                self.lose_member(key, failure);
            }
        }
    }

    /// Fails the operations of a group that has lost a member, and later ones. Reports the loss to all other members.
    fn lose_member(&mut self, key: usize, failure: i32) {
        let group = &mut self.all.groups[key];
        if group.left || group.lost.is_some() {
            return;
        }
        group.lost = Some(failure);
        let envelope = Envelope {
            context: self.all.context,
            tag: group.tag(LOSS),
            extra: failure as u64,
        };
        let none = (std::ptr::dangling(), 0);
        let (engine, mode) = (self.engine, Mode::Buffered);
        let members = group.members.iter();
        for to in members.filter_map(|member| member.number.ok()) {
            // SAFETY:
            // - the message has no bytes.
            let sent = unsafe { self.mailbox.send(engine, to, envelope, none, mode, false) };
            // A dead member needs no report.
            if let Ok(Some(ticket)) = sent {
                self.all.sent.push((to, ticket, None));
            }
        }
        self.fail_group(key, failure);
    }

    /// Ends an operation after its last round.
    fn finish(&mut self, key: usize) {
        let mut running = self.all.running.remove(key);
        let group = &mut self.all.groups[running.group];
        group.running -= 1;
        if let Some(operation) = running.end.take() {
            running.store();
            // Other operations begin after the meeting.
            group.meeting = false;
            self.all.ended.push_back(CollectiveEnd {
                operation,
                result: Ok(()),
                left: group.left,
            });
        }
        self.all.drop_left(running.group);
    }

    /// Fails the operations of a group that are in progress.
    pub(super) fn fail_group(&mut self, key: usize, failure: i32) {
        let mut failed = Vec::new();
        for (nth, running) in &mut self.all.running {
            if running.group == key {
                running.failure.get_or_insert(failure);
                failed.push(nth);
            }
        }
        for nth in failed {
            self.advance(nth);
        }
    }
}
