//! The safe interface, in jobs of several processes: of this program, which each test starts again with its own name.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use unipgas::core::job::launch::{Exit, Launch, Outcome, Output};
use unipgas::gaspi::ffi::gaspi_proc_init;
use unipgas::gaspi::safe::{
    Buffer, Error, Gaspi, Group, Notification, Pending, Queue, Reducible, Remote, Result, Scope,
    Segment, Slice, SliceMut, Timeout,
};
use unipgas::gaspi::{Config, Operation, Status, statistics};

#[allow(dead_code, reason = "it has a main function")]
#[path = "../examples/heat.rs"]
mod heat;

/// Tells a process which test it is a rank of.
const TEST: &str = "UNIPGAS_GASPI_SAFE_TEST";

/// Whether this process is a rank of the test; else starts `size` of them on each of the backends, and judges how they have ended.
fn is_rank(test: &str, size: u32, judge: fn(&Outcome) -> bool) -> bool {
    if std::env::var_os(TEST).is_some_and(|name| name == test) {
        unipgas::init();
        return true;
    }
    for backend in ["shm", "opaque", "chaos"] {
        let mut launch = Launch::new(size, std::env::current_exe().expect("this program"));
        launch.args = ["--exact", test, "--nocapture", "--test-threads=1"]
            .map(Into::into)
            .to_vec();
        launch.env = vec![(TEST.into(), test.into())];
        launch.backend = Some(backend.into());
        launch.seed = Some(1);
        launch.keep_going = true;
        launch.spares = u32::from(test == "another_process_takes_the_place");
        launch.output = Output::Capture;
        let outcome = launch.run().expect("the job starts");
        assert!(judge(&outcome), "{test} on {backend}: {}", told(&outcome));
    }
    false
}

fn told(outcome: &Outcome) -> String {
    let ranks = outcome.ranks.iter().map(|rank| {
        let (out, err) = (&rank.stdout, &rank.stderr);
        let text = [out, err].map(|text| String::from_utf8_lossy(text).into_owned());
        format!("rank {} {}\n{}", rank.rank, rank.exit, text.concat())
    });
    ranks.collect()
}

