//! Counters of remote operations, bound to endpoints and to memory (fi_cntr(3), fi_endpoint(3), fi_mr(3)).

use super::kit::*;

laws! {
    endpoint with(&Plan::DEFAULT.caps(FI_RMA | FI_ATOMIC).counters(&[FI_REMOTE_WRITE, FI_REMOTE_READ]), 256):
        "cntr.remote.silent", "fi_endpoint(3), fi_ep_bind", 3,
        [ep_bind, cntr_read, write, inject_write, writedata, read, atomic, inject_atomic, fetch_atomic, compare_atomic] + ordering,
        "counters bound to an endpoint count writes and base atomics, and reads and fetching atomics, each once, though the target calls nothing";
    memory with(&Plan::DEFAULT.caps(FI_RMA | FI_ATOMIC), 256): "cntr.memory", "fi_mr(3), fi_mr_bind", 3,
        [mr_bind, cntr_read, write, inject_write, writemsg, read, atomic, inject_atomic, fetch_atomic, compare_atomic] + ordering,
        "a counter bound to memory counts each operation that modifies it once, whatever its parts, and none on other memory";
    woken with(&Plan::DEFAULT.caps(FI_RMA | FI_ATOMIC | FI_RMA_EVENT), 256):
        "cntr.memory.woken", "fi_mr(3), fi_cntr(3)", 2, [mr_bind, cntr_wait, write] + ordering,
        "a wait for a memory region's counter ends when peers have written, and then the data is there";
    refused with(&Plan::DEFAULT, 256): "cntr.memory.refused", "fi_mr(3), fi_cntr(3)", 1, [mr_bind, cntr_open],
        "a counter is bound to memory once, with known flags, and is not closed before it";
    set_again with(&Plan::DEFAULT.caps(FI_RMA | FI_ATOMIC).counters(&[FI_WRITE | FI_REMOTE_WRITE]), 256):
        "cntr.remote.set", "fi_cntr(3)", 2, [cntr_set, cntr_add, cntr_read, write],
        "values that the program sets and adds combine with the counts of peers";
}

/// Rank 0 publishes base and key of further regions. All ranks return them.
fn spread(job: &Job<'_>, all: &[Registered]) -> Result<Vec<(u64, u64)>, String> {
    let words = all.iter().flat_map(|one| [one.base, one.key]);
    if job.rank == 0 {
        let told: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        job.ctx.tell(&told);
    }
    job.meet();
    let told = job.heard(0);
    job.meet();
    let pair = |two: &[u8]| (u64_of(two), u64_of(&two[8..]));
    Ok(told.chunks_exact(16).map(pair).collect())
}

/// Seven operations on three words of a peer: an addition and a write, each also injected, fetching and comparing atomics, and a read.
pub(super) fn change_and_read(job: &Job<'_>, words: Words) -> Verdict {
    let mut result = 0u64;
    let words = words.into(&mut result);
    job.done(|| words.add())?;
    job.post(|| words.inject_add())?;
    job.done(|| words.behind(8).write())?;
    job.post(|| words.behind(8).inject())?;
    job.done(|| words.fetch_add())?;
    job.done(|| words.behind(16).swap())?;
    job.done(|| words.behind(8).read()).map(drop)
}

fn endpoint(job: &Job<'_>) -> Verdict {
    let rounds = many(job.ctx, 5);
    let [writes, reads] = job.station.counted()?;
    if job.rank > 0 {
        let words = job.words(0, 8);
        for _ in 0..rounds {
            change_and_read(job, words)?;
            job.done(|| words.behind(8).write_data(7))?;
        }
        // Refused operations are not counted.
        let nowhere = words.under(words.place.2 + 1000);
        job.fails(FI_ENOKEY, "a write to no memory", || nowhere.write())?;
        settle(job)?;
    }
    job.meet();
    if job.rank == 0 {
        let others = u64::from(job.size) - 1;
        let expected = (5 * others * rounds, (3 * rounds + 1) * others);
        let seen = (value_of(writes), value_of(reads));
        ensure_eq!(seen, expected, "writes and reads, at the first look");
        ensure_eq!((errors_of(writes), errors_of(reads)), (0, 0), "failures");
        job.rx.successes(0..others * rounds)?;
    }
    Ok(())
}

/// Waits for the end of operations that were injected for rank 0: a fenced read completes after them.
fn settle(job: &Job<'_>) -> Verdict {
    let (to, addr, key) = job.place(0, 128);
    let mut word = 0u64;
    let iov = iovec(&raw mut word, 8);
    let remote = fi_rma_iov { addr, len: 8, key };
    let message = rma_msg(&iov, to, &remote, null_mut());
    job.done(|| call!(rma job.ep, readmsg(&message, FI_COMPLETION | FI_FENCE)))?;
    Ok(())
}

