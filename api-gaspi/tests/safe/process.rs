//! The procedures as they are in C, from Rust: [`GaspiProcess`], with names of segments, offsets and milliseconds.

use std::sync::atomic::{AtomicU64, Ordering};

use unipgas::gaspi::atomics::GlobalAddress;
use unipgas::gaspi::ffi::{gaspi_proc_init, gaspi_proc_term};
use unipgas::gaspi::transfer::{Post, SegmentNotification, TransferRange};
use unipgas::gaspi::{
    Current, Datatype, GROUP_ALL, GaspiProcess, ReductionOperation, Result, Status,
    current as gaspi_current,
};

/// Milliseconds that no test waits.
const LONG: u64 = 200_000;

fn begin() -> Result<Current> {
    // SAFETY:
    // - takes a number.
    assert_eq!(unsafe { gaspi_proc_init(LONG) }, 0);
    gaspi_current()
}

fn end(gaspi: Current) -> Result<()> {
    gaspi.barrier(GROUP_ALL, LONG)?;
    drop(gaspi);
    // SAFETY:
    // - takes a number; no thread uses the process.
    assert_eq!(unsafe { gaspi_proc_term(LONG) }, 0);
    Ok(())
}

fn right(gaspi: &GaspiProcess) -> u16 {
    (gaspi.rank() + 1) % gaspi.num()
}

fn left(gaspi: &GaspiProcess) -> u16 {
    (gaspi.rank() + gaspi.num() - 1) % gaspi.num()
}

/// The words of a segment.
struct Words(*const AtomicU64);

impl Words {
    fn at(&self, offset: usize) -> &AtomicU64 {
        // SAFETY:
        // - within the segment of 128 bytes, whose memory is aligned; all of its users are atomic.
        unsafe { &*self.0.byte_add(offset) }
    }

    fn get(&self, offset: usize) -> u64 {
        self.at(offset).load(Ordering::Acquire)
    }

    fn set(&self, offset: usize, value: u64) {
        self.at(offset).store(value, Ordering::Release);
    }
}

/// Waits for a notification of segment 2, and gives its value.
fn notified(gaspi: &GaspiProcess, id: u32) -> Result<u32> {
    assert_eq!(gaspi.notify_waitsome(2, id, 1, LONG)?, id);
    gaspi.notify_reset(2, id)
}

pub fn one_sided() -> Result<()> {
    let current = begin()?;
    let gaspi = &*current;
    assert_eq!(gaspi.num(), 3, "the number of ranks");
    gaspi.segment_create(2, 128, GROUP_ALL, LONG)?;
    let memory = Words(gaspi.segment_ptr(2)?.cast());
    memory.set(0, 60 + u64::from(gaspi.rank()));
    let part = |offset_local, offset_remote| TransferRange {
        segment_local: 2,
        offset_local,
        segment_remote: 2,
        offset_remote,
        size: 8,
    };
    let post = Post {
        rank: right(gaspi),
        queue: 1,
        timeout: LONG,
    };
    let note = |id, value| SegmentNotification {
        segment: 2,
        id,
        value,
    };
    gaspi.write(part(0, 8), post)?;
    gaspi.notify(note(1, 5), post)?;
    assert_eq!(
        gaspi.notify_waitsome(2, 1, 2, LONG)?,
        1,
        "the notification that came"
    );
    assert_eq!(gaspi.notify_reset(2, 1)?, 5, "its value");
    assert_eq!(
        memory.get(8),
        60 + u64::from(left(gaspi)),
        "the word written"
    );
    gaspi.write_notify(part(0, 16), note(3, 6), post)?;
    assert_eq!(notified(gaspi, 3)?, 6, "the notification of a write");
    assert_eq!(
        memory.get(16),
        60 + u64::from(left(gaspi)),
        "the word written"
    );
    gaspi.write_list_notify(&[part(0, 24), part(0, 32)], note(4, 7), post)?;
    assert_eq!(notified(gaspi, 4)?, 7, "the notification of a list");
    assert_eq!(
        (memory.get(24), memory.get(32)),
        (memory.get(16), memory.get(16)),
        "the words of the list"
    );
    gaspi.read(part(40, 0), post)?;
    gaspi.wait(1, LONG)?;
    assert_eq!(
        memory.get(40),
        60 + u64::from(right(gaspi)),
        "the word read"
    );
    gaspi.read_notify(part(48, 0), 5, post)?;
    assert_eq!(notified(gaspi, 5)?, 1, "the notification of a read");
    assert_eq!(
        memory.get(48),
        60 + u64::from(right(gaspi)),
        "the word read"
    );
    let place = GlobalAddress {
        segment: 2,
        offset: 56,
        rank: right(gaspi),
    };
    assert_eq!(gaspi.fetch_add(place, 3, LONG)?, 0, "the old value");
    assert_eq!(gaspi.compare_swap(place, 3, 9, LONG)?, 3, "the old value");
    gaspi.wait(1, LONG)?;
    assert_eq!(gaspi.queue_size(1)?, 0, "the queue's size");
    gaspi.barrier(GROUP_ALL, LONG)?;
    assert_eq!(memory.get(56), 9, "the value");
    assert_eq!(gaspi.segment_list(), vec![2], "the segments");
    gaspi.segment_delete(2)?;
    end(current)
}

