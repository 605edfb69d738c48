//! §2.2.2, §3.6 STADD management.

use std::collections::BTreeSet;

use super::kit::*;

laws! {
    same_region with(256): "memory.same", "§3.6", 2, [reg_mem, dereg_mem],
        "a region that is registered again has the same STADD, and stays until it was deregistered as often";
    overlapping with(256): "memory.overlap", "§3.6", 2, [reg_mem, put],
        "overlapping regions are registered beside each other, and each STADD leads to its own";
    offsets with(256): "memory.offset", "§3.6", 2, [reg_mem, put, get],
        "a STADD plus an offset is the byte there; local and remote";
    predictable: "memory.stag", "§3.6.1.3", 3, [reg_mem_with_stag, query_stadd],
        "all processes know every reserved STag's STADD without an exchange, before and after its registration";
    used with(256): "memory.stag.used", "§3.6.1.2", 1, [reg_mem_with_stag, dereg_mem],
        "a STag is USED until it is deregistered, and can be registered with other memory then";
    aligned with(256): "memory.stag.alignment", "§3.6.1.2", 1, [reg_mem_with_stag],
        "address and size must be multiples of 256, the STag less than 256";
    another_under_the_stag with(256): "memory.stag.reuse", "§3.6.1.2", 2, [reg_mem_with_stag, dereg_mem, put] + ordering,
        "puts to a STag that was registered anew reach the new memory, and never the old one";
    read_only with(256): "memory.read-only", "§3.6.2.1", 2, [reg_mem, put, get, armw8],
        "read-only memory can be read; writing to it is an error of the communication and changes nothing";
    both_ways with(256): "memory.read-only.both", "§3.6.2.1", 2, [reg_mem],
        "one region can be registered with and without read-only";
    two_vcqs with(256): "memory.two-vcqs", "§3.6", 2, [reg_mem],
        "memory is registered with each VCQ that uses it; the STADD of one is no address of the other";
    unique with(256): "memory.unique-in-cq", "§2.2.2", 2, [reg_mem, reg_mem_with_stag, query_stadd, put],
        "STADDs of the VCQs of one CQ are all different, with a reserved STag as without, and each leads to its own memory";
    many with(256): "memory.many", "§3.6.1.1", 1, [reg_mem, dereg_mem],
        "thousands of regions can be registered, each with a unique STADD";
    stale with(256): "memory.stale", "§3.6.1.4", 2, [dereg_mem, put_piggyback8, get] + ordering,
        "a STADD that was deregistered is an error of the communication, and memory is left alone";
    one_byte with(256): "memory.small", "§3.6.1.1", 2, [reg_mem, put_piggyback8],
        "a region may be one byte at any address; the bytes beside it cannot be written";
}

/// Puts up to 8 bytes and returns the code of the notice.
fn put_code(job: &Job<'_>, vcq: u64, stadd: u64, value: u64, length: usize) -> Result<i32, String> {
    post::put_piggyback8(job.hdl, vcq, value, stadd, length).ok(0, LOCAL, 0)?;
    Ok(job.queue.next_mrq()?.0)
}

fn is_error(code: i32) -> bool {
    (UTOFU_ERR_MRQ_RMT_LENGTH..=UTOFU_ERR_MRQ_OTHER).contains(&code)
}

/// The put succeeds.
#[track_caller]
fn puts(job: &Job<'_>, vcq: u64, stadd: u64, value: u64, length: usize, what: &str) -> Verdict {
    code_is(put_code(job, vcq, stadd, value, length)?, SUCCESS, what)
}

/// The put ends with an error of the target.
fn refuses(job: &Job<'_>, vcq: u64, stadd: u64, value: u64, length: usize, what: &str) -> Verdict {
    let code = put_code(job, vcq, stadd, value, length)?;
    ensure!(is_error(code), "{what} gave {}", code_name(code));
    Ok(())
}

/// Sends a STADD to the left rank and gets the STADD of the right one.
fn exchange(job: &Job<'_>, stadd: u64) -> Result<u64, String> {
    job.meet();
    job.write(job.left(), 0, stadd)?;
    job.meet();
    Ok(job.memory.get(0))
}

fn same_region(job: &Job<'_>) -> Verdict {
    let memory = Memory::new(64);
    let stadd = job.queue.register(memory)?;
    for _ in 0..2 {
        let again = job.queue.register(memory)?;
        ensure_eq!(again, stadd, "the STADD of a region registered again");
    }
    let theirs = exchange(job, stadd)?;
    let peer = job.vcq(job.right());
    for left in [2, 1] {
        puts(job, peer, theirs, left, 8, "a put with some left")?;
        job.meet();
        ensure_eq!(memory.get(0), left, "what was put");
        job.queue.deregister(stadd)?;
        job.meet();
    }
    puts(job, peer, theirs, 7, 8, "a put with one registration left")?;
    job.meet();
    job.queue.deregister(stadd)?;
    job.meet();
    refuses(job, peer, theirs, 99, 8, "a put to a deregistered STADD")?;
    job.meet();
    equal!(memory.get(0), 7, "the memory in the end")
}

