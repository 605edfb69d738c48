//! Refused calls, panics, and dying processes.

use super::*;

pub fn what_is_refused() -> Result<()> {
    fn status<R>(result: Result<R>) -> Option<Status> {
        result.err().map(Error::status)
    }
    let gaspi = Gaspi::init()?;
    let me = gaspi.rank();
    assert_eq!(status(Gaspi::init()), Some(Status::ErrInited));
    // SAFETY:
    // - it takes no pointers.
    assert_eq!(unsafe { gaspi_proc_init(0) }, Status::ErrInited as i32);
    let all = gaspi.group_all();
    let segment = all.create_segment::<u32>(0, 10)?;
    assert_eq!(status(gaspi.segment::<u32>(0, 1)), Some(Status::ErrInvSeg));
    assert_eq!(
        status(gaspi.segment::<u32>(128, 1)),
        Some(Status::ErrInvSeg)
    );
    assert_eq!(
        status(all.create_segment::<u32>(128, 1)),
        Some(Status::ErrInvSeg)
    );
    assert_eq!(
        status(gaspi.segment::<u32>(1, 0)),
        Some(Status::ErrInvSegsize)
    );
    assert_eq!(
        status(gaspi.buffer::<u32>(usize::MAX)),
        Some(Status::ErrInvSegsize)
    );
    let source = gaspi.buffer::<u32>(20)?;
    let mut queue = gaspi.queue()?;
    let there = segment.remote(1 - me);
    queue.scope(|q| {
        let write = |place| status(q.write(source.slice(..), place));
        assert_eq!(write(segment.remote(2)), Some(Status::ErrInvRank));
        assert_eq!(write(gaspi.remote(1 - me, 77)), Some(Status::ErrInvSeg));
        assert_eq!(write(there), Some(Status::ErrInvRemOff));
        assert_eq!(write(there.at(usize::MAX)), Some(Status::ErrInvRemOff));
        // Buffers: the own one lies under the first of their names.
        assert_eq!(write(gaspi.remote(me, 128)), Some(Status::ErrInvSeg));
        assert_eq!(write(gaspi.remote(1 - me, 128)), Some(Status::ErrInvSeg));
        let own = gaspi.remote::<u64>(me, 128);
        assert_eq!(status(own.fetch_add(1)), Some(Status::ErrInvSeg));
        assert_eq!(status(q.notify(own, one(0))), Some(Status::ErrInvSeg));
        let wrong = one(gaspi.config().notification_num);
        assert_eq!(status(q.notify(there, wrong)), Some(Status::ErrInvNotifId));
        let part = source.slice(..1);
        let none: [(Slice<'_, u32>, RemoteElement<'_, u32>); 0] = [];
        assert_eq!(status(q.write_list(&none)), Some(Status::ErrInvNum));
        let two = [(part, there), (part, segment.remote(me))];
        assert_eq!(status(q.write_list(&two)), Some(Status::ErrInvRank));
        let listed = q.write_list_notify(&two[..1], segment.remote(me), one(0));
        assert_eq!(status(listed), Some(Status::ErrInvRank));
        assert_eq!(q.posted(), 0);
        Ok(())
    })?;
    let notifications = segment.notifications(3..3);
    assert_eq!(
        status(notifications.wait(Timeout::Block)),
        Some(Status::ErrInvNum)
    );
    assert_eq!(status(notifications.take(3)), Some(Status::ErrInvNotifId));
    assert_eq!(status(gaspi.group(&[me, me])), Some(Status::ErrInvRank));
    assert_eq!(status(gaspi.group(&[1 - me])), Some(Status::ErrInvRank));
    assert_eq!(status(gaspi.group(&[])), Some(Status::ErrInvGroup));
    assert_eq!(
        status(all.allreduce::<f64>(&[], ReductionOperation::Sum)),
        Some(Status::ErrInvNum)
    );
    assert_eq!(
        status(all.allreduce_by(&[0u8; 3000], u8::max)),
        Some(Status::ErrInvSize)
    );
    assert_eq!(
        status(gaspi.buffer::<u8>(3)?.send(4, 0)),
        Some(Status::ErrInvLocOff)
    );
    assert_eq!(
        status(gaspi.buffer::<u8>(3)?.send(1, 2)),
        Some(Status::ErrInvRank)
    );
    assert_eq!(
        status(gaspi.kill(me, Timeout::Test)),
        Some(Status::ErrInvRank)
    );
    assert_eq!(status(gaspi.is_healthy(2)), Some(Status::ErrInvRank));
    let queues: Vec<_> = std::iter::from_fn(|| gaspi.queue().ok()).collect();
    assert_eq!(queues.len(), 15);
    assert_eq!(status(gaspi.queue()), Some(Status::ErrInvNum));
    drop(queues);
    gaspi.queue()?;
    let left = segment.notification(0);
    all.barrier()?;
    segment.delete()?;
    assert_eq!(status(left.wait(Timeout::Block)), Some(Status::ErrInvSeg));
    all.barrier()
}