pub fn groups() -> Result<()> {
    let current = begin()?;
    let gaspi = &*current;
    let group = gaspi.group_create()?;
    for rank in (0..gaspi.num()).rev() {
        gaspi.group_add(group, rank)?;
    }
    gaspi.group_commit(group, LONG)?;
    assert_eq!(gaspi.group_ranks(group)?, vec![0, 1, 2], "the members");
    gaspi.barrier(group, LONG)?;
    let send = (f64::from(gaspi.rank()) + 0.5).to_ne_bytes();
    let mut receive = [0u8; 8];
    gaspi.allreduce(
        &send,
        &mut receive,
        1,
        ReductionOperation::Max,
        Datatype::Double,
        group,
        LONG,
    )?;
    assert_eq!(f64::from_ne_bytes(receive), 2.5, "the maximum");
    assert!(
        gaspi.states().iter().all(|healthy| *healthy),
        "not all are healthy"
    );
    gaspi.group_delete(group)?;
    end(current)
}

pub fn refused() -> Result<()> {
    let current = begin()?;
    let gaspi = &*current;
    gaspi.segment_create(0, 64, GROUP_ALL, LONG)?;
    gaspi.barrier(GROUP_ALL, LONG)?;
    let part = |segment_local, offset_local, offset_remote, size| TransferRange {
        segment_local,
        offset_local,
        segment_remote: 0,
        offset_remote,
        size,
    };
    let post = |rank, queue| Post {
        rank,
        queue,
        timeout: LONG,
    };
    let cases = [
        (gaspi.write(part(9, 0, 0, 8), post(0, 0)), Status::ErrInvSeg),
        (
            gaspi.write(part(0, 60, 0, 8), post(0, 0)),
            Status::ErrInvLocOff,
        ),
        (
            gaspi.write(part(0, 0, u64::MAX, 8), post(0, 0)),
            Status::ErrInvRemOff,
        ),
        (
            gaspi.write(part(0, 0, 0, u64::MAX), post(0, 0)),
            Status::ErrInvCommsize,
        ),
        (
            gaspi.write(part(0, 0, 0, 8), post(gaspi.num(), 0)),
            Status::ErrInvRank,
        ),
        (
            gaspi.write(part(0, 0, 0, 8), post(0, 200)),
            Status::ErrInvQueue,
        ),
        (gaspi.write_list(&[], post(0, 0)), Status::ErrInvNum),
        (
            gaspi.allreduce(
                &[0; 8],
                &mut [0; 7],
                1,
                ReductionOperation::Sum,
                Datatype::Ulong,
                GROUP_ALL,
                LONG,
            ),
            Status::ErrInvSize,
        ),
        (
            gaspi.allreduce(
                &[0; 7],
                &mut [0; 8],
                1,
                ReductionOperation::Sum,
                Datatype::Ulong,
                GROUP_ALL,
                LONG,
            ),
            Status::ErrInvSize,
        ),
        (
            gaspi.allreduce(
                &[],
                &mut [],
                0,
                ReductionOperation::Sum,
                Datatype::Ulong,
                GROUP_ALL,
                LONG,
            ),
            Status::ErrInvNum,
        ),
    ];
    for (i, (seen, expected)) in cases.into_iter().enumerate() {
        assert_eq!(seen, Err(expected), "case {i}");
    }
    end(current)
}