fn overlapping(job: &Job<'_>) -> Verdict {
    let memory = Memory::new(64);
    let parts = [(0usize, 64usize), (0, 32), (16, 32), (17, 8)];
    let stadds = parts.map(|(at, len)| job.queue.register(memory.part(at, len)));
    let stadds = stadds.into_iter().collect::<Result<Vec<_>, _>>()?;
    for (i, (at, len)) in parts.into_iter().enumerate() {
        let theirs = exchange(job, stadds[i])?;
        let peer = job.vcq(job.right());
        let last = theirs + len as u64 - 1;
        let value = 0x40 + i as u64;
        let what = format!("a put to the end of part {i}");
        puts(job, peer, last, value, 1, &what)?;
        let what = format!("a put over the end of part {i}");
        refuses(job, peer, last, 0, 2, &what)?;
        job.meet();
        memory.holds(at + len - 1, &[0x40 + i as u8], &format!("part {i}"))?;
    }
    for_all(stadds, |stadd| job.queue.deregister(stadd))
}

fn offsets(job: &Job<'_>) -> Verdict {
    let memory = Memory::new(100_000);
    let stadd = job.queue.register(memory)?;
    let theirs = exchange(job, stadd)?;
    let mut random = job.ctx.random(1);
    for _ in 0..50 {
        let [from, to, back] = [0, 31_000, 65_000].map(|at| at + random.below(30_000));
        let bytes = random_bytes(&mut random, 700);
        memory.store(from as usize, &bytes);
        let peer = job.vcq(job.right());
        job.meet();
        post::put(job.hdl, peer, stadd + from, theirs + to, 700).noticed(0, 0)?;
        post::get(job.hdl, peer, stadd + back, theirs + to, 700).noticed(0, 0)?;
        job.meet();
        memory.holds(to as usize, &bytes, "what was put")?;
        memory.holds(back as usize, &bytes, "what was got")?;
    }
    job.meet();
    job.queue.deregister(stadd)
}

fn predictable(ctx: &Ctx) -> Verdict {
    let queue = Queue::with_component(TNI, 0, 0)?;
    let memory = Memory::new(256);
    let before = (0..256).map(|stag| stadd_of(queue.id, stag));
    let before = before.collect::<Result<Vec<_>, _>>()?;
    let different: BTreeSet<_> = before.iter().collect();
    ensure_eq!(different.len(), 256, "different STADDs");
    for (stag, expected) in (0..256).zip(&before) {
        let stadd = queue.register_as(memory, stag)?;
        ensure_eq!(stadd, *expected, "the STADD of STag {stag}");
    }
    ctx.sync();
    for rank in (0..ctx.size).filter(|rank| *rank != ctx.rank) {
        let peer = vcq_of(rank, TNI, 0)?;
        for stag in [0, 1, 100, 255] {
            let to = stadd_of(peer, stag)? + 8 * u64::from(ctx.rank);
            post::armw8(queue.hdl, peer, ADD, 1, to).noticed(0, 0)?;
        }
    }
    ctx.sync();
    for rank in (0..ctx.size).filter(|rank| *rank != ctx.rank) {
        ensure_eq!(memory.get(8 * rank as usize), 4, "additions of rank {rank}");
    }
    for stadd in before {
        queue.deregister(stadd)?;
    }
    queue.free()
}

fn used(job: &Job<'_>) -> Verdict {
    let (one, two) = (Memory::new(256), Memory::new(512));
    let mut stadd = 0;
    for round in 0..300 {
        let first = job.queue.register_as(one, 200)?;
        gives! { UTOFU_ERR_USED:
            utofu_reg_mem_with_stag(job.hdl, two.base.cast(), 512, 200, 0, &mut stadd);
            utofu_reg_mem_with_stag(job.hdl, one.base.cast(), 256, 200, 0, &mut stadd);
        }
        job.queue.deregister(first)?;
        let second = job.queue.register_as(two, 200)?;
        ensure_eq!(second, first, "the STADD in round {round}");
        job.queue.deregister(second)?;
    }
    one.free();
    two.free();
    Ok(())
}

