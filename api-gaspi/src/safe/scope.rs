//! Requests (§8), within a [scope](super::Queue::scope).

use std::marker::PhantomData;

use super::gaspi::Gaspi;
use super::notification::{Notification, Notifications};
use super::slice::Place;
use super::timeout::Timeout;
use super::{Element, Error, RemoteElement, Result, Slice, SliceMut, counted};
use crate::process::GaspiProcess;
use crate::statistics::{self, Moved, procedure};
use crate::status::{self, Status};
use crate::transfer::{self, Post, TransferRange};

/// Posts requests; see [`Queue::scope`](super::Queue::scope). Several threads may use it. Requests borrow their memory until the end of the
/// scope.
///
/// A request to a full queue waits for room, at most for the [timeout](super::Queue::set_timeout) of the queue.
///
/// All requests have these errors besides their own:
/// - [`ErrInvRank`](Status::ErrInvRank): no such rank.
/// - [`ErrInvSeg`](Status::ErrInvSeg): no such remote segment, or this process may not use it, or it is a buffer of this process.
/// - [`ErrInvRemOff`](Status::ErrInvRemOff): the range exceeds the remote segment.
/// - [`ErrInvCommsize`](Status::ErrInvCommsize): more than `transfer_size_max` bytes of the configuration.
/// - [`Error::Failed`]: the process has died, or the connection is closed.
/// - [`Error::Timeout`].
///
/// After an error, the request is not posted. Over a network, an invalid place may only fail at the end of the scope.
pub struct QueueScope<'scope, 'env: 'scope> {
    pub(super) gaspi: &'env Gaspi,
    pub(super) queue: u8,
    pub(super) timeout: Timeout,
    /// Both lifetimes are invariant: a borrow for a scope lasts for the whole scope.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// A read in progress with a notification.
#[must_use = "it gives the memory back when the data is there"]
pub struct Reading<'scope, T> {
    notifications: Notifications<'scope>,
    into: Option<SliceMut<'scope, T>>,
}

/// The part of a local and a remote place of equal length.
#[inline(always)]
pub(super) fn part<T: Element>(
    local: Place,
    remote: &RemoteElement<'_, T>,
) -> status::Result<TransferRange> {
    let there = remote.checked()?;
    Ok(TransferRange {
        segment_local: local.segment,
        offset_local: (local.first * size_of::<T>()) as u64,
        segment_remote: there.segment,
        offset_remote: there.offset,
        size: (local.len * size_of::<T>()) as u64,
    })
}

/// The parts of a list and their rank. Errors: [`Status::ErrInvRank`] for several ranks; [`Status::ErrInvNum`] for 0 parts.
pub(super) fn parts<'p, T: Element>(
    all: impl Iterator<Item = (Place, &'p RemoteElement<'p, T>)>,
) -> status::Result<(Vec<TransferRange>, u16)> {
    let mut rank = None;
    let parts = all.map(|(local, remote)| {
        if *rank.get_or_insert(remote.rank()) != remote.rank() {
            return Err(Status::ErrInvRank);
        }
        part(local, remote)
    });
    let parts = parts.collect::<status::Result<Vec<_>>>()?;
    Ok((parts, rank.ok_or(Status::ErrInvNum)?))
}

/// A notification of the segment of `to`. Errors: [`Status::ErrInvSeg`]: a buffer of this process.
#[inline(always)]
pub(super) fn bound<T: Element>(
    to: &RemoteElement<'_, T>,
    notification: Notification,
) -> status::Result<transfer::SegmentNotification> {
    Ok(transfer::SegmentNotification {
        segment: to.checked()?.segment,
        id: notification.id,
        value: notification.value.get(),
    })
}

fn size(parts: &[TransferRange]) -> u64 {
    parts.iter().map(|part| part.size).sum()
}

impl<'scope, 'env> QueueScope<'scope, 'env> {
    pub(super) fn new(gaspi: &'env Gaspi, queue: u8, timeout: Timeout) -> Self {
        QueueScope {
            gaspi,
            queue,
            timeout,
            scope: PhantomData,
            env: PhantomData,
        }
    }

    /// Posts a request. It waits for room in a full queue.
    #[inline(always)]
    fn post(
        &self,
        number: Option<usize>,
        rank: u16,
        moves: Option<(Moved, u64)>,
        post: impl Fn(&GaspiProcess, Post) -> status::Result<()>,
    ) -> Result<()> {
        let process = self.gaspi.process();
        let to = Post {
            rank,
            queue: self.queue,
            timeout: self.timeout.millis(),
        };
        let mut posted = counted(number, || post(process, to));
        while posted == Err(Status::QueueFull) {
            self.wait(self.timeout)?;
            posted = counted(number, || post(process, to));
        }
        if let (Ok(()), Some((moved, bytes))) = (posted, moves)
            && statistics::is_on()
        {
            statistics::moved(moved, rank, bytes);
        }
        Ok(posted?)
    }

