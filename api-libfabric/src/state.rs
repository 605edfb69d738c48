//! Operations in progress: their parts, notices to targets, and notices of peers.

use std::sync::Arc;

use unipgas_core::inbox::{InboxReader, Record};
use unipgas_core::liveness_timer::LivenessTimer;
use unipgas_core::operations::{NoticeStage, Operations, OrderedOperation, Target as _};
use unipgas_core::{Endpoint as Channel, MoreBatch, Outcome, Region, process};

use crate::av::AddressVector;
use crate::completion::CqEntry;
use crate::domain::Domain;
use crate::messages::{Messages, errno};
use crate::operation::{CounterEvent, Report, Reports};
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
    operations: Operations<Report, Errno>,
    inbox: InboxReader,
    /// Dropped after its reader.
    _inbox_memory: Region,
    pub messages: Option<Messages>,
    /// Operations that were posted with FI_MORE.
    pub batch: MoreBatch,
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
            operations: Operations::new(channel.clone()),
            channel,
            removals: 0,
            targets: Vec::new(),
            inbox,
            _inbox_memory: inbox_memory,
            messages,
            batch: MoreBatch::default(),
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

    /// Whether an operation to the endpoint at `to` is in progress, posted by any address of the endpoint.
    pub fn is_under_way_to(&self, to: u64) -> bool {
        let id = || self.id_of(to);
        !self.operations.is_empty() && id().is_some_and(|id| self.operations.are_under_way_to(id))
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
        let operation = self.post(job, peer, parts);
        let ended = (self.operations).add(&mut self.targets, operation, &mut reporter(reports));
        match ended {
            Some(error) => reports.end(&job.report, error),
            None => Ok(()),
        }
    }

    /// Posts the parts of an operation. Its notice may leave with a part.
    #[inline(always)]
    fn post(
        &mut self,
        job: &Job,
        peer: u64,
        mut parts: impl Parts,
    ) -> OrderedOperation<Report, Errno> {
        let asynchronous = self.domain.engine().is_driven();
        let target = self.targets[job.to as usize].as_mut().expect("just found");
        let along = job.notice.filter(|_| asynchronous).and_then(|record| {
            let order = self.operations.order_of_notice(&**target)?;
            Some((record, order))
        });
        target.along = along;
        if !target.uncounted {
            target.begin_counting(&self.domain, job.report.counted == CounterEvent::Write);
        }
        let via = Via {
            domain: &self.domain,
            channel: &self.channel,
            context: match asynchronous {
                true => self.operations.next_context(),
                false => 0,
            },
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
        let has_left = target.along.take().is_none() && along.is_some();
        OrderedOperation {
            to: job.to as usize,
            peer,
            report: job.report,
            left,
            error,
            counting: std::mem::take(&mut target.counting),
            notice: match job.notice {
                None => NoticeStage::None,
                Some(record) if has_left => NoticeStage::InFlight(record),
                Some(record) => NoticeStage::Waiting(record),
            },
        }
    }

    /// Makes progress.
    #[inline(always)]
    pub fn progress(&mut self, reports: &Reports) {
        // Other engines never have pending operations, and the question costs a call.
        if self.domain.engine().is_driven() {
            if self.channel.pending() > 0 {
                self.operations
                    .poll(&mut self.targets, &mut reporter(reports));
            } else {
                self.domain.engine().progress();
            }
        }
        if self.operations.have_untold() {
            self.operations
                .tell(&mut self.targets, &mut reporter(reports));
        }
        if self.inbox.has_work() {
            self.take_notices(reports);
        }
        self.progress_messages(reports);
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
            messages.forget_the_dead(reports);
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

/// Reports the ends of operations. Without a queue and a counter no receiver for a failure exists.
fn reporter(reports: &Reports) -> impl FnMut(Report, Option<Errno>) {
    |report, error| {
        let _ = reports.end(&report, error);
    }
}