fn aligned(job: &Job<'_>) -> Verdict {
    let memory = Memory::new(1024);
    let mut stadd = 0;
    let odd = memory.base.wrapping_add(128);
    gives! {
        UTOFU_ERR_INVALID_ADDRESS: utofu_reg_mem_with_stag(job.hdl, odd.cast(), 256, 1, 0, &mut stadd);
        UTOFU_ERR_INVALID_SIZE: utofu_reg_mem_with_stag(job.hdl, memory.base.cast(), 257, 1, 0, &mut stadd);
        UTOFU_ERR_INVALID_SIZE: utofu_reg_mem_with_stag(job.hdl, memory.base.cast(), 0, 1, 0, &mut stadd);
        UTOFU_ERR_INVALID_STAG: utofu_reg_mem_with_stag(job.hdl, memory.base.cast(), 256, 256, 0, &mut stadd);
        UTOFU_ERR_INVALID_STAG: utofu_query_stadd(job.queue.id, 256, &mut stadd);
    }
    memory.free();
    Ok(())
}

fn another_under_the_stag(job: &Job<'_>) -> Verdict {
    let rooms = [Memory::new(256), Memory::new(1024)];
    let peer = job.vcq(job.right());
    let to = stadd_of(peer, 17)?;
    for round in 1..=40u64 {
        let memory = rooms[round as usize % 2];
        let other = rooms[(round as usize + 1) % 2];
        let stadd = job.queue.register_as(memory, 17)?;
        job.meet();
        puts(job, peer, to + 8, round, 8, "the put of a round")?;
        // Only the larger registration has this byte.
        let code = put_code(job, peer, to + 512, round, 8)?;
        ensure_eq!(code == SUCCESS, memory.len > 512, "past 256 bytes");
        job.meet();
        ensure_eq!(memory.get(8), round, "what was put");
        ensure_eq!(other.get(8), round - 1, "the memory of the round before");
        job.queue.deregister(stadd)?;
        job.meet();
    }
    rooms.into_iter().for_each(Memory::free);
    Ok(())
}

fn read_only(job: &Job<'_>) -> Verdict {
    static TEXT: [u8; 64] = [0x2a; 64];
    let text = TEXT.as_ptr().cast_mut();
    let stadd = got!(utofu_reg_mem(job.hdl, text.cast(), 64, 1));
    let theirs = exchange(job, stadd)?;
    let peer = job.vcq(job.right());
    // As the source of a get and of a put.
    post::get(job.hdl, peer, job.stadd + 64, theirs, 64).noticed(0, 0)?;
    job.memory.holds(64, &TEXT, "what was got")?;
    job.meet();
    post::put(job.hdl, peer, stadd, job.at(job.right(), 128), 64).noticed(0, 0)?;
    job.meet();
    job.memory.holds(128, &TEXT, "what was put")?;
    // As a target.
    let fails = |code, what: &str| code_is(job.queue.next_mrq()?.0, code, what);
    post::put_piggyback8(job.hdl, peer, 1, theirs, 8).ok(0, LOCAL, 0)?;
    fails(UTOFU_ERR_MRQ_RMT_MEMORY, "a piggyback")?;
    post::put(job.hdl, peer, job.stadd, theirs, 8).ok(0, LOCAL, 0)?;
    fails(UTOFU_ERR_MRQ_RMT_MEMORY, "a put")?;
    post::armw8(job.hdl, peer, ADD, 1, theirs).ok(0, LOCAL, 0)?;
    fails(UTOFU_ERR_MRQ_RMT_MEMORY, "an ARMW")?;
    post::get(job.hdl, peer, stadd, job.at(job.right(), 0), 8).ok(0, LOCAL, 0)?;
    fails(UTOFU_ERR_MRQ_LCL_MEMORY, "a get")?;
    job.meet();
    ensure!(TEXT.iter().all(|byte| *byte == 0x2a), "text changed");
    job.queue.deregister(stadd)
}

fn both_ways(job: &Job<'_>) -> Verdict {
    let memory = Memory::new(256);
    let writable = job.queue.register(memory)?;
    let constant = got!(utofu_reg_mem(job.hdl, memory.base.cast(), memory.len, 1));
    ensure!(writable != constant, "one STADD for both");
    let peer = job.vcq(job.right());
    let theirs = exchange(job, constant)?;
    refuses(job, peer, theirs, 1, 8, "a put to the read-only one")?;
    let theirs = exchange(job, writable)?;
    puts(job, peer, theirs, 2, 8, "a put to the other one")?;
    job.meet();
    ensure_eq!(memory.get(0), 2, "what was put");
    job.queue.deregister(writable)?;
    job.queue.deregister(constant)
}