    /// Writes the elements of `from` to the place `to` (`gaspi_write`, §8.2.1).
    ///
    /// # Errors
    /// As [all requests](QueueScope).
    #[inline]
    pub fn write<T: Element>(
        &self,
        from: Slice<'scope, T>,
        to: RemoteElement<'_, T>,
    ) -> Result<()> {
        let part = part(from.place(), &to)?;
        let moves = Some((Moved::Written, part.size));
        let number = const { procedure("gaspi_write") };
        self.post(number, to.rank(), moves, |process, post| {
            process.write(part, post)
        })
    }

    /// As [`write`](QueueScope::write), and notifies the target after the elements have arrived (`gaspi_write_notify`, §8.4.1).
    ///
    /// # Errors
    /// [`ErrInvNotifId`](Status::ErrInvNotifId). Others as [all requests](QueueScope).
    #[inline]
    pub fn write_notify<T: Element>(
        &self,
        from: Slice<'scope, T>,
        to: RemoteElement<'_, T>,
        notification: Notification,
    ) -> Result<()> {
        let (part, notification) = (part(from.place(), &to)?, bound(&to, notification)?);
        let moves = Some((Moved::Written, part.size));
        let number = const { procedure("gaspi_write_notify") };
        self.post(number, to.rank(), moves, |process, post| {
            process.write_notify(part, notification, post)
        })
    }

    /// Notifies the segment of `to`, after all earlier requests of this queue to the rank have arrived (`gaspi_notify`, §8.3.2).
    ///
    /// # Errors
    /// [`ErrInvNotifId`](Status::ErrInvNotifId). Others as [all requests](QueueScope).
    #[inline]
    pub fn notify<T: Element>(
        &self,
        to: RemoteElement<'_, T>,
        notification: Notification,
    ) -> Result<()> {
        let notification = bound(&to, notification)?;
        let number = const { procedure("gaspi_notify") };
        self.post(number, to.rank(), None, |process, post| {
            process.notify(notification, post)
        })
    }

    /// Reads the elements of `into` from the place `from` (`gaspi_read`, §8.2.2). They have arrived when the scope ends.
    ///
    /// # Errors
    /// As [all requests](QueueScope).
    #[inline]
    pub fn read<T: Element>(
        &self,
        into: SliceMut<'scope, T>,
        from: RemoteElement<'_, T>,
    ) -> Result<()> {
        let part = part(into.place(), &from)?;
        let moves = Some((Moved::Read, part.size));
        let number = const { procedure("gaspi_read") };
        self.post(number, from.rank(), moves, |process, post| {
            process.read(part, post)
        })
    }

