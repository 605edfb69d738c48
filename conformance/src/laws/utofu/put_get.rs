//! §2.2.3 Put, §2.2.4 Get, §2.2.9 packets, §3.7.1.1 to §3.7.1.4, §3.7.1.7 to §3.7.1.10.

use super::functions::{Call, Function};
use super::kit::*;

laws! {
    sweep given((true, false)): "put", "§2.2.3, §3.7.1.1", 2, [put, poll_mrq] + ordering,
        "a put of any length and alignment writes those bytes and no others, and leaves its source alone";
    sweep given((false, false)): "get", "§2.2.4, §3.7.1.7", 2, [get, poll_mrq] + ordering,
        "a get of any length and alignment reads those bytes, writes no others, and leaves its source alone";
    longest: "put-get.longest", "§3.2.2.1, table 6.4", 2, [put, get],
        "16777215 bytes go in one put and one get, at odd addresses";
    nothing with(256): "put-get.empty", "§3.7.1.1", 2, [put, get, put_piggyback, put_piggyback8],
        "a length of 0 changes nothing and is notified like any other";
    sweep given((true, true)): "put-gap", "§2.2.9, §3.7.1.2", 2, [put_gap],
        "MTU and transmission gap change when packets go, and not what arrives";
    sweep given((false, true)): "get-gap", "§2.2.9, §3.7.1.8", 2, [get_gap],
        "MTU and transmission gap change when packets go, and not what arrives";
    strides given(true): "put-stride", "§3.7, §3.7.1.3", 2, [put_stride, put_stride_gap] + ordering,
        "block i comes from and goes to i strides behind the first one; nothing between is touched";
    strides given(false): "get-stride", "§3.7, §3.7.1.9", 2, [get_stride, get_stride_gap] + ordering,
        "block i comes from and goes to i strides behind the first one; nothing between is touched";
    overlapping_blocks with(1024): "put-stride.small-strides", "§3.7.1.3", 2, [put_stride, get_stride],
        "the stride may be 0, or less than the length";
    own_vcq with(512): "put-get.self", "§2.1, §3.7.1.1", 2, [put, get],
        "the remote VCQ may be the own one: both notices come to it";
    all_pairs with(4096): "put.everybody", "§3.3", 5, [put] + ordering,
        "a VCQ communicates with any other VCQs any number of times: all put to all";
}

const LENGTHS: [usize; 27] = [
    1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 255, 256, 257, 1919, 1920,
    1921, 4097, 65_537, 131_073,
];
const SPACE: usize = 160 * 1024;

/// Puts or gets each length at random alignments, with MTUs and gaps or without, and checks both ends.
fn sweep(ctx: &Ctx, (put, gaps): (bool, bool)) -> Verdict {
    let packets = [(1920, 0), (1, 255), (64, 8), (1919, 24), (100, 1)];
    with(ctx, 2 * SPACE, |job| {
        let (mut random, peer) = (ctx.random(1), job.right());
        for (round, length) in LENGTHS.into_iter().enumerate() {
            let (from, to) = (random.below(70) as usize, random.below(70) as usize);
            let bytes = random_bytes(&mut random, length);
            // The first half is the source, the second half the target.
            job.memory.fill(round as u8);
            job.memory.store(from, &bytes);
            job.meet();
            let (mtu, gap) = packets[round % packets.len()];
            match (put, gaps) {
                (true, false) => job.put(peer, from, SPACE + to, length).noticed(3, 0)?,
                (false, false) => job.get(peer, SPACE + to, from, length).noticed(3, 0)?,
                (true, true) => job
                    .put_gap(peer, from, SPACE + to, length, mtu, gap)
                    .noticed(3, 0)?,
                (false, true) => job
                    .get_gap(peer, SPACE + to, from, length, mtu, gap)
                    .noticed(3, 0)?,
            };
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
    let (peer, flags) = (job.right(), LOCAL | REMOTE | TCQ);
    job.put(peer, 0, 8, 0).ok(1, flags, 1)?;
    post::put_piggyback8(job.hdl, job.vcq(peer), 0, job.at(peer, 8), 0).ok(1, flags, 2)?;
    job.put_piggyback(peer, &[0; 32], 8, 0).ok(1, flags, 3)?;
    job.get(peer, 0, 8, 0).ok(1, flags, 4)?;
    job.queue.completes(1..=4)?;
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

/// Puts or gets blocks, with MTU and gap in every second round.
fn strides(ctx: &Ctx, put: bool) -> Verdict {
    const HALF: usize = 16 * 1024;
    let shapes = [
        (1, 3, 40),
        (8, 8, 64),
        (12, 100, 7),
        (255, 256, 33),
        (1000, 1001, 16),
        (5, 17, 1),
    ];
    let name = if put {
        "utofu_put_stride"
    } else {
        "utofu_get_stride"
    };
    let functions = [name.to_owned(), format!("{name}_gap")].map(|name| Function::named(&name));
    with(ctx, 2 * HALF, |job| {
        let mut random = ctx.random(3);
        for (round, (len, stride, blocks)) in shapes.into_iter().enumerate() {
            let bytes = random_bytes(&mut random, HALF);
            let (from, to) = (random.below(9) as usize, random.below(9) as usize);
            job.memory.store(0, &bytes);
            job.memory.fill_range(HALF, HALF, 0xee);
            job.meet();
            let (here, there) = if put {
                (from, HALF + to)
            } else {
                (HALF + to, from)
            };
            let function = functions[round % 2];
            let code = function.post(&Call {
                local: job.stadd + here as u64,
                remote: job.at(job.right(), there),
                len,
                flags: LOCAL,
                mtu: 256,
                gap: 8,
                stride,
                blocks,
                ..Call::to(job, job.right())
            });
            ensure_eq!(code, SUCCESS, "{}", function.name);
            job.queue.notices(0..blocks, function.local_type())?;
            job.queue.mrq_is_empty()?;
            job.meet();
            let mut expected = vec![0xee; HALF];
            for at in (0..blocks).map(|block| block * stride) {
                expected[to + at..to + at + len]
                    .copy_from_slice(&bytes[from + at..from + at + len]);
            }
            let what = format!("{blocks} blocks of {len}, {stride} apart");
            job.memory.holds(HALF, &expected, &what)?;
            job.memory.holds(0, &bytes, "the source")?;
            job.meet();
        }
        Ok(())
    })
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
    let types = |kind: u8| {
        let mut types = [job.queue.mrq()?.notice_type, job.queue.mrq()?.notice_type];
        types.sort();
        equal!(types, [kind, kind + 1], "types of the notices")
    };
    let flags = LOCAL | REMOTE;
    job.put(job.rank, 0, 101, 100).ok(0, flags, 0)?;
    types(LCL_PUT)?;
    job.memory.holds(101, &bytes, "the put")?;
    job.get(job.rank, 301, 101, 100).ok(0, flags, 0)?;
    types(LCL_GET)?;
    job.memory.holds(301, &bytes, "the get")
}

fn all_pairs(job: &Job<'_>) -> Verdict {
    const ROUNDS: u64 = 20;
    for round in 1..=ROUNDS {
        job.memory.set(2048, round << 8 | u64::from(job.rank));
        for peer in (0..job.size).filter(|peer| *peer != job.rank) {
            let put = job.put(peer, 2048, 8 * job.rank as usize, 8);
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
