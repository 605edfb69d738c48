//! Flags: words in MPBs. Any UE may set a flag at any UE, and the owner waits for the value. Tagged flags carry 28 bytes (manual §4.4).

use std::sync::atomic::Ordering;

use unipgas_core::{Flags, Notice, Remote};

use crate::mpb::{LINE, MPB, MpbOffset, local};
use crate::process::Ue;
use crate::status::{ErrorCode, Result};

/// `iRCCE_MAX_TAGGED_LEN`: maximum length of a tag in bytes.
pub const MAX_TAGGED_LEN: usize = LINE - 4;

/// A flag becomes visible after earlier puts of this UE to the same UE. On completion each UE reads the new value.
const SEEN: Flags = Flags::ORDERED.union(Flags::DELIVERED);

/// A flag: a line of each MPB. The first word is the value, the rest is the tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flag(pub MpbOffset);

impl Ue {
    /// Allocates a flag (`RCCE_flag_alloc`). All UEs allocate in the same order. The initial value is 0, or the previous content of the line. Errors:
    /// [`ErrorCode::FlagUndefined`] if there is no room.
    pub fn flag_alloc(&self) -> Result<Flag> {
        // Not cleared: another UE may have set it already.
        self.malloc(LINE)
            .map(Flag)
            .ok_or(ErrorCode::FlagUndefined.into())
    }

    /// Frees a flag (`RCCE_flag_free`). Errors: [`ErrorCode::FlagUndefined`].
    pub fn flag_free(&self, flag: Flag) -> Result<()> {
        if self.free(flag.0) {
            Ok(())
        } else {
            Err(ErrorCode::FlagUndefined.into())
        }
    }

    /// Offset of the flag in a UE's region. Errors: [`ErrorCode::FlagNotInCommBuffer`] if the place is not aligned, or `len` bytes exceed the MPB.
    #[inline(always)]
    fn flag_offset(&self, flag: Flag, len: usize) -> Result<usize> {
        let at = flag.0.0;
        if at.is_multiple_of(4) && at <= self.mpb_len && len <= self.mpb_len - at {
            Ok(MPB + at)
        } else {
            Err(ErrorCode::FlagNotInCommBuffer.into())
        }
    }

    /// Writes the flag of UE `id` (`RCCE_flag_write`). Earlier puts of this UE to `id` are visible before the flag. Errors: [`ErrorCode::Id`],
    /// [`ErrorCode::FlagNotInCommBuffer`].
    #[inline]
    pub fn flag_write(&self, flag: Flag, value: i32, id: u32) -> Result<()> {
        let notice = self.notice(flag, 4, value, id)?;
        if self.endpoint.fast_path().notify(notice) {
            return self.accessed(4);
        }
        self.endpoint
            .notify(notice, SEEN, 0)
            .map_err(|error| self.blame(id, error))?;
        self.settle(id, 4)
    }

