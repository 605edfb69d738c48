//! Messages (§9): any process may send to a process.

use super::buffer::Buffer;
use super::pending::Pending;
use super::slice::Place;
use super::{Element, Result, counted};
use crate::passive::Bytes;
use crate::statistics::{self, Moved, procedure};
use crate::status::Status;

/// The bytes of the elements in their segment.
pub(super) fn bytes<T: Element>(place: Place) -> Bytes {
    Bytes {
        segment: place.segment,
        offset: (place.first * size_of::<T>()) as u64,
        size: (place.len * size_of::<T>()) as u64,
    }
}

impl<'g, T: Element> Buffer<'g, T> {
    /// Sends the first `len` elements to `rank` (`gaspi_passive_send`, §9.2.1). The operation completes after `rank` has
    /// [received](super::Gaspi::receive) them, and returns the buffer. It owns the buffer, since a forgotten operation must not free it.
    ///
    /// ```
    /// # use unipgas::gaspi::safe::{Error, Gaspi, Timeout};
    /// # unipgas::init();
    /// # let gaspi = Gaspi::init()?;
    /// let mut letter = gaspi.buffer::<u32>(100)?;
    /// letter[..3].copy_from_slice(&[1, 2, 3]);
    /// let sending = letter.send(3, 0)?; // To itself, for once.
    /// let mut room = gaspi.buffer::<u32>(10)?;
    /// assert_eq!(gaspi.receive(room.slice_mut(..), Timeout::Block)?, 0);
    /// letter = sending.wait()?;
    /// assert_eq!(room[..3], letter[..3]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// An error frees the buffer. [`ErrInvRank`](Status::ErrInvRank); [`ErrInvCommsize`](Status::ErrInvCommsize): no elements, or more than
    /// `passive_transfer_size_max` bytes of the configuration; [`ErrInvLocOff`](Status::ErrInvLocOff): `len` exceeds the buffer;
    /// [`Failed`](super::Error::Failed): the process has died, or `passive_queue_size_max` messages have not been received.
    pub fn send(self, len: usize, rank: u16) -> Result<Pending<'g, Buffer<'g, T>>> {
        if len > self.len() {
            return Err(Status::ErrInvLocOff.into());
        }
        let gaspi = self.gaspi();
        let bytes = bytes::<T>(self.slice(..len).place());
        let mut buffer = Some(self);
        Pending::begin(move |timeout| {
            let send = || gaspi.process().passive_send(bytes, rank, timeout);
            counted(const { procedure("gaspi_passive_send") }, send)?;
            if statistics::is_on() {
                statistics::moved(Moved::Sent, rank, bytes.size);
            }
            buffer.take().ok_or(Status::Error)
        })
    }
}
