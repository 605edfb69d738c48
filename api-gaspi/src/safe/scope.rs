//! Requests (§8), within a [scope](super::Queue::scope).

use std::marker::PhantomData;

use super::gaspi::Gaspi;
use super::notification::{Notification, Notifications};
use super::slice::Place;
use super::timeout::Timeout;
use super::{Element, Error, Remote, Result, Slice, SliceMut, counted};
use crate::process::Process;
use crate::statistics::{self, Moved, procedure};
use crate::status::{self, Status};
use crate::transfer::{self, Part, Post};

/// Where requests are posted; see [`Queue::scope`](super::Queue::scope). Several threads may use it. What is posted here is borrowed until the end of the
/// scope.
///
/// A request to a full queue waits until there is room: nothing that is posted is of use before the scope has ended. The queue's
/// [time-out](super::Queue::set_timeout) says how long.
///
/// All requests have these errors besides their own: [`ErrInvRank`](Status::ErrInvRank), [`ErrInvSeg`](Status::ErrInvSeg) (there is no such segment there, or this process may
/// not use it; or it is a buffer of this process) and [`ErrInvRemOff`](Status::ErrInvRemOff) (the range leaves it) by the place at the other process;
/// [`ErrInvCommsize`](Status::ErrInvCommsize): more than the configuration's `transfer_size_max` bytes; [`Error::Failed`]: the process has died, or the
/// connection is closed; [`Error::Timeout`]. Nothing has been posted then. Over a network a wrong place may also be found later, by the end of
/// the scope.
pub struct Scope<'scope, 'env: 'scope> {
    pub(super) gaspi: &'env Gaspi,
    pub(super) queue: u8,
    pub(super) timeout: Timeout,
    /// Neither lifetime may be taken for a shorter one: what is borrowed for a scope is borrowed for all of it.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// A read that sets a notification when its data is there.
#[must_use = "it gives the memory back when the data is there"]
pub struct Reading<'scope, T> {
    notifications: Notifications<'scope>,
    into: Option<SliceMut<'scope, T>>,
}

/// A local and a remote place of as many elements, as the procedures have them.
#[inline(always)]
pub(super) fn part<T: Element>(local: Place, remote: &Remote<'_, T>) -> status::Result<Part> {
    let there = remote.checked()?;
    Ok(Part {
        segment_local: local.segment,
        offset_local: (local.first * size_of::<T>()) as u64,
        segment_remote: there.segment,
        offset_remote: there.offset,
        size: (local.len * size_of::<T>()) as u64,
    })
}

/// Of lists, whose parts lead to one process. Errors: they do not, or there are none.
pub(super) fn parts<'p, T: Element>(
    all: impl Iterator<Item = (Place, &'p Remote<'p, T>)>,
) -> status::Result<(Vec<Part>, u16)> {
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

/// Errors: it is bound to a buffer.
#[inline(always)]
pub(super) fn bound<T: Element>(
    to: &Remote<'_, T>,
    notification: Notification,
) -> status::Result<transfer::Notification> {
    Ok(transfer::Notification {
        segment: to.checked()?.segment,
        id: notification.id,
        value: notification.value.get(),
    })
}

fn size(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.size).sum()
}

impl<'scope, 'env> Scope<'scope, 'env> {
    pub(super) fn new(gaspi: &'env Gaspi, queue: u8, timeout: Timeout) -> Self {
        Scope {
            gaspi,
            queue,
            timeout,
            scope: PhantomData,
            env: PhantomData,
        }
    }

