//! §8 and §10: one-sided communication, queues, atomics.

use super::{given, procedures, put};
use crate::atomics::{Change, GlobalAddress};
use crate::environment::process;
use crate::process::GaspiProcess;
use crate::statistics::{self, Moved};
use crate::status::{Result, Status};
use crate::transfer::{Post, SegmentNotification, TransferRange};

/// Most elements of a list (`gaspi_rw_list_elem_max`). A list is gathered on the stack.
const MOST: usize = crate::config::RW_LIST_ELEM_MAX as usize;

/// The parallel arrays of a list operation.
pub(super) struct Lists {
    pub(super) num: u32,
    pub(super) segment_local: *const u8,
    pub(super) offset_local: *const u64,
    pub(super) segment_remote: *const u8,
    pub(super) offset_remote: *const u64,
    pub(super) size: *const u64,
}

impl Lists {
    /// Runs `run` on the elements, and counts their bytes. Errors: [`Status::ErrNullptr`], [`Status::ErrInvNum`], and the errors of `run`.
    ///
    /// # Safety
    /// Each array is null or has `num` elements.
    pub(super) unsafe fn with(
        self,
        (moved, rank): (Moved, u16),
        run: impl FnOnce(&[TransferRange]) -> Result<()>,
    ) -> Result<()> {
        given(self.segment_local)?;
        given(self.offset_local)?;
        given(self.segment_remote)?;
        given(self.offset_remote)?;
        given(self.size)?;
        let num = self.num as usize;
        if num == 0 || num > MOST {
            return Err(Status::ErrInvNum);
        }
        let none = TransferRange {
            segment_local: 0,
            offset_local: 0,
            segment_remote: 0,
            offset_remote: 0,
            size: 0,
        };
        let mut parts = [none; MOST];
        for (i, part) in parts[..num].iter_mut().enumerate() {
            // SAFETY:
            // - contract of this function: the arrays have `num` elements, since they are not null.
            *part = unsafe {
                TransferRange {
                    segment_local: *self.segment_local.add(i),
                    offset_local: *self.offset_local.add(i),
                    segment_remote: *self.segment_remote.add(i),
                    offset_remote: *self.offset_remote.add(i),
                    size: *self.size.add(i),
                }
            };
        }
        run(&parts[..num])?;
        if statistics::is_on() {
            let bytes = parts[..num].iter().map(|part| part.size);
            statistics::moved(moved, rank, bytes.sum());
        }
        Ok(())
    }
}

/// # Safety
/// `old` is null or valid for a write.
#[inline(always)]
unsafe fn reset(process: &GaspiProcess, segment: u8, id: u32, old: *mut u32) -> Result<()> {
    let value = process.notify_reset(segment, id)?;
    if !old.is_null() {
        // SAFETY:
        // - contract of this function: `old` is valid, since it is not null.
        unsafe { old.write(value) };
    }
    Ok(())
}

