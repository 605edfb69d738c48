//! Send and receive of GORY programs: messages go through a window in the sender's MPB, with flags of the program.

use crate::flag::Flag;
use crate::mpb::MpbOffset;
use crate::process::Ue;
use crate::status::{ErrorCode, Result};

/// A window in the sender's MPB and its two flags: `sent` at the receiver, `ready` at the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channel {
    /// Start of the window.
    pub window: MpbOffset,
    /// Length of the window in bytes. Longer messages go through it in parts.
    pub chunk: usize,
    /// Set when the sender may fill the window again.
    pub ready: Flag,
    /// Set when the window is full.
    pub sent: Flag,
}

const SET: i32 = 1;
const UNSET: i32 = 0;

impl Channel {
    /// The offset and length of each part of a message of `len` bytes. Errors: [`ErrorCode::MessageLength`] if the window has no bytes.
    fn parts(&self, len: usize) -> Result<impl Iterator<Item = (usize, usize)> + use<>> {
        let chunk = self.chunk;
        if chunk == 0 && len > 0 {
            return Err(ErrorCode::MessageLength.into());
        }
        let parts = (0..len).step_by(chunk.max(1));
        Ok(parts.map(move |at| (at, chunk.min(len - at))))
    }
}

impl Ue {
    /// Sends to UE `dest`, which receives through a channel with the same places (`RCCE_send` of GORY programs). Errors: [`ErrorCode::Id`],
    /// [`ErrorCode::MessageLength`], [`ErrorCode::Target`] if the window exceeds the MPB, [`ErrorCode::FlagNotInCommBuffer`].
    ///
    /// # Safety
    /// `len` bytes at `data` are readable.
    pub unsafe fn send_through(
        &self,
        channel: &Channel,
        (data, len): (*const u8, usize),
        dest: u32,
    ) -> Result<()> {
        self.exists(dest)?;
        for (at, part) in channel.parts(len)? {
            // SAFETY:
            // - contract of this call: `len` bytes at `data` are readable. `parts` stays within them.
            unsafe { self.put_from(channel.window, data.wrapping_add(at), part, self.id()) }?;
            self.flag_write(channel.sent, SET, dest)?;
            self.wait_until(channel.ready, SET)?;
            self.flag_write(channel.ready, UNSET, self.id())?;
        }
        Ok(())
    }

    /// Receives from UE `source` (`RCCE_recv` of GORY programs). Errors: as for [`Ue::send_through`]; [`ErrorCode::Source`] instead of [`ErrorCode::Target`].
    ///
    /// # Safety
    /// `len` bytes at `buffer` are valid for writes.
    pub unsafe fn receive_through(
        &self,
        channel: &Channel,
        (buffer, len): (*mut u8, usize),
        source: u32,
    ) -> Result<()> {
        self.exists(source)?;
        for (at, part) in channel.parts(len)? {
            self.wait_until(channel.sent, SET)?;
            self.flag_write(channel.sent, UNSET, self.id())?;
            // SAFETY:
            // - contract of this call: `len` bytes at `buffer` are valid for writes. `parts` stays within them.
            unsafe { self.get_into(buffer.wrapping_add(at), channel.window, part, source) }?;
            self.flag_write(channel.ready, SET, source)?;
        }
        Ok(())
    }

    /// Receives if the first part is in the window (`RCCE_recv_test` of GORY programs). It then waits for the other parts. False: there is no first part.
    ///
    /// # Safety
    /// As [`Ue::receive_through`].
    pub unsafe fn try_receive_through(
        &self,
        channel: &Channel,
        place: (*mut u8, usize),
        source: u32,
    ) -> Result<bool> {
        self.exists(source)?;
        if place.1 > 0 && self.flag_read(channel.sent, self.id())? != SET {
            return Ok(false);
        }
        // SAFETY:
        // - contract of this call: the bytes at `place` are valid for writes.
        unsafe { self.receive_through(channel, place, source) }.map(|()| true)
    }
}