    /// Posts, and waits for room where there is none.
    #[inline(always)]
    fn post(
        &self,
        number: Option<usize>,
        rank: u16,
        moves: Option<(Moved, u64)>,
        post: impl Fn(&Process, Post) -> status::Result<()>,
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

    /// Writes the elements of `from` to `to` and behind it (`gaspi_write`, §8.2.1).
    ///
    /// # Errors
    /// Those of [all requests](Scope).
    #[inline]
    pub fn write<T: Element>(&self, from: Slice<'scope, T>, to: Remote<'_, T>) -> Result<()> {
        let part = part(from.place(), &to)?;
        let moves = Some((Moved::Written, part.size));
        let number = const { procedure("gaspi_write") };
        self.post(number, to.rank(), moves, |process, post| {
            process.write(part, post)
        })
    }

    /// The same, with a notification there when the elements are (`gaspi_write_notify`, §8.4.1).
    ///
    /// # Errors
    /// [`ErrInvNotifId`](Status::ErrInvNotifId); those of [all requests](Scope).
    #[inline]
    pub fn write_notify<T: Element>(
        &self,
        from: Slice<'scope, T>,
        to: Remote<'_, T>,
        notification: Notification,
    ) -> Result<()> {
        let (part, notification) = (part(from.place(), &to)?, bound(&to, notification)?);
        let moves = Some((Moved::Written, part.size));
        let number = const { procedure("gaspi_write_notify") };
        self.post(number, to.rank(), moves, |process, post| {
            process.write_notify(part, notification, post)
        })
    }

    /// Notifies the segment of `to`, when all requests that this queue has posted to that rank before are there (`gaspi_notify`, §8.3.2).
    ///
    /// # Errors
    /// [`ErrInvNotifId`](Status::ErrInvNotifId); those of [all requests](Scope).
    #[inline]
    pub fn notify<T: Element>(&self, to: Remote<'_, T>, notification: Notification) -> Result<()> {
        let notification = bound(&to, notification)?;
        let number = const { procedure("gaspi_notify") };
        self.post(number, to.rank(), None, |process, post| {
            process.notify(notification, post)
        })
    }

    /// Reads as many elements as `into` has from `from` and behind it (`gaspi_read`, §8.2.2). They are there when the scope has ended.
    ///
    /// # Errors
    /// Those of [all requests](Scope).
    #[inline]
    pub fn read<T: Element>(&self, into: SliceMut<'scope, T>, from: Remote<'_, T>) -> Result<()> {
        let part = part(into.place(), &from)?;
        let moves = Some((Moved::Read, part.size));
        let number = const { procedure("gaspi_read") };
        self.post(number, from.rank(), moves, |process, post| {
            process.read(part, post)
        })
    }

    /// The same, and gives the elements back as soon as they are there, before the end of the scope (`gaspi_read_notify`, §8.4.4). The notification `id` of
    /// the segment or buffer that `into` is of says so: nobody else may use it meanwhile.
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
    /// [`ErrInvNotifId`](Status::ErrInvNotifId); those of [all requests](Scope).
    pub fn read_notify<T: Element>(
        &self,
        into: SliceMut<'scope, T>,
        from: Remote<'_, T>,
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

    /// Several writes to one rank; none is posted if one of them is refused (`gaspi_write_list`, §8.4.2).
    ///
    /// # Errors
    /// [`ErrInvNum`](Status::ErrInvNum): none, or more than the configuration's `rw_list_elem_max` or `queue_size_max`;
    /// [`ErrInvRank`](Status::ErrInvRank): they lead to several ranks; those of [all requests](Scope).
    pub fn write_list<T: Element>(&self, all: &[(Slice<'scope, T>, Remote<'_, T>)]) -> Result<()> {
        let (parts, rank) = parts(all.iter().map(|(from, to)| (from.place(), to)))?;
        let moves = Some((Moved::Written, size(&parts)));
        let number = const { procedure("gaspi_write_list") };
        self.post(number, rank, moves, |process, post| {
            process.write_list(&parts, post)
        })
    }

    /// The same, with a notification of the segment of `to` when all are there (`gaspi_write_list_notify`, §8.4.3).
    ///
    /// # Errors
    /// [`ErrInvNotifId`](Status::ErrInvNotifId); those of [`write_list`](Scope::write_list).
    pub fn write_list_notify<T: Element, N: Element>(
        &self,
        all: &[(Slice<'scope, T>, Remote<'_, T>)],
        to: Remote<'_, N>,
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
    /// Those of [`write_list`](Scope::write_list).
    pub fn read_list<T: Element>(
        &self,
        all: impl IntoIterator<Item = (SliceMut<'scope, T>, Remote<'env, T>)>,
    ) -> Result<()> {
        let all: Vec<_> = all.into_iter().collect();
        let (parts, rank) = parts(all.iter().map(|(into, from)| (into.place(), from)))?;
        let moves = Some((Moved::Read, size(&parts)));
        let number = const { procedure("gaspi_read_list") };
        self.post(number, rank, moves, |process, post| {
            process.read_list(&parts, post)
        })
    }

    /// Waits for all that has been posted, and so makes room (`gaspi_wait`, §8.2.3). The end of the scope does, too; memory stays borrowed until then.
    ///
    /// # Errors
    /// [`Error::Timeout`]; [`Error::Failed`]: a request has failed.
    pub fn wait(&self, timeout: impl Into<Timeout>) -> Result<()> {
        let timeout = timeout.into().millis();
        let wait = || self.gaspi.process().wait(self.queue, timeout);
        Ok(counted(const { procedure("gaspi_wait") }, wait)?)
    }

    /// Requests that have been posted since the queue was waited for (§8.5.3).
    pub fn posted(&self) -> u32 {
        let posted = self.gaspi.process().queue_size(self.queue);
        posted.unwrap_or_default()
    }
}

impl<'scope, T: Element> Reading<'scope, T> {
    /// The elements, if they are there before the time is over: else `None`.
    ///
    /// # Errors
    /// [`Error::Failed`]: a process has died.
    ///
    /// # Panics
    /// When they have been given.
    pub fn poll(&mut self, timeout: impl Into<Timeout>) -> Result<Option<SliceMut<'scope, T>>> {
        assert!(self.into.is_some(), "the elements have been given");
        match self.notifications.wait(timeout) {
            Ok(_) => Ok(self.into.take()),
            Err(Error::Timeout) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The elements, when they are there.
    ///
    /// # Errors
    /// As [`poll`](Reading::poll).
    ///
    /// # Panics
    /// When they have been given.
    pub fn wait(mut self) -> Result<SliceMut<'scope, T>> {
        self.poll(Timeout::Block)?.ok_or(Error::Timeout)
    }
}