procedures! {
    fn gaspi_write | pgaspi_write(
        segment_local: u8, offset_local: u64, rank: u16, segment_remote: u8, offset_remote: u64,
        size: u64, queue: u8, timeout: u64,
    ) with process
    quick(here, call) {
        let part = TransferRange { segment_local, offset_local, segment_remote, offset_remote, size };
        here.write_fast(&call, part, Post { rank, queue, timeout }).then_some(Ok(()))
    }
    moves Written(rank, size) {
        let part = TransferRange { segment_local, offset_local, segment_remote, offset_remote, size };
        process()?.write_slow(part, Post { rank, queue, timeout })
    }

    fn gaspi_read | pgaspi_read(
        segment_local: u8, offset_local: u64, rank: u16, segment_remote: u8, offset_remote: u64,
        size: u64, queue: u8, timeout: u64,
    ) with process
    quick(here, call) {
        let part = TransferRange { segment_local, offset_local, segment_remote, offset_remote, size };
        here.read_fast(&call, part, Post { rank, queue, timeout }).then_some(Ok(()))
    }
    moves Read(rank, size) {
        let part = TransferRange { segment_local, offset_local, segment_remote, offset_remote, size };
        process()?.read_slow(part, Post { rank, queue, timeout })
    }

    fn gaspi_write_notify | pgaspi_write_notify(
        segment_local: u8, offset_local: u64, rank: u16, segment_remote: u8, offset_remote: u64,
        size: u64, id: u32, value: u32, queue: u8, timeout: u64,
    ) with process
    quick(here, call) {
        let part = TransferRange { segment_local, offset_local, segment_remote, offset_remote, size };
        let notification = SegmentNotification { segment: segment_remote, id, value };
        here.write_notify_fast(&call, part, notification, Post { rank, queue, timeout }).then_some(Ok(()))
    }
    moves Written(rank, size) {
        let part = TransferRange { segment_local, offset_local, segment_remote, offset_remote, size };
        let notification = SegmentNotification { segment: segment_remote, id, value };
        process()?.write_notify_slow(part, notification, Post { rank, queue, timeout })
    }

    fn gaspi_read_notify | pgaspi_read_notify(
        segment_local: u8, offset_local: u64, rank: u16, segment_remote: u8, offset_remote: u64,
        size: u64, id: u32, queue: u8, timeout: u64,
    ) with process moves Read(rank, size) {
        let part = TransferRange { segment_local, offset_local, segment_remote, offset_remote, size };
        process()?.read_notify(part, id, Post { rank, queue, timeout })
    }

    fn gaspi_notify | pgaspi_notify(
        segment: u8, rank: u16, id: u32, value: u32, queue: u8, timeout: u64,
    ) with process
    quick(here, call) {
        let post = Post { rank, queue, timeout };
        here.notify_fast(&call, SegmentNotification { segment, id, value }, post).then_some(Ok(()))
    }
    {
        process()?.notify_slow(segment, id, value, rank, queue, timeout)
    }

    fn gaspi_write_list | pgaspi_write_list(
        num: u32, segment_local: *const u8, offset_local: *const u64, rank: u16,
        segment_remote: *const u8, offset_remote: *const u64, size: *const u64, queue: u8,
        timeout: u64,
    ) with process {
        let process = process()?;
        let lists = Lists { num, segment_local, offset_local, segment_remote, offset_remote, size };
        // SAFETY:
        // - C contract: the arrays have `num` elements.
        unsafe { lists.with((Moved::Written, rank), |parts| process.write_list(parts, Post { rank, queue, timeout })) }
    }

    fn gaspi_write_list_notify | pgaspi_write_list_notify(
        num: u32, segment_local: *const u8, offset_local: *const u64, rank: u16,
        segment_remote: *const u8, offset_remote: *const u64, size: *const u64, segment: u8,
        id: u32, value: u32, queue: u8, timeout: u64,
    ) with process {
        let process = process()?;
        let lists = Lists { num, segment_local, offset_local, segment_remote, offset_remote, size };
        let notification = SegmentNotification { segment, id, value };
        // SAFETY:
        // - as above.
        unsafe {
            lists.with((Moved::Written, rank), |parts| {
                process.write_list_notify(parts, notification, Post { rank, queue, timeout })
            })
        }
    }

    fn gaspi_read_list | pgaspi_read_list(
        num: u32, segment_local: *const u8, offset_local: *const u64, rank: u16,
        segment_remote: *const u8, offset_remote: *const u64, size: *const u64, queue: u8,
        timeout: u64,
    ) with process {
        let process = process()?;
        let lists = Lists { num, segment_local, offset_local, segment_remote, offset_remote, size };
        // SAFETY:
        // - as above.
        unsafe { lists.with((Moved::Read, rank), |parts| process.read_list(parts, Post { rank, queue, timeout })) }
    }

    fn gaspi_read_list_notify | pgaspi_read_list_notify(
        num: u32, segment_local: *const u8, offset_local: *const u64, rank: u16,
        segment_remote: *const u8, offset_remote: *const u64, size: *const u64, segment: u8,
        id: u32, queue: u8, timeout: u64,
    ) with process {
        let process = process()?;
        let lists = Lists { num, segment_local, offset_local, segment_remote, offset_remote, size };
        // SAFETY:
        // - as above.
        unsafe {
            lists.with((Moved::Read, rank), |parts| {
                process.read_list_notify(parts, segment, id, Post { rank, queue, timeout })
            })
        }
    }

    fn gaspi_wait | pgaspi_wait(queue: u8, timeout: u64) with process
    quick(here, call) {
        here.wait_fast(&call, queue)
    }
    {
        process()?.wait_slow(queue, timeout)
    }

    fn gaspi_notify_waitsome | pgaspi_notify_waitsome(
        segment: u8, begin: u32, num: u32, first: *mut u32, timeout: u64,
    ) with process
    quick(here, call) {
        let id = here.find_fast(&call, segment, begin, num).filter(|_| !first.is_null())?;
        // SAFETY:
        // - not null, so valid by the C contract.
        Some(unsafe { put(first, id) })
    }
    {
        let process = process()?;
        given(first)?;
        // SAFETY:
        // - not null, so valid by the C contract.
        unsafe { put(first, process.waitsome_slow(segment, begin, num, timeout)?) }
    }

    fn gaspi_notify_reset | pgaspi_notify_reset(segment: u8, id: u32, old: *mut u32) with process
    quick(here, call) {
        // SAFETY:
        // - null or valid, by the C contract.
        Some(unsafe { reset(here, segment, id, old) })
    } {
        // SAFETY:
        // - as above.
        unsafe { reset(&*process()?, segment, id, old) }
    }

    fn gaspi_queue_create | pgaspi_queue_create(queue: *mut u8, _timeout: u64) with process {
        let process = process()?;
        given(queue)?;
        // SAFETY:
        // - not null, so valid by the C contract.
        unsafe { put(queue, process.queue_create()?) }
    }

    fn gaspi_queue_delete | pgaspi_queue_delete(queue: u8) with process {
        process()?.queue_delete(queue)
    }

    fn gaspi_queue_size | pgaspi_queue_size(queue: u8, size: *mut u32) with process {
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(size, process()?.queue_size(queue)?) }
    }

    fn gaspi_queue_purge | pgaspi_queue_purge(queue: u8, timeout: u64) with process {
        process()?.queue_purge(queue, timeout)
    }

    fn gaspi_atomic_fetch_add | pgaspi_atomic_fetch_add(
        segment: u8, offset: u64, rank: u16, value: u64, old: *mut u64, timeout: u64,
    ) with process
    quick(here, call) {
        given(old).ok()?;
        let before = here.change_fast(&call, Change::Add(value), GlobalAddress { segment, offset, rank })?;
        // SAFETY:
        // - not null, so valid by the C contract.
        Some(unsafe { put(old, before) })
    }
    {
        let process = process()?;
        given(old)?;
        // SAFETY:
        // - not null, so valid by the C contract.
        unsafe { put(old, process.change_slow(Change::Add(value), GlobalAddress { segment, offset, rank }, timeout)?) }
    }

    fn gaspi_atomic_compare_swap | pgaspi_atomic_compare_swap(
        segment: u8, offset: u64, rank: u16, comparator: u64, new: u64, old: *mut u64,
        timeout: u64,
    ) with process
    quick(here, call) {
        given(old).ok()?;
        let change = Change::Swap { comparator, new };
        let before = here.change_fast(&call, change, GlobalAddress { segment, offset, rank })?;
        // SAFETY:
        // - not null, so valid by the C contract.
        Some(unsafe { put(old, before) })
    }
    {
        let process = process()?;
        given(old)?;
        let place = GlobalAddress { segment, offset, rank };
        // SAFETY:
        // - not null, so valid by the C contract.
        unsafe { put(old, process.change_slow(Change::Swap { comparator, new }, place, timeout)?) }
    }
}
