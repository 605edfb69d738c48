//! One-sided communication (GASPI 17.1 §8): segment names and offsets become operations of the engine.

use std::sync::atomic::Ordering;

use unipgas_core::calls::Call;
use unipgas_core::imports::Imported;
use unipgas_core::op::{Flags, Local, Notice, Outcome, Remote};
use unipgas_core::transport::Life;
use unipgas_core::{Batch, Endpoint, Error, Posting};

use crate::process::{GaspiProcess, deadline};
use crate::status::{Result, Status, from_engine};

/// A local and a remote range: an element of a list operation, or a simple operation.
#[derive(Debug, Clone, Copy)]
pub struct TransferRange {
    /// The local segment.
    pub segment_local: u8,
    /// Offset in the segment, in bytes.
    pub offset_local: u64,
    /// The remote segment.
    pub segment_remote: u8,
    /// Offset in the segment, in bytes.
    pub offset_remote: u64,
    /// Number of bytes to transfer.
    pub size: u64,
}

/// A notification of a segment (§8.3.2).
#[derive(Debug, Clone, Copy)]
pub struct SegmentNotification {
    /// Its segment.
    pub segment: u8,
    /// Its number.
    pub id: u32,
    /// Its value, not zero.
    pub value: u32,
}

/// Rank, queue and timeout of a request.
#[derive(Debug, Clone, Copy)]
pub struct Post {
    /// The target.
    pub rank: u16,
    /// The queue.
    pub queue: u8,
    /// Milliseconds to wait while another thread waits on the queue, and to find the remote segment.
    pub timeout: u64,
}

impl GaspiProcess {
    /// Writes (§8.2.1). Errors: [`Status::QueueFull`], [`Status::Timeout`], and errors of the arguments.
    #[inline(always)]
    pub fn write(&self, part: TransferRange, post: Post) -> Result<()> {
        let call = self.call();
        if self.write_fast(&call, part, post) {
            return Ok(());
        }
        drop(call);
        self.write_slow(part, post)
    }

    /// A short write with valid arguments, to an imported segment. False: it posts nothing, and the slow form posts or returns the error.
    #[inline(always)]
    pub(crate) fn write_fast(&self, call: &Call, part: TransferRange, post: Post) -> bool {
        let Some((posting, local, import)) = self.begin_fast(call, &part, &post) else {
            return false;
        };
        let (now, size) = (posting.fast_path(), part.size as usize);
        // SAFETY:
        // - the local range is checked. Its segment is not freed before its requests are complete.
        let done = unsafe { now.put(local, remote(&part, import), size) };
        posting.end(done, size)
    }

    #[cold]
    pub(crate) fn write_slow(&self, part: TransferRange, post: Post) -> Result<()> {
        self.simple(part, post, |queue, local, remote, size| {
            // SAFETY:
            // - the local range is checked. Its segment is not freed before its requests are complete.
            unsafe { queue.put(local, remote, size, Flags::empty(), 0) }
        })
    }

    /// Reads (§8.2.2). Errors: as [`write`](GaspiProcess::write).
    #[inline(always)]
    pub fn read(&self, part: TransferRange, post: Post) -> Result<()> {
        let call = self.call();
        if self.read_fast(&call, part, post) {
            return Ok(());
        }
        drop(call);
        self.read_slow(part, post)
    }

    /// As [`write_fast`](GaspiProcess::write_fast).
    #[inline(always)]
    pub(crate) fn read_fast(&self, call: &Call, part: TransferRange, post: Post) -> bool {
        let Some((posting, local, import)) = self.begin_fast(call, &part, &post) else {
            return false;
        };
        let (now, size) = (posting.fast_path(), part.size as usize);
        // SAFETY:
        // - as in `write_fast`.
        let done = unsafe { now.get(local, remote(&part, import), size) };
        posting.end(done, size)
    }

    #[cold]
    pub(crate) fn read_slow(&self, part: TransferRange, post: Post) -> Result<()> {
        self.simple(part, post, |queue, local, remote, size| {
            // SAFETY:
            // - as in `write_fast`.
            unsafe { queue.get(local, remote, size, Flags::empty(), 0) }
        })
    }

    /// Writes, and notifies the target after the data has arrived (§8.4.1).
    #[inline(always)]
    pub fn write_notify(
        &self,
        part: TransferRange,
        notification: SegmentNotification,
        post: Post,
    ) -> Result<()> {
        let call = self.call();
        if self.write_notify_fast(&call, part, notification, post) {
            return Ok(());
        }
        drop(call);
        self.write_notify_slow(part, notification, post)
    }

