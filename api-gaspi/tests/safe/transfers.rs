//! Requests, notifications, atomics and messages.

use super::*;

pub fn ring() -> Result<()> {
    let gaspi = Gaspi::init()?;
    let (rank, size) = (gaspi.rank(), gaspi.size());
    assert_eq!((gaspi.local_rank(), gaspi.local_size()), (rank, size));
    let all = gaspi.group_all();
    let segment = all.create_segment::<u64>(3, 100)?;
    let mut source = gaspi.buffer::<u64>(100)?;
    let mut queue = gaspi.queue()?;
    let right = segment.remote((rank + 1) % size);
    assert_eq!(right.segment_len()?, 100);
    let left = u64::from((rank + size - 1) % size);
    for round in 1..=50u64 {
        for (i, value) in source.iter_mut().enumerate() {
            *value = u64::from(rank) << 32 | round << 16 | i as u64;
        }
        let mut held = 0;
        queue.scope(|q| {
            let value = std::num::NonZeroU32::new(round as u32).expect("from 1 on");
            q.write_notify(
                source.slice(10..),
                right.at(10),
                Notification::new(7, value),
            )?;
            let come = segment.notifications(5..10).wait(Timeout::Block)?;
            assert_eq!(come, Notification::new(7, value));
            held = segment.get(99);
            Ok(())
        })?;
        assert_eq!(held, left << 32 | round << 16 | 99);
        assert!(segment.slice(..10).iter().all(|value| value == 0));
        let values = segment.slice(10..).iter().enumerate();
        for (i, value) in values {
            assert_eq!(value, left << 32 | round << 16 | (i as u64 + 10));
        }
        // All ranks have read the values before the next writes.
        all.barrier()?;
    }
    segment.delete()?;
    all.barrier()
}

pub fn lists_and_reads() -> Result<()> {
    let gaspi = Gaspi::init()?;
    let other = 1 - gaspi.rank();
    let all = gaspi.group_all();
    let mut segment = all.create_segment::<[u16; 3]>(0, 20)?;
    let mine = [gaspi.rank() + 1; 3];
    segment.slice_mut(..10).fill(mine);
    let theirs = [other + 1; 3];
    all.barrier()?;

    let mut room = gaspi.buffer::<[u16; 3]>(10)?;
    let there = segment.remote(other);
    let mut queue = gaspi.queue()?;
    queue.scope(|q| {
        let (low, high) = room.slice_mut(..).split_at_mut(4);
        q.read(low, there.at(6))?;
        let mut reading = q.read_notify(high, there, 2)?;
        let elements = loop {
            if let Some(elements) = reading.poll(Timeout::Test)? {
                break elements;
            }
        };
        assert_eq!(elements.as_slice().to_vec(), [theirs; 6]);
        Ok(())
    })?;
    assert_eq!(room[..], [theirs; 10]);

    // A transfer without elements still delivers its notification.
    queue.scope(|q| {
        q.write(room.slice(3..3), there.at(20))?;
        q.write_notify(room.slice(..0), there, one(9))?;
        segment.notification(9).wait(Timeout::Block)
    })?;

    room.fill([9; 3]);
    queue.scope(|q| {
        let (low, high) = room.slice(..).split_at(3);
        q.write_list_notify(
            &[(low, there.at(12)), (high.slice(..2), there.at(18))],
            there,
            one(1),
        )?;
        segment.notification(1).wait(Timeout::Block)
    })?;
    assert_eq!(
        segment.slice(11..16).to_vec(),
        [[0; 3], [9; 3], [9; 3], [9; 3], [0; 3]]
    );
    assert_eq!(segment.slice(18..).to_vec(), [[9; 3]; 2]);
    all.barrier()?;

    let mut rooms = gaspi.buffer::<[u16; 3]>(3)?;
    queue.scope(|q| {
        let (one, more) = rooms.slice_mut(..).split_at_mut(1);
        q.read_list([(one, there), (more, there.at(11))])?;
        q.write_list(&[(room.slice(..1), there.at(17))])
    })?;
    assert_eq!(rooms[..], [theirs, [0; 3], [9; 3]]);
    all.barrier()?;

    // A write from one part of a split segment, while this process changes the other part.
    let (mut free, posted) = segment.slice_mut(..).split_at_mut(5);
    queue.scope(|q| {
        q.write(posted.as_slice().slice(..2), there.at(16))?;
        free.fill([8; 3]);
        Ok(())
    })?;
    all.barrier()?;
    assert_eq!(segment.get(16), theirs);
    all.barrier()
}

