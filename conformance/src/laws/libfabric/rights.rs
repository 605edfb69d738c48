//! Permissions and lifetime of memory regions.

use super::kit::*;
use super::memory::{add, exchanged, register};

laws! {
    rights with(&Plan::DEFAULT, 256): "mr.rights", "fi_atomic(3) §4.3, §4.4", 2, [mr_reg, atomic, fetch_atomic, compare_atomic, write, read],
        "writing needs the right of remote write, reading that of remote read, fetching operations both; without it FI_EACCES, and nothing is changed";
    nothing_allowed with(&Plan::DEFAULT, 256): "mr.rights.none", "fi_mr(3)", 2, [mr_reg, atomic, fetch_atomic],
        "memory without rights of peers can be registered, and no peer reaches it";
    closed in_modes(256): "mr.closed", "fi_mr(3)", 2, [close, atomic, fetch_atomic, write, read],
        "the key of a region that has been closed is refused (FI_ENOKEY), and its memory left alone";
    again with(&Plan::DEFAULT.mr_mode(0), 256): "mr.again", "fi_mr(3)", 2, [mr_reg, close, fetch_atomic, write],
        "under a key that is used again, peers reach the new memory, even if they knew the old";
}

fn rights(job: &Job<'_>) -> Verdict {
    let to = job.peer(job.right()).address;
    for (access, reads, writes) in [
        (FI_REMOTE_READ, true, false),
        (FI_REMOTE_WRITE, false, true),
        (FI_REMOTE_READ | FI_REMOTE_WRITE, true, true),
        (FI_READ | FI_WRITE | FI_SEND | FI_RECV, false, false),
    ] {
        let memory = Buffer::new(256);
        memory.set(8, 11);
        let region = register(job, *memory, access, 500 + access, 0)?;
        let (key, base) = exchanged(job, region);
        let (operand, mut result) = (5u64, 77u64);
        let words = Words::new(job.ep, (to, base + 8, key)).from(&operand);
        let words = words.into(&mut result);
        for (what, operation, allowed) in [
            ("fi_atomic", Words::add as Operation, writes),
            ("reading atomically", Words::load, reads),
            ("fi_fetch_atomic", Words::fetch_add, reads && writes),
            ("fi_compare_atomic", Words::swap, reads && writes),
            ("fi_read", Words::read, reads),
            ("fi_write", |words| words.behind(8).write(), writes),
        ] {
            job.post(|| operation(&words))?;
            match allowed {
                true => drop(job.tx.next().map_err(|text| format!("{what}: {text}"))?),
                false => drop(job.tx.fails(FI_EACCES, what)?),
            }
            let before = match (reads, writes) {
                (true, true) => 16,
                (true, false) => 11,
                _ => 77,
            };
            let seen = current(&result);
            let right = what != "reading atomically" || seen == before;
            ensure!(right, "rights {access:#x}: {seen} is read");
        }
        job.meet();
        let expected = match (reads, writes) {
            (true, true) => 21,
            (false, true) => 16,
            _ => 11,
        };
        ensure_eq!(memory.get(8), expected, "rights {access:#x}: the memory");
        let left = if writes { 5 } else { 0 };
        let what = format!("rights {access:#x}: the memory after fi_write");
        memory.shows(16, left, what)?;
        close(region.mr)?;
    }
    job.tx.is_empty()
}

fn nothing_allowed(job: &Job<'_>) -> Verdict {
    let memory = Buffer::new(256);
    let region = register(job, *memory, 0, 3, 0)?;
    let (key, base) = exchanged(job, region);
    let (to, mut result) = (job.peer(job.right()).address, 0u64);
    let words = Words::new(job.ep, (to, base, key)).into(&mut result);
    job.fails(FI_EACCES, "fi_atomic", || words.add())?;
    job.fails(FI_EACCES, "fi_fetch_atomic", || words.load())?;
    job.meet();
    memory.holds(0, &[0; 256], "the memory")?;
    close(region.mr)
}

fn closed(job: &Job<'_>) -> Verdict {
    let memory = Buffer::new(256);
    let region = register(job, *memory, FI_REMOTE_READ | FI_REMOTE_WRITE, 900, 0)?;
    let (key, base) = exchanged(job, region);
    add(job, base + 8, key, 4)?;
    job.meet();
    close(region.mr)?;
    job.meet();
    let (to, mut result) = (job.peer(job.right()).address, 5u64);
    let words = Words::new(job.ep, (to, base + 8, key)).into(&mut result);
    for (what, operation) in [
        ("fi_atomic", Words::add as Operation),
        ("fi_fetch_atomic", Words::fetch_add),
        ("fi_write", Words::write),
        ("fi_read", Words::read),
    ] {
        job.fails(FI_ENOKEY, what, || operation(&words))?;
    }
    job.meet();
    ensure_eq!((memory.get(8), result), (4, 5), "the memory and the result");
    // Other regions are unaffected.
    job.fetch(job.right(), 8, SUM, 1).map(drop)
}

fn again(job: &Job<'_>) -> Verdict {
    let memory = [Buffer::new(256), Buffer::new(512)];
    for round in 0..20usize {
        let now = *memory[round % 2];
        let region = register(job, now, FI_REMOTE_READ | FI_REMOTE_WRITE, 77, round % 3)?;
        job.meet();
        let before = add(job, 16, 77, 1)?;
        ensure_eq!(before, round as u64 / 2, "the memory of round {round}");
        job.meet();
        close(region.mr)?;
    }
    let seen = (memory[0].get(16), memory[1].get(16));
    ensure_eq!(seen, (10, 10), "both memories");
    job.meet();
    Ok(())
}