    /// As [`write_fast`](GaspiProcess::write_fast).
    #[inline(always)]
    pub(crate) fn write_notify_fast(
        &self,
        call: &Call,
        part: TransferRange,
        notification: SegmentNotification,
        post: Post,
    ) -> bool {
        if notification.value == 0 {
            return false;
        }
        let Some((posting, local, import)) = self.begin_fast(call, &part, &post) else {
            return false;
        };
        let (now, size) = (posting.fast_path(), part.size as usize);
        let notice = self.notice(&notification, part.segment_remote, import);
        // SAFETY:
        // - as in `write_fast`. The region of the notification words ends with the last word, so the operation refuses an invalid id.
        let done = unsafe { now.put_notify(local, remote(&part, import), size, notice) };
        posting.end(done, size)
    }

    #[cold]
    pub(crate) fn write_notify_slow(
        &self,
        part: TransferRange,
        notification: SegmentNotification,
        post: Post,
    ) -> Result<()> {
        self.check_notification(&notification)?;
        let call = self.call();
        let (queue, local) = self.checked(&part, &post, &call)?;
        self.claim(queue, 1, &post)?;
        self.at_peer(queue, &post, part.segment_remote, 1, &call, |import| {
            let notice = self.notice(&notification, part.segment_remote, import);
            let (to, size) = (remote(&part, import), part.size as usize);
            // SAFETY:
            // - as in `write_fast`.
            let posted = unsafe { queue.put_notify(local, to, size, notice, Flags::empty(), 0) };
            queue.count_bytes(size, posted)
        })
    }

    /// Notifies the target after all earlier requests of the queue to the same rank (§8.3.2).
    #[inline(always)]
    pub fn notify(&self, notification: SegmentNotification, post: Post) -> Result<()> {
        let call = self.call();
        if self.notify_fast(&call, notification, post) {
            return Ok(());
        }
        drop(call);
        let SegmentNotification { segment, id, value } = notification;
        self.notify_slow(segment, id, value, post.rank, post.queue, post.timeout)
    }

    /// As [`write_fast`](GaspiProcess::write_fast).
    #[inline(always)]
    pub(crate) fn notify_fast(
        &self,
        _call: &Call,
        notification: SegmentNotification,
        post: Post,
    ) -> bool {
        if notification.value == 0 {
            return false;
        }
        let queue = self.queue_fast(post.queue);
        let Some(posting) = queue.and_then(Endpoint::post_fast) else {
            return false;
        };
        let (rank, id) = (post.rank.into(), notification.segment);
        // SAFETY:
        // - the import is used only within the call, and `self` keeps the world alive.
        let import = unsafe { self.imports.get(rank, id.into()) };
        let done = import.is_some_and(|import| {
            let notice = self.notice(&notification, id, import);
            posting.fast_path().notify(notice)
        });
        posting.end_empty(done)
    }

    /// It has single arguments instead of structs, so that the fast path need not store them in memory.
    #[cold]
    pub(crate) fn notify_slow(
        &self,
        segment: u8,
        id: u32,
        value: u32,
        rank: u16,
        queue: u8,
        timeout: u64,
    ) -> Result<()> {
        let notification = SegmentNotification { segment, id, value };
        let post = Post {
            rank,
            queue,
            timeout,
        };
        self.check_notification(&notification)?;
        self.check_rank(post.rank)?;
        let call = self.call();
        let queue = self.looked(self.queue(post.queue)?);
        self.claim(queue, 1, &post)?;
        self.at_peer(queue, &post, notification.segment, 1, &call, |import| {
            let notice = self.notice(&notification, notification.segment, import);
            queue.notify(notice, Flags::ORDERED, 0)
        })
    }

    /// Reads, and sets a local notification to 1 after the data has arrived (§8.4.4).
    pub fn read_notify(&self, part: TransferRange, id: u32, post: Post) -> Result<()> {
        self.read_list_notify(&[part], part.segment_local, id, post)
    }

    /// Several writes to one rank (§8.4.2). If a part has an invalid argument, no part is written. Errors: [`Status::ErrInvNum`] for 0 parts, more
    /// than `gaspi_rw_list_elem_max`, or more than `gaspi_queue_size_max`.
    pub fn write_list(&self, parts: &[TransferRange], post: Post) -> Result<()> {
        self.list(parts, None, &post, |queue, call| {
            self.post_writes(queue, parts, &post, call)
        })
    }

