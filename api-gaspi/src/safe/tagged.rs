//! Requests with a tag that complete one by one, for runtimes that poll (`GASPI_Lowlevel.h`).

use std::num::NonZeroU64;

use super::notification::Notification;
use super::scope::{QueueScope, bound, part, parts};
use super::timeout::Timeout;
use super::{Element, RemoteElement, Result, Slice, SliceMut, counted};
use crate::lowlevel::ListOperation;
use crate::statistics::procedure;
use crate::transfer::Post;

/// Posts requests with a tag; see [`QueueScope::tagged`]. Errors: as [requests without a tag](QueueScope); [`QueueFull`](crate::Status::QueueFull): the queue
/// has no room, or `queue_size_max` tags are unreported.
#[derive(Clone, Copy)]
pub struct Tagged<'q, 'scope, 'env> {
    scope: &'q QueueScope<'scope, 'env>,
    tag: NonZeroU64,
}

/// A complete request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletedRequest {
    /// Its tag.
    pub tag: NonZeroU64,
    /// Its result. [`Error::Failed`](super::Error::Failed): the target may have died.
    pub result: Result<()>,
}

/// Most reports of a call.
const MOST: usize = 256;

impl<'scope, 'env> QueueScope<'scope, 'env> {
    /// Posts requests with a tag. [`QueueScope::ended`] reports their completions one by one. Several requests may have the same tag. The end of the
    /// scope drops the remaining reports.
    ///
    /// ```
    /// use std::num::NonZeroU64;
    /// # use unipgas::gaspi::safe::{Error, Gaspi, Timeout};
    /// # unipgas::init();
    /// # let gaspi = Gaspi::init()?;
    /// let source = gaspi.buffer::<u64>(10)?;
    /// let target = gaspi.segment::<u64>(0, 10)?;
    /// gaspi.queue()?.scope(|q| {
    ///     for (nth, tag) in (1..=10).filter_map(NonZeroU64::new).enumerate() {
    ///         q.tagged(tag).write(source.slice(nth..nth + 1), target.remote(0).at(nth))?;
    ///     }
    ///     let mut sum = 0;
    ///     while sum < 55 {
    ///         for ended in q.ended(Timeout::Block)? {
    ///             ended.result?;
    ///             sum += ended.tag.get();
    ///         }
    ///     }
    ///     assert!(q.ended(Timeout::Block)?.is_empty(), "no tag is under way");
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn tagged(&self, tag: NonZeroU64) -> Tagged<'_, 'scope, 'env> {
        Tagged { scope: self, tag }
    }

    /// Waits for the completion of a request with a tag, and returns all complete requests, each once (`gaspi_request_wait`). The result is empty
    /// if no request with a tag is in progress.
    ///
    /// # Errors
    /// [`Error::Timeout`](super::Error::Timeout): no request has completed.
    pub fn ended(&self, timeout: impl Into<Timeout>) -> Result<Vec<CompletedRequest>> {
        let (mut all, timeout) = (Vec::new(), timeout.into().millis());
        let mut report = |tag, result: crate::Result<()>| {
            all.extend(NonZeroU64::new(tag).map(|tag| CompletedRequest {
                tag,
                result: result.map_err(Into::into),
            }));
        };
        let process = self.gaspi.process();
        let wait = || process.request_wait(self.queue, MOST, timeout, &mut report);
        counted(const { procedure("gaspi_request_wait") }, wait)?;
        Ok(all)
    }
}

impl<'scope> Tagged<'_, 'scope, '_> {
    fn submit(&self, rank: u16, operation: ListOperation<'_>) -> Result<()> {
        let post = Post {
            rank,
            queue: self.scope.queue,
            timeout: self.scope.timeout.millis(),
        };
        let process = self.scope.gaspi.process();
        let submit = || process.submit(self.tag.get(), operation, post);
        Ok(counted(
            const { procedure("gaspi_operation_submit") },
            submit,
        )?)
    }

    /// As [`QueueScope::write`].
    pub fn write<T: Element>(
        &self,
        from: Slice<'scope, T>,
        to: RemoteElement<'_, T>,
    ) -> Result<()> {
        let part = part(from.place(), &to)?;
        self.submit(to.rank(), ListOperation::Write(&[part], None))
    }

    /// As [`QueueScope::write_notify`].
    pub fn write_notify<T: Element>(
        &self,
        from: Slice<'scope, T>,
        to: RemoteElement<'_, T>,
        notification: Notification,
    ) -> Result<()> {
        let (part, notification) = (part(from.place(), &to)?, bound(&to, notification)?);
        self.submit(to.rank(), ListOperation::Write(&[part], Some(notification)))
    }

    /// As [`QueueScope::notify`].
    pub fn notify<T: Element>(
        &self,
        to: RemoteElement<'_, T>,
        notification: Notification,
    ) -> Result<()> {
        let notification = bound(&to, notification)?;
        self.submit(to.rank(), ListOperation::Write(&[], Some(notification)))
    }

    /// As [`QueueScope::read`].
    pub fn read<T: Element>(
        &self,
        into: SliceMut<'scope, T>,
        from: RemoteElement<'_, T>,
    ) -> Result<()> {
        let part = part(into.place(), &from)?;
        self.submit(from.rank(), ListOperation::Read(&[part], None))
    }

    /// As [`QueueScope::write_list`], with a single report.
    pub fn write_list<T: Element>(
        &self,
        all: &[(Slice<'scope, T>, RemoteElement<'_, T>)],
    ) -> Result<()> {
        let (parts, rank) = parts(all.iter().map(|(from, to)| (from.place(), to)))?;
        self.submit(rank, ListOperation::Write(&parts, None))
    }

    /// As [`QueueScope::read_list`], with a single report.
    pub fn read_list<T: Element>(
        &self,
        all: impl IntoIterator<Item = (SliceMut<'scope, T>, RemoteElement<'scope, T>)>,
    ) -> Result<()> {
        let all: Vec<_> = all.into_iter().collect();
        let (parts, rank) = parts(all.iter().map(|(into, from)| (into.place(), from)))?;
        self.submit(rank, ListOperation::Read(&parts, None))
    }
}
