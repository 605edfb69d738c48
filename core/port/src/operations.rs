//! Operations on memory of peers that may have several parts, and a notice for the peer. The notice arrives after all parts, and after the notices of
//! earlier operations to this peer. Words of the peer ([`tally`](crate::tally)) count the operation last.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;

use unipgas_base::Error;
use unipgas_engine::inbox::Record;
use unipgas_engine::op::{Completion, Flags, Outcome};
use unipgas_engine::{Endpoint, RemoteRegion};

use crate::tally::raise;

/// A peer. The caller keeps its peers in a list, in which an operation has the index of its peer.
pub trait Target {
    /// Reason of a failed operation.
    type Failure: Copy;

    /// Converts an error of an operation after the removal of its peer from the list.
    fn failure(error: Error) -> Self::Failure;

    /// Its id, in contrast to another peer that has the index later.
    fn id(&self) -> u64;

    /// Its inbox for notices.
    fn inbox(&self) -> &RemoteRegion;

    /// Its words that count operations.
    fn tallies(&self) -> &RemoteRegion;

    /// Whether it has ended.
    fn has_gone(&self) -> bool;

    /// Converts an error of an operation.
    fn why(&mut self, error: Error) -> Self::Failure;
}

/// The peers of a caller.
pub type Targets<T> = [Option<Box<T>>];

/// Delivery of an operation's notice.
#[derive(Clone, Copy)]
pub enum NoticeStage {
    /// The operation has no notice, or the target has it.
    None,
    /// It is sent behind the parts, and earlier notices to the target.
    Waiting(Record),
    /// It has left, perhaps with a part.
    InFlight(Record),
    /// The target had no room for it. It is sent again once no part is in flight.
    Refused(Record),
}

impl NoticeStage {
    fn record(self) -> Option<Record> {
        match self {
            NoticeStage::None => None,
            NoticeStage::Waiting(record)
            | NoticeStage::InFlight(record)
            | NoticeStage::Refused(record) => Some(record),
        }
    }
}

/// An operation that has not ended. Its parts have been posted.
pub struct OrderedOperation<R, F> {
    /// Index of its peer.
    pub to: usize,
    /// Id of its peer.
    pub peer: u64,
    /// For the caller, at the end.
    pub report: R,
    /// Number of parts in flight.
    pub left: u32,
    /// The first failure.
    pub error: Option<F>,
    /// The peer's words that count it, once its effects are visible and its notice has been delivered.
    pub counting: Vec<NonZeroU32>,
    /// For the peer.
    pub notice: NoticeStage,
}

impl<R, F: Copy> OrderedOperation<R, F> {
    /// Whether all parts must end before the next step. Only a notice can be posted behind parts in flight.
    fn has_to_end_first(&self) -> bool {
        self.left > 0 && (self.notice.record().is_none() || self.error.is_some())
    }

    /// Whether it waits to send its notice or counts.
    fn waits_to_tell(&self) -> bool {
        match self.notice {
            NoticeStage::None => !self.counting.is_empty(),
            NoticeStage::Waiting(_) | NoticeStage::Refused(_) => true,
            NoticeStage::InFlight(_) => false,
        }
    }

    /// The target, unless it has been removed.
    fn target<'a, T: Target<Failure = F>>(&self, targets: &'a mut Targets<T>) -> Option<&'a mut T> {
        let target = targets.get_mut(self.to)?.as_mut()?;
        (target.id() == self.peer).then_some(target)
    }

    /// Counts the operation at its target. Stops at the first error.
    fn count<T: Target<Failure = F>>(
        &mut self,
        channel: &Endpoint,
        targets: &mut Targets<T>,
        context: u64,
    ) {
        let counting = std::mem::take(&mut self.counting);
        if self.error.is_some() || counting.is_empty() {
            return;
        }
        let Some(target) = self.target(targets) else {
            self.error = Some(T::failure(Error::Ended));
            return;
        };
        let mut left = 0;
        let raised = counting.iter().try_for_each(|number| {
            let outcome = raise(channel, target.tallies(), *number, context)?;
            left += u32::from(outcome == Outcome::Pending);
            Ok(())
        });
        self.error = raised.map_err(|error| target.why(error)).err();
        self.left = left;
    }
}

/// Receives the report of an operation at its end, and its failure.
pub type Ends<'a, R, F> = &'a mut dyn FnMut(R, Option<F>);

