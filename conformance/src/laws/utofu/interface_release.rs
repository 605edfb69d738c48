//! §3.6: the time from which a program may deregister and unmap memory.

use super::kit::*;

laws! {
    sources_of_puts with(ROUNDS * LEN): "memory.release.put", "§3.6", 2, [dereg_mem, put, poll_tcq, poll_mrq] + ordering,
        "the source of a put may be deregistered and unmapped after its TCQ entry, or after its local notice: its bytes arrive";
    targets_of_gets with(LEN): "memory.release.get", "§3.6", 2, [dereg_mem, get, poll_mrq] + ordering,
        "the target of a get may be deregistered after the local notice: the data are there, and nothing is written afterwards";
    takes_away given(REMOTE): "memory.release.remote", "§3.6", 2, [dereg_mem, put, get, armw8, poll_mrq] + ordering,
        "remote memory may be deregistered after the remote notice: puts and ARMWs have been done, gets have read, nothing comes later";
    takes_away given(LOCAL): "memory.release.local", "§3.6", 2, [dereg_mem, put, get, armw8, poll_mrq] + ordering,
        "remote memory may be deregistered when the other side has its local notice";
    at_the_same_time with(16 * 1024): "memory.concurrent", "§3.6", 3, [reg_mem, put, get, armw8] + ordering,
        "one STADD serves many commands at the same time, of several processes";
}

const LEN: usize = 24 * 1024;
const ROUNDS: usize = 12;

fn unmap(memory: Memory) -> Verdict {
    // SAFETY:
    // - pages of `Memory::pages`; no user is left.
    let unmapped = unsafe { libc::munmap(memory.base.cast(), memory.len) };
    equal!(unmapped, 0, "unmapping")
}

fn sources_of_puts(job: &Job<'_>) -> Verdict {
    for round in 0..ROUNDS {
        let source = Memory::pages(LEN)?;
        source.fill(round as u8 + 1);
        let stadd = job.queue.register(source)?;
        let (vcq, to) = (job.vcq(job.right()), job.at(job.right(), round * LEN));
        let put = post::put(job.hdl, vcq, stadd, to, LEN);
        if round % 2 == 0 {
            put.ok(0, TCQ, round + 1)?;
            ensure_eq!(job.queue.tcq()?, round + 1, "cbdata");
        } else {
            put.noticed(0, 0)?;
        }
        job.queue.deregister(stadd)?;
        source.fill(0xff);
        unmap(source)?;
    }
    // Strong order: behind all of them.
    let (vcq, to) = (job.vcq(job.right()), job.at(job.right(), 0));
    post::put_piggyback8(job.hdl, vcq, 1, to, 1).noticed(0, STRONG_ORDER)?;
    job.meet();
    for round in 0..ROUNDS {
        let what = format!("put {round}, from a freed source");
        job.memory.all(round * LEN, LEN, round as u8 + 1, &what)?;
    }
    Ok(())
}

fn targets_of_gets(job: &Job<'_>) -> Verdict {
    job.memory.fill(1 + job.rank as u8);
    job.meet();
    let mut taken = Vec::new();
    for _ in 0..ROUNDS {
        let target = Memory::pages(LEN)?;
        let stadd = job.queue.register(target)?;
        let (vcq, from) = (job.vcq(job.right()), job.at(job.right(), 0));
        post::get(job.hdl, vcq, stadd, from, LEN).noticed(0, 0)?;
        job.queue.deregister(stadd)?;
        let (value, what) = (1 + job.right() as u8, "a get to a freed target");
        target.all(0, LEN, value, what)?;
        target.fill(0x77);
        taken.push(target);
    }
    job.meet();
    for_all(taken, |target| {
        target.all(0, LEN, 0x77, "memory that was the target of a get")?;
        unmap(target)
    })
}

