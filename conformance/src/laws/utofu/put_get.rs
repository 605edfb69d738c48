//! §2.2.3 Put, §2.2.4 Get, §2.2.9 packets, §3.7.1.1 to §3.7.1.4, §3.7.1.7 to §3.7.1.10.

use super::kit::*;

laws! {
    puts: "put", "§2.2.3, §3.7.1.1", 2, [put, poll_mrq] + ordering,
        "a put of any length and alignment writes those bytes and no others, and leaves its source alone";
    gets: "get", "§2.2.4, §3.7.1.7", 2, [get, poll_mrq] + ordering,
        "a get of any length and alignment reads those bytes, writes no others, and leaves its source alone";
    longest: "put-get.longest", "§3.2.2.1, table 6.4", 2, [put, get],
        "16777215 bytes go in one put and one get, at odd addresses";
    nothing with(256): "put-get.empty", "§3.7.1.1", 2, [put, get, put_piggyback, put_piggyback8],
        "a length of 0 changes nothing and is notified like any other";
    put_gaps: "put-gap", "§2.2.9, §3.7.1.2", 2, [put_gap],
        "MTU and transmission gap change when packets go, and not what arrives";
    get_gaps: "get-gap", "§2.2.9, §3.7.1.8", 2, [get_gap],
        "MTU and transmission gap change when packets go, and not what arrives";
    put_strides: "put-stride", "§3.7, §3.7.1.3", 2, [put_stride, put_stride_gap] + ordering,
        "block i comes from and goes to i strides behind the first one; nothing between is touched";
    get_strides: "get-stride", "§3.7, §3.7.1.9", 2, [get_stride, get_stride_gap] + ordering,
        "block i comes from and goes to i strides behind the first one; nothing between is touched";
    overlapping_blocks with(1024): "put-stride.small-strides", "§3.7.1.3", 2, [put_stride, get_stride],
        "the stride may be 0, or less than the length";
    own_vcq with(512): "put-get.self", "§2.1, §3.7.1.1", 2, [put, get],
        "the remote VCQ may be the own one: both notices come to it";
    all_pairs with(4096): "put.everybody", "§3.3", 5, [put] + ordering,
        "a VCQ communicates with any other VCQs any number of times: everybody puts to everybody";
}

const LENGTHS: [usize; 27] = [
    1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 255, 256, 257, 1919, 1920,
    1921, 4097, 65_537, 131_073,
];
const SPACE: usize = 160 * 1024;