/// The operations of an issue context. One thread at a time uses them.
pub struct Operations<R, F> {
    channel: Arc<Endpoint>,
    /// Open operations by number, in the order of posting. The contexts of parts are these numbers.
    all: BTreeMap<u64, OrderedOperation<R, F>>,
    /// Number of the last operation.
    last: u64,
    /// Operations with a notice or counts to send.
    untold: BTreeSet<u64>,
    /// Ids of targets with a notice in flight, one entry for each notice.
    told: Vec<u64>,
}

impl<R: Copy, F: Copy> Operations<R, F> {
    /// No operations.
    pub fn new(channel: Arc<Endpoint>) -> Self {
        Operations {
            channel,
            all: BTreeMap::new(),
            last: 0,
            untold: BTreeSet::new(),
            told: Vec::new(),
        }
    }

    /// Whether none is in progress.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Number of operations in progress.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether one to the peer with this id is in progress.
    pub fn are_under_way_to(&self, peer: u64) -> bool {
        self.all.values().any(|operation| operation.peer == peer)
    }

    /// The context for the parts of the next operation.
    #[inline(always)]
    pub fn next_context(&self) -> u64 {
        self.last + 1
    }

    /// The order of a notice that leaves with a part of a new operation, or at once behind its parts. `None`: earlier notices to the target must arrive
    /// first.
    pub fn order_of_notice(&self, target: &impl Target<Failure = F>) -> Option<Flags> {
        let is_told = self.told.contains(&target.id());
        let waits = self.to_be_told(target.id()).next().is_some();
        // The channel must keep chains: a notice behind a refused one is refused, too.
        if waits || is_told && !self.channel.chains(target.inbox()) {
            None
        } else if is_told {
            Some(Flags::CHAINED)
        } else {
            Some(Flags::empty())
        }
    }

    /// Operations to this peer that wait to send a notice or counts.
    fn to_be_told(&self, peer: u64) -> impl Iterator<Item = &OrderedOperation<R, F>> {
        let waiting = self.untold.iter().filter_map(|number| self.all.get(number));
        waiting.filter(move |one| one.peer == peer)
    }

    /// Adds an operation with posted parts, and sends its notice if no other operation comes first. Returns the result if it has ended already.
    #[inline(always)]
    pub fn add<T: Target<Failure = F>>(
        &mut self,
        targets: &mut Targets<T>,
        mut operation: OrderedOperation<R, F>,
        ends: Ends<'_, R, F>,
    ) -> Option<Option<F>> {
        if operation.left == 0 && operation.notice.record().is_none() {
            operation.count(&self.channel, targets, self.next_context());
            if operation.left == 0 {
                return Some(operation.error);
            }
        }
        self.keep(targets, operation, ends);
        None
    }

    fn keep<T: Target<Failure = F>>(
        &mut self,
        targets: &mut Targets<T>,
        operation: OrderedOperation<R, F>,
        ends: Ends<'_, R, F>,
    ) {
        self.last += 1;
        let waits = operation.waits_to_tell();
        let mut leaves = || {
            let target = operation.target(targets);
            target.is_some_and(|target| self.order_of_notice(target).is_some())
        };
        let leaves = waits && (operation.left == 0 || leaves());
        if let NoticeStage::InFlight(_) = operation.notice {
            self.told.push(operation.peer);
        }
        self.all.insert(self.last, operation);
        if waits {
            self.untold.insert(self.last);
        }
        if leaves {
            self.tell(targets, ends);
        }
    }

    /// Whether an operation waits to send its notice or counts.
    #[inline(always)]
    pub fn have_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    /// Sends notices in the order of posting, behind the parts in flight. Without room for one, later notices to this target wait.
    #[cold]
    pub fn tell<T: Target<Failure = F>>(&mut self, targets: &mut Targets<T>, ends: Ends<'_, R, F>) {
        let is_refused =
            |one: &OrderedOperation<R, F>| matches!(one.notice, NoticeStage::Refused(_));
        let mut stuck = self.told.clone();
        stuck.retain(|peer| self.to_be_told(*peer).any(is_refused));
        let mut next = 0;
        while let Some(&number) = self.untold.range(next..).next() {
            next = number + 1;
            let Some(operation) = self.all.get(&number) else {
                self.untold.remove(&number);
                continue;
            };
            let (peer, again) = (operation.peer, is_refused(operation));
            let chains = |targets| {
                let target = operation.target(targets);
                target.is_some_and(|target: &mut T| self.channel.chains(target.inbox()))
            };
            // Later notices wait until the target has taken a refused one.
            if stuck.contains(&peer) || self.told.contains(&peer) && !chains(targets) {
                continue;
            }
            let sent = !operation.has_to_end_first() && self.tell_one(targets, number, ends);
            if sent {
                self.untold.remove(&number);
            }
            if !sent || again {
                stuck.push(peer);
            }
        }
    }

