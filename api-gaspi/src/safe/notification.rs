//! Notifications: how a process learns that something has arrived.

use std::num::NonZeroU32;
use std::ops::Range;

use super::gaspi::Gaspi;
use super::timeout::Timeout;
use super::{Error, Result, counted};
use crate::statistics::procedure;
use crate::status::Status;

/// A notification (§8.3): its number in the segment that it is bound to, and a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Notification {
    /// Its number, below the configuration's `notification_num`.
    pub id: u32,
    /// What it says. There is no 0: that is how none looks.
    pub value: NonZeroU32,
}

impl Notification {
    /// One with this number and value.
    pub const fn new(id: u32, value: NonZeroU32) -> Self {
        Notification { id, value }
    }

    /// One with this number, and the value 1.
    pub const fn plain(id: u32) -> Self {
        Notification::new(id, NonZeroU32::MIN)
    }
}

/// Some of the notifications of a segment of this process; see [`Segment::notifications`](super::Segment::notifications). Several threads may wait for the
/// same ones: each notification is taken by one of them.
///
/// Where a notification has come with a write, its data is there when the notification has been taken.
///
/// ```
/// # use unipgas::gaspi::safe::{Error, Gaspi, Notification, Timeout};
/// # use std::num::NonZeroU32;
/// # unipgas::init();
/// # let gaspi = Gaspi::init()?;
/// # let segment = gaspi.segment::<u8>(0, 1)?;
/// # let here = segment.remote(gaspi.rank());
/// let notifications = segment.notifications(0..10);
/// assert_eq!(notifications.wait(Timeout::Test), Err(Error::Timeout));
/// let seven = Notification::new(7, NonZeroU32::new(42).unwrap());
/// gaspi.queue()?.scope(|q| q.notify(here, seven))?;
/// assert_eq!(notifications.wait(Timeout::Block)?, seven);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
pub struct Notifications<'g> {
    gaspi: &'g Gaspi,
    segment: u8,
    ids: Range<u32>,
}

impl<'g> Notifications<'g> {
    pub(super) fn new(gaspi: &'g Gaspi, segment: u8, ids: Range<u32>) -> Self {
        Notifications {
            gaspi,
            segment,
            ids,
        }
    }

    /// Their numbers.
    pub fn ids(&self) -> Range<u32> {
        self.ids.clone()
    }

    /// Waits until there is one, and takes it (`gaspi_notify_waitsome` and `gaspi_notify_reset`, §8.3.3, §8.3.4).
    ///
    /// # Errors
    /// [`Error::Timeout`]: none has come, none is lost; [`Error::Failed`]: a process has died ([`Gaspi::states`]);
    /// [`ErrInvNum`](Status::ErrInvNum), [`ErrInvNotifId`](Status::ErrInvNotifId): there are none with these numbers;
    /// [`ErrInvSeg`](Status::ErrInvSeg): the segment has been deleted.
    pub fn wait(&self, timeout: impl Into<Timeout>) -> Result<Notification> {
        let Range { start, end } = self.ids;
        if start >= end {
            return Err(Status::ErrInvNum.into());
        }
        let (process, left) = (self.gaspi.process(), timeout.into().running());
        loop {
            let wait = || process.notify_waitsome(self.segment, start, end - start, left());
            let id = counted(const { procedure("gaspi_notify_waitsome") }, wait)?;
            if let Some(taken) = self.take(id)? {
                return Ok(taken);
            }
            // Another thread was faster.
        }
    }

    /// Takes the one with this number if it is there (`gaspi_notify_reset`, §8.3.4).
    ///
    /// # Errors
    /// [`ErrInvNotifId`](Status::ErrInvNotifId): it is none of these; [`ErrInvSeg`](Status::ErrInvSeg): the segment has been deleted.
    pub fn take(&self, id: u32) -> Result<Option<Notification>> {
        if !self.ids.contains(&id) {
            return Err(Status::ErrInvNotifId.into());
        }
        let reset = || self.gaspi.process().notify_reset(self.segment, id);
        let value = counted(const { procedure("gaspi_notify_reset") }, reset)?;
        Ok(NonZeroU32::new(value).map(|value| Notification { id, value }))
    }

    /// One after the other as they come, each waited for as by [`wait`](Notifications::wait), and no longer than this time. When it is over for one, so is
    /// the iterator, until it is asked again.
    ///
    /// ```
    /// # use unipgas::gaspi::safe::{Error, Gaspi, Notification, Timeout};
    /// # unipgas::init();
    /// # let gaspi = Gaspi::init()?;
    /// # let segment = gaspi.segment::<u8>(0, 1)?;
    /// # let here = segment.remote(gaspi.rank());
    /// gaspi.queue()?.scope(|q| (0..5).try_for_each(|id| q.notify(here, Notification::plain(id))))?;
    /// let mut ids = Vec::new();
    /// for notification in segment.notifications(0..100).iter(Timeout::Test) {
    ///     ids.push(notification?.id);
    /// }
    /// assert_eq!(ids, [0, 1, 2, 3, 4]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn iter(&self, timeout: impl Into<Timeout>) -> impl Iterator<Item = Result<Notification>> {
        let timeout = timeout.into();
        std::iter::from_fn(move || match self.wait(timeout) {
            Err(Error::Timeout) => None,
            one => Some(one),
        })
    }
}
