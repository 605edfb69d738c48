//! §3.7.2 preparation, §3.7.3.1 batch start.

use std::ffi::c_void;

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
        "descriptors are as long as is said, at most 64 bytes a command, and nothing behind them is written";
}

const BLOCKS: usize = 5;

fn every_kind(job: &Job<'_>) -> Verdict {
    const FLAGS: u64 = TCQ | LOCAL;
    const DATA: [u8; 32] = [6; 32];
    let peer = job.right();
    let (hdl, vcq) = (job.hdl, job.vcq(peer));
    // Sources: bytes 0 to 1023, the same on all ranks. Targets: gets write here at 1024 and up, puts write there at 4096 and up.
    let bytes = random_bytes(&mut job.ctx.random(1), 1024);
    job.memory.store(0, &bytes);
    job.meet();
    let here = |at: usize| job.stadd + at as u64;
    let there = |at: usize| job.at(peer, at);
    let mut desc = [0u64; 8 * BLOCKS];
    let desc = desc.as_mut_ptr().cast::<c_void>();
    for kind in 0..15usize {
        let to = 4096 + 256 * kind;
        let back = 1024 + 256 * (kind % 8);
        let size = match kind {
            0 => job.put(peer, 3, to, 77).prepare(1, FLAGS, desc)?,
            1 => job
                .put_gap(peer, 3, to, 77, 64, 8)
                .prepare(1, FLAGS, desc)?,
            2 => job
                .put_stride(peer, 3, to, 7, 20, BLOCKS)
                .prepare(1, FLAGS, desc)?,
            3 => post::put_stride_gap(hdl, vcq, here(3), there(to), 7, 20, BLOCKS, 64, 8)
                .prepare(1, FLAGS, desc)?,
            4 => job
                .put_piggyback(peer, &DATA, to, 29)
                .prepare(1, FLAGS, desc)?,
            5 => {
                post::put_piggyback8(hdl, vcq, 0x0605_0403, there(to), 3).prepare(1, FLAGS, desc)?
            }
            6 => job.get(peer, back, 3, 77).prepare(1, FLAGS, desc)?,
            7 => job
                .get_gap(peer, back, 3, 77, 64, 8)
                .prepare(1, FLAGS, desc)?,
            8 => job
                .get_stride(peer, back, 3, 7, 20, BLOCKS)
                .prepare(1, FLAGS, desc)?,
            9 => post::get_stride_gap(hdl, vcq, here(back), there(3), 7, 20, BLOCKS, 64, 8)
                .prepare(1, FLAGS, desc)?,
            10 => job.armw4(peer, to, ADD, 5).prepare(1, FLAGS, desc)?,
            11 => job.armw8(peer, to, OR, 5 << 40).prepare(1, FLAGS, desc)?,
            12 => job.cswap4(peer, to, 0, 9).prepare(1, FLAGS, desc)?,
            13 => job.cswap8(peer, to, 0, 9 << 40).prepare(1, FLAGS, desc)?,
            _ => got!(utofu_prepare_nop(hdl, FLAGS, desc)),
        };
        let strided = matches!(kind, 2 | 3 | 8 | 9);
        let commands = if strided { BLOCKS } else { 1 };
        ensure!((1..=DESC * commands).contains(&size), "{kind}: {size}");
        job.queue.tcq_is_empty()?;
        job.queue.mrq_is_empty()?;
        job.meet();
        job.memory
            .all(to, 256, 0, "what is prepared, before it is posted")?;
        job.meet();
        post::toq(hdl, desc, size, kind + 1)?;
        for _ in 0..commands {
            ensure_eq!(job.queue.tcq()?, kind + 1, "cbdata");
            if kind < 14 {
                let notice = job.queue.mrq()?;
                let expected = match kind {
                    ..6 => LCL_PUT,
                    6..10 => LCL_GET,
                    _ => LCL_ARMW,
                };
                let seen = (notice.notice_type, notice.edata);
                ensure_eq!(seen, (expected, 1), "type and EDATA of kind {kind}");
            }
        }
        job.meet();
        let at = if (6..10).contains(&kind) { back } else { to };
        let mut expected = vec![0; 100];
        match kind {
            0 | 1 | 6 | 7 => expected[..77].copy_from_slice(&bytes[3..80]),
            2 | 3 | 8 | 9 => {
                for block in 0..BLOCKS {
                    let at = 20 * block;
                    expected[at..at + 7].copy_from_slice(&bytes[3 + at..10 + at]);
                }
            }
            4 => expected[..29].copy_from_slice(&DATA[..29]),
            5 => expected[..3].copy_from_slice(&[3, 4, 5]),
            10 => expected[0] = 5,
            11 => expected[5] = 5,
            12 => expected[0] = 9,
            13 => expected[5] = 9,
            _ => {}
        }
        job.memory
            .holds(at, &expected, &format!("what kind {kind} has written"))?;
        job.meet();
        job.memory.store(at, &[0; 256]);
        job.meet();
    }
    job.queue.tcq_is_empty()?;
    job.queue.mrq_is_empty()
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
        for _ in 0..7 {
            ensure_eq!(job.queue.tcq()?, round, "cbdata");
        }
        for edata in [1, 2, 3, 3, 3, 4] {
            ensure_eq!(job.queue.mrq()?.edata, edata, "edata");
        }
        ensure_eq!(job.memory.get(256), round as u64, "what the get has read");
        job.meet();
        ensure_eq!(job.memory.get(520), round as u64, "additions");
    }
    job.queue.tcq_is_empty()?;
    job.queue.mrq_is_empty()
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
    ensure_eq!(seen, [100, 100], "additions and the last put");
    Ok(())
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
    ensure_eq!(job.memory.get(24), 0x0101_0101_0101_0101, "the piggyback");
    Ok(())
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
        for _ in 0..BATCH {
            ensure_eq!(job.queue.tcq()?, batch, "cbdata");
        }
    }
    job.queue.tcq_is_empty()?;
    ensure_eq!(post(7), SUCCESS, "the code when there is room again");
    let expected = ((posted + 1) * BATCH) as u64;
    until("all additions of the left rank", || {
        job.memory.get(0) >= expected
    })?;
    job.meet();
    ensure_eq!(job.memory.get(0), expected, "additions of the left rank");
    Ok(())
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
