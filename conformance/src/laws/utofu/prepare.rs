//! §3.7.2 preparation, §3.7.3.1 batch start.

use super::functions::{Call, functions};
use super::kit::*;
use super::tcq::fill;

laws! {
    every_kind with(8192): "prepare", "§3.7.2", 2, [prepare_put, prepare_put_gap, prepare_put_stride, prepare_put_stride_gap,
            prepare_put_piggyback, prepare_put_piggyback8, prepare_get, prepare_get_gap, prepare_get_stride,
            prepare_get_stride_gap, prepare_armw4, prepare_armw8, prepare_cswap4, prepare_cswap8, prepare_nop, post_toq]
            + ordering,
        "every kind of command is written, starts nothing by itself, and does when posted what its start function does";
    batch with(1024): "post.batch", "§3.7.3.1", 2, [post_toq, prepare_put, prepare_get, prepare_armw8, prepare_nop] + ordering,
        "descriptors of different kinds one behind the other are posted at once, in order, with one cbdata for all";
    reusable with(256): "post.again", "§3.7", 2, [post_toq, prepare_armw8, prepare_put] + ordering,
        "a descriptor can be posted any number of times, from a copy at another place too, and stays as it is";
    source_later with(256): "post.source", "§3.7", 2, [post_toq, prepare_put, prepare_put_piggyback],
        "a prepared put reads its source when it is posted, a piggyback when it is prepared";
    busy with(256): "post.busy", "§3.7.3.1", 2, [post_toq, prepare_armw8, poll_tcq],
        "a batch for which there is no room is BUSY and nothing of it starts";
    sizes with(1024): "prepare.size", "§3.7.2", 1, [prepare_put_stride, prepare_put, prepare_nop],
        "descriptors have the returned length, at most 64 bytes a command, and nothing behind them is written";
}

const BLOCKS: usize = 5;

fn every_kind(job: &Job<'_>) -> Verdict {
    const DATA: [u8; 32] = [6; 32];
    let peer = job.right();
    // Sources: bytes 0 to 1023, the same on all ranks. Targets: gets write here at 1024 and up, puts write there at 4096 and up.
    let bytes = random_bytes(&mut job.ctx.random(1), 1024);
    job.memory.store(0, &bytes);
    job.meet();
    let (mut desc, mut size) = ([0u64; 8 * BLOCKS], 0);
    let desc = desc.as_mut_ptr().cast::<u8>();
    for (kind, function) in functions().into_iter().enumerate() {
        let (name, gets) = (function.name, function.local_type() == LCL_GET);
        let strided = function.takes.contains("blocks");
        let at = if gets { 1024 } else { 4096 } + 256 * kind;
        let (here, there) = if gets { (at, 3) } else { (3, at) };
        let wide = name.ends_with('8');
        let len = match name {
            "utofu_put_piggyback" => 29,
            "utofu_put_piggyback8" => 3,
            _ if strided => 7,
            _ => 77,
        };
        let code = (function.prepare)(&Call {
            local: job.stadd + here as u64,
            remote: job.at(peer, there),
            len,
            edata: 1,
            flags: TCQ | LOCAL,
            op: OR,
            value: if wide { 0x0506_0504_0003 } else { 5 },
            mtu: 64,
            gap: 8,
            stride: 20,
            blocks: BLOCKS,
            data: DATA.as_ptr(),
            desc,
            size: &mut size,
            ..Call::to(job, peer)
        });
        code_is(code, SUCCESS, format!("preparing {name}"))?;
        let (commands, notices) = function.counts(BLOCKS);
        ensure!((1..=DESC * commands).contains(&size), "{name}: {size}");
        job.queue.has_nothing()?;
        job.meet();
        job.memory
            .all(at, 256, 0, "a prepared command, before its post")?;
        job.meet();
        post::toq(job.hdl, desc, size, kind + 1)?;
        job.queue
            .completes(std::iter::repeat_n(kind + 1, commands))?;
        for _ in 0..notices {
            let notice = job.queue.notice(function.local_type())?;
            ensure_eq!(notice.edata, 1, "EDATA of {name}");
        }
        job.meet();
        let mut expected = vec![0; 100];
        match name {
            "utofu_nop" => {}
            "utofu_put_piggyback" => expected[..len].copy_from_slice(&DATA[..len]),
            "utofu_put_piggyback8" => expected[..len].copy_from_slice(&[3, 0, 4]),
            _ if strided => {
                for block in (0..BLOCKS).map(|block| 20 * block) {
                    expected[block..block + 7].copy_from_slice(&bytes[3 + block..10 + block]);
                }
            }
            _ if function.local_type() != LCL_ARMW => {
                expected[..len].copy_from_slice(&bytes[3..80])
            }
            _ if wide => expected[..6].copy_from_slice(&[3, 0, 4, 5, 6, 5]),
            _ => expected[0] = 5,
        }
        job.memory
            .holds(at, &expected, &format!("what {name} has written"))?;
        job.meet();
        job.memory.store(at, &[0; 256]);
        job.meet();
    }
    job.queue.has_nothing()
}