    /// Several writes to one rank, and a notification after all data has arrived (§8.4.3).
    pub fn write_list_notify(
        &self,
        parts: &[TransferRange],
        notification: SegmentNotification,
        post: Post,
    ) -> Result<()> {
        self.check_notification(&notification)?;
        self.list(parts, Some(notification.segment), &post, |queue, call| {
            self.post_writes(queue, parts, &post, call)?;
            self.at_peer(queue, &post, notification.segment, 0, call, |import| {
                let notice = self.notice(&notification, notification.segment, import);
                queue.notify(notice, Flags::ORDERED, 0)
            })
        })
    }

    /// Several reads from one rank (§8.4.5).
    pub fn read_list(&self, parts: &[TransferRange], post: Post) -> Result<()> {
        self.list(parts, None, &post, |queue, call| {
            self.post_parts(queue, parts, &post, call, |local, from, size| {
                // SAFETY:
                // - as in `write_fast`.
                unsafe { queue.get(local, from, size, Flags::empty(), 0) }
            })
        })
    }

    /// Several reads from one rank. A local notification gets the value 1 after all data has arrived (§8.4.6).
    pub fn read_list_notify(
        &self,
        parts: &[TransferRange],
        segment_notification: u8,
        id: u32,
        post: Post,
    ) -> Result<()> {
        if id >= self.config.notification_num {
            return Err(Status::ErrInvNotifId);
        }
        let word = self
            .words(segment_notification)?
            .word(id as usize)
            .map_err(from_engine)?;
        self.list(parts, None, &post, |queue, call| {
            let requests = parts.len() as u32;
            let bytes = parts.iter().map(|part| part.size as usize).sum();
            let mut refused = Ok(());
            let valid = parts.iter().map_while(|part| {
                let local = self.local(part, call);
                let import = self.remote(&post, part.segment_remote, call);
                match (local, import) {
                    (Ok(local), Ok(import)) => {
                        Some((local, remote(part, import), part.size as usize))
                    }
                    (Err(status), _) | (_, Err(status)) => {
                        refused = Err(status);
                        None
                    }
                }
            });
            // SAFETY:
            // - as in `write_fast`. The notification words stay mapped while the process is initialised.
            let posted = unsafe { queue.get_notify(self.world.engine(), valid, word) };
            queue.posted_or_not(requests, requests);
            let posted = queue.count_bytes(bytes, posted);
            let failed = |error| self.failed_at(post.rank.into(), error);
            let done = refused.and_then(|()| posted.map_err(failed));
            done.or_else(|status| self.to_the_dead(status, 0, &post))
        })
    }

    /// Checks a list, claims its places in the queue, and runs `run` in one batch. `notified`: the remote segment of a notification. If the rank is dead,
    /// failed requests are posted instead.
    #[inline(always)]
    fn list(
        &self,
        parts: &[TransferRange],
        notified: Option<u8>,
        post: &Post,
        run: impl FnOnce(&Endpoint, &Call) -> Result<()>,
    ) -> Result<()> {
        let (call, requests) = (self.call(), parts.len() as u32);
        let checked = self.check_list(parts, post, &call).and_then(|queue| {
            if let Some(segment) = notified {
                self.remote(post, segment, &call)?;
            }
            Ok(queue)
        });
        let queue = match checked {
            Ok(queue) => queue,
            Err(status) => return self.to_the_dead(status, requests, post),
        };
        self.claim(queue, requests, post)?;
        let _together = self.together(queue, parts, post, &call);
        run(queue, &call)
    }

    #[inline(always)]
    fn queue_fast(&self, id: u8) -> Option<&Endpoint> {
        let queue = self.queues.get(usize::from(id))?.load(Ordering::Acquire);
        // SAFETY:
        // - null, or a queue. A queue is freed only with the process.
        unsafe { queue.as_ref() }
    }

