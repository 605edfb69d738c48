//! Operations in progress: their parts, notices to targets, and notices of peers.

use std::collections::VecDeque;
use std::sync::Arc;

use slab::Slab;
use unipgas_core::inbox::{InboxReader, Record};
use unipgas_core::liveness_timer::LivenessTimer;
use unipgas_core::{
    Completion, Endpoint as Channel, Error, Flags, MoreBatch, Outcome, Region, process,
};

use crate::av::AddressVector;
use crate::completion::CqEntry;
use crate::domain::Domain;
use crate::messages::{Messages, errno};
use crate::operation::{CounterEvent, Report, Reports};
use crate::pending::{Notice, Operation, Turn};
use crate::status::{Errno, Result};
use crate::sys::{FI_ADDR_NOTAVAIL, FI_REMOTE_CQ_DATA, FI_REMOTE_WRITE, FI_RMA};
use crate::target::Target;

/// Record kind of notices.
pub(crate) const DATA: u32 = 1;

/// An operation to run, without its memory.
pub(crate) struct Job {
    pub to: u64,
    pub report: Report,
    /// For the target, once all effects are visible there.
    pub notice: Option<Record>,
    /// The operation has several parts, which leave together.
    pub several: bool,
    /// FI_MORE: another operation follows, and this one may leave with it.
    pub more: bool,
    /// Number of bytes that it moves.
    pub bytes: usize,
}

/// The parts of an operation.
pub(crate) trait Parts {
    /// Checks all parts. An invalid part fails the whole operation before any effect.
    fn check(&self, domain: &Domain, target: &mut Target) -> Result<()>;

    /// Posts the next part. `None`: all have been posted.
    fn post_next(&mut self, via: Via<'_>, target: &mut Target) -> Result<Option<Outcome>>;
}

/// The channel for the parts of an operation, and the context of their completions.
#[derive(Clone, Copy)]
pub(crate) struct Via<'a> {
    pub domain: &'a Domain,
    pub channel: &'a Channel,
    pub context: u64,
}

/// An endpoint's operations. One thread at a time uses it.
pub(crate) struct State {
    pub domain: Arc<Domain>,
    pub av: Option<Arc<AddressVector>>,
    pub channel: Arc<Channel>,
    removals: u64,
    pub targets: Vec<Option<Box<Target>>>,
    operations: Slab<Operation>,
    /// Operations with a notice or counts to send, in the order of posting.
    notices: VecDeque<usize>,
    /// Ids of endpoints with a notice in flight, one entry for each notice.
    told: Vec<u64>,
    /// Number of operations that were posted.
    posted: u64,
    inbox: InboxReader,
    /// Dropped after its reader.
    _inbox_memory: Region,
    pub messages: Option<Messages>,
    /// Operations that were posted with FI_MORE.
    pub batch: MoreBatch,
    /// Completions name the sender.
    pub tells_sources: bool,
    /// Limits liveness checks while operations find no room.
    liveness: LivenessTimer,
    /// A liveness check is due.
    look_is_due: bool,
    /// Bytes of the last operation on the fast path.
    tried: usize,
}

impl State {
    pub fn new(
        domain: &Arc<Domain>,
        channel: Arc<Channel>,
        inbox: InboxReader,
        inbox_memory: Region,
        messages: Option<Messages>,
    ) -> State {
        State {
            domain: domain.clone(),
            av: None,
            channel,
            removals: 0,
            targets: Vec::new(),
            operations: Slab::new(),
            notices: VecDeque::new(),
            told: Vec::new(),
            posted: 0,
            inbox,
            _inbox_memory: inbox_memory,
            messages,
            batch: MoreBatch::default(),
            tells_sources: false,
            liveness: LivenessTimer::default(),
            look_is_due: false,
            tried: 0,
        }
    }

    /// Whether an access to a peer's memory is in progress.
    pub fn has_accesses(&self) -> bool {
        !self.operations.is_empty()
    }

    /// Used places of the transmit context: the program's operations in progress.
    pub fn under_way(&self) -> usize {
        let messages = self.messages.as_ref();
        self.operations.len() + messages.map_or(0, Messages::under_way)
    }

