//! Operations with a tag that complete one by one (`GASPI_Lowlevel.h`). Task runtimes poll for their completions.

use unipgas_core::calls::Call;
use unipgas_core::endpoint::TaggedOperation;
use unipgas_core::op::Flags;
use unipgas_core::{Endpoint, Error};

use crate::process::{GaspiProcess, deadline};
use crate::status::{Result, Status, from_engine};
use crate::transfer::{Post, SegmentNotification, TransferRange, remote};

/// An operation. All parts of a list go to one rank.
#[derive(Debug, Clone, Copy)]
pub enum ListOperation<'a> {
    /// Writes, then notifies the target if a notification is given. Without parts, the notification follows all earlier requests of the queue
    /// to that rank.
    Write(&'a [TransferRange], Option<SegmentNotification>),
    /// Reads, then sets a local notification to 1 if one is given: its segment and its number.
    Read(&'a [TransferRange], Option<(u8, u32)>),
}

impl ListOperation<'_> {
    fn parts(&self) -> &[TransferRange] {
        match self {
            ListOperation::Write(parts, _) | ListOperation::Read(parts, _) => parts,
        }
    }
}

impl GaspiProcess {
    /// Posts an operation with a tag. [`GaspiProcess::request_wait`] reports the tag once. Tag 0 stands for an operation without a tag:
    /// [`GaspiProcess::wait`] reports its failure. Errors: as the operation without a tag; then no report follows. [`Status::QueueFull`]:
    /// `gaspi_queue_size_max` tags of the queue are unreported.
    pub fn submit(&self, tag: u64, operation: ListOperation<'_>, post: Post) -> Result<()> {
        let call = self.call();
        let queue = self.looked(self.queue(post.queue)?);
        self.check_rank(post.rank)?;
        let dead = match self.check_operation(operation, &post, &call) {
            Ok(()) => false,
            Err(status) if self.is_for_death(status, post.rank) => true,
            Err(status) => return Err(status),
        };
        let mut posting = match queue.tagged(tag) {
            Ok(posting) => posting,
            Err(error) => self.claim_slowly(&post, error, || queue.tagged(tag))?,
        };
        let posted = match dead {
            true => Err(Error::RankDead(post.rank.into())),
            false => self.post_tagged(queue, &mut posting, operation, &post, &call),
        };
        let ended = posting.end(self.world.engine(), posted);
        ended.map_err(from_engine)?;
        let bytes: u64 = operation.parts().iter().map(|part| part.size).sum();
        if queue.count(bytes as usize) {
            self.look_around();
        }
        Ok(())
    }

    fn check_operation(
        &self,
        operation: ListOperation<'_>,
        post: &Post,
        call: &Call,
    ) -> Result<()> {
        let alone = match operation {
            ListOperation::Write(parts, notification) => {
                if let Some(notification) = &notification {
                    self.check_notification(notification)?;
                    self.remote(post, notification.segment, call)?;
                }
                parts.is_empty() && notification.is_some()
            }
            ListOperation::Read(_, Some((_, id))) if id >= self.config.notification_num => {
                return Err(Status::ErrInvNotifId);
            }
            ListOperation::Read(_, Some((segment, _))) => self.words(segment).map(|_| false)?,
            ListOperation::Read(_, None) => false,
        };
        match alone {
            true => Ok(()),
            false => self.check_list(operation.parts(), post, call).map(drop),
        }
    }

    /// Posts a checked operation.
    fn post_tagged(
        &self,
        queue: &Endpoint,
        posting: &mut TaggedOperation<'_>,
        operation: ListOperation<'_>,
        post: &Post,
        call: &Call,
    ) -> unipgas_core::Result<()> {
        let parts = operation.parts();
        // Another thread may have deleted the segment since the check.
        let local = |part| self.local(part, call).map_err(|_| Error::StaleRegion);
        let together = (parts.len() > 1).then(|| self.together(queue, parts, post, call));
        match operation {
            ListOperation::Write([part], Some(notification))
                if notification.segment == part.segment_remote =>
            {
                let local = local(part)?;
                self.reach(post, part.segment_remote, call, |import| {
                    let notice = self.notice(&notification, part.segment_remote, import);
                    let (to, size) = (remote(part, import), part.size as usize);
                    // SAFETY:
                    // - the local range is checked. Its segment is not freed before its requests are complete.
                    posting.part(|context| unsafe {
                        queue.put_notify(local, to, size, notice, Flags::empty(), context)
                    })
                })?;
            }
            ListOperation::Write(parts, notification) => {
                for part in parts {
                    let local = local(part)?;
                    self.reach(post, part.segment_remote, call, |import| {
                        let (to, size) = (remote(part, import), part.size as usize);
                        // SAFETY:
                        // - as above.
                        posting.part(|context| unsafe {
                            queue.put(local, to, size, Flags::empty(), context)
                        })
                    })?;
                }
                if let Some(notification) = notification {
                    self.reach(post, notification.segment, call, |import| {
                        let notice = self.notice(&notification, notification.segment, import);
                        posting.part(|context| queue.notify(notice, Flags::ORDERED, context))
                    })?;
                }
            }
            ListOperation::Read(parts, notification) => {
                if let Some((segment, id)) = notification {
                    let words = self.words(segment).map_err(|_| Error::StaleRegion)?;
                    // SAFETY:
                    // - notification words stay mapped while the process is initialised.
                    unsafe { posting.sets(words.word(id as usize)?) };
                }
                for part in parts {
                    let local = local(part)?;
                    self.reach(post, part.segment_remote, call, |import| {
                        let (from, size) = (remote(part, import), part.size as usize);
                        // SAFETY:
                        // - as above.
                        posting.part(|context| unsafe {
                            queue.get(local, from, size, Flags::empty(), context)
                        })
                    })?;
                }
            }
        }
        drop(together);
        Ok(())
    }

    /// Waits for the completion of at least one operation with a tag. Calls `report` with the tag and the result of up to `most` complete
    /// operations, once for each. Returns their number; 0 if no operation with a tag is in progress. Errors: [`Status::Timeout`]: no operation
    /// has completed.
    pub fn request_wait(
        &self,
        queue: u8,
        most: usize,
        timeout: u64,
        report: &mut dyn FnMut(u64, Result<()>),
    ) -> Result<usize> {
        let queue = self.queue(queue)?;
        if self.liveness.is_due() {
            self.look_around();
        }
        if queue.unreported() == 0 || most == 0 {
            queue.free_untagged(self.world.engine());
            return Ok(0);
        }
        self.world.look_at_news();
        let mut look = || {
            self.look_around();
            Ok(())
        };
        let take = || {
            queue.progress();
            let ended = std::iter::from_fn(|| queue.take_report()).take(most);
            let mut reported = 0;
            for (tag, result) in ended {
                report(tag, result.map_err(|error| self.not_drained(&error)));
                reported += 1;
            }
            // Another thread may have taken the last report.
            Ok((reported > 0 || queue.unreported() == 0).then_some(reported))
        };
        let engine = self.world.engine();
        let reported = engine.wait(deadline(timeout), &mut look, take);
        queue.free_untagged(engine);
        reported.map_err(from_engine)
    }

    /// Drops the reports of complete operations.
    pub(crate) fn drop_reports(&self, queue: u8) {
        if let Ok(queue) = self.queue(queue) {
            while queue.take_report().is_some() {}
        }
    }
}