    /// Prepares a short request with valid arguments to an imported segment. `None`: the slow path decides.
    #[inline(always)]
    fn begin_fast<'a>(
        &'a self,
        call: &'a Call,
        part: &TransferRange,
        post: &Post,
    ) -> Option<(Posting<'a>, Local, &'a Imported)> {
        let queue = self.queue_fast(post.queue)?;
        if part.size > self.at_once_max {
            return None;
        }
        let posting = queue.post_fast()?;
        let local = self.local(part, call).ok()?;
        let (rank, id) = (post.rank.into(), part.segment_remote.into());
        // SAFETY:
        // - the result borrows the call and `self`, and `self` keeps the world alive.
        let import = unsafe { self.imports.get(rank, id) }?;
        Some((posting, local, import))
    }

    #[inline(always)]
    fn simple(
        &self,
        part: TransferRange,
        post: Post,
        run: impl Fn(&Endpoint, Local, Remote<'_>, usize) -> unipgas_core::Result<Outcome>,
    ) -> Result<()> {
        let call = self.call();
        let (queue, local) = self.checked(&part, &post, &call)?;
        self.claim(queue, 1, &post)?;
        self.at_peer(queue, &post, part.segment_remote, 1, &call, |import| {
            let size = part.size as usize;
            queue.count_bytes(size, run(queue, local, remote(&part, import), size))
        })
    }

    #[inline(always)]
    fn checked(
        &self,
        part: &TransferRange,
        post: &Post,
        call: &Call,
    ) -> Result<(&Endpoint, Local)> {
        let queue = self.looked(self.queue(post.queue)?);
        self.check_rank(post.rank)?;
        if part.size > self.config.transfer_size_max {
            return Err(Status::ErrInvCommsize);
        }
        Ok((queue, self.local(part, call)?))
    }

    /// The queue, after a liveness check if it is due.
    #[inline(always)]
    pub(crate) fn looked<'a>(&self, queue: &'a Endpoint) -> &'a Endpoint {
        if queue.is_look_due() {
            self.look_around();
        }
        queue
    }

    pub(crate) fn check_list(
        &self,
        parts: &[TransferRange],
        post: &Post,
        call: &Call,
    ) -> Result<&Endpoint> {
        let most = self.config.rw_list_elem_max.min(self.config.queue_size_max);
        if parts.is_empty() || parts.len() > most as usize {
            return Err(Status::ErrInvNum);
        }
        for part in parts {
            self.checked(part, post, call)?;
            let import = self.remote(post, part.segment_remote, call)?;
            let len = import.data.len();
            let offset = part.offset_remote as usize;
            if offset > len || part.size as usize > len - offset {
                return Err(Status::ErrInvRemOff);
            }
        }
        self.queue(post.queue)
    }

    #[inline(always)]
    pub(crate) fn check_notification(&self, notification: &SegmentNotification) -> Result<()> {
        if notification.value == 0 {
            return Err(Status::ErrInvNotifVal);
        }
        if notification.id >= self.config.notification_num {
            return Err(Status::ErrInvNotifId);
        }
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn notice<'a>(
        &'a self,
        notification: &SegmentNotification,
        segment: u8,
        import: &'a Imported,
    ) -> Notice<'a> {
        debug_assert_eq!(segment, notification.segment);
        Notice {
            slot: import.notices.at(notification.id as usize * 4),
            value: notification.value,
        }
    }

    #[inline(always)]
    fn claim(&self, queue: &Endpoint, requests: u32, post: &Post) -> Result<()> {
        match queue.claim(requests) {
            Ok(()) => Ok(()),
            Err(error) => self.claim_slowly(post, error, || queue.claim(requests)),
        }
    }

    /// For a queue that is full, or on which another thread waits.
    #[cold]
    pub(crate) fn claim_slowly<T>(
        &self,
        post: &Post,
        error: Error,
        mut claim: impl FnMut() -> unipgas_core::Result<T>,
    ) -> Result<T> {
        if error != Error::Busy {
            // Requests to a dead rank free no room. A program that repeats the call without gaspi_wait() must get an error.
            return Err(match self.world.life(u32::from(post.rank)) {
                Life::Dead => Status::Error,
                _ => from_engine(error),
            });
        }
        self.world
            .engine()
            .wait(deadline(post.timeout), &mut self.watch(), || {
                match claim() {
                    Ok(claimed) => Ok(Some(claimed)),
                    Err(Error::Busy) => Ok(None),
                    Err(error) => Err(error),
                }
            })
            .map_err(from_engine)
    }

    /// The current region of the rank with this id. Errors: [`Status::ErrInvSeg`], [`Status::Timeout`], [`Status::Error`].
    #[inline(always)]
    pub(crate) fn remote<'a>(
        &'a self,
        post: &Post,
        segment: u8,
        call: &'a Call,
    ) -> Result<&'a Imported> {
        let rank = u32::from(post.rank);
        let import = self
            .imported(rank, usize::from(segment), call, post.timeout)
            .map_err(|error| self.failed_at(rank, error))?;
        if import.data.is_current() {
            return Ok(import);
        }
        self.import(rank, usize::from(segment), call, deadline(post.timeout))
            .map_err(|error| self.failed_at(rank, error))
    }

    /// Posts failed requests if the rank is dead, as [`at_peer`](GaspiProcess::at_peer). Errors: `status`, if the death is not its reason.
    #[cold]
    fn to_the_dead(&self, status: Status, requests: u32, post: &Post) -> Result<()> {
        if !self.is_for_death(status, post.rank) {
            return Err(status);
        }
        let queue = self.queue(post.queue)?;
        self.claim(queue, requests, post)?;
        queue.post_failed(requests, Error::RankDead(post.rank.into()));
        Ok(())
    }

    /// Whether the death of the rank is the reason of `status`.
    pub(crate) fn is_for_death(&self, status: Status, rank: u16) -> bool {
        let rank = u32::from(rank);
        let died = rank < self.world.size() && self.world.life(rank) == Life::Dead;
        status == Status::Error && died
    }

    /// Runs an operation on the segment of the rank. A refused operation frees its places in the queue. An operation on a dead rank is posted and
    /// fails: programs expect the failure in gaspi_wait (§8.5.3), as networks report it.
    #[inline(always)]
    fn at_peer(
        &self,
        queue: &Endpoint,
        post: &Post,
        segment: u8,
        requests: u32,
        call: &Call,
        run: impl FnMut(&Imported) -> unipgas_core::Result<Outcome>,
    ) -> Result<()> {
        match self.reach(post, segment, call, run) {
            Ok(()) => {
                queue.posted_or_not(requests, requests);
                Ok(())
            }
            Err(error @ Error::RankDead(_)) => {
                queue.post_failed(requests, error);
                Ok(())
            }
            Err(error) => {
                queue.posted_or_not(requests, 0);
                Err(from_engine(error))
            }
        }
    }

    /// Runs an operation on the segment of the rank. If the region is released, it imports the current region and retries once. Errors:
    /// [`Error::RankDead`], and the errors of the import and the operation.
    #[inline(always)]
    pub(crate) fn reach(
        &self,
        post: &Post,
        segment: u8,
        call: &Call,
        mut run: impl FnMut(&Imported) -> unipgas_core::Result<Outcome>,
    ) -> unipgas_core::Result<()> {
        let (rank, id) = (u32::from(post.rank), usize::from(segment));
        // A single call of `run`, so that the compiler inlines it.
        let mut import = self.imported(rank, id, call, post.timeout);
        let mut again = false;
        loop {
            match run(import?) {
                Ok(_) => return Ok(()),
                Err(Error::StaleRegion) if !again => {
                    again = true;
                    import = self.import(rank, id, call, deadline(post.timeout));
                }
                Err(Error::PeerDead) => return Err(self.world.dead(rank)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends the parts of a list in one batch.
    pub(crate) fn together<'a>(
        &'a self,
        queue: &'a Endpoint,
        parts: &[TransferRange],
        post: &Post,
        call: &'a Call,
    ) -> Option<Batch<'a>> {
        let first = parts.first()?;
        let import = self.imported(
            post.rank.into(),
            first.segment_remote.into(),
            call,
            post.timeout,
        );
        import.ok().map(|import| queue.together(&import.data))
    }

    fn post_writes(
        &self,
        queue: &Endpoint,
        parts: &[TransferRange],
        post: &Post,
        call: &Call,
    ) -> Result<()> {
        self.post_parts(queue, parts, post, call, |local, to, size| {
            // SAFETY:
            // - as in `write_fast`.
            unsafe { queue.put(local, to, size, Flags::empty(), 0) }
        })
    }

    #[inline(always)]
    fn post_parts(
        &self,
        queue: &Endpoint,
        parts: &[TransferRange],
        post: &Post,
        call: &Call,
        run: impl Fn(Local, Remote<'_>, usize) -> unipgas_core::Result<Outcome>,
    ) -> Result<()> {
        for part in parts {
            let local = self.local(part, call)?;
            self.at_peer(queue, post, part.segment_remote, 1, call, |import| {
                let size = part.size as usize;
                queue.count_bytes(size, run(local, remote(part, import), size))
            })?;
        }
        Ok(())
    }

    /// The local range of a part.
    #[inline(always)]
    pub(crate) fn local(&self, part: &TransferRange, call: &Call) -> Result<Local> {
        self.segment(part.segment_local, call)?
            .local(part.offset_local, part.size)
    }
}

/// The remote range of a part.
#[inline(always)]
pub(crate) fn remote<'a>(part: &TransferRange, import: &'a Imported) -> Remote<'a> {
    import.data.at(part.offset_remote as usize)
}