    /// Makes progress for a caller without room. The operations that use the room may wait for a dead peer.
    #[cold]
    pub fn find_room(&mut self, reports: &Reports) {
        if self.liveness.is_due() {
            self.look_at_peers(reports);
        } else {
            self.progress(reports);
        }
    }

    /// Whether an operation to the endpoint at `to` is in progress, whatever its address was at the post.
    pub fn is_under_way_to(&self, to: u64) -> bool {
        if self.operations.is_empty() {
            return false;
        }
        let Some(id) = self.id_of(to) else {
            return false;
        };
        self.operations
            .iter()
            .any(|(_, operation)| operation.peer == id)
    }

    /// The id of the endpoint at an address.
    pub fn id_of(&self, address: u64) -> Option<u64> {
        Some(self.av.as_ref()?.name(address).ok()?.id())
    }

    /// The number of an endpoint among the peers of the mailbox, if it is cached.
    pub fn known_number(&self, id: u64) -> Option<u32> {
        let mut targets = self.targets.iter().flatten();
        targets.find_map(|target| target.number.filter(|_| target.name.id() == id))
    }

    /// The endpoint at `address`, for an operation that completes at once. `None` if it is unknown or counted, operations are in progress, or a
    /// liveness check is due. The operation is counted; [`State::not_done`] takes that back.
    #[inline(always)]
    pub fn target_fast(&mut self, address: u64, bytes: usize) -> Option<(&Channel, &mut Target)> {
        let av = self.av.as_ref()?;
        if !self.operations.is_empty() | (av.removals() != self.removals) {
            return None;
        }
        let target = self.targets.get_mut(address as usize)?.as_mut()?;
        if !target.uncounted {
            return None;
        }
        self.tried = bytes;
        if self.channel.count(bytes) {
            self.look_is_due = true;
            self.channel.not_done(bytes);
            return None;
        }
        Some((&self.channel, target))
    }

    /// Takes back the count of an operation of [`State::target_fast`] that has not been done.
    #[cold]
    pub fn not_done<T>(&self) -> Option<T> {
        self.channel.not_done(self.tried);
        None
    }

    /// The endpoint at `address`. Errors: the outer one for an address that is not in use, the inner one if the endpoint is unreachable.
    #[inline(always)]
    pub fn target(&mut self, address: u64) -> Result<std::result::Result<&mut Target, Errno>> {
        let known = self
            .av
            .as_ref()
            .is_some_and(|av| av.removals() == self.removals)
            && matches!(self.targets.get(address as usize), Some(Some(_)));
        if !known && let Err(errno) = self.find(address)? {
            return Ok(Err(errno));
        }
        match self.targets.get_mut(address as usize) {
            Some(Some(target)) => Ok(Ok(target)),
            _ => Err(Errno::INVAL),
        }
    }

    #[cold]
    fn find(&mut self, address: u64) -> Result<std::result::Result<(), Errno>> {
        let av = self.av.as_ref().ok_or(Errno::OPBADSTATE)?;
        let removals = av.removals();
        if removals != self.removals {
            for (index, place) in self.targets.iter_mut().enumerate() {
                // Another endpoint may have the address now.
                let name = av.name(index as u64).ok();
                if place.as_ref().map(|target| target.name) != name {
                    *place = None;
                }
            }
            self.removals = removals;
        }
        let name = av.name(address)?;
        let place = address as usize;
        if self.targets.len() <= place {
            self.targets.resize_with(place + 1, || None);
        }
        if self.targets[place].is_none() {
            match Target::open(&self.domain, name) {
                Ok(target) => self.targets[place] = Some(Box::new(target)),
                Err(error) => return Ok(Err(errno(error))),
            }
        }
        Ok(Ok(()))
    }

    /// Runs an operation. Errors: errors of the call. Queues and counters report the result of the operation.
    #[inline(always)]
    pub fn run(&mut self, reports: &Reports, job: Job, parts: impl Parts) -> Result<()> {
        let (more, among) = (job.more, self.is_among(job.several | job.more));
        if among {
            self.begin_among(job.to);
        }
        let posted = self.run_alone(reports, &job, parts);
        if among {
            self.end_among(more);
        }
        posted
    }

    /// Whether an operation leaves in a batch: with its own parts, if it has `several`, or with operations that were posted before.
    #[inline(always)]
    pub fn is_among(&self, several: bool) -> bool {
        several | !self.batch.is_empty()
    }