fn batch(job: &Job<'_>) -> Verdict {
    let peer = job.right();
    let hdl = job.hdl;
    for round in 1..=20usize {
        job.memory.set(0, round as u64);
        let mut desc = [0u64; 8 * 8];
        let base = desc.as_mut_ptr().cast::<u8>();
        let mut total = 0;
        let at = |total: usize| base.wrapping_add(total).cast::<c_void>();
        let f = TCQ | LOCAL;
        total += job.put(peer, 0, 512, 8).prepare(1, f, at(total))?;
        total += got!(utofu_prepare_nop(hdl, TCQ, at(total)));
        let strong = f | STRONG_ORDER;
        let add = job.armw8(peer, 520, ADD, 1);
        total += add.prepare(2, strong, at(total))?;
        let puts = job.put_stride(peer, 0, 600, 8, 32, 3);
        total += puts.prepare(3, f, at(total))?;
        let get = job.get(peer, 256, 512, 8);
        total += get.prepare(4, strong, at(total))?;
        job.meet();
        post::toq(hdl, base, total, round)?;
        job.queue.completes(std::iter::repeat_n(round, 7))?;
        for edata in [1, 2, 3, 3, 3, 4] {
            ensure_eq!(job.queue.mrq()?.edata, edata, "edata");
        }
        ensure_eq!(job.memory.get(256), round as u64, "the data of the get");
        job.meet();
        ensure_eq!(job.memory.get(520), round as u64, "additions");
    }
    job.queue.has_nothing()
}

fn reusable(job: &Job<'_>) -> Verdict {
    let peer = job.right();
    let mut desc = [0u64; 16];
    let place = desc.as_mut_ptr().cast::<u8>();
    let first = job.armw8(peer, 0, ADD, 1).prepare(1, TCQ, place)?;
    let second = job
        .put(peer, 8, 16, 8)
        .prepare(1, TCQ | LOCAL, place.wrapping_add(first))?;
    let before = desc;
    for round in 1..=100u64 {
        job.memory.set(8, round);
        let mut copy = desc;
        let from = if round % 2 == 0 { &mut copy } else { &mut desc };
        post::toq(job.hdl, from.as_mut_ptr(), first + second, round as usize)?;
        copy.fill(0);
        ensure_eq!(job.queue.tcq()?, round as usize, "cbdata");
        ensure_eq!(job.queue.tcq()?, round as usize, "cbdata");
        job.queue.notice(LCL_PUT)?;
    }
    ensure!(desc == before, "posting has changed the descriptors");
    job.meet();
    let seen = job.memory.words([0, 16]);
    equal!(seen, [100, 100], "additions and the last put")
}

fn source_later(job: &Job<'_>) -> Verdict {
    let peer = job.right();
    let mut desc = [0u64; 16];
    let place = desc.as_mut_ptr().cast::<u8>();
    let mut data = [1u8; 8];
    job.memory.set(8, 1);
    let first = job.put(peer, 8, 16, 8).prepare(1, LOCAL, place)?;
    let second =
        job.put_piggyback(peer, &data, 24, 8)
            .prepare(1, LOCAL, place.wrapping_add(first))?;
    job.memory.set(8, 2);
    data.fill(2);
    post::toq(job.hdl, place, first + second, 0)?;
    job.queue.notice(LCL_PUT)?;
    job.queue.notice(LCL_PUT)?;
    job.meet();
    ensure_eq!(data[0], 2, "the data");
    ensure_eq!(job.memory.get(16), 2, "the put");
    equal!(job.memory.get(24), 0x0101_0101_0101_0101, "the piggyback")
}

fn busy(job: &Job<'_>) -> Verdict {
    const BATCH: usize = 32;
    let peer = job.right();
    let mut desc = [0u64; 8 * BATCH];
    let mut total = 0;
    for _ in 0..BATCH {
        let place = desc.as_mut_ptr().cast::<u8>().wrapping_add(total);
        let size = job.armw8(peer, 0, ADD, 1).prepare(0, TCQ, place)?;
        total += size;
    }
    let descs = desc.as_ptr().cast_mut().cast();
    let post = |nth| c!(utofu_post_toq(job.hdl, descs, total, cb(nth)));
    let posted = fill(post)?;
    for batch in 1..=posted {
        job.queue.completes(std::iter::repeat_n(batch, BATCH))?;
    }
    job.queue.tcq_is_empty()?;
    ensure_eq!(post(7), SUCCESS, "the code when there is room again");
    let expected = ((posted + 1) * BATCH) as u64;
    job.sum_arrives(expected)
}

/// The words of the room for descriptors at first.
const UNTOUCHED: u64 = 0xabab_abab_abab_abab;

fn sizes(job: &Job<'_>) -> Verdict {
    for blocks in 1..=16usize {
        let mut desc = [UNTOUCHED; 8 * 17];
        let size = post::put_stride(job.hdl, job.queue.id, job.stadd, job.stadd, 1, 1, blocks)
            .prepare(0, 0, desc.as_mut_ptr())?;
        let fits = size > 0 && size <= DESC * blocks;
        ensure!(fits, "{size} bytes for {blocks} blocks");
        let kept = desc[8 * blocks..].iter().all(|word| *word == UNTOUCHED);
        ensure!(kept, "{blocks} blocks: memory behind them was written");
    }
    let mut desc = [UNTOUCHED; 9];
    let size = got!(utofu_prepare_nop(job.hdl, 0, desc.as_mut_ptr().cast()));
    let fits = size > 0 && size <= DESC && desc[8] == UNTOUCHED;
    ensure!(fits, "{size} bytes for a NOP");
    Ok(())
}
