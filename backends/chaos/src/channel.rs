//! The issue context. It checks and queues operations, and carries them out in polls.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use unipgas_core::atomic::{self, AtomicForm};
use unipgas_core::deferred_op::DeferredOp;
use unipgas_core::driver::{self, Driven, Driver, Waits};
use unipgas_core::inbox::Record;
use unipgas_core::lines::rest_of_line;
use unipgas_core::op::{
    AtomicRequest, Completion, Flags, GetRequest, Inbox, Notice, Outcome, PutRequest, Remote,
    ReplyBuffer,
};
use unipgas_core::transport::{Channel, Limits, check_inbox, check_message};
use unipgas_core::{Error, Result, Rights};

use crate::hidden;
use crate::plan::{DelayPlan, OperationShape};
use crate::queue::{Means, OperationQueue, QueuedOperation};
use crate::shared::Shared;
use crate::work::Work;

/// Rounds in which a flush waits for pending operations.
const FLUSH_ROUNDS: u32 = 20_000;

const INDIVISIBLE: OperationShape = OperationShape {
    divisible: 0,
    first_line: None,
    notice: false,
};

/// The driver advances a channel with fewer user polls than this between two of its looks.
const BUSY_POLLS: u64 = 4;

/// State of a channel, shared by users and the driver.
pub(crate) struct ChannelState {
    /// Declared before the queue, so dropped first: it may still use memory of the queue.
    inner: Box<dyn Channel>,
    queue: Mutex<OperationQueue>,
    shared: Arc<Shared>,
    driver: Arc<Driver>,
    index: u64,
    pending: AtomicUsize,
    polls: AtomicU64,
    polls_seen: AtomicU64,
}