    /// Begins a batch of operations to the endpoint at `to`.
    #[cold]
    pub fn begin_among(&mut self, to: u64) {
        if self.domain.engine().is_driven()
            && let Ok(Ok(target)) = self.target(to)
            && target.inbox.is_asynchronous()
        {
            let to = target.inbox.clone();
            self.batch.begin(&self.channel, to);
        }
    }

    /// Ends a call of the batch. `more`: another call follows.
    #[cold]
    pub fn end_among(&mut self, more: bool) {
        self.batch.end(&self.channel, more);
    }

    #[inline(always)]
    fn run_alone(&mut self, reports: &Reports, job: &Job, parts: impl Parts) -> Result<()> {
        if self.channel.count(job.bytes) | self.look_is_due {
            self.look_at_peers(reports);
        }
        let peer = match self.target(job.to)? {
            Ok(target) => target.name.id(),
            Err(errno) => return reports.fail(&job.report, errno),
        };
        let turn = self.turn_of_notice(job.to, peer);
        let operation = self.post(job, peer, turn, parts);
        if operation.needs_no_more() {
            return reports.end(&job.report, operation.error);
        }
        self.keep(reports, operation, turn);
        Ok(())
    }

    fn turn_of_notice(&self, to: u64, peer: u64) -> Turn {
        let is_told = self.told.contains(&peer);
        if self.to_be_told(peer).next().is_some() || is_told && !self.chains(to) {
            Turn::Later
        } else if is_told {
            Turn::Chained
        } else {
            Turn::First
        }
    }

    /// Posts the parts of an operation. Its notice may leave with a part, if it is not this notice's turn later.
    #[inline(always)]
    fn post(&mut self, job: &Job, peer: u64, turn: Turn, mut parts: impl Parts) -> Operation {
        let asynchronous = self.domain.engine().is_driven();
        let context = match asynchronous {
            true => self.operations.vacant_key() as u64 + 1,
            false => 0,
        };
        let target = self.targets[job.to as usize].as_mut().expect("just found");
        let order = match turn {
            Turn::Chained => Flags::CHAINED,
            Turn::First | Turn::Later => Flags::empty(),
        };
        let along = job.notice.filter(|_| asynchronous && turn != Turn::Later);
        target.along = along.map(|record| (record, order));
        if !target.uncounted {
            target.begin_counting(&self.domain, job.report.counted == CounterEvent::Write);
        }
        let via = Via {
            domain: &self.domain,
            channel: &self.channel,
            context,
        };
        let mut left = 0;
        let mut post_all = || {
            parts.check(via.domain, target)?;
            while let Some(outcome) = parts.post_next(via, target)? {
                left += u32::from(outcome == Outcome::Pending);
            }
            Ok(())
        };
        let error = post_all().err();
        let remains = target.along.take();
        let mut operation = Operation {
            to: job.to,
            number: 0,
            peer,
            report: job.report,
            left,
            error,
            notice: match job.notice {
                None => Notice::None,
                Some(record) if along.is_some() && remains.is_none() => Notice::InFlight(record),
                Some(record) => Notice::Waiting(record),
            },
            counting: Vec::new(),
        };
        if target.counting.is_empty() {
            return operation;
        }
        if operation.needs_no_more() && operation.error.is_none() {
            let failure;
            (operation.left, failure) = target.count(&self.channel, &target.counting, context);
            target.counting.clear();
            operation.error = failure.map(|failure| target.why(failure));
        } else {
            operation.counting = std::mem::take(&mut target.counting);
        }
        operation
    }

    /// Keeps an operation that has not ended.
    fn keep(&mut self, reports: &Reports, mut operation: Operation, turn: Turn) {
        self.posted += 1;
        operation.number = self.posted;
        let waits = operation.waits_to_tell();
        let leaves = operation.left == 0 || turn != Turn::Later;
        if let Notice::InFlight(_) = operation.notice {
            self.told.push(operation.peer);
        }
        let key = self.operations.insert(operation);
        if waits {
            self.notices.push_back(key);
            if leaves {
                self.tell_targets(reports);
            }
        }
    }