    /// Sends a notice, or counts. False: the target has no room.
    fn tell_one<T: Target<Failure = F>>(
        &mut self,
        targets: &mut Targets<T>,
        number: u64,
        ends: Ends<'_, R, F>,
    ) -> bool {
        let Some(operation) = self.all.get_mut(&number) else {
            return true;
        };
        if operation.error.is_none()
            && let Some(record) = operation.notice.record()
        {
            let order = match self.told.contains(&operation.peer) {
                true => Flags::ORDERED | Flags::CHAINED,
                false => Flags::ORDERED,
            };
            let target = operation.target(targets);
            let target = target.ok_or_else(|| T::failure(Error::Ended));
            let outcome = target.and_then(|target| {
                let inbox = target.inbox().into();
                match self.channel.deliver(inbox, record, order, number) {
                    Err(Error::InboxFull) if !target.has_gone() => Ok(None),
                    Err(Error::InboxFull) => Err(target.why(Error::PeerDead)),
                    Ok(outcome) => Ok(Some(outcome)),
                    Err(error) => Err(target.why(error)),
                }
            });
            match outcome {
                Ok(Some(Outcome::Complete)) => {}
                Ok(Some(Outcome::Pending)) => operation.left += 1,
                Ok(None) => {
                    operation.notice = NoticeStage::Waiting(record);
                    return false;
                }
                Err(failure) => operation.error = Some(failure),
            }
            if operation.left > 0 {
                operation.notice = NoticeStage::InFlight(record);
                self.told.push(operation.peer);
                return true;
            }
            operation.notice = NoticeStage::None;
        }
        self.count_or_end(targets, number, ends);
        true
    }

    /// Counts or ends an operation, once the target has its notice.
    fn count_or_end<T: Target<Failure = F>>(
        &mut self,
        targets: &mut Targets<T>,
        number: u64,
        ends: Ends<'_, R, F>,
    ) {
        let Some(operation) = self.all.get_mut(&number) else {
            return;
        };
        operation.count(&self.channel, targets, number);
        if operation.left == 0 {
            self.end(number, ends);
        }
    }

    fn end(&mut self, number: u64, ends: Ends<'_, R, F>) {
        if let Some(operation) = self.all.remove(&number) {
            ends(operation.report, operation.error);
        }
    }

    /// Takes completions of the issue context, and continues the operations that they belong to.
    #[cold]
    pub fn poll<T: Target<Failure = F>>(&mut self, targets: &mut Targets<T>, ends: Ends<'_, R, F>) {
        let mut completions = Vec::new();
        self.channel
            .poll(&mut |completion| completions.push(completion));
        for completion in completions {
            self.end_part(targets, completion, ends);
        }
    }

    /// Notes the end of a part or notice. Continues the operation when no other is in flight.
    fn end_part<T: Target<Failure = F>>(
        &mut self,
        targets: &mut Targets<T>,
        completion: Completion,
        ends: Ends<'_, R, F>,
    ) {
        let number = completion.context;
        let Some(operation) = self.all.get_mut(&number) else {
            return;
        };
        operation.left -= 1;
        match (completion.result, operation.notice) {
            (Ok(()), _) => {}
            (
                Err(Error::InboxFull),
                NoticeStage::InFlight(record) | NoticeStage::Refused(record),
            ) => {
                operation.notice = NoticeStage::Refused(record);
            }
            (Err(error), _) => {
                let failure = match operation.target(targets) {
                    Some(target) => target.why(error),
                    None => T::failure(error),
                };
                operation.error.get_or_insert(failure);
            }
        }
        if operation.left > 0 {
            return;
        }
        let peer = operation.peer;
        match operation.notice {
            NoticeStage::Refused(_) if operation.error.is_none() => {
                self.note_told(peer);
                self.untold.insert(number);
            }
            NoticeStage::InFlight(_) | NoticeStage::Refused(_) => {
                operation.notice = NoticeStage::None;
                self.note_told(peer);
                self.count_or_end(targets, number, ends);
            }
            // [`Operations::tell`] continues it.
            _ if operation.waits_to_tell() => {}
            _ => self.end(number, ends),
        }
    }

    /// A notice to this peer is no longer in flight.
    fn note_told(&mut self, peer: u64) {
        if let Some(one) = self.told.iter().position(|other| *other == peer) {
            self.told.swap_remove(one);
        }
    }
}