    #[inline(always)]
    fn notice(&self, flag: Flag, len: usize, value: i32, id: u32) -> Result<Notice<'_>> {
        let region = self.peer(id)?;
        let offset = self.flag_offset(flag, len)?;
        Ok(Notice {
            slot: Remote { region, offset },
            value: value as u32,
        })
    }

    /// Writes the flag of UE `id` with a tag (`iRCCE_flag_write_tagged`). The tag is visible before the value, and is truncated to [`MAX_TAGGED_LEN`] bytes.
    /// Errors: as for [`Ue::flag_write`].
    #[inline]
    pub fn flag_write_tagged(&self, flag: Flag, value: i32, id: u32, tag: &[u8]) -> Result<()> {
        let notice = self.notice(flag, LINE, value, id)?;
        let mut line = [0u8; MAX_TAGGED_LEN];
        let len = tag.len().min(MAX_TAGGED_LEN);
        line[..len].copy_from_slice(&tag[..len]);
        let source = local(line.as_mut_ptr());
        let to = notice.slot.region.at(notice.slot.offset + 4);
        // SAFETY:
        // - contract of `Channel::put`: `line` is valid until completion. `settle` waits for it.
        unsafe {
            let now = self.endpoint.fast_path();
            if now.put_notify(source, to, MAX_TAGGED_LEN, notice) {
                return self.accessed(LINE);
            }
            self.endpoint
                .put_notify(source, to, MAX_TAGGED_LEN, notice, SEEN, 0)
                .map_err(|error| self.blame(id, error))?;
        }
        self.settle(id, LINE)
    }

    /// Reads the flag of UE `id` (`RCCE_flag_read`). Errors: [`ErrorCode::Id`], [`ErrorCode::FlagNotInCommBuffer`].
    #[inline]
    pub fn flag_read(&self, flag: Flag, id: u32) -> Result<i32> {
        let region = self.peer(id)?;
        let offset = self.flag_offset(flag, 4)?;
        self.looked()?;
        if id == self.id() {
            return Ok(self.word(offset)?.load(Ordering::Acquire) as i32);
        }
        let mut value = 0i32;
        // SAFETY:
        // - `value` has 4 bytes, and `fetch` is complete when it returns.
        unsafe {
            self.fetch(
                local((&raw mut value).cast()),
                Remote { region, offset },
                4,
                id,
            )
        }?;
        Ok(value)
    }

    /// Reads the flag of UE `id`, and the beginning of its tag (`iRCCE_flag_read_tagged`). Errors: as for [`Ue::flag_read`].
    pub fn flag_read_tagged(&self, flag: Flag, id: u32, tag: &mut [u8]) -> Result<i32> {
        self.flag_offset(flag, LINE)?;
        let value = self.flag_read(flag, id)?;
        let len = tag.len().min(MAX_TAGGED_LEN);
        self.get(&mut tag[..len], MpbOffset(flag.0.0 + 4), id)?;
        Ok(value)
    }

    /// Waits until this UE's flag has the value (`RCCE_wait_until`). Errors: [`ErrorCode::FlagNotInCommBuffer`];
    /// [`Failure::Engine`](crate::Failure::Engine) if another UE dies, or all others have left.
    #[inline]
    pub fn wait_until(&self, flag: Flag, value: i32) -> Result<()> {
        let word = self.word(self.flag_offset(flag, 4)?)?;
        self.wait(|| (word.load(Ordering::Acquire) == value as u32).then_some(()))
    }

    /// As [`Ue::wait_until`], then reads the beginning of the tag (`iRCCE_wait_tagged`).
    #[inline]
    pub fn wait_tagged(&self, flag: Flag, value: i32, tag: &mut [u8]) -> Result<()> {
        self.flag_offset(flag, LINE)?;
        self.wait_until(flag, value)?;
        self.read_tag(flag, tag)
    }

    /// Whether this UE's flag has the value (`RCCE_test_flag`). Errors: [`ErrorCode::FlagNotInCommBuffer`].
    #[inline]
    pub fn test_flag(&self, flag: Flag, value: i32) -> Result<bool> {
        let word = self.word(self.flag_offset(flag, 4)?)?;
        let found = word.load(Ordering::Acquire) == value as u32;
        if !found {
            self.looked()?;
        }
        Ok(found)
    }

    /// As [`Ue::test_flag`]. If the flag has the value, also reads the beginning of the tag (`iRCCE_test_tagged`).
    #[inline]
    pub fn test_tagged(&self, flag: Flag, value: i32, tag: &mut [u8]) -> Result<bool> {
        self.flag_offset(flag, LINE)?;
        let found = self.test_flag(flag, value)?;
        if found {
            self.read_tag(flag, tag)?;
        }
        Ok(found)
    }

    #[inline]
    fn read_tag(&self, flag: Flag, tag: &mut [u8]) -> Result<()> {
        let from = self.address(MpbOffset(flag.0.0 + 4));
        let len = tag.len().min(MAX_TAGGED_LEN);
        // SAFETY:
        // - the callers have checked by `flag_offset` that the line lies in this UE's MPB. Other UEs write it as raw bytes.
        unsafe { unipgas_core::copy(from, tag.as_mut_ptr(), len) };
        Ok(())
    }
}