/// Rank 0 puts to memory that rank 1 has registered, adds to it and gets it; rank 1 removes it as soon as allowed.
fn takes_away(ctx: &Ctx, flags: u64) -> Verdict {
    const STAG_1: u32 = 33;
    with(ctx, 2 * LEN, |job| {
        let mut taken = Vec::new();
        for round in 1..=ROUNDS as u64 {
            let lent = Memory::pages(LEN)?;
            lent.fill_range(8, LEN - 8, round as u8);
            let stadd = job.queue.register_as(lent, STAG_1)?;
            job.memory.fill_range(LEN, LEN, round as u8 | 0x80);
            job.meet();
            let kind = round % 3;
            if job.rank == 0 {
                let (vcq, to) = (job.vcq(1), stadd_of(job.vcq(1), STAG_1)?);
                let here = job.stadd + LEN as u64;
                match kind {
                    0 => post::put(job.hdl, vcq, here, to, LEN).ok(0, flags, 0)?,
                    1 => {
                        let get = post::get(job.hdl, vcq, job.stadd, to, LEN);
                        get.ok(0, flags | STRONG_ORDER, 0)?;
                    }
                    _ => post::armw8(job.hdl, vcq, ADD, round, to).ok(0, flags, 0)?,
                }
                if flags == LOCAL {
                    job.queue.mrq()?;
                }
            } else if flags == REMOTE {
                job.queue.mrq()?;
            }
            // After a local notice, rank 1 must learn of it first.
            if flags == LOCAL {
                job.meet();
            }
            job.queue.deregister(stadd)?;
            if job.rank == 1 {
                match kind {
                    0 => lent.all(0, LEN, round as u8 | 0x80, "what was put")?,
                    1 => lent.all(8, LEN - 8, round as u8, "what was got")?,
                    _ => ensure_eq!(lent.get(0), round, "the sum"),
                }
            }
            lent.fill(0x77);
            taken.push(lent);
            job.meet();
            if job.rank == 0 && kind == 1 {
                job.await_byte(LEN - 1, round as u8)?;
                let what = "a get from a freed source";
                job.memory.all(8, LEN - 8, round as u8, what)?;
            }
            job.meet();
        }
        for_all(taken, |lent| {
            lent.all(0, LEN, 0x77, "memory that was deregistered")?;
            unmap(lent)
        })
    })
}

fn at_the_same_time(job: &Job<'_>) -> Verdict {
    const EACH: usize = 40;
    // Source and target of all ranks at the same time.
    let all = Memory::new(8192);
    all.fill_range(0, 4096, 0x40 + job.rank as u8);
    let stadd = job.queue.register(all)?;
    for peer in 0..job.size {
        job.write(peer, 8 * job.rank as usize, stadd)?;
    }
    job.meet();
    let theirs: Vec<u64> = (0..job.size as usize)
        .map(|rank| job.memory.get(8 * rank))
        .collect();
    for _ in 0..EACH {
        for peer in (0..job.size).filter(|peer| *peer != job.rank) {
            let (vcq, at) = (job.vcq(peer), theirs[peer as usize]);
            let row = 512 * u64::from(job.rank);
            post::put(job.hdl, vcq, stadd, at + 4096 + row, 512).ok(0, LOCAL, 0)?;
            post::get(job.hdl, vcq, stadd + 6144, at, 512).ok(0, LOCAL, 0)?;
            post::armw8(job.hdl, vcq, ADD, 1, at + 8000).ok(0, LOCAL, 0)?;
        }
    }
    let others = job.size as usize - 1;
    for_all(0..3 * EACH * others, |_| job.queue.mrq())?;
    job.meet();
    ensure_eq!(all.get(8000), (EACH * others) as u64, "additions");
    for peer in (0..job.size as usize).filter(|peer| *peer != job.rank as usize) {
        let what = format!("the put of rank {peer}");
        all.all(4096 + 512 * peer, 512, 0x40 + peer as u8, &what)?;
    }
    ensure!(all.load(6144, 1)[0] >= 0x40, "nothing was got");
    job.meet();
    job.queue.deregister(stadd)
}