    /// Operations to this peer that wait to send a notice or counts.
    fn to_be_told(&self, peer: u64) -> impl Iterator<Item = &Operation> {
        let keys = self.notices.iter();
        let waiting = keys.filter_map(|key| self.operations.get(*key));
        waiting.filter(move |one| one.peer == peer)
    }

    /// Whether several notices may be in flight to a target. The channel must keep chains: a notice behind a refused one is refused, too.
    fn chains(&self, to: u64) -> bool {
        let target = self.targets.get(to as usize).and_then(Option::as_ref);
        target.is_some_and(|target| self.channel.chains(&target.inbox))
    }

    /// Queues an operation with a refused notice again, in the order of posting.
    fn wait_again(&mut self, key: usize) {
        let number_of = |key: &usize| self.operations.get(*key).map(|one| one.number);
        let number = number_of(&key);
        let later = |other: &usize| number_of(other) > number;
        let at = self.notices.iter().position(later);
        self.notices.insert(at.unwrap_or(self.notices.len()), key);
    }

    /// Sends notices to targets in the order of posting, behind the parts in flight. Without room for one, later notices to this target wait.
    #[cold]
    fn tell_targets(&mut self, reports: &Reports) {
        let mut stuck = self.told.clone();
        let is_refused = |one: &Operation| matches!(one.notice, Notice::Refused(_));
        stuck.retain(|peer| self.to_be_told(*peer).any(is_refused));
        for _ in 0..self.notices.len() {
            let Some(key) = self.notices.pop_front() else {
                return;
            };
            let Some(operation) = self.operations.get(key) else {
                continue;
            };
            let (to, peer) = (operation.to, operation.peer);
            // Later notices wait until the target has taken a refused one.
            let again = is_refused(operation);
            let waits = stuck.contains(&peer) || self.told.contains(&peer) && !self.chains(to);
            if waits {
                self.notices.push_back(key);
            } else if operation.has_to_end_first() || !self.tell_target(reports, key) {
                self.notices.push_back(key);
                stuck.push(peer);
            } else if again {
                stuck.push(peer);
            }
        }
    }

    /// Sends a notice, or counts. False: the target has no room.
    fn tell_target(&mut self, reports: &Reports, key: usize) -> bool {
        let Some(operation) = self.operations.get_mut(key) else {
            return true;
        };
        let order = match self.told.contains(&operation.peer) {
            true => Flags::ORDERED | Flags::CHAINED,
            false => Flags::ORDERED,
        };
        if operation.error.is_none()
            && let Some(record) = operation.notice.record()
        {
            let target = target_of(&mut self.targets, operation).ok_or(Errno::CANCELED);
            let outcome = target.and_then(|target| {
                let context = key as u64 + 1;
                let channel = &self.channel;
                match channel.deliver((&target.inbox).into(), record, order, context) {
                    Err(Error::InboxFull) if !target.has_gone() => Ok(None),
                    Err(Error::InboxFull) => Err(Errno::CONNRESET),
                    Ok(outcome) => Ok(Some(outcome)),
                    Err(error) => Err(target.why(error)),
                }
            });
            match outcome {
                Ok(Some(Outcome::Complete)) => {}
                Ok(Some(Outcome::Pending)) => operation.left += 1,
                Ok(None) => {
                    operation.notice = Notice::Waiting(record);
                    return false;
                }
                Err(errno) => operation.error = Some(errno),
            }
            if operation.left > 0 {
                operation.notice = Notice::InFlight(record);
                self.told.push(operation.peer);
                return true;
            }
            operation.notice = Notice::None;
        }
        self.count_or_end(reports, key);
        true
    }

    /// Counts or ends an operation, once the target has its notice.
    #[cold]
    fn count_or_end(&mut self, reports: &Reports, key: usize) {
        let Some(operation) = self.operations.get_mut(key) else {
            return;
        };
        let counting = std::mem::take(&mut operation.counting);
        if operation.error.is_none() && !counting.is_empty() {
            operation.error = match target_of(&mut self.targets, operation) {
                Some(target) => {
                    let failure;
                    (operation.left, failure) =
                        target.count(&self.channel, &counting, key as u64 + 1);
                    failure.map(|failure| target.why(failure))
                }
                None => Some(Errno::CANCELED),
            };
            if operation.left > 0 {
                return;
            }
        }
        self.end(reports, key);
    }