macro_rules! ranks {
    ($($(#[$attribute:meta])* $name:ident($size:literal) $(where $judge:expr)?;)*) => {$(
        #[test]
        $(#[$attribute])*
        fn $name() {
            let judge: fn(&Outcome) -> bool = ranks!(@ $($judge)?);
            if is_rank(stringify!($name), $size, judge) {
                bodies::$name().expect("every call succeeds");
            }
        }
    )*};
    (@) => { Outcome::success };
    (@ $judge:expr) => { $judge };
}

ranks! {
    ring(3);
    lists_and_reads(2);
    collectives(4);
    a_collective_goes_on(2);
    atomics(3);
    messages(3);
    a_full_queue_is_waited_for(2);
    what_is_refused(2);
    scopes_end(2);
    threads(2);
    again_and_again(2);
    counted(1);
    the_example(4);
    another_process_takes_the_place(3);
    a_rank_dies(3) where |outcome| {
        let ends: Vec<_> = outcome.ranks.iter().map(|rank| rank.exit).collect();
        ends[..2] == [Exit::Code(0); 2] && ends[2] != Exit::Code(0)
    };
}

fn one(id: u32) -> Notification {
    Notification::plain(id)
}

mod bodies {
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
            // Nobody writes before all have looked.
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

        // From one segment, split, while a part of it is changed here.
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

    fn reduced<T: Reducible + PartialEq + std::fmt::Debug + From<u8>>(
        group: &Group<'_>,
    ) -> Result<()> {
        let rank = group.ranks()?.len() as u8;
        let values: Vec<T> = (0..10).map(|i| T::from(i + rank)).collect();
        let largest = group.allreduce(&values, Operation::Max)?;
        assert_eq!(largest, values);
        let sum = group.allreduce(&[T::from(3)], Operation::Sum)?;
        assert_eq!(sum, [T::from(3 * rank)]);
        Ok(())
    }

    pub fn collectives() -> Result<()> {
        let gaspi = Gaspi::init()?;
        let (rank, size) = (gaspi.rank(), gaspi.size());
        let all = gaspi.group_all();
        assert_eq!(all.ranks()?, [0, 1, 2, 3]);
        all.commit()?;
        reduced::<i32>(&all)?;
        reduced::<u32>(&all)?;
        reduced::<f32>(&all)?;
        reduced::<f64>(&all)?;
        reduced::<i64>(&all)?;
        reduced::<u64>(&all)?;
        let mine: Vec<u16> = (0..size)
            .rev()
            .filter(|other| other % 2 == rank % 2)
            .collect();
        for _ in 0..3 {
            let group = gaspi.group(&mine)?;
            let sum = group.allreduce(&[u32::from(rank)], Operation::Sum)?;
            assert_eq!(sum, [u32::from(rank % 2) * 2 + 2]);
            let segment = group.create_segment::<u8>(1, 5)?;
            segment.delete()?;
            group.barrier()?;
        }
        // Of a type of the program's own; not aligned where the engine holds it.
        let values = [[1u8, rank as u8, 0], [0, 0, rank as u8]];
        let joined = |one: [u8; 3], other: [u8; 3]| std::array::from_fn(|i| one[i].max(other[i]));
        assert_eq!(all.allreduce_by(&values, joined)?, [[1, 3, 0], [0, 0, 3]]);
        let wide = all.allreduce_by(&[u128::from(rank) << 64], |one, other| one + other)?;
        assert_eq!(wide, [6 << 64]);
        // A barrier and a reduction may be under way together.
        let barrier = all.begin_barrier()?;
        assert_eq!(all.allreduce(&[1u64], Operation::Sum)?, [4]);
        barrier.wait()?;
        // Dropped, and waited for all the same.
        drop(all.begin_barrier()?);
        drop(all.begin_allreduce(&[1.0], Operation::Min)?);
        all.barrier()
    }

    /// Rank 1 comes when rank 0 has seen that it is not there, however slow either is.
    pub fn a_collective_goes_on() -> Result<()> {
        let gaspi = Gaspi::init()?;
        let all = gaspi.group_all();
        let segment = all.create_segment::<u8>(0, 1)?;
        let mut queue = gaspi.queue()?;
        let mut tell = |id| queue.scope(|q| q.notify(segment.remote(1), one(id)));
        let told = |id| segment.notification(id).wait(Timeout::Block);
        fn begun<R>(pending: &mut Pending<'_, R>) {
            for _ in 0..3 {
                assert!(pending.poll(Timeout::Test).is_ok_and(|done| done.is_none()));
            }
            assert!(!pending.is_done());
        }
        if gaspi.rank() == 0 {
            let mut barrier = all.begin_barrier()?;
            begun(&mut barrier);
            let refused = Some(Error::Refused(Status::ErrActiveColl));
            assert_eq!(all.barrier().err(), refused);
            assert_eq!(all.begin_barrier().err(), refused);
            assert_eq!(all.begin_commit().err(), refused);
            assert_eq!(all.create_segment::<u8>(1, 1).err(), refused);
            tell(0)?;
            barrier.wait()?;
            let mut sum = all.begin_allreduce(&[1u32, 2], Operation::Sum)?;
            begun(&mut sum);
            assert_eq!(all.allreduce_by(&[1u8], u8::max).err(), refused);
            tell(1)?;
            assert_eq!(sum.wait()?, [11, 22]);
            let mut group = gaspi.begin_group(&[0, 1])?;
            begun(&mut group);
            tell(2)?;
            let group = group.wait()?;
            let mut made = group.begin_create_segment::<u32>(9, 7)?;
            begun(&mut made);
            tell(3)?;
            let mut made = made.wait()?;
            made.set(6, 1);
            group.barrier()?;
        } else {
            told(0)?;
            all.barrier()?;
            told(1)?;
            assert_eq!(all.allreduce(&[10u32, 20], Operation::Sum)?, [11, 22]);
            told(2)?;
            let group = gaspi.group(&[1, 0])?;
            told(3)?;
            let made = group.create_segment::<u32>(9, 7)?;
            assert_eq!(made.remote(0).segment_len()?, 7);
            group.barrier()?;
        }
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
        // A lock, taken and given back by turns.
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
            let none: [(Slice<'_, u32>, Remote<'_, u32>); 0] = [];
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
            status(all.allreduce::<f64>(&[], Operation::Sum)),
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

        // What a panic leaves of a reduction is not continued; barriers go on.
        let panic = catch_unwind(AssertUnwindSafe(|| {
            all.allreduce_by(&[1u8], |_, _| panic!("as the test wants it"))
        }));
        assert!(panic.is_err());
        let next = all.allreduce(&[1.0], Operation::Sum);
        assert_eq!(next, Err(Error::Refused(Status::ErrActiveColl)));
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
            Scope<'_, '_>,
            Slice<'_, u8>,
            SliceMut<'_, u8>,
            Remote<'_, u8>,
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
                // Each notification goes to one of those that wait for all of them.
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

    pub fn again_and_again() -> Result<()> {
        for round in 0..3 {
            let gaspi = Gaspi::init()?;
            let all = gaspi.group_all();
            let mut segment = all.create_segment::<u8>(0, 1)?;
            segment.set(0, round);
            all.barrier()?;
            let mut room = gaspi.buffer::<u8>(1)?;
            let there = segment.remote(1 - gaspi.rank());
            gaspi
                .queue()?
                .scope(|q| q.read(room.slice_mut(..), there))?;
            assert_eq!(room[..], [round]);
            all.barrier()?;
            drop((segment, room, all));
            match round {
                0 => gaspi.term(),
                1 => assert!(gaspi.try_term(Timeout::Block).is_ok()),
                _ => {}
            }
        }
        Ok(())
    }

    pub fn counted() -> Result<()> {
        statistics::set_level(1);
        let gaspi = Gaspi::init()?;
        let segment = gaspi.segment::<u32>(0, 10)?;
        let source = gaspi.buffer::<u32>(10)?;
        gaspi.queue()?.scope(|q| {
            q.write(source.slice(..), segment.remote(0))?;
            q.write(source.slice(..), segment.remote(0).at(1))
                .expect_err("too long");
            q.write(source.slice(..3), segment.remote(0))
        })?;
        gaspi.group_all().barrier()?;
        let value = |name: &str| {
            let known = |counter: &u32| {
                let info = statistics::info(*counter).expect("a counter");
                info.name.to_str() == Ok(name)
            };
            let counter = (0..statistics::counters()).find(known);
            statistics::value(counter.expect("its name"), 0).expect("a value")
        };
        assert_eq!((value("gaspi_write"), value("bytes_written")), (2, 52));
        assert_eq!(
            (value("gaspi_barrier"), value("gaspi_segment_alloc")),
            (1, 1)
        );
        Ok(())
    }

    pub fn the_example() -> Result<(), Box<dyn std::error::Error>> {
        heat::compare(heat::Problem {
            rows: 11,
            columns: 5,
            steps: 40,
        })
    }

    pub fn another_process_takes_the_place() -> Result<()> {
        let gaspi = Gaspi::init()?;
        let all = gaspi.group_all();
        if gaspi.incarnation() == 0 {
            let segment = all.create_segment::<u8>(0, 1)?;
            if gaspi.rank() == 2 {
                // When the others have no need of it any more.
                segment.notification(0).wait(Timeout::Block)?;
                segment.notification(1).wait(Timeout::Block)?;
                std::process::abort();
            }
            let here = one(gaspi.rank().into());
            // Whether it still says that it has been told is no matter.
            let _ = gaspi.queue()?.scope(|q| q.notify(segment.remote(2), here));
            // Dead first, and healthy when the other process is there.
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

    pub fn a_rank_dies() -> Result<()> {
        let gaspi = Gaspi::init()?;
        let all = gaspi.group_all();
        let segment = all.create_segment::<u32>(0, 10)?;
        all.barrier()?;
        let mut queue = gaspi.queue()?;
        match gaspi.rank() {
            // When the other one is past its barrier, too.
            0 => {
                segment.notification(0).wait(Timeout::Block)?;
                gaspi.kill(2, Timeout::Block)?;
            }
            1 => queue.scope(|q| q.notify(segment.remote(0), one(0)))?,
            _ => {
                // Until it is killed.
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
        // The others go on.
        let group = gaspi.group(&[0, 1])?;
        group.barrier()?;
        queue.scope(|q| q.write(source.slice(..), segment.remote(1 - gaspi.rank())))?;
        group.barrier()
    }
}
