//! The procedures of GASPI_Lowlevel.h and GASPI_Queue_Group.h.

use unipgas_gaspi_sys as sys;

use super::transfer::Lists;
use super::{given, procedures, put};
use crate::environment::process;
use crate::lowlevel::ListOperation;
use crate::queue_group::{Policy, QUEUE_GROUP_MAX};
use crate::statistics::{self, Moved};
use crate::status::{Result, SUCCESS, Status};
use crate::transfer::{Post, SegmentNotification, TransferRange};

/// An operation by its number. Errors: [`Status::Error`] if the number is unknown, or if the operation is a list and `is_list` is false, or
/// the reverse.
fn operation_of(
    number: u32,
    is_list: bool,
    parts: &[TransferRange],
    notification: SegmentNotification,
) -> Result<ListOperation<'_>> {
    let own = (notification.segment, notification.id);
    let (list, operation) = match number {
        sys::GASPI_OP_READ => (false, ListOperation::Read(parts, None)),
        sys::GASPI_OP_READ_NOTIFY => (false, ListOperation::Read(parts, Some(own))),
        sys::GASPI_OP_READ_LIST => (true, ListOperation::Read(parts, None)),
        sys::GASPI_OP_READ_LIST_NOTIFY => (true, ListOperation::Read(parts, Some(own))),
        sys::GASPI_OP_WRITE => (false, ListOperation::Write(parts, None)),
        sys::GASPI_OP_WRITE_NOTIFY => (false, ListOperation::Write(parts, Some(notification))),
        sys::GASPI_OP_WRITE_LIST => (true, ListOperation::Write(parts, None)),
        sys::GASPI_OP_WRITE_LIST_NOTIFY => (true, ListOperation::Write(parts, Some(notification))),
        sys::GASPI_OP_NOTIFY => (false, ListOperation::Write(&[], Some(notification))),
        _ => return Err(Status::Error),
    };
    match list == is_list {
        true => Ok(operation),
        false => Err(Status::Error),
    }
}

fn moved(number: u32) -> Moved {
    match number {
        ..sys::GASPI_OP_WRITE => Moved::Read,
        _ => Moved::Written,
    }
}

procedures! {
    fn gaspi_operation_get_num_requests | pgaspi_operation_get_num_requests(
        operation: u32, _num: u32, num_requests: *mut u32,
    ) {
        let known = (sys::GASPI_OP_READ..=sys::GASPI_OP_NOTIFY).contains(&operation);
        given(num_requests)?;
        // SAFETY:
        // - not null, so valid by the C contract.
        if known { unsafe { put(num_requests, 1) } } else { Err(Status::Error) }
    }

    fn gaspi_operation_submit | pgaspi_operation_submit(
        operation: u32, tag: i64, segment_local: u8, offset_local: u64, rank: u16, segment_remote: u8,
        offset_remote: u64, size: u64, id: u32, value: u32, queue: u8, timeout: u64,
    ) with process {
        let parts = [TransferRange { segment_local, offset_local, segment_remote, offset_remote, size }];
        // A read sets a notification of the reader.
        let segment = if moved(operation) == Moved::Read { segment_local } else { segment_remote };
        let what = operation_of(operation, false, &parts, SegmentNotification { segment, id, value })?;
        process()?.submit(tag.cast_unsigned(), what, Post { rank, queue, timeout })?;
        if statistics::is_on() && operation != sys::GASPI_OP_NOTIFY {
            statistics::moved(moved(operation), rank, size);
        }
        Ok(())
    }

    fn gaspi_operation_list_submit | pgaspi_operation_list_submit(
        operation: u32, tag: i64, num: u32, segment_local: *const u8, offset_local: *const u64, rank: u16,
        segment_remote: *const u8, offset_remote: *const u64, size: *const u64, segment: u8, id: u32,
        value: u32, queue: u8, timeout: u64,
    ) with process {
        let process = process()?;
        let lists = Lists { num, segment_local, offset_local, segment_remote, offset_remote, size };
        // SAFETY:
        // - C contract: the arrays have `num` elements.
        unsafe {
            lists.with((moved(operation), rank), |parts| {
                let what = operation_of(operation, true, parts, SegmentNotification { segment, id, value })?;
                process.submit(tag.cast_unsigned(), what, Post { rank, queue, timeout })
            })
        }
    }

    fn gaspi_request_wait | pgaspi_request_wait(
        queue: u8, max: u32, num_completed: *mut u32, tags: *mut i64, statuses: *mut sys::gaspi_status_t,
        timeout: u64,
    ) with process {
        let process = process()?;
        given(num_completed)?;
        given(tags)?;
        given(statuses)?;
        let mut at = 0;
        let waited = process.request_wait(queue, max as usize, timeout, &mut |tag, result| {
            let error = result.err().map_or(SUCCESS, |status| status as i32);
            // SAFETY:
            // - not null, so valid for `max` elements by the C contract.
            // - `request_wait` makes at most `max` reports.
            unsafe {
                *tags.add(at) = tag.cast_signed();
                *statuses.add(at) = sys::gaspi_status_t { error };
            }
            at += 1;
        });
        // SAFETY:
        // - not null, so valid by the C contract.
        unsafe { put(num_completed, at as u32)? };
        waited.map(drop)
    }

    fn gaspi_queue_group_create | pgaspi_queue_group_create(
        group: u8, queue_begin: u8, queue_num: u32, policy: u32,
    ) with process {
        let policy = match policy {
            sys::GASPI_QUEUE_GROUP_POLICY_DEFAULT => Policy::Default,
            sys::GASPI_QUEUE_GROUP_POLICY_CPU_RR => Policy::Processor,
            _ => return Err(Status::ErrInvNum),
        };
        process()?.queue_group_create(group, queue_begin, queue_num, policy)
    }

    fn gaspi_queue_group_delete | pgaspi_queue_group_delete(group: u8) with process {
        process()?.queue_group_delete(group)
    }

    fn gaspi_queue_group_get_queue | pgaspi_queue_group_get_queue(group: u8, queue: *mut u8) with process
    quick(here, call) {
        given(queue).ok()?;
        let id = here.queue_in_group(&call, group).ok()?;
        // SAFETY:
        // - not null, so valid by the C contract.
        Some(unsafe { put(queue, id) })
    }
    {
        let process = process()?;
        given(queue)?;
        // SAFETY:
        // - not null, so valid by the C contract.
        unsafe { put(queue, process.queue_group_get_queue(group)?) }
    }

    fn gaspi_queue_group_max | pgaspi_queue_group_max(max: *mut u32) {
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(max, QUEUE_GROUP_MAX as u32) }
    }
}