pub fn a_full_queue_is_waited_for() -> Result<()> {
    let config = Config {
        queue_size_max: 4,
        ..Config::default()
    };
    let gaspi = Gaspi::begin(config)?.wait()?;
    let all = gaspi.group_all();
    let segment = all.create_segment::<u32>(0, 1000)?;
    let mut source = gaspi.buffer::<u32>(1000)?;
    source
        .iter_mut()
        .enumerate()
        .for_each(|(i, value)| *value = i as u32);
    let there = segment.remote(1 - gaspi.rank());
    gaspi.queue()?.scope(|q| {
        for i in 0..1000 {
            q.write(source.slice(i..=i), there.at(i))?;
            assert!((1..=4).contains(&q.posted()));
        }
        q.wait(Timeout::Block)?;
        assert_eq!(q.posted(), 0);
        let list: Vec<_> = (0..5).map(|i| (source.slice(i..=i), there.at(i))).collect();
        assert_eq!(q.write_list(&list), Err(Error::Refused(Status::ErrInvNum)));
        (0..10).try_for_each(|_| q.write_list(&list[..3]))?;
        q.notify(there, one(0))
    })?;
    segment.notification(0).wait(Timeout::Block)?;
    assert!(segment.slice(..).iter().eq(0..1000));
    all.barrier()
}

pub fn threads() -> Result<()> {
    fn shared<T: Send + Sync>() {}
    shared::<(
        Gaspi,
        Segment<'_, f64>,
        Buffer<'_, f64>,
        Queue<'_>,
        Group<'_>,
    )>();
    shared::<(
        QueueScope<'_, '_>,
        Slice<'_, u8>,
        SliceMut<'_, u8>,
        RemoteElement<'_, u8>,
    )>();
    fn sent<T: Send>() {}
    sent::<Pending<'_, Segment<'_, u8>>>();

    let gaspi = Gaspi::init()?;
    let all = gaspi.group_all();
    let segment = all.create_segment::<u32>(0, 400)?;
    let there = segment.remote(1 - gaspi.rank());
    let mut source = gaspi.buffer::<u32>(400)?;
    source.fill(3);
    let mut queue = gaspi.queue()?;
    let taken = AtomicU32::new(0);
    queue.scope(|q| {
        std::thread::scope(|threads| {
            let posting: Vec<_> = (0..4)
                .map(|part| {
                    let source = source.slice(part * 100..).slice(..100);
                    threads.spawn(move || {
                        (0..100).try_for_each(|i| {
                            let at = part * 100 + i;
                            let (from, to) = (source.slice(i..=i), there.at(at));
                            q.write_notify(from, to, one(at as u32))
                        })
                    })
                })
                .collect();
            // Two threads wait for all notifications. Each notification goes to one of them.
            for _ in 0..2 {
                threads.spawn(|| {
                    let notifications = segment.notifications(0..400);
                    while taken.fetch_add(1, Ordering::Relaxed) < 400 {
                        notifications.wait(Timeout::Block).expect("as many come");
                    }
                });
            }
            posting
                .into_iter()
                .try_for_each(|one| one.join().expect("no panic"))
        })
    })?;
    assert!(segment.slice(..).iter().all(|value| value == 3));
    assert_eq!(segment.notifications(0..400).iter(Timeout::Test).count(), 0);
    all.barrier()
}

pub fn atomics() -> Result<()> {
    let gaspi = Gaspi::init()?;
    let all = gaspi.group_all();
    let segment = all.create_segment::<u64>(0, 4)?;
    let counter = segment.remote(0).at(1);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| (0..100).try_for_each(|_| counter.fetch_add(1).map(drop)));
        }
    });
    all.barrier()?;
    assert_eq!(counter.begin_fetch_add(0)?.wait()?, 600);
    // A lock that the ranks take in turn.
    let lock = counter.at(1);
    let mine = u64::from(gaspi.rank()) + 1;
    for _ in 0..10 {
        while lock.compare_swap(0, mine)? != 0 {
            std::thread::yield_now();
        }
        assert_eq!(lock.begin_compare_swap(mine, 0)?.wait()?, mine);
    }
    all.barrier()?;
    if gaspi.rank() == 0 {
        assert_eq!(segment.slice(..).to_vec(), [0, 600, 0, 0]);
        segment.atomic(3).store(5, Ordering::Relaxed);
    }
    all.barrier()?;
    assert_eq!(segment.remote(0).at(3).fetch_add(0)?, 5);
    all.barrier()
}

pub fn messages() -> Result<()> {
    let gaspi = Gaspi::init()?;
    let all = gaspi.group_all();
    if gaspi.rank() > 0 {
        let mut letter = gaspi.buffer::<u32>(2000)?;
        for len in [1, 10, 2000] {
            letter[..len].fill(u32::from(gaspi.rank()));
            letter = letter.send(len, 0)?.wait()?;
        }
        assert_eq!(letter.len(), 2000);
    } else {
        let mut room = gaspi.buffer::<u32>(2000)?;
        let mut come = [0; 3];
        for _ in 0..6 {
            room.fill(0);
            let from = gaspi.receive(room.slice_mut(..), Timeout::Block)?;
            let len = [1, 10, 2000][come[usize::from(from)]];
            come[usize::from(from)] += 1;
            assert!(room[..len].iter().all(|value| *value == u32::from(from)));
            assert!(room[len..].iter().all(|value| *value == 0));
        }
        assert_eq!(come, [0, 3, 3]);
        let none = gaspi.receive(room.slice_mut(..), Timeout::Test);
        assert_eq!(none, Err(Error::Timeout));
    }
    all.barrier()
}