/// Runs `transfer(local offset, remote offset, length)` for lengths and alignments and checks both ends.
fn sweep(
    ctx: &Ctx,
    put: bool,
    transfer: impl Fn(&Job<'_>, usize, usize, usize) -> Verdict,
) -> Verdict {
    with(ctx, 2 * SPACE, |job| {
        let mut random = ctx.random(1);
        for (round, length) in LENGTHS.into_iter().enumerate() {
            let (from, to) = (random.below(70) as usize, random.below(70) as usize);
            let bytes = random_bytes(&mut random, length);
            // The first half is the source, the second half the target.
            job.memory.fill(round as u8);
            job.memory.store(from, &bytes);
            job.meet();
            if put {
                transfer(job, from, SPACE + to, length)?;
            } else {
                transfer(job, SPACE + to, from, length)?;
            }
            job.meet();
            let what = format!("{length} bytes from {from} to {to}");
            let source = format!("the source of {what}");
            job.memory.holds(from, &bytes, &source)?;
            let target = (SPACE + to, &bytes[..]);
            job.memory.only(SPACE, target, round as u8, &what)?;
            job.meet();
        }
        Ok(())
    })
}

fn puts(ctx: &Ctx) -> Verdict {
    sweep(ctx, true, |job, from, to, length| {
        let peer = job.right();
        job.put(peer, from, to, length).noticed(3, 0)?;
        Ok(())
    })
}

fn gets(ctx: &Ctx) -> Verdict {
    sweep(ctx, false, |job, to, from, length| {
        let peer = job.right();
        job.get(peer, to, from, length).noticed(3, 0)?;
        Ok(())
    })
}

fn put_gaps(ctx: &Ctx) -> Verdict {
    let shapes = [(1920, 0), (1, 255), (64, 8), (1919, 24), (100, 1)];
    let turn = std::cell::Cell::new(0);
    sweep(ctx, true, |job, from, to, length| {
        let peer = job.right();
        let (mtu, gap) = shapes[turn.get() % shapes.len()];
        turn.set(turn.get() + 1);
        job.put_gap(peer, from, to, length, mtu, gap)
            .noticed(3, 0)?;
        Ok(())
    })
}

fn get_gaps(ctx: &Ctx) -> Verdict {
    let shapes = [(1920, 0), (1, 255), (64, 8), (1919, 24), (100, 1)];
    let turn = std::cell::Cell::new(0);
    sweep(ctx, false, |job, to, from, length| {
        let peer = job.right();
        let (mtu, gap) = shapes[turn.get() % shapes.len()];
        turn.set(turn.get() + 1);
        job.get_gap(peer, to, from, length, mtu, gap)
            .noticed(3, 0)?;
        Ok(())
    })
}

fn longest(ctx: &Ctx) -> Verdict {
    const MOST: usize = 16_777_215;
    with(ctx, 2 * (MOST + 1), |job| {
        if job.rank == 0 {
            let bytes = random_bytes(&mut ctx.random(2), MOST);
            job.memory.store(1, &bytes);
            // The put goes to an odd address, the get to another one.
            let notice = job.put(1, 1, 3, MOST).noticed(0, 0)?;
            ensure_eq!(notice.rmt_stadd, job.at(1, 3 + MOST), "the end of the put");
            job.get(1, MOST + 1, 3, MOST).noticed(0, 0)?;
            job.memory.holds(MOST + 1, &bytes, "what came back")?;
            job.memory.all(0, 1, 0, "before the source")?;
        }
        job.meet();
        if job.rank == 1 {
            job.memory.all(0, 3, 0, "before the target")?;
            job.memory.all(3 + MOST, MOST - 1, 0, "behind the target")?;
        }
        job.put(1, 0, 0, MOST + 1)
            .gives(UTOFU_ERR_INVALID_SIZE, 0, 0, 0)
    })
}

fn nothing(job: &Job<'_>) -> Verdict {
    job.memory.fill(7);
    job.meet();
    let (peer, to) = (job.vcq(job.right()), job.at(job.right(), 8));
    let flags = LOCAL | REMOTE | TCQ;
    post::put(job.hdl, peer, job.stadd, to, 0).ok(1, flags, 1)?;
    post::put_piggyback8(job.hdl, peer, 0, to, 0).ok(1, flags, 2)?;
    let byte = [0u8; 32];
    post::put_piggyback(job.hdl, peer, post::bytes(&byte), to, 0).ok(1, flags, 3)?;
    post::get(job.hdl, peer, job.stadd, to, 0).ok(1, flags, 4)?;
    for cbdata in 1..=4 {
        ensure_eq!(job.queue.tcq()?, cbdata, "cbdata");
    }
    let mut seen = [0; 4];
    for _ in 0..8 {
        let notice = job.queue.mrq()?;
        ensure_eq!(notice.edata, 1, "edata");
        seen[usize::from(notice.notice_type)] += 1;
    }
    ensure_eq!(seen, [3, 3, 1, 1], "notices of puts (two) and gets");
    job.meet();
    job.memory.all(0, 256, 7, "after nothing was written")
}

fn strides(
    ctx: &Ctx,
    put: bool,
    transfer: impl Fn(&Job<'_>, (u64, u64), (usize, usize, usize), bool) -> Verdict,
) -> Verdict {
    const HALF: usize = 16 * 1024;
    let shapes = [
        (1, 3, 40),
        (8, 8, 64),
        (12, 100, 7),
        (255, 256, 33),
        (1000, 1001, 16),
        (5, 17, 1),
    ];
    with(ctx, 2 * HALF, |job| {
        let mut random = ctx.random(3);
        for (round, (length, stride, blocks)) in shapes.into_iter().enumerate() {
            let bytes = random_bytes(&mut random, HALF);
            let (from, to) = (random.below(9) as usize, random.below(9) as usize);
            job.memory.store(0, &bytes);
            job.memory.fill_range(HALF, HALF, 0xee);
            job.meet();
            let places = if put {
                (job.stadd + from as u64, job.at(job.right(), HALF + to))
            } else {
                (job.stadd + (HALF + to) as u64, job.at(job.right(), from))
            };
            transfer(job, places, (length, stride, blocks), round % 2 == 1)?;
            for _ in 0..blocks {
                job.queue.notice(if put { LCL_PUT } else { LCL_GET })?;
            }
            job.queue.mrq_is_empty()?;
            job.meet();
            let mut expected = vec![0xee; HALF];
            for block in 0..blocks {
                let at = block * stride;
                expected[to + at..to + at + length]
                    .copy_from_slice(&bytes[from + at..from + at + length]);
            }
            let what = format!("{blocks} blocks of {length}, {stride} apart");
            job.memory.holds(HALF, &expected, &what)?;
            job.memory.holds(0, &bytes, "the source")?;
            job.meet();
        }
        Ok(())
    })
}

fn put_strides(ctx: &Ctx) -> Verdict {
    strides(
        ctx,
        true,
        |job, (from, to), (length, stride, blocks), gap| {
            let (hdl, peer) = (job.hdl, job.vcq(job.right()));
            if gap {
                post::put_stride_gap(hdl, peer, from, to, length, stride, blocks, 256, 8)
                    .ok(0, LOCAL, 0)?;
            } else {
                post::put_stride(hdl, peer, from, to, length, stride, blocks).ok(0, LOCAL, 0)?;
            }
            Ok(())
        },
    )
}

fn get_strides(ctx: &Ctx) -> Verdict {
    strides(
        ctx,
        false,
        |job, (to, from), (length, stride, blocks), gap| {
            let (hdl, peer) = (job.hdl, job.vcq(job.right()));
            if gap {
                post::get_stride_gap(hdl, peer, to, from, length, stride, blocks, 256, 8)
                    .ok(0, LOCAL, 0)?;
            } else {
                post::get_stride(hdl, peer, to, from, length, stride, blocks).ok(0, LOCAL, 0)?;
            }
            Ok(())
        },
    )
}

fn overlapping_blocks(job: &Job<'_>) -> Verdict {
    let bytes = random_bytes(&mut job.ctx.random(4), 256);
    job.memory.store(0, &bytes);
    job.meet();
    let peer = job.right();
    // All blocks write bytes of the same distance: the order does not matter.
    for (length, stride, blocks) in [(64, 0, 5), (64, 16, 9), (7, 1, 100)] {
        job.put_stride(peer, 0, 256, length, stride, blocks)
            .ok(0, LOCAL, 0)?;
        job.get_stride(peer, 512, 0, length, stride, blocks)
            .ok(0, LOCAL, 0)?;
        for _ in 0..2 * blocks {
            job.queue.mrq()?;
        }
        job.meet();
        let end = (blocks - 1) * stride + length;
        job.memory.holds(256, &bytes[..end], "what was put")?;
        job.memory.holds(512, &bytes[..end], "what was got")?;
        job.memory
            .all(256 + end, 256 - end, 0, "behind what was put")?;
        job.meet();
        job.memory.fill_range(256, 768, 0);
        job.meet();
    }
    Ok(())
}

fn own_vcq(job: &Job<'_>) -> Verdict {
    let bytes = random_bytes(&mut job.ctx.random(u64::from(job.rank)), 100);
    job.memory.store(0, &bytes);
    let flags = LOCAL | REMOTE;
    post::put(job.hdl, job.queue.id, job.stadd, job.stadd + 101, 100).ok(0, flags, 0)?;
    let mut types = [job.queue.mrq()?.notice_type, job.queue.mrq()?.notice_type];
    types.sort();
    ensure_eq!(types, [LCL_PUT, RMT_PUT], "types of the notices of a put");
    job.memory.holds(101, &bytes, "the put")?;
    post::get(job.hdl, job.queue.id, job.stadd + 301, job.stadd + 101, 100).ok(0, flags, 0)?;
    let mut types = [job.queue.mrq()?.notice_type, job.queue.mrq()?.notice_type];
    types.sort();
    ensure_eq!(types, [LCL_GET, RMT_GET], "types of the notices of a get");
    job.memory.holds(301, &bytes, "the get")
}

fn all_pairs(job: &Job<'_>) -> Verdict {
    const ROUNDS: u64 = 20;
    for round in 1..=ROUNDS {
        job.memory.set(2048, round << 8 | u64::from(job.rank));
        for peer in (0..job.size).filter(|peer| *peer != job.rank) {
            let to = job.at(peer, 8 * job.rank as usize);
            let put = post::put(job.hdl, job.vcq(peer), job.stadd + 2048, to, 8);
            put.ok(round, LOCAL | REMOTE, 0)?;
        }
        let mut seen = [0; 2];
        for _ in 0..2 * (job.size - 1) {
            let notice = job.queue.mrq()?;
            ensure_eq!(notice.edata, round, "edata");
            seen[usize::from(notice.notice_type)] += 1;
        }
        ensure_eq!(seen, [job.size - 1; 2], "local and remote notices");
        for peer in (0..job.size).filter(|peer| *peer != job.rank) {
            let word = job.memory.get(8 * peer as usize);
            ensure_eq!(word, round << 8 | u64::from(peer), "what rank {peer} put");
        }
        job.meet();
    }
    Ok(())
}
