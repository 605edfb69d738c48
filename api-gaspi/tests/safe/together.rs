//! Actions of all processes: begin, end, groups, and collective operations.

use super::*;

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

fn reduced<T: Reducible + PartialEq + std::fmt::Debug + From<u8>>(group: &Group<'_>) -> Result<()> {
    let rank = group.ranks()?.len() as u8;
    let values: Vec<T> = (0..10).map(|i| T::from(i + rank)).collect();
    let largest = group.allreduce(&values, ReductionOperation::Max)?;
    assert_eq!(largest, values);
    let sum = group.allreduce(&[T::from(3)], ReductionOperation::Sum)?;
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
        let sum = group.allreduce(&[u32::from(rank)], ReductionOperation::Sum)?;
        assert_eq!(sum, [u32::from(rank % 2) * 2 + 2]);
        let segment = group.create_segment::<u8>(1, 5)?;
        segment.delete()?;
        group.barrier()?;
    }
    // Elements of a type of the program. They are not aligned in the engine's memory.
    let values = [[1u8, rank as u8, 0], [0, 0, rank as u8]];
    let joined = |one: [u8; 3], other: [u8; 3]| std::array::from_fn(|i| one[i].max(other[i]));
    assert_eq!(all.allreduce_by(&values, joined)?, [[1, 3, 0], [0, 0, 3]]);
    let wide = all.allreduce_by(&[u128::from(rank) << 64], |one, other| one + other)?;
    assert_eq!(wide, [6 << 64]);
    // A barrier and a reduction may be in progress at the same time.
    let barrier = all.begin_barrier()?;
    assert_eq!(all.allreduce(&[1u64], ReductionOperation::Sum)?, [4]);
    barrier.wait()?;
    // Dropping a collective waits for its end.
    drop(all.begin_barrier()?);
    drop(all.begin_allreduce(&[1.0], ReductionOperation::Min)?);
    all.barrier()
}

/// Rank 1 enters after rank 0 has polled the incomplete collective, at any speed of either.
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
        let mut sum = all.begin_allreduce(&[1u32, 2], ReductionOperation::Sum)?;
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
        assert_eq!(
            all.allreduce(&[10u32, 20], ReductionOperation::Sum)?,
            [11, 22]
        );
        told(2)?;
        let group = gaspi.group(&[1, 0])?;
        told(3)?;
        let made = group.create_segment::<u32>(9, 7)?;
        assert_eq!(made.remote(0).segment_len()?, 7);
        group.barrier()?;
    }
    all.barrier()
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