fn memory(job: &Job<'_>) -> Verdict {
    let rounds = many(job.ctx, 5);
    // Two regions, each with a counter of remote writes. The first also has a counter of remote reads.
    let memories = [Buffer::new(256), Buffer::new(256)];
    let mut registered = Vec::new();
    let mut counters = Vec::new();
    if job.rank == 0 {
        for (nth, memory) in memories.iter().enumerate() {
            registered.push(job.station.register(**memory, 100 + nth as u64)?);
            let bound = job.station.counter()?;
            ok!(fid registered[nth].mr, bind(bound.cast(), FI_REMOTE_WRITE));
            counters.push(bound);
        }
        let bound = job.station.counter()?;
        ok!(fid registered[0].mr, bind(bound.cast(), FI_REMOTE_READ));
        counters.push(bound);
    }
    let places = spread(job, &registered)?;
    if job.rank > 0 {
        let (to, plain, plain_key) = job.place(0, 0);
        let [(at, key), (other, other_key)] = places[..] else {
            return Err("not two places".into());
        };
        let mut result = 0u64;
        let beside = job.words(0, 0);
        let inside = Words::new(job.ep, (to, at, key)).into(&mut result);
        let words = [1u64; 4];
        let iov = iovec(words.as_ptr(), 32);
        let part = |addr, len, key| fi_rma_iov { addr, len, key };
        let parts = [
            part(at + 32, 8, key),
            part(other, 8, other_key),
            part(at + 64, 8, key),
            part(plain, 8, plain_key),
        ];
        let message = fi_msg_rma {
            rma_iov_count: parts.len(),
            ..rma_msg(&iov, to, &parts[0], null_mut())
        };
        for _ in 0..rounds {
            change_and_read(job, inside)?;
            job.done(|| call!(rma job.ep, writemsg(&message, FI_COMPLETION)))?;
            job.done(|| inside.load())?;
            job.done(|| beside.write())?;
        }
        settle(job)?;
    }
    job.meet();
    if job.rank == 0 {
        let all = (u64::from(job.size) - 1) * rounds;
        let seen: Vec<u64> = counters.iter().map(|counter| value_of(*counter)).collect();
        let expected = [7 * all, all, 2 * all];
        ensure_eq!(seen, expected, "the counters, at the first look");
        ensure_eq!(memories[0].get(0), 3 * all, "the sum");
    }
    for_all(registered, |one| close(one.mr))?;
    for_all(counters, close)
}

fn woken(job: &Job<'_>) -> Verdict {
    let rounds = many(job.ctx, 5);
    let memory = Buffer::new(256);
    let (mut registered, mut bound) = (Vec::new(), null_mut());
    if job.rank == 0 {
        registered.push(job.station.register(*memory, 100)?);
        bound = job.station.counter()?;
        ok!(fid registered[0].mr, bind(bound.cast(), FI_REMOTE_WRITE));
    }
    let places = spread(job, &registered)?;
    for round in 1..=rounds {
        if job.rank == 0 {
            ok!(obj bound, wait(round, -1));
            ensure_eq!(memory.get(8), round, "the data when the counter changes");
            // The other rank continues when it has seen this write.
            job.write(1, 0, &round.to_le_bytes())?;
        } else {
            let (at, key) = places[0];
            let words = Words::new(job.ep, (job.peer(0).address, at + 8, key));
            job.done(|| words.from(&round).write())?;
            job.await_word(0, round)?;
        }
    }
    job.meet();
    for one in registered {
        close(one.mr)?;
        close(bound)?;
    }
    Ok(())
}

fn refused(job: &Job<'_>) -> Verdict {
    let (memory, mr) = (Buffer::new(256), null_mut::<fid_mr>());
    gives!(FI_EINVAL, fid job.registered.mr, bind(mr.cast(), FI_REMOTE_WRITE));
    let registered = job.station.register(*memory, 100)?;
    let bound = job.station.counter()?;
    gives!(FI_EBADFLAGS, fid registered.mr, bind(bound.cast(), 0));
    gives!(FI_EBADFLAGS, fid registered.mr, bind(bound.cast(), FI_REMOTE_WRITE | FI_WRITE));
    ok!(fid registered.mr, bind(bound.cast(), FI_REMOTE_WRITE));
    gives!(FI_EINVAL, fid registered.mr, bind(bound.cast(), FI_REMOTE_WRITE));
    gives!(FI_EBUSY, fid bound, close());
    ensure_eq!(value_of(bound), 0, "a counter of what was not done");
    close(registered.mr)?;
    close(bound)?;
    // The number of regions and counters over a domain's lifetime is unlimited.
    for _ in 0..3000 {
        let registered = job.station.register(*memory, 100)?;
        let bound = job.station.counter()?;
        ok!(fid registered.mr, bind(bound.cast(), FI_REMOTE_WRITE));
        close(registered.mr)?;
        close(bound)?;
    }
    Ok(())
}

fn set_again(job: &Job<'_>) -> Verdict {
    let counter = job.station.counters[0];
    job.write(job.right(), 0, &[1; 8])?;
    job.meet();
    ensure_eq!(value_of(counter), 2, "one there, one here");
    ok!(obj counter, set(10));
    ensure_eq!(value_of(counter), 10, "after fi_cntr_set");
    job.meet();
    job.write(job.right(), 0, &[2; 8])?;
    job.meet();
    ok!(obj counter, add(5));
    equal!(value_of(counter), 17, "after another, and fi_cntr_add")
}