    /// As [`read`](QueueScope::read), and returns the elements as soon as they have arrived, before the end of the scope (`gaspi_read_notify`, §8.4.4).
    /// It uses the notification `id` of the segment or buffer of `into`. The program must not use this notification meanwhile.
    ///
    /// ```
    /// # use unipgas::gaspi::safe::{Error, Gaspi};
    /// # unipgas::init();
    /// # let gaspi = Gaspi::init()?;
    /// # let mut segment = gaspi.segment::<u32>(0, 4)?;
    /// # segment.set(3, 7);
    /// let mut room = gaspi.buffer::<u32>(2)?;
    /// let there = segment.remote(0).at(2);
    /// let sum = gaspi.queue()?.scope(|q| {
    ///     let reading = q.read_notify(room.slice_mut(..), there, 0)?;
    ///     let elements = reading.wait()?;
    ///     Ok(elements.as_slice().iter().sum::<u32>())
    /// })?;
    /// assert_eq!((sum, &room[..]), (7, &[0, 7][..]));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrInvNotifId`](Status::ErrInvNotifId). Others as [all requests](QueueScope).
    pub fn read_notify<T: Element>(
        &self,
        into: SliceMut<'scope, T>,
        from: RemoteElement<'_, T>,
        id: u32,
    ) -> Result<Reading<'scope, T>> {
        let local = into.place();
        let part = part(local, &from)?;
        let moves = Some((Moved::Read, part.size));
        let number = const { procedure("gaspi_read_notify") };
        self.post(number, from.rank(), moves, |process, post| {
            process.read_notify(part, id, post)
        })?;
        Ok(Reading {
            notifications: Notifications::new(self.gaspi, local.segment, id..id + 1),
            into: Some(into),
        })
    }

    /// Several writes to one rank. If a write has an invalid argument, none is posted (`gaspi_write_list`, §8.4.2).
    ///
    /// # Errors
    /// [`ErrInvNum`](Status::ErrInvNum): no writes, or more than `rw_list_elem_max` or `queue_size_max` of the configuration;
    /// [`ErrInvRank`](Status::ErrInvRank): several ranks. Others as [all requests](QueueScope).
    pub fn write_list<T: Element>(
        &self,
        all: &[(Slice<'scope, T>, RemoteElement<'_, T>)],
    ) -> Result<()> {
        let (parts, rank) = parts(all.iter().map(|(from, to)| (from.place(), to)))?;
        let moves = Some((Moved::Written, size(&parts)));
        let number = const { procedure("gaspi_write_list") };
        self.post(number, rank, moves, |process, post| {
            process.write_list(&parts, post)
        })
    }

    /// As [`write_list`](QueueScope::write_list), and notifies the segment of `to` after all writes have arrived (`gaspi_write_list_notify`, §8.4.3).
    ///
    /// # Errors
    /// [`ErrInvNotifId`](Status::ErrInvNotifId). Others as [`write_list`](QueueScope::write_list).
    pub fn write_list_notify<T: Element, N: Element>(
        &self,
        all: &[(Slice<'scope, T>, RemoteElement<'_, T>)],
        to: RemoteElement<'_, N>,
        notification: Notification,
    ) -> Result<()> {
        let (parts, rank) = parts(all.iter().map(|(from, to)| (from.place(), to)))?;
        if rank != to.rank() {
            return Err(Status::ErrInvRank.into());
        }
        let notification = bound(&to, notification)?;
        let moves = Some((Moved::Written, size(&parts)));
        let number = const { procedure("gaspi_write_list_notify") };
        self.post(number, rank, moves, |process, post| {
            process.write_list_notify(&parts, notification, post)
        })
    }

    /// Several reads from one rank (`gaspi_read_list`, §8.4.5).
    ///
    /// # Errors
    /// As [`write_list`](QueueScope::write_list).
    pub fn read_list<T: Element>(
        &self,
        all: impl IntoIterator<Item = (SliceMut<'scope, T>, RemoteElement<'env, T>)>,
    ) -> Result<()> {
        let all: Vec<_> = all.into_iter().collect();
        let (parts, rank) = parts(all.iter().map(|(into, from)| (into.place(), from)))?;
        let moves = Some((Moved::Read, size(&parts)));
        let number = const { procedure("gaspi_read_list") };
        self.post(number, rank, moves, |process, post| {
            process.read_list(&parts, post)
        })
    }

    /// Waits for all posted requests, and so makes room (`gaspi_wait`, §8.2.3). The end of the scope does it too. Memory stays borrowed until then.
    ///
    /// # Errors
    /// [`Error::Timeout`]; [`Error::Failed`]: a request has failed.
    pub fn wait(&self, timeout: impl Into<Timeout>) -> Result<()> {
        let timeout = timeout.into().millis();
        let wait = || self.gaspi.process().wait(self.queue, timeout);
        Ok(counted(const { procedure("gaspi_wait") }, wait)?)
    }

    /// Number of requests posted since the last wait on the queue (§8.5.3).
    pub fn posted(&self) -> u32 {
        let posted = self.gaspi.process().queue_size(self.queue);
        posted.unwrap_or_default()
    }
}

impl<'scope, T: Element> Reading<'scope, T> {
    /// The elements. `None` after a timeout.
    ///
    /// # Errors
    /// [`Error::Failed`]: a process has died.
    ///
    /// # Panics
    /// If an earlier call has returned the elements.
    pub fn poll(&mut self, timeout: impl Into<Timeout>) -> Result<Option<SliceMut<'scope, T>>> {
        assert!(self.into.is_some(), "the elements have been given");
        match self.notifications.wait(timeout) {
            Ok(_) => Ok(self.into.take()),
            Err(Error::Timeout) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits for the elements.
    ///
    /// # Errors
    /// As [`poll`](Reading::poll).
    ///
    /// # Panics
    /// If an earlier call has returned the elements.
    pub fn wait(mut self) -> Result<SliceMut<'scope, T>> {
        self.poll(Timeout::Block)?.ok_or(Error::Timeout)
    }
}