pub fn scopes_end() -> Result<()> {
    let gaspi = Gaspi::init()?;
    let all = gaspi.group_all();
    let segment = all.create_segment::<u32>(0, 3)?;
    let there = segment.remote(1 - gaspi.rank());
    let mut source = gaspi.buffer::<u32>(3)?;
    let mut queue = gaspi.queue()?;
    let arrived = |id| segment.notification(id).wait(Timeout::Block);

    source[0] = 1;
    let failed = queue.scope(|q| {
        q.write_notify(source.slice(..1), there, one(0))?;
        Err::<(), _>(Error::Timeout)
    });
    assert_eq!(failed, Err(Error::Timeout));
    source[0] = 0;
    arrived(0)?;
    assert_eq!(segment.get(0), 1);

    source[1] = 2;
    let panic = catch_unwind(AssertUnwindSafe(|| {
        queue.scope(|q| -> Result<()> {
            q.write_notify(source.slice(1..2), there.at(1), one(1))?;
            panic!("as the test wants it")
        })
    }));
    assert!(panic.is_err());
    source[1] = 0;
    arrived(1)?;
    assert_eq!(segment.get(1), 2);

    // A reduction is not continued after a panic in it; barriers still work.
    let panic = catch_unwind(AssertUnwindSafe(|| {
        all.allreduce_by(&[1u8], |_, _| panic!("as the test wants it"))
    }));
    assert!(panic.is_err());
    let next = all.allreduce(&[1.0], ReductionOperation::Sum);
    assert_eq!(next, Err(Error::Refused(Status::ErrActiveColl)));
    all.barrier()
}

pub fn a_rank_dies() -> Result<()> {
    let gaspi = Gaspi::init()?;
    let all = gaspi.group_all();
    let segment = all.create_segment::<u32>(0, 10)?;
    all.barrier()?;
    let mut queue = gaspi.queue()?;
    match gaspi.rank() {
        // Rank 1 has passed the barrier, too.
        0 => {
            segment.notification(0).wait(Timeout::Block)?;
            gaspi.kill(2, Timeout::Block)?;
        }
        1 => queue.scope(|q| q.notify(segment.remote(0), one(0)))?,
        _ => {
            // Waits until rank 0 kills it.
            let _ = segment.notification(0).wait(Timeout::Block);
            std::process::abort();
        }
    }
    assert_eq!(all.barrier(), Err(Error::Failed));
    assert_eq!(gaspi.states(), [true, true, false]);
    assert_eq!(gaspi.is_healthy(2), Ok(false));
    let source = gaspi.buffer::<u32>(10)?;
    let lost = queue.scope(|q| q.write(source.slice(..), segment.remote(2)));
    assert_eq!(lost, Err(Error::Failed));
    // The survivors continue.
    let group = gaspi.group(&[0, 1])?;
    group.barrier()?;
    queue.scope(|q| q.write(source.slice(..), segment.remote(1 - gaspi.rank())))?;
    group.barrier()
}

pub fn another_process_takes_the_place() -> Result<()> {
    let gaspi = Gaspi::init()?;
    let all = gaspi.group_all();
    if gaspi.incarnation() == 0 {
        let segment = all.create_segment::<u8>(0, 1)?;
        if gaspi.rank() == 2 {
            // The others need this process no more.
            segment.notification(0).wait(Timeout::Block)?;
            segment.notification(1).wait(Timeout::Block)?;
            std::process::abort();
        }
        let here = one(gaspi.rank().into());
        // The notify may fail: rank 2 may die before its completion.
        let _ = gaspi.queue()?.scope(|q| q.notify(segment.remote(2), here));
        // The rank is first dead, then healthy when the replacement has started.
        assert_eq!(all.barrier(), Err(Error::Failed));
        assert!(!gaspi.states()[2]);
        while !gaspi.states()[2] {
            std::thread::yield_now();
        }
    } else {
        assert_eq!(gaspi.rank(), 2);
        assert_eq!(all.barrier(), Err(Error::Refused(Status::ErrInvGroup)));
    }
    all.commit()?;
    let segment = all.create_segment::<u64>(1, 1)?;
    segment.remote(2).fetch_add(1)?;
    all.barrier()?;
    assert_eq!(segment.get(0), if gaspi.rank() == 2 { 3 } else { 0 });
    all.barrier()
}