fn two_vcqs(job: &Job<'_>) -> Verdict {
    let second = Queue::with_component(TNI, 1, 0)?;
    let memory = Memory::new(256);
    let one = job.queue.register_as(memory, 30)?;
    job.meet();
    let other = vcq_of(job.right(), TNI, 1)?;
    let theirs = stadd_of(other, 30)?;
    refuses(job, other, theirs, 1, 8, "a put through the VCQ without it")?;
    job.meet();
    let two = second.register_as(memory, 30)?;
    job.meet();
    puts(job, other, theirs, 2, 8, "a put through the VCQ with it")?;
    job.meet();
    job.queue.deregister(one)?;
    job.meet();
    puts(job, other, theirs, 3, 8, "a put when the other has gone")?;
    let first = job.vcq(job.right());
    let theirs = stadd_of(first, 30)?;
    refuses(job, first, theirs, 4, 8, "a put to the ended process")?;
    job.meet();
    ensure_eq!(memory.get(0), 3, "the memory");
    second.close(two)
}

fn unique(job: &Job<'_>) -> Verdict {
    const STAGS: [u32; 3] = [0, 7, 255];
    let others = (1..8).map(|component| Queue::with_component(TNI, component, 0));
    let others = others.collect::<Result<Vec<_>, _>>()?;
    let mut registered = Vec::new();
    let mut seen = BTreeSet::new();
    for queue in &others {
        for stag in STAGS.map(Some).into_iter().chain([None; 3]) {
            let memory = Memory::new(256);
            let stadd = match stag {
                Some(stag) => queue.register_as(memory, stag)?,
                None => queue.register(memory)?,
            };
            ensure!(seen.insert(stadd), "STADD {stadd:#x} twice in a CQ");
            registered.push((queue, stadd, memory));
        }
    }
    job.meet();
    for component in 1..8 {
        let vcq = vcq_of(job.right(), TNI, component)?;
        for stag in STAGS {
            let value = u64::from(component) << 32 | u64::from(stag) | 1 << 63;
            let code = put_code(job, vcq, stadd_of(vcq, stag)?, value, 8)?;
            ensure_eq!(code, SUCCESS, "STag {stag} of component {component}");
        }
    }
    job.meet();
    for (i, (queue, stadd, memory)) in registered.into_iter().enumerate() {
        let component = i as u64 / 6 + 1;
        let value = match STAGS.get(i % 6) {
            Some(stag) => component << 32 | u64::from(*stag) | 1 << 63,
            None => 0,
        };
        ensure_eq!(memory.get(0), value, "{} of component {component}", i % 6);
        queue.deregister(stadd)?;
        memory.free();
    }
    others.into_iter().try_for_each(Queue::free)
}

fn many(job: &Job<'_>) -> Verdict {
    let memory = Memory::new(4096 * 64);
    let stadds = (0..4096).map(|i| job.queue.register(memory.part(64 * i, 64)));
    let stadds = stadds.collect::<Result<Vec<_>, _>>()?;
    for i in [0usize, 1, 999, 4095] {
        let code = put_code(job, job.queue.id, stadds[i] + 8, i as u64 + 1, 8)?;
        ensure_eq!(code, SUCCESS, "a put to region {i}");
        memory.shows(64 * i + 8, i as u64 + 1, "a put to a region")?;
    }
    for stadd in &stadds {
        job.queue.deregister(*stadd)?;
    }
    let different: BTreeSet<_> = stadds.iter().collect();
    equal!(different.len(), 4096, "different STADDs")
}

fn stale(job: &Job<'_>) -> Verdict {
    let memory = Memory::new(256);
    let peer = job.vcq(job.right());
    let mut before = Vec::new();
    for round in 1..=20u64 {
        let stadd = job.queue.register(memory)?;
        let theirs = exchange(job, stadd)?;
        puts(job, peer, theirs, round, 8, "a put to a new STADD")?;
        for old in &before {
            refuses(job, peer, *old, 99, 8, "a put to an old STADD")?;
            post::get(job.hdl, peer, job.stadd + 8, *old, 8).ok(0, LOCAL, 0)?;
            ensure!(is_error(job.queue.next_mrq()?.0), "a get from an old STADD");
        }
        before.push(theirs);
        job.meet();
        ensure_eq!(memory.get(0), round, "the memory");
        job.queue.deregister(stadd)?;
        job.meet();
    }
    memory.free();
    Ok(())
}

fn one_byte(job: &Job<'_>) -> Verdict {
    let memory = Memory::new(64);
    let stadd = job.queue.register(memory.part(13, 1))?;
    let theirs = exchange(job, stadd)?;
    let peer = job.vcq(job.right());
    puts(job, peer, theirs, 0x11, 1, "a put of a byte")?;
    for (offset, length) in [(0, 2), (1, 1), (u64::MAX, 1)] {
        let to = theirs.wrapping_add(offset);
        let what = format!("a put of {length} at {offset}");
        refuses(job, peer, to, 0xffff, length, &what)?;
    }
    job.meet();
    memory.only(0, (13, &[0x11]), 0, "the byte")?;
    job.queue.deregister(stadd)
}