    fn end(&mut self, reports: &Reports, key: usize) {
        let operation = self.operations.remove(key);
        // Without a queue and a counter no receiver for a failure exists.
        let _ = reports.end(&operation.report, operation.error);
    }

    /// Makes progress.
    #[inline(always)]
    pub fn progress(&mut self, reports: &Reports) {
        // Other engines never have pending operations, and the question costs a call.
        if self.domain.engine().is_driven() {
            if self.channel.pending() > 0 {
                self.poll(reports);
            } else {
                self.domain.engine().progress();
            }
        }
        if !self.notices.is_empty() {
            self.tell_targets(reports);
        }
        if self.inbox.has_work() {
            self.take_notices(reports);
        }
        self.progress_messages(reports);
    }

    #[cold]
    pub fn poll(&mut self, reports: &Reports) {
        let mut ends = Vec::new();
        self.channel.poll(&mut |completion| ends.push(completion));
        for completion in ends {
            self.end_part(reports, completion);
        }
    }

    /// Notes the end of a part or notice. Continues the operation when no other is in flight.
    fn end_part(&mut self, reports: &Reports, completion: Completion) {
        let key = (completion.context as usize).wrapping_sub(1);
        let Some(operation) = self.operations.get_mut(key) else {
            return;
        };
        operation.left -= 1;
        match (completion.result, &operation.notice) {
            (Ok(()), _) => {}
            (Err(Error::InboxFull), &(Notice::InFlight(record) | Notice::Refused(record))) => {
                operation.notice = Notice::Refused(record);
            }
            (Err(error), _) => {
                let errno = match target_of(&mut self.targets, operation) {
                    Some(target) => target.why(error),
                    None => error.into(),
                };
                operation.error.get_or_insert(errno);
            }
        }
        if operation.left > 0 {
            return;
        }
        let peer = operation.peer;
        match operation.notice {
            Notice::Refused(_) if operation.error.is_none() => {
                self.note_told(peer);
                self.wait_again(key);
            }
            Notice::InFlight(_) | Notice::Refused(_) => {
                operation.notice = Notice::None;
                self.note_told(peer);
                self.count_or_end(reports, key);
            }
            // [`State::tell_targets`] continues it.
            _ if operation.waits_to_tell() => {}
            _ => self.end(reports, key),
        }
    }

    /// A notice to this peer is no longer in flight.
    fn note_told(&mut self, peer: u64) {
        if let Some(one) = self.told.iter().position(|other| *other == peer) {
            self.told.swap_remove(one);
        }
    }

    #[cold]
    fn take_notices(&mut self, reports: &Reports) {
        while reports
            .receive
            .as_ref()
            .is_none_or(|queue| !queue.is_full())
        {
            let Some(record) = self.inbox.take() else {
                return;
            };
            if record.kind == DATA
                && let Some(queue) = &reports.receive
            {
                let av = self.av.as_ref();
                queue.push(CqEntry {
                    flags: FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA,
                    len: record.offset as usize,
                    data: record.value,
                    source: av.map_or(FI_ADDR_NOTAVAIL, |av| av.address_of(record.source)),
                    ..CqEntry::default()
                });
            }
        }
    }

    /// Checks the liveness of peers. Ends messages to and from dead peers.
    #[cold]
    pub fn look_at_peers(&mut self, reports: &Reports) {
        self.look_is_due = false;
        self.inbox.pass_over(process::has_ended);
        for target in self.targets.iter().flatten() {
            if target.has_gone()
                && let (Some(number), Some(messages)) = (target.number, &mut self.messages)
            {
                messages.forget(number);
            }
        }
        if let Some(messages) = &mut self.messages {
            messages.forget_busy();
            messages.forget_the_dead(&self.domain, reports);
        }
        self.make_room(reports);
        self.progress(reports);
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // No later call sends the held-back operations, and the program may reuse their memory.
        self.batch.leave(&self.channel);
    }
}

/// The target of an operation, unless its address has been removed.
fn target_of<'a>(
    targets: &'a mut [Option<Box<Target>>],
    operation: &Operation,
) -> Option<&'a mut Target> {
    let target = targets.get_mut(operation.to as usize)?.as_mut()?;
    (target.name.id() == operation.peer).then_some(target)
}
