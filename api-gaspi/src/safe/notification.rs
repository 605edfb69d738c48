//! Notifications: they tell a process that data has arrived.

use std::num::NonZeroU32;
use std::ops::Range;

use super::gaspi::Gaspi;
use super::timeout::Timeout;
use super::{Error, Result, counted};
use crate::statistics::procedure;
use crate::status::Status;

/// A notification (§8.3): its number in its segment, and a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Notification {
    /// Its number, below `notification_num` of the configuration.
    pub id: u32,
    /// Its value. The value 0 means that it is not set.
    pub value: NonZeroU32,
}

impl Notification {
    /// A notification with this number and value.
    pub const fn new(id: u32, value: NonZeroU32) -> Self {
        Notification { id, value }
    }

    /// A notification with this number and the value 1.
    pub const fn plain(id: u32) -> Self {
        Notification::new(id, NonZeroU32::MIN)
    }
}

/// A range of notifications of a local segment; see [`Segment::notifications`](super::Segment::notifications). Several threads may wait for the
/// same range. One of them takes each notification.
///
/// After a thread has taken the notification of a write, the data of the write is visible.
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

    /// The numbers of the range.
    pub fn ids(&self) -> Range<u32> {
        self.ids.clone()
    }

    /// Waits for a notification, and takes it (`gaspi_notify_waitsome` and `gaspi_notify_reset`, §8.3.3, §8.3.4).
    ///
    /// # Errors
    /// [`Error::Timeout`]: no notification, and none is lost; [`Error::Failed`]: a process has died ([`Gaspi::states`]);
    /// [`ErrInvNum`](Status::ErrInvNum), [`ErrInvNotifId`](Status::ErrInvNotifId): the range is empty or has invalid numbers;
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
            // Another thread has taken it.
        }
    }

    /// Takes the notification with this number, if it is set (`gaspi_notify_reset`, §8.3.4).
    ///
    /// # Errors
    /// [`ErrInvNotifId`](Status::ErrInvNotifId): the number is not in the range; [`ErrInvSeg`](Status::ErrInvSeg): the segment has been deleted.
    pub fn take(&self, id: u32) -> Result<Option<Notification>> {
        if !self.ids.contains(&id) {
            return Err(Status::ErrInvNotifId.into());
        }
        let reset = || self.gaspi.process().notify_reset(self.segment, id);
        let value = counted(const { procedure("gaspi_notify_reset") }, reset)?;
        Ok(NonZeroU32::new(value).map(|value| Notification { id, value }))
    }

    /// The notifications, in the order of arrival. Each step is a [`wait`](Notifications::wait) with this timeout. A timeout ends the iteration; a
    /// later `next` waits again.
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