impl ChannelState {
    fn means(&self) -> Means<'_> {
        Means {
            inner: &*self.inner,
            config: &self.shared.config,
            stalls: &self.shared.stalls,
            channel: self.index,
        }
    }

    fn post(
        &self,
        work: Work,
        shape: OperationShape,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        self.shared.stalls.pass();
        let mut queue = driver::lock(&self.queue);
        let number = queue.next_number();
        let plan = DelayPlan::draw(&self.shared.config, self.index, number, shape);
        let mut op = QueuedOperation::new(number, context, flags, work);
        op.disaster = self.shared.count();
        let outcome = queue.post(op, plan, &self.means())?;
        if outcome == Outcome::Pending {
            // Under the lock: otherwise a poll could report the completion before it is counted.
            self.pending.fetch_add(1, Ordering::AcqRel);
            self.driver.more();
        }
        Ok(outcome)
    }

    /// Advances time by `ticks` polls.
    pub fn run(&self, ticks: u64) {
        self.shared.stalls.pass();
        let moved = {
            let mut queue = driver::lock(&self.queue);
            let before = queue.unfinished();
            let moved = queue.advance(ticks, &self.means());
            self.driver.fewer(before - queue.unfinished());
            moved
        };
        if moved {
            self.shared.inner.bell().ring_if_heard();
        }
    }

    fn poll(&self, sink: &mut dyn FnMut(Completion)) {
        if self.pending.load(Ordering::Acquire) == 0 {
            self.shared.stalls.pass();
            return;
        }
        self.polls.fetch_add(1, Ordering::Relaxed);
        self.run(1);
        let mut reported = false;
        loop {
            let next = driver::lock(&self.queue).ended.pop_front();
            let Some(completion) = next else { break };
            sink(completion);
            // After the sink: a thread that sees no pending operation must also see the effects of the sink.
            self.pending.fetch_sub(1, Ordering::AcqRel);
            reported = true;
        }
        if reported {
            self.shared.inner.bell().ring_if_heard();
        }
    }

    /// Polls by users since the last call.
    fn polls_since_last_look(&self) -> u64 {
        let polls = self.polls.load(Ordering::Relaxed);
        polls - self.polls_seen.swap(polls, Ordering::Relaxed)
    }

    /// Carries out pending operations. Gives up after a bounded number of rounds.
    pub fn flush(&self) {
        for _ in 0..FLUSH_ROUNDS {
            self.run(u64::from(self.shared.config.max_delay_polls) + 1);
            if driver::lock(&self.queue).unfinished() == 0 {
                return;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

impl Driven for ChannelState {
    fn drive(&self) {
        if self.polls_since_last_look() < BUSY_POLLS {
            self.run(u64::from(self.shared.config.max_delay_polls) / 4 + 1);
        }
    }
}

/// An issue context of [`Chaos`](crate::Chaos).
pub(crate) struct ChaosChannel {
    state: Arc<ChannelState>,
    /// Limits of the backend below.
    limits: Limits,
}

impl ChaosChannel {
    pub fn new(inner: Box<dyn Channel>, shared: Arc<Shared>, driver: Arc<Driver>) -> Self {
        let limits = shared.inner.capabilities().limits;
        let state = Arc::new(ChannelState {
            inner,
            queue: Mutex::default(),
            index: shared.next_channel(),
            shared: shared.clone(),
            driver,
            pending: AtomicUsize::new(0),
            polls: AtomicU64::new(0),
            polls_seen: AtomicU64::new(0),
        });
        shared.enrol(&state);
        state
            .driver
            .enrol(Arc::downgrade(&state) as Weak<dyn Driven>, Waits::Maybe);
        ChaosChannel { state, limits }
    }

    /// Posts an operation of a call that has not returned.
    fn post(
        &self,
        kept: DeferredOp,
        shape: OperationShape,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        // SAFETY:
        // - contract of `Work::new`: only the operations of `Channel` call this, with their own arguments, before they return.
        let work = unsafe { Work::new(kept, flags) };
        self.state.post(work, shape, flags, context)
    }

    /// Refuses at once what the backend below would refuse. Errors: [`Error::Unsupported`].
    fn check_limits(&self, len: usize, flags: Flags) -> Result<()> {
        let inline = flags.contains(Flags::INLINE) && len > self.limits.inline;
        let lines = flags.contains(Flags::LINES) && !self.limits.lines;
        match inline || lines || len > self.limits.largest {
            true => Err(Error::Unsupported),
            false => Ok(()),
        }
    }
}

impl Drop for ChaosChannel {
    fn drop(&mut self) {
        self.state.flush();
        let mut queue = driver::lock(&self.state.queue);
        let left = queue.unfinished();
        if left > 0 {
            tracing::warn!(
                left,
                "chaos: a channel was dropped with operations that do not end"
            );
            queue.abandon();
            self.state.driver.fewer(left);
        }
    }
}

/// The address of a remote place in this process. `None`: it is not mapped here.
fn address(at: Remote<'_>) -> Option<usize> {
    let base = at.region.parts().base;
    (!base.is_null()).then(|| base as usize + at.offset)
}

/// Number of bytes that a transfer may be cut into. 0 for an aligned word, which must not tear; unknown addresses count as aligned.
fn divisible(len: usize, addresses: &[Option<usize>]) -> usize {
    let word = matches!(len, 1 | 2 | 4 | 8);
    let aligned = |a: &Option<usize>| a.is_none_or(|a| a.is_multiple_of(len));
    match word && addresses.iter().any(aligned) {
        true => 0,
        false => len,
    }
}

fn first_line(flags: Flags, destination: usize) -> Option<usize> {
    flags
        .contains(Flags::LINES)
        .then(|| rest_of_line(destination))
}

fn check_notice(notice: &Notice<'_>) -> Result<()> {
    let slot = notice.slot;
    slot.region.check(slot.offset, 4, Rights::WRITE)?;
    // If the peer's address is not known here, the backend below reports misalignment.
    match address(slot) {
        Some(address) if !address.is_multiple_of(4) => Err(Error::Misaligned(4)),
        _ => Ok(()),
    }
}

fn check_atomic(dst: Remote<'_>, request: &AtomicRequest) -> Result<()> {
    let size = request.ty.size();
    let len = request.count.checked_mul(size).ok_or(Error::OutOfBounds {
        offset: dst.offset,
        len: usize::MAX,
        region_len: dst.region.len(),
    })?;
    dst.region.check(dst.offset, len, Rights::ATOMIC)?;
    let lost = request.op.form() == AtomicForm::FetchOnly && request.result.is_null();
    if lost || !atomic::supported(request.op, request.ty) {
        return Err(Error::Unsupported);
    }
    match address(dst) {
        Some(address) if !address.is_multiple_of(request.ty.alignment()) => {
            Err(Error::Misaligned(request.ty.alignment()))
        }
        _ => Ok(()),
    }
}

impl Channel for ChaosChannel {
    unsafe fn put(&self, put: &PutRequest<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        let put = PutRequest {
            dst: hidden::place(put.dst),
            notice: put.notice.map(hidden::notice),
            ..*put
        };
        let PutRequest { dst, len, .. } = put;
        dst.region.check(dst.offset, len, Rights::WRITE)?;
        put.notice.as_ref().map_or(Ok(()), check_notice)?;
        self.check_limits(len, flags)?;
        let shape = match put
            .notice
            .is_none_or(|notice| address(notice.slot).is_some())
        {
            true => OperationShape {
                divisible: divisible(len, &[address(dst)]),
                first_line: first_line(flags, address(dst).unwrap_or(dst.offset)),
                notice: put.notice.is_some(),
            },
            // Only the target knows whether it accepts the notice. If it refuses, the data must not arrive either.
            false => INDIVISIBLE,
        };
        self.post(DeferredOp::put(&put), shape, flags, context)
    }

    unsafe fn get(&self, get: &GetRequest<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        let get = GetRequest {
            src: hidden::place(get.src),
            ..*get
        };
        let GetRequest { dst, src, len } = get;
        src.region.check(src.offset, len, Rights::READ)?;
        self.check_limits(len, flags & Flags::LINES)?;
        let shape = OperationShape {
            divisible: divisible(len, &[address(src), Some(dst.ptr as usize)]),
            first_line: first_line(flags, dst.ptr.addr()),
            notice: false,
        };
        self.post(DeferredOp::get(&get), shape, flags, context)
    }

    fn notify(&self, notice: Notice<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        let notice = hidden::notice(notice);
        check_notice(&notice)?;
        self.post(DeferredOp::notify(notice), INDIVISIBLE, flags, context)
    }

    unsafe fn atomic(
        &self,
        dst: Remote<'_>,
        request: &AtomicRequest,
        desc: u64,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let dst = hidden::place(dst);
        check_atomic(dst, request)?;
        let len = request.count * request.ty.size();
        self.check_limits(len, Flags::empty())?;
        let shape = OperationShape {
            divisible: request.count,
            first_line: None,
            notice: false,
        };
        self.post(
            DeferredOp::atomic(dst, request, desc),
            shape,
            flags,
            context,
        )
    }

    fn deliver(
        &self,
        inbox: Inbox<'_>,
        record: Record,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let inbox = hidden::inbox(inbox);
        check_inbox(inbox.first)?;
        self.post(
            DeferredOp::deliver(None, inbox, record),
            INDIVISIBLE,
            flags,
            context,
        )
    }

    fn active_message(
        &self,
        to: Remote<'_>,
        message: &[u8],
        reply: ReplyBuffer,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let to = hidden::place(to);
        check_message(to, message)?;
        let message = DeferredOp::message(to, message, reply);
        self.post(message, INDIVISIBLE, flags, context)
    }

    fn poll(&self, sink: &mut dyn FnMut(Completion)) {
        self.state.poll(sink);
    }

    fn pending(&self) -> usize {
        self.state.pending.load(Ordering::Acquire)
    }
}
